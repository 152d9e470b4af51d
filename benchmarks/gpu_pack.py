"""What a machine without a network is given: folders in parts, and the packages it may lack.

Needs the standard library alone, as it brings the rest.
"""

import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from memo_jax.errors import UserError

REQUIREMENTS = Path(__file__).parent.parent / "requirements.txt"
CARRIED = ("absl-py", "ml-collections", "tensorboardX")
"""What a machine that has JAX, Flax, Optax, Orbax and Matplotlib may lack; all in pure Python."""
SPARED = ("tensorflow-datasets", "importlib_resources", "grain")
"""Requirements that only data prepared by tensorflow-datasets and streamed images need."""


def split(root: Path, files: Iterable[Path], at: Path, name: str, size: int) -> list[Path]:
    """Packs files below `root` into at/NAME.00, at/NAME.01 ..., each of at most `size` bytes.

    at/NAME.json lists their sha256. Returns the parts. Raises UserError if `at` is not writable.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6) as archive:
        for file in sorted(files):
            archive.add(file, file.relative_to(root))
    packed = buffer.getvalue()
    count = -(-len(packed) // size)
    step = -(-len(packed) // count)
    pieces = [packed[step * number : step * (number + 1)] for number in range(count)]
    try:
        at.mkdir(parents=True, exist_ok=True)
        for old in at.glob(f"{name}.*"):
            old.unlink()
        parts = [at / f"{name}.{number:02d}" for number in range(count)]
        for part, piece in zip(parts, pieces):
            part.write_bytes(piece)
        sums = {part.name: _sha256(piece) for part, piece in zip(parts, pieces)}
        (at / f"{name}.json").write_text(json.dumps(sums, indent=2) + "\n")
    except OSError as error:
        raise UserError(f"{error.filename} cannot be written ({error.strerror})") from error
    return parts


def join(at: Path, name: str, to: Path) -> None:
    """Makes the folder `to` from the parts that `split` has made, all of it or nothing.

    What is there already stays. Raises UserError with the parts that are missing or damaged.
    """
    if to.exists():
        return
    try:
        sums = json.loads((at / f"{name}.json").read_text())
    except (OSError, ValueError) as error:
        raise UserError(
            f"expected {at / name}.json, a list of parts, found none; make it with "
            f"`python -m benchmarks.gpu pack` where there is a network and carry it here"
        ) from error
    parts = {part: (at / part).read_bytes() for part in sums if (at / part).is_file()}
    damaged = [part for part, piece in parts.items() if _sha256(piece) != sums[part]]
    missing = [part for part in sums if part not in parts]
    if missing or damaged:
        lists = (("missing", missing), ("damaged", damaged))
        found = "; ".join(f"{what}: {', '.join(names)}" for what, names in lists if names)
        raise UserError(f"{at}: of {len(sums)} parts of {name} {found}; carry them here")
    to.parent.mkdir(parents=True, exist_ok=True)
    packed = io.BytesIO(b"".join(parts.values()))
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=to.parent) as scratch:
        with tarfile.open(fileobj=packed, mode="r:gz") as archive:
            archive.extractall(Path(scratch, name), filter="data")
        Path(scratch, name).rename(to)


def download(to: Path) -> None:
    """Fetches the wheels of CARRIED into `to`; they suit any Python 3."""
    _pip("download", "--only-binary=:all:", f"--dest={to}", *CARRIED)


def needed() -> list[str]:
    """Names of the packages without which the program does not run on CIFAR's own files."""
    lines = REQUIREMENTS.read_text().splitlines()
    names = [found[0] for line in lines if (found := re.match(r"[\w.-]+", line))]
    return [name for name in names if name not in SPARED]


def install(wheels: Path, site: Path, names: Iterable[str]) -> list[str]:
    """Installs into `site` those packages that are missing or too old, returns NAME==VERSION.

    Whatever lies in `site` must be on the path already. Raises UserError for what can neither be
    found here nor among the wheels.
    """
    offline = ("install", "--no-index", f"--find-links={wheels}")
    report = json.loads(_pip(*offline, "--dry-run", "--report=-", *names))
    found = [item["metadata"] for item in report["install"]]
    chosen = [f"{package['name']}=={package['version']}" for package in found]
    if chosen:
        _pip(*offline, "--upgrade", f"--target={site}", *chosen)
    return chosen


def _pip(verb: str, *words: str) -> str:
    """What pip prints, kept to the versions of requirements.txt. Raises UserError if it fails."""
    command = [sys.executable, "-m", "pip", verb, "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", f"--constraint={REQUIREMENTS}", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"pip {verb}: {last_line(done.stderr)}")
    return done.stdout


def last_line(text: str) -> str:
    """The last line that says something, without pip's marks."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("ERROR: ")[:300] if lines else "it said nothing"


def _sha256(piece: bytes) -> str:
    return hashlib.sha256(piece).hexdigest()
