"""Erasure of rows from ingested files: a file is written again without their lines, or deleted."""

import io
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.config.model import TYPED_FORMATS, SourceConfig
from medallion.ingest.files import content, decode
from medallion.ingest.files.batch import BatchContext
from medallion.ingest.files.lines import decoding_errors
from medallion.ingest.files.listing import path_below_source
from medallion.ingest.files.verify import ROWS_BY_FILE, Counts, sum_by_file
from medallion.ingest.parsing.parse import parse_lines
from medallion.ingest.parsing.partitions import with_partition_columns
from medallion.state.journal import Action, ErasedOrigin
from medallion.state.ledger import Entry, Reason, ReasonCode, State
from medallion.storage import delta_tables
from medallion.storage.table_specs import SOURCE_FILE

Matching = Callable[[DataFrame], DataFrame]
"""Returns the rows of bronze to erase, with all columns of its input."""

_LINE, _LEDGER_PATH = "_line", "_ledger_path"
_DELETED = Reason(ReasonCode.DELETED, "deleted by medallion erase")


def unsupported_reason(location: str, source: SourceConfig) -> str | None:
    """Return why single rows cannot be removed from a file; None if they can."""
    if source.format in TYPED_FORMATS:
        return f"{source.format} has no lines"
    if decode.has_documents(source):
        return "its rows are parts of one document"
    suffix = Path(location).suffix.lower()
    is_packed = suffix in (*content.CODECS, content.ZIP)
    if is_packed and suffix not in content.REWRITABLE_CODECS:
        return f"{suffix} files are not written"
    return None


def erased_origins(
    context: BatchContext, rows: Mapping[tuple[str, int], int], is_deleted: bool
) -> list[ErasedOrigin]:
    """Return what an erasure does with each ingested file; write nothing.

    Args:
        context: the source.
        rows: the number of rows to erase by path and modification time, as bronze has them.
        is_deleted: whether the files are deleted instead of written again.

    Raises:
        OSError: a file cannot be inspected, so it may still have such rows.
    """
    layout, ledger, origins = context.config.layout, context.ledger, list[ErasedOrigin]()
    for (path, modified_at), count in rows.items():
        path = content.strip_member(path)
        versions = [
            entry
            for entry in ledger.all_versions()
            if (entry.path, entry.modified_at) == (path, modified_at) and entry.is_ingested
        ]
        if not versions:  # `audit` reports rows of a file that the ledger does not have
            continue
        entry = max(versions, key=lambda each: each.version)
        newest = ledger.newest(path)
        location, action = entry.moved_to or path, Action.REWRITTEN
        info = (layout.root / location).info()
        # A file that no scan has seen is not the ingested one, which it has overwritten.
        is_overwritten = not entry.moved_to and (newest != entry or info != entry.info)
        if is_overwritten or info is None:
            action = Action.GONE
        elif path_below_source(layout, context.source, path) is None:
            action = Action.KEPT
        elif is_deleted:
            action = Action.DELETED
        origins.append(ErasedOrigin(path, count, action, entry.version, location))
    return origins


def unmatched_reasons(
    context: BatchContext, origins: Iterable[ErasedOrigin], matching: Matching
) -> dict[str, str]:
    """Return the reason for each file whose lines cannot be matched with the rows to erase.

    Args:
        context: the source.
        origins: the files; only those to be written again are read.
        matching: returns the rows to erase.
    """
    reasons, rewritten = {}, [o for o in origins if o.action is Action.REWRITTEN]
    for origin in rewritten:
        if reason := unsupported_reason(origin.location, context.source):
            reasons[origin.location] = reason
    lines = _matching_lines(context, [o for o in rewritten if o.location not in reasons], matching)
    for origin in rewritten:
        if origin.location in reasons:
            continue
        erased = lines[origin.location]
        count = sum(row in erased for row, _ in _rows_with_text(context, origin.location))
        if count != origin.rows:
            reasons[origin.location] = f"{count:,} of its lines match, but {origin.rows:,} rows"
    return reasons


def erase_from_files(
    context: BatchContext, origins: Collection[ErasedOrigin], matching: Matching
) -> None:
    """Write files again without the lines of the rows, or delete them; safe to repeat.

    Args:
        context: the source.
        origins: the files.
        matching: returns the rows to erase.
    """
    layout, ledger = context.config.layout, context.ledger
    rewritten = [o for o in origins if o.action is Action.REWRITTEN]
    lines = _matching_lines(context, rewritten, matching)
    for origin in rewritten:
        if erased := lines[origin.location]:
            write = partial(_write_without, context, origin.location, erased)
            (layout.root / origin.location).replace_content(write)
    entries = list[Entry]()
    for origin in origins:
        entry = ledger.version(origin.path, origin.version)
        assert entry is not None, "the erasure has files of the ledger"
        if origin.action is Action.DELETED:
            # A file in landing may be overwritten meanwhile; only medallion writes to archive/.
            (layout.root / origin.location).delete(None if entry.moved_to else entry.info)
            gone = replace(entry, moved_to=None)
            is_replaced = entry.state == State.REPLACED
            entries.append(gone if is_replaced else gone.with_state(State.ARCHIVED, _DELETED))
        elif origin.action is Action.REWRITTEN:
            info = (layout.root / origin.location).info() or entry.info
            entries.append(replace(entry, size=info.size))
    ledger.write(entries)


def count_rows_again(context: BatchContext, origins: Iterable[ErasedOrigin]) -> None:
    """Write the rows that bronze still has of these files into the ledger; safe to repeat.

    Of several versions of a file with the same time, the newest gets all rows.
    """
    table = context.config.layout.table(context.name)
    counts = sum_by_file(delta_tables.select_rows(table, ROWS_BY_FILE, "group by 1, 2"))
    entries = list[Entry]()
    for origin in origins:
        newest = context.ledger.version(origin.path, origin.version)
        assert newest is not None, "the erasure has files of the ledger"
        for entry in context.ledger.all_versions():
            if (entry.path, entry.modified_at) == (newest.path, newest.modified_at):
                is_newest, key = entry.version == newest.version, (entry.path, entry.modified_at)
                rows, corrupt, rescued = counts.get(key, Counts()) if is_newest else Counts()
                entries.append(
                    replace(entry, rows=rows, corrupt_rows=corrupt, rescued_rows=rescued)
                )
    context.ledger.write(entries)


def _matching_lines(
    context: BatchContext, origins: Collection[ErasedOrigin], matching: Matching
) -> dict[str, set[str]]:
    """Return the distinct rows to erase from each file by its current path, as JSON."""
    lines = defaultdict[str, set[str]](set)
    if not origins:
        return lines
    schema, spark = context.schema, context.spark
    rows = context.read_rows([origin.location for origin in origins])
    # `_source_file` is the path in the ledger, as in bronze: the condition may name it.
    paths = spark.createDataFrame(
        [(o.location, o.path) for o in origins], f"{SOURCE_FILE} string, {_LEDGER_PATH} string"
    )
    rows = rows.join(F.broadcast(paths), SOURCE_FILE, "left").withColumns(
        {_LINE: F.col("value"), "_location": F.col(SOURCE_FILE), SOURCE_FILE: F.col(_LEDGER_PATH)}
    )
    strings = dict.fromkeys(schema.partition_types, "string")
    parsed = parse_lines(
        rows.drop(_LEDGER_PATH), {**schema.columns, **strings}, None, {**schema.fields, **strings}
    )
    found = matching(with_partition_columns(parsed, schema.partition_types))
    for location, line in found.select("_location", _LINE).distinct().collect():
        lines[location].add(_key(context.source, line))
    return lines


def _rows_with_text(context: BatchContext, location: str) -> Iterator[tuple[str | None, str]]:
    with (context.config.layout.root / location).as_local() as path:
        for row, text in decode.rows_with_text(path, context.source, context.schema.fields):
            yield (None if row is None else _key(context.source, row)), text


def _key(source: SourceConfig, row: str) -> str:
    """Return a row so that Spark's and Python's can be compared: they escape text differently."""
    return str(json.loads(row)["value"]) if source.format == "text" else row


def _write_without(
    context: BatchContext, location: str, erased: Collection[str], target: Path
) -> None:
    """Write a file's content without some rows to another path."""
    encoding, codec = context.source.options.encoding, Path(location).suffix.lower()
    with (
        content.create_packed(target, codec) as packed,
        io.TextIOWrapper(packed, encoding, decoding_errors(encoding), newline="") as text,
    ):
        for row, line in _rows_with_text(context, location):
            if row not in erased:
                text.write(line)
