"""`load` lands the files of a folder, and `clean_up` deletes the lakehouse of a lesson."""

from __future__ import annotations

from pathlib import Path

import pytest

from medallion.factory.sample import FILES
from notebooks.lesson import Lesson


def landed(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "landing").rglob("*") if path.is_file())


def test_load_lands_file_by_file(tmp_path: Path) -> None:
    lesson = Lesson(tmp_path / "root", FILES)
    # file1.json has four lines, the three others two each; activity has one file of ten.
    assert lesson.load(source="event") == {"event": 4}
    assert landed(lesson.root) == ["file1.json"]
    assert lesson.load() == {"activity": 10, "event": 2}
    (lesson.root / "landing/event/file1.json").unlink()  # as the pipeline does
    again = Lesson(lesson.root, FILES)
    assert again.load(continuous=True) == {"event": 4}
    assert again.load() == again.load(continuous=True) == {}
    again.clean_up()
    assert not lesson.root.exists()


def test_load_orders_files_by_number(tmp_path: Path) -> None:
    (tmp_path / "given/event").mkdir(parents=True)
    for name in ("file10.json", "file9.json", "new.json"):
        (tmp_path / "given/event" / name).write_text("{}\n")
    lesson = Lesson(tmp_path / "root", tmp_path / "given")
    for names in (["file9.json"], ["file10.json", "file9.json"]):
        lesson.load()
        assert landed(lesson.root) == names


def test_other_lakehouses_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "gold/precious.parquet"
    file.parent.mkdir()
    file.touch()
    with pytest.raises(ValueError, match="has files that are not the lesson's"):
        Lesson(tmp_path, FILES).load()
    Lesson(tmp_path, FILES).clean_up()
    assert [*tmp_path.rglob("*.*")] == [file]
