"""The training loop: two ways to drive it, interruption inside an epoch, exact epochs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from memo_jax import training
from memo_jax.errors import UserError
from memo_jax.order import PAD


@pytest.fixture(scope="module")
def variables():
    return tiny.variables()


def fit(variables, scan=False, hooks=None, state=None, **changes):
    """Trains the tiny problem; returns (variables, report)."""
    problem, pool = tiny.problem(variables, **changes), tiny.pool()
    state = state or training.start(problem, variables, pool)
    return training.fit(problem, state, pool, hooks or training.Hooks(), scan)


@pytest.fixture(scope="module")
def by_loop(variables):
    """What the Python loop makes of it, and the means of its epochs."""
    means = []
    hooks = training.Hooks(epoch=lambda number, row, state, report: means.append(row))
    trained, report = fit(variables, hooks=hooks)
    return trained, report, means


def test_scan_gives_the_same_numbers_as_the_python_loop(variables, by_loop):
    by_scan, _ = fit(variables, scan=True)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), by_scan, by_loop[0])


def test_an_epoch_is_one_dispatch_that_asks_the_host_for_nothing(variables):
    problem, pool = tiny.problem(variables), tiny.pool()
    state = training.start(problem, variables, pool)
    driver = training.Driver(problem, state, pool, scan=True)
    rows = problem.order(pool).of(0)
    # The rows are placed explicitly, which the guard allows; anything else put on the device
    # would raise. What a program may ask for while it runs is in its text.
    with jax.transfer_guard("disallow"):
        state = driver(state, rows)
    assert int(state.step) == len(rows)
    for word in ("callback", "infeed", "outfeed", "send(", "recv("):
        assert word not in driver.program, word


def test_bfloat16_computes_convolutions_and_keeps_the_rest_in_float32(variables, by_loop):
    net = dataclasses.replace(tiny.net(), compute=jnp.bfloat16)
    means = []
    hooks = training.Hooks(epoch=lambda number, row, state, report: means.append(row))
    trained, _ = fit(variables, hooks=hooks, net=net)
    assert {leaf.dtype for leaf in jax.tree.leaves(trained)} == {np.dtype(np.float32)}
    for row, exact in zip(means, by_loop[2]):
        assert row["loss"] != exact["loss"]
        assert row["loss"] == pytest.approx(exact["loss"], rel=0.05)
    jaxpr, outputs = jax.make_jaxpr(
        lambda images: net.apply(trained, images)[0], return_shape=True
    )(jnp.zeros((2, *net.image_shape)))
    convolutions = [line for line in str(jaxpr).splitlines() if " conv_general_dilated[" in line]
    assert convolutions and all(":bf16[" in line for line in convolutions)
    assert {leaf.dtype for leaf in jax.tree.leaves(outputs)} == {np.dtype(np.float32)}


def test_training_leaves_its_input_alone(variables, by_loop):
    jax.tree.map(np.testing.assert_array_equal, variables, tiny.variables())


def test_report_and_means_count_every_image_once_an_epoch(variables, by_loop):
    _, report, means = by_loop
    assert report.images == 2 * 22
    assert report.compile_seconds > 0 and report.train_seconds > 0
    for row in means:
        assert row["loss"] == pytest.approx(row["cross_entropy"] + row["auxiliary"], rel=1e-5)
        assert round(row["accuracy"] / 100 * 22) == pytest.approx(row["accuracy"] / 100 * 22)


@pytest.mark.parametrize("stop_after", [1, 3, 4])
def test_interrupted_inside_or_after_an_epoch_and_resumed_is_bit_equal(
    variables, by_loop, stop_after
):
    saved, steps = [], []
    hooks = training.Hooks(
        progress=lambda step, total: steps.append(step),
        interrupted=lambda: len(steps) >= stop_after,
        save=lambda state, report: saved.append(jax.tree.map(np.array, state)),
    )
    with pytest.raises(training.Stopped):
        fit(variables, hooks=hooks)
    assert int(saved[0].step) == stop_after
    resumed, report = fit(variables, state=jax.device_put(saved[0]))
    jax.tree.map(np.testing.assert_array_equal, resumed, by_loop[0])
    assert report.images == sum((8, 8, 6)[step % 3] for step in range(stop_after, 6))


def test_every_image_once_an_epoch_in_another_order_each_time(variables):
    problem, pool = tiny.problem(variables), tiny.pool()
    first, second, again = (problem.order(pool).of(epoch) for epoch in (0, 1, 0))
    assert first.shape == (3, 8)
    for indices in (first, second):
        real = indices[indices != PAD]
        assert sorted(real) == list(range(22))
        assert (indices.ravel()[22:] == PAD).all()
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, again)
    other = dataclasses.replace(problem, task=2)
    assert not np.array_equal(first, other.order(pool).of(0))


def test_padding_of_the_last_batch_counts_nowhere(variables):
    """One step on 6 images equals one on the same 6 filled up to 8."""
    pool = tiny.pool(6)
    results = []
    for batch_size in (6, 8):
        problem = tiny.problem(
            variables,
            epochs=1,
            batch_size=batch_size,
            prepare=lambda key, images: images.astype(np.float32) / 128 - 1,
        )
        state = training.start(problem, variables, pool)
        results.append(training.fit(problem, state, pool, training.Hooks(), False)[0])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), *results)


def test_a_loss_that_is_not_finite_names_task_epoch_and_step(variables):
    saved = []
    hooks = training.Hooks(
        epoch=lambda number, means, state, report: saved.append(number),
        save=lambda state, report: saved.append("state"),
    )

    def loss(outputs, labels, teacher):
        broken = np.where(outputs.logits.shape[0] > 0, np.nan, 0.0)
        return {"loss": outputs.logits[:, 0] * broken}

    with pytest.raises(UserError, match=r"task 2, epoch 1, step 1\b"):
        fit(variables, hooks=hooks, loss=loss)
    assert not saved, "a broken state was reported or saved"
