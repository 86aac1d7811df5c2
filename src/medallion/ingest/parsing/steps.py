"""What the paths of a line share: the struct that Spark makes of it, and steps on the way."""

from __future__ import annotations

from collections.abc import Mapping

from medallion.ingest.parsing.json_text import options
from medallion.storage.table_specs import CORRUPT, RESCUED


def parsed(columns: Mapping[str, str]) -> str:
    """SQL: the struct that Spark makes of `value`; `_conflict` is null if all of it did fit."""
    ddl = ", ".join([*(f"`{name}` {kind}" for name, kind in columns.items()), "_conflict string"])
    return f"from_json(value, '{ddl}', {options(columnNameOfCorruptRecord='_conflict')})"


def struct_of(schema: Mapping[str, str]) -> str:
    """The type of what a path makes of a line: its columns, and what they do not say."""
    both = {**schema, CORRUPT: "string", RESCUED: "string"}
    return f"struct<{', '.join(f'`{name}`: {kind}' for name, kind in both.items())}>"


def with_steps(steps: Mapping[str, str], then: str, kind: str) -> str:
    """SQL: an expression of type `kind` that may use each step by its name; so may later steps.

    The steps are arguments of lambdas, and not columns: Spark would compile columns, which for this
    much code takes seconds in each session, though few lines need it or none. Lambdas it
    interprets. (`transform` would read nicer than `aggregate`, but for each line it works out its
    type anew, and so that of all within.)
    """
    for name, value in reversed(list(steps.items())):
        then = f"aggregate(array({value}), cast(null as {kind}), (nothing, {name}) -> {then})"
    return then
