"""Schema versions: immutable files that only add and widen columns."""

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
    DeclaredColumns,
    SchemaVersion,
    add_version,
    read_versions,
)
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import FILE_ORIGIN_COLUMNS, TECHNICAL_COLUMNS

A = {"Device": "string", "x": "double"}


def declare_columns(
    root: StoragePath, columns: Mapping[str, str], key: str = "schema", can_rewrite: bool = False
) -> SchemaVersion:
    """Declare columns of the source `a`."""
    return registry.declare_columns(root, "a", DeclaredColumns(key, columns, {}, {}), can_rewrite)


def test_read_versions_of_a_new_source(tmp_path: Path) -> None:
    assert read_versions(StoragePath(tmp_path / "missing")) == []


def test_declare_columns_writes_version_1_once(tmp_path: Path) -> None:
    for _ in range(2):
        version = declare_columns(StoragePath(tmp_path / "s"), A)
        assert (version.version, version.columns) == (1, A)
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["1.json"]
    document = json.loads((tmp_path / "s" / "1.json").read_text())
    assert document["columns"] == A
    assert list(document["columns"]) == list(A)


def test_declare_no_columns_writes_version_1(tmp_path: Path) -> None:
    root = StoragePath(tmp_path)
    assert declare_columns(root, {}).version == 1
    assert declare_columns(root, {}).version == 1


def test_new_columns_follow_existing_ones(tmp_path: Path) -> None:
    root = StoragePath(tmp_path)
    declare_columns(root, A)
    add_version(root, {"battery": "long"}, "new fields in batch 4")
    third = declare_columns(root, {"first": "string", **A})
    assert list(third.columns) == ["Device", "x", "battery", "first"]
    assert [version.version for version in read_versions(root)] == [1, 2, 3]
    assert [version.why for version in read_versions(root)][1] == "new fields in batch 4"
    times = [datetime.fromisoformat(version.created_at) for version in read_versions(root)]
    assert [time.tzinfo for time in times] == [UTC] * 3
    assert times == sorted(times)


def test_column_that_is_no_longer_declared_stays(tmp_path: Path) -> None:
    root = StoragePath(tmp_path)
    declare_columns(root, A)
    assert declare_columns(root, {"x": "double"}).columns == A


def test_read_versions_sorts_by_number(tmp_path: Path) -> None:
    root = StoragePath(tmp_path)
    for number in range(12):
        add_version(root, {f"c{number}": "long"}, "test")
    assert [version.version for version in read_versions(root)] == list(range(1, 13))
    assert len(read_versions(root)[-1].columns) == 12


def test_add_version_never_overwrites(tmp_path: Path) -> None:
    root = StoragePath(tmp_path)
    for number in range(3):
        add_version(root, {f"c{number}": "long"}, "test")
    (tmp_path / "1.json").unlink()  # removed by a user
    content = (tmp_path / "3.json").read_text()
    assert add_version(root, {"new": "long"}, "test").version == 4
    assert (tmp_path / "3.json").read_text() == content


@pytest.mark.parametrize(
    ("first", "changed"),
    [
        ({"x": "double"}, {"x": "long"}),
        ({"x": "long"}, {"x": "double"}),
        ({"x": "struct<a:long>"}, {"x": "struct<a:string,b:long>"}),
        ({"x": "array<long>"}, {"x": "long"}),
    ],
)
@pytest.mark.usefixtures("spark")  # Spark parses the types
def test_declare_columns_rejects_another_type(
    tmp_path: Path, first: Mapping[str, str], changed: Mapping[str, str]
) -> None:
    root = StoragePath(tmp_path)
    declare_columns(root, first)
    with pytest.raises(ConfigError) as error:
        declare_columns(root, changed)
    assert "sources.a.schema.x" in str(error.value)
    assert first["x"] in str(error.value)
    assert len(read_versions(root)) == 1


def test_declare_columns_rejects_another_case(tmp_path: Path) -> None:
    """Delta's column names are case-insensitive, so the table cannot have both."""
    root = StoragePath(tmp_path)
    add_version(root, {"battery": "double"}, "new fields in batch 1")
    with pytest.raises(ConfigError) as error:
        declare_columns(root, {"Battery": "double"})
    assert "sources.a.schema.Battery" in str(error.value)
    assert "battery" in str(error.value)
    assert len(read_versions(root)) == 1


PUNCTUATION = [f"a{character}b" for character in " ,;{}()=\n\t`'\"\\.<>:"]
INVALID_NAMES = ["", "x" * 129, "a\u200bb", "a\x00", "a\x7f", "\ud800"]
TECHNICAL_NAMES = [
    *TECHNICAL_COLUMNS,
    *FILE_ORIGIN_COLUMNS,
    "_failed_rules",
    "_conflict",
    "_Rescued_DATA",
    "_ingested_AT",
]
CHANGE_FEED_NAMES = ["_change_type", "_commit_version", "_COMMIT_TIMESTAMP"]


@pytest.mark.parametrize(
    "name", [*PUNCTUATION, *INVALID_NAMES, *TECHNICAL_NAMES, *CHANGE_FEED_NAMES]
)
def test_select_columns_drops_invalid_names(name: str) -> None:
    assert select_columns({name: "string", "good": "long"}, {}) == {"good": "long"}


@pytest.mark.parametrize(
    "name", ["a", "_a", "A1", "ä", "名前", "a-b", "a/b", "@a", "#", "$x", "1", "x" * 128]
)
def test_select_columns_keeps_valid_names(name: str) -> None:
    assert select_columns({name: "string"}, A) == {name: "string"}


def test_select_columns_ignores_case(tmp_path: Path) -> None:
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
def test_select_columns_folds_letters_like_spark(known: str, new: str) -> None:
    assert select_columns(
        {f"a{new}": "long", "ß": "long", "ss": "long"}, {f"a{known}": "long"}
    ) == {
        "ß": "long",
        "ss": "long",
    }


@pytest.mark.parametrize("known", [0, 1, MAX_COLUMNS - 1, MAX_COLUMNS, MAX_COLUMNS + 9])
def test_select_columns_limits_their_number(known: int) -> None:
    known_columns = {f"k{number}": "long" for number in range(known)}
    fields = {f"f{number}": "string" for number in range(2 * MAX_COLUMNS)}
    columns = select_columns(fields, known_columns)
    assert len(columns) == max(MAX_COLUMNS - known, 0)
    assert list(columns) == list(fields)[: len(columns)]
    assert len(select_columns(fields, iter(known_columns))) == len(columns)
    # Fields that the configuration uses are always columns.
    last = f"f{2 * MAX_COLUMNS - 1}"
    columns = select_columns(fields, known_columns, named=[last.upper(), "f0", "not_there"])
    assert len(columns) == max(MAX_COLUMNS - known, 2)
    assert list(columns)[:1] + list(columns)[-1:] == ["f0", last]


def test_changes_by_version() -> None:
    one = SchemaVersion(1, "now", "why", {"a": "long"})
    two = SchemaVersion(2, "now", "why", {"a": "long", "b": "string", "c": "double"})
    assert list(registry.changes_by_version([one, two, two])) == [
        (one, ["+ a long"]),
        (two, ["+ b string", "+ c double"]),
        (two, []),
    ]


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
def test_read_versions_names_an_invalid_file(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(MedallionError) as error:
        read_versions(StoragePath(tmp_path))
    assert str(tmp_path / name) in str(error.value)


def test_read_versions_ignores_unfinished_files(tmp_path: Path) -> None:
    root = StoragePath(tmp_path)
    add_version(root, A, "test")
    (tmp_path / ".2.tmp").write_text('{"version"')
    assert len(read_versions(root)) == 1
    assert add_version(root, {"b": "long"}, "test").version == 2
    assert [version.version for version in read_versions(root)] == [1, 2]


@pytest.mark.usefixtures("spark")  # Spark parses the types
def test_declare_columns_of_a_struct_that_has_grown(tmp_path: Path) -> None:
    """A hint for a struct does not conflict with fields added since."""
    root = StoragePath(tmp_path)
    registry.add_version(root, {"user": "struct<name:string,plan:long>", "n": "long"}, "inferred")
    version = declare_columns(root, {"user": "struct<name:string>"}, "hints")
    assert version.version == 1
    version = declare_columns(root, {"user": "struct<age:long,name:string>"}, "hints")
    assert version.columns["user"] == "struct<name:string,plan:long,age:long>"
    with pytest.raises(ConfigError, match=r"hints\.user is struct<plan:string>, but"):
        declare_columns(root, {"user": "struct<plan:string>"}, "hints")
    version = declare_columns(root, {"user": "struct<plan:string>"}, "hints", True)
    assert version.columns["user"] == "struct<plan:string,name:string,age:long>"
