"""The order of the packages, and the size of modules and functions."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support import PROJECT

SRC = PROJECT / "src/medallion"
# Each package imports only earlier ones; two packages on one line do not import each other.
ORDER = (
    ("errors",),
    ("storage",),
    ("config",),
    ("install",),
    ("sql", "spark"),
    ("quality",),
    ("state",),
    ("ingest",),
    ("discover",),
    ("layers",),
    ("inspect",),
    ("runtime",),
    ("cli",),
)
RANK = {package: rank for rank, packages in enumerate(ORDER) for package in packages}
# Outside the order: a notebook starts `streams`, and `factory` lands test data like any program.
INDEPENDENT = {
    "streams": {"errors", "storage", "config", "sql", "spark"},
    "factory": {"errors", "storage", "config"},
}
MODULES = sorted(SRC.rglob("*.py"))


def name(module: Path) -> str:
    return str(module.relative_to(SRC))


def package(module: Path) -> str:
    return module.relative_to(SRC).parts[0].removesuffix(".py")


def imported(module: Path) -> set[str]:
    """Return the packages that a module imports anywhere, also within functions."""
    packages = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "medallion":
            packages |= {alias.name for alias in node.names} - {"__version__"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("medallion."):
            packages.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            packages |= {n.split(".")[1] for n in names if n.startswith("medallion.")}
    return packages


def allowed(importer: str) -> set[str]:
    if importer in INDEPENDENT:
        return {importer, *INDEPENDENT[importer]}
    earlier = {other for other, rank in RANK.items() if rank < RANK[importer]}
    return {importer, *earlier, *(INDEPENDENT if importer == "cli" else ())}


def test_every_package_is_ordered() -> None:
    packages = {package(module) for module in MODULES}
    assert packages - {"__init__", "__main__"} == {*RANK, *INDEPENDENT}


def test_modules_import_each_other_in_no_circle() -> None:
    """Also not for types alone; `medallion` itself is left out: only users import its names."""
    names = {".".join(("medallion", *m.relative_to(SRC).with_suffix("").parts)): m for m in MODULES}
    modules = {each.removesuffix(".__init__"): module for each, module in names.items()}
    del modules["medallion"]
    imports = dict[str, set[str]]()
    for importer, module in modules.items():
        tree = ast.parse(module.read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        late = {id(node) for function in functions for node in ast.walk(function)}
        nodes = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
        found = {
            name
            for node in nodes
            if id(node) not in late
            for alias in node.names
            for name in (f"{node.module}.{alias.name}", str(node.module))
        }
        imports[importer] = found & modules.keys() - {importer}
    # A batch has the type of its source, which makes it.
    imports["medallion.ingest.files.batch"].remove("medallion.ingest.files.source")
    assert len([*TopologicalSorter(imports).static_order()]) == len(modules)


@pytest.mark.parametrize("importer", [*RANK, *INDEPENDENT])
def test_package_imports_only_earlier_ones(importer: str) -> None:
    upward = {
        f"{name(module)} imports {', '.join(sorted(forbidden))}"
        for module in MODULES
        if package(module) == importer and (forbidden := imported(module) - allowed(importer))
    }
    assert upward == set()


def test_imported_sees_every_form(tmp_path: Path) -> None:
    lines = (
        "import medallion.cli.main",
        "from medallion import sql, __version__",
        "from medallion.layers.gold import flow",
        "def later():\n    from medallion.state.runs import RunRecords",
        "import json",
    )
    (tmp_path / "module.py").write_text("\n".join(lines))
    assert imported(tmp_path / "module.py") == {"cli", "sql", "layers", "state"}


def code_lines(module: Path) -> int:
    """Count the lines of code, without blank lines, comments and docstrings."""
    text = module.read_text(encoding="utf-8")
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(ast.Constant(str())) as text_node, *_]:
                    documented |= {*range(text_node.lineno, (text_node.end_lineno or 0) + 1)}
    lines = ((n, line.strip()) for n, line in enumerate(text.splitlines(), start=1))
    return sum(1 for n, line in lines if line and not line.startswith("#") and n not in documented)


def test_code_stays_small() -> None:
    # The aim is 22,000. To be paid for: edits and change data, conversions, object stores.
    assert sum(map(code_lines, MODULES)) < 22_480


def test_code_lines(tmp_path: Path) -> None:
    module = tmp_path / "a.py"
    module.write_text('"""A\nmodule."""\n\n# why\ndef f():\n    """Do."""\n    return """x\ny"""\n')
    assert code_lines(module) == 3


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


def test_only_checkpoints_reads_spark_formats() -> None:
    """Only one module knows the format of Spark's checkpoints."""
    spelled = {name(m) for m in MODULES if "batchWatermarkMs" in m.read_text(encoding="utf-8")}
    assert spelled == {"spark/checkpoints.py"}


# The maximum number of direct file-system calls by package: lower it when the number falls. None
# uses a path below the root, except to read the content of landed files.
FILE_SYSTEM_CALLS = {
    "config": 9,  # finds the project, outside the root; functions.txt
    "spark": 3,  # its own jars and settings
    "install": 39,  # the user's cache and new projects, outside the root
    "quality": 5,  # the suites
    "state": 4,  # the configuration
    "ingest": 12,  # content: formats and codecs
    "discover": 9,  # the user's files, outside the root
    "layers": 1,  # opens a source
    "runtime": 3,  # the path of a backfill
    "cli": 6,  # also the user's files: SQL scripts, the history of the prompt
    "factory": 14,
}
OS_CALLS = {
    *("access", "chmod", "fsync", "link", "listdir", "lstat", "makedirs", "mkdir", "open"),
    *("readlink", "remove", "rename", "replace", "rmdir", "scandir", "stat", "statvfs"),
    *("symlink", "sync", "truncate", "unlink", "utime", "walk"),
    *("exists", "getmtime", "getsize", "isdir", "isfile", "islink", "lexists", "realpath"),
}
PATH_METHODS = {
    *("chmod", "exists", "glob", "hardlink_to", "is_dir", "is_file", "is_symlink", "iterdir"),
    *("lstat", "mkdir", "open", "read_bytes", "read_text", "rename", "resolve", "rglob"),
    *("rmdir", "samefile", "stat", "symlink_to", "touch", "unlink", "write_bytes", "write_text"),
}


def is_file_system_call(call: ast.Call) -> bool:
    """Return whether a call seems to use the file system; types are unknown here."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id in ("open", "TemporaryDirectory", "NamedTemporaryFile")
    if not isinstance(function, ast.Attribute):
        return False
    owner = ast.unparse(function.value)
    if owner in ("os", "os.path"):
        return function.attr in OS_CALLS
    if owner in ("shutil", "tempfile", "filecmp"):
        return True
    is_path_replace = function.attr == "replace" and len(call.args) == 1 and not call.keywords
    return function.attr in PATH_METHODS or is_path_replace


def file_system_calls(module: Path) -> list[str]:
    """Return the module's direct file-system calls as `file:line code`."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return [
        f"{name(module)}:{node.lineno} {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and is_file_system_call(node)
    ]


@pytest.mark.parametrize("importer", sorted({package(m) for m in MODULES} - {"storage"}))
def test_file_system_calls_do_not_increase(importer: str) -> None:
    calls = [c for m in MODULES if package(m) == importer for c in file_system_calls(m)]
    assert len(calls) <= FILE_SYSTEM_CALLS.get(importer, 0), "\n".join(calls)


def test_only_storage_knows_where_paths_are_stored() -> None:
    others = [module for module in MODULES if package(module) != "storage"]
    nodes = (n for m in others for n in ast.walk(ast.parse(m.read_text(encoding="utf-8"))))
    assert [n for n in nodes if isinstance(n, ast.Attribute) and n.attr == "local"] == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("path.read_text()", True),
        ("os.rename(a, b)", True),
        ("os.path.lexists(a)", True),
        ("shutil.rmtree(a)", True),
        ("a.replace(b)", True),
        ("open(a)", True),
        ("text.replace('a', 'b')", False),
        ("os.getpid()", False),
        ("path.write_atomic(b)", False),
    ],
)
def test_file_system_calls_are_recognized(code: str, expected: bool) -> None:
    call = ast.parse(code, mode="eval").body
    assert isinstance(call, ast.Call)
    assert is_file_system_call(call) == expected


# Modules that search the text of a library's errors, each in one function that returns a code.
ADAPTERS = {
    "spark/errors.py",
    "storage/objects.py",
}  # `sql.engine._missing_table` gets a line, not an error
TEXT_OF_ERROR = {"one_line", "describe_error", "str"}
SEARCHES = {"startswith", "endswith", "find", "index", "count", "search", "match", "fullmatch"}
MESSAGE_FIELDS = {"why", "reason", "message"}


def message_searches(module: Path, code: str | None = None) -> list[str]:
    """Return the lines that compare or search the text of an error or a reason."""
    searches = []
    for function in ast.walk(ast.parse(code or module.read_text(encoding="utf-8"))):
        if not isinstance(function, ast.FunctionDef):
            continue
        nodes = list(ast.walk(function))
        errors = {n.name for n in nodes if isinstance(n, ast.ExceptHandler) and n.name}
        text_names: set[str] = set()

        def is_text(
            node: ast.AST, errors: set[str] = errors, text_names: set[str] = text_names
        ) -> bool:
            if isinstance(node, ast.Name):
                return node.id in text_names
            if isinstance(node, ast.Call):
                names = {n.id for a in node.args for n in ast.walk(a) if isinstance(n, ast.Name)}
                function_name = getattr(node.func, "id", "")
                is_error = function_name in TEXT_OF_ERROR and bool(names & {*errors, "error"})
                return is_error or (function_name != "bool" and any(map(is_text, node.args)))
            if isinstance(node, ast.Attribute):
                is_args = node.attr == "args" and getattr(node.value, "id", "") in errors
                return is_args or node.attr in MESSAGE_FIELDS
            return isinstance(node, ast.Subscript) and is_text(node.value)

        for node in nodes:
            if isinstance(node, ast.Assign) and is_text(node.value):
                text_names |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        for node in nodes:
            if isinstance(node, ast.Compare):
                sides = (node.left, *node.comparators)
                is_none = any(isinstance(s, ast.Constant) and s.value is None for s in sides)
                is_search = any(map(is_text, sides)) and not is_none
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                is_search = node.func.attr in SEARCHES and any(
                    map(is_text, (node.func.value, *node.args))
                )
            else:
                continue
            if is_search:
                searches.append(f"{name(module)}:{node.lineno}: {ast.unparse(node)}")
    return list(dict.fromkeys(searches))


def test_no_code_compares_or_searches_a_message() -> None:
    searches = [
        s for module in MODULES if name(module) not in ADAPTERS for s in message_searches(module)
    ]
    assert searches == []


def test_message_searches_are_found(tmp_path: Path) -> None:
    lines = (
        "def f(entry):",
        "    try: g()",
        "    except OSError as error:",
        "        told = one_line(str(error))",
        "        if 'gone' in told: h()",
        "        if str(error).startswith('no'): h()",
        "        if error.args[0] == 'no': h()",
        "        if re.search('no', str(error)): h()",
        "    return entry.why == 'gone'",
    )
    (tmp_path / "module.py").write_text("\n".join(lines))
    assert len(message_searches(SRC / "x.py", (tmp_path / "module.py").read_text())) == 5


def test_no_pattern_has_a_possessive_quantifier() -> None:
    """Python before 3.11.5 matches them wrongly: `1.` was a number. Java does not."""
    found = []
    for module in MODULES:
        tree = ast.parse(module.read_text(encoding="utf-8"))
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
        patterns = [ast.unparse(c.args[0]) for c in calls if ast.unparse(c.func) == "re.compile"]
        found += [name(module) for each in patterns if re.search(r"(?<!\\)[*+?}]\+", each)]
    assert found == []
