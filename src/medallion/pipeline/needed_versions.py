"""The oldest versions of the tables that somebody still has to read.

A stream goes on from the commits after those that it has read; a batch that is not on record may
have to be counted again from the commits that it read; a gate that holds rows back judges them
again; and what a table has got since its last run is counted from its log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from medallion.config.model import Config
from medallion.config.queries import queries
from medallion.errors import MedallionError
from medallion.inspection.balance import SETTLED
from medallion.lakehouse import tables
from medallion.lakehouse.layout import PUBLISH
from medallion.ops import due
from medallion.ops.runs import Standing
from medallion.spark import checkpoints


@dataclass(frozen=True)
class Need:
    """Who still needs the commits of a table from one version on.

    `is_within`: a part of that version has been read already, which may be a first look at the
    whole table as it was then.
    """

    version: int
    who: str
    is_within: bool = False


def needs(config: Config, standing: Standing) -> dict[str, list[Need]]:
    """By the names of the tables; those that are not named need nothing but what they are now.

    The intake of a source is named `_intake.<source>`.
    """
    found: dict[str, list[Need]] = {}
    for table, need in (
        *_of_streams(config, standing),
        *_of_gates(config, standing),
        *_of_records(config, standing),
    ):
        found.setdefault(table, []).append(need)
    return found


def oldest(needed: list[Need], version: int) -> Need | None:
    """The need that goes back furthest; None where nobody needs a commit up to `version`."""
    open_needs = [need for need in needed if need.version <= version]
    return min(open_needs, key=lambda need: (need.version, not need.is_within), default=None)


def _of_streams(config: Config, standing: Standing) -> Iterator[tuple[str, Need]]:
    """A query reads on from its last committed batch; bronze and silver are settled from the last
    one on record, by the commits that the batches after it read."""
    for query in queries(config):
        if query.layer == PUBLISH:  # of rows that a commit took away, it reads the files before it
            read = config.layout.table(query.upstream[0])
            need = _of_stream(config, query.name, _NEVER, read)
            version = need.version if need.version in (0, _NEVER) else need.version - 1
            yield query.upstream[0], Need(version, need.who, is_within=True)
        elif query.upstream:
            is_settled = query.layer in SETTLED
            recorded = standing.sums_of(query.name).last_batch if is_settled else _NEVER
            for name in query.upstream:
                read = config.layout.table(name)
                yield name, _of_stream(config, query.name, recorded, read)
        elif tables.exists(config.layout.intake(query.source)):  # files, which it reads in order
            recorded = standing.sums_of(query.name).last_batch
            yield f"_intake.{query.source}", _of_stream(config, query.name, recorded)


def _of_stream(config: Config, query: str, recorded: int, table: Path | None = None) -> Need:
    """What a query, and whoever settles its batches after `recorded`, is still to read of a table;
    of what was handed over to bronze, where none is given.

    A query that starts again plans its last batch once more, which is why the commits of that one
    stay. One that has planned no batch begins with the table as it is then, but bronze with the
    first commit; of the first batch there is no telling from where on it reads. (Source:
    populateStartOffsets of Spark's MicroBatchExecution.)
    """
    checkpoint = config.layout.checkpoint(query)
    settled = min(checkpoints.last_committed(checkpoint), recorded)
    if settled < 1:
        has_begun = table is None or checkpoints.last_begun(checkpoint) >= 0
        return Need(0 if has_begun else _NEVER, f"{query}, which has no two batches on record,")
    try:
        offset = checkpoints.delta_offset(checkpoint, settled - 1, table)
        return Need(offset.version, query, is_within=not offset.is_whole)
    except (MedallionError, LookupError):
        # Spark keeps the offsets of the last hundred batches, and one may be cut short.
        return Need(0, f"{query}, whose batches are not on record,")


_NEVER = 2**63 - 1


def _of_gates(config: Config, standing: Standing) -> Iterator[tuple[str, Need]]:
    for table in due.held(config, standing):
        yield table, Need(standing.passed.get(table, 0) + 1, f"the gate of {table}")


def _of_records(config: Config, standing: Standing) -> Iterator[tuple[str, Need]]:
    """What was written since the last run is counted from the log, when that is put on record."""
    for query in queries(config):
        recorded = standing.sums_of(query.name).versions
        for target, version in zip(query.targets, recorded, strict=False):
            yield target, Need(version + 1, f"the record of {query.name}")
