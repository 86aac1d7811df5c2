"""The `medallion` command as a separate process on a lakehouse."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

from medallion.install.jars import spark_home
from medallion.spark.settings import DEFAULTS, FIRST_COMPILER, INTERPRETED, SETTINGS
from tests.support import PROJECT
from tests.support.lakehouse import Lakehouse

_SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    **INTERPRETED,
}


class Cli:
    """Runs the command as a process on a lakehouse, with production settings."""

    def __init__(self, lakehouse: Lakehouse) -> None:
        self.lakehouse = lakehouse

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.lakehouse.environment}

    def write_spark_settings(self, *, small: bool = False) -> None:
        """Write settings for short processes to the lakehouse's copy of conf/.

        Java uses only its first compiler.

        Args:
            small: use one partition, and no code generation for a few rows.
        """
        conf = self.lakehouse.config.conf_dir
        assert conf != PROJECT / "conf", "keep_only(..., to=...) makes a copy of conf/"
        text = (DEFAULTS / SETTINGS).read_text(encoding="utf-8")
        text = text.replace("-Xss4m", f"-Xss4m {FIRST_COMPILER}")
        settings = _SMALL if small else {}
        text += "".join(f"{key} {value}\n" for key, value in settings.items())
        (conf / "spark").mkdir()
        (conf / "spark/spark-defaults.conf").write_text(text, encoding="utf-8")

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


def run_beeline(url: str, statement: str) -> tuple[int, str, str]:
    """Return status, output and errors of a statement that Beeline sends to a Thrift server."""
    beeline = [str(spark_home() / "bin/beeline"), "--silent=true", "--outputformat=csv2"]
    command = [*beeline, "-u", url, "-n", "analyst", "-e", statement]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    # Beeline repeats its prompt in the output.
    return process.returncode, re.sub(r"^0: \S+> ", "", process.stdout), process.stderr
