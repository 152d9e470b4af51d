"""Layers against NumPy (BatchNorm as PyTorch's) and convolutions against those of XLA."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from memo_jax import backbones, network, parallel
from memo_jax.backbones import base, convolution
from memo_jax.backbones.layers import BatchNorm, conv, max_pool, relu
from memo_jax.protocol import Task

# ---- batch normalisation


def normalised(x, mean, var, scale, bias) -> np.ndarray:
    return (x.astype(np.float64) - mean) / np.sqrt(var + 1e-5) * scale + bias


@pytest.fixture
def batch_norm() -> tuple[np.ndarray, dict, dict]:
    """A small batch `[3, 2, 2, 5]`, in which the unbiased variance differs by 1/11; variables."""
    draws = np.random.RandomState(0)
    x = (3 + 2 * draws.randn(3, 2, 2, 5)).astype(np.float32)
    params = {"scale": 1 + draws.rand(5), "bias": draws.rand(5)}
    stats = {"mean": draws.rand(5), "var": 1 + draws.rand(5)}
    return x, *jax.tree.map(lambda leaf: leaf.astype(np.float32), (params, stats))


def test_in_training_the_batch_is_normalised_and_statistics_move_to_the_unbiased(batch_norm):
    x, params, stats = batch_norm
    out, moved = BatchNorm().apply(
        {"params": params, "batch_stats": stats}, x, True, mutable=["batch_stats"]
    )
    values = x.astype(np.float64).reshape(12, 5)
    mean, biased, unbiased = values.mean(0), values.var(0), values.var(0, ddof=1)
    expected = normalised(x, mean, biased, params["scale"], params["bias"])
    np.testing.assert_allclose(out, expected, atol=1e-5)
    after = moved["batch_stats"]
    np.testing.assert_allclose(after["mean"], 0.9 * stats["mean"] + 0.1 * mean, rtol=1e-5)
    np.testing.assert_allclose(after["var"], 0.9 * stats["var"] + 0.1 * unbiased, rtol=1e-5)
    # The biased variance would have been told apart.
    assert (np.abs(0.1 * (unbiased - biased)) > 1e-2).all()


def test_in_inference_the_running_statistics_are_used_and_kept(batch_norm):
    x, params, stats = batch_norm
    out, moved = BatchNorm().apply(
        {"params": params, "batch_stats": stats}, x, False, mutable=["batch_stats"]
    )
    expected = normalised(x, stats["mean"], stats["var"], params["scale"], params["bias"])
    np.testing.assert_allclose(out, expected, atol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, moved["batch_stats"], stats)


def test_epsilon_can_be_another(batch_norm):
    x, params, stats = batch_norm
    stats = {"mean": stats["mean"], "var": stats["var"] * 1e-3}  # so small that epsilon counts
    out = BatchNorm(1e-3).apply({"params": params, "batch_stats": stats}, x, False)
    values = (x.astype(np.float64) - stats["mean"]) / np.sqrt(stats["var"] + 1e-3)
    np.testing.assert_allclose(out, values * params["scale"] + params["bias"], rtol=1e-5)


def test_statistics_of_a_large_batch_keep_the_digits_of_float32():
    # A mean of 3 deviations, as ReLUs make them. One sum over all positions is wrong by 4e-5.
    x = (3 + np.random.RandomState(0).randn(64, 32, 32, 16)).astype(np.float32)
    variables = {
        "params": {"scale": np.ones(16, np.float32), "bias": np.zeros(16, np.float32)},
        "batch_stats": {"mean": np.zeros(16, np.float32), "var": np.zeros(16, np.float32)},
    }
    apply = jax.jit(lambda x: BatchNorm().apply(variables, x, True, mutable=["batch_stats"]))
    after = apply(x)[1]["batch_stats"]
    values = x.astype(np.float64).reshape(-1, 16)
    np.testing.assert_allclose(after["mean"], 0.1 * values.mean(0), rtol=1e-6)
    np.testing.assert_allclose(after["var"], 0.1 * values.var(0, ddof=1), rtol=1e-5)


@pytest.mark.parametrize("mask", [None, (1, 0, 1)])
@pytest.mark.parametrize("one_by_one", [True, False])
def test_gradients_of_batch_normalisation_are_those_of_its_equations(
    mask, one_by_one, batch_norm, monkeypatch
):
    monkeypatch.setattr(parallel, "adds_one_by_one", lambda: one_by_one)
    x, params, stats = batch_norm
    rows = np.array([0, 1, 2]) if mask is None else np.flatnonzero(mask)
    weights = np.zeros_like(x)  # a row that only fills up has no part in any loss
    weights[rows] = np.random.RandomState(1).randn(len(rows), *x.shape[1:])

    def ours(x, params):
        flags = None if mask is None else jnp.asarray(mask, jnp.float32)
        variables = {"params": params, "batch_stats": stats}
        out, moved = BatchNorm().apply(variables, x, True, flags, mutable=["batch_stats"])
        return (weights * out).sum() + sum(s.sum() for s in moved["batch_stats"].values())

    def equations(x, params):
        values = x[rows].reshape(-1, x.shape[-1])
        mean, var = values.mean(0), values.var(0)
        out = (x - mean) / jnp.sqrt(var + 1e-5) * params["scale"] + params["bias"]
        moved = 0.1 * mean + 0.1 * var * len(values) / (len(values) - 1)
        return (weights * out).sum() + moved.sum()

    found = jax.grad(ours, argnums=(0, 1))(x, params)
    expected = jax.grad(equations, argnums=(0, 1))(x, params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), found, expected)


def test_rectified_values_and_their_gradients_are_zero_up_to_zero():
    x = jnp.array([-2.0, -0.0, 0.0, 2.0**-100, 3.0])
    np.testing.assert_array_equal(relu(x), [0, 0, 0, 2.0**-100, 3])
    np.testing.assert_array_equal(jax.vmap(jax.grad(relu))(x), [0, 0, 0, 1, 1])


# ---- padded batches


@pytest.fixture(scope="module")
def resnet8():
    """(apply(images, mask) in training mode, four images)."""
    net = network.build(backbones.get("resnet8"), (8, 8, 3), "memo", "last_stage")
    variables = net.expand(None, Task(0, 0, 3), seed=0)
    training = {
        "trunk": dict.fromkeys(dict(net.trunk_units), True),
        "blocks": (dict.fromkeys(dict(net.block_units), True),),
    }
    apply = functools.partial(net.apply, variables, training=training)
    return jax.jit(apply), np.random.RandomState(0).rand(4, 8, 8, 3).astype(np.float32)


def test_a_padded_batch_gives_the_outputs_and_statistics_of_the_unpadded_one(resnet8):
    apply, images = resnet8
    expected, expected_stats = apply(images)
    rubbish = 9 * np.random.RandomState(1).rand(3, 8, 8, 3).astype(np.float32)
    padded = np.concatenate([rubbish[:1], images[:2], rubbish[1:], images[2:]])
    mask = np.array([0, 1, 1, 0, 0, 1, 1], np.float32)
    outputs, stats = apply(padded, mask=jnp.asarray(mask))
    real = mask == 1
    np.testing.assert_allclose(outputs.features[real], expected.features, atol=1e-5)
    np.testing.assert_allclose(outputs.logits[real], expected.logits, atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), stats, expected_stats)
    # Without the mask the filling would have been seen.
    unmasked, _ = apply(padded, mask=jnp.ones(7))
    assert np.abs(unmasked.features[real] - expected.features).max() > 0.01


def test_units_that_are_not_named_run_in_inference_mode_and_keep_their_statistics():
    backbone = backbones.get("resnet8")
    units = backbone.units[:3]
    params, stats = base.init(units, (8, 8, 3), backbone.kernel_init, 0)
    x = jnp.asarray(np.random.RandomState(0).rand(2, 8, 8, 3), jnp.float32)
    _, after = base.run(units, params, stats, x, {"stage1_block0": True}, None)
    for name, _ in units:
        pairs = list(zip(jax.tree.leaves(stats[name]), jax.tree.leaves(after[name])))
        assert pairs
        moved = [not np.array_equal(a, b) for a, b in pairs]
        assert all(moved) if name == "stage1_block0" else not any(moved)


# ---- convolutions


def gradients(convolve, x, kernel, stride, padding, weights) -> tuple:
    """Gradients of a weighted sum of the convolution's outputs for x and for the kernel."""

    def total(x, kernel):
        out = convolve(
            x,
            kernel,
            (stride, stride),
            [(side, side) for side in padding],
            dimension_numbers=convolution.LAYOUT,
        )
        return (out * weights).sum()

    return jax.grad(total, argnums=(0, 1)), (x, kernel)


# Few input channels and many output channels are laid out in another way.
@pytest.mark.parametrize("channels", [(2, 4), (1, 16)])
@pytest.mark.parametrize(
    ("window", "padding"),
    [
        *[((3, 3), (0, 0)), ((3, 3), (1, 1)), ((1, 1), (0, 0))],
        *[((7, 7), (3, 3)), ((1, 7), (0, 3)), ((7, 1), (3, 0))],
    ],
)
@pytest.mark.parametrize("stride", [1, 2])
# At stride 2 the window covers one side of the first only in part; the second is smaller than it.
@pytest.mark.parametrize("size", [(7, 8), (2, 1)])
def test_outputs_and_gradients_are_those_of_the_plain_convolution(
    size, stride, window, padding, channels, monkeypatch
):
    if any(s + 2 * p < w for s, p, w in zip(size, padding, window)):
        pytest.skip("the window does not fit")
    draws = np.random.RandomState(0)
    x = jnp.asarray(draws.randn(3, *size, channels[0]), jnp.float32)
    kernel = jnp.asarray(draws.randn(*window, *channels), jnp.float32)
    height, width = ((s + 2 * p - w) // stride + 1 for s, p, w in zip(size, padding, window))
    weights = jnp.asarray(draws.randn(3, height, width, channels[1]), jnp.float32)
    monkeypatch.setattr(parallel, "prefers_weight_gradients_as_products", lambda: True)
    ours, arguments = gradients(convolution.convolve, x, kernel, stride, padding, weights)
    plain, _ = gradients(lax.conv_general_dilated, x, kernel, stride, padding, weights)
    assert "dot_general" in str(jax.make_jaxpr(ours)(*arguments))
    options = {"dimension_numbers": convolution.LAYOUT}
    shared = (x, kernel, (stride, stride), [(side, side) for side in padding])
    expected = lax.conv_general_dilated(*shared, **options)
    np.testing.assert_allclose(convolution.convolve(*shared, **options), expected, atol=1e-4)
    for own, expected in zip(jax.jit(ours)(*arguments), jax.jit(plain)(*arguments)):
        assert own.shape == expected.shape
        np.testing.assert_allclose(own, expected, atol=1e-5 * float(jnp.abs(expected).max()))


def test_windows_may_be_longer_than_wide():
    x, kernel = np.random.RandomState(0).randn(2, 5, 6, 3), np.ones((1, 3, 3, 4))
    out = conv(4, (1, 3), padding=(0, 1)).apply({"params": {"kernel": kernel}}, x)
    beside = np.pad(x.sum(axis=-1), ((0, 0), (0, 0), (1, 1)))
    sums = beside[:, :, :-2] + beside[:, :, 1:-1] + beside[:, :, 2:]
    np.testing.assert_allclose(out, np.repeat(sums[..., None], 4, axis=-1), atol=1e-5)


@pytest.mark.parametrize("preferred", [True, False])
def test_the_layer_uses_it_only_where_it_is_faster(preferred, monkeypatch):
    monkeypatch.setattr(parallel, "prefers_weight_gradients_as_products", lambda: preferred)
    x, kernel = jnp.ones((2, 8, 8, 3)), jnp.ones((3, 3, 3, 4))

    def layer(x, kernel):
        return conv(4, 3, 2, padding=1).apply({"params": {"kernel": kernel}}, x)

    assert ("custom_vjp" in str(jax.make_jaxpr(layer)(x, kernel))) == preferred
    np.testing.assert_array_equal(
        layer(x, kernel),
        lax.conv_general_dilated(
            x, kernel, (2, 2), [(1, 1), (1, 1)], dimension_numbers=convolution.LAYOUT
        ),
    )


def test_grouped_convolutions_are_left_to_xla(monkeypatch):
    monkeypatch.setattr(parallel, "prefers_weight_gradients_as_products", lambda: True)
    draws = np.random.RandomState(0)
    x = draws.randn(2, 5, 5, 4).astype(np.float32)
    kernel = draws.randn(3, 3, 2, 6).astype(np.float32)
    layer = conv(6, 3, padding=1, feature_group_count=2)
    out = layer.apply({"params": {"kernel": kernel}}, x)
    halves = [
        lax.conv_general_dilated(
            x[..., 2 * g : 2 * g + 2],
            kernel[..., 3 * g : 3 * g + 3],
            (1, 1),
            [(1, 1), (1, 1)],
            dimension_numbers=convolution.LAYOUT,
        )
        for g in range(2)
    ]
    np.testing.assert_allclose(out, np.concatenate(halves, axis=-1), atol=1e-5)


# ---- pooling


@pytest.mark.parametrize(("window", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (3, 2, 0)])
def test_pooling_takes_the_first_largest_value_of_each_window(window, stride, padding):
    draws = np.random.RandomState(0)
    x = draws.randint(-5, -1, (7, 8))  # many are equal, and all below a padding of zeros
    rows, columns = ((side + 2 * padding - window) // stride + 1 for side in x.shape)
    weights = draws.rand(rows, columns).astype(np.float32)
    expected, gradient = np.zeros((rows, columns)), np.zeros(x.shape)
    for row, column in np.ndindex(rows, columns):
        top, left = (max(0, place * stride - padding) for place in (row, column))
        bottom, right = (place * stride - padding + window for place in (row, column))
        seen = x[top:bottom, left:right]
        expected[row, column] = seen.max()
        first = np.unravel_index(seen.argmax(), seen.shape)
        gradient[top + first[0], left + first[1]] += weights[row, column]

    def pooled(x):
        out = max_pool(x[None, ..., None], window, stride, padding)[0, ..., 0]
        return (out * weights).sum(), out

    ours, out = jax.grad(pooled, has_aux=True)(jnp.asarray(x, jnp.float32))
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_allclose(ours, gradient, atol=1e-6)
