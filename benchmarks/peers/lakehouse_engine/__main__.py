"""Hands what the configuration says of the source to `load.py`, in the other environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import configured
from benchmarks.peers.lakehouse_engine import PYTHON
from medallion.spark.settings import session_settings

# What our settings name otherwise.
_OF_SPARK_35 = {
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
    "FileSystemBasedCheckpointFileManager"
}


def main(root: Path) -> int:
    """Make the tables of `root`; the exit status."""
    config = configured(root)
    source = config.sources["activity"]
    said = {
        "schema": dict(source.schema or {}),
        "silver": dict(source.silver),
        "keys": list(source.keys),
        "event_time": source.event_time,
        "watermark": source.watermark.text,
        "settings": {**session_settings(config), **_OF_SPARK_35},
    }
    (root / "source.json").write_text(json.dumps(said), encoding="utf-8")
    load = Path(__file__).with_name("load.py")
    environment = {**os.environ, "PYSPARK_PYTHON": str(PYTHON), "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run([str(PYTHON), str(load), str(root)], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(Path(os.environ["MEDALLION_HOME"])))
