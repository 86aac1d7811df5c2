"""The rules that send a row to silver or quarantine, and the definition of a silver table.

The rules are a document, `{"late": ..., "bronze": {name: SQL}, "silver": {name: SQL}, "rescued":
SQL, "deletes": [name], "reads": {column: [name]}}`, kept beside the checkpoint: an interrupted
batch is completed with the rules that it started with. `rescued` is SQL over a bronze row that
returns the names of the rules for rescued values that it breaks; it is empty if there are no such
rules. If the source has change records, `deletes` has the rules that hold for deletes, and `reads`
those that read a column, which do not hold if it is unavailable. Older documents lack them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.expressions import column_names
from medallion.config.model import Config, SourceConfig
from medallion.config.tables import DEBEZIUM_CDC
from medallion.errors import ConfigError
from medallion.ingest.parsing.rescued import rescued_rule_names
from medallion.layers import recovery
from medallion.layers.definition import DefinitionPart
from medallion.layers.flow import Flow
from medallion.layers.rescued import FieldPath, rescue_rules, source_columns
from medallion.layers.silver import conversions, keys, transform
from medallion.layers.silver.envelope import Envelope, unwrapped
from medallion.quality.rules import Rule, load_rules
from medallion.quality.suites import suite_path
from medallion.spark import checkpoints, delta
from medallion.spark.plans import fields_in
from medallion.storage import delta_tables
from medallion.storage.table_specs import (
    CORRUPT,
    DELETE_RULE,
    INGESTED_AT,
    IS_DELETE,
    IS_TRUNCATE,
    MESSAGE_RULES,
    SEQUENCE,
    UNAVAILABLE,
    quote_identifier,
    string_literal,
)
from medallion.storage.text import printable

BoundRules = partial[DataFrame]  # of `transform.apply_rules`
WATERMARK_GUARDS = ("missing_event_time", "future_event_time")
PAST_RULE = "past_event_time"
CHANGE_GUARDS = (keys.NULL_KEY_RULE, "null_sequence")
LATE_RULE = "late"  # the rule that late rows break with `late: quarantine`
NO_RULES: Mapping[str, Any] = {"bronze": {}, "silver": {}}
_CHANGE_KEYS = {
    SEQUENCE: "cdc.sequence_by",
    IS_DELETE: "cdc.apply_as_deletes",
    IS_TRUNCATE: "cdc.apply_as_truncates",
}
_EXAMPLE_LENGTH = 60  # characters
_CHECKED_TIMES = 1000
# Spark takes the current date for a time without one.
_IS_TIME = r"try_cast(value as timestamp) is not null and value rlike r'^\s*[0-9]{4}'"


def load_rule_document(config: Config, source: SourceConfig) -> dict[str, Any]:
    """Return the document of rules: the built-in ones, those of both suites, and `late`.

    A rule of a suite replaces the built-in rule of the same name.

    Raises:
        ConfigError: a rule has the name of a built-in rule that cannot be replaced.
    """
    rules: dict[str, Any] = {"late": source.late, **built_in_rules(source)}
    names = set[str]()
    for layer in ("bronze", "silver"):
        own = load_rules(config.conf_dir, f"{layer}.{source.name}")
        rules[layer] |= {rule.name: rule.broken for rule in own}
        names |= {rule.name for rule in own}
    guards = CHANGE_GUARDS if source.cdc else ()
    if reserved := names & {LATE_RULE, DELETE_RULE, *guards}:
        raise ConfigError(
            f"{config.expectations}: a quarantine expectation of bronze.{source.name} or "
            f"silver.{source.name} has the name of the built-in rule {reserved.pop()}. Rename it."
        )
    return rules


def built_in_rules(source: SourceConfig) -> dict[str, dict[str, str]]:
    """Return the rules that need no suite, by layer: for malformed lines and for event times.

    A single time in the far future would move the watermark past all later rows. Change records
    have no watermark; each needs its key and a sequence.
    """
    malformed = {"malformed_line": f"{CORRUPT} IS NOT NULL"}
    if source.is_debezium:  # a message without a value follows each delete
        malformed = {
            "tombstone": f"coalesce({CORRUPT} = 'null', false)",
            "malformed_line": f"coalesce({CORRUPT} <> 'null', false)",
        }
    if source.cdc:
        no_key, no_sequence = CHANGE_GUARDS
        change = {no_key: transform.has_null_key(source.keys), no_sequence: f"{SEQUENCE} IS NULL"}
        return {"bronze": malformed, "silver": change}
    time = quote_identifier(source.event_time)
    latest = f"{INGESTED_AT} + INTERVAL '{source.max_future.seconds}' SECOND"
    missing, future = WATERMARK_GUARDS
    rules = {missing: f"{time} IS NULL", future: f"coalesce({time} > {latest}, false)"}
    if source.max_past:
        earliest = f"{INGESTED_AT} - INTERVAL '{source.max_past.seconds}' SECOND"
        rules[PAST_RULE] = f"coalesce({time} < {earliest}, false)"
    return {"bronze": malformed, "silver": rules}


def with_rescue_rules(
    spark: SparkSession,
    source: SourceConfig,
    rules: Mapping[str, Any],
    bronze: T.StructType,
    names: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the document with the rules for values that did not fit their columns.

    Args:
        rules: the document; its rules replace those of the same name.
        bronze: the schema of its bronze table.
        names: the original names of its fields (`ingest.parsing.names`).
    """
    rescued, columns, fields = "", source_columns(source, bronze), dict[str, FieldPath]()
    if source.on_rescued == "quarantine":
        fields = rescue_rules(spark, source, columns, rules["bronze"].values())
        own = {*rules["bronze"], *rules["silver"]}
        fields = {name: path for name, path in fields.items() if name not in own}
        rescued = rescued_rule_names(columns, fields, names) if fields else ""
    document = {**rules, "rescued": rescued}
    if source.on_conversion == "quarantine":
        lost = conversions.lost_values(spark, source, source.silver, source.event_time)
        rules = {**rules, "bronze": conversions.conversion_rules(lost) | rules["bronze"]}
        document |= rules
    if source.is_debezium:
        document["bronze"] = Envelope.of(bronze).message_rules() | rules["bronze"]
    if source.cdc:
        document["deletes"] = _delete_rules(spark, source, rules, columns)
        document["reads"] = _rules_by_column(spark, source, rules)
    return document


def _rules_by_column(
    spark: SparkSession, source: SourceConfig, rules: Mapping[str, Any]
) -> dict[str, list[str]]:
    """Return the rules of silver that read each column that may be unavailable."""
    if UNAVAILABLE not in source.change_columns:
        return {}
    names = {rule: fields_in(spark, [sql]) for rule, sql in rules["silver"].items()}
    read = {rule: {name[0].lower() for name in each} for rule, each in names.items()}
    own = {column for column in source.silver if column not in source.keys}
    by_column = {c: sorted(rule for rule in read if c.lower() in read[rule]) for c in own}
    return {column: found for column, found in sorted(by_column.items()) if found}


def _delete_rules(
    spark: SparkSession,
    source: SourceConfig,
    rules: Mapping[str, Any],
    columns: Mapping[str, T.DataType],
) -> list[str]:
    """Return the names of the rules that a delete can break: those about its key and sequence.

    Other values are absent from most deletes, and nothing reads them.

    Args:
        spark: the session that parses the rules.
        source: the source, with change records.
        rules: the document.
        columns: the source's own columns of bronze, with their types.
    """
    assert source.cdc, f"{source.name} has no change records"
    names = {*built_in_rules(source)["bronze"], *CHANGE_GUARDS}
    sequence = source.cdc.sequence_by.replace(f"{transform.BRONZE}.", "")
    read = {key: source.silver[key] for key in source.keys} | {SEQUENCE: sequence}
    names |= rescue_rules(spark, replace(source, silver=read, cdc=None), columns).keys()
    for layer, known in (("bronze", fields_in(spark, read.values())), ("silver", set(zip(read)))):
        known = {_folded(name) for name in known}
        read_by = {name: fields_in(spark, [sql]) for name, sql in rules[layer].items()}
        names |= {n for n, fields in read_by.items() if known.issuperset(map(_folded, fields))}
    return sorted(names)


def _folded(name: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(str.lower, name))


def bind_rules(
    source: SourceConfig, rules: Mapping[str, Any], derived: Mapping[str, str] | None = None
) -> BoundRules:
    """Return `transform.apply_rules` with these rules, except those about lookup columns.

    Args:
        rules: the document.
        derived: the technical columns of change records; None for all.
    """
    lookup_columns = source.lookup.columns if source.lookup else ()
    own, _ = split_lookup_rules(rules["silver"], lookup_columns)
    return partial(
        transform.apply_rules,
        silver=source.silver,
        event_time=source.event_time,
        bronze_rules=[Rule(name, broken) for name, broken in rules["bronze"].items()],
        silver_rules=own,
        origin=source.silver_origin_columns,
        rescued=rules.get("rescued", ""),
        derived=_change_columns(source) if derived is None else derived,
        broken=_broken_by_changes(source, rules),
    )


def with_quarantined(log: DataFrame, config: Config, source: SourceConfig) -> DataFrame:
    """Return a complete log; of snapshots, with the rows in quarantine, whose `_is_delete` is null.

    Of these it has the key, the sequence and the origin, unless one is null.
    """
    names = f"bronze.{source.name}", f"quarantine.{source.name}"
    bronze, quarantine = map(config.layout.table, names)
    if not (source.cdc and source.cdc.snapshot and delta_tables.row_count(quarantine)):
        return log
    known, rows = (delta.read_table(log.sparkSession, path) for path in (bronze, quarantine))
    rows = transform.with_bronze_columns(rows, known)
    checked = bind_rules(unwrapped(source, known), NO_RULES)(rows)
    columns = *source.keys, *source.silver_origin_columns, INGESTED_AT, SEQUENCE
    return log.unionByName(checked.select(*columns).dropna(), allowMissingColumns=True)


def _change_columns(source: SourceConfig) -> Mapping[str, str]:
    """Return SQL of the technical columns of change records; empty for other rows."""
    return source.cdc.derived if source.cdc else {}


def _broken_by_changes(source: SourceConfig, rules: Mapping[str, Any]) -> str:
    """Return SQL of the rules that a change breaks, of `_failed`; empty if all of them count."""
    if "deletes" not in rules:
        return ""
    cases = ""
    if source.is_debezium:  # a message has no key either
        is_message = f"arrays_overlap({transform.FAILED}, {_names(MESSAGE_RULES)})"
        cases += f"when {is_message} then {_only(MESSAGE_RULES)} "
    if IS_TRUNCATE in source.change_columns:
        names = {*built_in_rules(source)["bronze"], CHANGE_GUARDS[1]}
        cases += f"when {IS_TRUNCATE} then {_of_delete(sorted(names))} "
    cases += f"when {IS_DELETE} then {_of_delete(rules['deletes'])} "
    others = transform.FAILED
    if reads := rules.get("reads"):
        entries = (f"{string_literal(column)}, {_names(each)}" for column, each in reads.items())
        of_column = f"coalesce(element_at(map({', '.join(entries)}), c), array())"
        unknown = f"flatten(transform(coalesce({UNAVAILABLE}, array()), c -> {of_column}))"
        others = f"array_except({transform.FAILED}, {unknown})"
    return f"case {cases}else {others} end"


def _of_delete(names: Iterable[str]) -> str:
    """Return SQL of the rules that a delete breaks; DELETE_RULE is one if there are others."""
    held = _only(names)
    return f"if(size({held}) > 0, array_append({held}, '{DELETE_RULE}'), {held})"


def _only(names: Iterable[str]) -> str:
    return f"filter({transform.FAILED}, r -> array_contains({_names(names)}, r))"


def _names(names: Iterable[str]) -> str:
    return f"cast(array({', '.join(map(string_literal, names))}) as array<string>)"


def split_lookup_rules(
    rules: Mapping[str, str], lookup_columns: Iterable[str]
) -> tuple[list[Rule], list[Rule]]:
    """Split silver's rules into those about its own columns, and those that name a lookup column.

    The latter are applied after deduplication, when silver is written: the lookup table must not
    decide if a row is a duplicate or late. They never include the watermark guards, which must run
    before the watermark. A rule that sqlglot cannot parse may name any column.
    """
    looked_up = {column.lower() for column in lookup_columns}
    own, about_lookup = list[Rule](), list[Rule]()
    for name, broken in rules.items():
        names = column_names(broken) if looked_up and name not in WATERMARK_GUARDS else []
        is_own = names is not None and looked_up.isdisjoint(map(str.lower, names))
        (own if is_own else about_lookup).append(Rule(name, broken))
    return own, about_lookup


def effective_rules(
    flow: Flow, now: dict[str, Any], recorded: int
) -> tuple[dict[str, Any], int | None]:
    """Return the rules for the next batches: the old rules while an old batch is unrecorded.

    Some rows of such a batch may be in quarantine already, and its late rows may not be in silver
    yet: with other rules a row could go to both tables, or to neither. If it has written nothing,
    the new rules apply at once; they may be the correction that the batch needs.

    Args:
        flow: the flow of the query.
        now: the document of the rules as they are configured.
        recorded: the last recorded batch.

    Returns:
        The rules, and the last batch that they are for, if they are the old ones.
    """
    then = checkpoints.read_document(flow.checkpoint, "rules")
    if then in (None, now) or not recovery.has_unrecorded(
        flow.checkpoint, flow.target_paths, recorded
    ):
        return now, None
    flow.say(f"  {flow.name} completes an interrupted batch with its old rules")
    is_begun = recovery.has_started_writing(flow.checkpoint, flow.target_paths)
    last = checkpoints.last_planned if is_begun else checkpoints.last_committed
    return then, last(flow.checkpoint)


def sql_parts(
    config: Config,
    source: SourceConfig,
    bronze: DataFrame,
    rules: Mapping[str, Any],
    join: Callable[[DataFrame], DataFrame] | None = None,
) -> Iterator[DefinitionPart]:
    """Yield each column and each rule of a silver table by itself.

    Args:
        bronze: rows of bronze.
        rules: the document.
        join: joins the lookup table, if the source has one.
    """
    name, file = source.name, config.pipeline_file
    for column, sql in source.silver.items():
        key = f"sources.{name}.silver.{column}"
        title, rows = f"silver.{name}.{column}", partial(bronze.selectExpr, sql)
        yield DefinitionPart(title, file, rows, key)
    columns = _change_columns(source)
    for column in filter(columns.__contains__, _CHANGE_KEYS):  # other SQL is not the user's
        key = f"sources.{name}.{_CHANGE_KEYS[column]}"
        rows = partial(bind_rules(source, NO_RULES, {column: columns[column]}), bronze)
        yield DefinitionPart(key, file, rows, key)
    silver = bind_rules(source, NO_RULES)(bronze)
    for layer, rows_of_layer in (("bronze", bronze), ("silver", join(silver) if join else silver)):
        yield from rule_parts(config, f"{layer}.{name}", rows_of_layer, rules[layer])


def rule_parts(
    config: Config, table: str, rows: DataFrame, conditions: Mapping[str, str]
) -> Iterator[DefinitionPart]:
    """Yield each rule of a table by itself.

    Args:
        table: the table with the suite, as `silver.orders`.
        rows: the rows that the rules test.
        conditions: the SQL of the rules by name.
    """
    suite = suite_path(config.conf_dir, table)
    for rule, broken in conditions.items():
        title = f"the rule {rule} of {table}"
        yield DefinitionPart(title, suite, partial(rows.selectExpr, broken))


def refuse_unusable_event_time(config: Config, source: SourceConfig, bronze: DataFrame) -> None:
    """Raise ConfigError if the event time is neither a time nor a string that Spark casts to one.

    Args:
        bronze: the columns of its bronze table.
    """
    if not source.event_time:
        return
    sql, table = source.silver[source.event_time], f"bronze.{source.name}"
    time, example = F.expr(sql).alias("value"), None
    type_ = bronze.select(time).schema["value"].dataType
    if isinstance(type_, (T.TimestampType, T.TimestampNTZType, T.DateType)):
        return
    if isinstance(type_, T.StringType):
        rows = delta.read_table(bronze.sparkSession, config.layout.table(table))
        values = rows.select(time).where("value is not null").limit(_CHECKED_TIMES)
        has_times, example = values.agg(
            F.bool_or(F.expr(_IS_TIME)),
            F.first(F.left("value", F.lit(_EXAMPLE_LENGTH))),
        ).collect()[0]
        if has_times is not False:  # null: there is no value yet
            return
    sample = f" such as {printable(json.dumps(example, ensure_ascii=False))}" if example else ""
    name = source.event_time
    raise ConfigError(
        f"The event time {name} of silver.{source.name} is {type_.simpleString()}{sample}. Convert "
        f"it to a timestamp in sources.{source.name}.silver.{name}, with a function such as "
        "try_to_timestamp or timestamp_millis; or set hints for its field, such as "
        "timestamp_millis or timestamp 'dd.MM.yyyy HH:mm', and run medallion refresh "
        f"{table}."
    )


def silver_definition(source: SourceConfig) -> dict[str, Any]:
    """Return the keys, event time and expressions that define a silver table.

    A changed definition is refused until `medallion refresh`. The table itself has the types.
    """
    definition: dict[str, Any] = {"event_time": source.event_time, "keys": list(source.keys)}
    definition |= {f"{column} as": sql for column, sql in source.silver.items()}
    if cdc := source.cdc:
        changes = {"sequence_by": cdc.sequence_by, "apply_as_deletes": cdc.apply_as_deletes}
        # A table of an older version has neither.
        for key in ("apply_as_truncates", "unavailable_value"):
            value, default = getattr(cdc, key), DEBEZIUM_CDC[key] if source.is_debezium else None
            changes |= {key: value} if value != default else {}
        definition |= {f"cdc.{key}": sql for key, sql in changes.items()}
    return {**definition, "enrich.on": source.lookup.on} if source.lookup else definition
