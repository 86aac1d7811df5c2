"""Recovery of a lost checkpoint or an older ledger, after maintenance has removed commits of
bronze."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from medallion.config.values import Duration
from medallion.errors import UsageError
from medallion.ingest.formats import SOURCE_TYPES
from medallion.inspect.audit import run_audit
from medallion.runtime import maintenance
from medallion.state.ledger import State
from medallion.state.runs import RunRecords
from medallion.storage import delta_log
from tests.support.home import set_age
from tests.support.lakehouse import Lakehouse, indexes, ledger_counts, only_rows
from tests.support.lines import row

RUNS = 4


@pytest.fixture(scope="module")
def lakehouse_after_runs(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Lakehouse:
    """Run once per file, then remove the oldest data files by maintenance.

    One file has two versions. `copy` keeps the ledger of the first run.
    """
    lakehouse = Lakehouse(spark, tmp_path_factory.mktemp("runs") / "lakehouse")
    home = only_rows(lakehouse, clean_source="off", allow_overwrites=True)
    policy = replace(home.config.maintain, retention=Duration.parse("1 second"), compact_from=2)
    home.config = replace(home.config, maintain=policy)
    layout = home.config.layout
    for number in range(1, RUNS + 1):
        name = "again.json" if number in (2, 3) else f"{number}.json"
        set_age(home.land("activity", name, row(number), row(10 * number, new=1)), 60 - number)
        home.fill("bronze")
        if number == 1:
            shutil.copytree(layout.table("ops.files"), home.root / "copy")
        if number in (RUNS - 2, RUNS):  # the first maintenance keeps the files it replaces
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(maintenance, "_HOUR", 0.0)  # replaced files may be removed at once
                done = maintenance.maintain(home.config, RunRecords(layout), ["bronze"])
            assert done.notes == ()
    for table in (layout.table("bronze.activity"), layout.queue("activity")):
        assert 0 in delta_log.commit_versions(table)
        assert delta_log.first_readable_version(table) > 2
    return home


@pytest.fixture
def home(lakehouse_after_runs: Lakehouse, tmp_path: Path) -> Lakehouse:
    """Copy the lakehouse, for a test that removes parts of it."""
    return lakehouse_after_runs.copy(tmp_path / "lakehouse")


def assert_each_row_once(home: Lakehouse, last: int) -> None:
    """Ingest one more file; check that each row is in bronze once and accounted for."""
    home.land("activity", f"{last}.json", row(last), row(10 * last, new=1))
    home.run("bronze")
    expected = [*range(1, last + 1), *range(10, 10 * last + 1, 10)]
    assert indexes(home) == sorted(expected)
    assert {state for state, *_ in ledger_counts(home).values()} == {State.INGESTED, State.REPLACED}
    audit = run_audit(home.config, everything=True)
    # Silver is not run here; it would have kept the commits that it has not read.
    assert [finding for finding in audit.findings if "silver" not in finding] == []
    assert audit.balances["activity"].landed_lines == 2 * last


def test_lost_checkpoint_after_maintenance(home: Lakehouse) -> None:
    shutil.rmtree(home.config.layout.checkpoint("bronze.activity"))
    assert_each_row_once(home, RUNS + 1)


def test_older_ledger_after_maintenance(home: Lakehouse) -> None:
    """Bronze's log lacks the commits: nothing is ingested until the root is restored."""
    table = home.config.layout.table("ops.files")
    newest = table.local.rename(home.root / "newest")
    shutil.copytree(home.root / "copy", table)
    source = home.config.sources["activity"]
    assert SOURCE_TYPES[source.format].scan(home.config, source).has_work
    assert len(ledger_counts(home)) == 1  # nothing is queued before the ledger is complete
    home.land("activity", "8.json", row(8))
    expected = indexes(home)
    for _ in range(2):
        with pytest.raises(UsageError, match=r"ledger .* is older .* whole root from one backup"):
            home.fill("bronze")
    assert indexes(home) == expected
    shutil.rmtree(table)
    newest.rename(table)
    home.fill("bronze")
    assert indexes(home) == sorted([*expected, 8])
