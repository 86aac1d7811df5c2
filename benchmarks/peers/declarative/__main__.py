"""Runs the pipeline of `tables.py` on MEDALLION_HOME."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import yaml

from benchmarks.measure import PROJECT
from benchmarks.peers.declarative import PACKAGES
from medallion.config.loader import load
from medallion.spark.session import settings

# The pipeline's own configuration cannot have these: they are of the JVM, or of its catalog.
STATIC = (
    *("spark.driver", "spark.executor", "spark.sql.extensions", "spark.sql.catalog", "spark.ui"),
    "spark.python.sql.dataFrameDebugging",
)


def main(root: Path) -> int:
    """Make the tables of `root`; the exit status of the command."""
    ours = settings(load({"MEDALLION_HOME": str(root)}, PROJECT))
    static = {key: value for key, value in ours.items() if key.startswith(STATIC)}
    static["spark.sql.warehouse.dir"] = str(root / "gold")  # its default database is there
    conf = root / "conf"
    conf.mkdir()
    lines = (f"{key} {value}\n" for key, value in static.items())
    (conf / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
    spec = {
        "name": "medallion",
        "storage": (root / "checkpoints").as_uri(),
        "libraries": [{"glob": {"include": "tables.py"}}],
        "configuration": {key: value for key, value in ours.items() if key not in static},
    }
    (root / "spark-pipeline.yml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    (root / "tables.py").symlink_to(Path(__file__).with_name("tables.py"))
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(map(str, (PACKAGES, PROJECT))),
    }
    command = [str(home / "bin/spark-pipelines"), "run", "--spec", str(root / "spark-pipeline.yml")]
    return subprocess.run(command, env=environment, cwd=root).returncode


if __name__ == "__main__":
    sys.exit(main(Path(os.environ["MEDALLION_HOME"])))
