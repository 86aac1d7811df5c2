"""Spark's analyzed plans and parsed expressions as trees, and types of columns."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from medallion.storage.table_specs import quote_identifier


def analyzed_plan(rows: DataFrame) -> Any:
    """Return Spark's plan of a DataFrame, with names resolved, before it is optimized."""
    return rows._jdf.queryExecution().analyzed()


def catalyst_class(rows: DataFrame, name: str) -> Any:
    """Return a class of Catalyst by its full name.

    Py4J would otherwise search each package on the way to it in all of Spark's jars.
    """
    return getattr(rows.sparkSession._jvm, f"org.apache.spark.sql.catalyst.{name}")


def items(sequence: Any) -> Iterator[Any]:
    """Yield the items of a sequence of Scala."""
    return (sequence.apply(index) for index in range(sequence.size()))


def plan_nodes(tree: Any) -> Iterator[Any]:
    """Yield a plan or an expression, and all its descendants."""
    yield tree
    for child in items(tree.children()):
        yield from plan_nodes(child)


def plan_expressions(plan: Any) -> Iterator[Any]:
    """Yield all expressions of a plan, and all their descendants."""
    for node in plan_nodes(plan):
        for expression in items(node.expressions()):
            yield from plan_nodes(expression)


def node_type(node: Any) -> str:
    """Return the class name of a node."""
    return str(node.getClass().getSimpleName())


def fields_in(spark: SparkSession, expressions: Iterable[str]) -> set[tuple[str, ...]]:
    """Return the fields that SQL expressions name, whether a table has them or not.

    Args:
        spark: the session whose parser reads the expressions.
        expressions: SQL over the columns of one table.

    Returns:
        The parts of each dotted name: `user.plan` gives `("user", "plan")`. A name ends
        at an index: `items[0].sku` gives `("items",)`. Variables of lambdas are left out.

    Raises:
        ParseException: one of them is not an expression.
    """
    nodes = (node for sql in expressions for node in _fields_of(spark, sql))
    return {_name_parts(node) for node in nodes}


def column_path(spark: SparkSession, sql: str) -> tuple[str, ...] | None:
    """Return the parts of the dotted name that a SQL expression is; None if it is anything else.

    Raises:
        ParseException: it is not an expression.
    """
    node = spark._jsparkSession.sessionState().sqlParser().parseExpression(sql)
    return _name_parts(node) if node_type(node) == "UnresolvedAttribute" else None


def converted_value(spark: SparkSession, sql: str, is_cast: bool = False) -> str | None:
    """Return SQL of the value that a SQL expression converts, as a string; null if it is blank.

    A conversion is a cast or a function such as `try_to_date`, of a field or of any SQL over
    fields; or the first of several conversions that succeeds (`coalesce`). Functions that only
    change the string, such as `trim`, are looked through: the value is that of the field.

    Args:
        spark: the session whose parser reads the expression.
        sql: the expression.
        is_cast: whether the value of the expression is cast.

    Returns:
        None if the expression is no conversion, or one that fails rather than returns null.

    Raises:
        ParseException: it is not an expression.
    """
    tree = spark._jsparkSession.sessionState().sqlParser().parseExpression(sql)
    if not (is_cast or _can_lose(tree)):
        return None
    return _string_value(tree, sql) or None


def _can_lose(node: Any) -> bool:
    """Return whether a parsed expression is a conversion whose result may be null."""
    if node_type(node) == "Cast" and str(node.evalMode()) == "TRY":
        return True
    name = _function_name(node) or ""
    is_through = node_type(node) == "Cast" or name in _FIRST_OF or name in _STRING_FUNCTIONS
    return bool(_CONVERSION.fullmatch(name)) or (
        is_through and any(map(_can_lose, items(node.children())))
    )


def _string_value(node: Any, sql: str) -> str:
    """Return SQL of the string that a parsed conversion reads; empty if it reads no field."""
    children, name = [*items(node.children())], _function_name(node) or ""
    if name in _FIRST_OF:
        values = [*filter(None, (_string_value(child, sql) for child in children))]
        return f"coalesce({', '.join(values)})" if values else ""
    if node_type(node) == "Cast" or name in _STRING_FUNCTIONS or _CONVERSION.fullmatch(name):
        return _string_value(children[0], sql)
    if not any(_field_nodes(node)):
        return ""
    start, end = (get().get() for get in (node.origin().startIndex, node.origin().stopIndex))
    return f"nullif(trim(try_cast({sql[start : end + 1]} as string)), '')"


_CONVERSION = re.compile(
    r"(try_)?(to_(timestamp|date|time|number|binary)\w*|parse_json)|timestamp_\w+"
)
_FIRST_OF = ("coalesce", "nvl", "ifnull")
_STRING_FUNCTIONS = (
    *("trim", "ltrim", "rtrim", "btrim", "lower", "upper", "translate", "replace", "overlay"),
    *("regexp_replace", "regexp_extract", "regexp_substr", "substr", "substring", "split_part"),
)


def replace_columns(spark: SparkSession, sql: str, values: Mapping[str, str]) -> str:
    """Return a SQL expression with expressions in place of some columns.

    Args:
        spark: the session whose parser reads the expression, and so finds all columns.
        sql: the expression.
        values: the expressions by the lower-case name of the column.

    Raises:
        ParseException: it is not an expression.
    """
    result, end = "", 0
    spans = sorted(
        (origin.startIndex().get(), value)
        for node in _fields_of(spark, sql)
        if (value := values.get(_name_parts(node)[0].lower())) and (origin := node.origin())
    )
    for start, value in spans:
        column = _FIRST_PART.match(sql, start)
        if column and start >= end:
            result += f"{sql[end:start]}({value})"
            end = column.end()
    return result + sql[end:]


_FIRST_PART = re.compile(r"`(?:[^`]|``)*`|\w+")  # of a dotted name


def _fields_of(spark: SparkSession, sql: str) -> Iterator[Any]:
    """Yield the nodes of the fields that a SQL expression names."""
    yield from _field_nodes(spark._jsparkSession.sessionState().sqlParser().parseExpression(sql))


def _field_nodes(node: Any, variables: frozenset[str] = frozenset()) -> Iterator[Any]:
    """Yield the fields within a parsed expression, without the variables of enclosing lambdas."""
    if node_type(node) == "LambdaFunction":
        variables |= {_name_parts(argument)[0] for argument in items(node.arguments())}
    # Within a lambda the parser takes each name for a variable.
    is_field = node_type(node) in ("UnresolvedAttribute", "UnresolvedNamedLambdaVariable")
    if is_field and _name_parts(node)[0] not in variables:
        yield node
    for child in items(node.children()):
        yield from _field_nodes(child, variables)


def _function_name(node: Any) -> str | None:
    """Return the name of a function, or the type of a cast; None for other nodes."""
    if node_type(node) == "Cast":
        return str(node.dataType().simpleString())
    return _name_parts(node)[-1].lower() if node_type(node) == "UnresolvedFunction" else None


def _name_parts(node: Any) -> tuple[str, ...]:
    return tuple(items(node.nameParts()))


# The configuration's type for each of Spark's, wide enough for it. Other types have none.
CONFIG_TYPES = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "long"),
    **dict.fromkeys(("float", "double"), "double"),
    **{name: name for name in ("string", "boolean", "date", "timestamp")},
}


def contains_type(data_type: DataType, *wanted: type[DataType]) -> bool:
    """Return whether a type is one of some types, or contains one."""
    return isinstance(data_type, wanted) or any(
        contains_type(inner, *wanted) for inner in inner_types(data_type)
    )


def is_comparable(data_type: DataType) -> bool:
    """Return whether Spark can compare and order values of a type."""
    return not contains_type(data_type, MapType, VariantType)


def inner_types(data_type: DataType) -> list[DataType]:
    """Return the types directly within a type."""
    match data_type:
        case StructType():
            return [field.dataType for field in data_type]
        case ArrayType():
            return [data_type.elementType]
        case MapType():
            return [data_type.keyType, data_type.valueType]
    return []


def type_ddl(data_type: DataType) -> str:
    """Return a type in Spark's SQL, names quoted if necessary."""
    match data_type:
        case StructType():
            fields = (f"{_quoted(field.name)}:{type_ddl(field.dataType)}" for field in data_type)
            return f"struct<{','.join(fields)}>"
        case ArrayType():
            return f"array<{type_ddl(data_type.elementType)}>"
        case MapType():
            return f"map<{type_ddl(data_type.keyType)},{type_ddl(data_type.valueType)}>"
    return data_type.simpleString().replace("bigint", "long")


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else quote_identifier(name)
