"""The whole story: learn every task in order, evaluate, save. Run again, it goes on."""

import pathlib
import signal

from ml_collections import ConfigDict

from memo_jax import (
    base_task,
    budget,
    checkpoints,
    datasets,
    estimate,
    evaluation,
    exemplars,
    parallel,
    planning,
    protocol,
    results,
    run_folder,
    streaming,
    training,
)
from memo_jax.clock import Clock
from memo_jax.datasets import Dataset
from memo_jax.interrupts import Interrupted, Interrupts
from memo_jax.learner import Learner, held
from memo_jax.logging import EpochTrace, RunLog, TaskProgress, say
from memo_jax.network import Variables
from memo_jax.planning import Plan
from memo_jax.problems import Problems, placement
from memo_jax.protocol import Task


def run(config: ConfigDict, workdir: pathlib.Path) -> dict:
    """Runs or resumes the experiment of `config` in its folder; returns summary.json's content.

    Raises UserError, before any work, for what is wrong with the config, the data or the folder;
    Interrupted, after saving, when SIGTERM or Ctrl-C asked to stop.
    """
    parallel.keep_compiled_programs()
    mesh = parallel.data_mesh()
    planning.check(config, mesh.size)
    with run_folder.claimed(workdir, config):
        finished = results.finished(workdir)
        if finished:
            say(f"{workdir} is finished: nothing to do")
            results.say_all(finished, workdir)
            return finished
        data = config.dataset
        reading = datasets.Reading(data.image_size, data.on_bad_image, data.streaming, data.workers)
        with parallel.lead_first("data"):  # which may have to be downloaded or decoded
            dataset = datasets.load(data.name, data.path, data.source, reading)
        order = protocol.class_order(dataset.num_classes, config.protocol.class_order_seed)
        dataset = dataset.in_order(order)
        plan = planning.make(config, dataset)
        resolved = planning.resolved(config, plan)
        progress = results.read(workdir) or {"tasks_done": 0}
        estimate.expect_arrays_fit(config, plan, dataset, mesh, progress["tasks_done"])
        begun = [restore(config, workdir, plan, resolved, mesh)]
        run_folder.describe(workdir, config, resolved)
        with Interrupts() as interrupts:
            run = _Run(config, workdir, mesh, dataset, plan, interrupts)
            try:
                return run.all_tasks(begun.pop())  # or its arrays would stay until the end
            finally:
                run.log.close()


def restore(config, workdir: pathlib.Path, plan: Plan, resolved: dict, mesh) -> Learner:
    """The learner as far as it got, or one that has learned nothing or borrowed its base task."""
    net, tasks, size = plan.net, plan.tasks, plan.ledger.exemplars
    memory = exemplars.Memory.empty(size, net.image_shape, placement(config, mesh))
    learner = checkpoints.restore_latest(workdir, net, tasks, memory, mesh)
    if learner is None:
        source = config.base_from and pathlib.Path(config.base_from)
        base = base_task.load(source, resolved, net, tasks[0], mesh) if source else None
        return Learner(base, memory)
    say(f"resuming {workdir} after task {learner.tasks_done} of {len(tasks)}")
    return learner


class _Run:
    """What stays the same from task to task. What changes is the Learner, passed along."""

    def __init__(self, config, workdir, mesh, dataset: Dataset, plan: Plan, interrupts: Interrupts):
        self.config, self.workdir, self.mesh = config, workdir, mesh
        self.dataset, self.plan, self.interrupts = dataset, plan, interrupts
        self.placement = placement(config, mesh)
        self.log = RunLog(workdir)
        self.problems = Problems(config, plan, dataset, mesh)
        self.test_images = dataset.test.images
        if not streaming.stays_on_host(self.test_images, "auto", self.placement):
            self.test_images = parallel.place_rows(self.test_images, self.placement)

    def all_tasks(self, learner: Learner) -> dict:
        """Learns the tasks that are not yet done; returns the summary."""
        tasks = self.plan.tasks
        # A kill may have come between a task's checkpoint and its summary.
        summary = self.write_summary(learner) if learner.tasks_done else None
        for task in tasks[learner.tasks_done :]:
            if self.stopping():
                self.leave(f"after task {learner.tasks_done} of {len(tasks)}")
            learner = self.learn(learner, task)
            results.log_task(self.log, self.plan, learner)
            checkpoints.save_task(self.workdir, learner)
            summary = self.write_summary(learner)
        results.say_all(summary, self.workdir)
        if self.stopping():  # too late for this run, but others may be meant to follow
            self.leave("after its last task")
        return summary

    def write_summary(self, learner: Learner) -> dict:
        """Writes summary.json and the plot; returns the summary."""
        return results.write(self.workdir, self.config, self.plan, learner)

    def learn(self, learner: Learner, task: Task) -> Learner:
        """One task: grow, train, rectify, choose exemplars, evaluate."""
        clock = Clock(learner.spent)
        new = self.dataset.train.of(task.first, task.stop)
        on_host = streaming.stays_on_host(new.images, self.config.dataset.streaming, self.placement)
        self.say_where(task, new.images, on_host)
        pool = exemplars.join(learner.memory, new.images, new.labels, self.placement, on_host)
        if task.is_base and learner.variables:
            trained = self.borrowed(learner, task)
        else:
            trained = self.train(learner, pool, task, clock)
        trained = self.plan.method.at(task).rectify(trained, task)
        predict = self.problems.predictor(trained)
        clock.lap("compile")
        memory, means = learner.memory, None
        if self.plan.ledger.exemplars:
            memory, means = self.remember(predict, trained, pool, task)
        clock.lap("exemplars")
        labels = self.dataset.test.labels
        counts = evaluation.count(predict, trained, means, self.test_images, labels, task)
        clock.lap("evaluate")
        results.save_confusion(self.workdir, counts, task)
        row = {**evaluation.by_task(counts, task), "memory": held(trained, memory)}
        return Learner(trained, memory, (*learner.history, row), clock.spent)

    def say_where(self, task: Task, images: datasets.Images, on_host: bool) -> None:
        """Says where the new images of a task are, if that was a question."""
        free = parallel.free_bytes()
        if on_host or free is not None:
            where = "stay on the host" if on_host else "go to the devices"
            room = "" if free is None else f", {free / budget.MB:,.0f} MB free on each device"
            size = f"{len(images):,} new images ({images.nbytes / budget.MB:,.0f} MB)"
            say(f"task {task.index + 1}: {size} {where}{room}")

    def borrowed(self, learner: Learner, task: Task) -> Variables:
        """The base task as another run has learned it."""
        say(f"task {task.index + 1} as learned by {self.config.base_from}")
        self.log.resume(task.index, 0)
        return learner.variables

    def remember(self, predict, trained: Variables, pool: exemplars.Pool, task: Task):
        """The memory after `task`, and the class means of its exemplars."""
        features = predict.features(trained, pool)
        memory, features = exemplars.refresh(
            self.plan.ledger.exemplars,
            pool,
            features,
            task,
            self.config.memory.selection,
            self.plan.allocation,
            self.placement,
        )
        means = exemplars.class_means(features, memory.labels, task.num_seen)
        return memory, means.block_until_ready()

    def train(self, learner: Learner, pool: exemplars.Pool, task: Task, clock: Clock) -> Variables:
        """Grows the network and trains it on the pool, going on from a rolling checkpoint."""
        grown = self.plan.net.expand(
            learner.variables, task, self.config.seed, self.plan.options.block_init
        )
        problem = self.problems.training(task, grown, learner.variables)
        state = training.start(problem, grown, pool)
        saved = checkpoints.restore_rolling(self.workdir, task, state, self.mesh)
        if saved:
            state, spent = saved
            clock.resume(spent)
        epochs_done = int(state.step) // problem.steps_per_epoch(pool)
        if saved:
            say(f"resuming inside task {task.index + 1}, after epoch {epochs_done}")
        self.log.resume(task.index, epochs_done)
        clock.lap("other")
        title = f"task {task.index + 1}/{len(self.plan.tasks)}"
        folder = self.workdir / "profile" / f"task_{task.index:03d}"
        with (
            TaskProgress(title, problem.schedule.epochs) as progress,
            EpochTrace(folder, self.config.profile) as trace,
        ):
            hooks = self.hooks(task, progress, trace, clock)
            try:
                trained, report = training.fit(problem, state, pool, hooks, self.problems.scan)
            except training.Stopped:
                self.leave(f"inside task {task.index + 1} of {len(self.plan.tasks)}")
        clock.add_training(report)
        return trained

    def hooks(self, task: Task, progress, trace: EpochTrace, clock: Clock) -> training.Hooks:
        """Progress, the epoch's log line, rolling checkpoints, a trace and the wish to stop."""
        every = self.config.checkpoints.every_epochs

        def save(state: training.TrainState, report: training.Report) -> None:
            self.log.flush()
            checkpoints.save_rolling(self.workdir, task, state, clock.with_training(report))

        def epoch(number: int, means: dict[str, float], state, report) -> None:
            progress.epoch(number, means)
            line = {"task": task.index, "epoch": number + 1, **means}
            self.log.write("epoch", line, step=self.plan.epochs_until(task, number + 1))
            last = number + 1 == self.plan.schedule(task).epochs
            if (number + 1) % every == 0 and not last:
                save(state, report)
            trace.epoch_done()

        return training.Hooks(progress.step, epoch, self.stopping, save)

    def stopping(self) -> bool:
        """Whether any process of this run was asked to stop; all of them have to ask together."""
        number = parallel.largest(int(self.interrupts.requested or 0))
        if number:
            self.interrupts.requested = signal.Signals(number)
        return bool(number)

    def leave(self, where: str) -> None:
        """Everything is saved: says so and stops."""
        number = self.interrupts.requested
        line = f"stopped by {number.name} {where}; saved, the same command goes on from there"
        raise Interrupted(line, number)
