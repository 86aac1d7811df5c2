"""From lines of text to bronze's columns: every line is kept, whatever it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion import schemas
from medallion.transforms.nested import MAYBE_NO_TIME, astray, is_nested, member, unfit

# RFC 8259 only: what Spark would let pass besides is not JSON to the next reader.
_STRICT = {
    "columnNameOfCorruptRecord": "_conflict",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def parsed(lines: DataFrame, schema: Mapping[str, str]) -> DataFrame:
    """Parse each line as one JSON object of the declared schema.

    Args:
        lines: `value` (the line), `_source_file`, `_source_modified_at`.
        schema: bronze's own columns with their Spark types.

    Returns:
        The columns of `schema`, then the technical ones. A line that is not one whole JSON object
        is in `_corrupt_record` as it came, its columns null. Fields that the schema does not know,
        values that are not of their column's type or that it cannot say, and lines that name a
        field twice are in `_rescued_data` as JSON. A line that is not UTF-8 is kept as Latin-1,
        which loses no byte.
    """
    declared = ", ".join(
        [*(f"`{name}` {kind}" for name, kind in schema.items()), "_conflict string"]
    )
    known = _strings(schema)
    # `odd` lines alone pay for the exact look: they are few, and VARIANT is dear.
    odd = (
        "_keys is null or _row._conflict is not null"
        # Nearly all lines have just the declared keys in their order: the set is for the others.
        f" or (not (_keys <=> {known}) and size(array_intersect(_keys, {known})) < size(_keys))"
        f" or not is_valid_utf8(value) or {_lossy(schema)} or {_SURROGATE} or {_doubtful(schema)}"
        # Something may follow the object, unless its first brace is the last thing on the line.
        " or octet_length(substring_index(value, '}', 1)) + 1 < octet_length(rtrim(value))"
    )
    # Each dear step is a CASE of its own: what stands behind an AND or OR is no help, because
    # Spark computes ahead whatever occurs twice there.
    raw = "if(is_valid_utf8(value), value, decode(cast(value as binary), 'ISO-8859-1'))"
    rows = (
        lines.withColumn("_row", F.from_json("value", declared, _STRICT))
        .withColumn("_keys", F.expr("json_object_keys(value)"))
        .withColumn("_odd", F.expr(odd))
        .withColumn("_variant", F.expr("case when _odd then try_parse_json(value) end"))
        .withColumn("_seal", F.expr("case when _odd then md5(value) end"))
        .withColumn("_sealed", F.expr(f"case when _odd then {_SEALED} end"))
        .withColumn("_astray", F.expr(f"case when _odd then {_astray(schema)} end"))
        .withColumn(schemas.CORRUPT, F.expr(f"case when _odd and ({_NOT_JSON}) then {raw} end"))
        .withColumn(schemas.RESCUED, F.expr(f"case when _odd then {_rescued(schema, known)} end"))
    )
    return rows.select(
        *(_if_whole(name) for name in schema),
        schemas.RESCUED,
        schemas.CORRUPT,
        schemas.SOURCE_FILE,
        schemas.SOURCE_MODIFIED_AT,
        F.current_timestamp().alias(schemas.INGESTED_AT),
    )


# Spark's parser stops at the end of the first object and ignores the rest of the line. As the first
# of two items of an array, sealed by a text that the line cannot hold, it has to be read whole.
_SEALED = (
    "from_json(concat('[', value, ',\"', _seal, '\"]'), 'array<string>',"
    " map('allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false'))"
)
_NOT_JSON = (
    "_keys is null or not is_valid_utf8(value)"
    " or size(_sealed) <> 2 or coalesce(_sealed[1], '') <> _seal"
)


def _rescued(schema: Mapping[str, str], known: str) -> str:
    empty = ", ".join(f"case when _row.`{name}` is null then '{name}' end" for name in schema)
    lossy = ", ".join(
        f"case when {_lossy({name: kind})} then '{name}' end"
        for name, kind in schema.items()
        if is_nested(kind)
    )
    not_taken = (
        f"not array_contains({known}, key)"
        f" or (array_contains(array({empty}), key) and not is_variant_null(val))"
        f" or array_contains(array({lossy}), key) or array_contains(_astray, key)"
    )
    fields = (
        f"to_json(map_filter(cast(_variant as map<string, variant>), (key, val) -> {not_taken}))"
    )
    return (
        f"case when {schemas.CORRUPT} is null then nullif("
        # A field named twice has two values, and no VARIANT keeps both: the line is kept whole.
        f"case when {_NAMES.format('_sealed[0]')} <> {_NAMES.format('to_json(_variant)')}"
        " then value"
        # So is one with a number that is infinite to VARIANT,
        f" when {_HUGE} and contains({fields}, 'Infinity') then value"
        # and valid JSON that VARIANT refuses (a lone surrogate, over 16 MiB).
        f" else coalesce({fields}, value) end, '{{}}') end"
    )


# How many fields a JSON text without blanks names at any depth; a quote in a text counts as well.
_NAMES = "regexp_count({}, '\":')"
# A number that may be too large for a double.
_HUGE = r"value rlike r'[:,\[]\s*-?([0-9]+(\.[0-9]+)?[eE]\+?0*[0-9]{3}|[0-9]{309})'"
# Half a character, which becomes a question mark as soon as it is UTF-8, is always written so.
_SURROGATE = r"(contains(value, r'\ud') or contains(value, r'\uD'))"


def _doubtful(schema: Mapping[str, str]) -> str:
    """SQL: whether a plain column of a line may hold another value than the line says."""
    found = {
        MAYBE_NO_TIME
        if kind == "timestamp"
        else astray(f"get_json_object(value, {member(name)})", f"_row.`{name}`", kind)
        for name, kind in schema.items()
    }
    return " or ".join(sorted(filter(None, found))) or "false"


def _astray(schema: Mapping[str, str]) -> str:
    """SQL: the plain columns that do hold another value; they are null, and the value rescued."""
    found = []
    for name, kind in schema.items():
        typed = f"_row.`{name}`"
        how = astray(f"get_json_object(value, {member(name)})", typed, kind)
        if kind == "string":
            how = f"{how} and {_HUGE} or contains({typed}, '?') and _variant is null"
            how += f" and {_SURROGATE}"
        if how:
            found.append(f"case when {how} then '{name}' end")
    return f"array_compact(array({', '.join(found)}))"


def _lossy(schema: Mapping[str, str]) -> str:
    """SQL: whether a nested column of a line lacks some of its value."""
    lost = [
        unfit(f"get_json_object(value, {member(name)})", f"_row.`{name}`", T.DataType.fromDDL(kind))
        for name, kind in schema.items()
        if is_nested(kind)
    ]
    return f"({' or '.join(lost) or 'false'})"


def _if_whole(name: str) -> Column:
    stays = f"{schemas.CORRUPT} is null and not coalesce(array_contains(_astray, '{name}'), false)"
    return F.expr(f"case when {stays} then _row.`{name}` end").alias(name)


def _strings(names: Iterable[str]) -> str:
    return "array(" + ", ".join(f"'{name}'" for name in names) + ")"
