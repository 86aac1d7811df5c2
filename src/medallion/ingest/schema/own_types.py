"""The types of columns that files bring (Parquet, ORC, Avro), as bronze's columns have them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from medallion.config.values import folded
from medallion.ingest.parsing.typed import file_columns, is_typed
from medallion.ingest.schema.growth import grown
from medallion.ingest.schema.inference import unfit_reason
from medallion.spark.plans import ddl

_PLAIN = (
    T.BooleanType,
    T.NumericType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
)


def own_types(rows: DataFrame) -> dict[str, str]:
    """Return the columns of a batch's files with Spark types that hold the values of all of them.

    Columns that no table can have are left out: names that are not plain, too many fields. Types
    that no table can have, such as intervals, are strings.

    Args:
        rows: as a source gives them (`SourceBatch.read`); of lines of text there are none.
    """
    if not is_typed(rows):
        return {}
    spelled: dict[str, str] = {}
    found: dict[str, T.DataType] = {}
    for column in file_columns(rows):
        kind = storable(column.own)
        if kind:
            name = spelled.setdefault(folded(column.name), column.name)
            found[name] = grown(found[name], kind, can_widen=True) if name in found else kind
    return {name: ddl(kind) for name, kind in found.items() if not unfit_reason(kind)}


def storable(kind: T.DataType) -> T.DataType | None:
    """Return the type in which a table keeps a file's values; None if all of them are null."""
    match kind:
        case T.NullType():
            return None
        case T.TimestampNTZType():
            return T.TimestampType()
        case T.StructType():
            inner = ((field.name, storable(field.dataType)) for field in kind)
            fields = [T.StructField(name, each) for name, each in inner if each]
            return T.StructType(fields) if fields else None
        case T.ArrayType():
            item = storable(kind.elementType)
            return T.ArrayType(item) if item else None
        case T.MapType():
            key, value = storable(kind.keyType), storable(kind.valueType)
            return T.MapType(key, value) if key and value else None
    return kind if isinstance(kind, _PLAIN) else T.StringType()
