"""Three training steps of the published code, reproduced from its weights and batches."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch_state

from memo_jax import (
    backbones,
    exemplars,
    freezing,
    methods,
    network,
    optimizers,
    parallel,
    training,
)
from memo_jax.methods import base as method_base
from memo_jax.protocol import Task

GOLDEN = pathlib.Path(__file__).parent / "golden"
# case: (method, trunk learns, old blocks learn)
CASES = {
    "memo_trunk_trained_blocks_frozen": ("memo", True, False),
    "memo_trunk_frozen_blocks_frozen": ("memo", False, False),
    "memo_trunk_trained_blocks_trained": ("memo", True, True),
    "memo_trunk_frozen_blocks_trained": ("memo", False, True),
    "der": ("der", True, False),
    "replay": ("replay", True, False),
    "icarl": ("icarl", True, False),
    "wa": ("wa", True, False),
}
# The loss terms in the order of the published numbers.
TERMS = {
    "memo": ("loss", "cross_entropy", "auxiliary"),
    "der": ("loss", "cross_entropy", "auxiliary"),
    "replay": ("loss", "loss"),
    "icarl": ("loss", "cross_entropy", "distillation"),
    "wa": ("loss", "cross_entropy", "distillation"),
}
TOLERANCE = 1e-5
ROUNDING = 3e-6
"""Relative size of the rounding that convolutions in float32 add up to."""


def perturbed(params: dict, seed: int) -> dict:
    """The parameters moved at random by as much as rounding moves what is computed from them."""
    draws = np.random.RandomState(seed)
    return jax.tree.map(
        lambda leaf: leaf * (1 + ROUNDING * draws.uniform(-1, 1, leaf.shape).astype("f4")), params
    )


class Answer:
    """A result, and how far rounding alone can move it.

    Where an activation lies within rounding of a ReLU's kink, another order of summation (another
    CPU) takes the other side and everything after differs: three of the cases have such places
    (ours in float64 confirm it). So each result is computed from perturbed weights too, and may
    differ from the published one by 1e-5 and twice the spread, which is below 1e-6 elsewhere.
    """

    def __init__(self, function, params: dict):
        self.value = function(params)
        others = [function(perturbed(params, seed)) for seed in range(8)]
        self.spread = jax.tree.map(
            lambda own, *rest: max(float(np.abs(own - r).max()) for r in rest), self.value, *others
        )

    def check(self, published, part=lambda tree: tree) -> None:
        """Raises AssertionError unless every leaf of `published` is within the tolerance."""
        ours, spread = part(self.value), part(self.spread)
        assert jax.tree.structure(ours) == jax.tree.structure(published)
        for (path, own), wide, expected in zip(
            jax.tree_util.tree_leaves_with_path(ours),
            jax.tree.leaves(spread),
            jax.tree.leaves(published),
        ):
            assert wide < 5e-3, f"{path} is too ill-conditioned to be compared"
            error = float(np.abs(np.asarray(own) - expected).max())
            assert error <= TOLERANCE + 2 * wide, f"{path}: off by {error:.1e}, spread {wide:.1e}"


class Golden:
    """One case: the published numbers beside ours after the same three steps."""

    def __init__(self, case: str):
        method, train_trunk, train_old_blocks = CASES[case]
        self.file = dict(np.load(GOLDEN / f"{case}.npz"))
        self.method = methods.get(method)
        self.net = network.build(backbones.get("resnet8"), (32, 32, 3), "memo", self.method.grows)
        self.task = Task(1, int(self.file["known_classes"]), int(self.file["total_classes"]))
        self.x = jnp.asarray(self.file["x"].transpose(0, 2, 3, 1))
        self.y = jnp.asarray(self.file["y"], jnp.int32)
        self.before = jax.tree.map(jnp.asarray, torch_state.variables(self.part("before/")))
        self.options = method_base.Options(1.0, train_trunk, train_old_blocks, "previous")
        patterns = self.method.trains(self.task, self.options)
        self.learns = freezing.mask(self.before["params"], patterns)
        self.loss = functools.partial(self.method.loss, task=self.task, options=self.options)
        old = self.part("old/") if self.method.teacher else {}
        self.teacher = jax.tree.map(jnp.asarray, torch_state.variables(old)) if old else None
        self.trained = Answer(self.three_steps(), self.before["params"])

    def part(self, prefix: str) -> dict:
        return torch_state.part(self.file, prefix)

    def three_steps(self):
        """Parameters -> what three steps make of them, by the step function that training uses."""
        pool = exemplars.Pool(jnp.zeros((len(self.x), 32, 32, 3), jnp.uint8), self.y)
        problem = training.Problem(
            net=self.net,
            loss=self.loss,
            learns=self.learns,
            schedule=optimizers.Schedule(epochs=3, weight_decay=2e-4),
            prepare=lambda key, _: self.x,
            batch_size=len(self.x),
            seed=0,
            task=1,
            mesh=parallel.data_mesh(),
            teacher=self.teacher,
        )
        optimizer = optimizers.sgd(problem.schedule, 1, self.learns)
        step = jax.jit(training.make_step(problem, optimizer))
        rows = jnp.arange(len(self.x), dtype=jnp.int32)

        @jax.jit
        def finish(variables):
            rectified = self.method.rectify(variables, self.task)
            return {"logits": self.net.apply(rectified, self.x)[0].logits, "aligned": rectified}

        def run(params: dict) -> dict:
            state = training.start(problem, {**self.before, "params": params}, pool)
            sums = [state.sums]
            for _ in range(3):
                state = step(state, pool.images, pool.labels, self.teacher, rows, jax.random.key(0))
                sums.append(state.sums)
            terms = TERMS[self.method.name]
            totals = np.array([[float(s[term]) for term in terms] for s in sums])
            losses = np.diff(totals, axis=0) / len(self.x)
            return {"losses": losses, "variables": state.variables, **finish(state.variables)}

        return run

    def gradient_norms(self):
        """Parameters -> norm of the gradient of each parameter that learns, by its path."""
        units = freezing.training_units(self.learns)

        @jax.jit
        def norms(params: dict) -> dict:
            trainable, frozen = freezing.partition(params, self.learns)

            def mean_loss(trainable):
                variables = {**self.before, "params": freezing.merge(trainable, frozen)}
                outputs, _ = self.net.apply(variables, self.x, units)
                taught = self.net.apply(self.teacher, self.x)[0] if self.teacher else None
                return self.loss(outputs, self.y, taught)["loss"].mean()

            leaves = jax.tree_util.tree_leaves_with_path(jax.grad(mean_loss)(trainable))
            return {freezing.path_of(path): jnp.linalg.norm(leaf) for path, leaf in leaves}

        return norms


@pytest.fixture(scope="module", params=CASES)
def golden(request) -> Golden:
    return Golden(request.param)


def close(ours, published):
    np.testing.assert_allclose(np.asarray(ours), published, atol=TOLERANCE, rtol=0)


def test_inference_outputs(golden):
    outputs, stats = golden.net.apply(golden.before, golden.x)
    close(outputs.features, golden.file["eval/features"])
    close(outputs.logits, golden.file["eval/logits"])
    if golden.net.grows:
        close(outputs.aux_logits, golden.file["eval/aux_logits"])
    else:
        assert outputs.aux_logits is None
    jax.tree.map(np.testing.assert_array_equal, stats, golden.before["batch_stats"])


def test_losses_of_three_steps(golden):
    golden.trained.check({"losses": golden.file["losses"]}, lambda t: {"losses": t["losses"]})


def test_gradient_norms_of_the_first_step(golden):
    published = {
        torch_state.our_path(name): np.float32(norm)
        for name, norm in golden.part("grad_norm/").items()
    }
    Answer(golden.gradient_norms(), golden.before["params"]).check(published)


def test_state_after_three_steps(golden):
    golden.trained.check(torch_state.variables(golden.part("after/")), lambda t: t["variables"])


def test_weight_aligning_and_logits_after_it(golden):
    head, aligned = (golden.trained.value[k]["params"]["head"] for k in ("variables", "aligned"))
    aligns = golden.method.name not in ("replay", "icarl")
    assert ("aligned/fc.weight" in golden.file) == aligns
    if aligns:
        golden.trained.check(
            {"kernel": golden.file["aligned/fc.weight"].T},
            lambda t: {"kernel": t["aligned"]["params"]["head"]["kernel"]},
        )
    assert np.array_equal(head["kernel"], aligned["kernel"]) == (not aligns)
    np.testing.assert_array_equal(head["bias"], aligned["bias"])
    golden.trained.check(golden.file["after_eval/logits"], lambda t: t["logits"])


def test_frozen_leaves_keep_every_bit_and_the_others_move(golden):
    before = jax.tree.leaves(golden.before["params"])
    after = jax.tree.leaves(golden.trained.value["variables"]["params"])
    leaves = jax.tree_util.tree_leaves_with_path(golden.learns)
    for (path, learns), a, b in zip(leaves, before, after):
        moved = not np.array_equal(a, b)
        assert moved == learns, f"{freezing.path_of(path)}: learns {learns}, moved {moved}"


def test_frozen_units_keep_their_statistics_and_the_others_move(golden):
    before, after = golden.before["batch_stats"], golden.trained.value["variables"]["batch_stats"]
    units = freezing.training_units(golden.learns)
    for owner, old, new in [
        (units["trunk"], before["trunk"], after["trunk"]),
        *zip(units["blocks"], before["blocks"], after["blocks"]),
    ]:
        for unit, training_mode in owner.items():
            for a, b in zip(jax.tree.leaves(old[unit]), jax.tree.leaves(new[unit])):
                assert (not np.array_equal(a, b)) == training_mode, unit
