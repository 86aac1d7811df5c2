"""Partition columns: values in the names of directories, such as `date=2026-05-01/hour=10/`.

A value in the path wins over a field of that name in the rows, as in Spark and Auto Loader. It is
percent-decoded, as Hive and Spark encode it. Types come from `hints`, or are those that all values
fit when the column is first seen.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.ingest.parsing.rescued import merged_objects
from medallion.ingest.parsing.times import is_inferred_time, value_of_type
from medallion.storage.table_specs import RESCUED, SOURCE_FILE, quote_identifier, string_literal

_NULL = "__HIVE_DEFAULT_PARTITION__"
_LONG = re.compile(r"-?[0-9]{1,18}")


def infer_partition_types(paths: Iterable[str], columns: Iterable[str]) -> dict[str, str]:
    """Return the types of columns with a value in a path: `long`, `date` or `string`.

    Args:
        paths: paths of files, as in the ledger.
        columns: the partition columns.
    """
    listed = list(paths)
    values = {name: {v for p in listed if (v := _decoded_value(p, name))} for name in columns}
    return {name: _type_of(strings) for name, strings in values.items() if strings}


def _decoded_value(path: str, column: str) -> str:
    """Return the value in a path, "" if there is none."""
    match = re.match(_pattern(column), path, re.DOTALL)
    value = unquote(match[1]) if match else ""
    return "" if value == _NULL else value


def _pattern(column: str) -> str:
    """Return the pattern of a path, for Python and Java; the innermost directory wins."""
    return rf"^(?:.*/)?{column}=([^/]*)/"


def _type_of(values: Collection[str]) -> str:
    if all(map(_LONG.fullmatch, values)):
        return "long"
    is_date = all(len(value) == 10 and is_inferred_time(value) for value in values)
    return "date" if is_date else "string"


def with_partition_columns(rows: DataFrame, types: Mapping[str, str]) -> DataFrame:
    """Return rows with the values of partition columns from the paths of their files.

    A column is null if its directory is missing or has the value `__HIVE_DEFAULT_PARTITION__`. A
    value that does not fit its type goes to `_rescued_data`.

    Args:
        rows: parsed rows of files, with these columns, `_source_file` and `_rescued_data`.
        types: the partition columns, with Spark types.
    """
    if not types:
        return rows
    values = {name: _path_column(name) for name in types}
    typed = {n: F.expr(value_of_type(value, types[n])) for n, value in values.items()}
    misfits = (F.when(typed[n].isNull(), F.expr(v)).alias(n) for n, v in values.items())
    misfits_json = F.nullif(F.to_json(F.struct(*misfits)), F.lit("{}"))
    all_rescued = merged_objects(misfits_json, F.col(RESCUED))
    return rows.select(
        *(
            typed[name].alias(name)
            if name in typed
            else (all_rescued if name == RESCUED else F.col(quote_identifier(name))).alias(name)
            for name in rows.columns
        )
    )


def _path_column(column: str) -> str:
    """Return SQL for the value in the path of a row's file, as a string or null."""
    pattern = string_literal("(?s)" + _pattern(column))
    encoded = f"regexp_extract({SOURCE_FILE}, {pattern}, 1)"
    # Only %XX is decoded: a + is a plus.
    decoded = f"coalesce(try_url_decode(replace({encoded}, '+', '%2B')), {encoded})"
    return f"case when {decoded} not in ('', '{_NULL}') then {decoded} end"
