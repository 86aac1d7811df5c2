"""Pure transformation of bronze's rows to another schema, for `medallion refresh bronze.*`."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.values import EXACT_DOUBLE
from medallion.ingest.files.decode import PLAIN, STRING_TYPES
from medallion.ingest.parsing.json_text import json_field
from medallion.ingest.parsing.names import with_field_names
from medallion.ingest.parsing.parse import parse_lines
from medallion.ingest.parsing.rescued import merged_objects
from medallion.ingest.parsing.times import (
    EXACT_FORMATS,
    decimal_from_string,
    is_decimal,
    is_time_format,
    timestamp_from_format,
)
from medallion.ingest.parsing.typed import parse_typed_rows, typed_column_name
from medallion.spark.plans import type_ddl
from medallion.storage.table_specs import CORRUPT, INGESTED_AT, RESCUED, quote_identifier

_OLD = "before "  # prefix of the table's current columns; no field has such a name
_KEYS = f"{_OLD}keys"  # the names of the fields that were rescued


def rewrite_rows(
    rows: DataFrame,
    schema: Mapping[str, str],
    origin: Mapping[str, str],
    is_typed: bool = False,
    fields: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
    is_text: bool = False,
) -> DataFrame:
    """Return bronze's rows with the columns and types of another schema.

    A column with another type gets its values as the parser reads them from JSON, so values that do
    not fit are rescued. Rescued values that fit now move to their columns.

    Args:
        rows: all columns of a bronze table.
        schema: the source's own columns with their Spark types, including all of the table's.
        origin: the columns that say where a row came from.
        is_typed: True if the source's files have types, as Parquet does.
        fields: the fields of the columns, as `parse_lines` takes them.
        names: the original names of fields by path.
        is_text: True if the source's files have no types, as CSV has none.

    Returns:
        The columns of `schema`, then the technical ones, in bronze's order.
    """
    fields, names = fields or schema, names or {}
    if is_typed:
        return _rewrite_typed(rows, schema, origin, fields, names)
    before = {field.name: type_ddl(field.dataType) for field in rows.schema if field.name in schema}
    changed = [name for name, type_ in before.items() if schema[name] != type_]
    old = rows.select(*(F.col(quote_identifier(name)).alias(_OLD + name) for name in rows.columns))
    keys = F.json_object_keys(_before(RESCUED))
    old = old.withColumn(_KEYS, F.coalesce(keys, F.array().cast("array<string>")))
    values = {name: _with_names(_before(name), before[name], name, names) for name in changed}
    values = {n: _for_json(v, before[n], schema[n], is_text) for n, v in values.items()}
    old = old.withColumn("value", _as_json({names.get(n, n): v for n, v in values.items()}))
    parsed = parse_lines(old, schema, None, fields).drop(INGESTED_AT)
    columns = {
        name: F.col(quote_identifier(name))
        if name in changed or name not in before
        else _kept_or_moved(name, names.get(name, name))
        for name in schema
    }
    # A row with nothing to parse again is the JSON {}, so nothing of it is rescued.
    return parsed.select(
        *(column.alias(name) for name, column in columns.items()),
        F.col(RESCUED),
        # Rows that were parsed before are JSON. If the parser refuses one, fail before the commit.
        F.when(F.col(CORRUPT).isNotNull(), F.raise_error(F.lit("a row cannot be parsed again")))
        .otherwise(_before(CORRUPT))
        .alias(CORRUPT),
        *(_before(name).alias(name) for name in (*origin, INGESTED_AT)),
    )


def _for_json(value: Column, before: str, dtype: str, is_text: bool) -> Column:
    """Return a value as it is written for a column of another type.

    A CSV field is written as by its decoder. A number in a string column would lose digits.
    """
    if is_decimal(before) and dtype == "string":
        return value.cast("string")
    if not is_text or before != "string" or dtype.startswith(STRING_TYPES):
        return value
    number = F.when(value.rlike(rf"\A(?:{PLAIN.pattern})\z"), F.try_parse_json(value))
    return F.coalesce(number, value.cast("variant"))


def _with_names(value: Column, dtype: str, column: str, names: Mapping[str, str]) -> Column:
    """Return a column's value with the original names of its nested fields."""
    wanted = with_field_names(T.DataType.fromDDL(dtype), names, column)
    return value.cast(wanted) if type_ddl(wanted) != dtype else value


def _as_json(values: Mapping[str, Column]) -> Column:
    """Return the JSON to parse again: rescued fields, and columns whose type changes.

    If a nested value is rescued in full, the part of it that its column has is ignored.

    Args:
        values: the values of the columns whose type changes, by field name.
    """
    fields = [F.when(~_is_rescued(name), value).alias(name) for name, value in values.items()]
    own = F.to_json(F.struct(*fields), EXACT_FORMATS) if fields else F.lit("{}")
    merged = merged_objects(F.nullif(own, F.lit("{}")), _before(RESCUED))
    return F.coalesce(merged, F.lit("{}"))


def _kept_or_moved(column: str, name: str) -> Column:
    """Return a column whose type does not change: its value, or the rescued value of its field."""
    old = _before(column)
    return F.when(_is_rescued(name), F.coalesce(quote_identifier(column), old)).otherwise(old)


def _before(name: str) -> Column:
    return F.col(quote_identifier(_OLD + name))


def _is_rescued(name: str) -> Column:
    return F.array_contains(F.col(quote_identifier(_KEYS)), name)


def _rewrite_typed(
    rows: DataFrame,
    schema: Mapping[str, str],
    origin: Mapping[str, str],
    fields: Mapping[str, str],
    names: Mapping[str, str],
) -> DataFrame:
    """Rewrite rows of a source with typed files: values keep their types and all digits."""
    typed = []
    for number, each in enumerate(field for field in rows.schema if field.name in schema):
        value, dtype = F.col(quote_identifier(each.name)), type_ddl(each.dataType)
        own = with_field_names(each.dataType, names, each.name)
        field_name = typed_column_name(number, names.get(each.name, each.name), own)
        typed.append(_with_names(value, dtype, each.name, names).alias(field_name))
    others = (RESCUED, CORRUPT, *origin, INGESTED_AT)
    kept = [F.col(quote_identifier(name)).alias(_OLD + name) for name in others]
    parsed = parse_typed_rows(rows.select(*typed, *kept), schema, fields).drop(INGESTED_AT)
    before = quote_identifier(_OLD + RESCUED)
    moved = {
        column: _cast_exactly(json_field(before, name), type_)
        for column, (name, type_) in zip(schema, fields.items(), strict=True)
    }
    values = zip(fields, moved.values(), strict=True)
    keys = (F.when(value.isNotNull(), name) for name, value in values)
    parsed = parsed.withColumn(_KEYS, F.array_compact(F.array(*keys)))
    members = f"cast(try_parse_json(`{_OLD}{RESCUED}`) as map<string, variant>)"
    is_left = f"not array_contains(`{_KEYS}`, key)"
    left = F.expr(f"to_json(map_filter({members}, (key, val) -> {is_left}))")
    left = F.when(F.size(F.col(quote_identifier(_KEYS))) == 0, _before(RESCUED)).otherwise(left)
    rescued = merged_objects(F.nullif(left, F.lit("{}")), F.col(RESCUED))
    return parsed.select(
        *(F.coalesce(quote_identifier(name), value).alias(name) for name, value in moved.items()),
        rescued.alias(RESCUED),
        *(_before(name).alias(name) for name in others[1:]),
    )


def _cast_exactly(sql: str, type_: str) -> Column:
    """Cast the JSON of a rescued value; return null if the result is not exactly the same value."""
    if is_time_format(type_):
        return F.expr(timestamp_from_format(sql, type_))
    wanted, json = T.DataType.fromDDL(type_), F.expr(sql)
    value = json.try_cast(type_)
    match wanted:
        case T.StringType():
            return json
        case T.FloatType() | T.DoubleType():
            is_short = json.rlike(rf"\A{EXACT_DOUBLE}\z")
            return F.when(is_short | (value.cast("string") == json), value)
        case T.DecimalType():
            return F.expr(decimal_from_string(sql, type_))
        case T.IntegralType():
            return F.when(json.rlike(r"\A-?(0|[1-9][0-9]*)\z"), value)
        case T.BooleanType():
            return F.when(json.isin("true", "false"), value)
    return F.lit(None).cast(type_)
