"""Spark Declarative Pipelines: the tables as functions, run by `spark-pipelines`."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.measure import PROJECT

PACKAGES = PROJECT / ".venv/peers/declarative"
# What its command needs and medallion does without.
_NEEDED = (
    "pyarrow==26.0.1",
    "grpcio==1.85.1",
    "grpcio-status==1.85.1",
    "googleapis-common-protos==1.76.0",
    "zstandard==0.25.0",
)


def prepare() -> None:
    """Install what the command needs, in a folder of its own."""
    if not PACKAGES.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(PACKAGES)]
        subprocess.run([*pip, *_NEEDED], check=True)
