"""Types of columns, looked into."""

from __future__ import annotations

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

# The kinds of columns, as the configuration spells them, by Spark's names of types: each holds all
# that those types can say. Others have none.
KINDS = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "long"),
    **dict.fromkeys(("float", "double"), "double"),
    **{kind: kind for kind in ("string", "boolean", "date", "timestamp")},
}


def holds(kind: DataType, *wanted: type[DataType]) -> bool:
    """Whether a type is one of those, or has one within, whatever its fields are called."""
    match kind:
        case _ if isinstance(kind, wanted):
            return True
        case StructType():
            return any(holds(field.dataType, *wanted) for field in kind)
        case ArrayType():
            return holds(kind.elementType, *wanted)
        case MapType():
            return holds(kind.keyType, *wanted) or holds(kind.valueType, *wanted)
    return False
