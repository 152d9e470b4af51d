"""What compiled programs take on each device beside the arrays they are given.

They are compiled from shapes and types, as the run will compile them; no array is made.
"""

import dataclasses
import functools

import jax
import numpy as np

from memo_jax import budget, exemplars, parallel, training
from memo_jax.estimate.arrays import Arrays
from memo_jax.exemplars import Pool
from memo_jax.problems import Problems, placement


@dataclasses.dataclass(frozen=True)
class Programs:
    """Bytes on each device; 0 for what a task does not do and what the compiler does not tell.

    step: a training step, or the epoch of them that is one dispatch. forward: a batch of
    predictions. picking: the choice of exemplars.
    """

    step: int
    forward: int
    picking: int


def of_task(problems: Problems, arrays: Arrays) -> Programs:
    """Compiles the programs of a task; seconds each."""
    batch = problems.config.schedule.batch_size
    return Programs(
        step=step(problems, arrays, batch) if arrays.trained else 0,
        forward=_forward(problems, arrays),
        picking=_picking(problems, arrays) if arrays.slots else 0,
    )


def step(problems: Problems, arrays: Arrays, batch_size: int) -> int:
    """What a training step takes at some batch size; compiles it."""
    placed = _placed(problems)
    problem = problems.training(arrays.task, arrays.variables, placed(arrays.before))
    problem = dataclasses.replace(problem, batch_size=batch_size)
    pool = _pool(problems, arrays)
    begin = functools.partial(training.begin, problem, pool=pool)
    state = placed(jax.eval_shape(begin, arrays.variables))
    driver = training.Driver(problem, state, pool, problems.scan)
    return driver.memory.get("step_beyond", 0)


def _pool(problems: Problems, arrays: Arrays) -> Pool:
    """Shapes and types of a task's pool, and how it lies on the devices."""
    shape = problems.plan.net.image_shape
    rows = -(-max(arrays.resident, 1) // arrays.share) * arrays.share
    placed = placement(problems.config, problems.mesh)
    rest = np.broadcast_to(np.uint8(0), (arrays.new, *shape)) if arrays.streamed else None
    return Pool(
        jax.ShapeDtypeStruct((rows, *shape), np.uint8, sharding=placed),
        _placed(problems)(jax.ShapeDtypeStruct((arrays.pool,), np.int32)),
        rest,
    )


def _forward(problems: Problems, arrays: Arrays) -> int:
    """What a batch of predictions takes. Its images are gathered, then divided among devices."""
    predict = problems.predictor(_placed(problems)(arrays.variables))
    images = predict.batch * arrays.image_bytes
    return predict.memory.get("beyond", 0) + images + images // problems.mesh.size


def _picking(problems: Problems, arrays: Arrays) -> int:
    """What choosing the exemplars of the new classes takes, beside the features."""
    plan, task = problems.plan, arrays.task
    width = arrays.variables["params"]["head"]["kernel"].shape[0]
    shares = budget.shares(arrays.slots, task.num_seen, plan.allocation)
    features = jax.ShapeDtypeStruct((arrays.pool, width), np.float32)
    rows = -(-task.num_new // problems.mesh.size) * problems.mesh.size
    index = jax.ShapeDtypeStruct((rows, arrays.largest), np.int32)
    lowered = exemplars.pick.lower(
        _placed(problems)(features),
        index,
        jax.ShapeDtypeStruct(index.shape, bool),
        min(arrays.largest, int(shares.max())),
        problems.config.memory.selection,
        problems.mesh,
    )
    return parallel.program_bytes(lowered.compile()).get("beyond", 0)


def _placed(problems: Problems):
    """A function that puts a tree of shapes and types on every device."""
    sharding = parallel.replicated(problems.mesh)

    def place(leaf) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return functools.partial(jax.tree.map, place)
