"""Samples of files written by real systems, and the entry that `medallion add` writes for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from medallion.config.loader import load
from medallion.discover import entry, files

SAMPLES = Path(__file__).with_name("samples")
PIPELINE = """# My pipeline.
sources:
  # One entry a folder.
  event: # events
    silver: {at: ts}
    event_time: at
    keys: [at]

# Counts.
gold: {}
"""
# By file: settings, columns of silver, event time with its reason, keys.
EXPECTED: dict[str, tuple[dict[str, Any], dict[str, str], str, list[str]]] = {
    "docker.json": (
        {},
        {"log": "log", "stream": "stream", "time": "time"},
        "ISO 8601",
        ["row_digest"],
    ),
    "serilog.clef.json": ({}, {"t": "`@t`", "path": "Path"}, "ISO 8601", ["row_digest", "t"]),
    "zeek-conn.json": (
        {"hints": {"ts": "timestamp_seconds"}},
        {"ts": "ts", "id_orig_h": "id_orig_h", "conn_state": "conn_state"},
        "epoch seconds",
        ["uid", "ts"],
    ),
    "cloudtrail.json.gz": (
        {"record_path": "Records"},
        {"user_identity_type": "userIdentity.type", "event_name": "eventName"},
        "ISO 8601",
        ["event_id", "event_time"],
    ),
    "sales-semicolon.csv": (
        {
            "options": {"delimiter": ";"},
            "hints": {"Order ID": "long", "Datum": "timestamp 'dd.MM.yyyy HH:mm'"},
        },
        {"order_id": "Order_ID", "note": "Note"},
        "pattern dd.MM.yyyy HH:mm",
        ["order_id", "datum"],
    ),
    "orders-spaces.csv": (
        {"hints": {"order_id": "long", "amount": "double"}},
        {"customer_email": "customer_email"},
        "ISO 8601",
        ["order_id", "created_at"],
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_entry_of_a_sample(name: str, tmp_path: Path) -> None:
    settings, columns, time, keys = EXPECTED[name]
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "pipeline.yaml").write_text(PIPELINE)
    environ = {"MEDALLION_CONF": "conf", "MEDALLION_HOME": "lake"}
    config = load(environ, tmp_path)
    source = entry.inspect_files("new", files.input_files([str(SAMPLES / name)]))
    assert (len(source.description.rows), source.description.choices) == (40, [])
    assert source.description.settings == settings
    assert source.times[0][1].reason == time
    assert source.key_names[: len(keys)] == keys

    entry.prepare_write(config, source, entry.new_entries(source, config))()
    text = (conf / "pipeline.yaml").read_text()
    assert [line for line in PIPELINE.splitlines() if line not in text.splitlines()] == ["gold: {}"]
    loaded = load(environ, tmp_path)
    assert columns.items() <= loaded.sources["new"].silver.items()
    assert loaded.sources["new"].event_time == source.event_time
    assert loaded.sources["new"].hints == settings.get("hints", {})
    assert loaded.sources["new"].record_path == settings.get("record_path")
    assert loaded.sources["new"].options.delimiter == settings.get("options", {}).get(
        "delimiter", ","
    )
    assert loaded.gold["new_by_hour"].tables == ("silver.new",)


def test_fields_without_values_are_listed() -> None:
    source = entry.inspect_files("t", files.input_files([str(SAMPLES / "cloudtrail.json.gz")]))
    assert source.empty == ["responseElements"]
    assert "    # null in the sample: responseElements" in entry.source_entry(source)
