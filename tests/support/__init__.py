"""What tests stand on: lakehouses of their own, the command as a process, and things to land."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
SAMPLE = PROJECT / "data/sample"
