"""Settings: frozen dataclasses from `conf/pipeline.yaml`, `.env` and the environment.

The environment wins over `.env`, and `.env` over the defaults. Every mistake is a `ConfigError` of
one sentence that names the key and what would be right.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from medallion.config import environment, values
from medallion.config.values import Node, seconds
from medallion.errors import ConfigError
from medallion.lakehouse.columns import WINDOW
from medallion.lakehouse.layout import Layout, plain

PROJECT = Path(__file__).resolve().parents[3]
FORMATS = ("json", "csv", "parquet", "text")
EVOLUTION = ("addNewColumns", "rescue", "failOnNewColumns", "none")
CLEANING = ("archive", "delete", "off")
LATE = ("admit", "quarantine")
OutputMode = Literal["complete", "update"]


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

    def places(self, layout: Layout) -> tuple[Path, ...]:
        """The source's folder of landing, and the others that its configuration names."""
        return (layout.landing(self.name), *(plain(layout.root / f) for f in self.folders))


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


def load(environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> Config:
    """Read the configuration as a process started in `cwd` with `environ` would see it.

    Raises:
        ConfigError: a file is missing or unreadable, or a key is unknown or of the wrong kind.
    """
    environ = os.environ if environ is None else environ
    cwd = cwd or Path.cwd()
    conf_dir = _conf_dir(environ, cwd)
    project = conf_dir.parent
    dotenv = environment.read(project / ".env")
    root = _root(environ.get("MEDALLION_HOME"), cwd, dotenv.get("MEDALLION_HOME"), project)
    document = Node(values.read_yaml(conf_dir / "pipeline.yaml"), conf_dir / "pipeline.yaml")
    document.only("sources", "gold")
    layout = Layout(root)
    sources = {n: _source(n, node, layout) for n, node in document.children("sources").items()}
    if not sources:
        raise ConfigError(f"{document.file}: sources must name at least one source.")
    for one, other in combinations(sources.values(), 2):
        if _take_from_each_other(layout, one, other):
            document.fail(
                f"sources.{other.name}",
                f"takes the same files as {one.name}, and one would move them away from the other: "
                "give each folders or a pattern of its own, or both clean_source off",
            )
    gold = {n: _gold(n, node, sources) for n, node in document.children("gold").items()}
    master = environ.get("MEDALLION_MASTER") or dotenv.get("MEDALLION_MASTER")
    return Config(conf_dir, master, layout, sources, gold)


def _conf_dir(environ: Mapping[str, str], cwd: Path) -> Path:
    named = environ.get("MEDALLION_CONF")
    if named:
        return (cwd / named).absolute()
    return (cwd if (cwd / "conf/pipeline.yaml").is_file() else PROJECT) / "conf"


def _root(caller: str | None, cwd: Path, dotenv: str | None, project: Path) -> Path:
    """The caller's path counts from where the caller is, others from the project."""
    named, start = (caller, cwd) if caller else (dotenv or "data/lakehouse", project)
    if "://" in named:
        raise ConfigError("MEDALLION_HOME: only a local path can be used, not an address.")
    try:
        root = plain(start / Path(named).expanduser())
    except RuntimeError:  # ~ of somebody unknown
        raise ConfigError(f"MEDALLION_HOME: there is no home folder for {named}.") from None
    if set(str(root)) & set("[]\\"):
        raise ConfigError(
            f"MEDALLION_HOME: {root}: below a path with [, ] or \\ no Delta table can be read."
        )
    return root


def _output_mode(value: Any) -> OutputMode:
    if value == "complete" or value == "update":
        mode: OutputMode = value
        return mode
    raise ValueError


def _declared(node: Node, columns: str) -> Mapping[str, str] | None:
    if node.value.get("schema", "infer") == "infer":
        return None
    return node.get("schema", values.schema_of, f"infer, or {columns}")


def _hints(node: Node, columns: str) -> Mapping[str, str]:
    if "hints" not in node.value:
        return {}
    return node.get("hints", values.schema_of, columns)


def _source(name: str, node: Node, layout: Layout) -> Source:
    node.only(*(f for f in Source.__dataclass_fields__ if f != "name"))
    duration, columns = "a duration such as '1 hour'", "columns with their types"
    names = "a pattern of names such as '*.json', without / and {"

    def choice(key: str, choices: Sequence[str]) -> str:
        return node.get(key, values.one_of(choices), f"one of {', '.join(choices)}", choices[0])

    def maybe(key: str) -> str | None:
        return node.get(key, values.duration, duration) if key in node.value else None

    source = Source(
        name=name,
        schema=_declared(node, columns),
        hints=_hints(node, columns),
        schema_evolution=choice("schema_evolution", EVOLUTION),
        silver=node.get(
            "silver", values.named_columns, "snake_case columns with their Spark SQL expressions"
        ),
        event_time=node.get("event_time", values.text, "the name of a silver column"),
        keys=node.get("keys", values.texts, "a list of silver columns"),
        watermark=node.get("watermark", values.duration, duration, "1 hour"),
        late=choice("late", LATE),
        format=choice("format", FORMATS),
        multi_line=node.get("multi_line", values.truth, "true or false", False),
        pattern=node.get("pattern", values.pattern, names, "*"),
        folders=node.get("folders", values.texts, "a list of folders", []),
        allow_overwrites=node.get("allow_overwrites", values.truth, "true or false", False),
        quiet_period=maybe("quiet_period"),
        clean_source=choice("clean_source", CLEANING),
        clean_after=maybe("clean_after"),
        max_files_per_trigger=node.get(
            "max_files_per_trigger", values.count, "a whole number above 0", 1000
        ),
        max_bytes_per_trigger=node.get(
            "max_bytes_per_trigger", values.size, "a size such as '1 GiB'", "1 GiB"
        ),
    )
    if source.schema is not None and source.hints:
        node.fail("hints", "is for a schema that is inferred: give the types in schema")
    if source.multi_line and source.format != "json":
        node.fail("multi_line", f"is for the format json, not {source.format}")
    for folder in filter(layout.is_own, source.folders):
        node.fail(
            "folders", f"names {folder}, where the tables or the archive of {layout.root} lie"
        )
    for key, named in (("event_time", (source.event_time,)), ("keys", source.keys)):
        for column in named:
            if column not in source.silver:
                node.fail(key, f"names {column!r}, which is not a column of silver")
            if named.count(column) > 1:
                node.fail(key, f"names {column!r} twice")
    if source.event_time not in source.keys:
        # Spark would never evict the state of such a deduplication.
        node.fail("keys", f"must hold the event time {source.event_time!r}")
    return source


def _take_from_each_other(layout: Layout, one: Source, other: Source) -> bool:
    """Whether files of one source are another's as well, and do not stay where they lie."""

    here, there = ([Path(os.path.realpath(p)) for p in s.places(layout)] for s in (one, other))
    names = (one.pattern, other.pattern)
    if one.clean_source == other.clean_source == "off":
        return False
    return (fnmatchcase(*names) or fnmatchcase(*reversed(names))) and any(
        a.is_relative_to(b) or b.is_relative_to(a) for a in here for b in there
    )


def _gold(name: str, node: Node, sources: Mapping[str, Source]) -> GoldTable:
    node.only(*(f for f in GoldTable.__dataclass_fields__ if f != "name"))
    silver = node.get("source", values.text, "a silver table")
    layer, _, source = silver.partition(".")
    if layer != "silver" or source not in sources:
        tables = ", ".join(f"silver.{s}" for s in sources)
        node.fail("source", f"must be one of {tables}, not {silver}")
    duration = "a duration such as '10 minutes'"
    window = node.get("window", values.duration, duration) if "window" in node.value else None
    slide = node.get("slide", values.duration, duration) if "slide" in node.value else None
    if slide and (not window or seconds(slide) > seconds(window)):
        node.fail("slide", "needs a window that is at least as long")
    group_by = node.get("group_by", values.texts, "a list of silver columns")
    for column in group_by:
        if column not in sources[source].silver:
            node.fail("group_by", f"names {column!r}, which is not a column of silver.{source}")
        if [*group_by, *(WINDOW if window else ())].count(column) > 1:
            node.fail("group_by", f"names {column!r}, which the table has twice then")
    measure = node.get(
        "measure", values.named_columns, "snake_case columns with their Spark SQL aggregates"
    )
    for column in measure:
        if column in (*group_by, *(WINDOW if window else ())):
            node.fail("measure", f"names {column!r}, which the table has as a group")
    mode = node.get("output_mode", _output_mode, "complete or update", "complete")
    return GoldTable(name, source, window, slide, group_by, measure, mode)
