"""Settings: frozen dataclasses from `conf/pipeline.yaml`, `.env` and the environment.

The environment wins over `.env`, and `.env` over the defaults. Every mistake is a `ConfigError` of
one sentence that names the key and what would be right.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import yaml
from dotenv import dotenv_values

from medallion.errors import ConfigError
from medallion.layout import Layout

PROJECT = Path(__file__).resolve().parents[2]
TYPES = ("string", "timestamp", "long", "double", "boolean", "date")
NESTED = ("struct<...>", "array<...>")
FORMATS = ("json", "csv", "parquet", "text")
EVOLUTION = ("addNewColumns", "rescue", "failOnNewColumns", "none")
CLEANING = ("archive", "delete", "off")
LATE = ("admit", "quarantine")
OutputMode = Literal["complete", "update"]
T = TypeVar("T")

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
_BYTES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_NESTED = re.compile(r"(struct|array)<.+>", re.DOTALL)  # Spark reads the rest of it


@dataclass(frozen=True)
class Source:
    """One folder of landing files, and what bronze and silver make of them.

    `schema` is None where it is to be inferred, and `hints` give types that then win.
    """

    name: str
    schema: Mapping[str, str] | None
    hints: Mapping[str, str]
    schema_evolution: str
    silver: Mapping[str, str]
    event_time: str
    keys: tuple[str, ...]
    watermark: str
    late: str
    format: str
    multi_line: bool
    pattern: str
    folders: tuple[str, ...]
    allow_overwrites: bool
    quiet_period: str | None
    clean_source: str
    clean_after: str | None
    max_files_per_trigger: int
    max_bytes_per_trigger: int


@dataclass(frozen=True)
class GoldTable:
    """One aggregate over a silver table; windows are absent where `window` is None."""

    name: str
    source: str
    window: str | None
    slide: str | None
    group_by: tuple[str, ...]
    measure: Mapping[str, str]
    output_mode: OutputMode


@dataclass(frozen=True)
class Config:
    """The whole configuration of one process."""

    conf_dir: Path
    master: str | None
    layout: Layout
    sources: Mapping[str, Source]
    gold: Mapping[str, GoldTable]

    @property
    def expectations(self) -> Path:
        """The Great Expectations project with one suite a table."""
        return self.conf_dir / "great_expectations"


def seconds(duration: str) -> int:
    """Seconds in a duration such as `10 minutes`; raises ValueError for anything else."""
    match = re.fullmatch(r"([1-9]\d*) (second|minute|hour|day)s?", duration.strip())
    if not match:
        raise ValueError(f"{duration!r} is not a duration such as '10 minutes' or '1 hour'")
    return int(match[1]) * _UNITS[match[2]]


def load(environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> Config:
    """Read the configuration as a process started in `cwd` with `environ` would see it.

    Raises:
        ConfigError: a file is missing or unreadable, or a key is unknown or of the wrong kind.
    """
    environ = os.environ if environ is None else environ
    cwd = cwd or Path.cwd()
    conf_dir = _conf_dir(environ, cwd)
    project = conf_dir.parent
    dotenv = {k: v for k, v in dotenv_values(project / ".env").items() if v}
    home = environ.get("MEDALLION_HOME")
    root = cwd / home if home else project / (dotenv.get("MEDALLION_HOME") or "data/lakehouse")
    if "://" in (home or dotenv.get("MEDALLION_HOME") or ""):
        raise ConfigError("MEDALLION_HOME: only a local path can be used, not an address.")
    document = _Node(_read_yaml(conf_dir / "pipeline.yaml"), conf_dir / "pipeline.yaml")
    document.only("sources", "gold")
    sources = {n: _source(n, node) for n, node in document.children("sources").items()}
    if not sources:
        raise ConfigError(f"{document.file}: sources must name at least one source.")
    gold = {n: _gold(n, node, sources) for n, node in document.children("gold").items()}
    master = environ.get("MEDALLION_MASTER") or dotenv.get("MEDALLION_MASTER")
    return Config(conf_dir, master, Layout(root.absolute()), sources, gold)


def _conf_dir(environ: Mapping[str, str], cwd: Path) -> Path:
    named = environ.get("MEDALLION_CONF")
    if named:
        return (cwd / named).absolute()
    return (cwd if (cwd / "conf/pipeline.yaml").is_file() else PROJECT) / "conf"


def _read_yaml(file: Path) -> Any:
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
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


class _Node:
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

    def children(self, key: str) -> dict[str, _Node]:
        path = f"{self.path}.{key}".strip(".")
        node = _Node(self.value.get(key) or {}, self.file, path)
        for name in node.value:
            if not _NAME.fullmatch(name):
                node.fail(
                    name, "is not a table name: lower-case letters, digits and _, a letter first"
                )
        return {n: _Node(v, self.file, f"{path}.{n}") for n, v in node.value.items()}

    def get(self, key: str, kind: Callable[[Any], T], what: str, default: Any = ...) -> T:
        value = self.value.get(key, default)
        if value is ...:
            self.fail(key, f"is missing: it must be {what}")
        try:
            return kind(value)
        except (ValueError, TypeError):
            self.fail(key, f"must be {what}, not {value!r}")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(_text(v) for v in value)


def _columns(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict) or not value:
        raise ValueError
    return {_text(k): _text(v) for k, v in value.items()}


def _silver_columns(value: Any) -> Mapping[str, str]:
    columns = _columns(value)
    if not all(_NAME.fullmatch(name) for name in columns):
        raise ValueError
    return columns


def _schema(value: Any) -> Mapping[str, str]:
    columns = _columns(value)
    if not all(kind in TYPES or _NESTED.fullmatch(kind) for kind in columns.values()):
        raise ValueError
    if len({name.lower() for name in columns}) < len(columns):
        raise ValueError
    return columns


def _declared(node: _Node, columns: str) -> Mapping[str, str] | None:
    if node.value.get("schema", "infer") == "infer":
        return None
    return node.get("schema", _schema, f"infer, or columns with {columns}, no name twice")


def _hints(node: _Node, columns: str) -> Mapping[str, str]:
    return node.get("hints", _schema, f"columns with {columns}") if "hints" in node.value else {}


def _duration(value: Any) -> str:
    seconds(_text(value))
    return str(value).strip()


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError
    return value


def _size(value: Any) -> int:
    match = re.fullmatch(r"([1-9]\d*) (KiB|MiB|GiB)", _text(value))
    if not match:
        raise ValueError
    return int(match[1]) * _BYTES[match[2]]


def _output_mode(value: Any) -> OutputMode:
    if value == "complete" or value == "update":
        mode: OutputMode = value
        return mode
    raise ValueError


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _one_of(choices: Sequence[str]) -> Callable[[Any], str]:
    def kind(value: Any) -> str:
        if value is False and "off" in choices:  # YAML reads off as false
            return "off"
        if value not in choices:
            raise ValueError
        return str(value)

    return kind


def _source(name: str, node: _Node) -> Source:
    node.only(*(f for f in Source.__dataclass_fields__ if f != "name"))
    duration, columns = "a duration such as '1 hour'", f"types of {', '.join((*TYPES, *NESTED))}"

    def choice(key: str, choices: Sequence[str]) -> str:
        return node.get(key, _one_of(choices), f"one of {', '.join(choices)}", choices[0])

    def maybe(key: str) -> str | None:
        return node.get(key, _duration, duration) if key in node.value else None

    source = Source(
        name=name,
        schema=_declared(node, columns),
        hints=node.get("hints", _schema, f"columns with {columns}")
        if "hints" in node.value
        else {},
        schema_evolution=choice("schema_evolution", EVOLUTION),
        silver=node.get(
            "silver", _silver_columns, "snake_case columns with their Spark SQL expressions"
        ),
        event_time=node.get("event_time", _text, "the name of a silver column"),
        keys=node.get("keys", _texts, "a list of silver columns"),
        watermark=node.get("watermark", _duration, duration, "1 hour"),
        late=choice("late", LATE),
        format=choice("format", FORMATS),
        multi_line=node.get("multi_line", _bool, "true or false", False),
        pattern=node.get("pattern", _text, "a pattern of names such as '*.json'", "*"),
        folders=node.get("folders", _texts, "a list of folders", []),
        allow_overwrites=node.get("allow_overwrites", _bool, "true or false", False),
        quiet_period=maybe("quiet_period"),
        clean_source=choice("clean_source", CLEANING),
        clean_after=maybe("clean_after"),
        max_files_per_trigger=node.get(
            "max_files_per_trigger", _count, "a whole number above 0", 1000
        ),
        max_bytes_per_trigger=node.get(
            "max_bytes_per_trigger", _size, "a size such as '1 GiB'", "1 GiB"
        ),
    )
    if source.schema is not None and source.hints:
        node.fail("hints", "is for a schema that is inferred: give the types in schema")
    if source.multi_line and source.format != "json":
        node.fail("multi_line", f"is for the format json, not {source.format}")
    for key in (source.event_time, *source.keys):
        if key not in source.silver:
            node.fail("keys", f"names {key!r}, which is not a column of silver")
    if source.event_time not in source.keys:
        # Spark would never evict the state of such a deduplication.
        node.fail("keys", f"must hold the event time {source.event_time!r}")
    return source


def _gold(name: str, node: _Node, sources: Mapping[str, Source]) -> GoldTable:
    node.only(*(f for f in GoldTable.__dataclass_fields__ if f != "name"))
    layer, _, source = node.get("source", _text, "a silver table").partition(".")
    if layer != "silver" or source not in sources:
        tables = ", ".join(f"silver.{s}" for s in sources)
        node.fail("source", f"must be one of {tables}, not {layer}.{source}")
    duration = "a duration such as '10 minutes'"
    window = node.get("window", _duration, duration) if "window" in node.value else None
    slide = node.get("slide", _duration, duration) if "slide" in node.value else None
    if slide and (not window or seconds(slide) > seconds(window)):
        node.fail("slide", "needs a window that is at least as long")
    group_by = node.get("group_by", _texts, "a list of silver columns")
    for column in group_by:
        if column not in sources[source].silver:
            node.fail("group_by", f"names {column!r}, which is not a column of silver.{source}")
    measure = node.get(
        "measure", _silver_columns, "snake_case columns with their Spark SQL aggregates"
    )
    mode = node.get("output_mode", _output_mode, "complete or update", "complete")
    return GoldTable(name, source, window, slide, group_by, measure, mode)
