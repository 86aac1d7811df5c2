"""Types of columns, looked into."""

from __future__ import annotations

import re

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


def inner(kind: DataType) -> list[DataType]:
    """Return the types directly within a type."""
    match kind:
        case StructType():
            return [field.dataType for field in kind]
        case ArrayType():
            return [kind.elementType]
        case MapType():
            return [kind.keyType, kind.valueType]
    return []


def ddl(kind: DataType) -> str:
    """Return a type as Spark's SQL spells it, names quoted where it needs that."""
    match kind:
        case StructType():
            fields = (f"{_quoted(field.name)}:{ddl(field.dataType)}" for field in kind)
            return f"struct<{','.join(fields)}>"
        case ArrayType():
            return f"array<{ddl(kind.elementType)}>"
        case MapType():
            return f"map<{ddl(kind.keyType)},{ddl(kind.valueType)}>"
    return kind.simpleString().replace("bigint", "long")


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else f"`{name}`"
