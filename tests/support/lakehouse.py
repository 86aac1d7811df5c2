"""A lakehouse for one test: configure it, land files, run layers, read rows and ledger entries."""

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
from medallion.config.model import Config, GoldTable, SourceConfig
from medallion.layers.flow import Flow
from medallion.quality.gates import Gates
from medallion.quality.suites import suite_path
from medallion.runtime.nightly import Nightly
from medallion.runtime.outcome import Outcome
from medallion.runtime.pipeline import Pipeline
from medallion.spark.query import AVAILABLE_NOW, trigger_options
from medallion.state import ledger
from medallion.state.ledger import Entry
from medallion.storage.layout import LAYERS, Layout
from medallion.storage.text import Reporter
from tests.support import PROJECT, SAMPLE
from tests.support.batches import without_queries


def start_flows(pipeline: Pipeline, layer: str) -> list[Flow]:
    """Start the queries of a layer, and return their flows; no batch is recorded."""
    flows = pipeline.flows(layer)
    return [flow for flow in flows if pipeline.start_flow(flow, trigger_options(AVAILABLE_NOW))]


class NoGates(Gates):
    """Skip all gates, for tests that do not need them."""

    def has_suite(self, _: str) -> bool:
        return False


class Lakehouse:
    """A lakehouse in its own root, with the project's configuration unless a test changes it.

    Args:
        spark: None for tests without Spark, which run no layer in their own process.
    """

    def __init__(self, spark: SparkSession | None, root: Path) -> None:
        self._spark = spark
        self.config: Config = replace(load({}, PROJECT), layout=Layout(root))

    @property
    def spark(self) -> SparkSession:
        assert self._spark is not None, "this lakehouse has no Spark session"
        return self._spark

    @property
    def layout(self) -> Layout:
        return self.config.layout

    @property
    def root(self) -> Path:
        return self.layout.root.local

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a command finds this lakehouse and its configuration."""
        return {"MEDALLION_CONF": str(self.config.conf_dir), "MEDALLION_HOME": str(self.root)}

    def land(self, source: str, name: str, *lines: str) -> Path:
        """Write a landing file with these lines."""
        return self.land_text(source, name, "".join(f"{line}\n" for line in lines))

    def land_text(self, source: str, name: str, text: str) -> Path:
        """Write a landing file with this content."""
        file = (self.layout.landing(source) / name).local
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def land_sample(self, source: str, *names: str) -> None:
        """Copy files of data/sample to landing."""
        landing = self.layout.landing(source)
        landing.local.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(SAMPLE / source / name, landing / name)

    def pipeline(self, report: Reporter = lambda _: None) -> Pipeline:
        return Pipeline(self.spark, self.config, "test", report)

    def nightly(self, *accept: str) -> Outcome:
        return Nightly(self.pipeline(), accept).run()

    def run_without_gates(self, report: Reporter = lambda _: None) -> Outcome:
        """Run the nightly batch without gates, which take two fifths, and bronze as `fill` does."""
        nightly = Nightly(self.pipeline(report))
        nightly.gates = NoGates(self.config.conf_dir)
        with without_queries():
            return nightly.run()

    def run(self, *layers: str) -> None:
        """Run these layers (default: all) on all waiting input, without gates.

        Queries take most of a test's time: `keep_only` those that it needs.
        """
        for layer in layers or LAYERS:
            self.pipeline().run(layer)

    def fill(self, *layers: str) -> None:
        """Run layers as `run` does, but bronze without its queries, which few tests are about."""
        with without_queries():
            self.run(*layers)

    def run_each(self, source: str, *runs: Iterable[str]) -> None:
        """Land one file for each run, and run all layers after each."""
        for number, lines in enumerate(runs):
            self.land(source, f"{number}.json", *lines)
            self.fill()

    def keep_only(self, *names: str, to: Path | None = None) -> None:
        """Keep only these sources and gold tables in the configuration.

        Args:
            to: the directory of a copy of conf/ that has only these, for commands.
        """
        if to is not None:
            file = self.copy_of_conf(to) / "pipeline.yaml"
            document = yaml.safe_load(file.read_text(encoding="utf-8"))
            for part in ("sources", "gold"):
                document[part] = {k: v for k, v in document[part].items() if k in names}
            self.configure(to, document)
        sources = {name: source for name, source in self.config.sources.items() if name in names}
        gold = {name: table for name, table in self.config.gold.items() if name in names}
        assert {*sources, *gold} == set(names)
        self.config = replace(self.config, sources=sources, gold=gold)

    def set_source(self, source: SourceConfig) -> None:
        """Configure only this source, and no gold table."""
        self.config = replace(self.config, sources={source.name: source}, gold={})

    def copy(self, to: Path) -> Lakehouse:
        """Copy all files to another root, with the same configuration."""
        shutil.copytree(self.root, to, symlinks=True)
        copied = Lakehouse(self._spark, to)
        copied.config = replace(self.config, layout=Layout(to))
        return copied

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return a table's rows in order, times as strings in UTC; DuckDB reads them, not Spark."""
        return rows_of(self.layout.table(table).local, *columns)

    def copy_of_conf(self, to: Path) -> Path:
        """Copy the conf/ in use for changes by the test, and use the copy from now on."""
        conf = to / "conf"
        shutil.copytree(self.config.conf_dir, conf)
        self.config = replace(self.config, conf_dir=conf)
        return conf

    def configure(self, to: Path, document: Any) -> None:
        """Use another pipeline.yaml, in `to`/conf: by default a copy of the project's conf/."""
        conf = to / "conf"
        if not conf.exists():
            shutil.copytree(PROJECT / "conf", conf)
        (conf / "pipeline.yaml").write_text(yaml.safe_dump(document))
        self.use_conf(conf)

    def use_conf(self, conf: Path) -> None:
        """Use the configuration in this directory, as commands do."""
        self.config = replace(self.config, conf_dir=conf)
        self.config = load(self.environment, PROJECT)

    def expect(self, table: str, name: str, type_: str, on_failure: str, **kwargs: Any) -> Path:
        """Add an expectation to a table's suite, and return the suite's file."""
        file = suite_path(self.config.conf_dir, table)
        suite: dict[str, Any] = {"name": table, "expectations": []}
        if file.exists():
            suite = json.loads(file.read_text())
        meta = {"name": name, "on_failure": on_failure}
        suite["expectations"].append({"type": type_, "kwargs": kwargs, "meta": meta})
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(suite))
        return file


def rows_of(table: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows of a Delta table in order, times as strings in UTC."""
    delta = DeltaTable(table)
    names = list(columns) or [field.name for field in delta.schema().fields]
    paths = delta.get_add_actions(flatten=True).column("path").to_pylist()
    files = [str(table / path) for path in paths]
    if not files:
        return []
    duck = duckdb.connect()
    duck.execute("set timezone = 'UTC'")
    relation = duck.read_parquet(files, union_by_name=True)
    types = dict(zip(relation.columns, map(str, relation.types), strict=True))
    return sorted(
        relation.project(", ".join(_as_sql(n, types) for n in names)).fetchall(), key=repr
    )


def _as_sql(name: str, types: dict[str, str]) -> str:
    quoted = '"' + name.replace('"', '""') + '"'
    if name not in types:  # a column that is newer than every file
        return f"null as {quoted}"
    is_time = types[name].startswith("TIMESTAMP")
    return f"cast({quoted}::timestamp as varchar) as {quoted}" if is_time else quoted


def redefined(table: GoldTable, **changes: Any) -> GoldTable:
    """Return a gold table with some parts of its definition changed."""
    return replace(table, definition=replace(table.definition, **changes))


def activity_source(**changes: Any) -> SourceConfig:
    """Return the project's source `activity` with some settings changed."""
    return replace(load({}, PROJECT).sources["activity"], **changes)


def only_activity(lakehouse: Lakehouse, **changes: Any) -> Lakehouse:
    """Configure only the source `activity`, with these settings changed."""
    lakehouse.set_source(activity_source(**{"clean_source": "off", **changes}))
    return lakehouse


def only_rows(lakehouse: Lakehouse, **changes: Any) -> Lakehouse:
    """Configure only the source `activity`, with the columns of `lines.row`.

    Fewer columns take half the time of a batch; most tests of files need no others.
    """
    schema = {"Index": "long", "Device": "string", "x": "double"}
    silver = {"user_id": "Index", "device": "Device", "x": "x"}
    columns = {"schema": schema, "silver": silver, "keys": ("user_id",), "event_time": ""}
    return only_activity(lakehouse, **{**columns, **changes})


def indexes(lakehouse: Lakehouse) -> list[int]:
    """Return the Index of each row of bronze.activity, in order."""
    return sorted(index for (index,) in lakehouse.rows("bronze.activity", "Index"))


def ledger_entries(lakehouse: Lakehouse) -> dict[tuple[str, int], Entry]:
    """Return the ledger's entries by file name and version."""
    entries = ledger.read_entries(lakehouse.config.layout)
    return {(Path(entry.path).name, entry.version): entry for entry in entries}


def ledger_counts(lakehouse: Lakehouse) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return state, batch and row counts of the ledger's entries by file name and version."""
    entries = ledger_entries(lakehouse).items()
    return {k: (e.state, e.batch, e.rows, e.corrupt_rows, e.rescued_rows) for k, e in entries}
