"""`medallion init` creates the files of a new project and replaces none."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from medallion.cli.main import main
from medallion.config.loader import load_with_errors, read_dotenv
from medallion.errors import NoSourceError, UsageError
from medallion.install.project import create_project
from medallion.storage.paths import StoragePath

FILES = [".env.example", ".gitignore", "README.md", "pipeline.yaml"]


def test_create_project(tmp_path: Path) -> None:
    assert create_project(tmp_path / "new") == (FILES, [])
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == FILES
    assert len((tmp_path / "new/README.md").read_text().splitlines()) == 10
    config, errors = load_with_errors({}, tmp_path / "new")
    assert config.layout.root == StoragePath(tmp_path / "new/data/lakehouse")
    assert [type(error) for error in errors] == [NoSourceError]


def test_create_project_examples_are_valid(tmp_path: Path) -> None:
    """The commented examples, uncommented."""
    create_project(tmp_path)
    file = tmp_path / "pipeline.yaml"
    lines = [line[2:] for line in file.read_text().splitlines() if line.startswith("#  ")]
    examples = "\n".join(["on_change: apply", "sources:", *lines]).replace(
        "  sales_by_day", "gold:\n  sales_by_day"
    )
    assert "\n# on_change: apply " in file.read_text()
    file.write_text(examples)
    config, errors = load_with_errors({}, tmp_path)
    assert errors == []
    assert (list(config.sources), list(config.gold)) == (["sales"], ["sales_by_day"])
    dotenv = (tmp_path / ".env.example").read_text().replace("#MEDALLION", "MEDALLION")
    (tmp_path / ".env").write_text(dotenv)
    assert read_dotenv(tmp_path / ".env")["MEDALLION_HOME"] == "data/lakehouse"


def test_create_project_keeps_files(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    written, kept = create_project(tmp_path)
    assert (written, kept) == ([".env.example", ".gitignore", "pipeline.yaml"], ["README.md"])
    assert (tmp_path / "README.md").read_text() == "mine"


@pytest.mark.parametrize("name", ["pipeline.yaml", "conf/pipeline.yaml"])
def test_create_project_rejects_an_existing_project(tmp_path: Path, name: str) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=r"pipeline.yaml: there is a project already"):
        create_project(tmp_path)
    assert [file.name for file in tmp_path.rglob("*.*")] == ["pipeline.yaml"]


def test_init_add_and_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From an empty folder to a source, without Spark."""
    monkeypatch.chdir(tmp_path)
    for name in ("MEDALLION_CONF", "MEDALLION_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "sales.csv").write_text("shop,amount,time\nnorth,12.50,2026-05-01T10:00:00Z\n")
    assert main(["init", "new"]) == 0
    assert main(["init", "new"]) == 2
    assert main(["add", "sales", "sales.csv", "--land", "--conf", "new"]) == 0
    assert "sales" in yaml.safe_load((tmp_path / "new/pipeline.yaml").read_text())["sources"]
    assert (tmp_path / "new/data/lakehouse/landing/sales/sales.csv").is_file()
    capsys.readouterr()
    assert main(["check", "--conf", "new"]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
