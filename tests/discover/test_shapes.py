"""Shapes of files that real systems export, and what `medallion add` makes of them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from medallion.discover.columns import conversion_sql, infer_columns
from medallion.discover.entry import NewSource, inspect_files
from medallion.discover.files import input_files
from medallion.errors import UsageError

Rows = list[dict[str, Any]]
ROWS: Rows = [{"id": n, "at": f"2026-05-01T10:00:{n:02}Z", "v": n / 4} for n in range(30)]
ORDER = {"order_id": "o1", "ordered_at": "2026-05-01T10:00:00Z", "items": [{"sku": "a"}]}
LINES = [json.dumps(row) for row in ROWS]


def inspect(folder: Path, **files: str) -> NewSource:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8", newline="")
    return inspect_files("x", input_files([str(folder)]))


@pytest.mark.parametrize(
    ("write", "settings"),
    [
        (lambda lines: "[" + ", \n ".join(lines) + "]", {"multi_line": True}),
        (lambda lines: "[\n" + ",\n".join(lines) + "\n]\n", {"multi_line": True}),
        (lambda lines: "".join(f"{line}\r" for line in lines), {}),
        (lambda lines: "".join(lines), {"multi_line": True}),
        (lambda lines: "\n".join(lines).replace('"v"', '"v\u2028"'), {}),
    ],
    ids=["array by json_agg", "array of lines", "carriage returns", "one line", "line separators"],
)
def test_all_rows_are_found(
    tmp_path: Path, write: Callable[[list[str]], str], settings: dict[str, Any]
) -> None:
    source = inspect(tmp_path, a__json=write(LINES))
    assert (source.description.settings, len(source.description.rows)) == (settings, len(ROWS))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("".join(f"{line},\n" for line in LINES), "commas between its JSON objects"),
        ("".join(f"\x1e{line}\n" for line in LINES), "a JSON text sequence"),
        ("".join(f'{{"index": {{"_id": 1}}}}\n{line}\n' for line in LINES), "a bulk request"),
        (json.dumps([["id", "v"], *([n, n] for n in range(9))]), "its rows are arrays"),
        (json.dumps({"columns": ["id"], "data": [[n] for n in range(9)]}), "its rows are arrays"),
        (json.dumps({f"k{n}": row for n, row in enumerate(ROWS)}), "its 30 rows are values of one"),
        (json.dumps({"all": {f"k{n}": row for n, row in enumerate(ROWS)}}), "its 30 rows are"),
        (json.dumps({c: {str(n): n for n in range(9)} for c in "ab"}), "for each column"),
        (json.dumps({"h": {c: [*range(9)] for c in "ab"}, "lat": 1}), "one for each column"),
        ("<html><body>Log in</body></html>", "a page in HTML"),
    ],
)
def test_rows_that_no_setting_reads(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        inspect(tmp_path, a__json=text)


@pytest.mark.parametrize(
    "value",
    [
        {"home": {"street": "a", "no": 1}, "work": {"street": "b", "no": 2}, "id": 7},
        {"type": "Feature", "geometry": {"coordinates": [1.5, 2.5]}, "tags": ["a", "b"]},
        {f"k{n}": {"v": n, f"own{n}": 1} for n in range(9)},
    ],
)
def test_one_object_is_a_row(tmp_path: Path, value: Mapping[str, Any]) -> None:
    source = inspect(tmp_path, a__json=json.dumps(value, indent=1))
    assert source.description.rows == [value]
    assert source.description.settings == {"multi_line": True}


def test_an_order_is_a_row_with_its_items(tmp_path: Path) -> None:
    """It has a key and a time of its own, which the rows of its items would lose."""
    empty = {**ORDER, "order_id": "o2", "items": []}
    pretty = {**ORDER, "order_id": "2026.3"}  # a string, so it is no number
    texts = {f"a{n}__json": json.dumps(each) for n, each in enumerate([ORDER, empty])}
    source = inspect(tmp_path, **texts, b__json=json.dumps(pretty, indent=2))
    assert source.description.settings == {"multi_line": True}
    assert [row["order_id"] for row in source.description.rows] == ["o1", "o2", "2026.3"]
    assert source.key_names == ["order_id", "ordered_at"]
    (path,) = tmp_path.glob("b.json")
    (choice,) = inspect_files("x", input_files([str(path)])).description.choices
    assert "record_path: items" in choice


def test_an_export_with_an_identity_of_its_own(tmp_path: Path) -> None:
    export = {"report_id": 7, "generated_at": "2026-05-01T10:00:00Z", "rows": ROWS}
    source = inspect(tmp_path, a__json=json.dumps(export))
    assert source.description.settings == {"record_path": "rows"}
    assert len(source.description.rows) == len(ROWS)
    assert "record_fields: [report_id, generated_at]" in source.description.reasons[1]


def test_a_page_without_rows_fits_the_others(tmp_path: Path) -> None:
    pages = {"a__json": {"next": "p2", "items": ROWS}, "b__json": {"next": None, "items": []}}
    source = inspect(tmp_path, **{name: json.dumps(page) for name, page in pages.items()})
    assert source.description.settings == {"record_path": "items"}
    assert len(source.description.rows) == len(ROWS)
    assert "record_fields: [next]" in source.description.reasons[1]


def test_lines_that_each_hold_rows(tmp_path: Path) -> None:
    text = "".join(json.dumps({"Records": ROWS[n : n + 10]}) + "\n" for n in (0, 10, 20))
    source = inspect(tmp_path, a__json=text)
    assert source.description.settings == {"record_path": "Records"}
    assert len(source.description.rows) == len(ROWS)


def test_an_archive_of_two_tables(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("customers.csv", "id,name\n1,Ada\n2,Bo\n")
        archive.writestr("more.csv", "id,name\n3,Cy\n4,Di\n")
        archive.writestr("orders.csv", "order,total,at\n1,5.5,2026-05-01\n2,6.5,2026-05-02\n")
    (choice,) = inspect_files("x", input_files([str(tmp_path)])).description.choices
    assert choice.startswith("one table, or two: orders.csv in a.zip has other fields")


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("2026-05-01 08:00:00+00", None),
        ("2026-05-01 08:00:00 UTC", None),
        ("2026-05-01 08:00:00,123", "timestamp 'yyyy-MM-dd HH:mm:ss,SSS'"),
        ("01.05.26", "timestamp 'dd.MM.yy'"),
        ("5/13/26 8:00 AM", "timestamp 'M/d/yy h:mm a'"),
        ("13-MAY-26", "timestamp 'dd-MMM-yy'"),
        ("May 01, 2026", "timestamp 'MMM dd, yyyy'"),
    ],
)
def test_times(tmp_path: Path, value: str, hint: str | None) -> None:
    lines = (json.dumps({"id": n, "when": value}) for n in range(9))
    source = inspect(tmp_path, a__json="\n".join(lines))
    assert source.event_time == "when"
    assert source.description.settings == ({"hints": {"when": hint}} if hint else {})


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({"api_version": "2026-04-10", "created": 1_777_622_400}, "created"),
        ({"birth_date": "1990-01-02", "received_utc": 1_777_622_400}, "received_utc"),
        ({"valid": "2026-01-02", "seen_at": "2026-05-01T10:00:00Z"}, "seen_at"),
    ],
)
def test_event_time(tmp_path: Path, others: dict[str, Any], expected: str) -> None:
    lines = (json.dumps({"id": n, **others}) for n in range(9))
    assert inspect(tmp_path, a__json="\n".join(lines)).event_time == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1.234,50", "12,5"], "try_cast(replace(replace(v, '.', ''), ',', '.') as double)"),
        (["$1,234.50", "5"], "try_cast(regexp_replace(v, '[^0-9.eE+-]', '') as double)"),
        (["5%", "12.5%"], "try_cast(regexp_replace(v, '[^0-9.eE+-]', '') as double)"),
        (["TRUE", "False"], "try_cast(v as boolean)"),
        (["yes", "No"], "try_cast(v as boolean)"),
        (["01067", "80331"], None),
        (["10.0.0.1", "10.0.0.2"], None),
        (["a", "5"], None),
    ],
)
def test_values_in_other_notations(values: list[str], expected: str | None) -> None:
    (column,), _ = infer_columns([{"v": value} for value in values], False)
    assert (column.type, conversion_sql(column)) == ("string", expected)


def test_words_that_may_be_null_are_a_choice(tmp_path: Path) -> None:
    """NA is a region here, such as North America."""
    regions = "".join(f"{n},2026-05-01T10:00:{n:02}Z,{'NA' if n % 3 else 'EU'}\n" for n in range(9))
    description = inspect(tmp_path, a__csv=f"id,at,region\n{regions}").description
    assert "options" not in description.settings
    assert description.rows[1]["region"] == "NA"
    assert description.choices == ["NA as a value, or as null by options.nullValue: NA"]


def test_each_ambiguous_date_is_a_choice(tmp_path: Path) -> None:
    rows = "".join(f"{n},2026-05-01T10:00:{n:02}Z,0{n}/02/2026\n" for n in range(1, 9))
    source = inspect(tmp_path, a__csv=f"id,at,due\n{rows}")
    assert source.event_time == "at"
    assert [choice for choice in source.description.choices if "format of due" in choice]


def test_arrays_that_no_record_path_can_name(tmp_path: Path) -> None:
    document = {"a.b": [{"id": n} for n in range(9)], "items": ROWS}
    source = inspect(tmp_path, a__json=json.dumps(document))
    assert source.description.settings == {"record_path": "items"}


def test_signs_that_may_separate_thousands_are_a_choice(tmp_path: Path) -> None:
    rows = "".join(f"{n};2026-05-01T10:00:{n:02}Z;{n}.500\n" for n in range(1, 9))
    description = inspect(tmp_path, a__csv=f"id;at;menge\n{rows}").description
    assert "menge" not in description.settings.get("hints", {})
    (choice,) = description.choices
    assert choice.startswith("whether 1.500 of menge is a thousand times more")


def test_a_delta_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table/_delta_log").mkdir(parents=True)
    (tmp_path / "table/part-0.parquet").touch()
    with pytest.raises(UsageError, match="table is a Delta table"):
        input_files([str(tmp_path)])
