"""The class archive: classes of Spark that Java loads in one piece (class-data sharing, JEP 350).

To load some 25,000 classes is a fifth of a short run. An archive belongs to one Java and its jars:
both are in its name, so that another Java or another set of jars ignores it.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from medallion.errors import UsageError
from medallion.install import java
from medallion.install.jars import cache_dir, class_path, spark_home
from medallion.storage.text import Reporter

_PROJECT = Path(__file__).with_name("classes_project")
"""A project with a source, its silver and a gold table, which loads the classes of a usual run."""


def archive_settings() -> dict[str, str]:
    """Return the environment variables with which Spark's launcher uses the archive, if any.

    Java needs a class path without folders that have files, so settings of the user's own
    (SPARK_CONF_DIR, or files in the folder `conf` of Spark) exclude the archive.

    Raises:
        UsageError: a jar is missing.
    """
    conf, archive = spark_home() / "conf", archive_file()
    has_own = os.environ.get("SPARK_CONF_DIR", str(conf)) != str(conf)
    has_own |= any(file.name != "spark-env.sh" for file in conf.glob("*"))
    return {} if has_own or not archive.is_file() else _settings("SharedArchiveFile", archive)


def archive_file() -> Path:
    """Return the path of the archive for this Java and these jars.

    Raises:
        UsageError: a jar is missing.
        OSError: there is no Java.
    """
    program = Path(java.program(os.environ.get("JAVA_HOME", "")) or "java").resolve()
    files = [program, *sorted((spark_home() / "jars").iterdir()), *class_path()]
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return cache_dir() / "classes" / f"{_digest(spark_home())}-{_digest(stats)}.jsa"


def create_archive(report: Reporter) -> None:
    """Create the archive unless it exists, by a nightly run in a temporary folder.

    Raises:
        UsageError: Java or a jar is missing, the run fails, or Java writes no archive.
    """
    java.use_java()
    archive = archive_file()
    if archive.is_file():
        return
    report("Java's classes: writing an archive of 200 MB, with which each start takes a fifth less")
    (archive.parent / "no-settings").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=archive.parent) as folder:
        new = Path(folder, archive.name)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MEDALLION_")}
        environment |= {"MEDALLION_CONF": str(_PROJECT), "MEDALLION_HOME": f"{folder}/lakehouse"}
        environment |= {"MEDALLION_CACHE": str(cache_dir().parent)}
        environment |= _settings("ArchiveClassesAtExit", new)
        # So many rows that Spark generates code for them.
        for words in ("land --source activity --rows 25000", "nightly"):
            command = [sys.executable, "-m", "medallion", *words.split()]
            # Its output ends with Java, which writes the archive after Python has ended.
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode or not new.is_file():
            reason = done.stderr.strip() or "Java has none of its own, which it would extend."
            raise UsageError(f"no archive of Java's classes: {reason}")
        # Java trusts its content: a truncated archive would end each start.
        with new.open("rb") as written:
            os.fsync(written.fileno())
        for older in archive.parent.glob(f"{_digest(spark_home())}-*.jsa"):
            older.unlink()
        new.rename(archive)


def _settings(option: str, archive: Path) -> dict[str, str]:
    # Without a line for each class that cannot be archived.
    options = f'"-XX:{option}={archive}" -Xlog:cds=off -Xlog:cds+dynamic=off'
    return {
        "SPARK_CONF_DIR": str(cache_dir() / "classes/no-settings"),
        "SPARK_SUBMIT_OPTS": f"{options} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".strip(),
    }


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]
