"""Heads, losses and the optimizer against NumPy and against what PyTorch does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memo_jax import exemplars, freezing, heads, losses, optimizers, parallel, training
from memo_jax.errors import UserError
from memo_jax.methods import base as method_base
from memo_jax.methods import memo
from memo_jax.network import Outputs
from memo_jax.protocol import Task


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def random_head(num_features: int, num_classes: int, seed: int = 0) -> dict:
    """A head as training leaves it: no weight and no bias is zero or within the initial bound."""
    draws = rng(seed)
    return {
        "kernel": 5 + draws.random((num_features, num_classes), np.float32),
        "bias": 5 + draws.random(num_classes, np.float32),
    }


# ---- heads


@pytest.mark.parametrize("num_features", [3, 64, 640])
def test_fresh_weights_fill_kaiming_uniform_of_gain_1_and_biases_are_zero(num_features):
    head = heads.init_linear(rng(), num_features, 1000)
    bound = np.sqrt(3 / num_features)
    assert head["kernel"].shape == (num_features, 1000)
    assert head["kernel"].dtype == head["bias"].dtype == np.float32
    assert 0.99 * bound < np.abs(head["kernel"]).max() <= np.float32(bound)
    # The variance of a uniform variable is bound**2 / 3.
    np.testing.assert_allclose(head["kernel"].var(), 1 / num_features, rtol=0.05)
    assert abs(head["kernel"].mean()) < 0.05 * bound
    np.testing.assert_array_equal(head["bias"], np.zeros(1000))


def test_apply_is_a_linear_map():
    head, features = random_head(6, 4), rng(1).random((5, 6), np.float32)
    expected = features.astype(np.float64) @ head["kernel"] + head["bias"]
    np.testing.assert_allclose(heads.apply(head, jnp.asarray(features)), expected, rtol=1e-6)


@pytest.mark.parametrize(("rows", "columns"), [(6, 4), (12, 4), (6, 9), (12, 9)])
def test_widen_keeps_old_weights_in_place_and_draws_the_others(rows, columns):
    old = random_head(6, 4)
    before = {name: array.copy() for name, array in old.items()}
    grown = heads.widen(old, rows, columns, rng(1))
    assert grown["kernel"].shape == (rows, columns) and grown["bias"].shape == (columns,)
    np.testing.assert_array_equal(grown["kernel"][:6, :4], old["kernel"])
    np.testing.assert_array_equal(grown["bias"][:4], old["bias"])
    fresh = np.concatenate([grown["kernel"][6:].ravel(), grown["kernel"][:6, 4:].ravel()])
    assert (fresh != 0).all() and len(np.unique(fresh)) == len(fresh)
    assert (np.abs(fresh) <= np.sqrt(3 / rows)).all()
    np.testing.assert_array_equal(grown["bias"][4:], 0)
    jax.tree.map(np.testing.assert_array_equal, old, before)


def test_widened_heads_differ_from_seed_to_seed_in_what_is_fresh_only():
    one, two = (heads.widen(random_head(6, 4), 12, 9, rng(seed)) for seed in (1, 2))
    same = one["kernel"] == two["kernel"]
    assert same[:6, :4].all() and not same[6:].any() and not same[:, 4:].any()


def test_align_gives_new_classes_the_mean_norm_of_the_old_ones_and_changes_nothing_else():
    head = random_head(6, 9)
    head["kernel"][:, 5:] *= 7
    aligned = jax.tree.map(np.asarray, heads.align(jax.tree.map(jnp.asarray, head), num_old=5))
    np.testing.assert_array_equal(aligned["kernel"][:, :5], head["kernel"][:, :5])
    np.testing.assert_array_equal(aligned["bias"], head["bias"])
    norms = np.linalg.norm(aligned["kernel"].astype(np.float64), axis=0)
    np.testing.assert_allclose(norms[5:].mean(), norms[:5].mean(), rtol=1e-6)
    # All new classes are scaled alike.
    factors = aligned["kernel"][:, 5:] / head["kernel"][:, 5:]
    np.testing.assert_allclose(factors, factors[0, 0], rtol=1e-6)
    assert factors[0, 0] < 0.2


# ---- losses


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def test_cross_entropy_of_each_example():
    logits, labels = rng().normal(size=(8, 5)).astype(np.float32), np.arange(8) % 5
    expected = [-log_softmax(logits)[b, k] for b, k in enumerate(labels)]
    result = losses.cross_entropy(jnp.asarray(logits), jnp.asarray(labels))
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_distillation_is_the_cross_entropy_of_the_old_classes_at_a_temperature(temperature):
    student = 3 * rng(1).normal(size=(8, 7)).astype(np.float32)
    teacher = 3 * rng(2).normal(size=(8, 4)).astype(np.float32)
    expected = np.zeros(8)
    for example in range(8):
        target = np.exp(teacher[example].astype(np.float64) / temperature)
        target /= target.sum()
        ours = log_softmax(student[:, :4].astype(np.float64) / temperature)[example]
        expected[example] = -sum(target[k] * ours[k] for k in range(4))
    result = losses.distillation(jnp.asarray(student), jnp.asarray(teacher), temperature)
    np.testing.assert_allclose(result, expected, rtol=2e-6)


# (old classes, new classes): label -> label of the auxiliary head.
AUXILIARY = {
    (3, 2): {0: 0, 1: 0, 2: 0, 3: 1, 4: 2},
    (1, 4): {0: 0, 1: 1, 2: 2, 3: 3, 4: 4},
    (4, 1): {0: 0, 1: 0, 2: 0, 3: 0, 4: 1},
}


@pytest.mark.parametrize(("classes", "table"), AUXILIARY.items(), ids=str)
def test_auxiliary_labels_take_old_classes_as_one_and_count_the_new_ones_from_1(classes, table):
    old, new = classes
    labels = losses.auxiliary_labels(jnp.asarray([*table]), Task(1, old, old + new))
    assert labels.tolist() == [*table.values()]


def test_the_loss_of_memo_adds_the_weighted_auxiliary_cross_entropy():
    draws, labels = rng(), np.array([0, 2, 3, 4])
    logits, aux = draws.normal(size=(4, 5)), draws.normal(size=(4, 3))
    outputs = Outputs(None, jnp.asarray(logits), jnp.asarray(aux))
    options = method_base.Options(0.3, True, False, "previous")
    terms = memo.METHOD.loss(outputs, jnp.asarray(labels), None, Task(1, 3, 5), options)
    head = -log_softmax(logits)[np.arange(4), labels]
    auxiliary = -log_softmax(aux)[np.arange(4), [0, 0, 1, 2]]
    np.testing.assert_allclose(terms["loss"], head + 0.3 * auxiliary, rtol=1e-5)
    np.testing.assert_allclose(terms["cross_entropy"], head, rtol=1e-5)
    np.testing.assert_allclose(terms["auxiliary"], auxiliary, rtol=1e-5)


# ---- learning rate

STEPS = 3


def rates(schedule: optimizers.Schedule) -> np.ndarray:
    """Learning rate of every step, `[epochs, STEPS]`."""
    rate = optimizers.learning_rate(schedule, STEPS)
    steps = schedule.epochs * STEPS
    return np.asarray(jax.vmap(rate)(jnp.arange(steps))).reshape(-1, STEPS)


# schedule name -> (epochs, milestones, weight decay) of the base task and of MEMO's later ones.
NAMED = {
    "paper": ((170, (80, 150), 5e-4), (170, (80, 150), 2e-4)),
    "published": ((200, (60, 120, 170), 5e-4), (170, (80, 120, 150), 2e-4)),
}


@pytest.mark.parametrize(("name", "parts"), NAMED.items(), ids=NAMED)
def test_the_rate_is_0_1_and_falls_tenfold_after_each_milestone(name, parts):
    for schedule, (epochs, milestones, decay) in zip(
        method_base.schedules(memo.METHOD, name), parts
    ):
        assert (schedule.weight_decay, schedule.momentum) == (decay, 0.9)
        expected = [0.1 * 0.1 ** sum(epoch >= m for m in milestones) for epoch in range(epochs)]
        measured = rates(schedule)
        assert measured.shape == (epochs, STEPS)
        np.testing.assert_allclose(measured, np.repeat(expected, STEPS).reshape(-1, STEPS), 1e-5)


def test_the_cosine_falls_step_by_step_from_the_rate_to_zero():
    for schedule in method_base.schedules(memo.METHOD, "cosine"):
        assert schedule.epochs == 170
        progress = np.arange(170 * STEPS) / (170 * STEPS)
        expected = 0.1 * (1 + np.cos(np.pi * progress)) / 2
        np.testing.assert_allclose(rates(schedule).ravel(), expected, atol=1e-7)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "linear"}, "kind 'steps' or 'cosine', found 'linear'"),
        ({"epochs": 0}, "at least 1 epoch, found 0"),
        ({"learning_rate": 0.0}, "learning rate > 0, found 0"),
        ({"learning_rate": float("nan")}, "learning rate > 0, found nan"),
        ({"weight_decay": -1e-4}, "decay >= 0, found -0.0001"),
        ({"epochs": 9, "milestones": (5, 3)}, r"rising milestones .*found \(5, 3\)"),
        ({"epochs": 9, "milestones": (3, 9)}, r"milestones below 9 epochs"),
        ({"epochs": 9, "milestones": ("3",)}, r"milestones like \(80, 150\)"),
        ({"epochs": 9, "milestones": (3,), "kind": "cosine"}, "a cosine has no milestones"),
    ],
)
def test_an_impossible_schedule_is_told(change, told):
    with pytest.raises(UserError, match=told):
        optimizers.Schedule(**{"epochs": 1, **change})


# ---- the optimizer

LEARNS = {"moves": {"kernel": True, "bias": True}, "stays": {"kernel": False}}
SCHEDULE = optimizers.Schedule(epochs=5, milestones=(2, 4), weight_decay=0.05)


def pytorch_sgd(params: np.ndarray, gradients: list[np.ndarray], rates: list[float]) -> np.ndarray:
    """torch.optim.SGD with momentum 0.9 and weight decay 0.05, without dampening or Nesterov."""
    params, buffer = params.astype(np.float64), None
    for gradient, rate in zip(gradients, rates):
        gradient = gradient + 0.05 * params
        buffer = gradient if buffer is None else 0.9 * buffer + gradient
        params = params - rate * buffer
    return params


@pytest.fixture(scope="module")
def five_steps() -> tuple[dict, dict, dict, list]:
    """Parameters before and after five steps, the optimizer's state, the gradients."""
    draws = rng()
    shapes = {"moves": {"kernel": (4, 3), "bias": (3,)}, "stays": {"kernel": (5,)}}

    def draw():
        return {
            unit: {name: draws.normal(size=s).astype(np.float32) for name, s in leaves.items()}
            for unit, leaves in shapes.items()
        }

    before, gradients = draw(), [draw() for _ in range(5)]
    optimizer = optimizers.sgd(SCHEDULE, 1, LEARNS)
    params = jax.tree.map(jnp.asarray, before)
    state = optimizer.init(params)
    for gradient in gradients:
        updates, state = optimizer.update(jax.tree.map(jnp.asarray, gradient), state, params)
        params = jax.tree.map(lambda p, u: p + u, params, updates)
    return before, params, state, gradients


@pytest.mark.parametrize("name", ["kernel", "bias"])
def test_what_learns_moves_as_with_the_sgd_of_pytorch(name, five_steps):
    before, after, _, gradients = five_steps
    expected = pytorch_sgd(
        before["moves"][name],
        [g["moves"][name] for g in gradients],
        [0.1, 0.1, 0.01, 0.01, 0.001],
    )
    np.testing.assert_allclose(after["moves"][name], expected, atol=1e-6)
    assert np.abs(expected - before["moves"][name]).min() > 1e-3


def test_what_is_frozen_gets_no_update_whatever_its_gradient(five_steps):
    before, after, _, gradients = five_steps
    assert all((g["stays"]["kernel"] != 0).all() for g in gradients)
    np.testing.assert_array_equal(after["stays"]["kernel"], before["stays"]["kernel"])


def test_what_is_frozen_has_no_momentum(five_steps):
    arrays = [leaf.shape for leaf in jax.tree.leaves(five_steps[2]) if leaf.ndim]
    assert sorted(arrays) == [(3,), (4, 3)]


class ScaledPixels:
    """Stands for a network: features are pixels times the trunk's kernel."""

    image_shape = (3,)

    def apply(self, variables, images, training=None, mask=None):
        params = variables["params"]
        features = images * params["trunk"]["scale"]["kernel"]
        return Outputs(features, heads.apply(params["head"], features), None), {}


def test_training_steps_keep_every_bit_of_what_is_frozen_even_the_sign_of_zero():
    images, labels = jnp.asarray(rng().random((4, 3), np.float32)), jnp.asarray([0, 1, 1, 0])
    trunk = {"scale": {"kernel": np.array([-0.0, 0.0, 2.0], np.float32)}}
    before = {"trunk": trunk, "blocks": (), "head": random_head(3, 2)}
    learns = freezing.mask(before, ("head",))
    problem = training.Problem(
        net=ScaledPixels(),
        loss=lambda outputs, labels, _: {"loss": losses.cross_entropy(outputs.logits, labels)},
        learns=learns,
        schedule=SCHEDULE,
        prepare=lambda key, batch: batch,
        batch_size=4,
        seed=0,
        task=1,
        mesh=parallel.data_mesh(),
    )
    step = jax.jit(training.make_step(problem, optimizers.sgd(SCHEDULE, 1, learns)))
    pool = exemplars.Pool(images, labels)
    state = training.start(problem, {"params": before, "batch_stats": {}}, pool)
    for _ in range(2):
        state = step(state, images, labels, None, jnp.arange(4), jax.random.key(0))
    after = jax.tree.map(np.asarray, state.variables["params"])
    assert after["trunk"]["scale"]["kernel"].tobytes() == trunk["scale"]["kernel"].tobytes()
    assert (after["head"]["kernel"] != before["head"]["kernel"]).all()
