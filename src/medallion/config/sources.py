"""Parsing of `sources` and `silver` in pipeline.yaml."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import combinations, permutations
from typing import Any

from medallion.config import expressions, model, values
from medallion.config.document import Node, declared_keys
from medallion.config.model import ReaderOptions, SilverTable, SourceConfig, change_keys
from medallion.config.tables import DEBEZIUM_CDC, CdcConfig, ChildTable, LookupConfig
from medallion.config.values import fold_case, may_overlap
from medallion.storage import objects
from medallion.storage.layout import Layout, short_name
from medallion.storage.table_specs import SOURCE_MODIFIED_AT, SPAN

SilverTables = Mapping[str, SilverTable]

_columns = values.distinct(values.matching(r"[A-Za-z][A-Za-z0-9_]{0,99}"))
_paths = values.distinct(values.field_path)

_LONGEST_LINE = 2**29  # Java arrays hold 2 GiB, and a character has up to four bytes
_FILE_KEYS = (
    "multi_line", "pattern", "folders", "allow_overwrites", "quiet_period", "clean_source",
    "clean_after", "max_line_bytes", "max_files_per_trigger", "max_bytes_per_trigger", "options",
    "record_path", "record_fields", "ignore", "partition_columns",
)  # fmt: skip
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")  # such as s3://bucket
_PARTITIONS = "a list of columns such as [date, hour]"
_DEBEZIUM = "debezium"  # files of JSON lines, or a topic if there are `servers`
_COLUMN = "the name of a silver column"
_NO_KEYS = ("name", "stream", "is_debezium")  # fields of a source that are not its keys


def parse_source(name: str, node: Node, layout: Layout) -> SourceConfig:
    """Parse the settings of one source, without comparing it to others."""
    is_debezium = node.value.get("format") == _DEBEZIUM
    node = _with_defaults(node)
    no_time = None if "cdc" in node.value else ...  # change records need none
    file_format = node.choice("format", (*model.FORMATS, _DEBEZIUM))
    node.allow_only(*_known_keys(file_format))
    stream, lookup = model.STREAMS.get(file_format), _lookup_key(node)
    source = SourceConfig(
        name=name,
        hints=node.optional("hints", values.schema_of, values.COLUMNS) or {},
        lookup=node.child(lookup).parse(LookupConfig) if lookup in node.value else None,
        event_time=node.get("event_time", values.non_blank_string, _COLUMN, no_time) or "",
        format=file_format,
        stream=stream(**node.settings(stream)) if stream else None,
        options=_parse_options(node, file_format),
        record_fields=node.optional("record_fields", _paths, f"a list, each {values.FIELD_PATH}")
        or (),
        partition_columns=node.optional("partition_columns", _columns, _PARTITIONS) or (),
        cdc=node.child("cdc").parse(CdcConfig) if "cdc" in node.value else None,
        is_debezium=is_debezium,
        **node.settings(SourceConfig),
    )
    _refuse_contradictions(source, node)
    for folder in source.folders:
        if _ADDRESS.match(folder) and not objects.names_bucket(folder):
            node.fail("folders", f"names {folder!r}: must be a path, or s3://bucket/prefix")
    source = replace(source, folders=tuple(map(layout.normalize, source.folders)))
    for folder in filter(layout.is_internal, source.folders):
        node.fail("folders", f"names {folder}, in which the lakehouse keeps its own files")
    for one, other in permutations(source.folders_in(layout), 2):
        if other.resolved().below(one.resolved()) is not None:
            node.fail("folders", f"{other} is in {one} (or a link), whose subfolders are read")
    return source


def _with_defaults(node: Node) -> Node:
    """Return a source with the defaults of `cdc`, and with the format that holds envelopes."""
    cdc = node.child("cdc").value
    if node.value.get("format") == _DEBEZIUM:
        file_format = "kafka" if "servers" in node.value else "json"
        return node.updated(format=file_format, cdc={**DEBEZIUM_CDC, **cdc})
    if cdc.get("snapshot"):  # each file is one unless `sequence_by` says which rows are one
        return node.updated(cdc={"sequence_by": SOURCE_MODIFIED_AT, **cdc})
    return node


def _parse_options(source: Node, file_format: str) -> ReaderOptions:
    if "options" not in source.value or file_format in model.STREAMS:
        return ReaderOptions()
    if file_format in model.TYPED_FORMATS:
        source.fail("options", f"is for the formats csv, json and text, not {file_format}")
    node = source.child("options")
    known = (*declared_keys(ReaderOptions), "sep") if file_format == "csv" else ("encoding",)
    node.allow_only(*known)
    if "sep" in node.value:
        if "delimiter" in node.value:
            node.fail("sep", "is another name of delimiter: give one of them")
        node = node.updated(delimiter=node.value["sep"])
    options = ReaderOptions(**node.settings(ReaderOptions))
    signs = {"delimiter": options.delimiter, "quote": options.quote, "comment": options.comment}
    for name, other in combinations(signs, 2):
        if signs[name] and signs[name] == signs[other]:
            node.fail(name, f"is the same character as {other}")
    return options


def _known_keys(file_format: str) -> list[str]:
    """Return the known keys of a source with this format."""
    known = [f.name for f in fields(SourceConfig) if f.name not in _NO_KEYS] + ["enrich"]
    if file_format in model.STREAMS:
        known = [key for key in known if key not in _FILE_KEYS]
        known += declared_keys(model.STREAMS[file_format])
    return known


def _lookup_key(source: Node) -> str:
    """Return the key of the lookup join in the file: `lookup`, or its older name `enrich`."""
    if "lookup" in source.value and "enrich" in source.value:
        source.fail("enrich", "is another name of lookup: give one of them")
    return "enrich" if "enrich" in source.value else "lookup"


def _refuse_contradictions(source: SourceConfig, node: Node) -> None:
    """Raise ConfigError if valid settings contradict each other."""
    if source.schema is not None and source.hints:
        node.fail("hints", "is only for an inferred schema: give the types in schema")
    if source.options.header is False and source.schema is None:
        node.fail("options.header", "is false: give the columns of the files in schema, in order")
    for outer, hint in permutations(source.hints, 2):
        if "<" in source.hints[outer] and hint.startswith(f"{outer}."):
            node.fail(f"hints.{hint}", f"is within {outer}, whose type has its fields")
    for key in ("multi_line", "record_path"):
        if getattr(source, key) and source.format != "json":
            node.fail(key, f"is for the format json, not {source.format}")
    if source.record_path and source.multi_line:
        node.fail("multi_line", "has no effect with record_path: remove it")
    if source.record_fields and not source.record_path:
        node.fail("record_fields", "needs record_path, the array whose elements are the rows")
    if source.clean_after and source.clean_source == "off":
        node.fail("clean_after", "has no effect with clean_source: off: remove one of them")
    if source.max_line_bytes > _LONGEST_LINE:
        node.fail("max_line_bytes", "must be 512 MiB at most, the longest string of Spark")
    if "max_line_bytes" in node.value and source.format in model.TYPED_FORMATS:
        node.fail("max_line_bytes", f"is for lines of text, which {source.format} does not have")
    _refuse_missing_columns(source, node)
    if source.cdc:
        for key in ("watermark", "max_future", "max_past", "late"):
            if key in node.value:
                node.fail(key, "has no effect with cdc: remove it")
        cdc = node.child("cdc")
        for key in ("apply_as_deletes", "apply_as_truncates") if source.cdc.snapshot else ():
            if key in cdc.value:
                cdc.fail(key, "has no effect with snapshot: a row that is missing was deleted")
        cdc.refuse_unknown_columns("track", source.cdc.track or (), source.columns)
        if source.cdc.track and source.cdc.stored_as_scd_type != 2:
            cdc.fail("track", "is for a history: set stored_as_scd_type: 2")
        added = SPAN if source.cdc.stored_as_scd_type == 2 else ()
        node.refuse_added_columns("cdc.stored_as_scd_type", added, source.columns)
    event_time = (source.event_time,) if source.event_time else ()
    node.refuse_unknown_columns("event_time", event_time, source.silver)
    node.refuse_unknown_columns("keys", source.keys, source.silver)
    if not source.keys:
        node.fail("keys", "must name a column; if no row is a duplicate, one that is always null")
    for column in source.keys:
        # The event time is exempt: rows without one use the time of their arrival.
        if column != source.event_time and (
            arrival := expressions.arrival_column(source.silver[column])
        ):
            node.fail("keys", f"names {column!r}, computed from {arrival}: duplicates would differ")
    if lookup := source.lookup:
        key = _lookup_key(node)
        node.refuse_unknown_columns(f"{key}.on", [lookup.on], source.silver)
        node.refuse_added_columns(f"{key}.columns", lookup.columns, source.silver)


def refuse_shared_tables(document: Node, sources: Mapping[str, SourceConfig]) -> None:
    """Raise ConfigError if a source has the name of another's log of changes, or its older name."""
    older = [source.renamed_from for source in sources.values()]
    for source in sources.values():
        if (name := source.renamed_from) and (name in sources or older.count(name) > 1):
            problem = f"is {name}, which is also the name of another source"
            document.fail(f"sources.{source.name}.renamed_from", problem)
        if source.cdc and (name := f"{source.name}{model.CHANGES}") in sources:
            problem = f"writes silver.{name}, which has the changes of {source.name}: rename it"
            document.fail(f"sources.{name}", problem)


def _refuse_missing_columns(source: SourceConfig, node: Node) -> None:
    """Raise ConfigError for columns that text does not have."""
    is_text = source.format == "text" or getattr(source.stream, "value", None) == "text"
    for key, columns in (("schema", source.schema), ("hints", source.hints)):
        for column in columns or ():
            if is_text and column not in ("value", *source.partition_columns):
                node.fail(f"{key}.{column}", "is not a column of this format: it has value")
    if is_text and "schema_evolution" in node.value:
        node.fail("schema_evolution", "is for new fields, which rows of text do not have")


def refuse_shared_files(document: Node, layout: Layout, sources: Iterable[SourceConfig]) -> None:
    """Raise ConfigError if two sources may read the same file, which one would then move away.

    This is possible if both their folders and their patterns overlap.

    Args:
        layout: the paths below the root.
        sources: all sources.
    """
    for one, other in combinations((s for s in sources if not s.stream), 2):
        folders, others = ([p.resolved() for p in s.folders_in(layout)] for s in (one, other))
        if may_overlap(one.pattern, other.pattern) and any(
            a.below(b) is not None or b.below(a) is not None for a in folders for b in others
        ):
            advice = "give each its own folders, or patterns with different starts or ends"
            problem = f"may read the same files as {one.name}, and move them away: {advice}"
            document.fail(f"sources.{other.name}", problem)


def parse_child_table(name: str, node: Node, tables: SilverTables) -> ChildTable:
    """Parse one entry of `silver`.

    Args:
        node: its entry.
        tables: the sources, and the entries that come before this one by `parents_first`.
    """
    node.allow_only("source", "explode", "outer", "columns", "where", "keys", "renamed_from")
    logs = [each.rows_table for each in tables.values() if isinstance(each, SourceConfig)]
    if name in tables or f"silver.{name}" in logs:
        node.fail("", "has the name of a source's silver table, or of its changes: rename it")
    parent, settings = tables[silver_table(node, "source", tables)], node.settings(ChildTable)
    explode, keys = settings["explode"], settings["keys"]
    if settings["outer"] and not explode:
        node.fail("outer", "needs explode, whose empty arrays it is for")
    taken, added = {fold_case(column) for column in parent.columns}, ("item", "pos")
    node.refuse_added_columns("explode", added if explode else (), taken, f"silver.{parent.name}")
    own = ... if explode else {column: column for column in parent.columns}
    columns = node.get("columns", values.named_columns, model.SILVER_COLUMNS, own)
    node.refuse_unknown_columns("keys", keys, columns, "this table")
    return ChildTable(
        name=name,
        parent=parent.name,
        columns=columns,
        event_time=next((n for n, sql in columns.items() if sql == parent.event_time), None),
        watermark=parent.watermark,
        change_keys=_change_keys(node, columns, keys, parent),
        **settings,
    )


def _change_keys(
    node: Node, columns: Mapping[str, str], keys: Sequence[str], parent: SilverTable
) -> dict[str, str]:
    """Return the column for each of the parent's columns that say which of its rows change."""
    own = {sql: name for name, sql in columns.items()}
    followed = dict[str, str]()
    for key in change_keys(parent):
        if key not in own:
            node.fail("columns", f"must have {key}, which says which rows of its source change")
        if keys and own[key] not in keys:
            node.fail("keys", f"must have {own[key]}, because rows of its source change")
        followed[key] = own[key]
    return followed


def parents_first(entries: Mapping[str, Any]) -> list[str]:
    """Return the names of the entries, each after the one that it reads."""

    def depth(name: str, above: tuple[str, ...] = ()) -> int:
        entry = entries[name]
        parent = str(entry.get("source") if isinstance(entry, dict) else "").partition(".")[2]
        # In a circle the first entry is an error, because its parent is not known yet.
        is_end = parent not in entries or parent in above
        return 0 if is_end else 1 + depth(parent, (*above, name))

    return sorted(entries, key=depth)


def silver_table(node: Node, key: str, tables: SilverTables) -> str:
    """Return the name, without `silver.`, of the table that a key names."""
    name = node.get(key, values.non_blank_string, "a silver table")
    known = [f"silver.{each}" for each in tables]
    if name not in known:
        node.fail(key, f"must be one of {', '.join(known)}, not {name}")
    return short_name(name)
