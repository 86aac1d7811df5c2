"""What users are told of an inferred schema."""

from __future__ import annotations

from collections.abc import Callable, Collection

from medallion.ingest.schema.inference import Inferred, OddValues
from medallion.ingest.schema.names import MOST_COLUMNS
from medallion.storage.table_specs import RESCUED
from medallion.storage.text import visible

_MOST_NOTES = 10  # of each type
_MOST_SHOWN = 60  # characters of a value


def notes_on(
    found: Inferred,
    columns: Collection[str],
    hints: Collection[str],
    origin_of: Callable[[int], str],
) -> list[str]:
    """Return sentences about the values and fields that stay in `_rescued_data`.

    Args:
        found: what the sample says.
        columns: the columns of the schema.
        hints: those whose types the configuration declares.
        origin_of: returns where a row of the sample came from, by its number.
    """
    notes = []
    if len({*found.columns, *hints}) > MOST_COLUMNS:
        notes.append(
            f"{len(found.columns):,} fields: {len(columns):,} of them became columns, the others "
            f"stay in {RESCUED}"
        )
    named = set(columns) - set(hints)
    odd = [odd for name in found.columns if name in named for odd in found.odd_values[name]]
    notes += [_odd_values_note(each, origin_of(each.row)) for each in odd[:_MOST_NOTES]]
    if len(odd) > _MOST_NOTES:
        notes.append(f"{len(odd) - _MOST_NOTES:,} more fields have values that do not fit")
    notes += [
        f"{visible(name)} stays in {RESCUED}: {reason}"
        for name, reason in list(found.unfit.items())[:_MOST_NOTES]
    ]
    if len(found.unfit) > _MOST_NOTES:
        notes.append(f"{len(found.unfit) - _MOST_NOTES:,} more fields stay in {RESCUED}")
    return notes


def _odd_values_note(odd: OddValues, origin: str) -> str:
    """Return a sentence about the values that do not fit a column."""
    example = visible(odd.example)
    if len(example) > _MOST_SHOWN:
        example = f"{example[:_MOST_SHOWN]}..."
    verb = "does" if odd.rows == 1 else "do"
    return (
        f"{odd.field} is inferred as {odd.type}; {odd.rows:,} of {odd.total:,} values {verb} not "
        f"fit, such as {example} (row {odd.row:,} of the sample, {origin})"
    )
