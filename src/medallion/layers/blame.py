"""Which part of a table's SQL fails at a row: Spark does not always say where it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql import DataFrame

from medallion.spark.errors import SPARK_ERRORS, one_line

NULL_THERE = "give null there, as try_cast and the like do"


class Part(NamedTuple):
    """A column, a rule or the like: what people call it, what is to be done where it fails, and the
    rows that it makes."""

    name: str
    advice: str
    made: DataFrame


def blamed(
    rows: Iterable[DataFrame], whole: DataFrame, parts: Iterable[Part], rest: str
) -> str | None:
    """The first part that fails at a row, in words; None where none does.

    Args:
        rows: what is read. What fails of these is no part's fault.
        whole: what all parts together make of them.
        rest: what becomes of the rows meanwhile.
    """
    if not _failure(whole) or any(map(_failure, rows)):
        return None
    for name, advice, made in parts:
        if told := _failure(made):
            return f"{name} fails at a row, and {rest}: {told}; {advice}"
    return None


def _failure(rows: DataFrame) -> str | None:
    """What Spark fails of where rows are computed, and not written; None where it does not."""
    try:
        rows.write.format("noop").mode("overwrite").save()
    except SPARK_ERRORS as error:
        return one_line(str(error))
    return None
