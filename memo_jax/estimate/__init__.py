"""What a run will take, before it begins: images and steps of each task, memory of each device.

`arrays` counts what is certain to be held, by arithmetic alone; `programs` asks the compiler what
the steps take beside it, from shapes, without an array; `needs` adds both up for every task;
`room` knows how much memory there is, `fit` refuses what exceeds it, `table` prints.
"""

import jax
from ml_collections import ConfigDict

from memo_jax import parallel
from memo_jax.datasets import Dataset
from memo_jax.estimate import arrays, fit, needs, room, table
from memo_jax.planning import Plan
from memo_jax.problems import Problems


def expect_arrays_fit(
    config: ConfigDict, plan: Plan, dataset: Dataset, mesh: jax.sharding.Mesh, tasks_done: int
) -> None:
    """Raises UserError if the arrays of a task that is left exceed the memory there is.

    The cheap part, to be asked before every run: nothing is compiled. dataset: already in memory.
    """
    told = parallel.device_bytes(mesh)
    held = arrays.by_task(config, plan, dataset, mesh.size, told)
    fit.expect_arrays(held[tasks_done:], room.there(mesh))


def show(problems: Problems, tasks_done: int, gigabytes: float | None = None) -> None:
    """Prints what each task that is left will take; compiles some of their steps, a minute or so.

    The dataset may be blank. gigabytes: memory of a device (2**30 bytes), to plan for another
    machine; None takes what is there. Raises UserError if that is exceeded: for arrays alone
    before anything is compiled.
    """
    splits = problems.dataset.train, problems.dataset.test
    on_the_host = sum(split.images.nbytes for split in splits)
    memory = room.there(problems.mesh, gigabytes, on_the_host)
    told = parallel.device_bytes(problems.mesh) if gigabytes is None else memory.size
    devices = problems.mesh.size
    held = arrays.by_task(problems.config, problems.plan, problems.dataset, devices, told)
    held = held[tasks_done:]
    fit.expect_arrays(held, memory)
    found = needs.by_task(problems, held)
    table.show(found, memory)
    fit.expect_all(problems, found, memory)
