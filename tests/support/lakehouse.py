"""A lakehouse of a test's own: files land, nights run, and rows and records are read back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import yaml
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.config.model import Config, GoldTable
from medallion.layers.flow import Flow
from medallion.quality.gates import Gates
from medallion.quality.suites import suite_path
from medallion.runtime.graph import Pipeline
from medallion.runtime.nightly import Nightly
from medallion.runtime.outcome import Outcome
from medallion.spark.query import AVAILABLE_NOW, trigger_options
from medallion.state import ledger
from medallion.state.ledger import Entry
from medallion.storage.paths import LAYERS, Layout
from tests.support import PROJECT, SAMPLE
from tests.support.home import a_source


def start(pipeline: Pipeline, layer: str) -> list[Flow]:
    """The flows of a layer whose queries could be started; nobody settles them."""
    flows = pipeline.flows(layer)
    return [flow for flow in flows if pipeline.start_flow(flow, trigger_options(AVAILABLE_NOW))]


class NoGates(Gates):
    """For tests of what gates have no part in."""

    def has_suite(self, _: str) -> bool:
        return False


class Lakehouse:
    """A root of its own, with the project's configuration unless a test changes it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        self.config: Config = replace(load({}, PROJECT), layout=Layout(root))

    def land(self, source: str, name: str, *lines: str) -> Path:
        """One landing file of these lines."""
        file = self.config.layout.landing(source) / name
        file.parent.local.mkdir(parents=True, exist_ok=True)
        file.local.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return file.local

    def land_sample(self, source: str, *names: str) -> None:
        """Files of data/sample."""
        landing = self.config.layout.landing(source)
        landing.local.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(SAMPLE / source / name, landing / name)

    def pipeline(self) -> Pipeline:
        return Pipeline(self.spark, self.config, "test", lambda _: None)

    def nightly(self, *accept: str) -> Outcome:
        return Nightly(self.pipeline(), accept).run()

    def night(self) -> Outcome:
        """A nightly batch without its gates, which cost two fifths of a night of few rows."""
        nightly = Nightly(self.pipeline())
        nightly.gates = NoGates(self.config.conf_dir)
        return nightly.run()

    def fill(self, *layers: str) -> None:
        """Run these layers on all that is there, without gates; all layers unless some are named.

        What costs most of a test are queries and gates: `about` only what it is about.
        """
        for layer in layers or LAYERS:
            self.pipeline().run(layer)

    def fill_with(self, source: str, *nights: Iterable[str]) -> None:
        """Land the lines of one night after the other, and run all layers after each."""
        for number, lines in enumerate(nights):
            self.land(source, f"{number}.json", *lines)
            self.fill()

    def about(self, *names: str) -> None:
        """Configure these sources and tables of gold, and no others."""
        sources = {name: source for name, source in self.config.sources.items() if name in names}
        gold = {name: table for name, table in self.config.gold.items() if name in names}
        assert {*sources, *gold} == set(names)
        self.config = replace(self.config, sources=sources, gold=gold)

    def copy(self, to: Path) -> Lakehouse:
        """All its files as they are now, under another root, with the same configuration."""
        shutil.copytree(self.root, to, symlinks=True)
        copied = Lakehouse(self.spark, to)
        copied.config = replace(self.config, layout=Layout(to))
        return copied

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """A table's rows in order, times as text in UTC; read by DuckDB, which is not Spark."""
        return rows_of(self.config.layout.table(table).local, *columns)

    def copy_of_conf(self, to: Path) -> Path:
        """A copy of conf/ that a test may change, used from now on."""
        conf = to / "conf"
        shutil.copytree(PROJECT / "conf", conf)
        self.config = replace(self.config, conf_dir=conf)
        return conf

    def configure(self, to: Path, document: Any) -> None:
        """Another pipeline.yaml from now on, in a copy of conf/."""
        conf = to / "conf" if (to / "conf").exists() else self.copy_of_conf(to)
        (conf / "pipeline.yaml").write_text(yaml.safe_dump(document))
        environment = {"MEDALLION_CONF": str(conf), "MEDALLION_HOME": str(self.root)}
        self.config = load(environment, PROJECT)

    def expect(self, table: str, name: str, kind: str, on_failure: str, **kwargs: Any) -> Path:
        """One expectation more of a table, in a copy of conf/; the file of its suite."""
        file = suite_path(self.config.conf_dir, table)
        suite: dict[str, Any] = {"name": table, "expectations": []}
        if file.exists():
            suite = json.loads(file.read_text())
        meta = {"name": name, "on_failure": on_failure}
        suite["expectations"].append({"type": kind, "kwargs": kwargs, "meta": meta})
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(suite))
        return file


def rows_of(table: Path, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a Delta table in order, times as text in UTC."""
    delta = DeltaTable(table)
    names = list(columns) or [field.name for field in delta.schema().fields]
    paths = delta.get_add_actions(flatten=True).column("path").to_pylist()
    files = [str(table / path) for path in paths]
    if not files:
        return []
    duck = duckdb.connect()
    duck.execute("set timezone = 'UTC'")
    found = duck.read_parquet(files, union_by_name=True)
    types = dict(zip(found.columns, map(str, found.types), strict=True))
    return sorted(found.project(", ".join(_shown(n, types) for n in names)).fetchall(), key=repr)


def _shown(name: str, types: dict[str, str]) -> str:
    quoted = '"' + name.replace('"', '""') + '"'
    if name not in types:  # a column that is newer than every file
        return f"null as {quoted}"
    is_time = types[name].startswith("TIMESTAMP")
    return f"cast({quoted}::timestamp as varchar) as {quoted}" if is_time else quoted


def otherwise(table: GoldTable, **changes: Any) -> GoldTable:
    """An aggregate with other groups, measures or windows."""
    return replace(table, definition=replace(table.definition, **changes))


def only(lakehouse: Lakehouse, **changes: Any) -> Lakehouse:
    """A lakehouse with one source, `activity`, whose settings are the project's but for these."""
    sources = {"activity": a_source(**{"clean_source": "off", **changes})}
    lakehouse.config = replace(lakehouse.config, sources=sources, gold={})
    return lakehouse


def indexes(lakehouse: Lakehouse) -> list[int]:
    """The Index of each row of bronze.activity, in order."""
    return sorted(index for (index,) in lakehouse.rows("bronze.activity", "Index"))


def book(lakehouse: Lakehouse) -> dict[tuple[str, int], Entry]:
    """The ledger by the files' names and versions."""
    found = ledger.read_entries(lakehouse.config.layout)
    return {(Path(entry.path).name, entry.version): entry for entry in found}


def counts(lakehouse: Lakehouse) -> dict[tuple[str, int], tuple[Any, ...]]:
    """The ledger's states and figures by the files' names and versions."""
    found = book(lakehouse).items()
    return {k: (e.state, e.batch, e.rows, e.corrupt_rows, e.rescued_rows) for k, e in found}
