"""Which kind of source reads which `format` of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from medallion.config.model import FORMATS, Config, SourceConfig
from medallion.sources.base import Backlog, Say, Source
from medallion.sources.files import archive
from medallion.sources.files.discovery import Discovery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from medallion.schema.evolution import Schema


@dataclass(frozen=True)
class Kind:
    """How a kind of source is opened; what waits in one and what has come, without Spark.

    `look` hands over what is new, puts away what the batches up to a number took in, as they are on
    record, and gives the table of what was handed over. No batch may be cut off then.
    """

    open: Callable[[SparkSession, Config, SourceConfig, Schema, Say], Source]
    backlog: Callable[[Config, SourceConfig], Backlog]
    look: Callable[[Config, SourceConfig, int, Say], Path]


def _files(
    spark: SparkSession, config: Config, source: SourceConfig, schema: Schema, say: Say
) -> Source:
    from medallion.sources.files.source import Files

    return Files(spark, config, source, schema, say)


def _waiting_files(config: Config, source: SourceConfig) -> Backlog:
    waiting = Discovery(config, source).backlog()
    oldest = min((file.modified_at for file in waiting), default=None)
    return Backlog(len(waiting), sum(file.size for file in waiting), oldest)


def _look_for_files(config: Config, source: SourceConfig, recorded: int, say: Say) -> Path:
    found = Discovery(config, source, say)
    found.poll()
    archive.clean(config, source, found.ledger, recorded)
    return config.layout.intake(source.name)


FILES = Kind(_files, _waiting_files, _look_for_files)
KINDS: Mapping[str, Kind] = dict.fromkeys(FORMATS, FILES)
