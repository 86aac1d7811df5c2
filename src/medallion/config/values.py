"""Values of a YAML file, checked one by one; a mistake is told with the key that it stands at.

Each function below `Node` gives a value of its kind, or raises ValueError or TypeError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from medallion.errors import ConfigError

TYPES = ("string", "timestamp", "long", "double", "boolean", "date")
NESTED = ("struct<...>", "array<...>")
T = TypeVar("T")

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
_BYTES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_NESTED = re.compile(r"(struct|array)<.+>", re.DOTALL)  # Spark reads the rest of it


def seconds(duration: str) -> int:
    """Seconds in a duration such as `10 minutes`; raises ValueError for anything else."""
    match = re.fullmatch(r"([1-9]\d*) (second|minute|hour|day)s?", duration.strip())
    if not match:
        raise ValueError(f"{duration!r} is not a duration such as '10 minutes' or '1 hour'")
    return int(match[1]) * _UNITS[match[2]]


def folded(name: str) -> str:
    """What a name has in common with those that Spark takes for the same column.

    Spark goes by one letter after the other: i with and without its dot are one to it.
    """
    upper = (letter.upper() for letter in name)
    return "".join(u.lower()[0] if len(u) == 1 else c for c, u in zip(name, upper, strict=True))


class _Loader(yaml.SafeLoader):
    """YAML in which a key that stands twice is a mistake, instead of the second one winning."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value} stands twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(file: Path) -> Any:
    try:
        return yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError:
        raise ConfigError(
            f"{file}: no such file; set MEDALLION_CONF to the folder that holds pipeline.yaml."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}).") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise ConfigError(f"{file}{line}: not readable as YAML ({problem}).") from None


class WrongColumnError(ValueError):
    """One column of several is wrong: its name, and what it must be."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(name, what)
        self.name, self.what = name, what


class Node:
    """A mapping of the YAML file that knows where it stands, so that errors can say it."""

    def __init__(self, value: Any, file: Path, path: str = "") -> None:
        self.file, self.path = file, path
        if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
            self.fail("", "must be a mapping of names to settings")
        self.value: dict[str, Any] = value

    def fail(self, key: str, what: str) -> NoReturn:
        where = ".".join(p for p in (self.path, key) if p) or "the document"
        raise ConfigError(f"{self.file}: {where} {what}.")

    def only(self, *known: str) -> None:
        for key in self.value:
            if key not in known:
                self.fail(key, f"is not a known key; known here: {', '.join(known)}")

    def children(self, key: str) -> dict[str, Node]:
        path = f"{self.path}.{key}".strip(".")
        node = Node(self.value.get(key) or {}, self.file, path)
        for name in node.value:
            if not _NAME.fullmatch(name):
                node.fail(
                    name, "is not a table name: lower-case letters, digits and _, a letter first"
                )
        return {n: Node(v, self.file, f"{path}.{n}") for n, v in node.value.items()}

    def get(self, key: str, kind: Callable[[Any], T], what: str, default: Any = ...) -> T:
        value = self.value.get(key, default)
        if value is ...:
            self.fail(key, f"is missing: it must be {what}")
        try:
            return kind(value)
        except WrongColumnError as error:
            self.fail(f"{key}.{error.name}", error.what)
        except (ValueError, TypeError):
            self.fail(key, f"must be {what}, not {value!r}")


def text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value


def pattern(value: Any) -> str:
    if set(text(value)) & set("/{"):  # of a folder's name, or as shells spell it: it would fit none
        raise ValueError
    return str(value)


def texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(text(v) for v in value)


def columns_of(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict) or not value:
        raise ValueError
    for name, spelled in value.items():
        if not isinstance(spelled, str) or not spelled.strip():
            raise WrongColumnError(str(name), f"must be text, not {spelled!r}")
    return {text(name): spelled for name, spelled in value.items()}


def named_columns(value: Any) -> Mapping[str, str]:
    columns = columns_of(value)
    for name in columns:
        if not _NAME.fullmatch(name):
            raise WrongColumnError(
                name, "is not snake_case: lower-case letters, digits and _, a letter first"
            )
    return columns


def schema_of(value: Any) -> Mapping[str, str]:
    columns = columns_of(value)
    seen: dict[str, str] = {}
    for name, kind in columns.items():
        if kind not in TYPES and not _NESTED.fullmatch(kind):
            known = ", ".join((*TYPES, *NESTED))
            raise WrongColumnError(name, f"must be one of the types {known}, not {kind!r}")
        if other := seen.get(folded(name)):
            raise WrongColumnError(name, f"is {other} over again: case does not tell columns apart")
        seen[folded(name)] = name
    return columns


def duration(value: Any) -> str:
    seconds(text(value))
    return str(value).strip()


def count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError
    return value


def size(value: Any) -> int:
    match = re.fullmatch(r"([1-9]\d*) (KiB|MiB|GiB)", text(value))
    if not match:
        raise ValueError
    return int(match[1]) * _BYTES[match[2]]


def truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def one_of(choices: Sequence[str]) -> Callable[[Any], str]:
    def kind(value: Any) -> str:
        if value is False and "off" in choices:  # YAML reads off as false
            return "off"
        if value not in choices:
            raise ValueError
        return str(value)

    return kind
