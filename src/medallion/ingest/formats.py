"""Which kind of source reads which `format` of the configuration, and that it stays that one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from medallion.config.model import FILE_FORMATS, Config, SourceConfig
from medallion.errors import UsageError
from medallion.ingest.files.kind import FILE_SOURCE
from medallion.ingest.kafka.source_type import KAFKA_SOURCE
from medallion.ingest.source import Backlog, Source, SourceType, Verification
from medallion.spark import checkpoints
from medallion.state import ledger
from medallion.storage import delta_tables
from medallion.storage.table_specs import FILE_ORIGIN_COLUMNS, MESSAGE_ORIGIN_COLUMNS

_FORMAT = "format"


def _open_demo(*given: Any) -> Source:
    """Open a source; Spark is imported here, so that other commands do not load it."""
    from medallion.ingest.demo import DemoSource

    return DemoSource(*given)


def _cannot_verify(config: Config, source: SourceConfig) -> Verification:
    kept = f"{source.name}: {source.format} keeps nothing: its rows cannot be counted again."
    return Verification(notes=[kept])


DEMO_SOURCE = SourceType(
    open=_open_demo,
    backlog=lambda *_: Backlog(),
    poll=lambda *_: True,
    rows_in_ledger=lambda *_: None,
    losses=lambda *_: [],
    verify=_cannot_verify,
)
SOURCE_TYPES: Mapping[str, SourceType] = {
    **dict.fromkeys(FILE_FORMATS, FILE_SOURCE),
    "kafka": KAFKA_SOURCE,
    "rate": DEMO_SOURCE,
    "socket": replace(DEMO_SOURCE, supports_available_now=False),
}


def refuse_format_change(config: Config, source: SourceConfig) -> None:
    """Raise UsageError where bronze has rows of another kind of source: files are not gone on with
    as messages, for neither knows what of the other was taken in; nor as another format, by which
    those that were taken in would be counted again."""
    name = f"bronze.{source.name}"
    columns = delta_tables.column_names(config.layout.table(name))
    origin = set(source.origin)
    others = () if origin else (FILE_ORIGIN_COLUMNS, MESSAGE_ORIGIN_COLUMNS)
    if columns and (not origin <= columns or any(o.keys() <= columns for o in others)):
        raise UsageError(
            f"{name} was not made by the format {source.format}, but by another kind "
            "of source: give this one a name of its own."
        )
    now = _read_as(source)
    # A first start has no note, nor has one after a checkpoint was lost.
    then = checkpoints.noted(config.layout.checkpoint(name), _FORMAT) or now
    if then != now and any(
        entry.state in ledger.INGESTED_STATES
        for entry in ledger.read_entries(config.layout, source.name)
    ):
        raise UsageError(
            f"{name}: its files were read as {_spelled(then)} so far, and those that it has would "
            f"be counted again as {_spelled(now)}: give this source a name of its own."
        )


def record_format(config: Config, source: SourceConfig) -> None:
    """Note what the files of a source are read as, before the first of them is."""
    checkpoint = config.layout.checkpoint(f"bronze.{source.name}")
    checkpoints.note(checkpoint, _FORMAT, _read_as(source))


def _read_as(source: SourceConfig) -> dict[str, Any]:
    return {"format": source.format, "multi_line": source.multi_line}


def _spelled(read_as: Mapping[str, Any]) -> str:
    return f"{read_as['format']}{' documents' if read_as['multi_line'] else ''}"
