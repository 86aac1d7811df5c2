"""Names of fields in files and messages, and names of the columns that hold them.

Delta refuses some characters in names, and others need quotes everywhere: `_` replaces both in
column names. The original names are kept by path: `{"customer_email": "customer email"}`, and for a
field within a struct, or within the items of an array, `{"at.zip_code": "zip code"}`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import types as T

from medallion.config.values import fold_case
from medallion.spark.plans import type_ddl
from medallion.storage.table_specs import column_name


def field_types(columns: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Return the types of columns by original field name, at every depth, in column order.

    Args:
        columns: names with Spark types.
        names: the original names by path.
    """
    if not names:
        return dict(columns)
    fields = {}
    for column, dtype in columns.items():
        if "struct<" in dtype:
            dtype = type_ddl(with_field_names(T.DataType.fromDDL(dtype), names, column))
        fields[names.get(column, column)] = dtype
    return fields


def with_fields(
    dtype: T.DataType, path: str, changed: Callable[[str, T.StructField], T.StructField]
) -> T.DataType:
    """Return a type whose fields, at every depth, are changed.

    Args:
        dtype: the type.
        path: its path; empty for a table.
        changed: returns the new field, given the path of a field.
    """
    match dtype:
        case T.StructType():
            fields = []
            for each in dtype:
                inner = f"{path}.{each.name}" if path else each.name
                inner_type = with_fields(each.dataType, inner, changed)
                fields.append(changed(inner, T.StructField(each.name, inner_type)))
            return T.StructType(fields)
        case T.ArrayType():
            return T.ArrayType(with_fields(dtype.elementType, path, changed))
        case T.MapType():
            return T.MapType(dtype.keyType, with_fields(dtype.valueType, path, changed))
    return dtype


def with_field_names(dtype: T.DataType, names: Mapping[str, str], path: str) -> T.DataType:
    """Return a type with the original names of its fields.

    Args:
        dtype: the type of a column, or of a field within one.
        names: the original names by path.
        path: the path of the type.
    """
    return with_fields(
        dtype, path, lambda at, each: T.StructField(names.get(at, each.name), each.dataType)
    )


def with_comments(table: T.DataType, names: Mapping[str, str]) -> T.DataType:
    """Return a table's type whose fields have their original name as comment, if it differs."""

    def with_comment(path: str, each: T.StructField) -> T.StructField:
        comment = {"comment": names[path]} if path in names else {}
        return T.StructField(each.name, each.dataType, metadata=comment)

    return with_fields(table, "", with_comment)


def field_path(path: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Return the original field names for a path of column names."""
    return [names.get(".".join(path[: i + 1]), name) for i, name in enumerate(path)]


def column_path(path: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Return the column names for a path of original field names."""
    columns: list[str] = []
    for name in path:
        column = ".".join([*columns, column_name(name)])
        columns.append(column_name(name) if names.get(column) == name else name)
    return columns


def rename_fields(value: str, dtype: str, wanted: str) -> str:
    """Return SQL for a nested value with the field names of another type.

    Args:
        value: SQL of the value.
        dtype: its type.
        wanted: the same type with other names.
    """
    is_renamed = dtype != wanted and "struct<" in wanted
    return f"cast({value} as {wanted})" if is_renamed else value


@dataclass
class ColumnNamer:
    """The assignment of column names to fields.

    Attributes:
        names: the original names by path; `columns` adds to them.
        unnamed: declared columns whose original name is not known: each gets the first field whose
            column name matches.
        collisions: paths of fields that get no column, with the path of the column that another
            field has.
    """

    names: dict[str, str] = field(default_factory=dict)
    unnamed: Iterable[str] = ()
    collisions: dict[str, str] = field(default_factory=dict)

    def columns(self, fields: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
        """Return the columns of top-level fields; fields with a name collision are left out.

        Args:
            fields: original names with Spark types.
            known: the existing columns with their types; they keep their fields.
        """
        columns = self._columns_of(list(fields), list(known), "")
        return {
            column: self._rename_in_ddl(fields[name], known.get(column), column)
            for name in fields
            if (column := columns.get(name))
        }

    def _rename_in_ddl(self, ddl: str, known: str | None, path: str) -> str:
        if "struct<" not in ddl:
            return ddl
        before = T.DataType.fromDDL(known) if known else None
        return type_ddl(self._rename_in_type(T.DataType.fromDDL(ddl), before, path))

    def _rename_in_struct(
        self, fields: T.StructType, known: T.DataType | None, path: str
    ) -> T.StructType:
        before = {f.name: f.dataType for f in known} if isinstance(known, T.StructType) else {}
        columns = self._columns_of(fields.names, list(before), path)
        renamed_fields = []
        for each in fields:
            if column := columns.get(each.name):
                inner = self._rename_in_type(each.dataType, before.get(column), f"{path}{column}")
                renamed_fields.append(T.StructField(column, inner))
        return T.StructType(renamed_fields)

    def _rename_in_type(self, dtype: T.DataType, known: T.DataType | None, path: str) -> T.DataType:
        match dtype:
            case T.StructType():
                return self._rename_in_struct(dtype, known, f"{path}.")
            case T.ArrayType():
                item = known.elementType if isinstance(known, T.ArrayType) else None
                return T.ArrayType(self._rename_in_type(dtype.elementType, item, path))
            case T.MapType():
                value = known.valueType if isinstance(known, T.MapType) else None
                return T.MapType(dtype.keyType, self._rename_in_type(dtype.valueType, value, path))
        return dtype

    def _columns_of(self, names: list[str], known: list[str], path: str) -> dict[str, str]:
        """Return the column of each field of one struct; names that need no change come first."""
        owners = {fold_case(self.names.get(path + each, each)): each for each in known}
        used = {fold_case(each): each for each in known}
        unnamed = {fold_case(each) for each in self.unnamed} if not path else set()
        columns = {}
        for name in sorted(names, key=lambda name: column_name(name) != name):
            column = column_name(name)
            if owner := owners.get(fold_case(name)):
                columns[name] = owner
                unnamed.discard(fold_case(owner))
            elif fold_case(column) not in used:
                columns[name] = used[fold_case(column)] = column
                if column != name:
                    self.names[path + column] = name
            elif fold_case(column) in unnamed and column != name:
                unnamed.discard(fold_case(column))
                columns[name] = used[fold_case(column)]
                self.names[path + used[fold_case(column)]] = name
            else:
                self.collisions[path + name] = path + used[fold_case(column)]
        return columns
