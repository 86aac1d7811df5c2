"""Whether a table is an older copy, which somebody has put back while checkpoints and records are
those of today.

Its next commits have versions that its readers are past already: they would never see the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from medallion.config.model import Config
from medallion.config.queries import queries
from medallion.errors import MedallionError
from medallion.lakehouse import log, tables
from medallion.ops.runs import Runs
from medallion.spark import checkpoints

_READ = "read"


def refusal(config: Config, runs: Runs, name: str) -> str | None:
    """Why a query cannot go on beside the tables that it reads and writes; None where it can.

    Bronze too: what it added to an older copy would be gone once the newer one is put back.
    """
    query = next(query for query in queries(config) if query.name == name)
    checkpoint, table = config.layout.checkpoint(name), config.layout.table
    why = [
        f"{upstream} is an older copy than what it has read, and new rows would be passed over"
        for upstream in query.upstream
        if has_read_more(checkpoint, table(upstream))
    ]
    # Bronze and gold have one target, and silver its quarantine beside it.
    recorded = runs.standing.sums_of(name).versions
    why += [
        f"{target} is an older copy than what is on record"
        for target, version in zip(query.targets, recorded, strict=False)
        if tables.exists(table(target)) and version > tables.version(table(target))
    ]
    if not why:
        return None
    anew = f"medallion refresh {name} begins anew with what is there"
    # Which has nothing to be built from, and a ledger that knows what is not in it any more.
    again = "ops/ as old as it, and medallion audit --deep says what has to land again"
    return (
        f"{name} cannot go on, for {'; '.join(why)}: put the newer one back, or "
        f"{anew if query.upstream else again}."
    )


def has_read_more(checkpoint: Path, table: Path) -> bool:
    """Whether a query has read commits that a table does not have: its version is lower than what
    was read, or another commit has the version of the last one that was noted as read."""
    if not tables.exists(table):
        return False
    batches = checkpoints.last_begun(checkpoint), checkpoints.last_committed(checkpoint)
    try:
        read = max(_last_read(checkpoint, batch, table) for batch in batches)
    except MedallionError:  # torn, which its query repairs or refuses
        return False
    if read > tables.version(table):
        return True
    then = (checkpoints.noted(checkpoint, _READ) or {}).get(tables.identity(table))
    if then is None:
        return False
    now = log.digest(table, then["version"])
    return now is not None and now != then["commit"]


def note_read(checkpoint: Path, upstream: Iterable[Path]) -> None:
    """Note the last commit of each table that a query has read, beside its checkpoint.

    Where that fails, as on a full disk, the next batch or start does it.
    """
    with suppress(OSError, MedallionError):
        batch = checkpoints.last_committed(checkpoint)
        now = checkpoints.noted(checkpoint, _READ) or {}
        for table in upstream:
            version = _last_read(checkpoint, batch, table)
            if commit := log.digest(table, version):  # which maintenance may have taken away
                now[tables.identity(table)] = {"version": version, "commit": commit}
        if now:
            checkpoints.note(checkpoint, _READ, now)


def _last_read(checkpoint: Path, batch: int, table: Path) -> int:
    """The last version of a table that a batch has read; -1 where that is none."""
    if checkpoints.is_of_another(checkpoint, batch, table):
        return -1
    read = checkpoints.delta_offset(checkpoint, batch, table)
    return read.version - read.is_whole
