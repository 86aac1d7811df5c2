"""YAML files, read key by key so that an error names the key."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode
from ruamel.yaml.reader import ReaderError

from medallion.config.expressions import did_you_mean
from medallion.config.values import TABLE_NAME, InvalidColumnError, one_of
from medallion.errors import ConfigError
from medallion.storage.text import error_reason

T = TypeVar("T")


def read_yaml(file: Path) -> Any:
    """Return the document of a YAML 1.2 file; `off`, `no` and `on` are strings in it.

    Raises:
        ConfigError: the file is missing, unreadable or not YAML, or it has a key twice.
    """
    line = None
    try:
        text = file.read_text(encoding="utf-8")
        return YAML(typ="safe", pure=True).load(text)
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such file; set --conf or MEDALLION_CONF.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error_reason(error)}).") from None
    except ReaderError as error:
        line, problem = text.count("\n", 0, error.position), error.reason
    except DuplicateKeyError:
        raise ConfigError(f"{file} {_duplicate_key(YAML().compose(text))}") from None
    except MarkedYAMLError as error:
        line, problem = error.problem_mark.line if error.problem_mark else None, error.problem
    except Exception as error:  # ruamel.yaml raises many types, e.g. for unclosed brackets
        problem = str(error)
    location = "" if line is None else f" line {line + 1}"
    raise ConfigError(f"{file}{location}: not readable as YAML ({problem}).")


def _duplicate_key(node: Any) -> str | None:
    """Return the message for the first key of a document that a mapping has twice."""
    lines, inner = dict[str, int](), node.value if isinstance(node.value, list) else ()
    for each in inner:
        key, value = each if isinstance(node, MappingNode) else (None, each)
        if key and isinstance(key.value, str):
            line, first = key.start_mark.line + 1, lines.get(key.value)
            if first:
                return f"lines {first} and {line}: {key.value} is there twice; remove one of them."
            lines[key.value] = line
        if message := _duplicate_key(value):
            return message
    return None


def config_error(file: Path, path: str, problem: str) -> ConfigError:
    """Return an error that names a key and its line.

    Args:
        file: pipeline.yaml.
        path: the path of the key, such as `sources.event.keys`.
        problem: what is wrong, as the rest of a sentence that starts with the path.
    """
    line_column = position(file, path)
    location = f" line {line_column[0]}" if line_column else ""
    return ConfigError(f"{file}{location}: {path or 'the document'} {problem}.", path)


def position(file: Path, path: str, word: str = "") -> tuple[int, int] | None:
    """Return the line and the column of a key; None if unknown.

    Args:
        file: a YAML file.
        path: the path of the key. If it is missing, the innermost mapping around it is used.
        word: a word in the key's value to point at; if it is missing, the value's start.
    """
    try:
        text = read_text(file)
        node = YAML(typ="safe", pure=True).compose(text)
    except (ConfigError, YAMLError):
        return None
    at, left = -1, path
    while isinstance(node, MappingNode):
        entries = {key.value: (key, value) for key, value in node.value}
        names = [name for name in entries if left == name or left.startswith(f"{name}.")]
        if not names:
            break
        key, node = entries[names[0]]
        at, left = key.start_mark.index, left[len(names[0]) + 1 :]
    if at < 0:
        return None
    if word and not left:
        at, end = node.start_mark.index, node.end_mark.index
        match = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text[at:end], re.IGNORECASE)
        at += match.start() if match else 0
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def read_text(file: Path, encoding: str = "utf-8") -> str:
    """Return the text of a file, empty if there is no such file.

    Raises:
        ConfigError: the file is unreadable.
    """
    try:
        return file.read_text(encoding=encoding)
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error_reason(error)}).") from None


def declared_keys(declared: type) -> dict[str, Field[Any]]:
    """Return the keys that a dataclass declares by `values.key`, each with its field."""
    return {each.metadata["name"] or each.name: each for each in fields(declared) if each.metadata}


class Node:
    """A mapping of a YAML file, with its path in the document for error messages."""

    def __init__(self, value: Any, file: Path, path: str = "") -> None:
        self.file, self.path = file, path
        if not isinstance(value, dict):
            self.fail("", "must be a mapping of names to settings")
        for key in value:
            if not isinstance(key, str):
                self.fail("", f"has the key {key!r}, which is not a string: put it in quotes")
        self.value: dict[str, Any] = value

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raise ConfigError for a key of this node; an empty key stands for the node itself."""
        path = ".".join(p for p in (self.path, key) if p)
        raise config_error(self.file, path, problem)

    def without(self, key: str) -> Node:
        """Return this node without a key."""
        return Node({k: v for k, v in self.value.items() if k != key}, self.file, self.path)

    def updated(self, **values: Any) -> Node:
        """Return this node with other values of some keys."""
        return Node({**self.value, **values}, self.file, self.path)

    def allow_only(self, *known: str) -> None:
        """Raise ConfigError for a key that is not in `known`."""
        for key in self.value:
            if key not in known:
                hint = did_you_mean(key, known)
                self.fail(key, f"is not a known key{hint}; known here: {', '.join(known)}")

    def children(self, key: str) -> dict[str, Node]:
        """Return the mappings below a key by their names, which must be table names."""
        node = self.child(key)
        for name in node.value:
            if not TABLE_NAME.fullmatch(name):
                node.fail(name, "must be a letter, then up to 99 lower-case letters, digits, _")
        return {n: Node(v, self.file, f"{node.path}.{n}") for n, v in node.value.items()}

    def child(self, key: str) -> Node:
        """Return the mapping below a key, empty if there is none."""
        value = self.value.get(key)
        return Node({} if value is None else value, self.file, f"{self.path}.{key}".strip("."))

    def get(self, key: str, convert: Callable[[Any], T], expected: str, default: Any = ...) -> T:
        """Return the converted value of a key.

        Args:
            key: a key of this mapping.
            convert: returns the value, or raises ValueError or TypeError if it is invalid.
            expected: what the value must be, for the message.
            default: the value if the key is missing, which is converted unless it is None; without
                a default the key is required.

        Raises:
            ConfigError: the key is missing, or its value is invalid.
        """
        if default is None and key not in self.value:
            return cast(T, None)
        value = self.value.get(key, default)
        if value is ...:
            self.fail(key, f"is missing: it must be {expected}")
        try:
            return convert(value)
        except InvalidColumnError as error:
            self.fail(f"{key}.{error.name}", error.problem)
        except (ValueError, TypeError):
            self.fail(key, f"must be {expected}, not {value!r}")

    def settings(self, declared: type) -> dict[str, Any]:
        """Return the values of the keys that the fields of a dataclass declare."""
        keys = declared_keys(declared).items()
        return {each.name: self.get(name, *each.metadata["key"]) for name, each in keys}

    def parse(self, declared: type[T]) -> T:
        """Return an object of a dataclass whose fields are the keys of this mapping."""
        self.allow_only(*declared_keys(declared))
        return declared(**self.settings(declared))

    def choice(self, key: str, choices: Sequence[str]) -> str:
        """Return the value of a key, one of `choices`; the first is the default."""
        return self.get(key, one_of(choices), f"one of {', '.join(choices)}", choices[0])

    def refuse_unknown_columns(
        self, key: str, names: Sequence[str], columns: Iterable[str], table: str = "silver"
    ) -> None:
        """Raise ConfigError if a name is no column of a table, or is there twice.

        Args:
            key: the key that has the names.
            names: the names.
            table: the table, for the message.
        """
        for name in names:
            if name not in columns:
                hint = did_you_mean(name, columns)
                self.fail(key, f"names {name!r}, which is not a column of {table}{hint}")
            if names.count(name) > 1:
                self.fail(key, f"names {name!r} twice")

    def refuse_added_columns(
        self, key: str, added: Iterable[str], columns: Container[str], table: str = "silver"
    ) -> None:
        """Raise ConfigError if a table already has a column that a key adds.

        Args:
            key: the key.
            added: the columns that it adds.
            table: the table, for the message.
        """
        for name in added:
            if name in columns:
                self.fail(key, f"adds {name!r}, which {table} already has: rename that column")

    def optional(self, key: str, convert: Callable[[Any], T], expected: str) -> T | None:
        """Return the converted value of a key, or None if the key is missing."""
        return self.get(key, convert, expected, None)
