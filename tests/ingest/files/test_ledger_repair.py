"""A lost checkpoint, and an older ledger, after maintenance has removed commits of bronze."""

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
from medallion.state.runs import Runs
from medallion.storage import delta_log
from tests.support.home import set_age
from tests.support.lakehouse import Lakehouse, indexes, ledger_counts, only_activity
from tests.support.lines import row

NIGHTS = 6


@pytest.fixture(scope="module")
def nights(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """Nights of a file each, after which maintenance has removed the files of the first ones. Of
    one file two versions came, and of the first night the ledger is kept as a copy."""
    lakehouse = Lakehouse(spark, tmp_path_factory.mktemp("nights") / "lakehouse")
    home = only_activity(lakehouse, clean_source="off", allow_overwrites=True)
    policy = replace(home.config.maintain, retention=Duration.parse("1 second"), compact_from=2)
    home.config = replace(home.config, maintain=policy)
    layout = home.config.layout
    for number in range(1, NIGHTS + 1):
        name = "again.json" if number in (2, 3) else f"{number}.json"
        set_age(home.land("activity", name, row(number), row(10 * number, new=1)), 60 - number)
        home.fill("bronze")
        if number == 1:
            shutil.copytree(layout.table("ops.files"), home.root / "copy")
        if number in (NIGHTS - 2, NIGHTS):  # the first time keeps what was there before
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(maintenance, "_HOUR", 0.0)  # replaced files may go at once
                done = maintenance.maintain(home.config, Runs(layout), ["bronze"])
            assert done.notes == ()
    for table in (layout.table("bronze.activity"), layout.intake("activity")):
        assert 0 in delta_log.commit_files(table)
        assert delta_log.first_readable_version(table) > 3
    return home


@pytest.fixture
def home(nights: Lakehouse, tmp_path: Path) -> Lakehouse:
    """A copy, to lose something of."""
    return nights.copy(tmp_path / "lakehouse")


def each_once(home: Lakehouse, last: int) -> None:
    """Whether all rows are there, one time each, and are accounted for."""
    home.land("activity", f"{last}.json", row(last), row(10 * last, new=1))
    home.fill("bronze")
    expected = [*range(1, last + 1), *range(10, 10 * last + 1, 10)]
    assert indexes(home) == sorted(expected)
    assert {state for state, *_ in ledger_counts(home).values()} == {State.INGESTED, State.REPLACED}
    found = run_audit(home.config, everything=True)
    # Silver, which is not run here, would have kept the commits that it has not read.
    assert [told for told in found.findings if "silver" not in told] == []
    assert found.balances["activity"].landed_lines == 2 * last


def test_lost_checkpoint_after_maintenance(home: Lakehouse) -> None:
    shutil.rmtree(home.config.layout.checkpoint("bronze.activity"))
    each_once(home, 7)


def test_older_ledger_after_maintenance(home: Lakehouse) -> None:
    """The log does not have all that it lacks: nothing is ingested until the root is restored."""
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
