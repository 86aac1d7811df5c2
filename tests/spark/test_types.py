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

from medallion.spark.plans import contains_type


def test_contains_type_and_inner_types() -> None:
    deep = StructType().add("x", ArrayType(MapType(StringType(), FloatType())))
    assert contains_type(DoubleType(), FloatType, DoubleType)
    assert contains_type(deep, FloatType, DoubleType)
    assert contains_type(deep, MapType, VariantType)
    assert contains_type(MapType(DoubleType(), LongType()), DoubleType)
    misleading = StructType().add("double", LongType()).add("variant", ArrayType(StringType()))
    assert not contains_type(misleading, FloatType, DoubleType, MapType, VariantType)
