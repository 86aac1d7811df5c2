"""The columns that silver's rows get from a reference, and the rules that name one of them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from medallion.config.model import Config, Enrich, SourceConfig
from medallion.errors import ConfigError, MedallionError
from medallion.layers import recovery
from medallion.layers.silver import transform
from medallion.layers.silver.reference import Reference, look
from medallion.quality.rules import Rule, failed_rules
from medallion.spark import checkpoints
from medallion.spark.delta_reads import escaped
from medallion.spark.errors import SPARK_ERRORS, one_line
from medallion.spark.plans import KINDS
from medallion.storage import files
from medallion.storage.paths import plain

_NOTE, _RULES = "reference", "reference_rules"


class Enrichment:
    """The reference of one source, beside its silver's query.

    A batch reads a copy of it, which is kept beside the checkpoint. So a reference that has not
    changed is not read again; and a batch that was cut off between its two tables ends with the
    copy that it began with, for by another one a row might go to both tables, or to neither.

    Attributes:
        rules: the names of the rules about its columns, those that were dropped since among them.
        judges: the rules about its columns by which rows are judged now.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        source: SourceConfig,
        rules: Sequence[Rule],
        others: Iterable[str],
    ) -> None:
        """For a source that has one.

        Args:
            rules: the rules of silver that name a column of the reference.
            others: the names of all other rules, bronze's among them.

        Raises:
            ConfigError: a rule of either kind has a name that one of the other kind has, or had.
        """
        assert source.enrich, f"{source.name} has no reference"
        self._enrich: Enrich = source.enrich
        self._spark, self.judges, self._failed = spark, rules, failed_rules(rules)
        self._where = f"{config.conf_dir / 'pipeline.yaml'}: sources.{source.name}.enrich.on"
        self._file = plain(config.layout.root / self._enrich.file)
        self._checkpoint = config.layout.checkpoint(f"silver.{source.name}")
        then = checkpoints.noted(self._checkpoint, _RULES) or {}
        now = (rule.name for rule in rules)
        self.rules = tuple(dict.fromkeys((*then.get("names", ()), *now)))
        self._others = tuple(dict.fromkeys((*then.get("others", ()), *others)))
        if both := [name for name in self.rules if name in self._others]:
            raise ConfigError(
                f"{config.expectations}: {', '.join(both)} of silver.{source.name} is a rule about "
                f"columns of {self.name}, and is or was one without them: only what the first kind "
                "has set aside has used up its keys. Give it another name, or rebuild the table "
                f"with medallion refresh silver.{source.name}."
            )
        names = (f"silver.{source.name}", f"quarantine.{source.name}")
        self._targets: list[Path] = [config.layout.table(name) for name in names]
        self._kinds: Mapping[str, str] = {}

    def keep_rules(self) -> None:
        """Note the names of the rules, for rows stay in quarantine under them."""
        checkpoints.note(self._checkpoint, _RULES, {"names": self.rules, "others": self._others})

    @property
    def name(self) -> str:
        """What people know the reference by."""
        return self._enrich.file

    def blank(self, rows: DataFrame) -> DataFrame:
        """The rows joined to an empty reference, which have the columns that all will have.

        From then on, the reference's key has the type of theirs.

        Raises:
            ConfigError: nothing can be looked up by a column of that type.
        """
        dtype = dict(rows.dtypes)[self._enrich.on]
        kind = KINDS.get(dtype)
        if kind is None:
            raise ConfigError(f"{self._where} names {self._enrich.on!r}, which is {dtype}: no key.")
        self._kinds = {self._enrich.on: kind, **self._enrich.columns}
        return self._joined(rows, self._spark.createDataFrame([], self._ddl))

    def of_batch(self, rows: DataFrame, batch: int) -> DataFrame:
        """The rows of a batch with the reference as it is now.

        Raises:
            MedallionError: it cannot be read, or is no reference.
        """
        copy = rows.sparkSession.read.schema(self._ddl).parquet(escaped(self._make_copy(batch)))
        return self._joined(rows, copy)

    def of_now(self, rows: DataFrame) -> DataFrame:
        """Rows outside of a batch (late ones) with the reference as it is now; raises as `of_batch`
        does."""
        with self._named():
            return self._joined(rows, self._look().rows())

    @contextmanager
    def _named(self) -> Iterator[None]:
        """What Spark cannot read of the reference is told with its name."""
        try:
            yield
        except SPARK_ERRORS as error:
            told = one_line(str(error))
            raise MedallionError(f"{self.name}: cannot be read ({told}).") from None

    @property
    def _ddl(self) -> str:
        return ", ".join(f"`{column}` {kind}" for column, kind in self._kinds.items())

    def _joined(self, rows: DataFrame, reference: DataFrame) -> DataFrame:
        return transform.enriched(
            rows, reference, self._enrich.on, self._enrich.columns, self._failed
        )

    def _look(self) -> Reference:
        return look(self._spark, self._file, self.name, self._kinds)

    def _make_copy(self, batch: int) -> Path:
        """Copy the reference for a batch to read, unless it is the one that was copied last, and
        is there still.

        Raises:
            MedallionError: somebody has removed the copy that a batch was cut off with, and the
                reference is another one by now.
        """
        folder, then = self._checkpoint / _NOTE, checkpoints.noted(self._checkpoint, _NOTE)
        last = folder / str(then["of"]) if then else None
        is_held = last and recovery.has_written(self._checkpoint, self._targets, batch)
        if last and is_held and last.is_dir():
            return last
        reference = self._look()
        now = hashlib.sha256(f"{reference.version} {self._ddl}".encode()).hexdigest()
        copy = folder / now
        if copy == last and copy.is_dir():
            return copy
        if copy != last and is_held:
            name = self._checkpoint.name
            raise MedallionError(
                f"{last} is gone, the copy of {self.name} that batch {batch} was cut off with, and "
                f"that is another one by now: medallion refresh {name} rebuilds the table by it."
            )
        with self._named():
            reference.rows().write.mode("overwrite").parquet(str(copy))
        for path in (*copy.iterdir(), copy, folder):
            files.sync(path)
        checkpoints.note(self._checkpoint, _NOTE, {"of": now})
        for other in folder.iterdir():
            if other != copy:
                shutil.rmtree(other)
        return copy


def noted_rules(checkpoint: Path) -> tuple[str, ...]:
    """The names of the rules about a reference's columns that rows may have been set aside for."""
    return tuple((checkpoints.noted(checkpoint, _RULES) or {}).get("names", ()))
