"""Test support: isolated lakehouses, the command as a process, and input files."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
SAMPLE = PROJECT / "data/sample"
