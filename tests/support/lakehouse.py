"""A lakehouse of a test's own: files land, nights run, and rows and records are read back."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from medallion.config.loader import Config, load
from medallion.lakehouse.layout import Layout
from medallion.ops import ledger
from medallion.ops.ledger import Entry
from medallion.pipeline.nightly import Nightly, Report
from medallion.pipeline.pipeline import Pipeline
from tests.support import PROJECT, SAMPLE
from tests.support.home import a_source


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


def only(lakehouse: Lakehouse, **changes: Any) -> Lakehouse:
    """A lakehouse with one source, `activity`, whose settings are the project's but for these."""
    sources = {"activity": a_source(**{"clean_source": "off", **changes})}
    lakehouse.config = replace(lakehouse.config, sources=sources, gold={})
    return lakehouse


def book(lakehouse: Lakehouse) -> dict[tuple[str, int], Entry]:
    """The ledger by the files' names and versions."""
    found = ledger.read(lakehouse.config.layout)
    return {(Path(entry.path).name, entry.version): entry for entry in found}


def counts(lakehouse: Lakehouse) -> dict[tuple[str, int], tuple[Any, ...]]:
    """The ledger's states and figures by the files' names and versions."""
    found = book(lakehouse).items()
    return {k: (e.state, e.batch, e.rows, e.corrupt_rows, e.rescued_rows) for k, e in found}
