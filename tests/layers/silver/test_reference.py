"""A reference is taken as it is meant, or refused in a sentence that names file and column."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from medallion.errors import MedallionError
from medallion.layers.silver.reference import look
from tests.support import sql

KINDS = {"number": "long", "maker": "string", "released": "date", "price": "double"}
HEADER = "maker,number,other,released,price\n"


def test_a_csv_file(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "devices.csv"
    file.write_bytes(
        b"\xef\xbb\xbf\n"
        + HEADER.encode()
        + b'LG,7,x,2013-10-31,1e2\r\n\n"A, ""B""",8,x,,\r\nnobody,,x,,\nnobody,,x,,\n'
    )
    found = look(spark, file, "devices.csv", KINDS)
    rows = found.rows()
    assert rows.dtypes == [
        ("number", "bigint"),
        ("maker", "string"),
        ("released", "date"),
        ("price", "double"),
    ]
    assert sorted(map(tuple, rows.collect())) == [
        (7, "LG", date(2013, 10, 31), 100.0),
        (8, 'A, "B"', None, None),
    ]
    assert look(spark, file, "devices.csv", KINDS).version == found.version
    file.write_text(HEADER)
    again = look(spark, file, "devices.csv", KINDS)
    assert again.version != found.version
    assert again.rows().collect() == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (HEADER + "LG,7,,,\nLG,8,,,\nLG,7,,,\n", "number '7' is there 2 times"),
        ("maker,number,released\n", r"has no column price; it has maker, number, released\."),
        ("maker,number,released,price,maker\n", "has the column maker twice"),
        ("", "has no column number; it has none"),
        (HEADER + "LG,7,,2013-10-31,\nLG,8,,soon,\n", "line 3: released 'soon' is no date"),
        (HEADER + "LG,7,,2013-10-31T10:00:00,\n", "line 2: released .* is no date"),
        (HEADER + "LG,7,,2013-02-29,\n", "released '2013-02-29' is no date"),
        (HEADER + "LG,7.5,,,\n", "number '7.5' is no long"),
        (HEADER + "LG,9223372036854775808,,,\n", "number '9223372036854775808' is no long"),
        (HEADER + "LG,7,,,1e400\n", "price '1e400' is no double"),
        (HEADER + "LG,7,,,1d\n", "price '1d' is no double"),
        (HEADER + "LG,7,,\n", "line 2: 4 fields, where the header has 5"),
        (HEADER + 'LG,7,"x\n', "cannot be read as CSV"),
        (HEADER + "L\xe4,7,,,\n", "not UTF-8"),
    ],
)
def test_mistakes_in_a_csv_file(
    spark: SparkSession, tmp_path: Path, content: str, told: str
) -> None:
    file = tmp_path / "devices.csv"
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(MedallionError, match=f"^devices.csv.*{told}"):
        look(spark, file, "devices.csv", KINDS).rows()


def test_a_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    of_it = "arrow_cast(7, 'Int32') as number, 'LG' as maker, 'x' as other"
    sql.write(tmp_path, "reference.devices", f"select {of_it}, 1.5 as price")
    folder = tmp_path / "reference/devices"
    kinds = {"number": "long", "maker": "string", "price": "double"}
    rows = look(spark, folder, "reference/devices", kinds).rows()
    assert dict(rows.dtypes)["number"] == "bigint"
    assert list(map(tuple, rows.collect())) == [(7, "LG", 1.5)]
    for changed, told in (
        ({"number": "string"}, "number is int there, and not string"),
        ({"maker_id": "long"}, "has no column maker_id; it has number, maker"),
    ):
        with pytest.raises(MedallionError, match=f"^reference/devices: {told}"):
            look(spark, folder, "reference/devices", kinds | changed).rows()
    shutil.copytree(folder, tmp_path / "devices%41")
    with pytest.raises(MedallionError, match=r"^devices: .* no Delta table can be read"):
        look(spark, tmp_path / "devices%41", "devices", kinds)


def test_what_is_not_there(tmp_path: Path, spark: SparkSession) -> None:
    for name, told in (("devices.csv", "no such file"), (".", "no Delta table")):
        with pytest.raises(MedallionError, match=told):
            look(spark, tmp_path / name, name, KINDS)
