"""Versions of a schema: written once, only ever wider, and readable by people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from medallion.errors import ConfigError, MedallionError
from medallion.ingest.schema import registry
from medallion.ingest.schema.columns import MAX_COLUMNS, select_columns
from medallion.ingest.schema.registry import (
    SchemaVersion,
    add_version,
    declare_columns,
    read_versions,
)
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import FILE_ORIGIN_COLUMNS, TECHNICAL_COLUMNS

A = {"Device": "string", "x": "double"}


def test_no_version_yet(tmp_path: Path) -> None:
    assert read_versions(StoragePath(tmp_path / "not there")) == []


def test_what_is_declared_is_version_1_and_once_only(tmp_path: Path) -> None:
    for _ in range(2):
        version = declare_columns(StoragePath(tmp_path / "s"), "a", A)
        assert (version.version, version.columns) == (1, A)
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["1.json"]
    document = json.loads((tmp_path / "s" / "1.json").read_text())
    assert document["columns"] == A
    assert list(document["columns"]) == list(A)


def test_nothing_declared_is_a_version_too(tmp_path: Path) -> None:
    root = StoragePath(tmp_path)
    assert declare_columns(root, "a", {}).version == 1
    assert declare_columns(root, "a", {}).version == 1


def test_new_columns_come_after_the_known_ones(tmp_path: Path) -> None:
    root = StoragePath(tmp_path)
    declare_columns(root, "a", A)
    add_version(root, {"battery": "long"}, "new fields in batch 4")
    third = declare_columns(root, "a", {"first": "string", **A})
    assert list(third.columns) == ["Device", "x", "battery", "first"]
    assert [version.version for version in read_versions(root)] == [1, 2, 3]
    assert [version.why for version in read_versions(root)][1] == "new fields in batch 4"
    times = [datetime.fromisoformat(version.created_at) for version in read_versions(root)]
    assert [time.tzinfo for time in times] == [UTC] * 3
    assert times == sorted(times)


def test_a_column_that_is_no_longer_declared_stays(tmp_path: Path) -> None:
    root = StoragePath(tmp_path)
    declare_columns(root, "a", A)
    assert declare_columns(root, "a", {"x": "double"}).columns == A


def test_versions_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    root = StoragePath(tmp_path)
    for number in range(12):
        add_version(root, {f"c{number}": "long"}, "test")
    assert [version.version for version in read_versions(root)] == list(range(1, 13))
    assert len(read_versions(root)[-1].columns) == 12


def test_a_version_is_never_overwritten(tmp_path: Path) -> None:
    root = StoragePath(tmp_path)
    for number in range(3):
        add_version(root, {f"c{number}": "long"}, "test")
    (tmp_path / "1.json").unlink()  # somebody tidied up
    kept = (tmp_path / "3.json").read_text()
    assert add_version(root, {"new": "long"}, "test").version == 4
    assert (tmp_path / "3.json").read_text() == kept


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"x": "double"}, {"x": "long"}),
        ({"x": "long"}, {"x": "double"}),
        ({"x": "struct<a:long>"}, {"x": "struct<a:string,b:long>"}),
        ({"x": "array<long>"}, {"x": "long"}),
    ],
)
@pytest.mark.usefixtures("spark")  # whose parser reads types
def test_another_type_is_refused(
    tmp_path: Path, first: Mapping[str, str], then: Mapping[str, str]
) -> None:
    root = StoragePath(tmp_path)
    declare_columns(root, "a", first)
    with pytest.raises(ConfigError) as refused:
        declare_columns(root, "a", then)
    assert "sources.a.schema.x" in str(refused.value)
    assert first["x"] in str(refused.value)
    assert len(read_versions(root)) == 1


def test_a_name_that_differs_in_case_is_refused(tmp_path: Path) -> None:
    """Delta's columns are the same whatever their case: the table could not have both."""
    root = StoragePath(tmp_path)
    add_version(root, {"battery": "double"}, "new fields in batch 1")
    with pytest.raises(ConfigError) as refused:
        declare_columns(root, "a", {"Battery": "double"})
    assert "sources.a.schema.Battery" in str(refused.value)
    assert "battery" in str(refused.value)
    assert len(read_versions(root)) == 1


SIGNS = [f"a{sign}b" for sign in " ,;{}()=\n\t`'\"\\.<>:"]
UNSEEN = ["", "x" * 129, "a\u200bb", "a\x00", "a\x7f", "\ud800"]
OURS = [
    *TECHNICAL_COLUMNS,
    *FILE_ORIGIN_COLUMNS,
    "_failed_rules",
    "_conflict",
    "_Rescued_DATA",
    "_ingested_AT",
]
FEED = ["_change_type", "_commit_version", "_COMMIT_TIMESTAMP"]


@pytest.mark.parametrize("name", [*SIGNS, *UNSEEN, *OURS, *FEED])
def test_names_that_a_table_cannot_have(name: str) -> None:
    assert select_columns({name: "string", "good": "long"}, {}) == {"good": "long"}


@pytest.mark.parametrize(
    "name", ["a", "_a", "A1", "ä", "名前", "a-b", "a/b", "@a", "#", "$x", "1", "x" * 128]
)
def test_names_that_it_can(name: str) -> None:
    assert select_columns({name: "string"}, A) == {name: "string"}


def test_names_that_differ_in_case_are_one(tmp_path: Path) -> None:
    assert select_columns({"DEVICE": "string", "y": "long", "Y": "string"}, A) == {"y": "long"}


@pytest.mark.parametrize(
    ("known", "new"),
    [
        ("i", "\u0131"),
        ("\u0131", "I"),
        ("I", "\u0130"),
        ("s", "\u017f"),
        ("k", "\u212a"),
        ("ΟΔΟΣ", "οδος"),
        ("ß", "ẞ"),
    ],
)
def test_letters_that_spark_takes_for_one(known: str, new: str) -> None:
    assert select_columns(
        {f"a{new}": "long", "ß": "long", "ss": "long"}, {f"a{known}": "long"}
    ) == {
        "ß": "long",
        "ss": "long",
    }


@pytest.mark.parametrize("known", [0, 1, MAX_COLUMNS - 1, MAX_COLUMNS, MAX_COLUMNS + 9])
def test_so_many_columns_and_no_more(known: int) -> None:
    there = {f"k{number}": "long" for number in range(known)}
    fields = {f"f{number}": "string" for number in range(2 * MAX_COLUMNS)}
    found = select_columns(fields, there)
    assert len(found) == max(MAX_COLUMNS - known, 0)
    assert list(found) == list(fields)[: len(found)]
    assert len(select_columns(fields, iter(there))) == len(found)
    # Fields that the configuration uses are columns, however many there are.
    last = f"f{2 * MAX_COLUMNS - 1}"
    found = select_columns(fields, there, named=[last.upper(), "f0", "not_there"])
    assert len(found) == max(MAX_COLUMNS - known, 2)
    assert list(found)[:1] + list(found)[-1:] == ["f0", last]


def test_differences() -> None:
    one = SchemaVersion(1, "now", "why", {"a": "long"})
    two = SchemaVersion(2, "now", "why", {"a": "long", "b": "string", "c": "double"})
    assert registry.version_changes(None, one) == ["+ a long"]
    assert registry.version_changes(one, two) == ["+ b string", "+ c double"]
    assert registry.version_changes(two, two) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("1.json", "{broken"),
        ("1.json", ""),
        ("1.json", "[]"),
        ("1.json", "{}"),
        ("1.json", '{"version": 1, "created_at": "", "why": "", "columns": {}, "more": 1}'),
        ("1.json", '{"version": 1, "created_at": "", "why": "", "columns": 5}'),
        ("1.json", '{"version": 1, "created_at": "", "why": "", "columns": {"a": 5}}'),
        ("notes.json", "{}"),
    ],
)
def test_a_file_that_is_no_version_is_told_by_its_name(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(MedallionError) as told:
        read_versions(StoragePath(tmp_path))
    assert str(tmp_path / name) in str(told.value)


def test_a_version_that_was_being_written_is_none(tmp_path: Path) -> None:
    root = StoragePath(tmp_path)
    add_version(root, A, "test")
    (tmp_path / ".2.tmp").write_text('{"version"')
    assert len(read_versions(root)) == 1
    assert add_version(root, {"b": "long"}, "test").version == 2
    assert [version.version for version in read_versions(root)] == [1, 2]


@pytest.mark.usefixtures("spark")  # whose parser reads types
def test_declared_struct_that_has_grown(tmp_path: Path) -> None:
    """A hint of a struct must not conflict with fields that were learned since."""
    root = StoragePath(tmp_path)
    registry.add_version(root, {"user": "struct<name:string,plan:long>", "n": "long"}, "inferred")
    found = registry.declare_columns(root, "s", {"user": "struct<name:string>"}, "hints")
    assert found.version == 1
    found = registry.declare_columns(root, "s", {"user": "struct<age:long,name:string>"}, "hints")
    assert found.columns["user"] == "struct<name:string,plan:long,age:long>"
    with pytest.raises(ConfigError, match=r"hints\.user is struct<plan:string>, but"):
        registry.declare_columns(root, "s", {"user": "struct<plan:string>"}, "hints")
    found = registry.declare_columns(root, "s", {"user": "struct<plan:string>"}, "hints", True)
    assert found.columns["user"] == "struct<plan:string,name:string,age:long>"
