"""Backbones: the published outputs, parameter counts, cuts and initial weights."""

import dataclasses
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch_state

from memo_jax import backbones, network
from memo_jax.backbones import base
from memo_jax.errors import UserError
from memo_jax.protocol import Task

GOLDEN = pathlib.Path(__file__).parent / "golden"
PUBLISHED = ("resnet14", "resnet20", "resnet26", "resnet32")
SPLIT = ("resnet14", "resnet32")
SMALL = (8, 8, 3)

# Parameters in all, of the trunk and of a block where MEMO's split is stated.
PARAMETERS = {
    "resnet8": (74_640, None, None),
    "resnet14": (171_856, 42_320, 129_536),
    "resnet20": (269_072, 65_552, 203_520),
    "resnet26": (366_288, 88_784, 277_504),
    "resnet32": (463_504, 112_016, 351_488),
    "resnet44": (657_936, None, None),
    "resnet56": (852_368, None, None),
    "resnet110": (1_727_312, None, None),
    "convnet2": (38_976, 1_920, 37_056),
    "convnet4": (906_240, 314_880, 591_360),
    "resnet10": (4_905_792, 1_232_704, 3_673_088),
    "resnet18": (11_176_512, 2_782_784, 8_393_728),
    "resnet34": (21_284_672, 8_170_304, 13_114_368),
    "resnet26_imagenet": (13_946_176, 3_444_032, 10_502_144),
    "resnet50": (23_508_032, 8_543_296, 14_964_736),
    "vgg8": (3_913_728, 1_552_896, 2_360_832),
    "inception_v3": (21_785_568, 8_965_856, 12_819_712),
}


# ---- parameter counts


@pytest.mark.parametrize("name", backbones.builders())
def test_number_of_parameters(name):
    assert name in PARAMETERS, "add the backbone's row to the table"
    backbone = backbones.get(name)
    assert backbone.name == name
    shape = (max(32, backbone.min_size), max(32, backbone.min_size), 3)
    total, trunk, block = PARAMETERS[name]
    params, _ = base.init(backbone.units, shape, backbone.kernel_init, 0)
    counts = [sum(leaf.size for leaf in jax.tree.leaves(params[u])) for u, _ in backbone.units]
    assert sum(counts) == total
    if trunk is not None:
        cut = backbone.cuts["memo"]
        assert (sum(counts[:cut]), sum(counts[cut:])) == (trunk, block)


@pytest.mark.parametrize("name", backbones.builders())
def test_features_have_the_stated_width(name):
    backbone = backbones.get(name)
    shape = (max(32, backbone.min_size), max(32, backbone.min_size), 3)
    assert base.output_shape(backbone.units, shape) == (backbone.feature_dim,)


# ---- outputs of the published code


def filled(state: list) -> tuple[dict, dict]:
    """(params, stats) of the weights that golden/README.md tells to make for a state dict."""
    tensors = {}
    names = [(name, shape) for name, shape in state if not name.endswith("num_batches_tracked")]
    for t, (name, shape) in enumerate(names):
        r = np.random.RandomState(t).randn(*shape)
        if len(shape) == 4:
            r = r * np.sqrt(2 / np.prod(shape[1:]))
        elif name.endswith("running_var"):
            r = 1 + 0.5 * np.abs(r)
        elif name.endswith("weight"):
            r = 1 + 0.1 * r
        else:
            r = 0.1 * r
        tensors[name] = r.astype(np.float32)
    return torch_state.backbone(tensors)


def images(seed: int, count: int) -> jax.Array:
    drawn = np.random.RandomState(seed).randn(count, 3, 32, 32).astype(np.float32)
    return jnp.asarray(drawn.transpose(0, 2, 3, 1))


def run(units: base.Units, variables: tuple[dict, dict], x: jax.Array, train: bool = False):
    return base.run(units, *variables, x, dict.fromkeys(dict(units), train), None)


@pytest.fixture(scope="module")
def published() -> tuple[dict, dict]:
    return json.loads((GOLDEN / "backbones.json").read_text()), np.load(GOLDEN / "backbones.npz")


def close(ours, expected) -> None:
    """Within 1e-5 and, as features reach 60, a relative 1e-6: about eight roundings of float32.

    The published numbers themselves are as far as 1.1e-5 from ours in float64.
    """
    np.testing.assert_allclose(ours, expected, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("name", PUBLISHED)
def test_outputs_are_the_published_ones_in_both_modes(name, published):
    states, outputs = published
    units = backbones.get(name).units
    variables = filled(states["single"][name]["state"])
    features, stats = run(units, variables, images(999, 2))
    close(features, outputs[f"single/{name}/eval"])
    jax.tree.map(np.testing.assert_array_equal, stats, variables[1])
    features, stats = run(units, variables, images(998, 4), train=True)
    close(features, outputs[f"single/{name}/train"])
    for before, after in zip(jax.tree.leaves(variables[1]), jax.tree.leaves(stats)):
        assert not np.array_equal(before, after)


@pytest.mark.parametrize("name", SPLIT)
def test_outputs_of_the_trunk_and_of_the_block_are_the_published_ones(name, published):
    states, outputs = published
    backbone = backbones.get(name)
    cut, state = backbone.cuts["memo"], states["split"][name]
    shared, _ = run(backbone.units[:cut], filled(state["trunk_state"]), images(999, 2))
    batch, channels, height, width = state["trunk_map_shape"]
    assert shared.shape == (batch, height, width, channels)
    features, _ = run(backbone.units[cut:], filled(state["block_state"]), shared)
    close(shared.mean(axis=(1, 2)), outputs[f"split/{name}/trunk_map_mean"])
    close(features, outputs[f"split/{name}/features"])


# ---- cuts

# Last unit of the trunk of resnet14, which has two residual blocks a stage.
LAST_OF_TRUNK = {
    "memo": "stage2_block1",
    "memo-2": "stage1_block1",
    "memo-3": "stem",
    "b1": "stage1_block0",
    "b2": "stage1_block1",
    "b3": "stage2_block0",
    "b4": "stage2_block1",
    "b5": "stage3_block0",
}


def fresh(cut: str, grows: str = "last_stage", seed: int = 0) -> dict:
    net = network.build(backbones.get("resnet14"), SMALL, cut, grows)
    return net.expand(None, Task(0, 0, 2), seed)


def whole(variables: dict) -> tuple[dict, dict]:
    """(params, stats) of trunk and block of a network with one block, put together."""
    params, stats = variables["params"], variables["batch_stats"]
    return {**params["trunk"], **params["blocks"][0]}, {**stats["trunk"], **stats["blocks"][0]}


def test_cuts_are_where_their_names_say():
    backbone = backbones.get("resnet14")
    found = {name: backbone.units[cut - 1][0] for name, cut in backbone.cuts.items()}
    assert found == LAST_OF_TRUNK


@pytest.fixture(scope="module")
def uncut() -> tuple[tuple[dict, dict], jax.Array, jax.Array]:
    """Trained-looking variables of resnet14, images and the features of the uncut backbone."""
    variables = whole(fresh("memo", grows="backbone"))
    draws = np.random.RandomState(0)
    variables = jax.tree.map(lambda leaf: leaf + 0.1 * draws.rand(*leaf.shape), variables)
    x = jnp.asarray(draws.rand(2, *SMALL), jnp.float32)
    return variables, x, run(backbones.get("resnet14").units, variables, x)[0]


@pytest.mark.parametrize("cut", LAST_OF_TRUNK)
def test_trunk_and_block_together_are_the_uncut_backbone(cut, uncut):
    (params, stats), x, expected = uncut
    net = network.build(backbones.get("resnet14"), SMALL, cut, "last_stage")
    for units in (net.trunk_units, net.block_units):
        own = [{name: tree[name] for name, _ in units} for tree in (params, stats)]
        x, _ = run(units, own, x)
    np.testing.assert_array_equal(x, expected)
    assert dict(net.trunk_units).keys() | dict(net.block_units).keys() == params.keys()


@pytest.mark.parametrize("cut", LAST_OF_TRUNK)
def test_a_seed_gives_the_same_weights_wherever_the_cut_is(cut):
    expected = whole(fresh("memo", grows="backbone"))
    jax.tree.map(np.testing.assert_array_equal, whole(fresh(cut)), expected)


def test_another_seed_gives_other_weights_to_every_convolution():
    kernels = [
        {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(w)}
        for w in (whole(fresh("memo", seed=seed))[0] for seed in (0, 1))
    ]
    drawn = [leaf for tree in kernels for path, leaf in tree.items() if "kernel" in path]
    # No two layers and no two seeds share their draws: even the first numbers are all different.
    firsts = np.array([leaf.ravel()[:4] / leaf.std() for leaf in drawn])
    assert len(drawn) == 2 * 13 and len(np.unique(firsts.round(4))) == firsts.size


def test_initial_weights_are_those_of_the_published_code():
    params, stats = whole(fresh("memo"))
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        kind = path[-1].key
        assert leaf.dtype == np.float32
        if kind == "kernel":
            deviation = np.sqrt(2 / (9 * leaf.shape[-1]))
            assert leaf.std() == pytest.approx(deviation, rel=4 / np.sqrt(2 * leaf.size))
            assert abs(leaf.mean()) < 4 * deviation / np.sqrt(leaf.size)
            assert np.abs(leaf).max() > 2.5 * deviation  # normal, not uniform
        else:
            np.testing.assert_array_equal(leaf, {"scale": 1, "bias": 0}[kind])
    for path, leaf in jax.tree_util.tree_leaves_with_path(stats):
        np.testing.assert_array_equal(leaf, {"mean": 0, "var": 1}[path[-1].key])


# ---- errors


def test_unknown_names_are_told_with_the_near_name():
    with pytest.raises(UserError, match=r"backbone.name: there is no 'resnet33'; .*'resnet3\d'\?"):
        backbones.get("resnet33")
    with pytest.raises(UserError, match=r"resnet14 has no cut 'memo_2'; did you mean 'memo-2'\?"):
        network.build(backbones.get("resnet14"), SMALL, "memo_2", "last_stage")


def test_images_below_the_smallest_size_of_a_backbone_are_told():
    backbone = dataclasses.replace(backbones.get("resnet14"), min_size=16)
    network.build(backbone, (16, 16, 3), "memo", "last_stage")
    with pytest.raises(UserError, match="at least 16 pixels a side, found 20x15"):
        network.build(backbone, (20, 15, 3), "memo", "last_stage")
