"""Our variables in the PyTorch network, and its tensors as our trees.

One rule: a leaf's path joined by dots is the tensor's name, but for the last word.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from benchmarks.torch_network import Network

LEAVES = {
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}
TO_TORCH = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}
"""By number of axes: convolutions [h, w, in, out] -> [out, in, h, w], heads [in, out] ->
[out, in]."""


def leaves(tree, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    """(path, leaf) of a tree of dictionaries and tuples."""
    if isinstance(tree, dict | tuple):
        parts = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for name, part in parts:
            yield from leaves(part, (*path, str(name)))
    else:
        yield path, tree


def torch_name(path: tuple[str, ...]) -> str:
    """("blocks", "1", "stage3_block0", "conv_a", "kernel") -> "blocks.1....conv_a.weight"."""
    return ".".join((*path[:-1], LEAVES[path[-1]]))


def load(network: Network, variables: dict) -> None:
    """Puts parameters and statistics into a network of the same shape.

    Raises ValueError if either has something that the other lacks.
    """
    state = {}
    for collection in ("params", "batch_stats"):
        for path, leaf in leaves(variables[collection]):
            array = np.asarray(leaf)
            state[torch_name(path)] = torch.tensor(array.transpose(TO_TORCH[array.ndim]))
    found = network.load_state_dict(state, strict=False)
    missing = [name for name in found.missing_keys if not name.endswith("num_batches_tracked")]
    if missing or found.unexpected_keys:
        raise ValueError(f"the network lacks {found.unexpected_keys}, the variables {missing}")


def like(template, tensor_of: Callable[[str], Tensor | None], path: tuple[str, ...] = ()):
    """A tree like `template`, its leaves NumPy arrays of the tensors that `tensor_of` names.

    Leaves without a tensor (no gradient) become None.
    """
    if isinstance(template, dict):
        return {k: like(v, tensor_of, (*path, k)) for k, v in template.items()}
    if isinstance(template, tuple):
        return tuple(like(v, tensor_of, (*path, str(i))) for i, v in enumerate(template))
    tensor = tensor_of(torch_name(path))
    if tensor is None:
        return None
    array = tensor.detach().cpu().numpy()
    return array.transpose(np.argsort(TO_TORCH[array.ndim]))


def variables(network: Network, template: dict) -> dict:
    """The network's parameters and statistics as our variables, shaped like `template`."""
    state = network.state_dict()
    return {name: like(template[name], state.__getitem__) for name in ("params", "batch_stats")}


def gradients(network: Network, params: dict) -> dict:
    """The network's gradients as a tree like `params`, None where a leaf has none."""
    named = dict(network.named_parameters())
    return like(params, lambda name: named[name].grad)
