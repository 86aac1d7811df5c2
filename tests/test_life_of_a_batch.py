"""The functions named in docs/life-of-a-batch.md exist."""

from __future__ import annotations

import ast
import re

from tests.support import PROJECT

PACKAGE = PROJECT / "src/medallion"
PACKAGES = "|".join(path.name for path in PACKAGE.iterdir() if path.is_dir())


def defines(dotted: str) -> bool:
    """Return whether a name such as `layers.flow.Flow.release` is defined in its module."""
    parts = dotted.split(".")
    for number in range(len(parts), 0, -1):
        file = PACKAGE.joinpath(*parts[:number]).with_suffix(".py")
        if file.is_file():
            body = ast.parse(file.read_text(encoding="utf-8")).body
            return is_defined(body, parts[number:])
    return False


def is_defined(body: list[ast.stmt], names: list[str]) -> bool:
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == names[0]:
            return len(names) == 1 or is_defined(node.body, names[1:])
    return False


def test_functions_named_in_life_of_a_batch_exist() -> None:
    text = (PROJECT / "docs/life-of-a-batch.md").read_text(encoding="utf-8")
    names = re.findall(rf"`((?:{PACKAGES})(?:\.\w+)+)`", text)
    assert len(names) > 20
    assert [name for name in names if not defines(name)] == []
