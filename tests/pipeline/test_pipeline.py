"""What a pipeline makes of triggers, limits and expressions, without a whole run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JError

from medallion.config.values import Duration
from medallion.errors import ConfigError, UsageError
from medallion.pipeline import context, refresh
from medallion.pipeline.continuous import Stream
from medallion.spark.errors import StreamError, one_line
from medallion.spark.query import Run, moment, trigger
from tests.support.lakehouse import Lakehouse
from tests.support.lines import event


def test_triggers() -> None:
    assert trigger("available-now") == {"availableNow": True}
    assert trigger("4 seconds") == {"processingTime": "4 seconds"}
    with pytest.raises(UsageError, match="'soon' is neither available-now nor an interval"):
        trigger("soon")


def test_an_exception_in_one_line() -> None:
    text = (
        "[FAILED] the job stopped.\n\tat a.b.c\nCaused by: java.io.IOException: disk full\n\tat d"
    )
    assert one_line(text) == "[FAILED] the job stopped. (java.io.IOException: disk full)"
    assert one_line("one thing") == "one thing"
    # What is raised inside of a batch comes with Python's own trace around it.
    text = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "utils.py", line 163, in call
    self.func(batch, batch_id)
pyspark.errors.exceptions.captured.NumberFormatException: [CAST_INVALID_INPUT] The value 'p' of it.
== SQL (line 1, position 1) ==
cast(id as int)


=== Streaming Query ==="""  # noqa: E501
    assert one_line(text) == "[CAST_INVALID_INPUT] The value 'p' of it."


def test_a_watermark_that_is_not_set_is_none() -> None:
    assert moment("1970-01-01T00:00:00.000Z") is None
    assert moment("1970-01-02T00:00:00.000Z") == 86_400_000_000


class Progress:
    """A record of Spark: of a batch, or of an idle trigger, which has the next batch's number."""

    def __init__(self, batch: int, ran: bool = True) -> None:
        self.record = {
            "batchId": batch,
            "numInputRows": 7,
            "durationMs": {"addBatch": 5} if ran else {},
        }
        self.json = json.dumps(self.record)

    def __getitem__(self, key: str) -> Any:
        return self.record[key]


class Query:
    """A query of Spark, as far as its records go; fetching all of them is counted."""

    def __init__(self) -> None:
        self.records: list[Progress] = []
        self.fetched = 0

    @property
    def lastProgress(self) -> Progress | None:
        return self.records[-1] if self.records else None

    @property
    def recentProgress(self) -> list[Progress]:
        self.fetched += 1
        return self.records


def test_records_are_taken_up_once_each_and_fetched_only_if_missed() -> None:
    query = Query()
    run = Run("silver.event", cast(Any, query), Path("none"), 4)  # as its checkpoint was
    told: list[int] = []
    run.on_batch = lambda _, batch: told.append(batch.id)
    run.collect()
    for record in (Progress(5, ran=False), Progress(5), Progress(6, ran=False), Progress(6)):
        query.records.append(record)
        run.collect()
        run.collect()
    assert (told, query.fetched) == ([5, 6], 0)
    query.records += [Progress(7), Progress(8), Progress(9, ran=False)]
    run.collect()
    assert (told, query.fetched, run.last_batch) == ([5, 6, 7, 8], 1, 8)


def test_wrong_sql_names_its_table(lakehouse: Lakehouse) -> None:
    lakehouse.about("event", "action_counts")
    right = lakehouse.config
    source, counts = right.sources["event"], right.gold["action_counts"]
    lakehouse.fill("bronze")
    for column, word in (("Devise", "Devise"), ("nosuch(id)", "nosuch")):
        wrong = replace(source, silver={**source.silver, "action": column})
        lakehouse.config = replace(right, sources={"event": wrong})
        told = rf"pipeline.yaml: silver\.event.* is not SQL.*{word}"
        with pytest.raises(ConfigError, match=told):
            lakehouse.fill("silver")
    lakehouse.config = right
    lakehouse.fill("silver")
    table = replace(counts, measure={"n": "sum(acton)"})
    lakehouse.config = replace(right, gold={"action_counts": table})
    told = r"pipeline.yaml: gold\.action_counts.* is not SQL.*acton"
    with pytest.raises(ConfigError, match=told):
        lakehouse.fill("gold")


def test_a_gold_table_is_not_made_by_two_definitions(lakehouse: Lakehouse) -> None:
    """Its counts of 10 minutes would go on as counts of 5; and the other tables go on."""
    config = lakehouse.config
    line = '{"id": "p", "action": "open", "ts": "2018-03-02T10:07:00"}'
    lakehouse.land("event", "1.json", line)
    sources = {"event": config.sources["event"]}
    gold = {name: t for name, t in config.gold.items() if t.source == "event"}
    lakehouse.config = replace(config, sources=sources, gold=gold)
    lakehouse.fill()
    before = lakehouse.rows("gold.action_counts")
    other = replace(gold["action_counts"], window=Duration.of("5 minutes"))
    lakehouse.config = replace(lakehouse.config, gold={**gold, "action_counts": other})
    lakehouse.land("event", "2.json", line.replace("07", "08"))
    lakehouse.fill("bronze", "silver")
    told = r"gold.action_counts was made with window '10 minutes': .* refresh gold.action_counts"
    with pytest.raises(ConfigError, match=told):
        lakehouse.fill("gold")
    assert lakehouse.rows("gold.action_counts") == before
    assert sum(row[-1] for row in lakehouse.rows("gold.user_activity", "total_events")) == 4
    refresh.refresh(lakehouse.pipeline(), "gold.action_counts")
    columns = ("window_start", "window_end", "total_events")
    assert lakehouse.rows("gold.action_counts", *columns) == [
        ("2018-03-02 10:05:00", "2018-03-02 10:10:00", 2)
    ]
    lakehouse.fill("gold")


OTHER_DEFINITIONS: list[tuple[dict[str, Any], str]] = [
    ({"keys": ("device", "event_at", "action")}, r"made with keys \['event_at', 'device'"),
    ({"silver": {"more": "id"}}, "made with no column more"),
    ({"silver": {"kind": "1"}}, "made with column kind 'string'"),
    ({"silver": {"kind": None}}, "made with column kind 'string'"),
]


def test_a_silver_table_is_not_made_by_two_definitions(lakehouse: Lakehouse) -> None:
    """Keys in another order let copies in; a late row has no place without a column of its own."""
    source = lakehouse.config.sources["event"]
    source = replace(source, silver={**source.silver, "kind": "'app'"})
    lakehouse.config = replace(lakehouse.config, sources={"event": source}, gold={})
    lakehouse.land("event", "1.json", event("10:07:00"))
    lakehouse.fill("bronze", "silver")
    lakehouse.land("event", "2.json", event("10:07:00"))
    lakehouse.fill("bronze")
    for changed, told in OTHER_DEFINITIONS:
        silver = {**source.silver, **changed.get("silver", {})}
        changed = {**changed, "silver": {name: sql for name, sql in silver.items() if sql}}
        lakehouse.config = replace(lakehouse.config, sources={"event": replace(source, **changed)})
        with pytest.raises(ConfigError, match=rf"silver.event was {told}.* refresh silver.event"):
            lakehouse.fill("silver")
        assert len(lakehouse.rows("silver.event")) == 1
    refresh.refresh(lakehouse.pipeline(), "silver.event")
    lakehouse.fill("silver")
    assert len(lakehouse.rows("silver.event")) == 1


def test_rows_changed_by_hand_under_a_query(lakehouse: Lakehouse) -> None:
    """Spark's own advice would lead to options that are not medallion's."""
    config = lakehouse.config
    gold = {"action_counts": config.gold["action_counts"]}
    lakehouse.config = replace(config, sources={"event": config.sources["event"]}, gold=gold)
    for number in (1, 2):
        rows = (
            f'{{"id": "p", "action": "a{n}", "ts": "2018-03-02T10:0{number}:00"}}' for n in "12"
        )
        lakehouse.land("event", f"{number}.json", *rows)
        for layer in ("bronze", "silver", "gold") if number == 1 else ("bronze", "silver"):
            lakehouse.pipeline().run(layer)
    DeltaTable(config.layout.table("silver.event")).delete("action = 'a1'")
    with pytest.raises(StreamError, match=r"changed or deleted.* refresh gold.action_counts"):
        lakehouse.fill("gold")


class Waiting:
    """A flow whose source has no schema; the second time it is asked, it has one."""

    name, run, is_gated = "silver.a", None, False

    def __init__(self) -> None:
        self.asked = 0

    def is_waiting(self) -> bool:
        self.asked += 1
        return self.asked < 2

    def poll(self) -> None: ...


def test_a_layer_whose_queries_all_wait_for_a_schema_stays_on() -> None:
    flow, begun = Waiting(), 0

    def begin(*_: Any) -> None:
        nonlocal begun
        begun += not flow.is_waiting()

    pipeline: Any = SimpleNamespace(flows=lambda _: [flow], begin=begin, settle=lambda _: [])
    stream = Stream(pipeline, ["silver"], "1 second")
    stream.start()
    assert (begun, stream.is_on) == (0, True)
    stream.poll()
    assert begun == 1


class Stopped:
    """What is to be stopped, and notes that it was."""

    def __init__(self, name: str, order: list[str], error: Exception | None = None) -> None:
        self.name, self.order, self.error = name, order, error

    def stop(self) -> None:
        self.order.append(self.name)
        if self.error:
            raise self.error


@pytest.mark.parametrize("error", [None, Py4JError("gone")])
def test_queries_are_stopped_before_spark(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """A batch that goes on without Spark would take good files for unreadable ones."""
    order: list[str] = []
    spark = Stopped("spark", order)
    spark.version = "4"  # type: ignore[attr-defined]
    active = [Stopped("query", order, error)]
    spark.streams = SimpleNamespace(active=active)  # type: ignore[attr-defined]
    monkeypatch.setattr(context, "spark_session", lambda *_: spark)
    with (
        pytest.raises(KeyboardInterrupt),
        context.open_pipeline(lakehouse.config, "test", ["bronze"], lambda _: None),
    ):
        raise KeyboardInterrupt
    assert order == ["query", "spark"]
