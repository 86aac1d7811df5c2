"""The rules that decide between silver and quarantine, and which of them a query goes on by.

As a document, `{"late": ..., "bronze": {name: SQL}, "silver": {name: SQL}, "rescued": SQL}`, they
are kept beside the checkpoint: a batch that is cut off ends by the rules that it began with. The
SQL of `rescued`, which older documents lack, gives the names of the rules about rescued values that
a row of bronze breaks; it is empty if there are none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.expressions import TEXT
from medallion.config.model import Config, SourceConfig
from medallion.config.values import folded
from medallion.errors import ConfigError
from medallion.ingest.parsing.rescued import rescued_rule_names
from medallion.layers import recovery
from medallion.layers.definition import (
    refuse_changed,
    refuse_changed_row_count,
    refuse_nondeterministic,
)
from medallion.layers.rescued import columns_with_rules, rescue_rules, source_columns
from medallion.layers.silver import keys, transform
from medallion.quality.rules import Rule, load_rules
from medallion.quality.suites import suite_path
from medallion.spark import checkpoints
from medallion.spark.plans import analyzed_plan, expand_functions, node_type, plan_nodes
from medallion.storage.table_specs import quote_identifier
from medallion.storage.text import Reporter, printable

BoundRules = partial[DataFrame]  # of `transform.checked`
# A literal, as date'2018-03-02', and the name of a function, as length(.
_NO_COLUMN = re.compile(rf"\w*?{TEXT}|\b\w+\s*\(")
# Rows that break these never reach the watermark: one time in 2099 would make all later rows late.
WATERMARK_GUARDS = ("missing_event_time", "future_event_time")
# What Spark makes of functions such as to_timestamp, where it does not cast.
_PARSERS = ("GetTimestamp", "ToUnixTimestamp", "UnixTimestamp")
LATE_RULE = "late"  # what late rows have broken, where they are to be set aside


def load_rule_document(config: Config, source: SourceConfig) -> dict[str, Any]:
    """The rules of both tables' suites, and where late rows go, as the document above.

    Raises:
        ConfigError: the suite of the silver table does not guard the watermark, or a rule of either
            has the name of a built-in rule.
    """
    in_bronze = load_rules(config.conf_dir, f"bronze.{source.name}")
    in_silver = load_rules(config.conf_dir, f"silver.{source.name}")
    time = re.compile(rf"\b{source.event_time}\b", re.IGNORECASE)
    guarding = {rule.name for rule in in_silver if time.search(rule.broken)}
    if missing := [guard for guard in WATERMARK_GUARDS if guard not in guarding]:
        raise ConfigError(
            f"{suite_path(config.conf_dir, f'silver.{source.name}')} must have a quarantine "
            f"expectation named {' and one named '.join(missing)} that looks at "
            f"{source.event_time}; without it one wrong time makes every later row late."
        )
    if taken := {LATE_RULE, keys.TIME_DIGITS_RULE} & {
        rule.name for rule in (*in_bronze, *in_silver)
    }:
        raise ConfigError(
            f"{config.expectations}: a quarantine expectation of bronze.{source.name} or "
            f"silver.{source.name} is named {taken.pop()}, which is taken by a built-in rule: give "
            "it another name."
        )
    return {
        "late": source.late,
        "bronze": {rule.name: rule.broken for rule in in_bronze},
        "silver": {rule.name: rule.broken for rule in in_silver},
    }


def with_rescue_rules(
    spark: SparkSession,
    config: Config,
    source: SourceConfig,
    rules: Mapping[str, Any],
    bronze: T.StructType,
) -> dict[str, Any]:
    """Return the document with the rules about values that did not fit their columns.

    Raises:
        ConfigError: a rule of a suite has the name of one of them.
    """
    if source.on_rescued != "quarantine":
        return {**rules, "rescued": ""}
    columns = source_columns(source, bronze)
    fields = rescue_rules(spark, source, columns, rules["bronze"].values())
    for layer in ("bronze", "silver"):
        if taken := [name for name in rules[layer] if name in fields]:
            raise ConfigError(
                f"{suite_path(config.conf_dir, f'{layer}.{source.name}')}: {taken[0]} is the name "
                "of the rule for values that did not fit their column; give the expectation "
                f"another name, or set sources.{source.name}.on_rescued to warn or ignore."
            )
    return {
        **rules,
        "rescued": rescued_rule_names(columns_with_rules(fields, columns), fields)
        if fields
        else "",
    }


def effective_rules(
    config: Config,
    source: SourceConfig,
    now: dict[str, Any],
    recorded: int,
    say: Reporter,
) -> dict[str, Any]:
    """The rules to go on with: those of a run that was cut off, until its batches are on record.

    Some rows of such a batch may be in quarantine already, and its late rows are not in silver
    yet: under other rules a row might go to both tables, or to neither. Where nothing of it was
    written, the new rules hold at once; they may be the correction that the batch needs.
    """
    name, layout = f"silver.{source.name}", config.layout
    checkpoint = layout.checkpoint(name)
    then = checkpoints.noted(checkpoint, "rules")
    targets = map(layout.table, (name, f"quarantine.{source.name}"))
    if then in (None, now) or not recovery.has_unrecorded(checkpoint, targets, recorded):
        return now
    say(
        f"  {name} ends what was cut off by the rules of that run; the new ones count from the next"
    )
    return then


def bind_rules(source: SourceConfig, rules: dict[str, Any]) -> BoundRules:
    """`transform.checked` by these rules, but for those that name a column of a reference."""
    enriched = source.enrich.columns if source.enrich else ()
    in_bronze = [Rule(name, broken) for name, broken in rules["bronze"].items()]
    alone, _ = split_lookup_rules(rules["silver"], enriched)
    return partial(
        transform.apply_rules,
        silver=source.silver,
        bronze_rules=in_bronze,
        silver_rules=alone,
        origin=source.silver_origin,
        rescued=rules.get("rescued", ""),
    )


def refuse_invalid_rules(
    config: Config,
    source: SourceConfig,
    rules: Mapping[str, Any],
    bronze: DataFrame,
    rows: DataFrame,
    whole: DataFrame,
) -> None:
    """Raise ConfigError where a rule cannot be judged of each row by itself, whenever it is read.

    Args:
        rules: the document that `rules_of` makes.
        rows: those of silver, as the rules have checked them.
        whole: the same, with the columns of a reference, if there is one.
    """
    refuse_string_event_time(config, source, bronze, rows)
    told = f"{config.expectations}: a rule of bronze.{source.name} or silver.{source.name}"
    refuse_nondeterministic(told, whole, {layer: rules[layer] for layer in ("bronze", "silver")})
    refuse_changed_row_count(told, rows)
    refuse_implicit_casts(config, source, rules, {"bronze": bronze, "silver": whole})


def refuse_implicit_casts(
    config: Config, source: SourceConfig, rules: Mapping[str, Any], rows: Mapping[str, DataFrame]
) -> None:
    """Raise ConfigError where a rule casts a text to a number, a time or the like.

    The query would stop at a text that is none, and just that row is one to be set aside.

    Args:
        rules: the document that `rules_of` makes.
        rows: what the rules of either layer judge.
    """
    for layer, judged in rows.items():
        broken: Mapping[str, str] = rules[layer]
        found = judged.select(*(F.expr(sql).alias(name) for name, sql in broken.items()))
        conditions = expand_functions(found, analyzed_plan(found)).expressions()
        for at, name in enumerate(broken):
            for node in filter(_may_fail, plan_nodes(conditions.apply(at))):
                raise ConfigError(
                    f"{config.expectations}: the rule {name} of {layer}.{source.name} takes "
                    f"{node.children().head().sql()}, a string, for a "
                    f"{node.dataType().simpleString()}, and could stop the run at a row in which "
                    "it is none: say try_cast (try_to_timestamp, try_to_number) in a query, or "
                    "make it a column of that type."
                )


def _may_fail(node: Any) -> bool:
    """Whether it takes a text, another one in each row, for something that it may not say."""
    kind = node_type(node)
    if kind not in ("Cast", "ToNumber", *_PARSERS):
        return False
    fails = kind not in _PARSERS or node.failOnError()
    if kind == "Cast":
        made = node.dataType().simpleString()
        fails = str(node.evalMode()) == "ANSI" and made not in ("string", "binary")
    text = node.children().head()
    return fails and not text.foldable() and text.dataType().simpleString() == "string"


def split_lookup_rules(
    rules: Mapping[str, str], enriched: Iterable[str]
) -> tuple[list[Rule], list[Rule]]:
    """Silver's rules in two: those that need silver's own columns alone, and those that name a
    column of the reference.

    The second ones are judged as silver is written, after duplicates are taken out: whether a row
    is a duplicate or late does not depend on the reference. The guards are never among them, for
    they have to keep rows away from the watermark.
    """
    found = [Rule(name, broken) for name, broken in rules.items()]
    names = re.compile(rf"\b({'|'.join(enriched) or '(?!)'})\b", re.IGNORECASE)
    later = [
        rule
        for rule in found
        if rule.name not in WATERMARK_GUARDS and names.search(_NO_COLUMN.sub(" ", rule.broken))
    ]
    return [rule for rule in found if rule not in later], later


def definition_of(source: SourceConfig) -> dict[str, Any]:
    """The keys, event time and expressions that a table of silver is made by: others are refused
    until `medallion refresh`. The types of its columns are in the table itself."""
    found: dict[str, Any] = {"event_time": source.event_time, "keys": list(source.keys)}
    found |= {f"{column} as": sql for column, sql in source.silver.items()}
    return {**found, "enrich.on": source.enrich.on} if source.enrich else found


def refuse_changed_definition(
    config: Config,
    source: SourceConfig,
    then: Mapping[str, Any],
    columns: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {}),
) -> None:
    """Raise ConfigError where a table was made by another definition than the configuration's.

    Args:
        columns: those of the table with their types, and those that it would get now; without them
            columns that are new are not looked for.
    """
    now = {key: it for key, it in definition_of(source).items() if key in then}
    there, made = ({f"column {name}": kind for name, kind in some.items()} for some in columns)
    refuse_changed(config, f"silver.{source.name}", {**then, **there}, {**now, **made})


_COLUMN = re.compile(r"`?([^\W\d]\w*)`?")
_MOST_SHOWN = 60  # characters of a value


def refuse_string_event_time(
    config: Config, source: SourceConfig, bronze: DataFrame, rows: DataFrame
) -> None:
    """Raise ConfigError if the event time is a string.

    Args:
        config: the configuration.
        source: the source.
        bronze: the columns of its bronze table.
        rows: the columns of silver.
    """
    time = source.event_time
    if not isinstance(rows.schema[time].dataType, T.StringType):
        return
    table = f"silver.{source.name}"
    column = _COLUMN.fullmatch(source.silver[time].strip())
    name = _bronze_column(column[1], bronze) if column else None
    if name is None:
        raise ConfigError(
            f"The event time {time} of {table} is a string: make it a timestamp in "
            f"sources.{source.name}.silver.{time}, with try_to_timestamp."
        )
    raise ConfigError(
        f"The event time {time} of {table} is a string, because the column {name} of "
        f"bronze.{source.name} is one{_example(config, source, name, rows)}. Set hints: "
        f"{{{name}: timestamp}} for the source, and run medallion refresh bronze.{source.name}."
    )


def _bronze_column(name: str, bronze: DataFrame) -> str | None:
    return next((column for column in bronze.columns if folded(column) == folded(name)), None)


def _example(config: Config, source: SourceConfig, name: str, rows: DataFrame) -> str:
    """Return a value of the column that is no time, if there is one, as part of a sentence."""
    path = str(config.layout.table(f"bronze.{source.name}"))
    table = rows.sparkSession.read.format("delta").load(path)
    value = F.col(quote_identifier(name))
    odd = table.where(value.isNotNull() & F.try_to_timestamp(value).isNull())
    row = odd.select(F.left(value, F.lit(_MOST_SHOWN)).alias("value")).first()
    text = printable(json.dumps(row.value, ensure_ascii=False)) if row else ""
    return f", with values such as {text}" if row else ""
