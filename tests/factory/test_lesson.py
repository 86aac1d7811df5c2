"""`load` lands given files, and `clean_up` deletes the files of a lesson."""

from __future__ import annotations

from pathlib import Path

import pytest

from medallion.errors import UsageError
from medallion.factory import DataFactory
from medallion.factory.plan import StateFile
from medallion.storage import locks
from medallion.storage.paths import Layout

SAMPLE = Path(__file__).resolve().parents[2] / "data/sample"


def landed(root: Path, source: str = "event") -> list[str]:
    return sorted(path.name for path in (root / "landing" / source).iterdir())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lesson"


def test_load_lands_file_by_file(root: Path) -> None:
    factory = DataFactory(root / "landing", given=SAMPLE)
    # file1.json has four lines, the three others two each; activity has one file of ten.
    assert factory.load(source="event")["event"].lines == 4
    assert landed(root) == ["file1.json"]
    assert (root / "landing/event/file1.json").read_bytes() == (
        SAMPLE / "event/file1.json"
    ).read_bytes()
    assert {name: r.lines for name, r in factory.load().items()} == {"activity": 10, "event": 2}
    (root / "landing/event/file1.json").unlink()  # as the pipeline does
    rest = factory.load(continuous=True)
    assert {name: (r.files, r.lines) for name, r in rest.items()} == {"event": (2, 4)}
    assert landed(root) == ["file2.json", "file3.json", "newaction.json"]
    assert factory.load() == factory.load(continuous=True) == {}


def test_load_orders_files_by_number(root: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    (given / "event").mkdir(parents=True)
    for name in ("file10.json", "file9.json", ".hidden.json", "_started.json"):
        (given / "event" / name).write_text("{}\n")
    factory = DataFactory(root / "landing", given=given)
    factory.load()
    assert landed(root) == ["file9.json"]
    factory.load(continuous=True)
    assert landed(root) == ["file10.json", "file9.json"]


def test_load_resumes_an_interrupted_landing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has landed, but the state does not record it."""
    factory = DataFactory(root / "landing", given=SAMPLE)
    factory.load(source="activity")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StateFile, "save", interrupt)
        with pytest.raises(KeyboardInterrupt):
            factory.load(source="event")
    assert landed(root) == ["file1.json"]
    assert factory.load(source="event")["event"].lines == 4
    assert landed(root) == ["file1.json"]


@pytest.mark.parametrize(
    ("given", "source", "message"),
    [
        (None, None, "name their directory as given="),
        ("nowhere", None, "no files to land"),
        (str(SAMPLE), "phones", "the folders of sources are activity, event"),
    ],
)
def test_load_refuses_missing_files(
    root: Path, given: str | None, source: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        DataFactory(root / "landing", given=given).load(source=source)


def test_load_overwrites_no_file(root: Path) -> None:
    foreign = root / "landing/event/file1.json"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    with pytest.raises(UsageError, match=r"file1\.json already exists"):
        DataFactory(root / "landing", given=SAMPLE).load(source="event")
    assert foreign.read_text() == "mine"


def test_clean_up_deletes_what_the_lesson_wrote(root: Path) -> None:
    factory = DataFactory(root / "landing", given=SAMPLE)
    factory.load()
    factory.land(rows=10)
    for path in (
        "bronze/event/part-0.parquet",
        "_checkpoints/bronze.event/metadata",
        "archive/event/file1.json",
        "rejected/activity/activity-000001-00001.json",
        "rejected/activity/activity-000001-00001.json.reason.txt",
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    (root / "notes.txt").touch()
    cleaned = factory.clean_up()
    assert list(root.rglob("*")) == [root / "notes.txt"]
    assert "bronze" in str(cleaned)
    assert factory.clean_up().removed == ()


@pytest.mark.parametrize("directory", ["landing/event", "archive/event", "rejected/event"])
def test_clean_up_refuses_files_that_no_factory_landed(root: Path, directory: str) -> None:
    factory = DataFactory(root / "landing", given=SAMPLE)
    factory.load()
    foreign = root / directory / "mine.json"
    foreign.parent.mkdir(parents=True, exist_ok=True)
    foreign.touch()
    with pytest.raises(UsageError, match=r"mine\.json is not the lesson's: move it away"):
        factory.clean_up()
    assert foreign.exists()
    assert (root / "landing/event/file1.json").exists()
    foreign.unlink()
    assert factory.clean_up().removed


def test_clean_up_deletes_the_root(root: Path) -> None:
    factory = DataFactory(root / "landing", given=SAMPLE)
    factory.load()
    factory.clean_up()
    assert not root.exists()


def test_clean_up_refuses_a_root_that_had_files(root: Path) -> None:
    (root / "gold").mkdir(parents=True)
    (root / "gold/precious.parquet").touch()
    factory = DataFactory(root / "landing", given=SAMPLE)
    factory.load()
    before = sorted(root.rglob("*"))
    with pytest.raises(UsageError, match="had files before the first load"):
        factory.clean_up()
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize("layer", ["silver", "publish"])
def test_clean_up_refuses_a_root_that_is_written(root: Path, layer: str) -> None:
    factory = DataFactory(root / "landing", given=SAMPLE)
    factory.load(source="event")
    with (
        locks.lock_layers(Layout(root), [layer], "stream"),
        pytest.raises(UsageError, match="is being written by medallion stream"),
    ):
        factory.clean_up()
    assert landed(root) == ["file1.json"]
