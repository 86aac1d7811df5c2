"""What is asked of Java before Spark starts: its compilers, and classes that were kept."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from medallion.spark.session import Workload
from tests.support import PROJECT

ENV = PROJECT / "tools/venv/spark-env.sh"


@pytest.mark.parametrize("work", Workload)
def test_java_knows_its_options(work: Workload) -> None:
    """One that it does not know, or a slip in compilers.json, ends it before Spark; and standard
    output is for what people asked."""
    java = f"{os.environ['JAVA_HOME']}/bin/java" if os.environ.get("JAVA_HOME") else "java"
    options = shlex.split(work.java)
    ran = subprocess.run([java, *options, "-version"], capture_output=True, text=True, check=True)
    assert ran.stdout == ""
    assert ("1 compiler directives added" in ran.stderr) == (work is Workload.MUCH)


def environment(folder: Path, *kept: str, **caller: str) -> dict[str, str]:
    """What Spark's launchers hand on, in an environment of this name with these files."""
    home = folder / "lib/python3/site-packages/pyspark"
    for name in ("conf/spark-env.sh", *kept):
        file = (home / name).resolve()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(ENV.read_text() if name == "conf/spark-env.sh" else "")
    script = f'set -a; . "{home}/conf/spark-env.sh"; env'
    given = {"PATH": os.environ["PATH"], "SPARK_HOME": str(home), **caller}
    printed = subprocess.check_output(["bash", "-c", script], env=given, text=True)
    return dict(line.split("=", 1) for line in printed.splitlines())


CLASSES = "../../../../classes/java.jsa"


def test_java_gets_the_class_archive(tmp_path: Path) -> None:
    folder = tmp_path / "an environment"
    found = environment(folder, CLASSES, SPARK_SUBMIT_OPTS="-Da=b")
    assert shlex.split(found["SPARK_SUBMIT_OPTS"]) == [
        f"-XX:SharedArchiveFile={folder}/classes/java.jsa",
        "-Xlog:cds=off",
        "-Xlog:cds+dynamic=off",
        "-Da=b",
    ]
    assert found["SPARK_CONF_DIR"] == f"{folder}/classes/no-settings"


@pytest.mark.parametrize(
    ("kept", "caller"),
    [
        ((), {}),
        ((CLASSES, "conf/spark-defaults.conf"), {}),
        ((CLASSES,), {"SPARK_CONF_DIR": "/somebody/s"}),
    ],
)
def test_the_users_java_options_win(
    tmp_path: Path, kept: tuple[str, ...], caller: dict[str, str]
) -> None:
    found = environment(tmp_path, *kept, **caller)
    assert "SPARK_SUBMIT_OPTS" not in found
    assert found.get("SPARK_CONF_DIR") == caller.get("SPARK_CONF_DIR")
