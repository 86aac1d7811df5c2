"""Write docs/configuration-reference.md, and the keys of docs/README.md, from the configuration.

    .venv/bin/python tools/reference.py

The parsers know the keys, their values and defaults: they read a small example of each section
here, while this module records what they ask for. The meaning of a key is the documentation of the
attribute of the same name in `medallion.config.model`. A test compares the page.
"""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from unittest.mock import patch

from medallion.config import gold, loader, model, operations, sources, tables
from medallion.config.document import Node, declared_keys
from medallion.config.values import DECIMAL, DURATION, NESTED, TYPES
from medallion.storage.layout import Layout

PAGE = Path(__file__).resolve().parents[1] / "docs/configuration-reference.md"
INDEX = PAGE.with_name("README.md")
KEYS = "## Keys\n\n"
"""The heading of the alphabetical list in the index, which is the last of that page."""
ALIASES = {"enrich", "sep"}

SOURCE: dict[str, Any] = {
    "format": "csv",
    "silver": {"at": "time", "device": "device"},
    "event_time": "at",
    "keys": ["at", "device"],
    "lookup": {"file": "devices.csv", "on": "device", "columns": {"maker": "string"}},
    "options": {},
}
CDC = {"silver": {"id": "id"}, "keys": ["id"], "cdc": {"sequence_by": "ts"}}
STREAM = {key: value for key, value in SOURCE.items() if key not in ("options", "lookup")}
KAFKA = STREAM | {"format": "kafka", "servers": ["localhost:9092"], "topics": ["t"]}
CHILD = {"source": "silver.a", "explode": "items", "columns": {"part": "item"}}
AGGREGATE = {"source": "silver.a", "group_by": ["device"], "measure": {"n": "count(*)"}}
JOIN = {
    "source": "silver.a",
    "join": {"with": "silver.b", "on": {"device": "device"}, "within": "1 hour"},
    "columns": {"device": "a.device"},
    "publish": {"files": {"format": "json"}, "kafka": {"servers": ["h:1"], "topic": "t"}},
}

MEANINGS = {
    "source": "The silver table to read, as `silver.<source>`.",
    "sql": "A file beside pipeline.yaml or below, with one query over silver and gold tables.",
    "join": "Join `source` with a second silver table.",
    "with": "The second silver table, as `silver.<source>`.",
    "publish": "Send each change of the table to `files`, `kafka`, or both.",
    "files": "Write changes as files below `publish/<table>/`.",
    "kafka": "Send changes to a Kafka topic.",
}
"""Meanings of keys that are no attributes of the model."""

INTRODUCTION = f"""\
<!-- Written by tools/reference.py from src/medallion/config/: change it there. -->
# Configuration reference

Every key of `pipeline.yaml`, and the environment variables. An unknown key is an error that
names it. Examples are in [configuration.md](configuration.md).

| value | written as |
| --- | --- |
| duration | {DURATION.removeprefix("a duration ")} |
| size | `16 KiB`, `128 MiB` or `1 GiB` |
| type | {", ".join(f"`{name}`" for name in (*TYPES, DECIMAL, *NESTED))} |
| name of a table, source or column | lower-case letters, digits and `_`; a letter first |

Keys that change how files are read, such as `options`, apply to files that are not ingested yet;
the rows of bronze stay as they are: [what to run after a change](operations.md#settings-change).
"""


@dataclass
class Record:
    """What the parsers asked for, by key with its path."""

    known: dict[str, None] = field(default_factory=dict)
    values: dict[str, tuple[str, Any]] = field(default_factory=dict)


@contextmanager
def recording() -> Iterator[Record]:
    """Record which keys are known, and the expected value and the default of each."""
    record = Record()
    get, allow_only = Node.get, Node.allow_only

    def recorded_get(node: Node, key: str, convert: Any, expected: str, default: Any = ...) -> Any:
        record.values.setdefault(f"{node.path}.{key}", (expected, default))
        return get(node, key, convert, expected, default)

    def recorded_allow_only(node: Node, *known: str) -> None:
        record.known |= dict.fromkeys(f"{node.path}.{key}" for key in known)
        allow_only(node, *known)

    with (
        patch.object(Node, "get", recorded_get),
        patch.object(Node, "allow_only", recorded_allow_only),
    ):
        yield record


def attribute_docs(cls: type) -> dict[str, str]:
    """Return the documentation of a dataclass's attributes, from its docstring."""
    _, _, attributes = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")
    entries = re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def section(title: str, prefix: str, parse: Callable[[], object], *models: type) -> str:
    """Return a section of the page: a table of keys.

    Args:
        title: the title.
        prefix: the path of the mapping whose keys the table has, in the parsed example.
        parse: parses the example.
        models: the dataclasses that document the keys.
    """
    meanings = MEANINGS | {name: doc for cls in models for name, doc in attribute_docs(cls).items()}
    with recording() as record:
        parse()
    rows = []
    for path in record.known:
        parent, _, key = path.rpartition(".")
        if parent == prefix and key not in ALIASES:
            expected, default = record.values.get(path, ("see below", None))
            meaning = meanings[snake_case(key)]
            rows.append((f"`{key}`", values_text(expected), default_text(default), meaning))
    return table(title, rows)


def snake_case(key: str) -> str:
    """Return the attribute of a key that Spark spells, such as `nullValue`."""
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", key).lower()


def table(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    """Return a titled table of keys in Markdown."""
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    head = ("| key | value | default | meaning |", "| --- | --- | --- | --- |")
    return "\n".join([f"## {title}", "", *head, *lines, ""])


def values_text(expected: str) -> str:
    """Return the expected value in Markdown: words to choose from as code."""
    if not expected.startswith("one of "):
        text = expected.replace(DURATION, "duration").replace("true or false", "`true`, `false`")
        return re.sub(r"^a size such as .*", "size", text)
    return ", ".join(f"`{word}`" for word in expected.removeprefix("one of ").split(", "))


def default_text(default: Any) -> str:
    """Return a default as YAML spells it."""
    if default is ...:
        return "required"
    if default is None or default in ([], {}):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def top_level_row(key: str, default: str, value: str = "a whole number above 0") -> tuple[str, ...]:
    """Return the row of a key at the top level of the file."""
    return f"`{key}`", value, default, attribute_docs(model.Config)[key]


def login_rows() -> list[tuple[str, ...]]:
    """Return the rows of the environment variables."""
    meanings = attribute_docs(operations.Login)
    choices = {name: ", ".join(f"`{w}`" for w in words) for name, words in loader.CHOICES.items()}
    return [
        (
            "`MEDALLION_HOME`",
            "a local path, or `s3://bucket/prefix`",
            "`data/lakehouse`",
            "The root of all data.",
        ),
        (
            "`MEDALLION_CONF`",
            "a folder or file",
            "the current folder",
            "The project: its folder, its `conf/` or its pipeline.yaml; from the environment only.",
        ),
        (
            "`MEDALLION_CACHE`",
            "a folder",
            "`~/.cache/medallion`",
            "What `medallion setup` fetches; from the environment only.",
        ),
        (
            "`MEDALLION_MASTER`",
            "`local[*]`, `spark://host:port`, `yarn`, ...",
            "`local[*]`",
            "The Spark master.",
        ),
        (
            "`MEDALLION_METRICS_FILE`",
            "an absolute path",
            "",
            attribute_docs(model.Config)["metrics_file"],
        ),
        *(
            (
                f"`MEDALLION_KAFKA_{each.name.upper()}`",
                choices.get(each.name, "a string"),
                default_text(each.default or None),
                meanings[each.name],
            )
            for each in fields(operations.Login)
        ),
    ]


def page() -> str:
    """Return the page."""
    layout, file = Layout(Path("/root")), Path("pipeline.yaml")

    def source(document: Mapping[str, Any], name: str = "a") -> model.SourceConfig:
        return sources.parse_source(name, Node(dict(document), file, "source"), layout)

    def table_of_gold(document: Mapping[str, Any]) -> Callable[[], object]:
        known = {name: source(SOURCE, name) for name in ("a", "b")}
        return lambda: gold.parse_gold_table("t", Node(dict(document), file, "gold"), known, conf)

    def child_table() -> object:
        return sources.parse_child_table("t", Node(CHILD, file, "silver"), {"a": source(SOURCE)})

    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder)
        (conf / "t.sql").write_text("SELECT device FROM silver.a")
        join, by_sql = table_of_gold(JOIN), table_of_gold({"sql": "t.sql"})
        csv = (lambda: source(SOURCE), model.SourceConfig)
        sections = [
            section("Sources: `sources.<name>`", "source", *csv),
            section("`options` of a source", "source.options", csv[0], model.ReaderOptions),
            section("`lookup` of a source", "source.lookup", csv[0], tables.LookupConfig),
            section("`cdc` of a source", "source.cdc", lambda: source(CDC), tables.CdcConfig),
            *stream_sections(source),
            section("Child tables: `silver.<name>`", "silver", child_table, tables.ChildTable),
            section(
                "Gold tables: `gold.<name>`",
                "gold",
                table_of_gold(AGGREGATE),
                model.Aggregate,
                model.GoldTable,
            ),
            section("Gold tables with `sql`", "gold", by_sql, model.GoldTable),
            section("Gold tables with `join`", "gold", join, model.Join, model.GoldTable),
            section("`join` of a gold table", "gold.join", join, model.Join),
            section("`publish.files` of a gold table", "gold.publish.files", join, tables.ToFiles),
            section("`publish.kafka` of a gold table", "gold.publish.kafka", join, tables.ToKafka),
            section(
                "Maintenance: `maintain`",
                "maintain",
                lambda: loader.parse_maintenance(Node({}, file, "maintain")),
                operations.Maintenance,
            ),
            section(
                "Alerts: `on_failure`",
                "on_failure",
                lambda: loader.parse_on_failure(Node({}, file, "on_failure"), {}),
                operations.OnFailure,
            ),
            table(
                "Top level",
                [
                    top_level_row("max_concurrent_queries", "4 for each core"),
                    top_level_row("on_change", "`wait`", "`wait`, `apply`"),
                    top_level_row("views", "", "names with their SQL"),
                ],
            ),
            table("Environment and `.env`", login_rows()),
        ]
    return "\n".join([INTRODUCTION, *sections])


def stream_sections(source: Callable[[Mapping[str, Any]], object]) -> list[str]:
    """Return the sections of formats that read no files; they have the keys of files as well."""
    result = []
    for name, settings in model.STREAMS.items():
        with recording() as record:
            source(KAFKA)
        meanings = attribute_docs(settings)
        rows = [
            (f"`{key}`", values_text(expected), default_text(default), meanings[key])
            for key in declared_keys(settings)
            for expected, default in [record.values[f"source.{key}"]]
        ]
        result.append(table(f"Sources with `format: {name}`", rows))
    return result


def index() -> str:
    """Return the index of the documentation with the alphabetical list of keys."""
    sections = re.findall(r"^## (.+)\n\n(?:\|.*\n){2}((?:\|.*\n)+)", page(), re.MULTILINE)
    rows = []
    for title, lines in sections:
        anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        place = f"[{title.replace('`', '')}](configuration-reference.md#{anchor})"
        for line in lines.splitlines():
            key, _, default, _ = re.split(r"(?<!\\) \| ", line.strip("| "), maxsplit=3)
            rows.append(f"| {key} | {place} | {default.strip()} |")
    rows.sort(key=lambda row: row.lower().replace("`", ""))
    before = INDEX.read_text(encoding="utf-8").partition(KEYS)[0]
    return "\n".join([f"{before}{KEYS}| key | where | default |", "| --- | --- | --- |", *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    INDEX.write_text(index(), encoding="utf-8")
