"""What learns and what is frozen: decided once per task as a tree of booleans.

The same tree rules which leaves are differentiated, which the optimizer moves (optimizers.py) and
which units' BatchNorm runs in training mode.
"""

from fnmatch import fnmatchcase

import jax

Tree = dict


def path_of(key_path: tuple) -> str:
    """A leaf's address as text: `blocks/1/stage3_block0/conv_a/kernel`."""
    return jax.tree_util.keystr(key_path, simple=True, separator="/")


def mask(params: Tree, patterns: tuple[str, ...]) -> Tree:
    """A tree like `params`, True where a leaf learns.

    A pattern names a subtree (`trunk`, `blocks/1`, `blocks/*/stage3_block0`), `*` everything.
    Raises ValueError for a pattern that matches no leaf: it would freeze what should learn.
    """
    paths = [path_of(p) for p, _ in jax.tree_util.tree_leaves_with_path(params)]
    for pattern in patterns:
        if not any(_matches(path, pattern) for path in paths):
            raise ValueError(f"the pattern {pattern!r} matches no parameter of {sorted(params)}")

    def learns(key_path: tuple, _) -> bool:
        return any(_matches(path_of(key_path), pattern) for pattern in patterns)

    return jax.tree_util.tree_map_with_path(learns, params)


def _matches(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) or fnmatchcase(path, pattern + "/*")


def partition(params: Tree, learns: Tree) -> tuple[Tree, Tree]:
    """(trainable, frozen): two trees like `params` with None where the other has the leaf."""
    trainable = jax.tree.map(lambda leaf, moves: leaf if moves else None, params, learns)
    frozen = jax.tree.map(lambda leaf, moves: None if moves else leaf, params, learns)
    return trainable, frozen


def merge(trainable: Tree, frozen: Tree) -> Tree:
    """The inverse of `partition`."""
    return jax.tree.map(
        lambda a, b: b if a is None else a, trainable, frozen, is_leaf=lambda x: x is None
    )


def training_units(learns: Tree) -> Tree:
    """Which units run in training mode: those of which any parameter learns.

    Returns `{"trunk": {unit: bool}, "blocks": ({unit: bool}, ...)}`.
    """

    def by_unit(units: Tree) -> dict[str, bool]:
        return {name: any(jax.tree.leaves(tree)) for name, tree in units.items()}

    return {
        "trunk": by_unit(learns["trunk"]),
        "blocks": tuple(by_unit(block) for block in learns["blocks"]),
    }
