"""What has come, changed or gone since a source's folders were last listed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence

from medallion.config.model import Config, SourceConfig
from medallion.ingest.files import handover, requests
from medallion.ingest.files.listing import (
    NEVER_READ,
    Listing,
    below_folder,
    is_there,
    list_files,
    stat,
)
from medallion.ingest.files.requests import Request
from medallion.ingest.files.versions import Versions, is_to_hand_over
from medallion.state import pending_work
from medallion.state.ledger import PENDING, VANISHED, Entry, File, Ledger, Reason, ReasonCode
from medallion.storage import clock
from medallion.storage.text import Reporter, printable

_SHOWN = 20
_GONE = Reason(ReasonCode.GONE, "gone before it was taken in")
_LISTED = Reason(
    ReasonCode.LISTED_AGAIN,
    "a folder that can be listed again; where it is a backfill's, ask for that again",
)
_RENAMED = Reason(
    ReasonCode.RENAMED,
    "not there any more under this name, by which it was not to be taken in",
)


class Discovery:
    """Lists a source's folders, and hands over to bronze what is new in them."""

    def __init__(
        self, config: Config, source: SourceConfig, say: Reporter = lambda _: None
    ) -> None:
        self._config, self._source, self._say = config, source, say
        self.ledger = Ledger(config.layout, source.name)

    def poll(self) -> int:
        """Hand over the new files, enter what became of the others; how many are new."""
        layout, source = self._config.layout, self._source
        asked, listing, judged = self._classified()
        fresh = [entry for entry in judged if is_to_hand_over(entry)]
        told = [entry for entry in judged if not is_to_hand_over(entry)]
        told += self._vanished(listing.paths)
        # The handing over comes first. A run that is cut off here hands the files over again, and
        # bronze leaves out what the ledger says is taken in; the other way round they would be
        # known, and never come.
        handover.hand_over(layout, source, fresh)
        self.ledger.write([*fresh, *self._changed(told)])
        self._close(asked)
        return len(fresh)

    def has_new_files(self) -> bool:
        """Return whether `poll` would enqueue a file; write nothing."""
        return any(map(is_to_hand_over, self._classified()[2]))

    def _classified(self) -> tuple[list[Request], Listing, list[Entry]]:
        """Return the open requests, the listing, and a ledger entry for each file of it."""
        layout, source = self._config.layout, self._source
        asked = list(requests.waiting(layout, source.name))
        listing = self._listing(asked)
        versions = Versions(layout, source, self.ledger, clock.now_micros(), asked, self._lost())
        return asked, listing, list(versions.judged(listing))

    def _lost(self) -> set[tuple[str, int]]:
        """Paths and versions that wait in the ledger, and that bronze will never read.

        Either bronze has passed them, because the file had changed just then, and has changed back
        since. Or they are gone from the table of what was handed over, because a torn commit was
        moved away.
        """
        layout, name = self._config.layout, self._source.name
        waiting = {(e.path, e.version) for e in self.ledger.newest_entries() if is_to_hand_over(e)}
        if waiting and pending_work.has_input(self._config, f"bronze.{name}", layout.intake(name)):
            return set()  # it may be among what is still to be read
        return waiting

    def _changed(self, entries: Iterable[Entry]) -> list[Entry]:
        """The rows that the ledger does not have like this yet; of each its reason is told, unless
        many have the same, as in a lakehouse that was copied without the files' times."""
        changed = [entry for entry in entries if self.ledger.newest(entry.path) != entry]
        source, alike = self._source.name, Counter[tuple[str, str]]()
        for entry in (entry for entry in changed if entry.why):
            alike[entry.state, str(entry.why)] += 1
            if alike[entry.state, str(entry.why)] <= _SHOWN:
                self._say(f"  {source}: {printable(entry.path)}: {entry.state}: {entry.why}")
        for (state, _), files in alike.items():
            if files > _SHOWN:
                told = f"and {files - _SHOWN:,} more {state}, for the same"
                self._say(f"  {source}: {told} (medallion files --state {state})")
        return changed

    def _close(self, asked: Iterable[Request]) -> None:
        """Forget what was asked for: its files are handed over."""
        for request in asked:
            if not os.path.lexists(request.path):
                self._say(
                    f"  {self._source.name}: backfill of {printable(str(request.path))}: it is "
                    "not there any more"
                )
            request.done()

    def backlog(self) -> list[File]:
        """The files that wait to be taken in, seen before or not; nothing is written."""
        layout, source, now = self._config.layout, self._source, clock.now_micros()
        asked = requests.waiting(layout, source.name)
        judged = Versions(layout, source, self.ledger, now, asked).judged(self._listing(asked))
        entries = {entry.path: entry for entry in (*self.ledger.newest_entries(), *judged)}
        waiting = [entry.path for entry in entries.values() if is_to_hand_over(entry)]
        return [found for path in waiting if (found := stat(layout, path))]

    def _listing(self, asked: Sequence[Request]) -> Listing:
        """What lies in the folders, what is asked for, and what waits elsewhere since it was."""
        layout, source = self._config.layout, self._source
        starts = [*source.folders_in(layout), *(request.path for request in asked)]
        listing = list_files(layout, source, starts)
        listed = listing.paths
        for entry in self.ledger.newest_entries():
            is_waiting = entry.state == PENDING and not _is_passed_over(entry)
            if is_waiting and entry.path not in listed:
                is_elsewhere = below_folder(layout, source, layout.root / entry.path) is None
                if is_elsewhere and (found := stat(layout, entry.path)):
                    listing.files[entry.path] = found
        return listing

    def _vanished(self, listed: set[str]) -> list[Entry]:
        """Files that were never taken in, and are not there any more."""
        root = self._config.layout.root
        return [
            entry.with_state(VANISHED, self._why_vanished(entry))
            for entry in self.ledger.newest_entries()
            if entry.state == PENDING
            and entry.path not in listed
            and not is_there(root / entry.path)
        ]

    def _why_vanished(self, entry: Entry) -> Reason:
        if (self._config.layout.root / entry.path).is_dir():
            return _LISTED
        return _RENAMED if _is_passed_over(entry) else _GONE


def is_lost(entry: Entry) -> bool:
    """Whether a file went that was to be taken in: a hidden one has mostly come by its name."""
    is_known = entry.reason_code in (ReasonCode.LISTED_AGAIN, ReasonCode.RENAMED)
    return entry.state == VANISHED and not is_known


def _is_passed_over(entry: Entry) -> bool:
    """Whether it is not taken in by its name; where it came in the place of a file, the size of
    that stands."""
    is_never_read = entry.reason_code in NEVER_READ and not entry.size
    return entry.reason_code == ReasonCode.HIDDEN or is_never_read
