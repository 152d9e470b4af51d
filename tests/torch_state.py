"""Puts PyTorch state dicts of the published code and of torchvision into our variables."""

import re
from collections.abc import Iterable

import numpy as np

# Name of a module in a state dict -> its path here, by family.
PATHS = {
    # CIFAR ResNets; the last stage is `stage_3` of a whole network and `final_stage` of a block.
    r"conv_1_3x3": r"stem/conv",
    r"bn_1": r"stem/bn",
    r"stage_(\d)\.(\d+)\.(\w+)": r"stage\1_block\2/\3",
    r"final_stage\.(\d+)\.(\w+)": r"stage3_block\1/\2",
    # ImageNet ResNets.
    r"(conv|bn)1": r"stem/\1",
    r"layer(\d)\.(\d+)\.(conv|bn)1": r"stage\1_block\2/\3_a",
    r"layer(\d)\.(\d+)\.(conv|bn)2": r"stage\1_block\2/\3_b",
    r"layer(\d)\.(\d+)\.(conv|bn)3": r"stage\1_block\2/\3_c",
    r"layer(\d)\.(\d+)\.downsample\.0": r"stage\1_block\2/conv_shortcut",
    r"layer(\d)\.(\d+)\.downsample\.1": r"stage\1_block\2/bn_shortcut",
    # convnet2, counted from 0, whose second stage is `AdaptiveBlock` of a block; convnet4; VGG8.
    r"encoder\.0\.0": r"stage1/conv",
    r"encoder\.0\.1": r"stage1/bn",
    r"(?:encoder\.1|AdaptiveBlock)\.0": r"stage2/conv",
    r"(?:encoder\.1|AdaptiveBlock)\.1": r"stage2/bn",
    r"block(\d)\.0": r"stage\1/conv",
    r"block(\d)\.1": r"stage\1/bn",
    # Inception-V3.
    r"Conv2d_(\d[ab])_\dx\d\.(\w+)": r"stem/conv_\1/\2",
    r"Mixed_(\d[a-e])\.(\w+)\.(\w+)": r"mixed_\1/\2/\3",
}
LEAVES = {
    "weight": "scale",
    "bias": "bias",
    "running_mean": "mean",
    "running_var": "var",
}


def module_path(name: str) -> tuple[str, ...]:
    """`stage_1.0.conv_a` -> ("stage1_block0", "conv_a"): the unit first."""
    (path,) = (
        match.expand(template)
        for pattern, template in PATHS.items()
        if (match := re.fullmatch(pattern, name))
    )
    return tuple(path.split("/"))


def leaf(name: str, value: np.ndarray) -> tuple[str, tuple[str, ...], np.ndarray]:
    """(collection, path, array) of one entry of a backbone's state dict."""
    module, kind = name.rsplit(".", 1)
    if value.ndim == 4:
        return "params", (*module_path(module), "kernel"), value.transpose(2, 3, 1, 0)
    collection = "batch_stats" if kind.startswith("running") else "params"
    return collection, (*module_path(module), LEAVES[kind]), value


def backbone(state: dict[str, np.ndarray], units: Iterable[str] = ()) -> tuple[dict, dict]:
    """(params, stats) of a state dict of a whole backbone or a part of it.

    units: names of units that are in the trees even if the state has nothing for them.
    """
    trees = {kind: {unit: {} for unit in units} for kind in ("params", "batch_stats")}
    for name, value in state.items():
        collection, path, array = leaf(name, value)
        node = trees[collection]
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = array
    return trees["params"], trees["batch_stats"]


def part(state: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The entries below `prefix`, without it."""
    return {k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)}


def linear(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A linear layer (out, in) as one of our heads."""
    return {"kernel": state["weight"].T, "bias": state["bias"]}


def variables(state: dict[str, np.ndarray]) -> dict:
    """A whole network: MEMO (trunk and blocks), DER (`convnets`) or one backbone (`convnet`)."""
    single = part(state, "convnet.")
    trunk, trunk_stats = backbone(
        {k: v for k, v in single.items() if not k.startswith("stage_3")}
        or part(state, "TaskAgnosticExtractor.")
    )
    prefix = "AdaptiveExtractors." if trunk else "convnets."
    blocks = []
    if single:
        last_stage = {k: v for k, v in single.items() if k.startswith("stage_3")}
        blocks = [backbone(last_stage, ("pool",))]
    while part(state, f"{prefix}{len(blocks)}."):
        blocks.append(backbone(part(state, f"{prefix}{len(blocks)}."), ("pool",)))
    params = {
        "trunk": trunk,
        "blocks": tuple(p for p, _ in blocks),
        "head": linear(part(state, "fc.")),
    }
    if "aux_fc.weight" in state:
        params["aux_head"] = linear(part(state, "aux_fc."))
    stats = {"trunk": trunk_stats, "blocks": tuple(s for _, s in blocks)}
    return {"params": params, "batch_stats": stats}


def our_path(name: str) -> str:
    """Our path of a parameter of a whole published network."""
    heads = {"fc.weight": "head/kernel", "fc.bias": "head/bias"}
    heads |= {f"aux_{k}": f"aux_{v}" for k, v in heads.items()}
    if name in heads:
        return heads[name]
    extractor, rest = name.split(".", 1)
    owner = "trunk"
    if extractor == "convnet":
        owner = "blocks/0" if rest.startswith("stage_3") else "trunk"
    elif extractor != "TaskAgnosticExtractor":
        number, rest = rest.split(".", 1)
        owner = f"blocks/{number}"
    module, kind = rest.rsplit(".", 1)
    path = module_path(module)
    kernel = "conv" in path[-1]
    return "/".join((owner, *path, "kernel" if kernel else LEAVES[kind]))
