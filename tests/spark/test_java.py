"""The options of Java's compilers."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from medallion.spark.session import Workload


@pytest.mark.parametrize("work", Workload)
def test_java_knows_its_options(work: Workload) -> None:
    """One that it does not know, or a slip in compilers.json, ends it before Spark; and standard
    output is for what people asked."""
    java = f"{os.environ['JAVA_HOME']}/bin/java" if os.environ.get("JAVA_HOME") else "java"
    options = shlex.split(work.java)
    ran = subprocess.run([java, *options, "-version"], capture_output=True, text=True, check=True)
    assert ran.stdout == ""
    assert ("1 compiler directives added" in ran.stderr) == (work is Workload.MUCH)
