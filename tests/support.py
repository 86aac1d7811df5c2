"""What tests stand on: a lakehouse of their own, and the command as a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from medallion.config.loader import Config, load
from medallion.lakehouse.layout import Layout
from medallion.pipeline.nightly import Nightly, Report
from medallion.pipeline.pipeline import Pipeline

PROJECT = Path(__file__).resolve().parents[1]
SAMPLE = PROJECT / "data/sample"


class Lakehouse:
    """A root of its own, with the project's configuration unless a test changes it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        self.config: Config = replace(load({}, PROJECT), layout=Layout(root))

    def land(self, source: str, name: str, *lines: str) -> Path:
        """One landing file of these lines."""
        file = self.config.layout.landing(source) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return file

    def land_sample(self, source: str, *names: str) -> None:
        """Files of data/sample."""
        landing = self.config.layout.landing(source)
        landing.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(SAMPLE / source / name, landing / name)

    def pipeline(self) -> Pipeline:
        return Pipeline(self.spark, self.config, "test", lambda _: None)

    def nightly(self, *accept: str) -> Report:
        return Nightly(self.pipeline(), accept).run()

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """A table's rows in order, times as text in UTC."""
        frame = self.spark.read.format("delta").load(str(self.config.layout.table(table)))
        names = columns or tuple(frame.columns)
        return sorted((tuple(row) for row in _with_text_times(frame, names).collect()), key=repr)

    def copy_of_conf(self, to: Path) -> Path:
        """A copy of conf/ that a test may change, used from now on."""
        conf = to / "conf"
        shutil.copytree(PROJECT / "conf", conf)
        self.config = replace(self.config, conf_dir=conf)
        return conf


def _with_text_times(frame: Any, names: tuple[str, ...]) -> Any:
    types = dict(frame.dtypes)
    times = [f"cast(`{n}` as string) as `{n}`" if types[n] == "timestamp" else n for n in names]
    return frame.selectExpr(*times)


class Cli:
    """The command as a process of its own."""

    def __init__(self, root: Path) -> None:
        self.environment = {**os.environ, "MEDALLION_HOME": str(root)}

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "medallion", *arguments],
            env=self.environment,
            cwd=PROJECT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=600)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def json(self, *arguments: str) -> Any:
        done = self(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
