"""Puts PyTorch state dicts of the published code into our variables, for golden tests."""

import re

import numpy as np

STEM = {"conv_1_3x3": "conv", "bn_1": "bn"}
LEAVES = {
    "weight": "scale",
    "bias": "bias",
    "running_mean": "mean",
    "running_var": "var",
}


def module_path(name: str) -> tuple[str, ...]:
    """`stage_1.0.conv_a` -> ("stage1_block0", "conv_a"); `final_stage` is the third stage."""
    if name in STEM:
        return "stem", STEM[name]
    stage, block, layer = re.fullmatch(r"(stage_\d|final_stage)\.(\d+)\.(\w+)", name).groups()
    number = 3 if stage == "final_stage" else int(stage[-1])
    return f"stage{number}_block{block}", layer


def leaf(name: str, value: np.ndarray) -> tuple[str, tuple[str, ...], np.ndarray]:
    """(collection, path, array) of one entry of a CIFAR ResNet's state dict."""
    module, kind = name.rsplit(".", 1)
    if value.ndim == 4:
        return "params", (*module_path(module), "kernel"), value.transpose(2, 3, 1, 0)
    collection = "batch_stats" if kind.startswith("running") else "params"
    return collection, (*module_path(module), LEAVES[kind]), value


def backbone(state: dict[str, np.ndarray]) -> tuple[dict, dict]:
    """(params, stats) of a state dict of a whole or a part of a CIFAR ResNet."""
    trees = {"params": {}, "batch_stats": {}}
    for name, value in state.items():
        collection, path, array = leaf(name, value)
        node = trees[collection]
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = array
    for params in (trees["params"], trees["batch_stats"]):
        if any(unit.startswith("stage3") for unit in trees["params"]):
            params["pool"] = {}
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
        blocks = [backbone({k: v for k, v in single.items() if k.startswith("stage_3")})]
    while part(state, f"{prefix}{len(blocks)}."):
        blocks.append(backbone(part(state, f"{prefix}{len(blocks)}.")))
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
