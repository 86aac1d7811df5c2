"""The note of an idle run in a bucket, with which the next run needs about a dozen requests.

A nightly run after which nothing is left to do notes what it saw, and what an idle run prints. The
next run prints that if it sees the same: configuration, landed files, tables, requested backfills,
and the newest lease of each layer, as each command that writes takes a new one before. Changes that
other programs make within a table are noticed when the note expires, after a day.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from medallion.config.model import Config
from medallion.config.operations import Login, OnFailure
from medallion.config.queries import layers_in_use, queries
from medallion.inspect import freshness
from medallion.runtime import planner
from medallion.runtime.outcome import Outcome
from medallion.state import pending_work, runs
from medallion.storage import clock, leases, objects
from medallion.storage.paths import ObjectPath


@dataclass(frozen=True)
class IdleNote:
    """A note.

    Attributes:
        state: the digest of what the run saw, see `digest_state`.
        leases: the name of the newest lease of each layer in use.
        until: when it expires, in microseconds since 1970.
        printed: what an idle run prints, by kind.
        runs: rows for `ops.runs` of the runs that used the note, which the next full run records.
    """

    state: str
    leases: Sequence[str]
    until: int
    printed: Mapping[str, Any]
    runs: Sequence[Mapping[str, Any]] = ()


@objects.remembering(answers=False)
def digest_state(config: Config) -> str:
    """Return a digest of the configuration, of the landed files, and of the names of tables.

    It is empty if runs leave no notes: on a disk, where requests cost nothing, with messages, whose
    offsets the brokers know, and with a file of metrics, which needs all figures.
    """
    layout, sources = config.layout, config.sources.values()
    has_stream = any(source.stream for source in sources)
    landing, schemas = layout.landing(""), {q.layer for q in queries(config)} | {"quarantine"}
    others = {folder for source in sources for folder in source.folders_in(layout)}
    folders = sorted({landing, *(each for each in others if each.below(landing) is None)})
    are_objects = all(isinstance(each, ObjectPath) for each in folders)
    if not are_objects or has_stream or config.metrics_file:
        return ""
    with suppress(OSError):  # which the run reports
        seen = (
            replace(config, login=Login(), on_failure=OnFailure()),
            pending_work.settings_digests(config),
            layout.journal.names(),
            [(layout.root / schema).names() for schema in sorted(schemas)],
            [(each.info(), objects.list_objects(each.address)) for each in folders],
        )
        return hashlib.sha256(repr(seen).encode(errors="surrogateescape")).hexdigest()
    return ""


def find_note(config: Config) -> IdleNote | None:
    """Return the note of a lakehouse, if there is one."""
    if isinstance(config.layout.root, ObjectPath):
        with suppress(OSError, ValueError, TypeError):  # without a note, the run is a full one
            return IdleNote(**json.loads(config.layout.idle_note.read()))
    return None


def is_true(config: Config, note: IdleNote, state: str) -> bool:
    """Return whether nothing has changed since a note was written.

    Args:
        state: the result of `digest_state`, which was called before.
    """
    newest = (leases.newest(config.layout.lock(layer)) for layer in layers_in_use(config))
    names = [path.name if path else "" for path in newest]
    return (note.state, note.leases) == (state, names) and clock.now_micros() <= note.until


def state_if_idle(config: Config) -> str:
    """Return the state after a run, whose locks are held; empty if something is left to do."""
    with suppress(Exception):  # the next run meets it again and reports it
        state = digest_state(config)
        plan = planner.plan_run(config, runs.RunRecords(config.layout)) if state else None
        if plan and planner.end_if_idle(config, plan, lambda _: None):
            return state
    return ""


def write_note(
    config: Config, state: str, held: Sequence[str], outcome: Outcome, printed: Mapping[str, Any]
) -> None:
    """Note a run after which nothing is left to do, or remove the note of an earlier one.

    Args:
        state: the state before it was found that nothing is left to do; empty if something is.
        held: the leases under which that was found.
        outcome: the outcome of the run.
        printed: what an idle run prints.
    """
    if state and outcome.is_good and not outcome.seen.files.pending:
        until = freshness.fresh_until(config, outcome.seen.run_state)
        note = IdleNote(state, held, min([clock.now_micros() + clock.DAY, *until]), printed)
        _write(config, note)
    elif isinstance(config.layout.root, ObjectPath):
        config.layout.idle_note.delete()


def record_use(config: Config, note: IdleNote, started_at: int, seconds: float) -> None:
    """Add the row of a run that used a note to the note."""
    row = runs.run_row("run", runs.NIGHTLY, runs.IDLE, started_at, seconds)
    row |= {"run_id": uuid.uuid4().hex, "command": runs.NIGHTLY}
    _write(config, replace(note, runs=[*note.runs, row]))


def _write(config: Config, note: IdleNote) -> None:
    with suppress(OSError):  # the next run is a full one then
        config.layout.idle_note.write_atomic(json.dumps(asdict(note), default=str))
