"""What has come, changed or gone since a source's folders were last listed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from medallion.config import Config, Source, seconds
from medallion.ingest import intake, rejects
from medallion.ingest.files import File, Unfit, in_order, list_files
from medallion.ingest.ledger import PENDING, REJECTED, TAKEN, VANISHED, Entry, Ledger

# A hidden file is mostly one that is being written, and is shown under its name within moments.
HIDDEN_FOR = 60_000_000
_HIDDEN = "hidden: its name begins with . or _; rename it to have it taken in"
_NOT_AGAIN = (
    "a file of this name was taken in before, and this is another one: give it a name of its own, "
    "or set allow_overwrites"
)


class Discovery:
    """Lists a source's folders, and hands over to bronze what is new in them."""

    def __init__(
        self, config: Config, source: Source, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._config, self._source, self._say = config, source, say
        self.ledger = Ledger(config.layout, source.name)

    def poll(self) -> int:
        """Hand over the new files, put on record what became of the others; how many are new."""
        layout, now = self._config.layout, time.time_ns() // 1000
        listing = list_files(layout, self._source)
        fresh: list[Entry] = []
        told: list[Entry] = []
        for file in listing.files:
            entry = self._judge(file, now)
            if entry is not None:
                (fresh if _is_to_hand_over(entry) else told).append(entry)
        told += [self._seen(f, now, _HIDDEN) for f in listing.hidden if self._is_left(f, now)]
        told += [self._rejected(unfit, now) for unfit in listing.unfit]
        listed = {file.path for file in (*listing.files, *listing.hidden)}
        told += self._vanished(listed)
        versions = {entry.path: entry.version for entry in fresh}
        handed = [(f, versions[f.path]) for f in in_order(tuple(e.file for e in fresh))]
        # The handing over comes first. A run that is cut off here hands the files over again, and
        # bronze leaves out what the ledger says is taken in; the other way round they would be
        # known, and never come.
        intake.hand_over(layout.intake(self._source.name), self._source, handed)
        changed = [entry for entry in told if self.ledger.newest(entry.path) != entry]
        for entry in changed:
            if entry.why:
                self._say(f"  {self._source.name}: {entry.path}: {entry.state}: {entry.why}")
        self.ledger.write([*fresh, *changed])
        return len(fresh)

    def backlog(self) -> list[File]:
        """The files that wait to be taken in, seen before or not; nothing is written."""
        now = time.time_ns() // 1000
        waiting = {e.path: e.file for e in self.ledger.all_newest() if _is_to_hand_over(e)}
        for file in list_files(self._config.layout, self._source).files:
            entry = self._judge(file, now)
            if entry is not None and _is_to_hand_over(entry):
                waiting[entry.path] = entry.file
        return list(waiting.values())

    def _judge(self, file: File, now: int) -> Entry | None:
        """The new row of a listed file; None where there is nothing new about it."""
        known = self.ledger.newest(file.path)
        waits = self._is_being_written(file, now)
        if known is None:
            return self._seen(file, now, waits)
        is_same = known.file == file
        if is_same and not (known.state == PENDING and known.why):
            return None if known.state not in (VANISHED,) else self._seen(file, now, waits)
        if known.state == PENDING and waits:
            return replace(known, size=file.size, modified_at=file.modified_at, why=waits)
        if known.state in TAKEN and not self._source.allow_overwrites:
            return replace(self._seen(file, now, _NOT_AGAIN), state=REJECTED)
        return self._seen(file, now, waits)

    def _seen(self, file: File, now: int, why: str | None) -> Entry:
        """A row for a file that is to be taken in, or waits with a reason."""
        known = self.ledger.newest(file.path)
        version, first_seen = 1, now
        if known is not None:
            is_open = known.state == PENDING
            version = known.version if is_open else known.version + 1
            first_seen = known.first_seen_at if is_open else now
        return Entry(
            self._source.name, file.path, version, file.size, file.modified_at, first_seen, why=why
        )

    def _is_being_written(self, file: File, now: int) -> str | None:
        quiet = self._source.quiet_period
        if quiet is None or now - file.modified_at >= seconds(quiet) * 1_000_000:
            return None
        return f"still being written: taken in once it has not changed for {quiet}"

    def _is_left(self, hidden: File, now: int) -> bool:
        known = self.ledger.newest(hidden.path)
        return now - hidden.modified_at > HIDDEN_FOR and (known is None or known.file != hidden)

    def _rejected(self, unfit: Unfit, now: int) -> Entry:
        moved = rejects.move(self._config.layout, self._source, unfit.path, unfit.why)
        known = self.ledger.newest(unfit.path)
        if known is not None and known.state == REJECTED and moved is None:
            return known
        entry = self._seen(File(unfit.path, 0, now), now, unfit.why)
        return replace(entry, state=REJECTED, moved_to=moved)

    def _vanished(self, listed: set[str]) -> list[Entry]:
        """Files that were never taken in, and are not there any more."""
        layout = self._config.layout
        return [
            replace(entry, state=VANISHED, why="gone before it was taken in")
            for entry in self.ledger.all_newest()
            if entry.state == PENDING
            and entry.path not in listed
            and not (layout.root / entry.path).exists()
        ]


def _is_to_hand_over(entry: Entry) -> bool:
    return entry.state == PENDING and entry.why is None
