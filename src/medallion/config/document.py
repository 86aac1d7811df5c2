"""A YAML file, read key by key: an error names the key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError

from medallion.config.values import TABLE_NAME, WrongColumnError, one_of
from medallion.errors import ConfigError
from medallion.storage.text import error_reason

T = TypeVar("T")


def read_yaml(file: Path) -> Any:
    """Return the document of a file in YAML 1.2: `off`, `no` and `on` are strings.

    Raises:
        ConfigError: it is not there, cannot be read, is no YAML, or has a key twice.
    """
    line = None
    try:
        text = file.read_text(encoding="utf-8")
        return YAML(typ="safe", pure=True).load(text)
    except FileNotFoundError:
        raise ConfigError(
            f"{file}: no such file; set MEDALLION_CONF to the folder that holds pipeline.yaml."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error_reason(error)}).") from None
    except ReaderError as error:
        line, problem = text.count("\n", 0, error.position), error.reason
    except MarkedYAMLError as error:
        line, problem = error.problem_mark.line if error.problem_mark else None, error.problem
    except Exception as error:  # a value that is not of its type, or brackets without end
        problem = str(error)
    where = "" if line is None else f" line {line + 1}"
    raise ConfigError(f"{file}{where}: not readable as YAML ({problem}).")


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
