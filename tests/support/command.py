"""The `medallion` command as a separate process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from medallion.spark.settings import DEFAULTS, FIRST_COMPILER, INTERPRETED, SETTINGS
from tests.support import PROJECT

_SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    **INTERPRETED,
}


class Cli:
    """Runs the command as a process, with production settings."""

    def __init__(self, root: Path) -> None:
        self.environment = {**os.environ, "MEDALLION_HOME": str(root)}

    def keep_only(self, conf: Path, *names: str, small: bool = False) -> None:
        """Use a copy of conf/ that has only the named sources and gold tables.

        Java uses only its first compiler, because the processes are short.

        Args:
            small: use one partition, and no code generation for a few rows.
        """
        shutil.copytree(PROJECT / "conf", conf)
        document = yaml.safe_load((conf / "pipeline.yaml").read_text(encoding="utf-8"))
        for part in ("sources", "gold"):
            document[part] = {
                name: section for name, section in document[part].items() if name in names
            }
        (conf / "pipeline.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
        text = (DEFAULTS / SETTINGS).read_text(encoding="utf-8")
        text = text.replace("-Xss4m", f"-Xss4m {FIRST_COMPILER}")
        settings = _SMALL if small else {}
        text += "".join(f"{key} {value}\n" for key, value in settings.items())
        (conf / "spark").mkdir()
        (conf / "spark/spark-defaults.conf").write_text(text, encoding="utf-8")
        self.environment["MEDALLION_CONF"] = str(conf)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "medallion", *arguments],
            env=self.environment,
            cwd=PROJECT,
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=600)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def json(self, *arguments: str) -> Any:
        process = self(*arguments, "--json")
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)
