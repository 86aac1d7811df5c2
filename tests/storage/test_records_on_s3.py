"""Record tables in a bucket: each row is written once, also if answers are lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from arro3.core import Array, DataType, Table
from deltalake import write_deltalake

from medallion.storage import delta_log, delta_tables, objects, records
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import TableSpec
from tests.support.fault_proxy import COMMIT, FaultProxy, held, lost_answer
from tests.support.s3_server import Bucket, S3Server

Rows = Callable[[], list[tuple[object, ...]]]
SPEC = TableSpec({"name": "string", "number": "long"})


@pytest.fixture
def table(bucket: Bucket) -> StoragePath:
    return StoragePath(bucket.url("lake/ops/runs"))


@pytest.fixture
def rows(table: StoragePath, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Rows:
    """Return a function that reads the table without the proxy.

    A query of DataFusion holds Python's lock, so a proxy in its process cannot answer it.
    """

    def read() -> list[tuple[object, ...]]:
        with monkeypatch.context() as direct:
            direct.setattr(delta_tables, "_opened", {})
            for name, value in s3_server.environment().items():
                direct.setenv(name, value)
            return sorted(delta_tables.select_rows(table, "name, number"))

    return read


@pytest.mark.parametrize("status", [0, 500])
def test_append_after_a_lost_answer(
    table: StoragePath, rows: Rows, proxy: FaultProxy, status: int
) -> None:
    for number in range(3):
        with proxy.inject(lost_answer(status), "PUT", COMMIT, skip=int(number == 0)):
            records.append_records(table, SPEC, [{"name": "a", "number": number}])
    assert rows() == [("a", 0), ("a", 1), ("a", 2)]
    assert delta_tables.table_version(table) == 3


@pytest.mark.parametrize("status", [0, 500])
def test_creation_after_a_lost_answer(
    table: StoragePath, rows: Rows, proxy: FaultProxy, status: int
) -> None:
    with proxy.inject(lost_answer(status), "PUT", COMMIT):
        records.append_records(table, SPEC, [])
    assert rows() == []
    records.upsert_records(table, SPEC, [{"name": "a", "number": 1}], ["name"])
    with proxy.inject(lost_answer(status), "PUT", COMMIT):
        records.upsert_records(table, SPEC, [{"name": "a", "number": 2}], ["name"])
    assert rows() == [("a", 2)]


def test_append_beside_another_process(table: StoragePath, rows: Rows, proxy: FaultProxy) -> None:
    """Its commit comes between the question for the version and this one's commit."""
    records.append_records(table, SPEC, [])

    commit = b'{"commitInfo": {"timestamp": 0, "operation": "WRITE"}}'
    other = delta_log.commit_file(table, 1)
    with proxy.inject(held(lambda: objects.write(str(other), commit)), "PUT", COMMIT):
        records.append_records(table, SPEC, [{"name": "a", "number": 1}])
    assert rows() == [("a", 1)]
    assert delta_tables.table_version(table) == 2


def test_table_is_opened_again_by_its_new_commits(
    bucket: Bucket, table: StoragePath, proxy: FaultProxy
) -> None:
    """A table that was replaced is read completely again, and none is older than its log."""

    def append(*numbers: int) -> None:
        for number in numbers:
            options = table.delta_options
            write_deltalake(str(table), arrow(number), mode="append", storage_options=options)

    def arrow(number: int) -> Table:
        return Table.from_pydict({"number": Array([number], DataType.int64())})

    append(1, 2, 3, 4, 5)
    first = delta_tables.open_table(table)
    proxy.requests.clear()
    assert (delta_tables.open_table(table), delta_tables.table_version(table)) == (first, 4)
    assert proxy.count("lake/ops") == {"LIST": 2}
    append(6)
    proxy.requests.clear()
    assert delta_tables.open_table(table).version() == 5
    assert sum("json" in each.key for each in proxy.requests) <= 2
    assert delta_tables.row_count(table) == 6
    options = table.delta_options
    write_deltalake(str(table), arrow(9), mode="overwrite", storage_options=options)
    assert delta_tables.row_count(table) == 1
    assert len(delta_tables.data_files(table)) == 1
    table.delete_prefix()
    append(7, 8)
    assert delta_tables.row_count(table) == 2
