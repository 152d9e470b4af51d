"""Backbones: parameter counts, shapes, cuts and initial weights."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memo_jax import backbones, network
from memo_jax.backbones import base
from memo_jax.errors import UserError
from memo_jax.protocol import Task

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


# ---- parameter counts and shapes


@pytest.mark.parametrize("name", backbones.builders())
def test_number_of_parameters(name):
    assert name in PARAMETERS, "add the backbone's row to the table"
    backbone = backbones.get(name)
    assert backbone.name == name
    side = max(32, backbone.min_size)
    total, trunk, block = PARAMETERS[name]
    params, _ = base.init(backbone.units, (side, side, 3), lambda rng, shape: np.zeros(shape), 0)
    counts = [sum(leaf.size for leaf in jax.tree.leaves(params[u])) for u, _ in backbone.units]
    assert sum(counts) == base.num_parameters(backbone.units, (side, side, 3)) == total
    if trunk is not None:
        cut = backbone.cuts["memo"]
        assert (sum(counts[:cut]), sum(counts[cut:])) == (trunk, block)


@pytest.mark.parametrize("name", backbones.builders())
def test_features_have_the_stated_width_for_images_of_any_shape(name):
    backbone = backbones.get(name)
    least = backbone.min_size
    for shape in [(least, least, 3), (least, least + 21, 3), (least + 6, least + 1, 1)]:
        assert base.output_shape(backbone.units, shape) == (backbone.feature_dim,)


@pytest.mark.parametrize("name", backbones.builders())
def test_the_smallest_size_is_the_first_that_leaves_a_position_to_pool(name):
    backbone = backbones.get(name)
    (*before, (pool, _)), least = backbone.units, backbone.min_size
    assert pool == "pool"
    for below in (0, 1):
        height, width, _ = base.output_shape(before, (least - below, least + 40, 3))
        assert height == 1 - below and width > 0


# ---- cuts


def counted(*units: str) -> dict[str, str]:
    return {f"b{number}": unit for number, unit in enumerate(units, start=1)}


# Last unit of the trunk, by name of the cut.
LAST_OF_TRUNK = {
    # Two residual blocks a stage.
    "resnet14": {
        **{"memo": "stage2_block1", "memo-2": "stage1_block1", "memo-3": "stem"},
        **counted("stage1_block0", "stage1_block1", "stage2_block0", "stage2_block1"),
        "b5": "stage3_block0",
    },
    "convnet2": {"memo": "stage1", "b1": "stage1"},
    "convnet4": {
        **{"memo": "stage3", "memo-2": "stage2", "memo-3": "stage1"},
        **counted("stage1", "stage2", "stage3"),
    },
    "vgg8": {
        **{"memo": "stage4", "memo-2": "stage3", "memo-3": "stage2"},
        **counted("stage1", "stage2", "stage3", "stage4"),
    },
    # 3, 4, 6 and 3 residual blocks a stage.
    "resnet50": {
        **{"memo": "stage3_block5", "memo-2": "stage2_block3", "memo-3": "stage1_block2"},
        **counted(
            *(f"stage1_block{block}" for block in range(3)),
            *(f"stage2_block{block}" for block in range(4)),
            *(f"stage3_block{block}" for block in range(6)),
            *(f"stage4_block{block}" for block in range(2)),
        ),
    },
    "inception_v3": {
        **{"memo": "mixed_6e", "memo-2": "mixed_5d", "memo-3": "stem"},
        **counted(
            *(f"mixed_5{letter}" for letter in "bcd"),
            *(f"mixed_6{letter}" for letter in "abcde"),
            *(f"mixed_7{letter}" for letter in "ab"),
        ),
    },
}


def run(units: base.Units, variables: tuple[dict, dict], x: jax.Array) -> jax.Array:
    return base.run(units, *variables, x, {}, None)[0]


def fresh(cut: str, grows: str = "last_stage", seed: int = 0) -> dict:
    net = network.build(backbones.get("resnet14"), SMALL, cut, grows)
    return net.expand(None, Task(0, 0, 2), seed)


def whole(variables: dict) -> tuple[dict, dict]:
    """(params, stats) of trunk and block of a network with one block, put together."""
    params, stats = variables["params"], variables["batch_stats"]
    return {**params["trunk"], **params["blocks"][0]}, {**stats["trunk"], **stats["blocks"][0]}


@pytest.mark.parametrize("name", LAST_OF_TRUNK)
def test_cuts_are_where_their_names_say(name):
    backbone = backbones.get(name)
    found = {cut: backbone.units[units - 1][0] for cut, units in backbone.cuts.items()}
    assert found == LAST_OF_TRUNK[name]


@pytest.fixture(scope="module")
def uncut() -> tuple[tuple[dict, dict], jax.Array, jax.Array]:
    """Trained-looking variables of resnet14, images and the features of the uncut backbone."""
    variables = whole(fresh("memo", grows="backbone"))
    draws = np.random.RandomState(0)
    variables = jax.tree.map(lambda leaf: leaf + 0.1 * draws.rand(*leaf.shape), variables)
    x = jnp.asarray(draws.rand(2, *SMALL), jnp.float32)
    return variables, x, run(backbones.get("resnet14").units, variables, x)


@pytest.mark.parametrize("cut", LAST_OF_TRUNK["resnet14"])
def test_trunk_and_block_together_are_the_uncut_backbone(cut, uncut):
    (params, stats), x, expected = uncut
    net = network.build(backbones.get("resnet14"), SMALL, cut, "last_stage")
    for units in (net.trunk_units, net.block_units):
        own = [{name: tree[name] for name, _ in units} for tree in (params, stats)]
        x = run(units, own, x)
    np.testing.assert_array_equal(x, expected)
    assert dict(net.trunk_units).keys() | dict(net.block_units).keys() == params.keys()


@pytest.mark.parametrize("cut", LAST_OF_TRUNK["resnet14"])
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


@pytest.mark.parametrize("name", ["resnet14", "convnet4", "resnet26_imagenet", "inception_v3"])
def test_kernels_start_normal_by_fan_out_and_the_rest_at_zero_or_one(name):
    backbone = backbones.get(name)
    least = backbone.min_size
    params, stats = base.init(backbone.units, (least, least, 3), backbone.kernel_init, 0)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        kind = path[-1].key
        assert leaf.dtype == np.float32
        if kind == "kernel":
            height, width, _, out = leaf.shape
            deviation = np.sqrt(2 / (height * width * out))
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
