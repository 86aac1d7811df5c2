"""Files: written under a hidden name, then shown, so that no reader ever sees half of one."""

from __future__ import annotations

import os
from functools import reduce
from operator import add
from pathlib import Path

from medallion.factory.plan import BatchPlan, FilePlan, Landed
from medallion.factory.rows import file_lines

LINES_A_WRITE = 20_000


def batch_files(batch: BatchPlan, previous: BatchPlan | None) -> list[FilePlan]:
    """The files of a batch, in their order."""
    return [FilePlan(batch, previous, number) for number in range(1, batch.files + 1)]


def hidden(place: Path) -> Path:
    """Where a file is written first. Spark and the pipeline pass over names that begin so."""
    return place.with_name(f".{place.name}.tmp")


def write_file(folder: Path, plan: FilePlan) -> Landed:
    """Write one file under its hidden name."""
    lines, landed = file_lines(plan)
    with hidden(folder / plan.name).open("w", encoding="utf-8", newline="\n") as file:
        for first in range(0, len(lines), LINES_A_WRITE):
            file.write("\n".join(lines[first : first + LINES_A_WRITE]) + "\n")
    return landed


def write_batch(folder: Path, batch: BatchPlan, previous: BatchPlan | None) -> Landed:
    """Write a batch's files, which nobody reads yet.

    One process does it all: it makes some 800,000 lines a second, which no reader keeps up with.
    """
    folder.mkdir(parents=True, exist_ok=True)
    plans = batch_files(batch, previous)
    return reduce(add, (write_file(folder, plan) for plan in plans), Landed(batches=1))


def landed_of(batch: BatchPlan, previous: BatchPlan | None) -> Landed:
    """What `write_batch` said of a batch that an interrupted run wrote."""
    plans = batch_files(batch, previous)
    return reduce(add, (file_lines(plan)[1] for plan in plans), Landed(batches=1))


def show_batch(folder: Path, batch: BatchPlan) -> None:
    """Give the written files their names, in their order.

    One without its hidden name was shown before, by a run that was interrupted: it may have been
    taken in since, and moved away.
    """
    for plan in batch_files(batch, None):
        temporary = hidden(folder / plan.name)
        if temporary.exists():
            # Readers take files by modification time: let that be when they were landed.
            os.utime(temporary)
            temporary.replace(folder / plan.name)
