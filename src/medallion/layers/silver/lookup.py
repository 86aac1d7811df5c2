"""The lookup join of silver with a CSV file or Delta table that has one row for each key.

The lookup table is type-checked, and pinned for each batch by a copy beside the checkpoint.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.errors import ConfigError, MedallionError
from medallion.ingest.files.content import READ_ERRORS, open_unpacked
from medallion.ingest.parsing.times import value_of_type
from medallion.layers import recovery
from medallion.layers.flow import Flow
from medallion.layers.silver import transform
from medallion.quality.rules import Rule, failed_rules
from medallion.spark import checkpoints, delta
from medallion.spark.plans import CONFIG_TYPES
from medallion.storage import delta_tables
from medallion.storage.paths import StoragePath

_COPY, _RULES = "reference", "reference_rules"  # names beside the checkpoint


class LookupJoin:
    """The lookup join of one source.

    A batch reads a copy, kept beside the checkpoint: an unchanged lookup table is not read and
    checked again, and a batch that was interrupted between its two tables is completed with the
    copy that it started with. With another copy a row could go to both tables, or to neither.

    Attributes:
        name: the path of the lookup table, as it is configured.
        rules: the rules about its columns.
        rule_names: the names of these and of all earlier rules, under which rows are in quarantine.
    """

    def __init__(self, flow: Flow, rules: Sequence[Rule], other_names: Iterable[str]) -> None:
        """Open the lookup join of a source that has one.

        Args:
            flow: the flow of the source's silver table.
            rules: silver's rules about columns of the lookup table.
            other_names: the names of all other rules of bronze and silver.

        Raises:
            ConfigError: a rule about lookup columns has the name of another rule, now or earlier.
        """
        config, source = flow.config, flow.source
        assert source.lookup, f"{source.name} has no lookup table"
        self._spark, self._enrich, self.rules = flow.spark, source.lookup, rules
        self.name = source.lookup.file
        self._setting = f"{config.pipeline_file}: sources.{source.name}.enrich.on"
        self._path = (config.layout.root / self.name).normalized()
        self._query, self._checkpoint, self._targets = flow.name, flow.checkpoint, flow.target_paths
        self._types: Mapping[str, str] = {}
        recorded = checkpoints.read_document(self._checkpoint, _RULES) or {}
        earlier = recorded_lookup_rules(self._checkpoint)
        self.rule_names = tuple(dict.fromkeys((*earlier, *(rule.name for rule in rules))))
        self._other_names = tuple(dict.fromkeys((*recorded.get("others", ()), *other_names)))
        if ambiguous := [name for name in self.rule_names if name in self._other_names]:
            raise ConfigError(
                f"{config.expectations}: the rule {', '.join(ambiguous)} of {flow.name} is or was "
                f"both a rule about columns of {self.name} and one about other columns, so rows in "
                "quarantine could not be distinguished. Rename it, or run medallion refresh "
                f"{flow.name}."
            )

    def record_rules(self) -> None:
        """Keep the names of the rules beside the checkpoint."""
        names = {"names": self.rule_names, "others": self._other_names}
        checkpoints.write_document(self._checkpoint, _RULES, names)

    def join_empty(self, rows: DataFrame) -> DataFrame:
        """Join rows to an empty lookup table, for the schema of the result.

        Call this before the other joins: it sets the type of the lookup table's key.

        Raises:
            ConfigError: the type of the key column cannot be a lookup key.
        """
        enrich, key_type = self._enrich, dict(rows.dtypes)[self._enrich.on]
        if key_type not in CONFIG_TYPES:
            raise ConfigError(
                f"{self._setting}: {enrich.on} is {key_type}, which cannot be a lookup key."
            )
        self._types = {enrich.on: CONFIG_TYPES[key_type], **enrich.columns}
        return self._join(rows, self._spark.createDataFrame([], self._ddl))

    def join_batch(self, rows: DataFrame, batch: int) -> DataFrame:
        """Join a batch to the current lookup table, or to its copy if the batch was interrupted.

        Raises:
            MedallionError: the lookup table cannot be read, or is not valid.
        """
        path = delta.escape_path(self._copy_for(batch))
        return self._join(rows, rows.sparkSession.read.schema(self._ddl).parquet(path))

    def join_current(self, rows: DataFrame) -> DataFrame:
        """Join rows outside of a batch (late rows) to the lookup table as it is now.

        Raises:
            MedallionError: the lookup table cannot be read, or is not valid.
        """
        return self._join(rows, self._open().rows())

    def _open(self) -> LookupTable:
        return open_lookup_table(self._spark, self._path, self.name, self._types)

    def _join(self, rows: DataFrame, lookup: DataFrame) -> DataFrame:
        enrich, rules = self._enrich, failed_rules(self.rules)
        return transform.join_lookup(rows, lookup, enrich.on, enrich.columns, rules)

    @property
    def _ddl(self) -> str:
        return ", ".join(f"`{column}` {type_}" for column, type_ in self._types.items())

    def _copy_for(self, batch: int) -> StoragePath:
        """Return the path of the copy that a batch reads; make it if the lookup table changed.

        Raises:
            MedallionError: the copy of an interrupted batch is gone.
        """
        directory = self._checkpoint / _COPY
        noted = checkpoints.read_document(self._checkpoint, _COPY)
        last = directory / str(noted["of"]) if noted else None
        if last and recovery.has_written(self._checkpoint, self._targets, batch):
            if last.is_stored():
                return last
            raise MedallionError(
                f"{last} is gone, the copy of {self.name} that interrupted batch {batch} started "
                f"with. Rebuild the table with medallion refresh {self._query}."
            )
        table = self._open()
        version = hashlib.sha256(f"{table.version} {self._ddl}".encode()).hexdigest()
        copy = directory / version
        if copy == last and copy.is_stored():
            return copy
        table.rows().write.mode("overwrite").parquet(str(copy))
        copy.sync()
        checkpoints.write_document(self._checkpoint, _COPY, {"of": version})
        for other in directory.children():
            if other != copy:
                other.delete_prefix()
        return copy


def recorded_lookup_rules(checkpoint: StoragePath) -> tuple[str, ...]:
    """Return the names of all lookup rules so far, under which rows may be in quarantine."""
    return tuple((checkpoints.read_document(checkpoint, _RULES) or {}).get("names", ()))


@dataclass(frozen=True)
class LookupTable:
    """One version of a lookup table.

    Attributes:
        version: identifies its content.
        rows: reads its rows, without those that have no key. Raises MedallionError if a column is
            missing, a value is not of its column's type, or a key occurs twice.
    """

    version: str
    rows: Callable[[], DataFrame]


def open_lookup_table(
    spark: SparkSession, path: StoragePath, name: str, types: Mapping[str, str]
) -> LookupTable:
    """Open a lookup table.

    Args:
        path: the CSV file, or the directory of the Delta table.
        name: its name in messages.
        types: the columns to read, with their types; the first is the key.

    Raises:
        MedallionError: it does not exist, or cannot be read.
    """
    if path.is_directory():
        return _open_delta(spark, path, name, types)
    try:
        with path.as_local() as local, open_unpacked(local) as file:
            data = file.read()
    except FileNotFoundError:
        raise MedallionError(f"{name}: no such file or Delta table.") from None
    except READ_ERRORS as error:
        raise MedallionError(f"{name} cannot be read: {error}.") from None

    def rows() -> DataFrame:
        strings = ", ".join(f"`{column}` string" for column in types)
        untyped = spark.createDataFrame(list(_csv_rows(data, name, types)), strings)
        return _typed_rows(untyped, name, types)

    return LookupTable(hashlib.sha256(data).hexdigest(), rows)


def _open_delta(
    spark: SparkSession, path: StoragePath, name: str, types: Mapping[str, str]
) -> LookupTable:
    if not delta_tables.table_exists(path):
        raise MedallionError(f"{name}: this directory is not a Delta table.")
    if reason := path.unsupported_reason():
        raise MedallionError(f"{name}: {reason}.")
    table = delta_tables.open_table(path)
    version = table.version()

    def rows() -> DataFrame:
        pinned = delta.read_table(spark, path, version)
        _refuse_missing_columns(name, pinned.columns, types)
        return _typed_rows(pinned, name, types)

    return LookupTable(f"{table.metadata().id} {version}", rows)


def _csv_rows(data: bytes, name: str, columns: Iterable[str]) -> Iterator[tuple[str | None, ...]]:
    """Yield the named fields of each row of a CSV file, null if empty."""
    try:
        text = data.decode("utf-8-sig").lstrip("\r\n")
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        header = reader.fieldnames or ()
        _refuse_missing_columns(name, header, columns)
        for row in reader:
            if None in row or None in row.values():
                raise MedallionError(
                    f"{name} line {reader.line_num} does not have the {len(header)} fields of the "
                    "header."
                )
            yield tuple(row[column] or None for column in columns)
    except UnicodeDecodeError as error:
        raise MedallionError(f"{name} is not UTF-8: {error}.") from None
    except csv.Error as error:
        raise MedallionError(f"{name} cannot be read as CSV: {error}.") from None


def _refuse_missing_columns(name: str, present: Sequence[str], columns: Iterable[str]) -> None:
    for column in columns:
        if present.count(column) != 1:
            raise MedallionError(
                f"{name} must have the column {column} once; its columns are: "
                f"{', '.join(present) or 'none'}."
            )


def _typed_rows(rows: DataFrame, name: str, types: Mapping[str, str]) -> DataFrame:
    """Return the rows that have a key, with the columns cast to their types.

    Raises:
        MedallionError: a value is not of its column's type, or two rows have the same key.
    """
    key = next(iter(types))
    values = {c: F.expr(value_of_type(f"`{c}`", type_)) for c, type_ in types.items()}
    typed = rows.select(*(value.alias(column) for column, value in values.items()))
    for column, type_ in types.items():
        value = F.col(f"`{column}`")
        invalid = rows.where(value.isNotNull() & values[column].isNull())
        if row := invalid.select(value.cast("string")).first():
            raise MedallionError(f"{name}: {column} {row[0]!r} is not a {type_}.")
    keyed = typed.where(F.col(key).isNotNull())
    copies = keyed.groupBy(F.col(key).alias("_key")).agg(F.count("*").alias("_rows"))
    if repeated := copies.where("_rows > 1").selectExpr("string(_key)", "_rows").first():
        value, count = repeated
        raise MedallionError(
            f"{name} has {count:,} rows with {key} {value!r}, which would multiply rows of silver. "
            "Keep one row per key."
        )
    return keyed
