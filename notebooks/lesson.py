"""The files of a lesson: they land one by one, and are removed again."""

import json
import re
import shutil
from pathlib import Path

import medallion as m


class Lesson:
    """A lakehouse of its own, which gets the files of a folder.

    Args:
        root: the root of the lakehouse, which has no files before the lesson.
        given: a folder with a folder for each source.
    """

    def __init__(self, root: Path, given: Path | str) -> None:
        self.root, self._given = root, Path(given)
        self._mark = root / "_factory/lesson.json"

    def load(self, continuous: bool = False, source: str = "*") -> dict[str, int]:
        """Land the next file of each source, or all; return the lines by source.

        Args:
            continuous: land all files that are left.
            source: only this source.
        """
        if not self._mark.exists() and any(self.root.rglob("*")):
            raise ValueError(f"{self.root} has files that are not the lesson's")
        self._mark.parent.mkdir(parents=True, exist_ok=True)
        landed = json.loads(self._mark.read_text()) if self._mark.exists() else []
        lines = dict[str, int]()
        for folder in sorted(self._given.glob(source)):
            names = [f"{folder.name}/{file.name}" for file in sorted(folder.iterdir(), key=_order)]
            left = [name for name in names if name not in landed]
            for name in left if continuous else left[:1]:
                target = self.root / "landing" / name
                target.parent.mkdir(parents=True, exist_ok=True)
                part = shutil.copyfile(self._given / name, f"{target}.part")
                Path(part).rename(target)  # a stream reads it at once
                landed.append(name)
                text = target.read_text(encoding="utf-8")
                lines[folder.name] = lines.get(folder.name, 0) + len(text.split("\n")) - 1
        self._mark.write_text(json.dumps(landed))
        return lines

    def clean_up(self) -> None:
        """Stop all streams of this process, and delete the lakehouse."""
        if running := m.streams.stop_all_streams():
            raise RuntimeError(f"{', '.join(running)} did not stop: nothing was deleted")
        if self._mark.exists():
            shutil.rmtree(self.root)


def _order(file: Path) -> list[int | str]:
    """Return a key that sorts file2 before file10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", file.name)]
