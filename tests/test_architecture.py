"""The layout: a module imports only modules of a lower rank, and nothing but this package knows."""

import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent / "memo_jax"
RANKS = [
    {"errors", "randomness", "metrics", "parallel", "interrupts", "paper"}
    | {"huge_pages", "host_memory", "crops", "order"},
    {"augment", "budget", "protocol", "backbones", "datasets", "heads", "freezing", "optimizers"},
    {"losses", "network", "exemplars", "hosts", "batches"},
    {"methods", "learner", "evaluation", "streaming"},
    {"training", "memory_plan"},
    {"clock", "logging", "checkpoints"},
    {"run_folder", "planning", "base_task", "report"},
    {"results", "problems"},
    {"estimate"},
    {"experiment", "commands"},
    {"study"},
    {"__main__"},
]
RANK = {module: rank for rank, modules in enumerate(RANKS) for module in modules}


def parts() -> list[str]:
    """The modules and packages of memo_jax."""
    return sorted(p.stem for p in PACKAGE.iterdir() if p.stem not in ("__init__", "__pycache__"))


def imports_of(part: str) -> set[str]:
    """The other parts of the package that a part imports, anywhere in its code."""
    path = PACKAGE / part
    files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
    found = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "memo_jax":
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("memo_jax."):
                found.add(node.module.split(".")[1])
    return found - {part}


@pytest.mark.parametrize("part", parts())
def test_imports_point_down(part):
    assert part in RANK, f"give {part} a rank in this test"
    for other in imports_of(part):
        assert RANK[other] < RANK[part], f"{part} imports {other}, which is not of lower rank"


def test_ranks_name_only_what_exists():
    assert set(RANK) == set(parts())


def test_devices_are_known_in_one_file():
    names = ("jax.devices(", "device_count(", "process_count(", "default_backend(", "Mesh(")
    for file in PACKAGE.rglob("*.py"):
        if file.name != "parallel.py":
            text = file.read_text()
            assert not [name for name in names if name in text], file
