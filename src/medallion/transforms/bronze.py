"""From lines of text to bronze's columns: every line is kept, whatever it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion import schemas
from medallion.transforms.nested import is_nested, member, unfit

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
        values that are not of their column's type, and lines that name a field twice are in
        `_rescued_data` as JSON. A line that is not UTF-8 is kept as Latin-1, which loses no byte.
    """
    declared = ", ".join(f"`{name}` {kind}" for name, kind in schema.items())
    known = _strings(schema)
    # `odd` lines alone pay for the exact look: they are few, and VARIANT is dear.
    odd = (
        "_keys is null or _row._conflict is not null"
        # Nearly all lines have just the declared keys in their order: the set is for the others.
        f" or (not (_keys <=> {known}) and size(array_intersect(_keys, {known})) < size(_keys))"
        f" or not is_valid_utf8(value) or {_lossy(schema)}"
        # Something may follow the object, unless its first brace is the last thing on the line.
        " or octet_length(substring_index(value, '}', 1)) + 1 < octet_length(rtrim(value))"
    )
    # Each dear step is a CASE of its own: what stands behind an AND or OR is no help, because
    # Spark computes ahead whatever occurs twice there.
    raw = "if(is_valid_utf8(value), value, decode(cast(value as binary), 'ISO-8859-1'))"
    rows = (
        lines.withColumn("_row", F.from_json("value", f"{declared}, _conflict string", _STRICT))
        .withColumn("_keys", F.expr("json_object_keys(value)"))
        .withColumn("_odd", F.expr(odd))
        .withColumn("_variant", F.expr("case when _odd then try_parse_json(value) end"))
        .withColumn("_seal", F.expr("case when _odd then md5(value) end"))
        .withColumn("_sealed", F.expr(f"case when _odd then {_SEALED} end"))
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
_SEALED = "from_json(concat('[', value, ',\"', _seal, '\"]'), 'array<string>')"
_NOT_JSON = (
    "_keys is null or (_row._conflict is not null and _variant is null)"
    " or not is_valid_utf8(value) or size(_sealed) <> 2 or coalesce(_sealed[1], '') <> _seal"
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
        f" or array_contains(array({lossy}), key)"
    )
    fields = (
        f"to_json(map_filter(cast(_variant as map<string, variant>), (key, val) -> {not_taken}))"
    )
    return (
        f"case when {schemas.CORRUPT} is null then nullif("
        # A field named twice has two values, and no map keeps both: the line is kept whole.
        f"case when size(array_distinct(_keys)) < size(_keys) then value"
        # Valid JSON that VARIANT refuses (a lone surrogate, over 16 MiB) is kept whole as well.
        f" else coalesce({fields}, value) end, '{{}}') end"
    )


def _lossy(schema: Mapping[str, str]) -> str:
    """SQL: whether a nested column of a line lacks some of its value."""
    lost = [
        unfit(f"get_json_object(value, {member(name)})", f"_row.`{name}`", T.DataType.fromDDL(kind))
        for name, kind in schema.items()
        if is_nested(kind)
    ]
    return f"({' or '.join(lost) or 'false'})"


def _if_whole(name: str) -> Column:
    return F.expr(f"case when {schemas.CORRUPT} is null then _row.`{name}` end").alias(name)


def _strings(names: Iterable[str]) -> str:
    return "array(" + ", ".join(f"'{name}'" for name in names) + ")"
