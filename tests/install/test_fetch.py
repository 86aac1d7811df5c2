"""Jars are fetched one by one: what is complete stays after a failure."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

import pytest

from medallion.errors import UsageError
from medallion.install import fetch
from medallion.install.jars import Jar

JARS = [
    Jar("org.one", "one", "1.0", hashlib.sha256(b"first").hexdigest()),
    Jar("org.two", "two", "2.0", hashlib.sha256(b"second").hexdigest()),
]


class Repository:
    """Instead of Ivy, which writes each jar into its cache."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.content: dict[str, str] = {}
        self.runs = 0
        monkeypatch.setattr(fetch._Ivy, "_command", self.command)
        monkeypatch.setattr(fetch, "_trust_options", lambda _: [])

    def command(self, _options: object) -> list[str]:
        self.runs += 1
        lines = []
        for jar in JARS:
            if jar.artifact in self.content:
                folder = f"cache/{jar.group}/{jar.artifact}/jars"
                name = f"{folder}/{jar.artifact}-{jar.version}.jar"
                text = shlex.quote(self.content[jar.artifact])
                lines.append(f"mkdir -p {folder}; printf %s {text} > {name}")
        return ["sh", "-c", f"cd {self.work}; echo as Ivy says; {'; '.join(lines)}"]

    work = ""


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Repository:
    repository = Repository(monkeypatch)
    original = fetch._Ivy.__init__

    def remember(ivy: fetch._Ivy, jars: list[Jar], work: Path, *rest: object) -> None:
        repository.work = str(work)
        original(ivy, jars, work, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fetch._Ivy, "__init__", remember)
    return repository


def test_fetch_jars_reports_each(tmp_path: Path, repository: Repository) -> None:
    repository.content = {"one": "first", "two": "second"}
    lines: list[str] = []
    fetch.fetch_jars(JARS, tmp_path / "jars", lines.append)
    files = {file.name: file.read_text() for file in (tmp_path / "jars").iterdir()}
    assert files == {"org.one_one-1.0.jar": "first", "org.two_two-2.0.jar": "second"}
    assert [line.split()[0] for line in lines] == ["fetching", "1/2", "2/2"]
    assert repository.runs == 1


def test_fetch_jars_takes_a_relative_folder(
    tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    repository.content = {"one": "first", "two": "second"}
    fetch.fetch_jars(JARS, Path("jars"), lambda _: None)
    assert Path(repository.work).is_absolute(), "Ivy refuses a relative folder"
    assert len(list((tmp_path / "jars").iterdir())) == 2


def test_fetch_jars_keeps_complete_ones(tmp_path: Path, repository: Repository) -> None:
    repository.content = {"one": "first"}
    lines: list[str] = []
    with pytest.raises(UsageError, match=r"1 jar could not be fetched: org.two_two-2.0.jar"):
        fetch.fetch_jars(JARS, tmp_path, lines.append)
    assert [file.name for file in tmp_path.iterdir()] == ["org.one_one-1.0.jar"]
    assert "as Ivy says" in lines[-1]
    assert repository.runs == 2, "the second time with the authorities of Python"


def test_fetch_jars_refuses_another_checksum(tmp_path: Path, repository: Repository) -> None:
    repository.content = {"one": "first, changed", "two": "second"}
    with pytest.raises(UsageError, match=r"org.one_one-1.0.jar does not have the checksum"):
        fetch.fetch_jars(JARS, tmp_path, lambda _: None)
    assert not (tmp_path / "org.one_one-1.0.jar").exists()
