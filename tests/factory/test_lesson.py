"""`load` comes to an end, and `clean_up` takes away what a lesson made, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from medallion.errors import UsageError
from medallion.factory import DataFactory
from medallion.storage import files, locks
from medallion.storage.paths import Layout

SAMPLE = Path(__file__).resolve().parents[2] / "data/sample"


def landed(root: Path, source: str = "event") -> list[str]:
    return sorted(path.name for path in (root / "landing" / source).iterdir())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lesson"


def test_given_files_land_one_after_the_other_until_none_is_left(root: Path) -> None:
    factory = DataFactory(root / "landing", given=SAMPLE)
    # file1.json has four lines, the three others two each; activity has one file of ten.
    assert factory.load(source="event")["event"].lines == 4
    assert landed(root) == ["file1.json"]
    assert (root / "landing/event/file1.json").read_bytes() == (
        SAMPLE / "event/file1.json"
    ).read_bytes()
    assert {name: r.lines for name, r in factory.load().items()} == {"activity": 10, "event": 2}
    (root / "landing/event/file1.json").unlink()  # as the pipeline does, once it has its rows
    rest = factory.load(continuous=True)
    assert {name: (r.files, r.lines) for name, r in rest.items()} == {"event": (2, 4)}
    assert landed(root) == ["file2.json", "file3.json", "newaction.json"]
    assert factory.load() == factory.load(continuous=True) == {}


def test_given_files_land_by_their_numbers(root: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    (given / "event").mkdir(parents=True)
    for name in ("file10.json", "file9.json", ".hidden.json", "_started.json"):
        (given / "event" / name).write_text("{}\n")
    factory = DataFactory(root / "landing", given=given)
    factory.load()
    assert landed(root) == ["file9.json"]
    factory.load(continuous=True)
    assert landed(root) == ["file10.json", "file9.json"]


def test_a_landing_that_was_cut_off_is_done_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the note, whether the file had its name by then or not."""
    factory = DataFactory(root / "landing", given=SAMPLE)
    factory.load(source="activity")
    write = files.write_atomic

    def cut_off(path: Path, text: str) -> None:
        if path.name == "state.json":
            raise KeyboardInterrupt
        write(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_atomic", cut_off)
        with pytest.raises(KeyboardInterrupt):
            factory.load(source="event")
    assert landed(root) == ["file1.json"]
    assert factory.load(source="event")["event"].lines == 4
    assert landed(root) == ["file1.json"]
    (root / "landing/event/.file2.json.tmp").write_text('{"half of')
    assert factory.load(source="event")["event"].lines == 2
    assert landed(root) == ["file1.json", "file2.json"]


@pytest.mark.parametrize(
    ("given", "source", "told"),
    [
        (None, None, "name their folder as given="),
        ("nowhere", None, "no files to land"),
        (str(SAMPLE), "phones", "no files of 'phones', only of activity, event"),
    ],
)
def test_what_cannot_be_given_is_told(
    root: Path, given: str | None, source: str | None, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        DataFactory(root / "landing", given=given).load(source=source)


def test_nobody_elses_file_is_written_over(root: Path) -> None:
    mine = root / "landing/event/file1.json"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(UsageError, match=r"file1\.json is there already"):
        DataFactory(root / "landing", given=SAMPLE).load(source="event")
    assert mine.read_text() == "mine"


def test_clean_up_removes_what_the_lesson_made_and_nothing_else(root: Path) -> None:
    factory = DataFactory(root / "landing", given=SAMPLE)
    factory.load()
    factory.land(rows=10)
    for made in ("bronze/event/part-0.parquet", "_checkpoints/bronze.event/metadata"):
        (root / made).parent.mkdir(parents=True)
        (root / made).touch()
    for moved in ("archive/event/file1.json", "rejected/activity/activity-000001-00001.json"):
        (root / moved).parent.mkdir(parents=True)
        (root / moved).touch()
    (root / "rejected/activity/activity-000001-00001.json.reason.txt").touch()
    beside = root.parent / "beside.txt"
    mine = [root / "notes.txt", root / "landing/event/mine.json", beside]
    mine.append(root / "landing/event/event-000002-00001.json")  # batch 2 was never made
    mine += [root / "archive/event/mine.json", root / "rejected/activity/mine.json.reason.txt"]
    for path in mine:
        path.write_text("mine")
    (root / "archive/activity").symlink_to(SAMPLE / "activity")

    cleaned = factory.clean_up()

    assert sorted(root.parent.rglob("*.*")) == sorted(mine)
    assert cleaned.left == tuple(sorted(set(mine) - {beside}))
    assert (SAMPLE / "activity/sample.json").exists()
    assert "bronze" in str(cleaned)
    assert factory.clean_up().removed == ()
    # A clean-up is a new start: the first file is the next one again.
    assert factory.load(source="event")["event"].lines == 4


def test_a_lesson_alone_leaves_not_even_its_root(root: Path) -> None:
    factory = DataFactory(root / "landing", given=SAMPLE)
    factory.load()
    factory.clean_up()
    assert not root.exists()


def test_a_root_that_held_files_before_is_left_alone(root: Path) -> None:
    (root / "gold").mkdir(parents=True)
    (root / "gold/precious.parquet").touch()
    factory = DataFactory(root / "landing", given=SAMPLE)
    factory.load()
    before = sorted(root.rglob("*"))
    with pytest.raises(UsageError, match="held files before the first load"):
        factory.clean_up()
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize("layer", ["silver", "publish"])
def test_a_root_that_is_being_written_is_left_alone(root: Path, layer: str) -> None:
    factory = DataFactory(root / "landing", given=SAMPLE)
    factory.load(source="event")
    with (
        locks.lock_layers(Layout(root), [layer], "stream"),
        pytest.raises(UsageError, match="is being written by medallion stream"),
    ):
        factory.clean_up()
    assert landed(root) == ["file1.json"]
