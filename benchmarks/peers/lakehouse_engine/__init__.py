"""lakehouse-engine of adidas: each layer an algorithm configuration, in an environment of its own,
for it pins Spark 3.5."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import PROJECT

PYTHON = PROJECT / ".venv/peers/lakehouse_engine/bin/python"
# The last three it needs and does not declare.
_NEEDED = ("lakehouse-engine[os]==1.26.1", "requests==2.32.5", "tenacity==9.1.2", "msal==1.34.0")


def prepare() -> None:
    """Make the environment."""
    ready = PYTHON.parents[1] / ".ready"
    if ready.exists():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(PYTHON.parents[1])], check=True)
    subprocess.run([str(PYTHON), "-m", "pip", "install", "--quiet", *_NEEDED], check=True)
    jars = Path(__file__).with_name("jars.txt")
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "src")}
    command = [str(PYTHON), str(PROJECT / "tools/jars.py"), str(jars)]
    subprocess.run(command, env=environment, check=True)
    ready.touch()
