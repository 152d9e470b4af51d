"""How much memory there is for a run, and in whose hands."""

import dataclasses

import jax

from memo_jax import parallel
from memo_jax.budget import MB
from memo_jax.host_memory import available_memory

GB = 2**30


@dataclasses.dataclass(frozen=True)
class Room:
    """size: bytes, None where nobody tells. sharing: how many devices take from it together, as
    those of a CPU do; beside: bytes that the host takes from it too. source: whose it is.
    """

    size: int | None
    sharing: int
    beside: int
    source: str

    def needed(self, each: int) -> int:
        """Bytes of it that are taken if each device takes so many."""
        return each * self.sharing + self.beside

    def has(self, each: int) -> bool:
        """Whether each device may take so many bytes."""
        return self.size is None or self.needed(each) <= self.size

    @property
    def found(self) -> str:
        """Its size in words."""
        return f"{megabytes(self.size)} {self.source}" if self.size else "an unknown memory"

    def words(self, each: int) -> str:
        """What is needed if each device takes so many bytes, and of what that is the sum."""
        parts = [f"{megabytes(each)} on each of {self.sharing} devices"] * (self.sharing > 1)
        parts += [f"{megabytes(self.beside)} for the dataset"] * (self.beside > 0)
        return megabytes(self.needed(each)) + (f" ({', '.join(parts)})" if parts else "")


def there(mesh: jax.sharding.Mesh, gigabytes: float | None = None, dataset: int = 0) -> Room:
    """The memory of each device, if it tells; else what is free on this machine, for all of them.

    gigabytes: takes the place of the first. dataset: bytes that are yet to be read by the host.
    """
    told = parallel.device_bytes(mesh)
    if gigabytes is not None:
        return Room(int(gigabytes * GB), 1, 0, "on a device (--device-memory)")
    if told is not None:
        return Room(told, 1, 0, "on a device")
    return Room(available_memory(), len(mesh.local_devices), dataset, "free on this machine")


def megabytes(count: int) -> str:
    """Bytes for people."""
    return f"{count / MB:,.1f} MB"
