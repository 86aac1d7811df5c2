"""The packages in their order, and modules that a person can read in one go."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support import PROJECT

SRC = PROJECT / "src/medallion"
# Each package imports only those before it; two on one line know nothing of each other.
ORDER = (
    ("errors",),
    ("storage",),
    ("config",),
    ("sql", "spark"),
    ("quality",),
    ("state",),
    ("ingest",),
    ("layers",),
    ("inspect",),
    ("runtime",),
    ("cli",),
)
RANK = {package: rank for rank, packages in enumerate(ORDER) for package in packages}
# Beside the others: what a notebook starts by hand, and test data, landed as any program would.
BESIDE = {
    "streams": {"errors", "storage", "config", "sql", "spark"},
    "factory": {"errors", "storage", "config", "streams"},
}
MODULES = sorted(SRC.rglob("*.py"))


def name(module: Path) -> str:
    return str(module.relative_to(SRC))


def package(module: Path) -> str:
    return module.relative_to(SRC).parts[0].removesuffix(".py")


def imported(module: Path) -> set[str]:
    """The packages that a module imports at any place, within functions too."""
    found = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "medallion":
            found |= {alias.name for alias in node.names} - {"__version__"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("medallion."):
            found.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            found |= {n.split(".")[1] for n in names if n.startswith("medallion.")}
    return found


def allowed(importer: str) -> set[str]:
    if importer in BESIDE:
        return {importer, *BESIDE[importer]}
    before = {other for other, rank in RANK.items() if rank < RANK[importer]}
    return {importer, *before, *(BESIDE if importer == "cli" else ())}


def test_every_package_has_its_place() -> None:
    there = {package(module) for module in MODULES}
    assert there - {"__init__", "__main__"} == {*RANK, *BESIDE}


@pytest.mark.parametrize("importer", [*RANK, *BESIDE])
def test_a_package_imports_only_those_before_it(importer: str) -> None:
    upward = {
        f"{name(module)} imports {', '.join(sorted(wrong))}"
        for module in MODULES
        if package(module) == importer and (wrong := imported(module) - allowed(importer))
    }
    assert upward == set()


def test_the_ways_of_importing_are_all_seen(tmp_path: Path) -> None:
    lines = (
        "import medallion.cli.main",
        "from medallion import sql, __version__",
        "from medallion.layers.gold import flow",
        "def later():\n    from medallion.state.runs import Runs",
        "import json",
    )
    (tmp_path / "module.py").write_text("\n".join(lines))
    assert imported(tmp_path / "module.py") == {"cli", "sql", "layers", "state"}


def test_no_module_is_above_500_lines() -> None:
    lines = {name(m): len(m.read_text(encoding="utf-8").splitlines()) for m in MODULES}
    assert {module: count for module, count in lines.items() if count > 500} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = {
        f"{name(module)}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= 60
    }
    assert long == set()


def test_only_spark_s_own_rooms_read_its_private_formats() -> None:
    """Checkpoints are spelled by Spark: one module knows how."""
    spelled = {name(m) for m in MODULES if "batchWatermarkMs" in m.read_text(encoding="utf-8")}
    assert spelled == {"spark/checkpoints.py"}
