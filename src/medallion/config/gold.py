"""Parsing of `gold` in pipeline.yaml, with `publish`."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import cast

from medallion.config import values
from medallion.config.document import Node
from medallion.config.expressions import did_you_mean, tokenize
from medallion.config.model import (
    JOINS,
    OUTPUT_MODES,
    UTC,
    Aggregate,
    GoldTable,
    Join,
    OutputMode,
    SilverTable,
    Statement,
    change_keys,
)
from medallion.config.sources import SilverTables, silver_table
from medallion.config.tables import Kafka, OutputConfig, ToFiles, ToKafka
from medallion.storage.layout import layer_of, short_name, view_name
from medallion.storage.table_specs import WINDOW
from medallion.storage.text import error_reason

Definition = Aggregate | Statement | Join
_MOST_WINDOWS = 1000  # Spark copies each row into each of its windows
_OUTPUTS: Mapping[str, type[OutputConfig]] = {"files": ToFiles, "kafka": ToKafka}
_COMMON_KEYS = ("output_mode", "publish", "expect_every", "renamed_from")


def parse_gold_table(
    name: str, node: Node, tables: SilverTables, folder: Path, gold: Collection[str] = ()
) -> GoldTable:
    """Parse one gold table: an aggregate, a join, or a query over silver and gold tables.

    Args:
        node: its entry.
        tables: the silver tables by name.
        folder: the folder to which the file of a query is relative.
        gold: the names of all gold tables, which a query may read.
    """
    if "sql" in node.value:
        return _parse_statement(name, node, tables, folder, gold)
    if "join" in node.value:
        return _parse_join(name, node, tables)
    keys = (field.name for field in fields(Aggregate))
    node.allow_only("source", *keys, *_COMMON_KEYS, "join", "sql")
    source = silver_table(node, "source", tables)
    definition = _parse_aggregate(node, tables[source])
    modes = OUTPUT_MODES if definition.session is None else OUTPUT_MODES[:1]
    return _gold_table(name, {f"silver.{source}": tables[source]}, definition, node, modes)


def inputs_first(document: Node, tables: Mapping[str, GoldTable]) -> dict[str, GoldTable]:
    """Return gold tables, each after those that it reads, without those that read an invalid one.

    Args:
        tables: the valid entries of `gold`; one may read an entry that is invalid.

    Raises:
        ConfigError: tables read each other in a circle.
    """
    read = {
        name: [short_name(each) for each in table.tables if layer_of(each) == "gold"]
        for name, table in tables.items()
    }
    try:
        order = [*TopologicalSorter(read).static_order()]
    except CycleError as error:
        first, *others = reversed(error.args[1])
        circle = ", which reads ".join(f"gold.{name}" for name in others)
        document.fail(f"gold.{first}.sql", f"reads {circle}, in a circle: remove one of these")
    valid = dict[str, GoldTable]()
    for name in order:
        if name in tables and valid.keys() >= {*read[name]}:
            valid[name] = tables[name]
    return valid


def _gold_table(
    name: str,
    tables: Mapping[str, SilverTable | None],
    definition: Definition,
    node: Node,
    modes: Sequence[str],
) -> GoldTable:
    """Return a table that reads these tables, of which gold tables are None."""
    changing = [name for name, table in tables.items() if table is None or change_keys(table)]
    if changing and isinstance(definition, Join):
        problem = "whose rows change: aggregate it, or read it with sql"
        node.fail("", f"joins {changing[0]}, {problem}")
    if changing:
        modes = [mode for mode in modes if mode != "append"]
    mode = cast(OutputMode, node.choice("output_mode", modes))
    outputs = parse_outputs(node, mode)
    # A stream joins two tables by time only, but a batch as SQL can.
    is_batch = isinstance(definition, Statement) and mode == "complete" and len(tables) > 1
    follows_changes = bool(changing) or is_batch
    settings = node.settings(GoldTable)
    return GoldTable(name, (*tables,), definition, mode, outputs, follows_changes, **settings)


def _require_event_time(node: Node, key: str, table: SilverTable) -> None:
    if not table.event_time:
        node.fail(key, f"needs an event time, which silver.{table.name} lacks: add it there")


def _parse_aggregate(node: Node, source: SilverTable) -> Aggregate:
    group_by = node.get("group_by", values.string_list, "a list of silver columns", [])
    aggregate = Aggregate(group_by, **node.settings(Aggregate))
    key, table = "session" if aggregate.session else "window", f"silver.{source.name}"
    ends = WINDOW if aggregate.window or aggregate.session else ()
    if ends:
        _require_event_time(node, key, source)
    node.refuse_unknown_columns("group_by", group_by, source.columns, table)
    node.refuse_added_columns(key, ends, source.columns, table)
    if aggregate.session and not group_by:
        node.fail("group_by", "must name a column: each of its values has its own sessions")
    node.refuse_added_columns("measure", aggregate.measure, aggregate.groups, "group_by or window")
    _refuse_invalid_windows(node, aggregate)
    return aggregate


def _refuse_invalid_windows(node: Node, aggregate: Aggregate) -> None:
    window, slide, start = aggregate.window, aggregate.slide, aggregate.start
    for key in ("window", "slide", "start", "time_zone"):
        if aggregate.session and key in node.value:
            node.fail("session", f"cannot be used with {key}: choose one of them")
    if slide and (not window or slide.seconds > window.seconds):
        node.fail("slide", "needs a window that is at least as long")
    if slide and aggregate.calendar_unit:
        node.fail("slide", f"cannot be used with a window of {aggregate.calendar_unit}: remove it")
    if slide and window and window.seconds > _MOST_WINDOWS * slide.seconds:
        node.fail("slide", f"puts each row into over {_MOST_WINDOWS:,} windows: make it longer")
    step = slide or window
    if start and (not step or start.seconds >= step.seconds):
        node.fail("start", "needs a window, or a slide, that is longer")
    if aggregate.time_zone != UTC and not aggregate.calendar_unit:
        node.fail("time_zone", f"needs a window of 1 day, {values.CALENDAR}")


def _parse_statement(
    name: str, node: Node, tables: SilverTables, folder: Path, gold: Collection[str]
) -> GoldTable:
    node.allow_only("sql", *_COMMON_KEYS)
    file = folder / node.get("sql", values.non_blank_string, "a file of SQL")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        node.fail("sql", f"names {file}, which cannot be read ({error_reason(error)})")
    known: dict[str, SilverTable | None] = {f"silver.{each}": tables[each] for each in tables}
    known |= {f"gold.{each}": None for each in gold}
    read: dict[str, SilverTable | None] = {}

    words, sql, end = tokenize(text), "", 0
    for before, layer, dot, word in zip((None, *words), words, words[1:], words[2:], strict=False):
        is_layer = layer.text.lower() in ("silver", "gold") and not (before and before.text == ".")
        if not is_layer or dot.token_type.name != "DOT" or not word.text.isidentifier():
            continue
        table = f"{layer.text.lower()}.{word.text}"
        if table not in known:
            hint = did_you_mean(table, known) or f", but there are only {', '.join(known)}"
            node.fail("sql", f"names {file}, which reads {table}{hint}")
        read[table] = known[table]
        sql += text[end : layer.start] + view_name(table)
        end = word.end + 1
    sql = (sql + text[end:]).strip().rstrip(";")
    if not read:
        problem = "reads no table, such as silver.event, or has an open quote"
        node.fail("sql", f"names {file}, which {problem}")
    return _gold_table(name, read, Statement(file, sql), node, ("complete", "append"))


def _parse_join(name: str, node: Node, tables: SilverTables) -> GoldTable:
    node.allow_only("source", "where", "join", "columns", *_COMMON_KEYS)
    first = silver_table(node, "source", tables)
    _require_event_time(node, "source", tables[first])
    join = node.child("join")
    join.allow_only("with", "on", "within", "kind", "condition")
    second = silver_table(join, "with", tables)
    _require_event_time(join, "with", tables[second])
    if first == second:
        join.fail("with", f"must be a table other than silver.{first}")
    on = join.get("on", values.columns_of, "columns of the first table with those of the second")
    join.refuse_unknown_columns("on", [*on], tables[first].columns, f"silver.{first}")
    for column in on.values():
        join.refuse_unknown_columns("on", [column], tables[second].columns, f"silver.{second}")
    definition = Join(
        kind=join.get("kind", values.one_of(JOINS), " or ".join(JOINS), JOINS[0]),
        on=on,
        within=join.get("within", values.duration, values.DURATION),
        where=node.optional("where", values.non_blank_string, values.CONDITION),
        condition=join.optional("condition", values.non_blank_string, values.CONDITION),
        columns=node.get("columns", values.named_columns, "snake_case columns with their SQL"),
    )
    read = {f"silver.{source}": tables[source] for source in (first, second)}
    return _gold_table(name, read, definition, node, ("append",))


def parse_outputs(node: Node, mode: str) -> Mapping[str, OutputConfig]:
    """Parse `publish` of a table with this output mode: its outputs by `files` and `kafka`."""
    if "publish" not in node.value:
        return {}
    if mode == "complete":
        node.fail("publish", "needs output_mode update or append: complete rewrites the table")
    entry = node.child("publish")
    entry.allow_only(*_OUTPUTS)
    if not entry.value:
        node.fail("publish", "must name files, kafka, or both")
    return {key: entry.child(key).parse(_OUTPUTS[key]) for key in _OUTPUTS if key in entry.value}


def refuse_shared_topics(
    document: Node, read: Mapping[str, Kafka], written: Mapping[str, ToKafka]
) -> None:
    """Raise ConfigError if a topic has two outputs, or is both published to and read.

    Readers could not separate two tables in one topic, and a source that reads results of its own
    rows would never end.

    Args:
        read: topics of sources, by their keys in the document.
        written: topics of outputs, by their keys in the document.
    """
    used = {key: (kafka.servers, kafka.topics) for key, kafka in read.items()}
    for key, output in written.items():
        for other, (servers, topics) in used.items():
            # One common server is enough: then both name the same cluster.
            if output.topic in topics and _lower_names(servers) & _lower_names(output.servers):
                document.fail(f"{key}.topic", f"is {output.topic}, as in {other}: use another")
        used[key] = (output.servers, (output.topic,))


def _lower_names(servers: Iterable[str]) -> set[str]:
    return {server.lower() for server in servers}
