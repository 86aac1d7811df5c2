"""A reference read: a CSV file or a Delta table, with one row a key and values of their types."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config, Enrich, SourceConfig
from medallion.errors import ConfigError, MedallionError
from medallion.ingest.files.codecs import READ_ERRORS, opened
from medallion.ingest.parsing.times import is_timestamp_string
from medallion.layers import recovery
from medallion.layers.silver import transform
from medallion.quality.rules import Rule, failed_rules
from medallion.spark import checkpoints
from medallion.spark.delta_reads import escaped
from medallion.spark.errors import SPARK_ERRORS, one_line
from medallion.spark.plans import CONFIG_TYPES
from medallion.storage import delta_tables, files
from medallion.storage.paths import unsupported_path_reason, without_dotdot

_LONG = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_DAY = re.compile(r"[0-9]+-[0-9]+-[0-9]+")


@dataclass(frozen=True)
class LookupTable:
    """A reference as it was looked at: another one has another `version`.

    `rows` gives its rows, those without a key left out. It raises MedallionError where a column is
    missing, a value is not of its column's type, or a key is there twice.
    """

    version: str
    rows: Callable[[], DataFrame]


def open_lookup_table(
    spark: SparkSession, file: Path, name: str, kinds: Mapping[str, str]
) -> LookupTable:
    """Look at a reference, whose rows are read later on.

    Args:
        file: the CSV file, or the folder of the Delta table.
        name: what people are told that it is called.
        kinds: the columns that are taken, with their kinds; the first one is the key.

    Raises:
        MedallionError: it is not there, or cannot be read.
    """
    if file.is_dir():
        return _delta(spark, file, name, kinds)
    try:
        with opened(file) as packed:
            data = packed.read()
    except FileNotFoundError:
        raise MedallionError(f"{name}: no such file, and no Delta table.") from None
    except READ_ERRORS as error:
        raise MedallionError(f"{name}: cannot be read ({error}).") from None

    def rows() -> DataFrame:
        texts = ", ".join(f"`{column}` string" for column in kinds)
        return _checked(spark.createDataFrame(list(_fields(data, name, kinds)), texts), name, kinds)

    return LookupTable(hashlib.sha256(data).hexdigest(), rows)


def _delta(spark: SparkSession, folder: Path, name: str, kinds: Mapping[str, str]) -> LookupTable:
    if not delta_tables.table_exists(folder):
        raise MedallionError(f"{name}: no Delta table, and no CSV file.")
    if why := unsupported_path_reason(folder):
        raise MedallionError(f"{name}: {why}.")
    table = delta_tables.open_table(folder)
    version = table.version()

    def rows() -> DataFrame:
        then = spark.read.format("delta").option("versionAsOf", str(version)).load(str(folder))
        types = dict(then.dtypes)
        _places(list(types), name, kinds)
        for column, kind in kinds.items():
            if CONFIG_TYPES.get(types[column]) != kind:
                raise MedallionError(f"{name}: {column} is {types[column]} there, and not {kind}.")
        return _checked(then, name, kinds)

    return LookupTable(f"{table.metadata().id} {version}", rows)


def _checked(rows: DataFrame, name: str, kinds: Mapping[str, str]) -> DataFrame:
    """The rows that have a key, typed; refused where two have the same one."""
    key = next(iter(kinds))
    typed = rows.select(*(F.col(f"`{c}`").cast(kind).alias(c) for c, kind in kinds.items()))
    known = typed.where(F.col(key).isNotNull())
    several = known.groupBy(F.col(key).alias("_key")).agg(F.count("*").alias("_rows"))
    if twice := several.where("_rows > 1").selectExpr("string(_key)", "_rows").limit(1).collect():
        value, times = twice[0]
        raise MedallionError(
            f"{name}: {key} {value!r} is there {times:,} times, which would multiply rows: a "
            "reference has one row a key."
        )
    return known


def _fields(data: bytes, name: str, kinds: Mapping[str, str]) -> Iterator[tuple[str | None, ...]]:
    """The fields of each row that are taken, as texts that can be cast; an empty one is null."""
    try:
        reader = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        header = next((fields for fields in reader if fields), [])
        places = _places(header, name, kinds)
        for fields in reader:
            where = f"{name} line {reader.line_num}"
            if fields and len(fields) != len(header):
                many = f"{len(fields)} fields, where the header has {len(header)}"
                raise MedallionError(f"{where}: {many}.")
            if fields:
                yield tuple(_field(where, c, kinds[c], fields[at]) for c, at in places.items())
    except UnicodeDecodeError:
        raise MedallionError(f"{name}: cannot be read, for it is not UTF-8.") from None
    except csv.Error as error:
        raise MedallionError(f"{name}: cannot be read as CSV ({error}).") from None


def _places(header: Sequence[str], name: str, kinds: Mapping[str, str]) -> dict[str, int]:
    for column in kinds:
        if column not in header:
            has = f"it has {', '.join(header)}" if header else "it has none"
            raise MedallionError(f"{name}: has no column {column}; {has}.")
        if header.count(column) > 1:
            raise MedallionError(f"{name}: has the column {column} twice.")
    return {column: header.index(column) for column in kinds}


def _field(where: str, column: str, kind: str, text: str) -> str | None:
    if text and not _FITS[kind](text):
        raise MedallionError(f"{where}: {column} {text!r} is no {kind}.")
    return text or None


# As bronze takes a field of CSV: what is a number, a truth or a time only in part is none.
def _is_long(text: str) -> bool:
    return bool(_LONG.fullmatch(text)) and -(2**63) <= int(text) < 2**63


def _is_double(text: str) -> bool:
    try:
        value = json.loads(text)
        return type(value) in (int, float) and isfinite(float(value))
    except (ValueError, OverflowError):
        return False


_FITS: Mapping[str, Callable[[str], bool]] = {
    "string": lambda text: True,
    "long": _is_long,
    "double": _is_double,
    "boolean": lambda text: text in ("true", "false"),
    "date": lambda text: bool(_DAY.fullmatch(text)) and is_timestamp_string(text),
    "timestamp": is_timestamp_string,
}


_NOTE, _RULES = "reference", "reference_rules"


class LookupJoin:
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
        self._file = without_dotdot(config.layout.root / self._enrich.file)
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
        kind = CONFIG_TYPES.get(dtype)
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
        return transform.join_lookup(
            rows, reference, self._enrich.on, self._enrich.columns, self._failed
        )

    def _look(self) -> LookupTable:
        return open_lookup_table(self._spark, self._file, self.name, self._kinds)

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


def recorded_lookup_rules(checkpoint: Path) -> tuple[str, ...]:
    """The names of the rules about a reference's columns that rows may have been set aside for."""
    return tuple((checkpoints.noted(checkpoint, _RULES) or {}).get("names", ()))
