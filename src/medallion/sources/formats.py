"""Which kind of source reads which `format` of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medallion.config.model import Config, SourceConfig
from medallion.sources.base import Backlog, Say, Source
from medallion.sources.files.discovery import Discovery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from medallion.schema.evolution import Schema


@dataclass(frozen=True)
class Kind:
    """How a kind of source is opened, and what waits in one; for that nobody needs Spark."""

    open: Callable[[SparkSession, Config, SourceConfig, Schema, Say], Source]
    backlog: Callable[[Config, SourceConfig], Backlog]


def _files(
    spark: SparkSession, config: Config, source: SourceConfig, schema: Schema, say: Say
) -> Source:
    from medallion.sources.files.source import Files

    return Files(spark, config, source, schema, say)


def _waiting_files(config: Config, source: SourceConfig) -> Backlog:
    waiting = Discovery(config, source).backlog()
    oldest = min((file.modified_at for file in waiting), default=None)
    return Backlog(len(waiting), sum(file.size for file in waiting), oldest)


FILES = Kind(_files, _waiting_files)
KINDS: Mapping[str, Kind] = {"json": FILES, "csv": FILES, "parquet": FILES, "text": FILES}
