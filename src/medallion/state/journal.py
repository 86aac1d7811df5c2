"""The journal: the commands that are not finished, one file for each, in `_journal/`.

A command writes its entry before its first change, marks each step that is done, and removes the
entry at the end. Whoever finds an entry completes it, or refuses to work and names it. The process
that holds the lock of its layer writes an entry; a backfill is requested without a lock. Tables are
rebuilt in the order of their queries, whatever the order of their entries.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from functools import partial
from typing import Any, Generic, TypeVar, get_origin

from medallion.config.model import CHANGES, Config
from medallion.errors import ITEM_ERRORS, MedallionError, UsageError
from medallion.spark import checkpoints
from medallion.storage import delta_tables, locks
from medallion.storage.layout import LAYERS, Layout, layer_of, short_name
from medallion.storage.paths import ObjectPath, StoragePath
from medallion.storage.root_format import FORMAT, read_format, write_format
from medallion.storage.text import Reporter, printable


class Command(StrEnum):
    """The commands that leave an entry if they are interrupted."""

    REFRESH = "refresh"
    REPLAY = "replay"
    ERASE = "erase"
    BACKFILL = "backfill"
    RENAME = "rename"


@dataclass(frozen=True)
class Rebuild:
    """A table to be rebuilt; the others say what was built, and has to replace the old tables.

    Attributes:
        built: the staged tables; empty until they are complete.
        query: the id of the query that built them.
        batch: the last batch of that query; -1 if it had none.
        row: the row for `ops.runs`.
    """

    built: tuple[str, ...] = ()
    query: str = ""
    batch: int = -1
    row: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Replay:
    """A replay of quarantined rows, whose rows are staged.

    Attributes:
        quarantine_version: the version of the quarantine table that was read.
        until: the last event time of the rows that move, in milliseconds since 1970.
        row: the row for `ops.runs`.
    """

    quarantine_version: int
    until: int
    row: Mapping[str, Any]


class Action(StrEnum):
    """The column `action` of `ops.erasures`: what was done with a table, a file or a partition."""

    ERASED = "erased"
    REBUILT = "rebuilt"
    REWRITTEN = "rewritten"
    DELETED = "deleted"
    GONE = "gone"  # a file that was deleted or overwritten before
    KEPT = "kept"  # a file outside of the source's folders, or messages of a topic


@dataclass(frozen=True)
class ErasedOrigin:
    """The rows to erase from one file, or from one partition of a topic.

    Attributes:
        path: the path in the ledger, or `topic/partition`.
        rows: the number of rows in bronze that match.
        action: what happens to the file.
        version: the version of the path in the ledger; 0 for a partition.
        location: the current path of a file; empty for a partition.
    """

    path: str
    rows: int
    action: Action
    version: int = 0
    location: str = ""


@dataclass(frozen=True)
class Erasure:
    """One erasure.

    Attributes:
        id: identifies it in `ops.erasures`.
        table: the silver table, as `silver.orders`.
        condition: SQL over its columns.
        purge: whether data files and commits of older versions are removed at once.
        rows: the number of matching rows by table.
        undecided: the number of rows in bronze for which the condition is null.
        origins: the files or partitions of these rows.
        rebuilt: the gold tables that follow.
    """

    id: str
    table: str
    condition: str
    purge: bool
    rows: Mapping[str, int]
    undecided: int = 0
    origins: tuple[ErasedOrigin, ...] = ()
    rebuilt: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The source whose rows are erased."""
        return short_name(self.table)

    @property
    def has_rows(self) -> bool:
        """Return whether any row matches."""
        return any(self.rows.values())


@dataclass(frozen=True)
class Backfill:
    """A request to ingest files, until they are enqueued.

    Attributes:
        source: the source of the files.
        path: a file, or a directory with all files below it; relative to the root if below it.
    """

    source: str
    path: str


@dataclass(frozen=True)
class Rename:
    """One source or table that has another name now.

    Attributes:
        part: its part of pipeline.yaml.
        old, new: the names.
    """

    part: str
    old: str
    new: str

    @property
    def tables(self) -> dict[str, str]:
        """The new names of the tables, by the older ones; the last one moves last."""
        names = _TABLES[self.part]
        return {name.format(self.old): name.format(self.new) for name in names}

    def is_due(self, config: Config) -> bool:
        """Return whether something has the older name, or an interrupted process has moved it."""
        last = config.layout.table([*self.tables][-1])
        return delta_tables.table_exists(last) or is_renaming(config, self)


# The tables of each part of pipeline.yaml, in the order in which they move.
_TABLES: Mapping[str, tuple[str, ...]] = {
    "sources": ("silver.{}", f"silver.{{}}{CHANGES}", "quarantine.{}", "bronze.{}"),
    "silver": ("quarantine.{}", "silver.{}"),
    "gold": ("gold.{}",),
}
_Arguments = TypeVar("_Arguments")
_COMMANDS = (Rebuild, Replay, Erasure, Backfill, Rename)
_TYPES: Mapping[str, Any] = dict(zip(Command, _COMMANDS, strict=True))
# What to do if an entry is damaged, since tables may be partly written.
_REPAIRS: Mapping[str, str] = {
    Command.REFRESH: "Delete it, and run medallion refresh for each silver table.",
    Command.BACKFILL: "Delete it, and request the backfill again.",
}


@dataclass(frozen=True)
class Entry(Generic[_Arguments]):
    """One unfinished command.

    Attributes:
        subject: the table that the command names; of a backfill, any unique name.
        arguments: what it needs in order to be completed.
        done: its steps that are done.
        failure: why it could not be completed; empty if it was interrupted.
    """

    subject: str
    arguments: _Arguments
    done: tuple[str, ...] = ()
    failure: str = ""

    @property
    def command(self) -> Command:
        """The command."""
        return next(each for each in Command if isinstance(self.arguments, _TYPES[each]))

    @property
    def layer(self) -> str:
        """The layer of its table, or the first layer that it locks."""
        layers = {Command.ERASE: "bronze", Command.REPLAY: "silver"}
        return layers.get(self.command, layer_of(self.subject))

    @property
    def title(self) -> str:
        """The entry in messages."""
        cause = f": {self.failure}" if self.failure else ""
        return f"unfinished {self.command} of {self.subject}{cause}"

    @property
    def remedy(self) -> str:
        """What completes it."""
        command = {Command.ERASE: "erase, without arguments"}.get(self.command, "nightly")
        correct = "correct what the message names, then " if self.failure else ""
        return f"{correct}complete it with medallion {command}"

    def __str__(self) -> str:
        return f"{self.title}: {self.remedy}"

    def file(self, layout: Layout) -> StoragePath:
        """Return the file of the entry."""
        return layout.journal / f"{self.command}-{self.subject}.json"


def read_entries(config: Config, *types: type[_Arguments]) -> list[Entry[_Arguments]]:
    """Return the entries whose arguments are of these types.

    Raises:
        MedallionError: an entry is damaged.
    """
    layout, entries = config.layout, dict[StoragePath, Entry[Any]]()
    if not layout.format.is_stored():  # no process has upgraded it yet
        for older, _ in _older_documents(config):
            entries |= {entry.file(layout): entry for entry in older}
    for file in layout.journal.children():
        if file.name.endswith(".json"):  # else it is being written
            name, _, subject = file.name.removesuffix(".json").partition("-")
            # Another process may remove it at the same time.
            with suppress(FileNotFoundError), _named_errors(file, name):
                if (type_ := _TYPES[name]) in types:
                    document = json.loads(file.read())
                    arguments = _decode(type_, document["arguments"])
                    done, failure = tuple(document["done"]), document.get("failure", "")
                    entries[file] = Entry(subject, arguments, done, failure)
    return [entry for entry in entries.values() if isinstance(entry.arguments, types)]


def rebuilds(config: Config) -> dict[str, Entry[Rebuild]]:
    """Return the entries of the tables that have to be rebuilt, by table."""
    return {entry.subject: entry for entry in read_entries(config, Rebuild)}


def is_renaming(config: Config, rename: Rename) -> bool:
    """Return whether a process was interrupted while it moved what has an older name."""
    return any(entry.arguments == rename for entry in read_entries(config, Rename))


def unfinished_commands(config: Config) -> list[Entry[Any]]:
    """Return the entries, without backfills, whose layers no process writes."""
    entries, layout = read_entries(config, Rebuild, Replay, Erasure), config.layout
    return [entry for entry in entries if not locks.lock_holder(layout, entry.layer)]


def refuse_unfinished(config: Config, *types: type[Any]) -> None:
    """Raise UsageError if one of these commands is unfinished."""
    for entry in read_entries(config, *types):
        raise UsageError(f"An {entry}.")


@contextmanager
def lock_layers(
    config: Config, layers: Sequence[str], command: str, report: Reporter = lambda _: None
) -> Iterator[None]:
    """Hold the locks of layers, see `locks.lock_layers`; upgrade the format of the lakehouse.

    Args:
        layers: the layers.
        command: the command, for the lock files.
        report: reports an upgrade.

    Raises:
        UsageError: another process holds one of the locks, a newer release wrote the lakehouse, or
            an erasure is unfinished, which only `medallion erase` may complete.
    """
    _upgrade_format(config, command, report)
    with locks.lock_layers(config.layout, layers, command):
        if command != Command.ERASE:
            refuse_unfinished(config, Erasure)
        elif isinstance(config.layout.root, ObjectPath):
            config.layout.idle_note.delete()  # which may quote erased values
        yield


def write_entry(layout: Layout, entry: Entry[Any]) -> None:
    """Write an entry atomically and durably."""
    document = {"done": entry.done, "failure": entry.failure, "arguments": asdict(entry.arguments)}
    entry.file(layout).write_atomic(json.dumps(document))


def run_steps(
    layout: Layout, entry: Entry[Any], steps: Iterable[tuple[str, Callable[[], object]]]
) -> None:
    """Run the steps of an entry that are not done, each of which may be repeated; remove it."""
    for name, step in steps:
        if name not in entry.done:
            locks.check_locks()
            step()
            entry = replace(entry, done=(*entry.done, name))
            write_entry(layout, entry)
    entry.file(layout).delete()


def require_rebuilds(config: Config, tables: Iterable[str] = ()) -> None:
    """Write that tables have to be rebuilt. What an interrupted refresh had built is outdated."""
    outdated = (table for table, entry in rebuilds(config).items() if entry.arguments.built)
    for table in (*tables, *outdated):
        write_entry(config.layout, Entry(table, Rebuild()))


def is_refreshing(config: Config, layers: Sequence[str]) -> bool:
    """Return whether a table is being rebuilt, or is partly rebuilt.

    Args:
        layers: the layers whose locks the caller holds; a refresh holds gold's.
    """
    if "gold" not in layers:
        return config.layout.staging.is_stored()
    return any(entry.arguments.built for entry in read_entries(config, Rebuild))


def remove_abandoned_tables(config: Config) -> None:
    """Remove the staged tables, with their checkpoints, that a failed or killed refresh has left.

    The caller holds the lock of gold, without which nothing is rebuilt.
    """
    if not is_refreshing(config, ["gold"]):
        for table in config.layout.staging.children():
            config.layout.checkpoint(table.name, ahead=1).delete_prefix()
        config.layout.staging.delete_prefix()


@contextmanager
def _named_errors(file: StoragePath, command: str) -> Iterator[None]:
    """Raise an error in the contents of an entry's file as a MedallionError with a remedy."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        repair = _REPAIRS.get(command, "Restore the whole root from one backup.")
        raise MedallionError(f"{file} is damaged ({printable(str(error))}). {repair}") from None


def _decode(type_: Any, document: Mapping[str, Any]) -> Any:
    """Return arguments from their JSON.

    Raises:
        TypeError: a value is missing, unknown, or of another type.
    """
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in document.items()}
    if type_ is Erasure:
        origins = ({**each, "action": Action(each["action"])} for each in values["origins"])
        values["origins"] = tuple(_decode(ErasedOrigin, origin) for origin in origins)
    for each in fields(type_):
        expected: Any = get_origin(each.type) or each.type
        if not isinstance(values[each.name], expected):
            raise TypeError(f"{each.name} is {values[each.name]!r}")
    return type_(**values)


def _older_documents(config: Config) -> Iterator[tuple[list[Entry[Any]], Callable[[], object]]]:
    """Yield what releases before the journal kept elsewhere: entries, and their removal."""
    root, layout = config.layout.root, config.layout
    if (file := root / "_refresh/plan.json").is_stored():
        with _named_errors(file, Command.REFRESH):
            document = json.loads(file.read())
            table, then = document.pop("table"), document.pop("then")
            built = [Entry(table, _decode(Rebuild, document))] if document["built"] else []
            yield [*(Entry(name, Rebuild()) for name in then), *built], file.delete
    if (file := root / "_erase/plan.json").is_stored():
        with _named_errors(file, Command.ERASE):
            document = json.loads(file.read())
            done, _ = tuple(document.pop("done")), document.pop("started_at")
            erasure = Entry(document["table"], _decode(Erasure, document), done)
            yield [erasure], file.parent.delete_prefix
    for folder in (root / "_requests").children():
        for file in (each for each in folder.children() if each.name.endswith(".json")):
            with suppress(FileNotFoundError), _named_errors(file, Command.BACKFILL):
                path = layout.normalize(json.loads(file.read())["path"])
                entry = Entry(file.name.removesuffix(".json"), Backfill(folder.name, path))
                yield [entry], file.delete
    for name, source in config.sources.items():
        checkpoint, key = layout.checkpoint(source.rows_table), "replay"
        with suppress(*ITEM_ERRORS):  # its query reports it
            if replay := checkpoints.read_document(checkpoint, key):
                remove = partial(checkpoints.write_document, checkpoint, key, None)
                yield [Entry(f"quarantine.{name}", Replay(**replay))], remove


def refuse_nested_root(layout: Layout) -> None:
    """Raise UsageError if a new root in a bucket is within another one, or directly around one."""
    root = layout.root
    is_new = isinstance(root, ObjectPath) and read_format(layout) is None
    for other in (*root.parents, *root.children()) if is_new else ():
        if Layout(other).format.is_stored():
            raise UsageError(
                f"{root} cannot be a new lakehouse: {other} is one, and they would read each "
                "other's files. Name a prefix beside it in MEDALLION_HOME."
            )


def _upgrade_format(config: Config, command: str, report: Reporter) -> None:
    """Upgrade a lakehouse of an earlier release; safe to repeat after a kill at any write."""
    layout = config.layout
    if (version := read_format(layout)) == FORMAT:
        return
    refuse_nested_root(layout)
    # Processes of that release, which hold these locks, may use what is converted.
    with locks.lock_layers(layout, LAYERS, command):
        for entries, remove in [*_older_documents(config)]:
            for entry in entries:
                write_entry(layout, entry)
            remove()
        write_format(layout)
    if version is not None:
        report(f"upgraded  {layout.root} from format {version} to {FORMAT}")
