"""A source's schema during ingestion: declared or inferred, and growing with new fields."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import accumulate

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.model import TYPED_FORMATS, WIDENING, Config, SourceConfig
from medallion.config.values import fold_case
from medallion.errors import ConfigError
from medallion.ingest.parsing.names import ColumnNamer, field_types, with_comments
from medallion.ingest.parsing.nested import is_nested_type
from medallion.ingest.parsing.partitions import infer_partition_types
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
from medallion.ingest.schema.growth import (
    ITEM,
    FieldPath,
    grow_type,
    maps_to_columns_sql,
    new_fields_sql,
    with_field,
    with_hints,
)
from medallion.ingest.schema.inference import InferredSchema, infer_schema, inference_notes
from medallion.spark.plans import type_ddl
from medallion.storage import delta_tables
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import (
    RESCUED,
    Columns,
    bronze_columns,
    column_name,
    quote_identifier,
)
from medallion.storage.text import counted

_MAX_NAMES, _MAX_NAME = 10, 100  # names in a message, and characters of each
# Samples are held in the driver's memory.
_MAX_LINES, _MAX_BYTES = 10_000, 8 * 2**20
_GROWING = ("addNewColumns", WIDENING)
_MAX_EXACT = 2**53  # doubles hold all whole numbers up to here


class TableChange(Enum):
    """The change that bronze's table needs before rows of a schema can be written to it."""

    NONE = "none"
    WIDER = "wider"  # more columns, or more fields within columns
    REWRITE = "rewrite"  # a column has another type


@dataclass(frozen=True)
class Growth:
    """The changes of a schema for a batch.

    Attributes:
        added: new columns, and new fields within columns, by dotted path.
        widened: columns with a new type, with both types: `amount: long to double`.
        notes: fields that cannot become columns, with the reason.
    """

    added: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Schema:
    """The columns of one source; `schema_evolution` in the configuration decides how they grow.

    Attributes:
        columns: the source's columns with Spark types.
        names: the original names of their fields by path, if they differ (`parsing.names`).
        is_known: whether the columns are declared or inferred already.
    """

    def __init__(
        self,
        config: Config,
        source: SourceConfig,
        named: Callable[[Columns], Collection[FieldPath]] = lambda _: (),
        can_rewrite: bool = False,
    ) -> None:
        """Read the newest version, and add the declared columns.

        Args:
            source: the source's settings.
            named: returns the fields of the columns that the configuration names.
            can_rewrite: whether declared types may differ from the table's, because it is about to
                be rewritten.

        Raises:
            ConfigError: a declared type or name is not possible in a table, or differs from the
                table's.
        """
        self._source, self._named = source, named
        self._is_typed = source.format in TYPED_FORMATS
        self._table = config.layout.table(f"bronze.{source.name}")
        self._directory = config.layout.schemas(source.name)
        self._refused = set[str]()  # fields that cannot become columns
        self._declared = declared_columns(source)
        self._hints = self._declared.columns if source.schema is None else {}
        hints = self._declared.hints.items()
        self._types = {fold_case(name): T.DataType.fromDDL(ddl) for name, ddl in hints}
        self._add_table_columns()
        # Hints may be newer than the inferred schema.
        last = registry.newest_version(self._directory)
        if source.schema is not None or last.version:
            declared = self._with_known_fields(last)
            last = registry.declare_columns(self._directory, source.name, declared, can_rewrite)
        self.is_known = last.version > 0
        basis = last if self.is_known else self._declared
        self.columns, self.names = basis.columns, basis.names

    def _with_known_fields(self, last: registry.SchemaVersion) -> registry.DeclaredColumns:
        """Return the declared columns, and those with a field whose hint is of another type."""
        fields = dict[str, str]()
        for name, before in field_types(last.columns, last.names).items():
            if any(f"{hint}.".startswith(f"{fold_case(name)}.") for hint in self._types):
                dtype = type_ddl(with_hints(T.DataType.fromDDL(before), name, self._types))
                fields |= {name: dtype} if dtype != before else {}
        namer = ColumnNamer(dict(last.names))
        columns = {**self._declared.columns, **namer.columns(fields, last.columns)}
        return replace(
            self._declared, columns=columns, names={**self._declared.names, **namer.names}
        )

    def _add_table_columns(self) -> None:
        """Add the columns of bronze's table that no version has, after a user restored versions.

        Otherwise such a column could be inferred again with another type than the table's.
        """
        last = registry.newest_version(self._directory)
        new = _without(source_columns(self._table, self._source.origin_columns), last.columns)
        # A table that was created before the first row had any fields has only the hints.
        if _without(new, {} if last.version else self._hints):
            registry.add_version(self._directory, new, "as bronze's table has it")

    def table_type(self) -> T.StructType:
        """Return the type of the rows of bronze's table.

        Fields with other names have the original ones as comments.
        """
        columns = bronze_columns(self.columns, self._source.origin_columns)
        ddl = ", ".join(f"{quote_identifier(name)} {dtype}" for name, dtype in columns.items())
        table_type = with_comments(T.DataType.fromDDL(ddl), self.names)
        assert isinstance(table_type, T.StructType), "columns are those of a struct"
        return table_type

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the columns in the same order, as `parsing.parse.parse_lines` takes them.

        They have their original names, and the configuration's time formats as types.
        """
        columns = {**self.columns, **self._declared.formats}
        return field_types({name: columns[name] for name in self.columns}, self.names)

    def infer(self, rows: DataFrame, sample: str) -> list[str]:
        """Infer and record the first version of the schema.

        Args:
            rows: JSON text in `value`, or rows of typed files, with the columns of their origin.
            sample: the size of the sample, for the reason of the version: `2 files`.

        Returns:
            Notes for the user on values that do not fit, and fields that cannot become columns.
        """
        lines = [] if self._is_typed else collect_sample(rows, "value")
        inferred = infer_schema(lines, self._types)
        if self._is_typed:
            inferred = InferredSchema(file_types(rows, self._types))
        namer = ColumnNamer(dict(self.names), self._hints)
        fields = namer.columns(inferred.columns, self._hints)
        columns = {**self._hints, **self._select_columns(fields, self._hints)}
        if columns:  # empty files have no fields; later ones may
            basis = "types" if self._is_typed else counted(len(lines), "row")
            self._add(columns, f"inferred from {basis} of {sample}", namer.names)
        inferred.invalid.update(_collision_reasons(namer))
        known, hints = (set(field_types(some, namer.names)) for some in (columns, self._hints))
        return inference_notes(inferred, known, hints)

    @property
    def partition_types(self) -> dict[str, str]:
        """The partition columns that are known, with their types."""
        return {n: self.columns[n] for n in self._source.partition_columns if n in self.columns}

    def add_partition_columns(self, paths: Iterable[str]) -> list[str]:
        """Add partition columns that have a value in the paths of files; return their names.

        Raises:
            ConfigError: bronze has a column whose name differs only in case.
        """
        names = [n for n in self._source.partition_columns if n not in self.columns]
        types = infer_partition_types(paths, names) if names and self.is_known else {}
        spelled = {fold_case(name): name for name in self.columns}
        for name in types:
            if other := spelled.get(fold_case(name)):
                raise ConfigError(
                    f"sources.{self._source.name}.partition_columns names {name}, but bronze has "
                    f"the column {other}: columns cannot differ only in case. Rename the "
                    "directories, or leave the column out."
                )
        if types:
            self._add(types, "in the names of directories")
        return list(types)

    def table_change(self) -> TableChange:
        """Return the change that the table needs before rows of this schema can be written."""
        change, known = TableChange.NONE, delta_tables.column_names(self._table)
        if not known:
            return change
        if not known.issuperset(self._source.origin_columns):  # a table of an older version
            change = TableChange.WIDER
        in_table = source_columns(self._table, self._source.origin_columns)
        for name, dtype in self.columns.items():
            if name not in in_table:
                change = TableChange.WIDER
            elif in_table[name] != dtype:
                before, after = T.DataType.fromDDL(in_table[name]), T.DataType.fromDDL(dtype)
                if not only_adds_fields(before, after):
                    return TableChange.REWRITE
                change = TableChange.WIDER
        return change

    def add_configured_fields(self) -> list[str]:
        """Add fields that the configuration reads but no row has had yet: strings without hints.

        Silver can then run before any row has an optional field. Nothing is added to a declared
        `schema`: a name that it lacks is a mistake.

        Returns:
            The dotted names of the added fields.
        """
        if self._source.schema is not None or not self.is_known:
            return []
        columns, added = dict(self.columns), list[str]()
        known = {fold_case(name): name for name in columns}
        reserved = reserved_names(self._source.origin_columns)
        # By the names of columns, as long as the original ones are not known.
        nested = {".".join(map(column_name, n.split("."))): t for n, t in self._types.items()}
        flat = {column_name(name): dtype for name, dtype in self._types.items()}
        # The longest first: a field within a column says more than the column's name.
        for path in sorted(self._named(self.columns), key=lambda path: (-len(path), path)):
            names = [part for part in path if part != ITEM]
            if fold_case(path[0]) in reserved or not all(map(is_valid_name, names)):
                continue
            name = known.setdefault(fold_case(path[0]), path[0])
            before = columns.get(name)
            type_ = T.DataType.fromDDL(before) if before else None
            hints = nested if before else {**flat, **nested}
            wanted = with_hints(with_field(type_, path[1:]), path[0], hints)
            after = type_ddl(grow_type(type_ or wanted, wanted, can_widen=False))
            if after != before:
                columns[name] = after
                added.append(".".join(path).replace(f".{ITEM}", ITEM))
        added.sort()
        if added:
            self._add(columns, f"read by the configuration: {', '.join(added)}")
        return added

    @property
    def stops_at_new_fields(self) -> bool:
        """Whether a batch with unknown fields fails."""
        return self._source.schema_evolution == "failOnNewColumns"

    def growth_condition(self) -> str:
        """Return SQL that is true for a parsed row if the schema should grow for it."""
        mode, tests = self._source.schema_evolution, list[str]()
        if self._is_typed and not self.stops_at_new_fields:
            return "false"  # see `grow_by_file_types`
        if mode in _GROWING or self.stops_at_new_fields:
            has_room = self.stops_at_new_fields or len(self.columns) < MAX_COLUMNS
            tests.append(new_fields_sql(self.fields, self._refused, has_room, mode == WIDENING))
        # In every mode: the fields of known columns are no new fields.
        if unnamed := self._unnamed_columns():
            tests.append(maps_to_columns_sql(unnamed, self._refused))
        # Spark interprets lambdas; compiled code for this would slow every row.
        is_growing = f"exists(array({RESCUED}), text -> {' or '.join(tests)})"
        return f"case when {RESCUED} is null then false else {is_growing} end" if tests else "false"

    def grow(self, rows: DataFrame, batch: int) -> Growth:
        """Grow by the rescued values of a batch.

        Args:
            rows: rows with `_rescued_data`, parsed by the current columns.
            batch: the number of the batch, for the reason of the version.

        Returns:
            The changes. Fields that cannot become columns stay rescued, and `growth_condition`
            ignores them while this process runs.
        """
        rescued = collect_sample(rows.where(self.growth_condition()), RESCUED)
        inferred = infer_schema(rescued, self._types)
        if named := self._name_columns(rows, inferred.columns):
            self._add({}, f"names of fields in batch {batch}", named)
            return Growth(added=[f"{column} ({name})" for column, name in named.items()])
        if self.stops_at_new_fields:
            return Growth()
        is_growing = self._source.schema_evolution in _GROWING
        growth = self._grow(inferred.columns, batch) if is_growing else Growth()
        if not growth.added and not growth.widened:
            # Fields that are always null are not refused: a later row may show their type.
            typed = set(map(fold_case, (*inferred.columns, *inferred.invalid)))
            names = {name for row in rescued for name in json.loads(row)}
            self._refused.update(name for name in names if fold_case(name) in typed)
        return growth

    def grow_by_file_types(self, rows: DataFrame, batch: int) -> Growth:
        """Grow by the types of a batch's typed files.

        Args:
            rows: the rows of the files, before they are parsed.
            batch: the number of the batch, for the reason of the version.
        """
        if self._source.schema_evolution not in _GROWING:
            return Growth()
        return self._grow(file_types(rows, self._types), batch)

    def _unnamed_columns(self) -> list[str]:
        """Return the columns that may belong to a field with another name.

        They are declared by the column's name, or were added because the configuration reads them.
        """
        return [name for name in self.columns if name not in self.names and "_" in name]

    def _name_columns(self, rows: DataFrame, fields: Mapping[str, str]) -> dict[str, str]:
        """Return unnamed columns that belong to rescued fields, with the fields' names.

        A column that has had a value keeps its name.

        Args:
            rows: the rows of a batch, parsed by the current columns.
            fields: the rescued fields.
        """
        namer = ColumnNamer(dict(self.names), self._unnamed_columns())
        namer.columns(fields, self.columns)
        new = {c: n for c, n in namer.names.items() if c in self.columns and c not in self.names}
        return {c: n for c, n in new.items() if not self._has_values(rows, c)}

    def _has_values(self, rows: DataFrame, column: str) -> bool:
        new = rows.where(F.col(quote_identifier(column)).isNotNull())
        return self._has_stored(column, "is not null") or bool(new.take(1))

    def _has_stored(self, column: str, condition: str) -> bool:
        """Return whether the table has a row whose value of a column meets a condition."""
        in_table = source_columns(self._table, self._source.origin_columns)
        where = f'where "{column}" {condition} limit 1'
        return column in in_table and bool(delta_tables.select_rows(self._table, "1", where))

    def _grow(self, fields: Mapping[str, str], batch: int) -> Growth:
        namer = ColumnNamer(dict(self.names))
        found_columns = namer.columns(fields, self.columns)
        spelled = {fold_case(name): name for name in self.columns}
        growth, columns = Growth(), dict(self.columns)
        for name, dtype in found_columns.items():
            if known := spelled.get(fold_case(name)):
                before = T.DataType.fromDDL(columns[known])
                is_fixed = known in self._declared.columns or known in self.partition_types
                can_widen = self._source.schema_evolution == WIDENING and not is_fixed
                after = grow_type(before, T.DataType.fromDDL(dtype), can_widen)
                if self._would_round(known, before, after):
                    after = T.StringType()
                if type_ddl(after) != type_ddl(before) and len(nested_names(after)) <= MAX_COLUMNS:
                    columns[known] = type_ddl(after)
                    self._note_growth(growth, known, before, after)
        new = self._select_columns(_without(found_columns, columns), columns)
        growth.added.extend(new)
        if growth.added or growth.widened:
            self._add({**columns, **new}, f"new in batch {batch}", namer.names)
            reasons = _collision_reasons(namer).items()
            growth.notes.extend(f"{name} stays in {RESCUED}: {reason}" for name, reason in reasons)
        return growth

    def _would_round(self, name: str, before: T.DataType, after: T.DataType) -> bool:
        """Return whether the table has whole numbers that a double may round, such as ids."""
        becomes_double = (type(before), type(after)) == (T.LongType, T.DoubleType)
        beyond = f"not between -{_MAX_EXACT} and {_MAX_EXACT}"
        return becomes_double and self._has_stored(name, beyond)

    @staticmethod
    def _note_growth(growth: Growth, name: str, before: T.DataType, after: T.DataType) -> None:
        if only_adds_fields(before, after):
            inner = [n for n in nested_names(after) if n not in nested_names(before)]
            growth.added.extend(f"{name}.{field}" for field in inner)
        else:
            growth.widened.append(f"{name}: {type_ddl(before)} to {type_ddl(after)}")

    def new_field_names(self, rows: DataFrame) -> list[str]:
        """Return the first 10 names, sorted, of rescued fields that are new or have new fields."""
        rescued = collect_sample(rows.where(self.growth_condition()), RESCUED)
        flat = {name for name, dtype in self.fields.items() if not is_nested_type(dtype)}
        new = {name for row in rescued for name in json.loads(row) if name not in flat}
        return sorted(name[:_MAX_NAME] for name in new)[:_MAX_NAMES]

    def _select_columns(self, columns: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
        named = {path[0] for path in self._named(columns)}
        known = (*known, *self._source.partition_columns)  # their values are in paths, not in rows
        return select_columns(columns, known, self._source.origin_columns, named)

    def _add(
        self, columns: Mapping[str, str], reason: str, names: Mapping[str, str] | None = None
    ) -> None:
        all_columns = {**self.columns, **columns} if self.is_known else columns
        known = {path: n for path, n in (names or {}).items() if path.split(".")[0] in all_columns}
        version = registry.add_version(self._directory, columns, reason, known)
        self.columns, self.names, self.is_known = version.columns, version.names, True


def _collision_reasons(namer: ColumnNamer) -> dict[str, str]:
    return {n: f"its column {c} has another field" for n, c in namer.collisions.items()}


def only_adds_fields(before: T.DataType, after: T.DataType) -> bool:
    """Return whether a type differs from another one only by more fields, at any depth."""
    return type_ddl(grow_type(before, after, can_widen=False)) == type_ddl(after)


def collect_sample(rows: DataFrame, column: str, max_bytes: int = _MAX_BYTES) -> list[str]:
    """Return the first strings of a column: at most 10,000, and `max_bytes` in total.

    Longer strings are skipped. Lengths are collected first, then only the strings that fit: a
    `limit` would collect as many rows from each of several partitions before dropping the rest.
    """
    numbered = rows.select(
        F.col(column).alias("text"),
        F.octet_length(column).alias("length"),
        F.monotonically_increasing_id().alias("number"),
    ).where(F.col("length") <= max_bytes)
    sizes = numbered.select("length", "number").limit(_MAX_LINES).collect()
    totals = accumulate(row.length for row in sizes)
    fit = [row.number for row, total in zip(sizes, totals, strict=True) if total <= max_bytes]
    if not fit:
        return []
    chosen = numbered.where(F.col("number") <= fit[-1]).select("text").limit(len(fit))
    return [row.text for row in chosen.collect()]


def source_columns(bronze: StoragePath, origin: Mapping[str, str]) -> dict[str, str]:
    """Return a source's own columns in its table, with types as versions spell them."""
    if not delta_tables.table_exists(bronze):
        return {}
    schema = T.StructType.fromJson(json.loads(delta_tables.open_table(bronze).schema().to_json()))
    dtypes = {field.name: type_ddl(field.dataType) for field in schema}
    return _without(dtypes, bronze_columns({}, origin))


def _without(columns: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    return {name: dtype for name, dtype in columns.items() if name not in others}
