"""Jars are fetched one by one; complete ones stay after a failure."""

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
    """A substitute for Ivy that writes each jar into its folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.content: dict[str, str] = {}
        self.folders: list[Path] = []
        monkeypatch.setattr(fetch, "_ivy_command", self.command)
        monkeypatch.setattr(fetch, "_write_trust_store", lambda _: None)

    def command(self, jar: Jar, work: Path) -> list[str]:
        self.folders.append(work)
        if jar.artifact not in self.content:
            return ["echo", "error of Ivy"]
        text = shlex.quote(self.content[jar.artifact])
        return ["sh", "-c", f"printf %s {text} > '{work}/{jar.artifact}-{jar.version}.jar'"]


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Repository:
    return Repository(monkeypatch)


def test_fetch_jars_reports_each(tmp_path: Path, repository: Repository) -> None:
    repository.content = {"one": "first", "two": "second"}
    lines: list[str] = []
    fetch.fetch_jars(JARS, tmp_path / "jars", lines.append)
    files = {file.name: file.read_text() for file in (tmp_path / "jars").iterdir()}
    assert files == {"org.one_one-1.0.jar": "first", "org.two_two-2.0.jar": "second"}
    assert [line.split()[0] for line in lines] == ["fetching", "1/2", "2/2"]
    assert len(repository.folders) == 2


def test_fetch_jars_into_a_relative_folder(
    tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    repository.content = {"one": "first", "two": "second"}
    fetch.fetch_jars(JARS, Path("jars"), lambda _: None)
    assert repository.folders[0].is_absolute(), "Ivy rejects a relative folder"
    assert len(list((tmp_path / "jars").iterdir())) == 2


def test_fetch_jars_keeps_complete_ones(tmp_path: Path, repository: Repository) -> None:
    repository.content = {"one": "first"}
    lines: list[str] = []
    with pytest.raises(UsageError, match=r"org.two_two-2.0.jar could not be fetched"):
        fetch.fetch_jars(JARS, tmp_path, lines.append)
    assert [file.name for file in tmp_path.iterdir()] == ["org.one_one-1.0.jar"]
    assert "error of Ivy" in lines[-1]
    assert len(repository.folders) == 3, "retried with Python's certificate authorities"


def test_fetch_jars_rejects_another_checksum(tmp_path: Path, repository: Repository) -> None:
    repository.content = {"one": "first, changed", "two": "second"}
    with pytest.raises(UsageError, match=r"org.one_one-1.0.jar does not have the checksum"):
        fetch.fetch_jars(JARS, tmp_path, lambda _: None)
    assert not (tmp_path / "org.one_one-1.0.jar").exists()
