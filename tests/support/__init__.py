"""Test support: isolated lakehouses, the command as a process, and input files."""

from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
SAMPLE = PROJECT / "data/sample"
FORMS = ("short", pytest.param("long", marks=pytest.mark.slow))
"""Of an end-to-end test: the long form also refreshes and erases, by `make test-slow`."""
