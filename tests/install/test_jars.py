"""Required jars, in Spark or in the cache, and the lists of tested versions."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from medallion.errors import UsageError
from medallion.install.jars import (
    Extra,
    cache_dir,
    class_path,
    listed_jars,
    missing_jars,
    spark_home,
)


@pytest.fixture
def spark_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a Spark installation without the listed jars, and an empty cache."""
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("MEDALLION_CACHE", str(tmp_path / "cache"))
    (tmp_path / "spark/jars").mkdir(parents=True)
    return tmp_path / "spark/jars"


def install(folder: Path, *extras: Extra) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / jar.file_name for jar in listed_jars(*extras)]
    for file in files:
        file.touch()
    return files


def test_delta_jar_has_the_version_of_its_package() -> None:
    versions = {jar.version for jar in listed_jars() if jar.group == "io.delta"}
    assert versions == {version("delta-spark")}


def test_s3_jar_has_the_version_of_hadoop() -> None:
    (version_,) = (jar.version for jar in listed_jars(Extra.S3) if jar.artifact == "hadoop-aws")
    assert (spark_home() / f"jars/hadoop-client-api-{version_}.jar").is_file()


def test_cache_dir_default_and_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"spark-{version('pyspark')}"
    monkeypatch.delenv("MEDALLION_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_dir() == Path("/home/someone/.cache/medallion", name)
    monkeypatch.setenv("MEDALLION_CACHE", "~/jars")
    assert cache_dir() == Path("/home/someone/jars", name)


@pytest.mark.usefixtures("spark_jars")
def test_class_path_with_missing_jars_names_setup() -> None:
    with pytest.raises(UsageError, match=r"needs 7 jars .*: run medallion setup$"):
        class_path()
    with pytest.raises(UsageError, match=r"needs 11 jars .*: run medallion setup --kafka$"):
        class_path([Extra.KAFKA])


def test_class_path_is_empty_with_jars_in_spark(spark_jars: Path) -> None:
    install(spark_jars)
    assert class_path() == []
    assert len(missing_jars(Extra.KAFKA)) == 4


@pytest.mark.usefixtures("spark_jars")
def test_class_path_has_the_jars_of_the_cache() -> None:
    files = install(cache_dir() / "jars")
    assert class_path() == files
    files = install(cache_dir() / "jars", Extra.KAFKA)
    assert class_path() == files, "jars of installed extras are included"
    files[0].unlink()
    with pytest.raises(UsageError, match=r"needs 1 jar .*delta-spark"):
        class_path()
