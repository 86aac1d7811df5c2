"""The options of Java's compilers."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from medallion.spark.settings import Workload


@pytest.mark.parametrize("workload", Workload)
def test_java_accepts_the_options(workload: Workload) -> None:
    """Java accepts the options and compilers.json, and prints nothing to standard output.

    An invalid option would end Java before Spark starts; standard output is for results.
    """
    java = f"{os.environ['JAVA_HOME']}/bin/java" if os.environ.get("JAVA_HOME") else "java"
    options = shlex.split(workload.java)
    process = subprocess.run(
        [java, *options, "-version"], capture_output=True, text=True, check=True
    )
    assert process.stdout == ""
    assert ("1 compiler directives added" in process.stderr) == (workload is Workload.MUCH)
