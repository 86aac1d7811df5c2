"""How many rows of a batch break each expectation, in one job for all that Spark SQL can say."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.quality.rules import row_condition
from medallion.quality.suites import BETWEEN, BY_QUERY, UNIQUE, Expectation
from medallion.spark.errors import SPARK_ERRORS

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult

_VIEW = "gate_batch"


def count_broken(
    batch: DataFrame, expectations: Sequence[Expectation], key: Sequence[str] = ()
) -> tuple[int, dict[str, int]]:
    """The rows of a batch; and by names of expectations how many rows break them, or their queries
    find.

    Great Expectations counts the same, and takes four jobs a table. Left to it are the kinds that
    judge more than rows, those that "mostly" hold where some rows break them, and all of them
    where Spark cannot run one: it says which, and why.

    Args:
        key: columns by which no two rows are the same, where all of them are known.
    """
    known = {e.name: 0 for e in expectations if _holds_by(key, e, batch.columns)}
    texts = {name for name, kind in batch.dtypes if kind == "string"}
    conditions = {e.name: c for e in expectations if (c := _condition(e, texts)) is not None}
    queries = {e.name: e for e in expectations if e.kind == BY_QUERY and e.name not in conditions}
    batch.createOrReplaceTempView(_VIEW)
    try:
        broken = [F.count_if(F.expr(condition)) for condition in conditions.values()]
        counts = [batch.select(F.lit(0), F.array(F.count(F.lit(1)), *broken))]
        for number, expectation in enumerate(queries.values(), 1):
            query = expectation.kwargs["unexpected_rows_query"].format(batch=_VIEW)
            counts.append(
                batch.sparkSession.sql(f"SELECT {number}, array(count(*)) FROM (\n{query}\n)")
            )
        found = dict(map(tuple, reduce(DataFrame.union, counts).collect()))
    except (*SPARK_ERRORS, LookupError, ValueError, AttributeError):
        return batch.count(), known
    finally:
        batch.sparkSession.catalog.dropTempView(_VIEW)
    rows, *by_row = found.pop(0)
    by_query = [found[number][0] for number in sorted(found)]
    counted = zip([*conditions, *queries], [*by_row, *by_query], strict=True)
    is_share = {e.name for e in expectations if e.kwargs.get("mostly", 1) != 1}
    return rows, known | {n: count for n, count in counted if not (count and n in is_share)}


def counted(expectation: Expectation, rows: int, broken: int) -> ExpectationValidationResult:
    """The result of an expectation that so many rows break, or its query finds."""
    from great_expectations.core import ExpectationValidationResult

    found = {
        "element_count": rows,
        "unexpected_count": broken,
        "unexpected_percent": 100 * broken / max(rows, 1),
    }
    by_query = expectation.kind == BY_QUERY
    return ExpectationValidationResult(
        success=not broken, result={"observed_value": broken} if by_query else found
    )


def _holds_by(key: Sequence[str], expectation: Expectation, columns: Sequence[str]) -> bool:
    """Whether rows with these columns meet it, of which no two have the same key."""
    kwargs = expectation.kwargs
    is_of_known = kwargs.get("ignore_row_if") == "any_value_is_missing"
    is_unique = expectation.kind == UNIQUE and is_of_known
    return bool(key) and is_unique and {*key} <= {*kwargs.get("column_list", ())} <= {*columns}


def _condition(expectation: Expectation, texts: Collection[str]) -> str | None:
    """That a row breaks it, whether all or most of them are to hold.

    A text is not held against a bound: Spark would take it for a number or a time if it is one,
    where Great Expectations says that the two do not go together.
    """
    if expectation.kind == BETWEEN and expectation.kwargs.get("column") in texts:
        return None
    kwargs = {name: value for name, value in expectation.kwargs.items() if name != "mostly"}
    return row_condition(replace(expectation, kwargs=kwargs))
