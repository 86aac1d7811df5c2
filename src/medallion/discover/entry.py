"""A new source's entry, added to pipeline.yaml without changing its other lines."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from ruamel.yaml import YAML

from medallion.config.document import Node
from medallion.config.gold import parse_gold_table
from medallion.config.model import Config
from medallion.config.sources import parse_source, refuse_shared_files
from medallion.config.values import TABLE_NAME
from medallion.discover import changes
from medallion.discover import columns as _columns
from medallion.discover.columns import Column, TimeFormat
from medallion.discover.detect import describe_file, has_other_fields
from medallion.discover.files import InputFile
from medallion.discover.json_rows import MAX_ROWS, Description, same_json_format
from medallion.errors import UsageError
from medallion.storage.files import write_atomic
from medallion.storage.table_specs import FILE_ORIGIN_COLUMNS, TECHNICAL_COLUMNS
from medallion.storage.text import counted, printable

_MAX_INSPECTED = 20  # files
_FULL_LOAD = re.compile(r"LOAD[0-9A-F]{8}\.")  # files of AWS DMS, before those of changes
_TAKEN = {*TECHNICAL_COLUMNS, *FILE_ORIGIN_COLUMNS}
_PLAIN_SCALAR = re.compile(r"[A-Za-z_](?:[\w.(), ']*[\w.)'])?")
_YAML_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
_TIME_SQL = {f"timestamp_{u}": f"timestamp_{u}({{}})" for u in ("seconds", "millis", "micros")}
_TIME_SQL["timestamp_nanos"] = "timestamp_micros({} div 1000)"


@dataclass(frozen=True)
class NewSource:
    """A new source, as inferred from its files.

    Attributes:
        name: the source.
        files: its files.
        description: format, settings, sampled rows, and open choices.
        columns: the columns of silver.
        empty: fields that are null in all rows.
        times: candidates for the event time, the best first.
        keys: candidates for keys, the best first; of change records all keys.
    """

    name: str
    files: Sequence[InputFile]
    description: Description
    columns: list[Column]
    empty: list[str]
    times: list[tuple[Column, TimeFormat]]
    keys: list[Column]

    @property
    def has_changes(self) -> bool:
        """Whether its rows are change records."""
        return "cdc" in self.description.settings

    @property
    def event_time(self) -> str:
        """The silver column of the event time."""
        return self.times[0][0].name if self.times else "ingested_at"

    @property
    def key_names(self) -> list[str]:
        """The silver columns of the keys."""
        if self.has_changes:
            return [column.name for column in self.keys]
        key = self.keys[0].name if self.keys else self.own_key[0]
        return list(dict.fromkeys([key, self.event_time]))

    @property
    def own_key(self) -> tuple[str, str, str]:
        """The name, SQL and reason of the key of a source without a candidate."""
        if not self.times:
            return "no_key", "cast(null as string)", "no row is a duplicate: a key is null"
        fields = {column.path[:1]: column for column in self.columns}
        names = [replace(column, path=path).sql for path, column in fields.items()]
        reason = "no column looks like a key: only rows that are equal are duplicates"
        return "row_digest", f"sha2(to_json(struct({', '.join(names)})), 256)", reason


def inspect_files(name: str, files: Sequence[InputFile]) -> NewSource:
    """Infer a new source from its files.

    Raises:
        UsageError: a file cannot be read, or has another format than the first.
    """
    rows: list[dict[str, Any]] = []
    some = files[:_MAX_INSPECTED]
    inspected = [(file, each) for file in some if (each := describe_file(file.path)).rows]
    unified = same_json_format([each for _, each in inspected])
    descriptions = [(file, each) for (file, _), each in zip(inspected, unified, strict=True)]
    if not descriptions:
        raise UsageError(f"{files[0].path}: no rows; add a source from files with rows.")
    first = descriptions[0][1]
    for file, each in descriptions:
        if _format_summary(each) != _format_summary(first):
            one, other = _format_summary(first), _format_summary(each)
            paths = f"{descriptions[0][0].path} is {one}, and {file.path} is {other}"
            raise UsageError(f"{paths}: add them as two sources.")
        rows += [{**row, **file.partitions} for row in each.rows[: MAX_ROWS // len(descriptions)]]
    settings = dict(first.settings)
    if files[0].partitions:
        settings["partition_columns"] = list(files[0].partitions)
    reasons = list(first.reasons)
    if taken := {name for row in rows for name in row if name in _TAKEN}:
        rows = [{name: row[name] for name in row if name not in taken} for row in rows]
        names = ", ".join(sorted(taken))
        reasons.append(f"only in _rescued_data, as medallion has columns of these names: {names}")
    choices = [*first.choices, *filter(None, [_different_fields(descriptions)])]
    first = replace(first, rows=rows, settings=settings, reasons=reasons, choices=choices)
    return _with_columns(NewSource(name, files, first, [], [], [], []))


def _with_columns(source: NewSource) -> NewSource:
    """Return a source with the columns, times, keys and changes of its sampled rows."""
    description = source.description
    records = changes.recognize(description.rows)
    has_types = description.format != "csv"
    columns, empty = _columns.infer_columns(records.rows, has_types, records.taken)
    columns = [records.place(column) for column in columns]
    times = [] if records.types else _columns.time_candidates(columns, len(records.rows))
    settings = {**description.settings, **_type_settings(description, columns, times)}
    columns = [column for column in columns if column.path[0] not in records.technical]
    keys, with_times = _columns.key_candidates(columns, len(records.rows)), [c for c, _ in times]
    if not records.order and not keys:
        records = changes.with_repeated_key(records, columns, with_times)
    reasons = [*description.reasons, *filter(None, [records.reason])]
    choices = list(description.choices)
    if not records.order and all(_FULL_LOAD.match(file.path.name) for file in source.files):
        choices.append("a full load of AWS DMS, by its name: add it with a file of changes instead")
    if records.order:
        keys, key_choices = changes.key_columns(columns, records)
        order, reason = changes.order_sql(records, keys, with_times)
        reasons.append(f"sequence_by: {reason}")
        choices += key_choices
        more = {"apply_as_deletes": records.deletes, "unavailable_value": records.unavailable}
        settings["cdc"] = {"sequence_by": order, **{k: sql for k, sql in more.items() if sql}}
    file_format = records.format or description.format
    choices += [f"the format of {c.name}: {t.hint} or {t.other}" for c, t in times if t.other]
    choices += [f"{column.name}: {time.mistake}" for column, time in times if time.mistake]
    choices += [
        f"whether {value} of {column.name} is a thousand times more than with a decimal point"
        for column in columns
        if (value := _columns.ambiguous_number(column))
    ]
    description = Description(file_format, description.rows, settings, reasons, choices)
    return NewSource(source.name, source.files, description, columns, empty, times, keys)


def _different_fields(descriptions: Sequence[tuple[InputFile, Description]]) -> str | None:
    """Return a choice if a file has mostly other fields than the first; None if none has."""
    (first, description), *others = descriptions
    names = set().union(*description.rows)
    for file, each in others:
        if each.rows and has_other_fields(names, set().union(*each.rows)):
            return f"one source, or two: {first.path.name} and {file.path.name} have other fields"
    return None


def _type_settings(
    description: Description, columns: Sequence[Column], times: Sequence[tuple[Column, TimeFormat]]
) -> dict[str, dict[str, str]]:
    """Return the setting for types that bronze does not infer.

    They are the times of other forms than ISO 8601 and, in CSV, whatever is not a string. Files
    without a header have a `schema`.
    """
    settings = description.settings
    key = "schema" if "schema" in settings else "hints"
    partitions = settings.get("partition_columns", ())
    fields = [c for c in columns if c.path[0] not in partitions and not c.template]
    types: tuple[str, ...] = ("long", "double", "boolean") if description.format == "csv" else ()
    types += ("timestamp",) if key == "schema" else ()  # else it is inferred
    hints = {c.path[0]: c.type for c in fields if c.type in types}
    hints |= {c.path[0]: each.hint for c, each in times if each.hint and not c.is_nested}
    return {key: {**settings.get(key, {}), **hints}} if hints else {}


def _format_summary(description: Description) -> str:
    options = {k: v for k, v in description.settings.get("options", {}).items() if k != "nullValue"}
    lines = _yaml_lines({**description.settings, "options": options})
    return " ".join([description.format, *lines])


def source_entry(source: NewSource) -> list[str]:
    """Return the lines of the source's entry below `sources`."""
    description = source.description
    names = ", ".join(file.path.name for file in source.files[:3])
    comments = [f"medallion add, from {counted(len(source.files), 'file')}: {names}"]
    comments += [*description.reasons, *(f"choose: {choice}" for choice in description.choices)]
    silver = [_silver_line(column, source) for column in source.columns]
    if source.empty:
        silver.append(f"# null in the sample: {printable(', '.join(source.empty))}")
    added, identity = list[str](), [f"keys: [{', '.join(source.key_names)}]"]
    if not source.has_changes:
        added, identity = _event_lines(source)
    lines = [*(f"# {printable(comment)}" for comment in comments), f"format: {description.format}"]
    lines += [*_yaml_lines(description.settings), "silver:"]
    lines += [*(f"  {line}" for line in (*silver, *added)), *identity]
    return [f"{source.name}:", *(f"  {line}" for line in lines)]


def _event_lines(source: NewSource) -> tuple[list[str], list[str]]:
    """Return further lines of `silver`, and those after it, of events."""
    added, rows = list[str](), len(source.description.rows)
    key_name, key_sql, key_reason = source.own_key
    if not source.keys:
        added.append(f"{key_name}: {_yaml_scalar(key_sql)}")
    if source.times:
        (_, time_format), *others = source.times
        time_reason = f"{time_format.reason}, {min(time_format.times)} to {max(time_format.times)}"
        if others:
            time_reason += f"; or {', '.join(column.name for column, _ in others[:5])}"
    else:
        added.append("ingested_at: _ingested_at")
        time_reason = "no event time found: the time of ingestion"
    if source.keys:
        first, *more = (column.name for column in source.keys[:4])
        key_reason = f"{first}: unique in {counted(rows, 'row')}{'; or '.join(['', *more])}"
    lines = [f"event_time: {source.event_time} # {time_reason}"]
    lines += [f"keys: [{', '.join(source.key_names)}] # {key_reason}", "watermark: 1 hour"]
    return added, lines


def _silver_line(column: Column, source: NewSource) -> str:
    time_format = next((time_format for each, time_format in source.times if each is column), None)
    sql = column.sql
    if time_format and time_format.hint and column.is_nested:  # formats are for columns
        pattern = time_format.hint.removeprefix("timestamp ")
        default = f"try_to_timestamp(cast({{}} as string), {pattern})"
        if time_format.hint in _TIME_SQL and column.type != "long":
            number = "double" if time_format.hint == "timestamp_seconds" else "bigint"
            sql = f"try_cast({sql} as {number})"
        sql = _TIME_SQL.get(time_format.hint, default).format(sql)
    type_name = "timestamp" if time_format else column.type
    if type_name == "string" and (converted := _columns.conversion_sql(column)):
        type_name = f"string, or {converted}"
    return f"{column.name}: {_yaml_scalar(sql)} # {type_name}: {', '.join(examples(column))}"


def examples(column: Column) -> list[str]:
    """Return up to three different values of a column, shortened."""
    values = (v if isinstance(v, str) else json.dumps(v, default=str) for v in column.values[:100])
    short = (f"{value[:40]}..." if len(value) > 43 else value for value in map(printable, values))
    return list(dict.fromkeys(short))[:3]


def new_entries(source: NewSource, config: Config) -> dict[str, list[str]]:
    """Return the lines of the new entries by their top-level keys."""
    return {"sources": source_entry(source), "gold": gold_entry(source, config.gold)}


def gold_entry(source: NewSource, tables: Collection[str]) -> list[str]:
    """Return the lines of a table of row counts below `gold`; its name is not in `tables`."""
    settings, name = [f"source: silver.{source.name}"], f"{source.name}_total"
    if not source.has_changes:
        times = source.times[0][1].times if source.times else []
        is_long = bool(times) and max(times) - min(times) > timedelta(days=14)
        unit = "day" if is_long else "hour"
        settings, name = [*settings, f"window: 1 {unit}"], f"{source.name}_by_{unit}"
    while name in tables:
        name += "_2"
    settings += ["measure: { row_count: count(*) }", "output_mode: complete"]
    return [f"{name}:", *(f"  {line}" for line in settings)]


def _yaml_lines(settings: Mapping[str, Any]) -> list[str]:
    """Return the lines of a mapping in YAML."""
    lines = []
    for key, value in settings.items():
        if isinstance(value, dict):
            lines += [f"{key}:", *(f"  {line}" for line in _yaml_lines(value))] if value else []
        elif isinstance(value, list):
            lines.append(f"{key}: [{', '.join(map(_yaml_scalar, value))}]")
        else:
            lines.append(f"{_yaml_scalar(key)}: {_yaml_scalar(value)}")
    return lines


def _yaml_scalar(value: Any) -> str:
    is_word = isinstance(value, str) and _PLAIN_SCALAR.fullmatch(value)
    is_plain = is_word and value.lower() not in _YAML_WORDS
    return str(value) if is_plain else json.dumps(value, ensure_ascii=False)


def add_entries(text: str, entries: Mapping[str, Sequence[str]]) -> str:
    """Return pipeline.yaml with new entries at the ends of top-level mappings.

    Args:
        text: the file's content.
        entries: the lines of one entry by the key of its mapping, such as `sources`.
    """
    for key, entry in entries.items():
        document: Any = YAML().load(text) or {}
        lines = text.splitlines()
        if document.get(key) and document[key].fa.flow_style():
            raise UsageError(f"{key} of pipeline.yaml is in braces: write it as a block first.")
        if document.get(key):
            starts = sorted(document.lc.key(other)[0] for other in document)
            end = next((at for at in starts if at > document.lc.key(key)[0]), len(lines))
            # Comments before the next key belong to it.
            while not lines[end - 1].strip() or lines[end - 1].startswith("#"):
                end -= 1
            indent = " " * document[key].lc.col
        else:
            lines = [line for line in lines if not line.startswith(f"{key}:")]
            lines += ["", f"{key}:"]
            end, indent = len(lines), "  "
        lines[end:end] = ["", *(indent + line for line in entry)]
        text = "\n".join(lines) + "\n"
    return text


def require_new_name(config: Config, name: str) -> None:
    """Raise UsageError if a name is invalid, or another source has it."""
    if not TABLE_NAME.fullmatch(name):
        raise UsageError(f"{name!r}: use lower-case letters, digits and _, a letter first.")
    if name in config.sources:
        raise UsageError(f"pipeline.yaml already has a source {name}: choose another name.")


def prepare_write(
    config: Config, source: NewSource, entries: Mapping[str, Sequence[str]]
) -> Callable[[], None]:
    """Return a function that writes new entries to pipeline.yaml.

    Args:
        config: the configuration without them.
        source: the new source.
        entries: what `new_entries` returns for it.

    Raises:
        ConfigError: the new file would be invalid.
    """
    name, file = source.name, config.pipeline_file.resolve()
    text = add_entries(file.read_text(encoding="utf-8"), entries)
    document = Node(YAML(typ="safe", pure=True).load(text), file)
    added = parse_source(name, document.children("sources")[name], config.layout)
    sources = {**config.sources, name: added}
    refuse_shared_files(document, config.layout, sources.values())
    for table, node in document.children("gold").items():
        if table not in config.gold:
            parse_gold_table(table, node, sources, file.parent)
    return partial(write_atomic, file, text)


def to_json(source: NewSource, entries: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the decisions and entries for `--json`; the entries name the columns and reasons."""
    description = source.description
    return {
        "source": source.name,
        "files": [str(file.path) for file in source.files],
        "format": description.format,
        "settings": description.settings,
        "choices": description.choices,
        "entries": {key: "\n".join(lines) for key, lines in entries.items()},
    }
