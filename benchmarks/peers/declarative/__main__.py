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
from medallion.spark.settings import session_settings


def main(root: Path) -> int:
    """Make the tables of `root`; the exit status of the command."""
    ours = session_settings(load({"MEDALLION_HOME": str(root)}, PROJECT))
    ours["spark.sql.warehouse.dir"] = str(root / "gold")  # its default database is there
    conf = root / "conf"
    conf.mkdir()
    # The pipeline's own configuration cannot have those of the JVM, of its catalog, or static ones.
    lines = (f"{key} {value}\n" for key, value in ours.items())
    (conf / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
    spec = {
        "name": "medallion",
        "storage": (root / "checkpoints").as_uri(),
        "libraries": [{"glob": {"include": "tables.py"}}],
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
