"""The class archive is used only with the Java and the jars that it was written for."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from medallion.install.classes import archive_file, archive_settings
from medallion.install.jars import cache_dir, listed_jars
from tests.install.test_find_java import fake_java


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a Spark installation with Delta's jars in the cache, a Java, and an archive."""
    home = tmp_path / "env/lib/python3/site-packages/pyspark"
    (home / "jars").mkdir(parents=True)
    (home / "jars/spark-core.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("MEDALLION_CACHE", str(tmp_path / "a cache"))
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "java", "17.0.15")))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    for folder in ("jars", "classes"):
        (cache_dir() / folder).mkdir(parents=True)
    for jar in listed_jars():
        (cache_dir() / "jars" / jar.file_name).touch()
    assert archive_settings() == {}
    archive_file().touch()
    return home


def test_archive_settings(spark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da=b")
    (spark / "conf").mkdir()
    (spark / "conf/spark-env.sh").touch()
    settings = archive_settings()
    assert settings["SPARK_CONF_DIR"] == f"{cache_dir()}/classes/no-settings"
    options = shlex.split(settings["SPARK_SUBMIT_OPTS"])
    assert options[0] == f"-XX:SharedArchiveFile={archive_file()}"
    assert options[-1] == "-Da=b"


@pytest.mark.parametrize("change", ["jar", "cached jar", "java", "conf", "file in conf"])
def test_archive_is_ignored(
    spark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    if change == "jar":
        (spark / "jars/more.jar").touch()
    elif change == "cached jar":
        next((cache_dir() / "jars").iterdir()).write_text("another")
    elif change == "java":
        monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "new", "21.0.8")))
    elif change == "conf":
        monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    else:
        (spark / "conf").mkdir()
        (spark / "conf/spark-defaults.conf").touch()
    assert archive_settings() == {}
