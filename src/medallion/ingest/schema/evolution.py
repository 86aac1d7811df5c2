"""A source's schema while it is being read: declared or inferred, and grown as fields come."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.model import TYPED_FORMATS, WIDENING, Config, SourceConfig
from medallion.config.values import fold_case
from medallion.ingest.parsing.nested import is_nested_type
from medallion.ingest.parsing.times import full_times_column, needs_full_times_sql
from medallion.ingest.schema import registry
from medallion.ingest.schema.columns import (
    MAX_COLUMNS,
    declared_columns,
    file_types,
    is_valid_name,
    nested_names,
    reserved_names,
    select_columns,
)
from medallion.ingest.schema.growth import grow_type, new_fields_sql
from medallion.ingest.schema.inference import InferredSchema, infer_schema, inference_notes
from medallion.spark.plans import type_ddl
from medallion.storage import delta_tables
from medallion.storage.table_specs import (
    FULL_TIMES,
    OFFSET,
    PARTITION,
    RESCUED,
    SOURCE_FILE,
    TOPIC,
    bronze_columns,
    quote_identifier,
)
from medallion.storage.text import counted

_NAMES_SHOWN, _NAME_SHOWN = 10, 100  # names in a message, and characters of each
# The rows that a schema is inferred from go through one task to the driver's memory.
_LINES, _BYTES = 10_000, 8 * 2**20
_GROWING = ("addNewColumns", WIDENING)
_MOST_EXACT = 2**53  # doubles hold all whole numbers up to here


class TableChange(Enum):
    """What bronze's table needs before rows of a schema can be written to it."""

    NONE = "none"
    WIDER = "wider"  # more columns, or more fields within columns
    REWRITE = "rewrite"  # a column has another type


@dataclass(frozen=True)
class Growth:
    """What a schema has gained from the rescued values of a batch.

    Attributes:
        added: columns, and fields within columns, by their dotted paths.
        widened: columns that have another type now, with both types: `amount: long to double`.
    """

    added: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)


class Schema:
    """The columns of one source. See the configuration's `schema_evolution`.

    Attributes:
        columns: what rows are parsed to: columns with their Spark types.
        is_known: whether they are declared or inferred already.
    """

    def __init__(
        self,
        config: Config,
        source: SourceConfig,
        named: Collection[tuple[str, ...]] = (),
        can_rewrite: bool = False,
    ) -> None:
        """Read the newest version, with what the configuration declares.

        Args:
            config: of the lakehouse.
            source: the source's settings.
            named: fields that silver or a rule of bronze reads, as `spark.plans.fields_in` returns
                them.
            can_rewrite: whether the table is about to be rewritten, so that the configuration may
                give a column another type than the table has.

        Raises:
            ConfigError: the configuration declares a type or a name that no table can have, or
                another type than the table has.
        """
        self._source, self._named = source, named
        self._is_typed = (
            source.format in TYPED_FORMATS
        )  # whose files bring the types of their columns
        self._table = config.layout.table(f"bronze.{source.name}")
        self._folder = config.layout.schemas(source.name)
        self._refused = set[str]()  # fields that no column can be made of
        schema, self._hints = declared_columns(source)
        self._declared = {**(schema or {}), **self._hints}
        self._take_over()
        if schema is not None:
            registry.declare_columns(self._folder, source.name, schema, can_rewrite=can_rewrite)
        known = registry.read_versions(self._folder)
        if known and self._hints:  # they may have come since the schema was inferred
            known = [
                registry.declare_columns(
                    self._folder, source.name, self._hints, "hints", can_rewrite
                )
            ]
        self.columns = known[-1].columns if known else self._hints
        self.is_known = bool(known)

    def _take_over(self) -> None:
        """Add the columns of bronze's table that no version has: a user restored older versions.

        Otherwise such a column would be learned again, maybe with another type than the table has,
        and no batch could be written.
        """
        known = registry.read_versions(self._folder)
        there = source_columns(self._table, self._source.origin_columns)
        new = _without(there, known[-1].columns if known else {})
        # A table that was made before the first row had any fields has the hints alone.
        if _without(new, {} if known else self._hints):
            registry.add_version(self._folder, new, "as bronze's table has it")

    def table_json(self) -> str:
        """Return bronze's columns as Delta and Spark spell them."""
        columns = bronze_columns(self.columns, self._source.origin_columns)
        ddl = ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in columns.items())
        return T.DataType.fromDDL(ddl).json()

    def infer(self, rows: DataFrame, of: str) -> list[str]:
        """Write the first version of the schema, as the first rows have it.

        Args:
            rows: JSON text in `value`, or rows of files that bring their types; and the columns
                that say where a row came from.
            of: how much that is: `2 files`.

        Returns:
            Notes for the user: values that do not fit their column, and fields that are no columns.
        """
        lines = [] if self._is_typed else collect_sample(rows, "value")
        found = InferredSchema(file_types(rows), {}, {}) if self._is_typed else infer_schema(lines)
        inferred = self._acceptable(found.columns, self._hints)
        columns = {**self._hints, **inferred}
        columns |= full_times_column(lines, columns)
        if columns:  # files without a single field say nothing: the next ones may
            basis = "types" if self._is_typed else counted(len(lines), "row")
            self._add(columns, f"inferred from {basis} of {of}")
        if self._is_typed:
            return []
        return inference_notes(
            found, columns, self._hints, lambda row: _origin_of(lines[row - 1], rows)
        )

    def table_change(self) -> TableChange:
        """Return what the table needs before rows of this schema can be written to it."""
        change = TableChange.NONE
        there = source_columns(self._table, self._source.origin_columns)
        for name, kind in self.columns.items() if delta_tables.table_exists(self._table) else ():
            if name not in there:
                change = TableChange.WIDER
            elif there[name] != kind:
                before, after = T.DataType.fromDDL(there[name]), T.DataType.fromDDL(kind)
                if not only_adds_fields(before, after):
                    return TableChange.REWRITE
                change = TableChange.WIDER
        return change

    def add_configured_fields(self) -> list[str]:
        """Add the fields that the configuration reads and that no row has had yet, as strings.

        So that silver can run before the first row has an optional field. Nothing is added to a
        schema that the configuration declares as a whole: there a missing name is a mistake.

        Returns:
            The dotted names of the fields that were added.
        """
        if self._source.schema is not None or not self.is_known:
            return []
        columns, added = dict(self.columns), list[str]()
        known, not_fields = (
            {fold_case(name): name for name in columns},
            reserved_names(self._source.origin_columns),
        )
        for path in sorted(self._named):
            if fold_case(path[0]) in not_fields or not all(map(is_valid_name, path)):
                continue
            name = known.setdefault(fold_case(path[0]), path[0])
            wanted: T.DataType = T.StringType()
            for part in reversed(path[1:]):
                wanted = T.StructType([T.StructField(part, wanted)])
            before = columns.get(name)
            after = (
                wanted if before is None else grow_type(T.DataType.fromDDL(before), wanted, False)
            )
            if type_ddl(after) != before:
                columns[name] = type_ddl(after)
                added.append(".".join(path))
        if added:
            self._add(columns, f"read by the configuration: {', '.join(added)}")
        return added

    @property
    def stops_at_new_fields(self) -> bool:
        """Whether a batch with unknown fields is to fail."""
        return self._source.schema_evolution == "failOnNewColumns"

    def growth_condition(self) -> str:
        """Return SQL that is true for a parsed row for which the schema should grow."""
        mode, tests = self._source.schema_evolution, list[str]()
        if self._is_typed and not self.stops_at_new_fields:
            return "false"  # see `grow_by_file_types`
        if mode in _GROWING or self.stops_at_new_fields:
            has_room = self.stops_at_new_fields or len(self.columns) < MAX_COLUMNS
            tests.append(new_fields_sql(self.columns, self._refused, has_room, mode == WIDENING))
        # Times with more digits are no new field, and kept in full in every mode.
        if FULL_TIMES not in self.columns and "timestamp" in self.columns.values():
            tests.append(needs_full_times_sql(self.columns))
        found = " or ".join(tests) or "false"
        # Within a lambda, which Spark interprets: few rows need it, and all would pay for its code.
        is_so = f"exists(array({RESCUED}), text -> {found})"
        return f"case when {RESCUED} is null then false else {is_so} end" if tests else "false"

    def grow(self, rows: DataFrame, batch: int) -> Growth:
        """Grow by what the rows of a batch hold that the columns cannot.

        Args:
            rows: rows with `_rescued_data`, parsed by the columns that are known.
            batch: its number, for the record.

        Returns:
            What is new. Nothing if no column can be made of it: those fields stay rescued, and
            `growth_condition` is not true of them again while this process runs.
        """
        rescued = collect_sample(rows.where(self.growth_condition()), RESCUED)
        if full_times := full_times_column(rescued, self.columns):
            self._add(full_times, f"times with more than six digits in batch {batch}")
            return Growth(added=[FULL_TIMES])
        if self.stops_at_new_fields:
            return Growth()
        found = infer_schema(rescued)
        growth = self._grow(found.columns, batch)
        if not growth.added and not growth.widened:
            # Not those that are null in all of them: a later row may bring their type.
            typed = set(map(fold_case, (*found.columns, *found.unfit)))
            names = {name for text in rescued for name in json.loads(text)}
            self._refused.update(name for name in names if fold_case(name) in typed)
        return growth

    def add_full_times(self, rows: DataFrame) -> bool:
        """Add `_full_times` if times with more than six digits were rescued for the lack of it.

        Args:
            rows: rows with `_rescued_data`, parsed by the columns that are known.

        Returns:
            Whether it was added.
        """
        if FULL_TIMES in self.columns or "timestamp" not in self.columns.values():
            return False
        rescued = collect_sample(rows.where(needs_full_times_sql(self.columns)), RESCUED)
        if column := full_times_column(rescued, self.columns):
            self._add(column, "times with more than six digits in bronze's rows")
        return bool(column)

    def grow_by_file_types(self, rows: DataFrame, batch: int) -> Growth:
        """Grow by the types that the files of a batch bring.

        Args:
            rows: as the source gives them, before they are written.
            batch: its number, for the record.
        """
        if self._source.schema_evolution not in _GROWING:
            return Growth()
        return self._grow(file_types(rows), batch)

    def _grow(self, found: Mapping[str, str], batch: int) -> Growth:
        spelled = {fold_case(name): name for name in self.columns}
        growth, columns = Growth(), dict(self.columns)
        for name, kind in found.items():
            if known := spelled.get(fold_case(name)):
                before = T.DataType.fromDDL(columns[known])
                # A type that the configuration names is the user's choice.
                is_open = known not in self._declared
                can_widen = is_open and self._source.schema_evolution == WIDENING
                after = grow_type(before, T.DataType.fromDDL(kind), can_widen)
                if self._would_round(known, before, after):
                    after = T.StringType()
                if type_ddl(after) != type_ddl(before) and len(nested_names(after)) <= MAX_COLUMNS:
                    columns[known] = type_ddl(after)
                    self._note_growth(growth, known, before, after)
        new = self._acceptable(_without(found, columns), columns)
        growth.added.extend(new)
        if growth.added or growth.widened:
            self._add({**columns, **new}, f"new in batch {batch}")
        return growth

    def _would_round(self, name: str, before: T.DataType, after: T.DataType) -> bool:
        return (type(before), type(after)) == (T.LongType, T.DoubleType) and (
            name in source_columns(self._table, self._source.origin_columns)
            and has_inexact_doubles(self._table, name)
        )

    @staticmethod
    def _note_growth(growth: Growth, name: str, before: T.DataType, after: T.DataType) -> None:
        if only_adds_fields(before, after):
            inner = [n for n in nested_names(after) if n not in nested_names(before)]
            growth.added.extend(f"{name}.{field}" for field in inner)
        else:
            growth.widened.append(f"{name}: {type_ddl(before)} to {type_ddl(after)}")

    def new_field_names(self, rows: DataFrame) -> list[str]:
        """Return the first names of rescued fields that are new, or hold new ones, in order."""
        flat = [name for name, kind in self.columns.items() if not is_nested_type(kind)]
        keys = F.explode(F.expr(f"json_object_keys({RESCUED})"))
        new = (
            rows.where(self.growth_condition())
            .select(keys.alias("key"))
            .where(~F.col("key").isin(flat))
        )
        named = new.select(F.left("key", F.lit(_NAME_SHOWN)).alias("key")).distinct()
        return [row.key for row in named.orderBy("key").limit(_NAMES_SHOWN).collect()]

    def _acceptable(self, columns: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
        """Return the columns that the table can have beside the known ones."""
        named = {path[0] for path in self._named}
        return select_columns(columns, known, self._source.origin_columns, named)

    def _add(self, columns: Mapping[str, str], why: str) -> None:
        self.columns = registry.add_version(self._folder, columns, why).columns
        self.is_known = True


def only_adds_fields(before: T.DataType, after: T.DataType) -> bool:
    """Return whether a type only has more fields than another one, at any depth."""
    return type_ddl(grow_type(before, after, can_widen=False)) == type_ddl(after)


def collect_sample(rows: DataFrame, column: str, most_bytes: int = _BYTES) -> list[str]:
    """The first texts of a column: 10,000 or 8 MiB, whichever is less; no longer one is among them.

    Their lengths are fetched first, and then just the texts that fit. A mere `limit` would fetch as
    many rows from each of several partitions, and only then throw away what is too much.
    """
    numbered = rows.select(
        F.col(column).alias("text"),
        F.octet_length(column).alias("length"),
        F.monotonically_increasing_id().alias("number"),
    ).where(F.col("length") <= most_bytes)
    found = numbered.select("length", "number").limit(_LINES).collect()
    totals = accumulate(row.length for row in found)
    fit = [row.number for row, total in zip(found, totals, strict=True) if total <= most_bytes]
    if not fit:
        return []
    chosen = numbered.where(F.col("number") <= fit[-1]).select("text").limit(len(fit))
    return [row.text for row in chosen.collect()]


def _origin_of(line: str, rows: DataFrame) -> str:
    """Return where the first row with this line came from: `file na/1.json`."""
    names = [name for name in (SOURCE_FILE, TOPIC, PARTITION, OFFSET) if name in rows.columns]
    row = rows.where(F.col("value") == line).select(*names).first()
    words = {SOURCE_FILE: "file"}
    found = row.asDict() if row else {}
    return ", ".join(f"{words.get(n, n.strip('_'))} {value}" for n, value in found.items())


def source_columns(bronze: Path, origin: Mapping[str, str]) -> dict[str, str]:
    """A source's own columns in its table, with their types as versions spell them."""
    if not delta_tables.table_exists(bronze):
        return {}
    found = T.StructType.fromJson(json.loads(delta_tables.open_table(bronze).schema().to_json()))
    kinds = {field.name: type_ddl(field.dataType) for field in found}
    return _without(kinds, bronze_columns({}, origin))


def has_inexact_doubles(bronze: Path, column: str) -> bool:
    """Return whether a column has whole numbers that doubles would change, such as ids."""
    beyond = f'where "{column}" not between -{_MOST_EXACT} and {_MOST_EXACT} limit 1'
    return bool(delta_tables.select_rows(bronze, "1", beyond))


def _without(columns: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    return {name: kind for name, kind in columns.items() if name not in others}
