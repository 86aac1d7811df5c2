"""What was reported, and what the user has acknowledged, written to the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from medallion.config.model import Config
from medallion.errors import UsageError
from medallion.inspect import ledger_files
from medallion.inspect.ledger_files import Attention
from medallion.state.ledger import Entry, Ledger
from medallion.storage import clock, locks
from medallion.storage.paths import Layout


def record_reported(config: Config, files: Attention, command: str) -> None:
    """Record that a run has ended with status 1 for these files: later ones only warn.

    If another process holds bronze by now, the next run reports them once more.
    """
    if files.unreported:
        now = clock.now_micros()
        with suppress(UsageError), locks.lock_layers(config.layout, ["bronze"], command):
            _write(config.layout, (replace(e, reported_at=now) for e in files.unreported))


def dismiss(config: Config, pattern: str, source: str | None) -> list[Entry]:
    """Acknowledge the files that are reported and match a pattern, as `medallion files` takes it.

    Raises:
        UsageError: none matches, there is no such source, or another process writes bronze.
    """
    if source is not None:
        config.source(source)
    with locks.lock_layers(config.layout, ["bronze"], "files --dismiss"):
        found = ledger_files.find_attention(config)
        listed = [e for e in (*found.files, *found.folders) if source in (None, e.source)]
        now = clock.now_micros()
        dismissed = [
            replace(entry, reported_at=entry.reported_at or now, dismissed_at=now)
            for entry in ledger_files.matching_files(config, listed, pattern)
        ]
        if not dismissed:
            raise UsageError(
                f"--dismiss {pattern}: no file that is reported matches it; medallion status "
                "names those that are."
            )
        _write(config.layout, dismissed)
    return dismissed


def _write(layout: Layout, entries: Iterable[Entry]) -> None:
    by_source: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_source[entry.source].append(entry)
    for source, rows in by_source.items():
        Ledger(layout, source).write(rows)
