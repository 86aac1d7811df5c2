"""The jars that Spark needs beside its own, by the lists `jars*.txt` of this package.

They are among the jars of Spark itself, or in the cache, where `medallion setup` puts them.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from medallion.errors import UsageError
from medallion.storage.text import counted


class Extra(StrEnum):
    """Jars that only some projects need; the value is the option of `medallion setup`."""

    KAFKA = "kafka"
    S3 = "s3"

    @property
    def package(self) -> str:
        """Return the Python package that is needed beside the jars."""
        return {Extra.KAFKA: "confluent_kafka", Extra.S3: "obstore"}[self]


S3_CLASSES = Path(__file__).with_name("medallion-s3.jar")
"""Our own classes for Delta logs and checkpoints on S3, compiled by tools/s3_classes.py."""


@dataclass(frozen=True)
class Jar:
    """One jar of a list."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Return its name, as Spark's own downloads have it."""
        return f"{self.group}_{self.artifact}-{self.version}.jar"


def listed_jars(*extras: Extra) -> list[Jar]:
    """Return Delta's jars, and those of the extras."""
    names = ["jars.txt", *(f"jars-{extra}.txt" for extra in extras)]
    return [jar for name in names for jar in read_list(Path(__file__).with_name(name))]


def read_list(file: Path) -> list[Jar]:
    """Return the jars of a list: coordinates and SHA-256 in each line."""
    lines = file.read_text(encoding="utf-8").splitlines()
    entries = [line.replace(":", " ").split() for line in lines if not line.startswith("#")]
    return [Jar(*entry) for entry in entries if entry]


def cache_dir() -> Path:
    """Return the folder of what set-up fetches for the installed Spark."""
    folder = Path(os.environ.get("MEDALLION_CACHE") or "~/.cache/medallion").expanduser()
    return folder.absolute() / f"spark-{version('pyspark')}"


def spark_home() -> Path:
    """Return the folder of Spark: SPARK_HOME, or PySpark's package."""
    spec = find_spec("pyspark")  # which does not import it
    assert spec is not None
    assert spec.origin is not None
    return Path(os.environ.get("SPARK_HOME") or Path(spec.origin).parent)


def class_path(required: Collection[Extra] = ()) -> list[Path]:
    """Return the jars that Spark does not have itself; those of other extras only if installed.

    Raises:
        UsageError: a jar is missing.
    """
    if missing := missing_jars(*required):
        options = "".join(f" --{extra}" for extra in required)
        names = f"{missing[0].file_name}{', ...' if missing[1:] else ''}"
        jars = f"{counted(len(missing), 'jar')} that are not installed ({names})"
        raise UsageError(f"Spark needs {jars}: run medallion setup{options}")
    installed = [extra for extra in Extra if not missing_jars(extra)]
    own = [S3_CLASSES] if Extra.S3 in installed else []
    return [*(_cached(jar) for jar in listed_jars(*installed) if not _is_in_spark(jar)), *own]


def missing_jars(*extras: Extra) -> list[Jar]:
    """Return the jars that neither Spark nor the cache has."""
    jars = listed_jars(*extras)
    return [jar for jar in jars if not _is_in_spark(jar) and not _cached(jar).is_file()]


def _is_in_spark(jar: Jar) -> bool:
    return (spark_home() / "jars" / jar.file_name).is_file()


def _cached(jar: Jar) -> Path:
    return cache_dir() / "jars" / jar.file_name


if __name__ == "__main__":  # for spark-submit --jars
    print(",".join(map(str, class_path())))
