"""Small faults in a module: find them, and write them all as branches behind a switch."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

SWITCH = "__mutant__"
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
# Only text for people.
SKIPPED_FILES = ("cli/render", "cli/report", "cli/charts", "cli/terminal", "streams/display")
SKIPPED_FUNCTIONS = ("_error", "_message", "_text", "__init__", "__repr__", "__str__")
# Calls whose loss no test can see: messages, and what only frees memory.
QUIET_CALLS = {
    *("debug", "info", "warning", "log", "report", "print", "_report", "_log", "write_line"),
    *("print_result", "print_error", "_print_trace", "repartition", "coalesce"),
    *("unpersist", "persist", "close", "flush", "sleep", "wait", "simplefilter", "filterwarnings"),
}
# Options with the same effect as their default, or only on speed or the form of a text.
QUIET_OPTIONS = {
    *("encoding", "strict", "timeout", "indent", "maxsize", "daemon", "stacklevel", "default"),
    *("follow_symlinks", "name", "file", "end", "flush", "max_workers", "key", "errors", "style"),
    *("thread_name_prefix", "ensure_ascii", "separators", "sep", "maxsplit", "check"),
    *("help", "metavar", "description", "epilog"),
}
CHAINED = {
    *("option", "options", "mode", "outputMode", "partitionBy", "trigger", "queryName", "where"),
    *("filter", "limit", "distinct", "withWatermark", "dropDuplicates", "otherwise", "schema"),
}
Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        id: the same as long as the function has the fault, whatever its line.
        file: below src/medallion.
        statement_line: the first line of the statement.
        text: the line.
        changes: pairs of a node and what replaces it.
    """

    id: str
    file: str
    line: int
    column: int
    statement_line: int
    function: str
    operator: str
    before: str
    after: str
    text: str
    changes: list[tuple[ast.AST, ast.AST]] = field(compare=False, repr=False)

    @property
    def package(self) -> str:
        return self.file.partition("/")[0].removesuffix(".py")

    def as_json(self) -> dict[str, Any]:
        values = {k: v for k, v in vars(self).items() if k != "changes"}
        return {**values, "package": self.package}


def find_mutants(package: Path, file: str) -> list[Mutant]:
    """Return all faults for a module."""
    text = (package / file).read_text(encoding="utf-8")
    is_skipped = file.startswith(SKIPPED_FILES) or file.endswith("__init__.py")
    return [] if is_skipped else _Finder(file, text).mutants


def with_switches(package: Path, file: str, numbers: dict[str, int]) -> str:
    """Return the code of a module with some mutants, each active if the switch has its number."""
    text = (package / file).read_text(encoding="utf-8")
    finder = _Finder(file, text)
    changes: dict[int, list[tuple[int, ast.AST]]] = defaultdict(list)
    for mutant in finder.mutants:
        for node, replacement in mutant.changes if mutant.id in numbers else ():
            changes[id(node)].append((numbers[mutant.id], replacement))
    tree = _Switcher(changes).visit(finder.tree)
    at = next(n for n, s in enumerate(tree.body) if not _is_header(s))
    tree.body[at:at] = ast.parse(f"from medallion._mutant import is_active as {SWITCH}").body
    switched = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    restored = ast.parse(switched)
    restored.body = [s for s in restored.body if not _imports_switch(s)]
    if ast.dump(_Restorer().visit(restored)) != ast.dump(ast.parse(text)):
        raise AssertionError(f"{file}: not the same code without a mutant")
    return switched


def _is_header(statement: ast.stmt) -> bool:
    is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    return is_docstring or is_future


def _imports_switch(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "medallion._mutant"


class _Switcher(ast.NodeTransformer):
    """Replaces each node that has mutants by branches."""

    def __init__(self, changes: dict[int, list[tuple[int, ast.AST]]]) -> None:
        self._changes = changes

    def visit(self, node: ast.AST) -> Any:
        result = self.generic_visit(node)
        for number, replacement in self._changes.get(id(node), ()):
            test = ast.Call(ast.Name(SWITCH, ast.Load()), [ast.Constant(number)], [])
            if isinstance(replacement, ast.stmt) and isinstance(result, ast.stmt):
                result = ast.If(test, [replacement], [result])
            elif isinstance(replacement, ast.expr) and isinstance(result, ast.expr):
                result = ast.IfExp(test, replacement, result)
        return result


class _Restorer(ast.NodeTransformer):
    """Takes the branch without a mutant."""

    def visit(self, node: ast.AST) -> Any:
        node = self.generic_visit(node)
        if isinstance(node, ast.If | ast.IfExp) and _called(node.test) == SWITCH:
            return node.orelse
        return node


def _called(node: ast.AST) -> str:
    """Return the last name of a called function, or an empty string."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _copy(node: Node, **changes: Any) -> Node:
    """Return a copy of a node with some fields changed."""
    copied = deepcopy(node)
    for name, value in changes.items():
        setattr(copied, name, deepcopy(value))
    return copied


def _without(items: list[Any], item: Any) -> list[Any]:
    return [other for other in items if other is not item]


class _Finder:
    """Walks through the functions of a module and lists its mutants."""

    def __init__(self, file: str, text: str) -> None:
        self.tree, self.mutants = ast.parse(text), list[Mutant]()
        self._file, self._lines = file, text.splitlines()
        self._seen: Counter[str] = Counter()
        self._function, self._is_boolean, self._statement_line = "", False, 0
        self._walk_body(self.tree.body)

    def _walk_body(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.FunctionDef):
                self._walk_function(statement)
            elif isinstance(statement, ast.ClassDef):
                outer, self._function = self._function, f"{self._function}{statement.name}."
                self._walk_body([s for s in statement.body if isinstance(s, ast.FunctionDef)])
                self._function = outer
            elif self._function:
                self._walk_statement(statement)
        if self._function and not self._function.endswith("."):
            self._add_body(body)

    def _walk_function(self, function: ast.FunctionDef) -> None:
        if function.name.endswith(SKIPPED_FUNCTIONS):
            return
        outer = self._function, self._is_boolean
        self._function = (self._function + "." if self._function else "") + function.name
        self._function = self._function.replace("..", ".")
        self._is_boolean = isinstance(function.returns, ast.Name) and function.returns.id == "bool"
        self._walk_body(function.body)
        self._function, self._is_boolean = outer

    def _walk_statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
            return
        self._statement_line = statement.lineno
        if isinstance(statement, ast.Return) and self._is_boolean:
            self._add_return(statement)
        if isinstance(statement, ast.If):
            self._add_condition(statement.test)
        for name, value in ast.iter_fields(statement):
            if name == "annotation":
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.expr):
                    self._walk_expression(child)
                elif isinstance(child, ast.withitem):
                    self._walk_expression(child.context_expr)
                elif isinstance(child, ast.ExceptHandler | ast.match_case):
                    self._walk_body(child.body)
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                self._walk_body(value)
                self._statement_line = statement.lineno

    def _walk_expression(self, node: ast.AST) -> None:
        name = _called(node)
        if ast.unparse(node) == "F.lit(1)":  # what `F.count` counts
            return
        if isinstance(node, ast.Call) and (name in QUIET_CALLS or name.endswith("Error")):
            node = node.func  # without the arguments
        if isinstance(node, ast.JoinedStr):
            return
        for operator, replacement in _faults(node):
            self._add(operator, (node, replacement))
        if isinstance(node, ast.IfExp):
            self._add_condition(node.test)
        if isinstance(node, ast.comprehension):
            for test in node.ifs:
                self._add_condition(test)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.keyword) and child.arg in QUIET_OPTIONS:
                continue
            if isinstance(child, ast.expr | ast.keyword | ast.comprehension | ast.slice):
                self._walk_expression(child)

    def _add_condition(self, test: ast.expr) -> None:
        """Add the mutants of a condition, unless a part of it assigns a name."""
        if any(isinstance(node, ast.NamedExpr) for node in ast.walk(test)):
            return
        self._add("if-true", (test, ast.Constant(True)))
        self._add("if-false", (test, ast.Constant(False)))
        if not isinstance(test, ast.Compare | ast.UnaryOp):
            self._add("not", (test, ast.UnaryOp(ast.Not(), deepcopy(test))))

    def _add_return(self, statement: ast.Return) -> None:
        value = statement.value
        if value and not isinstance(value, ast.Compare | ast.UnaryOp | ast.Constant):
            self._add("return", (value, ast.UnaryOp(ast.Not(), deepcopy(value))))

    def _add_body(self, body: list[ast.stmt]) -> None:
        """Add mutants that drop a call, or swap it with the next."""
        calls = [
            isinstance(s, ast.Expr) and _called(s.value) not in {"", *QUIET_CALLS} for s in body
        ]
        for n, statement in enumerate(body):
            self._statement_line = statement.lineno
            if calls[n]:
                self._add("drop-call", (statement, ast.Pass()))
            if calls[n] and calls[n + 1 : n + 2] == [True]:
                following = body[n + 1]
                self._add(
                    "swap", (statement, deepcopy(following)), (following, deepcopy(statement))
                )

    def _add(self, operator: str, *changes: tuple[Any, ast.AST]) -> None:
        before, after = ("; ".join(ast.unparse(c[side]) for c in changes) for side in (0, 1))
        key = "|".join((self._file, self._function, operator, before, after))
        self._seen[key] += 1
        digest = hashlib.sha256(f"{key}|{self._seen[key]}".encode()).hexdigest()[:10]
        line, column = changes[0][0].lineno, changes[0][0].col_offset
        text = self._lines[line - 1].strip()
        place = (digest, self._file, line, column, self._statement_line, self._function)
        self.mutants.append(Mutant(*place, operator, before, after, text, list(changes)))


def _faults(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield an operator and the replacement, for each fault of one expression."""
    if isinstance(node, ast.Compare):
        is_clock = any(word in ast.unparse(node) for word in ("monotonic", "deadline", "clock."))
        for n, operator in enumerate(node.ops if not is_clock else ()):
            turned = [*node.ops[:n], TURNED[type(operator)](), *node.ops[n + 1 :]]
            yield "comparison", _copy(node, ops=turned)
    elif isinstance(node, ast.BoolOp):
        for operand in node.values:
            rest = _without(node.values, operand)
            yield "condition", deepcopy(rest[0]) if len(rest) == 1 else _copy(node, values=rest)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        yield "condition", deepcopy(node.left)
        yield "condition", deepcopy(node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        yield "not", deepcopy(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "boolean", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value <= 1000:
        yield "number", ast.Constant(node.value + 1)
    elif isinstance(node, ast.Call):
        name = _called(node)
        if isinstance(node.func, ast.Name) and name in ("min", "max"):
            yield (
                "min-max",
                _copy(node, func=ast.Name("max" if name == "min" else "min", ast.Load())),
            )
        if isinstance(node.func, ast.Attribute) and name in CHAINED:
            yield "option", deepcopy(node.func.value)
        for keyword in node.keywords if name[:1].islower() else ():
            if keyword.arg not in QUIET_OPTIONS:
                yield "option", _copy(node, keywords=_without(node.keywords, keyword))
