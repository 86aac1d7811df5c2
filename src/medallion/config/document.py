"""A YAML file, read key by key: a mistake is told with the key that it stands at."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from medallion.config.values import TABLE_NAME, WrongColumnError, one_of
from medallion.errors import ConfigError
from medallion.lakehouse.text import reason_of

T = TypeVar("T")
_BOOLEAN = "tag:yaml.org,2002:bool"
_INTEGER = "tag:yaml.org,2002:int"  # 010 was 8, and 1:30 was 90
_TIME = "tag:yaml.org,2002:timestamp"  # which no key takes, and 2018-02-30 was a crash


class _Loader(yaml.SafeLoader):
    """YAML in which a key that stands twice is a mistake, instead of the second one winning.

    As in YAML 1.2, `true` and `false` are the only booleans: `off`, `on`, `no`, `y` are text.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # As it is written: by what `<<` brings, a key may stand twice.
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value} stands twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except Exception:  # `!!int x`, `!!bool x`, 5000 digits: each raises its own
            kind = node.tag.rpartition(":")[2]
            raise yaml.MarkedYAMLError(
                problem=f"a value that is no {kind}", problem_mark=node.start_mark
            ) from None

    def get_single_node(self) -> yaml.Node | None:
        try:
            return super().get_single_node()
        # No such character, or brackets without end.
        except (ValueError, OverflowError, RecursionError) as error:
            raise yaml.MarkedYAMLError(problem=str(error), problem_mark=self.get_mark()) from None


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag not in (_BOOLEAN, _INTEGER, _TIME)]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    _BOOLEAN, re.compile(r"(true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")
)
_Loader.add_implicit_resolver(_INTEGER, re.compile(r"[-+]?(0|[1-9][0-9]*)\Z"), list("-+0123456789"))


def read_yaml(file: Path) -> Any:
    """The document of a file.

    Raises:
        ConfigError: it is not there, cannot be read, or is no YAML.
    """
    try:
        text = file.read_text(encoding="utf-8")
        return yaml.load(text, _Loader)
    except FileNotFoundError:
        raise ConfigError(
            f"{file}: no such file; set MEDALLION_CONF to the folder that holds pipeline.yaml."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read ({reason_of(error)}).") from None
    except yaml.reader.ReaderError as error:
        line, problem = text.count("\n", 0, error.position), error.reason
    except yaml.MarkedYAMLError as error:
        line, problem = error.problem_mark.line if error.problem_mark else 0, error.problem or ""
    raise ConfigError(f"{file} line {line + 1}: not readable as YAML ({problem}).")


class Node:
    """A mapping of the YAML file that knows where it stands, so that errors can say it."""

    def __init__(self, value: Any, file: Path, path: str = "") -> None:
        self.file, self.path = file, path
        if not isinstance(value, dict):
            self.fail("", "must be a mapping of names to settings")
        for key in value:
            if not isinstance(key, str):
                self.fail("", f"has the key {key!r}, which is no text: put it in quotes")
        self.value: dict[str, Any] = value

    def fail(self, key: str, what: str) -> NoReturn:
        """Raise ConfigError for a key of this node."""
        where = ".".join(p for p in (self.path, key) if p) or "the document"
        raise ConfigError(f"{self.file}: {where} {what}.")

    def only(self, *known: str) -> None:
        """Raise ConfigError for a key that is not among these."""
        for key in self.value:
            if key not in known:
                self.fail(key, f"is not a known key; known here: {', '.join(known)}")

    def children(self, key: str) -> dict[str, Node]:
        """The mappings below a key, by the names of tables that they have."""
        node = self.child(key)
        for name in node.value:
            if not TABLE_NAME.fullmatch(name):
                node.fail(
                    name, "is not a table name: lower-case letters, digits and _, a letter first"
                )
        return {n: Node(v, self.file, f"{node.path}.{n}") for n, v in node.value.items()}

    def child(self, key: str) -> Node:
        """The mapping below a key, empty where there is none."""
        value = self.value.get(key)
        return Node({} if value is None else value, self.file, f"{self.path}.{key}".strip("."))

    def get(self, key: str, kind: Callable[[Any], T], what: str, default: Any = ...) -> T:
        """The value of a key as `kind` reads it, or the default; without one it must be there."""
        value = self.value.get(key, default)
        if value is ...:
            self.fail(key, f"is missing: it must be {what}")
        try:
            return kind(value)
        except WrongColumnError as error:
            self.fail(f"{key}.{error.name}", error.what)
        except (ValueError, TypeError):
            self.fail(key, f"must be {what}, not {value!r}")

    def choice(self, key: str, choices: Sequence[str]) -> str:
        """One of some words, the first where the key is not there."""
        return self.get(key, one_of(choices), f"one of {', '.join(choices)}", choices[0])

    def perhaps(self, key: str, kind: Callable[[Any], T], what: str) -> T | None:
        """The value of a key as `kind` reads it; None where the key is not there."""
        return self.get(key, kind, what) if key in self.value else None
