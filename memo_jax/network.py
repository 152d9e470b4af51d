"""The network of the paper: phi(x) = [s_1(g(x)), ..., s_b(g(x))] and linear heads on it.

Variables are one plain tree:

    {"params": {"trunk": g, "blocks": (s_1, ..., s_b), "head": ..., "aux_head": ...},
     "batch_stats": {"trunk": ..., "blocks": (...)}}

`aux_head` is there from the second task of a growing method on. Growth makes a new tree and
leaves the old one as it was.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from memo_jax import heads
from memo_jax.backbones import base
from memo_jax.errors import UserError, near
from memo_jax.protocol import Task
from memo_jax.randomness import generator_for

Variables = dict


class Outputs(NamedTuple):
    """features `[B, D]`, logits `[B, K]`, aux_logits `[B, new + 1]` or None."""

    features: jax.Array
    logits: jax.Array
    aux_logits: jax.Array | None


@dataclasses.dataclass(frozen=True)
class Network:
    """How variables are made, grown and applied; holds no array.

    cut: number of the backbone's units in the trunk. grows: whether a task adds a block.
    compute: type in which trunk and blocks are run; variables, BatchNorm statistics, features,
    heads and losses are float32 whatever it is.
    """

    backbone: base.Backbone
    image_shape: tuple[int, int, int]
    cut: int
    grows: bool
    compute: jnp.dtype = jnp.float32

    @property
    def trunk_units(self) -> base.Units:
        return self.backbone.units[: self.cut]

    @property
    def block_units(self) -> base.Units:
        return self.backbone.units[self.cut :]

    def expand(
        self, variables: Variables | None, task: Task, seed: int, block_init: str = "previous"
    ) -> Variables:
        """The network for `task`, grown from that of the task before (None for the base task).

        A growing network gets one more block, a copy of the previous one with its statistics or
        a fresh one (`block_init`), and a fresh auxiliary head; the head is widened. Leaves may be
        shared with `variables` and be NumPy arrays; fresh ones are drawn at (seed, task).
        """
        if variables is None:
            return self._base(task, seed)
        params, stats = dict(variables["params"]), dict(variables["batch_stats"])
        rng = generator_for(seed, task.index, "heads")
        if self.grows:
            block, block_stats = (
                (params["blocks"][-1], stats["blocks"][-1])
                if block_init == "previous"
                else self._fresh_block(seed, task)
            )
            params["blocks"] = (*params["blocks"], block)
            stats["blocks"] = (*stats["blocks"], block_stats)
            params["aux_head"] = heads.init_linear(rng, self.backbone.feature_dim, task.num_new + 1)
        width = self.backbone.feature_dim * len(params["blocks"])
        params["head"] = heads.widen(params["head"], width, task.num_seen, rng)
        return {"params": params, "batch_stats": stats}

    def _base(self, task: Task, seed: int) -> Variables:
        """The network of the base task: trunk, one block, a head for its classes."""
        trunk, trunk_stats = base.init(
            self.trunk_units, self.image_shape, self.backbone.kernel_init, seed, task.index
        )
        block, block_stats = self._fresh_block(seed, task)
        rng = generator_for(seed, task.index, "heads")
        head = heads.init_linear(rng, self.backbone.feature_dim, task.num_seen)
        return {
            "params": {"trunk": trunk, "blocks": (block,), "head": head},
            "batch_stats": {"trunk": trunk_stats, "blocks": (block_stats,)},
        }

    def _fresh_block(self, seed: int, task: Task) -> tuple[dict, dict]:
        shape = base.output_shape(self.trunk_units, self.image_shape)
        return base.init(self.block_units, shape, self.backbone.kernel_init, seed, task.index)

    def adopt(self, variables: Variables) -> Variables:
        """The variables of a network of one block, cut anywhere, as this network would hold them.

        Trunk and block together are the whole backbone, wherever the cut is.
        """

        def recut(tree: dict) -> dict:
            units = {**tree["trunk"], **tree["blocks"][0]}
            trunk = {name: units[name] for name, _ in self.trunk_units}
            block = {name: units[name] for name, _ in self.block_units}
            return {**tree, "trunk": trunk, "blocks": (block,)}

        return {name: recut(tree) for name, tree in variables.items()}

    def apply(
        self,
        variables: Variables,
        images: jax.Array,
        training: dict | None = None,
        mask: jax.Array | None = None,
    ) -> tuple[Outputs, dict]:
        """Runs normalised images `[B, H, W, C]`; returns outputs and statistics afterwards.

        training: units in training mode (freezing.training_units), None for inference.
        mask: float `[B]`, 0 for rows that only fill up the batch.
        """
        params, stats = variables["params"], variables["batch_stats"]
        images = images.astype(self.compute)
        trunk = _convolving_in(self.compute, params["trunk"])
        blocks = [_convolving_in(self.compute, block) for block in params["blocks"]]
        training = training or {"trunk": {}, "blocks": ({},) * len(params["blocks"])}
        shared, trunk_stats = base.run(
            self.trunk_units, trunk, stats["trunk"], images, training["trunk"], mask
        )
        features, block_stats = [], []
        for block in range(len(blocks)):
            out, after = base.run(
                self.block_units,
                blocks[block],
                stats["blocks"][block],
                shared,
                training["blocks"][block],
                mask,
            )
            features.append(out.astype(jnp.float32))
            block_stats.append(after)
        joined = jnp.concatenate(features, axis=1)
        aux = heads.apply(params["aux_head"], features[-1]) if "aux_head" in params else None
        outputs = Outputs(joined, heads.apply(params["head"], joined), aux)
        return outputs, {"trunk": trunk_stats, "blocks": tuple(block_stats)}

    def num_parameters(self, num_tasks: int) -> int:
        """Parameters of trunk and blocks after so many tasks: what a memory budget counts."""
        trunk = base.num_parameters(self.trunk_units, self.image_shape)
        shape = base.output_shape(self.trunk_units, self.image_shape)
        block = base.num_parameters(self.block_units, shape)
        return trunk + block * (num_tasks if self.grows else 1)

    def stages(self, tasks: tuple[Task, ...]) -> list[Variables]:
        """Shapes and types of the variables after each of `tasks`."""
        variables, found = None, []
        for task in tasks:
            variables = self.expand(variables, task, seed=0)
            found.append(jax.tree.map(_shape_of, variables))
        return found

    def abstract(self, tasks: tuple[Task, ...]) -> Variables:
        """Shapes and types of the variables after `tasks`."""
        return self.stages(tasks)[-1]


def _shape_of(leaf: np.ndarray) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _convolving_in(dtype: jnp.dtype, params: dict) -> dict:
    """The parameters with those of convolutions in `dtype`; BatchNorm's stay as they are."""
    if "kernel" in params:
        return {name: leaf.astype(dtype) for name, leaf in params.items()}
    return {
        name: _convolving_in(dtype, leaf) if isinstance(leaf, dict) else leaf
        for name, leaf in params.items()
    }


def build(
    backbone: base.Backbone, image_shape: tuple[int, int, int], cut: str, grows: str
) -> Network:
    """The network of a method: `grows` as in methods/base.py, `cut` a name in backbone.cuts.

    Only what grows by the last stage depends on the cut. Raises UserError for a cut that it would
    need and that there is not, and for images the backbone cannot take.
    """
    if grows == "last_stage" and cut not in backbone.cuts:
        raise UserError(
            f"backbone.cut: {backbone.name} has no cut {cut!r}; {near(cut, list(backbone.cuts))}"
        )
    if min(image_shape[:2]) < backbone.min_size:
        raise UserError(
            f"backbone.name: {backbone.name} needs images of at least {backbone.min_size} pixels a "
            f"side, found {image_shape[0]}x{image_shape[1]}; choose another backbone"
        )
    units_in_trunk = 0 if grows == "backbone" else backbone.cuts.get(cut, 0)
    return Network(backbone, tuple(image_shape), units_in_trunk, grows != "nothing")
