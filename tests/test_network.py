"""Growth of the network leaf by leaf, and what is frozen in it."""

import copy
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memo_jax import backbones, freezing, network
from memo_jax.protocol import Task

TASKS = (Task(0, 0, 4), Task(1, 4, 7), Task(2, 7, 9))
GROWS = ("nothing", "last_stage", "backbone")
WIDTH = 64
SEED = 5


def net_of(grows: str) -> network.Network:
    return network.build(backbones.get("resnet8"), (8, 8, 3), "memo", grows)


def trained(variables: dict, seed: int = 0) -> dict:
    """Variables with other numbers in every leaf, as after training."""
    draws = np.random.RandomState(seed)
    return jax.tree.map(
        lambda leaf: (leaf + 0.1 + 0.1 * draws.rand(*leaf.shape)).astype(np.float32), variables
    )


def leaves(tree) -> dict[str, np.ndarray]:
    """Every leaf by its address."""
    found = jax.tree_util.tree_leaves_with_path(tree)
    return {freezing.path_of(path): np.asarray(leaf) for path, leaf in found}


def below(tree: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {path[len(prefix) :]: leaf for path, leaf in tree.items() if path.startswith(prefix)}


def assert_same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys() and a
    for path in a:
        np.testing.assert_array_equal(a[path], b[path], err_msg=path)


@pytest.fixture(scope="module")
def before() -> dict[str, dict]:
    """For each way to grow, the trained network of two tasks."""
    found = {}
    for grows in GROWS:
        net = net_of(grows)
        base = trained(net.expand(None, TASKS[0], SEED))
        found[grows] = trained(net.expand(base, TASKS[1], SEED), 1)
    return found


# ---- growth


@pytest.mark.parametrize("block_init", ["previous", "fresh"])
@pytest.mark.parametrize("grows", GROWS)
def test_old_leaves_stay_as_they_are_and_where_they_are(grows, block_init, before):
    old = before[grows]
    untouched = copy.deepcopy(old)
    grown = leaves(net_of(grows).expand(old, TASKS[2], SEED, block_init))
    assert_same(leaves(old), leaves(untouched))
    for path, leaf in leaves(old).items():
        if path == "params/head/kernel":
            np.testing.assert_array_equal(grown[path][: leaf.shape[0], :7], leaf)
        elif path == "params/head/bias":
            np.testing.assert_array_equal(grown[path][:7], leaf)
        elif not path.startswith("params/aux_head"):
            np.testing.assert_array_equal(grown[path], leaf, err_msg=path)


@pytest.mark.parametrize("grows", ["last_stage", "backbone"])
def test_a_new_block_is_a_copy_of_the_newest_one_with_its_statistics(grows, before):
    old = before[grows]
    grown = leaves(net_of(grows).expand(old, TASKS[2], SEED, "previous"))
    for collection in ("params", "batch_stats"):
        newest = below(leaves(old), f"{collection}/blocks/1/")
        assert_same(below(grown, f"{collection}/blocks/2/"), newest)
        assert any((newest[p] != below(grown, f"{collection}/blocks/0/")[p]).any() for p in newest)


@pytest.mark.parametrize("grows", ["last_stage", "backbone"])
def test_a_fresh_block_shares_no_weight_with_the_old_ones_or_with_other_tasks(grows, before):
    net = net_of(grows)
    grown = leaves(net.expand(before[grows], TASKS[2], SEED, "fresh"))
    fresh = below(grown, "params/blocks/2/")
    others = [
        below(grown, "params/blocks/1/"),
        below(leaves(net.expand(None, TASKS[0], SEED)), "params/blocks/0/"),
        below(leaves(net.expand(before[grows], TASKS[2], SEED + 1, "fresh")), "params/blocks/2/"),
    ]
    for other in others:
        assert fresh.keys() == other.keys()
        for path in fresh:
            if path.endswith("kernel"):
                assert not (fresh[path] == other[path]).any()
    for path, leaf in below(grown, "batch_stats/blocks/2/").items():
        np.testing.assert_array_equal(leaf, 1 if path.endswith("var") else 0)


@pytest.mark.parametrize("grows", ["last_stage", "backbone"])
def test_heads_fit_the_features_and_the_classes(grows):
    net, variables = net_of(grows), None
    for task in TASKS:
        variables = net.expand(variables, task, SEED)
        params = variables["params"]
        blocks = task.index + 1
        assert len(params["blocks"]) == len(variables["batch_stats"]["blocks"]) == blocks
        assert params["head"]["kernel"].shape == (WIDTH * blocks, task.num_seen)
        assert params["head"]["bias"].shape == (task.num_seen,)
        if task.is_base:
            assert "aux_head" not in params
        else:
            assert params["aux_head"]["kernel"].shape == (WIDTH, task.num_new + 1)
            assert params["aux_head"]["bias"].shape == (task.num_new + 1,)


def test_what_is_fresh_in_the_heads_is_drawn_anew_for_each_task_and_seed(before):
    def fresh(task, seed):
        params = net_of("last_stage").expand(before["last_stage"], task, seed)["params"]
        head, aux = params["head"]["kernel"], params["aux_head"]["kernel"]
        return [head[:, 7:].ravel(), head[2 * WIDTH :].ravel(), aux.ravel()]

    ours = fresh(TASKS[2], SEED)
    for again, own in zip(fresh(TASKS[2], SEED), ours):
        np.testing.assert_array_equal(again, own)
    for other in (fresh(TASKS[2], SEED + 1), fresh(Task(3, 7, 9), SEED)):
        assert not any((a == b).any() for a, b in zip(ours, other))
    assert not (
        ours[2] == before["last_stage"]["params"]["aux_head"]["kernel"][:, :3].ravel()
    ).any()
    for drawn, width in zip(ours, (3 * WIDTH, 3 * WIDTH, WIDTH)):
        assert 0.9 * math.sqrt(3 / width) < np.abs(drawn).max() <= math.sqrt(3 / width)


def test_a_network_of_one_backbone_gains_columns_of_its_head_only(before):
    old = before["nothing"]
    grown = net_of("nothing").expand(old, TASKS[2], SEED)
    assert grown["params"].keys() == {"trunk", "blocks", "head"}
    assert len(grown["params"]["blocks"]) == len(grown["batch_stats"]["blocks"]) == 1
    assert grown["params"]["head"]["kernel"].shape == (WIDTH, 9)


def test_a_network_that_grows_whole_backbones_has_no_trunk(before):
    net, variables = net_of("backbone"), before["backbone"]
    assert net.trunk_units == () and net.block_units == backbones.get("resnet8").units
    assert leaves(variables["params"]["trunk"]) == leaves(variables["batch_stats"]["trunk"]) == {}
    stem = [block["stem"]["conv"]["kernel"] for block in variables["params"]["blocks"]]
    assert [kernel.shape for kernel in stem] == [(3, 3, 3, 16)] * 2


# ---- shapes and counts known beforehand


@pytest.mark.parametrize("grows", GROWS)
def test_abstract_tells_shapes_and_types_of_the_real_variables(grows, before):
    net = net_of(grows)
    real = net.expand(before[grows], TASKS[2], SEED)
    abstract = net.abstract(TASKS)
    assert jax.tree.structure(abstract) == jax.tree.structure(real)
    for own, leaf in zip(jax.tree.leaves(abstract), jax.tree.leaves(real)):
        assert (own.shape, own.dtype) == (leaf.shape, leaf.dtype)


@pytest.mark.parametrize("grows", GROWS)
def test_num_parameters_counts_trunk_and_blocks_but_no_head(grows, before):
    net = net_of(grows)
    params = leaves(net.expand(before[grows], TASKS[2], SEED)["params"])
    counted = sum(leaf.size for path, leaf in params.items() if "head/" not in path)
    assert net.num_parameters(3) == counted
    base = leaves(net.expand(None, TASKS[0], SEED)["params"])
    assert net.num_parameters(1) == sum(v.size for k, v in base.items() if "head/" not in k)


# ---- application


def test_features_of_the_blocks_lie_side_by_side_and_the_auxiliary_head_sees_the_newest(before):
    net, variables = net_of("last_stage"), before["last_stage"]
    images = jnp.asarray(np.random.RandomState(0).rand(4, 8, 8, 3), jnp.float32)
    apply = jax.jit(lambda variables: net.apply(variables, images))
    outputs, stats = apply(variables)
    params = variables["params"]
    features = np.asarray(outputs.features, np.float64)
    for logits, inputs, head in [
        (outputs.logits, features, params["head"]),
        (outputs.aux_logits, features[:, WIDTH:], params["aux_head"]),
    ]:
        np.testing.assert_allclose(logits, inputs @ head["kernel"] + head["bias"], rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, stats, variables["batch_stats"])

    block, *rest = params["blocks"]
    changed = {**params, "blocks": (jax.tree.map(lambda leaf: leaf * 1.5, block), *rest)}
    other, _ = apply({**variables, "params": changed})
    assert (other.features[:, :WIDTH] != outputs.features[:, :WIDTH]).any()
    np.testing.assert_array_equal(other.features[:, WIDTH:], outputs.features[:, WIDTH:])
    np.testing.assert_array_equal(other.aux_logits, outputs.aux_logits)


# ---- freezing


@pytest.fixture(scope="module")
def params() -> dict:
    """Twelve blocks of two units, each with two leaves; a trunk and a head."""

    def unit(number):
        return {"kernel": np.full(2, number), "bias": np.full(1, -number)}

    blocks = tuple({"a": unit(10 * b), "b": unit(10 * b + 1)} for b in range(12))
    return {"trunk": {"stem": unit(500), "pool": {}}, "blocks": blocks, "head": unit(600)}


# pattern: the paths of all leaves that learn, as prefixes.
PATTERNS = {
    ("*",): ["trunk/", "blocks/", "head/"],
    ("trunk",): ["trunk/"],
    ("blocks/1",): ["blocks/1/"],
    ("blocks/11", "head"): ["blocks/11/", "head/"],
    ("blocks/*/b",): [f"blocks/{b}/b/" for b in range(12)],
    ("blocks/?",): [f"blocks/{b}/" for b in range(10)],
    ("blocks/3/a/kernel",): ["blocks/3/a/kernel"],
    ("*/bias",): ["trunk/stem/bias", "head/bias"]
    + [f"blocks/{b}/{u}/bias" for b in range(12) for u in "ab"],
}


@pytest.mark.parametrize(("patterns", "prefixes"), PATTERNS.items(), ids=str)
def test_patterns_name_subtrees(patterns, prefixes, params):
    for path, learns in leaves(freezing.mask(params, patterns)).items():
        assert learns == any(path.startswith(prefix) for prefix in prefixes), path


@pytest.mark.parametrize("pattern", ["blocks/12", "trunc", "stem", "trunk/pool", "trunk/", ""])
def test_a_pattern_that_matches_nothing_is_refused(pattern, params):
    with pytest.raises(ValueError, match=f"pattern '{pattern}' matches no parameter"):
        freezing.mask(params, ("head", pattern))


def test_partition_takes_each_leaf_once_and_merge_puts_them_together_again(params):
    learns = freezing.mask(params, ("blocks/1", "blocks/*/b"))
    trainable, frozen = freezing.partition(params, learns)
    assert leaves(trainable).keys() == {path for path, moves in leaves(learns).items() if moves}
    assert leaves(trainable).keys() | leaves(frozen).keys() == leaves(params).keys()
    assert not leaves(trainable).keys() & leaves(frozen).keys()
    merged = freezing.merge(trainable, frozen)
    assert jax.tree.structure(merged) == jax.tree.structure(params)
    assert_same(leaves(merged), leaves(params))


def test_units_run_in_training_mode_where_any_of_their_parameters_learns(params):
    units = freezing.training_units(freezing.mask(params, ("blocks/1/a/bias", "blocks/2", "head")))
    assert units["trunk"] == {"stem": False, "pool": False}
    for number, block in enumerate(units["blocks"]):
        assert block == {"a": number in (1, 2), "b": number == 2}
