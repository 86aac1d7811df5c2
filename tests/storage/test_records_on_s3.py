"""Record tables in a bucket: each row is written once, also if answers are lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
