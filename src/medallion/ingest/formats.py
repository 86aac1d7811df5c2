"""The source type of each configured `format`, and checks that a source keeps its format."""

from collections.abc import Mapping
from typing import Any

from medallion.config.model import FILE_FORMATS, Config, SourceConfig
from medallion.errors import UsageError
from medallion.ingest.files.source_type import FILE_SOURCE
from medallion.ingest.kafka.broker import KAFKA_SOURCE
from medallion.ingest.source import SourceType
from medallion.spark import checkpoints
from medallion.state import ledger
from medallion.storage import delta_tables
from medallion.storage.table_specs import NEW_COLUMNS

_FORMAT = "format"


SOURCE_TYPES: Mapping[str, SourceType] = {
    **dict.fromkeys(FILE_FORMATS, FILE_SOURCE),
    "kafka": KAFKA_SOURCE,
}


def refuse_format_change(config: Config, source: SourceConfig) -> None:
    """Raise UsageError if bronze has rows of another source type or format.

    A source type has no ledger of what another one ingested, and a file has other row counts if it
    is verified as another format.
    """
    name = f"bronze.{source.name}"
    columns = delta_tables.column_names(config.layout.table(name))
    if columns and not columns >= {*source.origin_columns} - {*NEW_COLUMNS}:
        raise UsageError(
            f"{name} was written by another source type than {source.format}: give this source "
            "a new name."
        )
    configured = _format_settings(source)
    # No format is recorded before the first start, or after the checkpoint was lost.
    recorded = checkpoints.read_document(config.layout.checkpoint(name), _FORMAT) or configured
    if recorded != configured and any(
        entry.is_ingested for entry in ledger.read_entries(config.layout, source.name)
    ):
        raise UsageError(
            f"{name} has files that were ingested as {_description(recorded)}, not as "
            f"{_description(configured)}: give this source a new name."
        )


def record_format(config: Config, source: SourceConfig) -> None:
    """Record the format of a source's files in the checkpoint, before the first is read."""
    checkpoint = config.layout.checkpoint(f"bronze.{source.name}")
    checkpoints.write_document(checkpoint, _FORMAT, _format_settings(source))


def _format_settings(source: SourceConfig) -> dict[str, Any]:
    return {"format": source.format, "multi_line": source.multi_line}


def _description(settings: Mapping[str, Any]) -> str:
    return f"{settings['format']}{' documents' if settings['multi_line'] else ''}"
