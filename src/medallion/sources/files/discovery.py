"""What has come, changed or gone since a source's folders were last listed."""

from __future__ import annotations

import filecmp
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from medallion.config.model import Config, SourceConfig
from medallion.ops.ledger import (
    ARCHIVED,
    INGESTED,
    PENDING,
    REJECTED,
    TAKEN,
    VANISHED,
    Entry,
    Ledger,
)
from medallion.sources.files import handover, reject, requests
from medallion.sources.files.listing import (
    File,
    Listing,
    Unfit,
    below_folder,
    free_name,
    in_order,
    is_there,
    list_files,
    missing,
    stat,
)
from medallion.sources.files.moving import PRIVATE, put_back
from medallion.sources.files.requests import Request

# A hidden file is mostly one that is being written, and is shown under its name within moments.
HIDDEN_FOR = 60_000_000
_HIDDEN = (
    "hidden: its name or its folder's begins with . or _, or it ends with ._COPYING_; rename it to "
    "have it taken in, and where it is a backfill's, ask for that again"
)
_GONE = "gone before it was taken in"
_LISTED = "a folder that can be listed again; where it is a backfill's, ask for that again"
_NOT_AGAIN = (
    "a file of this name was taken in before, and this is another one: give it a name of its own, "
    "or set allow_overwrites"
)
_THE_SAME = "the same file as was taken in before: its rows are there, and it is left out"
_NOTHING_TO_COMPARE = (
    "a file of this name, size and time was taken in before, and is not there to compare this one "
    "with: if it is another one, give it a name of its own"
)
_PUT_AWAY = "the same file as {}, where it landed: its rows are there, and it is left out"


class Discovery:
    """Lists a source's folders, and hands over to bronze what is new in them."""

    def __init__(
        self, config: Config, source: SourceConfig, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._config, self._source, self._say = config, source, say
        self.ledger = Ledger(config.layout, source.name)
        self._missing: set[Path] = set()

    def poll(self) -> int:
        """Hand over the new files, put on record what became of the others; how many are new."""
        layout, now = self._config.layout, time.time_ns() // 1000
        gone = missing(layout, self._source)
        for folder in sorted(gone - self._missing):
            self._say(f"  {self._source.name}: {_printable(str(folder))}: there is no such folder")
        self._missing = gone
        asked = requests.waiting(layout, self._source.name)
        listing = self._whole_listing(asked)
        fresh: list[Entry] = []
        told: list[Entry] = []
        for entry in self._judged(listing, now):
            (fresh if _is_to_hand_over(entry) else told).append(entry)
        told += [self._seen(f, now, _HIDDEN) for f in self._left(listing.hidden, asked, now)]
        unfit = [self._rejected(unfit, now) for unfit in listing.unfit]
        listed = {file.path for file in (*listing.files, *listing.hidden)}
        told += self._vanished(listed)
        versions = {entry.path: entry.version for entry in fresh}
        handed = [(f, versions[f.path]) for f in in_order(tuple(e.file for e in fresh))]
        # The handing over comes first. A run that is cut off here hands the files over again, and
        # bronze leaves out what the ledger says is taken in; the other way round they would be
        # known, and never come.
        handover.hand_over(layout.intake(self._source.name), self._source, handed)
        changed = [entry for entry in told if self.ledger.newest(entry.path) != entry]
        unfit = [entry for entry in unfit if self.ledger.newest(entry.path) != entry]
        for entry in (*changed, *unfit):
            if entry.why:
                told_of = _printable(entry.path)
                self._say(f"  {self._source.name}: {told_of}: {entry.state}: {entry.why}")
        self.ledger.write([*fresh, *changed])
        reject.put_aside(layout, self._source, self.ledger, unfit)
        for request in asked:
            if not os.path.lexists(request.path):
                path = _printable(str(request.path))
                self._say(f"  {self._source.name}: backfill of {path}: it is not there any more")
            request.done()
        return len(fresh)

    def backlog(self) -> list[File]:
        """The files that wait to be taken in, seen before or not; nothing is written."""
        now = time.time_ns() // 1000
        layout = self._config.layout
        entries = {e.path: e for e in self.ledger.all_newest()}
        listing = self._listing(requests.waiting(layout, self._source.name))
        entries |= {entry.path: entry for entry in self._judged(listing, now)}
        waiting = [entry.path for entry in entries.values() if _is_to_hand_over(entry)]
        return [found for path in waiting if (found := stat(layout, path))]

    def _whole_listing(self, asked: Sequence[Request]) -> Listing:
        """What lies there, and what a run that was cut off had just taken away to move it."""
        listing = self._listing(asked)
        left = [file for file in listing.hidden if Path(file.path).parent.name == PRIVATE]
        for file in left:
            put_back(self._config.layout.root / file.path)
        return self._listing(asked) if left else listing

    def _listing(self, asked: Sequence[Request]) -> Listing:
        """What lies in the folders, what is asked for, and what waits elsewhere since it was."""
        layout = self._config.layout
        listing = list_files(layout, self._source)
        if asked:
            listing += list_files(layout, self._source, [request.path for request in asked])
        listed = {file.path for file in (*listing.files, *listing.hidden)}
        waiting = [
            found
            for entry in self.ledger.all_newest()
            if entry.state == PENDING and not _is_hidden(entry) and entry.path not in listed
            if below_folder(layout, self._source, layout.root / entry.path) is None
            if (found := stat(layout, entry.path))
        ]
        return listing + Listing(tuple(waiting), (), ())

    def _judged(self, listing: Listing, now: int) -> list[Entry]:
        """The new rows of the listed files; what was put away from a source does not come back."""
        found = [entry for file in listing.files if (entry := self._judge(file, now))]
        places = {entry.path for entry in found}
        moved = (e for e in self.ledger.every() if e.moved_to in places and e.state in TAKEN)
        landed = {File(str(e.moved_to), e.size, e.modified_at): e.path for e in moved}
        return [
            replace(e, state=REJECTED, why=_PUT_AWAY.format(landed[e.file]))
            if e.file in landed
            else e
            for e in found
        ]

    def _judge(self, file: File, now: int) -> Entry | None:
        """The new row of a listed file; None where there is nothing new about it."""
        known, why = self.ledger.newest(file.path), None
        if known is not None and known.file == file:
            if known.state == ARCHIVED:  # it had gone, and is there again
                why = self._why_the_same(known)
            elif not self._is_open(known):
                return None
        seen = self._seen(file, now, self._is_being_written(file, now))
        # Not only the newest version counts: the one before may be a refused namesake, too.
        if why is None and not self._source.allow_overwrites and self.ledger.before(seen):
            why = _NOT_AGAIN
        return replace(seen, state=REJECTED, why=why) if why else seen

    def _is_open(self, known: Entry) -> bool:
        """Whether a file that is as the ledger has it is to be looked at once more."""
        if known.state == REJECTED:
            # Somebody has put it back, or has done what its reason told.
            allowed = known.why == _NOT_AGAIN and self._source.allow_overwrites
            return known.moved_to is not None or allowed
        return known.state == VANISHED or (known.state == PENDING and known.why is not None)

    def _why_the_same(self, archived: Entry) -> str | None:
        """Why a file is left out that looks like the archived one of its name; None if it is not.

        Whoever copies a whole folder every night brings back what was moved away from here.
        """
        if archived.moved_to is None:
            return _NOTHING_TO_COMPARE
        root = self._config.layout.root
        filecmp.clear_cache()  # it goes by sizes and times, which tell nothing here
        try:
            is_same = filecmp.cmp(root / archived.path, root / archived.moved_to, shallow=False)
        except OSError:
            return _NOTHING_TO_COMPARE
        return _THE_SAME if is_same else None

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
        if quiet is None or now - file.modified_at >= quiet.micros:
            return None
        return f"still being written: taken in once it has not changed for {quiet}"

    def _left(self, hidden: Iterable[File], asked: Sequence[Request], now: int) -> list[File]:
        """Hidden files to tell of; those that are asked for at once, for nobody looks again."""
        folders = [request.path for request in asked]
        root = self._config.layout.root
        left = []
        for file in hidden:
            known = self.ledger.newest(file.path)
            is_old = now - file.modified_at > HIDDEN_FOR
            is_asked = any((root / file.path).is_relative_to(folder) for folder in folders)
            if (is_old or is_asked) and (known is None or known.file != file):
                left.append(file)
        return left

    def _rejected(self, unfit: Unfit, now: int) -> Entry:
        if unfit.is_unseen:
            return self._unseen(unfit, now)
        path = self._renamed(unfit.path)
        known = self.ledger.newest(path)
        if known is not None and known.state == REJECTED and known.moved_to is None:
            return known  # it could not be moved
        return replace(self._seen(File(path, 0, now), now, unfit.why), state=REJECTED)

    def _unseen(self, unfit: Unfit, now: int) -> Entry:
        """The row of what waits for a look at it; what is known about its file stands."""
        known = self.ledger.newest(unfit.path)
        if known is not None and known.state == PENDING:
            return replace(known, why=unfit.why)
        # Either the file of that row is still there, or was moved and this is another one.
        if known and known.moved_to is None and known.state in (INGESTED, REJECTED):
            return known
        return self._seen(File(unfit.path, 0, now), now, unfit.why)

    def _renamed(self, path: str) -> str:
        """A path that a table can hold; where it is none, its file gets one."""
        spelled = path.encode(errors="backslashreplace").decode()
        if spelled == path:
            return path
        root = self._config.layout.root
        target = free_name(root / spelled)
        with suppress(OSError):
            target.parent.mkdir(parents=True, exist_ok=True)
            (root / path).rename(target)
        return self._config.layout.relative(target)

    def _vanished(self, listed: set[str]) -> list[Entry]:
        """Files that were never taken in, and are not there any more."""
        root = self._config.layout.root
        return [
            replace(entry, state=VANISHED, why=_LISTED if (root / entry.path).is_dir() else _GONE)
            for entry in self.ledger.all_newest()
            if entry.state == PENDING
            and entry.path not in listed
            and not is_there(root / entry.path)
        ]


def _is_to_hand_over(entry: Entry) -> bool:
    return entry.state == PENDING and entry.why is None


def _is_hidden(entry: Entry) -> bool:
    return (entry.why or "").startswith("hidden:")


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
