"""Types of columns, without Spark."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from medallion.spark.plans import holds


def test_what_a_type_has_within() -> None:
    deep = StructType().add("x", ArrayType(MapType(StringType(), FloatType())))
    assert holds(DoubleType(), FloatType, DoubleType)
    assert holds(deep, FloatType, DoubleType)
    assert holds(deep, MapType, VariantType)
    assert holds(MapType(DoubleType(), LongType()), DoubleType)
    named = StructType().add("double", LongType()).add("variant", ArrayType(StringType()))
    assert not holds(named, FloatType, DoubleType, MapType, VariantType)
