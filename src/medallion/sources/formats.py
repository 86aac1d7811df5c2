"""Which kind of source reads which `format` of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from medallion.config.model import FILE_FORMATS, Config, SourceConfig
from medallion.errors import UsageError
from medallion.lakehouse import tables
from medallion.lakehouse.columns import OF_FILES, OF_MESSAGES
from medallion.lakehouse.text import Say, counted
from medallion.ops import due, ledger, topics
from medallion.ops.topics import Place, Taken
from medallion.sources.base import Backlog, Recount, Source
from medallion.sources.files import archive, handover, ledger_repair
from medallion.sources.files.codecs import unpacked_size
from medallion.sources.files.discovery import Discovery, is_lost
from medallion.sources.kafka import broker
from medallion.sources.kafka import ledger_repair as topics_repair
from medallion.sources.kafka.broker import Partition
from medallion.spark import checkpoints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from medallion.schema.evolution import Schema

_FORMAT = "format"


@dataclass(frozen=True)
class Kind:
    """How a kind of source is opened, and what is asked of one without Spark.

    Attributes:
        open: the source, for a session.
        backlog: what waits in it.
        poll: hands over what is new, puts away what the batches up to a number took in, as they
            are on record, and says whether there is anything to do. No batch may be cut off then.
        rows_in_ledger: how many rows its ledger has as taken in; None where it keeps none.
        losses: what its ledger has as gone before it was taken in, or as waiting; for people.
        recount: counts what it gave once more, and holds bronze against that.
        can_wait: what came in while nobody read is still there, so that a batch can be run later.
    """

    open: Callable[[SparkSession, Config, SourceConfig, Schema, Say], Source]
    backlog: Callable[[Config, SourceConfig], Backlog]
    poll: Callable[[Config, SourceConfig, int, Say], bool]
    rows_in_ledger: Callable[[Config, SourceConfig], int | None]
    losses: Callable[[Config, SourceConfig], list[str]]
    recount: Callable[[Config, SourceConfig], Recount]
    can_wait: bool = True


def _files(
    spark: SparkSession, config: Config, source: SourceConfig, schema: Schema, say: Say
) -> Source:
    from medallion.sources.files.source import FileSource

    return FileSource(spark, config, source, schema, say)


def _waiting_files(config: Config, source: SourceConfig) -> Backlog:
    waiting = Discovery(config, source).backlog()
    return Backlog(
        files=len(waiting),
        bytes=sum(file.size for file in waiting),
        unpacked=sum(unpacked_size(config.layout.root / file.path, file.size) for file in waiting),
        oldest=min((file.modified_at for file in waiting), default=None),
    )


def _poll_files(config: Config, source: SourceConfig, recorded: int, say: Say) -> bool:
    found = Discovery(config, source, say)
    if handover.is_behind(config.layout, source.name) or ledger_repair.is_short(
        config.layout, found.ledger
    ):
        return True  # bronze begins anew, or has its ledger made whole, before more is handed over
    found.poll()
    archive.clean(config, source, found.ledger, recorded, say)
    return due.has_input(config, f"bronze.{source.name}", config.layout.intake(source.name))


def _rows_of_files(config: Config, source: SourceConfig) -> int:
    return ledger_repair.rows_in_ledger(ledger.read(config.layout, source.name))


def _lost_files(config: Config, source: SourceConfig) -> list[str]:
    # A file that went and came back has a newer version: the old one is no loss any more.
    newest = ledger.Ledger(config.layout, source.name).all_newest()
    told = {
        (ledger.VANISHED, "gone without being taken in"): sum(map(is_lost, newest)),
        (ledger.PENDING, "not taken in yet"): sum(e.state == ledger.PENDING for e in newest),
    }
    return [
        f"{counted(files, 'file')} {what} (medallion files --state {state})"
        for (state, what), files in told.items()
        if files
    ]


def _recount_files(config: Config, source: SourceConfig) -> Recount:
    from medallion.sources.files.recount import recount

    return recount(config, source)


def _topics(
    spark: SparkSession, config: Config, source: SourceConfig, schema: Schema, say: Say
) -> Source:
    from medallion.sources.kafka.source import KafkaSource

    return KafkaSource(spark, config, source, schema, say)


def _waiting_in_topics(config: Config, source: SourceConfig) -> Backlog:
    taken = topics.read(config.layout, source.name)
    there = _messages(config, source, taken)
    return Backlog(messages=broker.waiting(source, there, taken))


def _messages(
    config: Config, source: SourceConfig, taken: Mapping[Place, Taken]
) -> dict[Place, Partition]:
    """What the broker has, if it goes together with the ledger."""
    there = broker.look(source, config.login)
    broker.refuse_gone(source, taken, there)
    return there


def _poll_topics(config: Config, source: SourceConfig, recorded: int, say: Say) -> bool:
    taken = topics.read(config.layout, source.name)
    if topics_repair.is_short(config.layout, source.name, taken):
        return True  # bronze makes its ledger whole before that is held against the topics
    there = _messages(config, source, taken)
    # Where a partition begins is to be put down, even if there is no message yet.
    return broker.waiting(source, there, taken) > 0 or not there.keys() <= taken.keys()


def _rows_of_topics(config: Config, source: SourceConfig) -> int:
    return topics_repair.rows_in_ledger(topics.read(config.layout, source.name))


def _lost_messages(config: Config, source: SourceConfig) -> list[str]:
    found = []
    taken = topics.read(config.layout, source.name).values()
    for topic in dict.fromkeys(each.topic for each in taken):
        lost = sum(each.lost for each in taken if each.topic == topic)
        anew = max(each.made_anew for each in taken if each.topic == topic)
        if lost:
            found.append(f"{counted(lost, 'offset')} of topic {topic} lost")
        if anew:
            times = counted(anew, "time")
            found.append(f"topic {topic} was made anew {times}, and what was not read then is lost")
    return found


def _recount_topics(config: Config, source: SourceConfig) -> Recount:
    try:
        from medallion.sources.kafka.recount import recount
    except ImportError:
        return Recount(notes=[str(broker.not_set_up(f"bronze.{source.name}"))])
    return recount(config, source)


def _demo(
    spark: SparkSession, config: Config, source: SourceConfig, schema: Schema, say: Say
) -> Source:
    from medallion.sources.demo import DemoSource

    return DemoSource(spark, config, source, schema, say)


def _not_again(config: Config, source: SourceConfig) -> Recount:
    kept = f"{source.name}: {source.format} keeps nothing: its rows cannot be counted again."
    return Recount(notes=[kept])


FILES = Kind(_files, _waiting_files, _poll_files, _rows_of_files, _lost_files, _recount_files)
KAFKA = Kind(
    _topics, _waiting_in_topics, _poll_topics, _rows_of_topics, _lost_messages, _recount_topics
)
DEMO = Kind(
    open=_demo,
    backlog=lambda *_: Backlog(),
    poll=lambda *_: True,
    rows_in_ledger=lambda *_: None,
    losses=lambda *_: [],
    recount=_not_again,
)
KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(FILE_FORMATS, FILES),
    "kafka": KAFKA,
    "rate": DEMO,
    "socket": replace(DEMO, can_wait=False),
}


def refuse_another_kind(config: Config, source: SourceConfig) -> None:
    """Raise UsageError where bronze has rows of another kind of source: files are not gone on with
    as messages, for neither knows what of the other was taken in; nor as another format, by which
    those that were taken in would be counted again."""
    name = f"bronze.{source.name}"
    columns = tables.columns(config.layout.table(name))
    origin = set(source.origin)
    others = () if origin else (OF_FILES, OF_MESSAGES)
    if columns and (not origin <= columns or any(o.keys() <= columns for o in others)):
        raise UsageError(
            f"{name} was not made by the format {source.format}, but by another kind "
            "of source: give this one a name of its own."
        )
    now = _read_as(source)
    # A lakehouse may be older than the note, which the next start makes.
    then = checkpoints.noted(config.layout.checkpoint(name), _FORMAT) or now
    if then != now and any(
        entry.state in ledger.TAKEN for entry in ledger.read(config.layout, source.name)
    ):
        raise UsageError(
            f"{name}: its files were read as {_spelled(then)} so far, and those that it has would "
            f"be counted again as {_spelled(now)}: give this source a name of its own."
        )


def note_format(config: Config, source: SourceConfig) -> None:
    """Note what the files of a source are read as, before the first of them is."""
    checkpoint, now = config.layout.checkpoint(f"bronze.{source.name}"), _read_as(source)
    if checkpoints.noted(checkpoint, _FORMAT) != now:
        checkpoints.note(checkpoint, _FORMAT, now)


def _read_as(source: SourceConfig) -> dict[str, Any]:
    return {"format": source.format, "multi_line": source.multi_line}


def _spelled(read_as: Mapping[str, Any]) -> str:
    return f"{read_as['format']}{' documents' if read_as['multi_line'] else ''}"
