"""The only training loop: one jitted step, driven by a Python loop on CPU and a scan elsewhere."""

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from memo_jax import freezing, parallel, streaming
from memo_jax.errors import UserError
from memo_jax.exemplars import Pool
from memo_jax.network import Network, Variables
from memo_jax.optimizers import Schedule, sgd
from memo_jax.order import PAD, Order
from memo_jax.randomness import key_for, words


@flax.struct.dataclass
class TrainState:
    """What survives a step; enough to go on in the middle of an epoch.

    sums: totals over the images of the running epoch (loss terms, `correct`, `images`).
    bad_step: the first step with a loss that is not finite, -1 while there is none.
    """

    step: jax.Array
    variables: Variables
    opt_state: optax.OptState
    sums: dict[str, jax.Array]
    bad_step: jax.Array


@dataclasses.dataclass(frozen=True)
class Problem:
    """All that determines the training of one task.

    loss: (outputs, labels, teacher's outputs or None) -> per-example terms, one called "loss".
    learns: tree of booleans like the parameters (freezing.mask). prepare: (key, uint8 images) ->
    normalised images. teacher: variables of an earlier network, or None. seed, task: where the
    randomness of this task lies. host_crops: whether images that are decoded for a batch are
    cropped at random at that; prepare is then told which, bool `[B]`, as a third argument.
    """

    net: Network
    loss: Callable
    learns: dict
    schedule: Schedule
    prepare: Callable
    batch_size: int
    seed: int
    task: int
    mesh: jax.sharding.Mesh
    teacher: Variables | None = None
    host_crops: bool = False

    def order(self, pool: Pool) -> Order:
        """Which images of the pool the steps read."""
        return Order(words(self.seed, self.task, "order"), pool.size, self.batch_size)

    def steps_per_epoch(self, pool: Pool) -> int:
        return self.order(pool).steps


@dataclasses.dataclass(frozen=True)
class Report:
    """How a task's training went so far.

    Seconds of stepping, of which some of waiting for images of the host, and of compiling; images
    seen.
    """

    train_seconds: float
    wait_seconds: float
    compile_seconds: float
    images: int


@dataclasses.dataclass(frozen=True)
class Hooks:
    """What the loop tells the outside world, and may be told.

    progress(step, total): after every dispatch. epoch(number, means, state, report): after every
    epoch, counted from 0. interrupted(): True asks to stop; then save(state, report) is called
    and Stopped raised.
    """

    progress: Callable[[int, int], None] = lambda step, total: None
    epoch: Callable[[int, dict[str, float], TrainState, Report], None] = lambda *_: None
    interrupted: Callable[[], bool] = lambda: False
    save: Callable[[TrainState, Report], None] = lambda *_: None


class Stopped(Exception):
    """Training was interrupted and its state saved."""


def make_step(
    problem: Problem,
    optimizer: optax.GradientTransformation,
    divided: bool = False,
    resident: int | None = None,
) -> Callable:
    """(state, images, labels, teacher, indices int `[B]` with -1 for padding, key, rest) -> state.

    divided: whether each device holds only its part of the images. resident: how many of the pool
    `images` has; of the others those of the batch come in `rest`, uint8 `[B, H, W, C]`. None if
    there are no others.
    """
    net, learns, units = problem.net, problem.learns, freezing.training_units(problem.learns)

    def step(state: TrainState, images, labels, teacher, indices, key, rest=None) -> TrainState:
        mask = (indices != PAD).astype(jnp.float32)
        rows = jnp.maximum(indices, 0)
        batch = parallel.take(images, rows, problem.mesh, divided)
        targets = jnp.take(labels, rows)
        cropped = ()
        if rest is not None:
            from_host = rows >= resident
            batch = jnp.where(from_host[:, None, None, None], rest, batch)
            cropped = (from_host,) if problem.host_crops else ()
        batch = problem.prepare(jax.random.fold_in(key, state.step), batch, *cropped)
        taught = None if teacher is None else net.apply(teacher, batch)[0]
        params, stats = state.variables["params"], state.variables["batch_stats"]
        trainable, frozen = freezing.partition(params, learns)

        def objective(trainable):
            variables = {"params": freezing.merge(trainable, frozen), "batch_stats": stats}
            outputs, moved = net.apply(variables, batch, units, mask)
            terms = problem.loss(outputs, targets, taught)
            sums = {name: (term * mask).sum() for name, term in terms.items()}
            hits = (outputs.logits.argmax(axis=1) == targets) * mask
            sums |= {"correct": hits.sum(), "images": mask.sum()}
            return sums["loss"] / sums["images"], (moved, sums)

        (loss, (moved, sums)), grads = jax.value_and_grad(objective, has_aux=True)(trainable)
        # Frozen leaves were not differentiated; the optimizer wants a whole tree.
        grads = freezing.merge(grads, jax.tree.map(jnp.zeros_like, frozen))
        updates, opt_state = optimizer.update(grads, state.opt_state, params)
        learned, _ = freezing.partition(optax.apply_updates(params, updates), learns)
        bad = (state.bad_step < 0) & ~jnp.isfinite(loss)
        return TrainState(
            step=state.step + 1,
            variables={"params": freezing.merge(learned, frozen), "batch_stats": moved},
            opt_state=opt_state,
            sums=jax.tree.map(jnp.add, state.sums, sums),
            bad_step=jnp.where(bad, state.step, state.bad_step),
        )

    return step


def start(problem: Problem, variables: Variables, pool: Pool) -> TrainState:
    """The state before the first step; copies `variables`, since steps consume their input."""
    sharding = parallel.replicated(problem.mesh)
    variables = parallel.fresh_copy(variables, sharding)
    return parallel.place(begin(problem, variables, pool), sharding)


def begin(problem: Problem, variables: Variables, pool: Pool) -> TrainState:
    """As `start`, of `variables` themselves; also under jax.eval_shape, which makes no array."""
    optimizer = sgd(problem.schedule, problem.steps_per_epoch(pool), problem.learns)
    return TrainState(
        step=jnp.int32(0),
        variables=variables,
        opt_state=optimizer.init(variables["params"]),
        sums={name: jnp.float32(0) for name in _terms(problem, variables)},
        bad_step=jnp.int32(-1),
    )


def _terms(problem: Problem, variables: Variables) -> list[str]:
    """Names of the sums of an epoch: the terms of the loss and the two counts."""

    def terms(variables, teacher):
        images = jnp.zeros((1, *problem.net.image_shape))
        taught = None if teacher is None else problem.net.apply(teacher, images)[0]
        return problem.loss(problem.net.apply(variables, images)[0], jnp.zeros(1, int), taught)

    return [*jax.eval_shape(terms, variables, problem.teacher), "correct", "images"]


class Driver:
    """Compiles the step once and runs stretches of an epoch with it.

    scan: whether a dispatch runs an epoch; never if images of the host come with every step.
    """

    def __init__(self, problem: Problem, state: TrainState, pool: Pool, scan: bool):
        steps, streams = problem.steps_per_epoch(pool), pool.rest is not None
        optimizer = sgd(problem.schedule, steps, problem.learns)
        divided = parallel.is_divided(pool.images)
        step = make_step(problem, optimizer, divided, pool.resident if streams else None)
        scan = scan and not streams
        self.steps_per_dispatch = steps if scan else 1
        self._inputs = (pool.images, pool.labels, problem.teacher)
        self._sharding = parallel.sharded(problem.mesh, axis=1 if scan else 0)
        self._key = parallel.place(
            key_for(problem.seed, problem.task, "augment"), parallel.replicated(problem.mesh)
        )
        self._scan = scan

        def stretch(state, images, labels, teacher, rows, key):
            def body(state, indices):
                return step(state, images, labels, teacher, indices, key), None

            return jax.lax.scan(body, state, rows)[0]

        began = time.perf_counter()
        self._jitted = jax.jit(
            stretch if scan else step,
            donate_argnums=0,
            out_shardings=parallel.replicated(problem.mesh),
        )
        shape = (steps, problem.batch_size) if scan else (problem.batch_size,)
        rows = jax.ShapeDtypeStruct(shape, np.int32, sharding=self._sharding)
        batch = (problem.batch_size, *problem.net.image_shape)
        rest = (jax.ShapeDtypeStruct(batch, np.uint8, sharding=self._sharding),) if streams else ()
        lowered = self._jitted.lower(state, *self._inputs, rows, self._key, *rest)
        self._compiled, self._full = lowered.compile(), shape
        self.compile_seconds = time.perf_counter() - began

    @property
    def program(self) -> str:
        """The text of what was compiled."""
        return self._compiled.as_text()

    @property
    def memory(self) -> dict[str, int]:
        """Bytes on each device by the compiler's own analysis, empty where there is none."""
        found = parallel.program_bytes(self._compiled)
        return {f"step_{name}": value for name, value in found.items()}

    def __call__(self, state: TrainState, rows: np.ndarray, *rest: jax.Array) -> TrainState:
        """Runs the steps of `rows` int32 `[n, B]` in one dispatch and waits for them.

        rest: the images of the host for the step, if such come with every step.
        """
        rows = rows if self._scan else rows[0]
        # A resumed run may begin with the rest of an epoch, whose shape was not compiled.
        run = self._compiled if rows.shape == self._full else self._jitted
        state = run(state, *self._inputs, parallel.place(rows, self._sharding), self._key, *rest)
        return jax.block_until_ready(state)


def fit(
    problem: Problem, state: TrainState, pool: Pool, hooks: Hooks, scan: bool
) -> tuple[Variables, Report]:
    """Trains from `state` (of `start`, or one saved inside the task) to the schedule's end.

    Consumes `state`. Raises UserError naming epoch and step when the loss is no longer finite,
    Stopped after saving when hooks.interrupted() says so.
    """
    driver = Driver(problem, state, pool, scan)
    with _from_host(problem, pool, int(state.step)) as batches:
        return _fit(problem, state, pool, hooks, driver, batches)


def _fit(
    problem: Problem, state: TrainState, pool: Pool, hooks: Hooks, driver: Driver, batches: Iterator
) -> tuple[Variables, Report]:
    """batches: for every dispatch the images of the host that it needs, as a tuple."""
    order, steps = problem.order(pool), problem.steps_per_epoch(pool)
    total = problem.schedule.epochs * steps
    done, images, seconds, waited = int(state.step), 0, 0.0, 0.0

    def report() -> Report:
        return Report(seconds, waited, driver.compile_seconds, images)

    while done < total:
        epoch, within = divmod(done, steps)
        indices = order.of(epoch)
        while within < steps and not hooks.interrupted():
            rows = indices[within : within + driver.steps_per_dispatch]
            began = time.perf_counter()
            rest = next(batches)
            waited += time.perf_counter() - began
            state = driver(state, rows, *rest)
            seconds += time.perf_counter() - began
            images += int((rows != PAD).sum())
            within += len(rows)
            hooks.progress(epoch * steps + within, total)
        done = epoch * steps + within
        _check_finite(state, problem.task, steps)
        if within == steps:
            means = _means(state)
            zeros = jax.tree.map(jnp.zeros_like, state.sums)
            state = state.replace(sums=parallel.place(zeros, parallel.replicated(problem.mesh)))
            hooks.epoch(epoch, means, state, report())
        if hooks.interrupted():
            hooks.save(state, report())
            raise Stopped
    return state.variables, report()


@contextlib.contextmanager
def _from_host(problem: Problem, pool: Pool, first: int) -> Iterator[Iterator[tuple]]:
    """For every dispatch from step `first` on the images of the host that it needs, as a tuple."""
    if pool.rest is None:
        yield itertools.repeat(())
        return
    order = problem.order(pool)
    steps = range(first, problem.schedule.epochs * order.steps)
    crops = words(problem.seed, problem.task, "crop") if problem.host_crops else None
    sharding = parallel.sharded(problem.mesh)
    with streaming.feed(pool.rest, pool.resident, order, steps, crops, sharding) as batches:
        yield zip(batches)


def _means(state: TrainState) -> dict[str, float]:
    """Means over the images of the epoch: loss terms, and accuracy in percent."""
    sums = {name: float(value) for name, value in state.sums.items()}
    images, correct = sums.pop("images"), sums.pop("correct")
    means = {name: value / images for name, value in sums.items()}
    return {**means, "accuracy": 100.0 * correct / images}


def _check_finite(state: TrainState, task: int, steps: int) -> None:
    bad = int(state.bad_step)
    if bad >= 0:
        epoch, step = divmod(bad, steps)
        raise UserError(
            f"the loss was not finite in task {task + 1}, epoch {epoch + 1}, step {step + 1}; "
            f"training stopped and the last good checkpoint is kept: lower the learning rate "
            f"(--config.schedule.learning_rate) or look at the data"
        )
