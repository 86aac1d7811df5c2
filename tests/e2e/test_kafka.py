"""Topics of a real broker: from a message to gold and to another topic, and faults of a broker.

Only ingestion starts Spark; the audit of messages and the broker's state need none.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.config.loader import kafka_login
from medallion.config.model import SourceConfig
from medallion.config.queries import layers_in_use
from medallion.config.tables import Kafka, ToKafka
from medallion.errors import MedallionError, UsageError
from medallion.ingest.formats import SOURCE_TYPES
from medallion.ingest.kafka import broker as brokers
from medallion.ingest.kafka.source import MessageBatch
from medallion.ingest.kafka.verify import verify_messages
from medallion.ingest.source import Verification
from medallion.inspect.audit import run_audit
from medallion.inspect.status import query_statuses
from medallion.runtime import backfill
from medallion.runtime.backfill import BackfillResult
from medallion.runtime.erase import Request, erase_rows
from medallion.runtime.pipeline import Pipeline
from medallion.runtime.stream import Stream
from medallion.state import erasures, pending_work, topics
from medallion.state.journal import Action, ErasedOrigin, Erasure
from medallion.state.topics import PartitionProgress
from medallion.storage import delta_tables, records, table_specs
from tests.support.broker import PASSWORD, USER, Broker, topic_messages
from tests.support.lakehouse import Lakehouse

SOURCE: dict[str, Any] = {
    "format": "kafka",
    "schema": "infer",
    "silver": {"at": "at", "person": "user", "page": "page"},
    "event_time": "at",
    "keys": ["person", "at"],
}


def message(user: str, second: int, page: str = "home") -> str:
    at = f"2024-01-01T10:00:{second:02}Z"
    return json.dumps({"at": at, "user": user, "page": page})


def new_lakehouse(
    spark: SparkSession, folder: Path, server: str, other_sources: Any = None, **more: Any
) -> Lakehouse:
    """Return a lakehouse whose source `clicks` reads topics of a broker, beside other sources."""
    lakehouse = Lakehouse(spark, folder / "lakehouse")
    source = {**SOURCE, "servers": [server], "topics": ["clicks"], **more}
    sources = {"clicks": source, **(other_sources or {})}
    lakehouse.configure(folder, {"sources": sources, "gold": {}})
    return lakehouse


def offsets(lakehouse: Lakehouse) -> list[tuple[str, int, int]]:
    """Return topic, partition and offset of each row of bronze."""
    return sorted(lakehouse.rows("bronze.clicks", "_topic", "_partition", "_offset"))


def ledger(lakehouse: Lakehouse, topic: str = "") -> dict[int, tuple[int, int, int, int]]:
    """Return next offset, rows, corrupt rows and lost messages of each partition."""
    progress = topics.read_progress(lakehouse.config.layout, "clicks").values()
    partitions = [part for part in progress if topic in (part.topic, "")]
    return {t.partition: (t.next_offset, t.rows, t.corrupt_rows, t.lost) for t in partitions}


def waiting(lakehouse: Lakehouse) -> int | None:
    (bronze,) = (q for q in query_statuses(lakehouse.config) if q.query == "bronze.clicks")
    return bronze.backlog.messages if bronze.backlog else None


def verify(lakehouse: Lakehouse) -> Verification:
    """Compare bronze with its ledger and the broker's messages, as a deep audit does."""
    return verify_messages(lakehouse.config, lakehouse.config.sources["clicks"])


def check_verified(lakehouse: Lakehouse) -> list[str]:
    """Check that the comparison finds nothing, and return its notes."""
    verification = verify(lakehouse)
    assert verification.findings == []
    return verification.notes


@pytest.fixture(scope="module")
def first(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Lakehouse:
    """Return a lakehouse after a run with eight messages, whose gold is published to a topic."""
    folder = tmp_path_factory.mktemp("first")
    lakehouse = new_lakehouse(spark, folder, broker.server)
    source = {**SOURCE, "servers": [broker.server], "topics": ["clicks"]}
    pages = {"source": "silver.clicks", "group_by": ["page"], "measure": {"total": "count(*)"}}
    pages |= {"output_mode": "update"}
    pages |= {"publish": {"kafka": {"servers": [broker.server], "topic": "pages"}}}
    lakehouse.configure(folder, {"sources": {"clicks": source}, "gold": {"pages": pages}})
    broker.create("clicks", 2)
    broker.create("pages")
    repeated = message("ann", 0)
    broker.send("clicks", repeated, key="k1", headers=[("from", "web"), ("raw", b"\xff")])
    broker.send("clicks", message("bob", 1, "shop"), repeated, "{oops", None, "")
    broker.send("clicks", message("eve", 2), message("eve", 3), partition=1, key=b"\xfe")
    assert waiting(lakehouse) == 8
    lakehouse.fill(*layers_in_use(lakehouse.config))
    return lakehouse


def test_messages_are_rows(first: Lakehouse) -> None:
    assert offsets(first) == [
        *(("clicks", 0, n) for n in range(6)),
        *(("clicks", 1, n) for n in range(2)),
    ]
    columns = ("_partition", "_offset", "user", "_key", "_headers", "_corrupt_record")
    rows = {row[:2]: row[2:] for row in first.rows("bronze.clicks", *columns)}
    headers = [{"key": "from", "value": "web"}, {"key": "raw", "value": "ÿ"}]
    assert rows[0, 0] == ("ann", "k1", headers, None)
    assert rows[0, 1][:2] == ("bob", None)
    # Anything but an object is kept: text that is no JSON, a null value, and an empty string.
    assert [rows[0, n][3] for n in (3, 4, 5)] == ["{oops", "null", ""]
    assert [rows[1, n][1] for n in (0, 1)] == ["þ", "þ"]
    assert ledger(first) == {0: (6, 6, 3, 0), 1: (2, 2, 0, 0)}
    assert first.rows("gold.pages", "page", "total") == [("home", 3), ("shop", 1)]
    silver = first.rows("silver.clicks", "person", "_topic", "_partition", "_offset")
    assert silver == [
        ("ann", "clicks", 0, 0),
        ("bob", "clicks", 0, 1),
        ("eve", "clicks", 1, 0),
        ("eve", "clicks", 1, 1),
    ]
    assert waiting(first) == 0
    assert run_audit(first.config).findings == ()
    assert check_verified(first) == []
    clicks = first.config.sources["clicks"]
    assert not SOURCE_TYPES["kafka"].scan(first.config, clicks).has_work, "it has no news"


def test_gold_is_published_to_a_topic(first: Lakehouse, broker: Broker) -> None:
    messages = topic_messages(broker, "pages")
    expected = [("home", 3, "insert"), ("shop", 1, "insert")]
    assert sorted((v["page"], v["total"], v["_change_type"]) for _, v in messages) == expected
    assert [key for key, _ in messages] == [{"page": value["page"]} for _, value in messages]
    (status,) = (q for q in query_statuses(first.config) if q.query.startswith("publish."))
    assert (status.rows_out, status.waiting_rows) == (2, 0)


def test_missing_topics_are_refused(
    first: Lakehouse, spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    lakehouse = new_lakehouse(spark, tmp_path, broker.server, topics=["nowhere"])
    with pytest.raises(MedallionError, match=f"no topic nowhere at {broker.server}: create"):
        lakehouse.fill("bronze")
    pages = first.config.gold["pages"]
    moved = replace(pages, outputs={"kafka": ToKafka((broker.server,), "nowhere")})
    moved_config = replace(first.config, gold={"pages": moved})
    flow = Pipeline(spark, moved_config, "test", print).flow("publish.pages.kafka")
    with pytest.raises(MedallionError, match="there is no topic nowhere at"):
        flow.start(None, -1)
    # A new topic would only get future changes.
    to_clicks = replace(pages, outputs={"kafka": ToKafka((broker.server,), "clicks")})
    config = replace(first.config, gold={"pages": to_clicks})
    flow = Pipeline(spark, config, "test", print).flow("publish.pages.kafka")
    remedy = r"with topic 'pages', .*medallion refresh publish\.pages\.kafka"
    with pytest.raises(UsageError, match=remedy):
        flow.start(None, -1)


def test_erased_messages_stay_in_the_topic(first: Lakehouse, tmp_path: Path) -> None:
    """The next batch leaves the ledger as it is, and the audit does not miss them."""
    lakehouse = first.copy(tmp_path / "erased")
    lakehouse.config = replace(lakehouse.config, gold={})
    for query, settings in pending_work.settings_digests(lakehouse.config).items():
        pending_work.record_settings(lakehouse.config, query, settings)
    request = Request("silver.clicks", "person = 'ann'", cascade=True)
    result = erase_rows(lakehouse.pipeline(), request)
    assert result.erasure.rows == {"bronze.clicks": 2, "silver.clicks": 1, "quarantine.clicks": 0}
    assert result.notes[0].startswith("clicks/0 keeps 2 rows")
    lakehouse.fill("bronze")
    assert ledger(lakehouse) == {0: (6, 4, 3, 0), 1: (2, 2, 0, 0)}
    assert lakehouse.rows("silver.clicks", "person") == [("bob",), ("eve",), ("eve",)]
    assert check_verified(lakehouse) == []


def test_lost_ledger_is_repaired_from_bronze(first: Lakehouse, tmp_path: Path) -> None:
    """The ledger loses its last entry, then all of it, and bronze its checkpoint."""
    lakehouse = first.copy(tmp_path / "repaired")
    lakehouse.config = replace(lakehouse.config, gold={})
    layout, before = lakehouse.config.layout, offsets(lakehouse)
    progress_table, checkpoint = layout.table("ops.topics"), layout.checkpoint("bronze.clicks")
    max(progress_table.local.glob("_delta_log/0*.json")).unlink()
    lakehouse.fill("bronze")
    assert ledger(lakehouse) == {0: (6, 6, 3, 0), 1: (2, 2, 0, 0)}
    for folder in (progress_table, checkpoint):
        shutil.rmtree(folder)
    # Unless bronze's log no longer records which batch added which rows.
    older = lakehouse.copy(tmp_path / "older")
    for commit in older.config.layout.table("bronze.clicks").local.glob("_delta_log/0*.json"):
        remaining = [
            line for line in commit.read_text().splitlines() if not line.startswith('{"txn"')
        ]
        commit.write_text("".join(f"{line}\n" for line in remaining))
        commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
    with pytest.raises(UsageError, match=r"older than the table.* whole root from one backup"):
        older.fill("bronze")
    lakehouse.fill("bronze")
    assert offsets(lakehouse) == before
    assert ledger(lakehouse) == {0: (6, 6, 3, 0), 1: (2, 2, 0, 0)}
    assert check_verified(lakehouse) == []


class Bronze:
    """A bronze table of messages and its ledger, written without Spark."""

    def __init__(self, spark: SparkSession, folder: Path, broker: Broker, topic: str) -> None:
        self.lakehouse = new_lakehouse(spark, folder, broker.server, topics=[topic])
        self._topic, self._layout = topic, self.lakehouse.config.layout
        source = self.lakehouse.config.sources["clicks"]
        listed = brokers.list_partitions(source, self.lakehouse.config.login)
        self._topic_ids = {place: part.topic_id for place, part in listed.items()}

    def add(self, *offsets_: int, partition: int = 0) -> None:
        """Append rows with these offsets."""
        columns = {"_topic": "string", "_partition": "long", "_offset": "long"}
        spec = replace(table_specs.table_spec("bronze.clicks"), columns=columns)
        row = {"_topic": self._topic, "_partition": partition}
        rows = [{**row, "_offset": offset} for offset in offsets_]
        records.append_records(self._layout.table("bronze.clicks"), spec, rows)

    def record(self, rows: int, first: int, end: int, partition: int = 0, **more: Any) -> None:
        """Write the ledger's row of a partition: `rows` of the offsets from `first` to `end`."""
        id_ = self._topic_ids[self._topic, partition]
        entry = PartitionProgress("clicks", self._topic, partition, id_, first, end, 0, 0, rows)
        topics.write_progress(self._layout, [replace(entry, **more)])

    def erase(self, rows: int) -> None:
        """Record an erasure of rows of partition 0."""
        origin = ErasedOrigin(f"{self._topic}/0", rows, Action.KEPT)
        erasure = Erasure("1", "silver.clicks", "true", False, {}, origins=(origin,))
        erasures.record(self._layout, erasure, 0)


def test_verify_messages_finds_each_difference(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """Messages of an aborted transaction and transaction markers are not missed."""
    broker.create("audited", 2)
    broker.send("audited", "a", "b", "c")
    broker.send_in_transactions("audited", "aborted", "d")  # offsets 3 and 5, each with a marker
    broker.send("audited", "e", "f", partition=1)

    def new_bronze(name: str) -> Bronze:
        return Bronze(spark, tmp_path / name, broker, "audited")

    intact = new_bronze("intact")
    intact.add(0, 1, 2, 5)
    intact.record(4, 0, 7)
    intact.add(1, partition=1)  # the source started here, at the end of the topic
    intact.record(1, 1, 2, partition=1)
    assert check_verified(intact.lakehouse) == []

    behind = new_bronze("behind")  # the last message is not ingested yet
    behind.add(0, 1, 2)
    behind.record(3, 0, 3)
    assert check_verified(behind.lakehouse) == []

    lost = new_bronze("lost")
    lost.add(0, 5)
    lost.record(2, 0, 7)
    missing = "bronze lacks 2 messages of topic audited, partition 0; the first is offset 1"
    assert verify(lost.lakehouse).findings == [f"clicks: {missing}."]
    lost.erase(1)
    assert verify(lost.lakehouse).findings == [f"clicks: {missing}."]
    lost.erase(0)
    assert verify(lost.lakehouse).findings == [f"clicks: {missing}."]

    erased = new_bronze("erased")
    erased.add(0, 5)
    erased.record(2, 0, 7)
    erased.erase(2)
    assert check_verified(erased.lakehouse) == []

    repeated = new_bronze("repeated")
    repeated.add(0, 1, 2, 2, 5)
    repeated.record(4, 0, 7)
    assert verify(repeated.lakehouse).findings == [
        "clicks: of topic audited, partition 0, the ledger has 4 rows and bronze 5.",
        "clicks: bronze has offset 2 of topic audited, partition 0, more than once.",
    ]

    recreated = new_bronze("recreated")  # offsets of both topics
    recreated.add(0, 1, 1)
    recreated.record(3, 0, 7, made_anew=1)
    (note,) = check_verified(recreated.lakehouse)
    assert note.startswith("clicks: topic audited was recreated, and its rows cannot be")

    unread = with_topics(intact.lakehouse, "clicks")
    (note,) = check_verified(unread)
    assert note.startswith("clicks: topic audited is no longer read, or does not exist: not")


def envelope(customer: int, city: str, position: int, operation: str = "u") -> str:
    """Return a Debezium message; its position in the database's log is its order."""
    row = {"id": customer, "city": city}
    before, after = (row, None) if operation == "d" else (None, row)
    values = {"before": before, "after": after, "op": operation, "source": {"lsn": position}}
    return json.dumps({"payload": values})


def test_debezium_messages(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Creates, updates in any order, one sent twice, a delete, its tombstone, an older update."""
    lakehouse = Lakehouse(spark, tmp_path / "lakehouse")
    source: dict[str, Any] = {"format": "debezium", "servers": [broker.server]}
    source |= {"topics": ["customers"], "keys": ["customer_id"]}
    source |= {"silver": {"customer_id": "id", "city": "city"}}
    lakehouse.configure(tmp_path, {"sources": {"customers": source}, "gold": {}})
    broker.create("customers")
    ulm = (2, "Ulm", 11, "c")
    changes: list[tuple[int, str, int, str] | None] = [
        *((1, "Bonn", 10, "c"), ulm, (1, "Jena", 14, "u"), ulm, (3, "Trier", 16, "c")),
        *((1, "Bern", 12, "u"), (2, "Ulm", 15, "d"), None, (2, "Köln", 13, "u")),
    ]
    broker.send("customers", *(change and envelope(*change) for change in changes))
    lakehouse.fill("bronze", "silver")
    rows = lakehouse.rows("silver.customers", "customer_id", "city")
    assert rows == [(1, "Jena"), (3, "Trier")]
    ((failed_rules,),) = lakehouse.rows("quarantine.customers", "_failed_rules")
    assert failed_rules == ["tombstone"]
    audit = run_audit(lakehouse.config)
    assert audit.is_balanced
    balance = audit.balances["customers"]  # superseded: Bonn, Bern, Ulm, Köln
    counts = balance.silver_rows, balance.superseded_rows, balance.deleted_rows
    assert (*counts, balance.duplicate_rows, balance.quarantined_rows) == (2, 4, 1, 1, 1)


def test_no_message_is_read_twice_or_skipped(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakehouse = new_lakehouse(spark, tmp_path, broker.server, topics=["shop"])
    checkpoint = lakehouse.config.layout.checkpoint("bronze.clicks")
    broker.create("shop")
    broker.send("shop", *(message("ann", n) for n in range(3)))
    # Interrupt between bronze and the ledger.
    with monkeypatch.context() as patched:
        patched.setattr(MessageBatch, "record_in_ledger", _interrupt)
        with pytest.raises(MedallionError, match="injected"):
            lakehouse.fill("bronze")
    assert ledger(lakehouse) == {0: (0, 0, 0, 0)}
    lakehouse.fill("bronze")
    assert ledger(lakehouse) == {0: (3, 3, 0, 0)}
    copy = tmp_path / "checkpoint"
    shutil.copytree(checkpoint, copy)

    # Aborted messages never landed; transaction markers use offsets, but are no messages.
    broker.send_in_transactions("shop", message("eve", 3), message("bob", 4))
    lakehouse.fill("bronze")
    assert offset_numbers(lakehouse) == [0, 1, 2, 5]
    assert waiting(lakehouse) == 0

    # The ledger knows the offsets if the checkpoint is missing or older than bronze.
    broker.send("shop", message("bob", 5))
    shutil.rmtree(checkpoint)
    lakehouse.fill("bronze")
    assert offset_numbers(lakehouse) == [0, 1, 2, 5, 7]
    shutil.rmtree(checkpoint)
    copy.rename(checkpoint)
    broker.send("shop", message("bob", 6))
    lakehouse.fill("bronze")
    assert offset_numbers(lakehouse) == [0, 1, 2, 5, 7, 8]
    assert ledger(lakehouse) == {0: (9, 6, 0, 0)}
    assert check_verified(lakehouse) == []


def test_lost_messages_are_reported(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    lakehouse = new_lakehouse(spark, tmp_path, broker.server, topics=["attic"])
    broker.create("attic")
    lakehouse.fill("bronze")  # nothing is there; then the source reads another topic
    lakehouse = with_topics(lakehouse, "shelf")
    broker.create("shelf")
    broker.send("shelf", *(message("ann", n) for n in range(8)))
    lakehouse.fill("bronze")
    broker.send("shelf", message("bob", 6), message("bob", 7), message("bob", 8))
    broker.remove_before("shelf", 10)
    lost = "topic shelf lost messages before they were ingested: partition 0, offsets 8 to 9"
    remedy = "To continue without them: medallion backfill clicks shelf."
    check_refused(lakehouse, f"{lost}. {remedy}")
    assert resume_topic(lakehouse) == BackfillResult(0, 0, 1, (), topic="shelf", lost_offsets=2)
    assert offset_numbers(lakehouse)[-1] == 10
    assert ledger(lakehouse, "shelf") == {0: (11, 9, 0, 2)}
    assert check_verified(lakehouse) == [
        "clicks: topic attic is no longer read, or does not exist: not verified."
    ]

    # A new topic has the name, with fewer messages than the first one.
    broker.delete("shelf")
    broker.create("shelf")
    broker.send("shelf", message("joe", 1), message("joe", 2))
    check_refused(lakehouse, "topic shelf was recreated after 9 messages of its partition 0 were")
    result = resume_topic(lakehouse)
    assert (result.rows, result.lost_offsets) == (2, None)
    with pytest.raises(UsageError, match="topic shelf has lost no messages"):
        resume_topic(lakehouse)
    assert (len(offset_numbers(lakehouse)), waiting(lakehouse)) == (11, 0)
    assert "topic shelf was recreated" in str(check_verified(lakehouse))

    # One topic is added, which started long ago; and one is removed.
    broker.create("cellar")
    broker.send("cellar", *(message("sue", n) for n in range(5)))
    broker.remove_before("cellar", 3)
    lakehouse = with_topics(lakehouse, "shelf", "cellar")
    lakehouse.fill("bronze")
    assert offsets(lakehouse)[:2] == [("cellar", 0, 3), ("cellar", 0, 4)]
    broker.delete("shelf")
    broker.send("cellar", message("sue", 5))
    lakehouse = with_topics(lakehouse, "cellar")
    lakehouse.fill("bronze")
    assert offsets(lakehouse)[:3] == [("cellar", 0, n) for n in (3, 4, 5)]
    assert len(offsets(lakehouse)) == 14
    notes = check_verified(lakehouse)
    assert "topic shelf is no longer read, or does not exist" in str(notes)

    clicks = lakehouse.config.sources["clicks"]
    files = replace(clicks, format="json", stream=None)
    lakehouse.config = replace(lakehouse.config, sources={"clicks": files})
    with pytest.raises(UsageError, match="written by another source type than json"):
        lakehouse.fill("bronze")


def _interrupt(*_: Any) -> None:
    raise OSError("injected")


def offset_numbers(lakehouse: Lakehouse) -> list[int]:
    return [offset for _, _, offset in offsets(lakehouse)]


def check_refused(lakehouse: Lakehouse, expected: str) -> None:
    """Check that each run and status report the message, and that nothing is ingested."""
    before = offsets(lakehouse)
    for _ in range(2):
        with pytest.raises(MedallionError, match=re.escape(expected)):
            lakehouse.fill("bronze")
    assert offsets(lakehouse) == before
    assert expected in str(query_statuses(lakehouse.config)[0].error)


def resume_topic(lakehouse: Lakehouse) -> BackfillResult:
    """Run `medallion backfill clicks TOPIC` in the existing session."""
    source = lakehouse.config.sources["clicks"]
    assert isinstance(source.stream, Kafka)
    (topic,) = source.stream.topics

    def run() -> None:
        lakehouse.fill("bronze")

    return backfill.resume_topic(lakehouse.config, source, topic, print, run)


def with_topics(lakehouse: Lakehouse, *names: str) -> Lakehouse:
    source = lakehouse.config.sources["clicks"]
    assert isinstance(source.stream, Kafka)
    changed = replace(source, stream=replace(source.stream, topics=names))
    lakehouse.config = replace(lakehouse.config, sources={"clicks": changed})
    return lakehouse


def test_broker_errors_contain_no_password(
    first: Lakehouse, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks = first.config.sources["clicks"]
    monkeypatch.setattr(brokers, "TIMEOUT", 1.0)

    def at_server(server: str) -> SourceConfig:
        assert isinstance(clicks.stream, Kafka)
        return replace(clicks, stream=replace(clicks.stream, servers=(server,)))

    with_login = at_server(broker.server_with_login)
    environment = {
        "MEDALLION_KAFKA_PROTOCOL": "SASL_PLAINTEXT",
        "MEDALLION_KAFKA_USERNAME": USER,
        "MEDALLION_KAFKA_PASSWORD": PASSWORD,
    }
    assert len(brokers.list_partitions(with_login, kafka_login(environment))) == 2
    wrong_login = kafka_login({**environment, "MEDALLION_KAFKA_PASSWORD": "my secret"})
    with pytest.raises(MedallionError, match="refuses the login") as error:
        brokers.list_partitions(with_login, wrong_login)
    assert "my secret" not in str(error.value)
    with pytest.raises(MedallionError, match="no Kafka broker answers at"):
        brokers.list_partitions(at_server("127.0.0.1:9"), kafka_login({}))
    unreachable = replace(first.config, sources={"clicks": at_server("127.0.0.1:9")})
    status_error = query_statuses(unreachable)[0].error or ""
    assert status_error.startswith(
        "backlog unknown: no Kafka broker answers at 127.0.0.1:9 (Connection refused)"
    )


def test_stream_reads_a_topic_in_two_runs(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create("live")
    lakehouse = new_lakehouse(spark, tmp_path, broker.server, topics=["live"])
    for run in (1, 2):
        _stream_on(lakehouse, broker, run)
    audit = run_audit(lakehouse.config)
    assert audit.is_balanced, audit


def _stream_on(lakehouse: Lakehouse, broker: Broker, run: int) -> None:
    """Run the stream until the source has a new row."""
    stream = Stream(lakehouse.pipeline(), ["bronze"], "1 second")
    stream.start()
    broker.send("live", message("ann", run))
    deadline = time.monotonic() + 120
    while _rows_of(lakehouse, "clicks") < run:
        assert time.monotonic() < deadline, stream.failures
        stream.step()
        time.sleep(0.2)
    stream.stop()
    assert not stream.failures


def _rows_of(lakehouse: Lakehouse, source: str) -> int:
    return delta_tables.row_count(lakehouse.config.layout.table(f"bronze.{source}"))
