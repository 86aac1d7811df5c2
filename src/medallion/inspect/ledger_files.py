"""Files of the ledger: those that match a pattern, and those that need the user's attention.

A file needs attention if it was rejected, has waited too long, or was written after it was read,
until it is ingested or acknowledged (`medallion files --dismiss`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from operator import attrgetter

from medallion.config.model import Config
from medallion.errors import UsageError
from medallion.ingest.files import archive
from medallion.ingest.schema import registry
from medallion.inspect.problems import Problem, ProblemCode
from medallion.state import ledger
from medallion.state.ledger import Entry, ReasonCode, State
from medallion.storage import clock
from medallion.storage.paths import StoragePath
from medallion.storage.text import counted

# A file with one of these waits until it or the settings change.
FOR_THE_USER = (ReasonCode.CSV_HEADER, ReasonCode.MULTI_LINE)
FOLDERS = (ReasonCode.FOLDER_MISSING, ReasonCode.FOLDER_UNREADABLE)
_DISMISS = "acknowledge it with medallion files --dismiss PATTERN (its path, or a glob)"
_REMEDIES: Mapping[str, str] = {
    ReasonCode.UNREADABLE: "land a repaired file",
    ReasonCode.NAME_TAKEN: "rename it if it has other rows, and delete it if it is a copy",
    ReasonCode.GREW: "land the new lines under a new name",
    ReasonCode.CHANGED_IN_ARCHIVE: "land the new lines under a new name",
}


@dataclass(frozen=True)
class Attention:
    """Entries of the ledger that are not acknowledged, each with its reason.

    Attributes:
        rejected: files whose rows are not in bronze.
        waiting: files that have waited with a reason for more than a day, or wait for the user.
        changed: archived files that were written after they were read.
        malformed: ingested files without one line that fits the format.
        folders: directories that are missing or cannot be listed: an error in each run.
        pending: the number of pending files.
        not_compared: the number of older archived files whose sizes were not compared.
    """

    rejected: tuple[Entry, ...] = ()
    waiting: tuple[Entry, ...] = ()
    changed: tuple[Entry, ...] = ()
    malformed: tuple[Entry, ...] = ()
    folders: tuple[Entry, ...] = ()
    pending: int = 0
    not_compared: int = 0

    @property
    def files(self) -> list[Entry]:
        """Return all files that need attention."""
        return [*self.rejected, *self.waiting, *self.changed]

    @property
    def unreported(self) -> list[Entry]:
        """Return the files that no completed run has reported with status 1 yet."""
        return [entry for entry in self.files if entry.reported_at is None]

    @property
    def has_failures(self) -> bool:
        """Return whether a run that completes now ends with status 1."""
        return bool(self.folders or self.unreported)


def find_attention(config: Config) -> Attention:
    """Read the ledger once, and compare the sizes of the archived files with it; no JVM.

    Raises:
        MedallionError: the ledger cannot be read.
    """
    entries = _entries_of_sources(config)
    listed = [entry for entry in entries if entry.dismissed_at is None]
    waiting = [e for e in listed if e.state == State.PENDING and e.reason_code is not None]
    due = clock.now_micros() - clock.DAY
    malformed = ledger.malformed_entries(config.layout)
    changed, not_compared = archive.find_changed_archived_files(config)
    return Attention(
        rejected=tuple(_rejected(config, listed)),
        waiting=tuple(
            entry
            for entry in waiting
            if entry.reason_code in FOR_THE_USER
            or (entry.reason_code not in FOLDERS and entry.first_seen_at < due)
        ),
        changed=tuple(entry for entry in changed if entry.dismissed_at is None),
        malformed=tuple(e for e in malformed if e.source in config.sources and not e.dismissed_at),
        folders=tuple(e for e in waiting if e.reason_code in FOLDERS),
        pending=sum(entry.state == State.PENDING for entry in entries),
        not_compared=not_compared,
    )


def file_problems(files: Attention) -> Iterator[Problem]:
    """Yield a problem for the files of each source and reason, and one for each folder."""
    groups = {
        ProblemCode.REJECTED: files.rejected,
        ProblemCode.WAITING: files.waiting,
        ProblemCode.CHANGED: files.changed,
    }
    for code, entries in groups.items():
        for (source, reason, is_reported), group in groupby(sorted(entries, key=_group), _group):
            listed = list(group)
            first, more = listed[0], len(listed) - 1
            count = f"{counted(len(listed), 'file')}, such as " if more else ""
            moved = f"; it is in {first.moved_to}" if first.moved_to else ""
            sentence = f"{count}{first.path}: {first.why}{moved}"
            if more and code is not ProblemCode.CHANGED:
                sentence += f"; medallion files --state {first.state} names all"
            remedy = f"{_REMEDIES.get(reason) or 'do what the reason asks for'}, or {_DISMISS}"
            detail = f"{reason}, {first.path}{f' and {more:,} more' if more else ''}"
            yield Problem(code, source, sentence, remedy, detail, is_reported)
    for folder in files.folders:
        remedy = "create it, permit it, or remove it from folders in pipeline.yaml"
        sentence = f"no files were read from {folder.path}: {folder.why}"
        yield Problem(ProblemCode.FOLDER, folder.path, sentence, remedy)


def malformed_problems(config: Config, files: Attention) -> Iterator[Problem]:
    """Yield the sources with files of malformed lines; without other files they have no schema."""
    by_source = attrgetter("source")
    for name, group in groupby(sorted(files.malformed, key=by_source), by_source):
        listed, source = list(group), config.sources[name]
        count = counted(len(listed), "file")
        has_schema = registry.has_known_columns(config, source)
        code = ProblemCode.MALFORMED if has_schema else ProblemCode.NO_SCHEMA
        problem = f"no line is a row of {source.format}"
        sentence = f"{count}, such as {listed[0].path}: {problem}"
        remedy = (
            f"see _corrupt_record in bronze.{name}, correct format or options of the source, and "
            f"run medallion refresh bronze.{name}; or {_DISMISS}"
        )
        yield Problem(code, name, sentence, remedy, f"{count}: {problem}")


def _group(entry: Entry) -> tuple[str, str, bool]:
    return entry.source, entry.reason_code or "", entry.reported_at is not None


def rejected_files(config: Config) -> Counter[str]:
    """Return the number of rejected files by source, without acknowledged ones."""
    return Counter(entry.source for entry in _rejected(config, _entries_of_sources(config)))


def _rejected(config: Config, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the rejected files whose rows are missing, and that are not acknowledged.

    No row is missing of a copy of an ingested file. A file that the user has deleted is settled.
    """
    for entry in entries:
        is_copy = entry.reason_code == ReasonCode.SAME_FILE
        if not entry.is_refused or is_copy or entry.dismissed_at is not None:
            continue
        file = config.layout.root / (entry.moved_to or entry.path)
        is_deleted = file.parent.is_stored() and not file.is_stored()
        if not is_deleted and not _is_ingested(config, entry, file):
            yield entry


def _is_ingested(config: Config, entry: Entry, file: StoragePath) -> bool:
    """Return whether the content of a rejected file was ingested under another name."""
    for other in ledger.ingested_of_size(config.layout, entry.source, entry.size):
        with suppress(OSError):
            if file.has_same_bytes(config.layout.root / (other.moved_to or other.path)):
                return True
    return False


def _entries_of_sources(config: Config) -> list[Entry]:
    return [e for e in ledger.entries_not_ingested(config.layout) if e.source in config.sources]


def find_files(config: Config, pattern: str, source: str | None, state: str | None) -> list[Entry]:
    """Return the entries of the ledger whose path matches a pattern.

    Args:
        pattern: a glob of a path below the root, or of its end.
        source: the name of a source; None for all.
        state: a state of the ledger; None for all.

    Raises:
        UsageError: the source or the state is unknown.
    """
    if source is not None:
        config.source(source)
    if state is not None and state not in list(ledger.State):
        raise UsageError(f"--state {state}: a state is one of {', '.join(ledger.State)}.")
    return matching_files(config, ledger.read_entries(config.layout, source, state), pattern)


def matching_files(config: Config, entries: Iterable[Entry], pattern: str) -> list[Entry]:
    """Return the entries whose files landed, or are stored now, at a path like the pattern.

    Args:
        entries: entries of the ledger.
        pattern: a glob of a path below the root, or of its end.
    """
    pattern = config.layout.normalize(pattern)
    return [e for e in entries if any(_is_like(p, pattern) for p in (e.path, e.moved_to) if p)]


def _is_like(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"*/{pattern}")
