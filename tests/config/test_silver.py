"""Entries of `silver` in pipeline.yaml: child tables, and gold tables that read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from medallion.config.loader import load_with_errors
from medallion.config.model import Config
from tests.config.test_loader import edited

ITEMS: dict[str, Any] = {
    "source": "silver.activity",
    "explode": "split(model, ' ')",
    "columns": {"recorded_at": "recorded_at", "word": "item"},
    "keys": ["recorded_at", "word"],
}


def load_silver(path: Path, entries: dict[str, Any]) -> tuple[Config, list[str]]:
    edited(path, "silver", value=entries)
    config, errors = load_with_errors({"MEDALLION_CONF": str(path / "conf")}, path)
    return config, [str(error).partition(": ")[2] for error in errors]


def test_child_tables_follow_their_parents(tmp_path: Path) -> None:
    letters = {"source": "silver.words", "where": "word <> 'x'"}
    config, errors = load_silver(tmp_path, {"letters": letters, "words": ITEMS})
    assert (errors, [*config.silver]) == ([], ["words", "letters"])
    words, letters_table = config.silver.values()
    assert (words.event_time, words.watermark) == (
        "recorded_at",
        config.sources["activity"].watermark,
    )
    assert letters_table.columns == {"recorded_at": "recorded_at", "word": "word"}
    assert (config.root("letters"), letters_table.outer) == ("activity", False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "silver.acivity"}, "source must be one of silver.activity, silver.event"),
        ({"source": "silver.words"}, "source must be one of silver.activity"),
        ({"columns": ...}, "columns is missing"),
        ({"explode": ..., "outer": True}, "outer needs explode"),
        ({"keys": ["words"]}, "keys names 'words', which is not a column of this table"),
        ({"keys": ["word", "word"]}, "keys names 'word' twice"),
        ({"key": ["word"]}, "key is not a known key"),
    ],
)
def test_invalid_child_tables_are_rejected(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    entry = {key: value for key, value in (ITEMS | change).items() if value is not ...}
    config, errors = load_silver(tmp_path, {"words": entry})
    assert len(errors) == 1
    assert f"silver.words.{message}" in errors[0]
    assert config.silver == {}


def test_child_table_name_collision(tmp_path: Path) -> None:
    _, errors = load_silver(tmp_path, {"event": ITEMS})
    assert errors == [
        "silver.event has the name of a source's silver table, or of its changes: rename it."
    ]


def test_gold_over_child_tables(tmp_path: Path) -> None:
    words = ITEMS | {"columns": {"word": "item"}, "keys": ["word"]}
    counts = {"source": "silver.words", "group_by": ["word"], "measure": {"n": "count(*)"}}
    edited(tmp_path, "gold", value={"words": counts})
    config, errors = load_with_words(tmp_path, words)
    assert (errors, config.gold["words"].tables) == ([], ("silver.words",))
    edited(tmp_path, "gold", value={"words": counts | {"window": "1 hour"}})
    _, errors = load_with_words(tmp_path, words)
    assert "gold.words.window needs an event time, which silver.words lacks" in errors[0]


def load_with_words(path: Path, words: dict[str, Any]) -> tuple[Config, list[str]]:
    file = path / "conf/pipeline.yaml"
    document = yaml.safe_load(file.read_text()) | {"silver": {"words": words}}
    file.write_text(yaml.safe_dump(document))
    config, errors = load_with_errors({"MEDALLION_CONF": str(path / "conf")}, path)
    return config, list(map(str, errors))


CHANGES: dict[str, Any] = {
    "silver": {"id": "id", "words": "words"},
    "keys": ["id"],
    "cdc": {"sequence_by": "ts"},
}
CHILD_OF_CHANGES = {
    "source": "silver.people",
    "explode": "words",
    "columns": {"person": "id", "word": "item"},
    "keys": ["person", "word"],
}
WORDS = {"source": "silver.words", "group_by": ["word"], "measure": {"n": "count(*)"}}


def load_with_changes(
    path: Path, child: dict[str, Any], gold: dict[str, Any]
) -> tuple[Config, list[str]]:
    (path / "conf").mkdir()
    (path / "conf/words.sql").write_text("SELECT word FROM silver.words")
    document = {"sources": {"people": CHANGES}, "silver": {"words": child}, "gold": {"t": gold}}
    (path / "conf/pipeline.yaml").write_text(yaml.safe_dump(document))
    config, errors = load_with_errors({"MEDALLION_CONF": str(path / "conf")}, path)
    return config, list(map(str, errors))


def test_child_tables_follow_changes(tmp_path: Path) -> None:
    config, errors = load_with_changes(tmp_path, CHILD_OF_CHANGES, {"sql": "words.sql"})
    assert errors == []
    assert config.silver["words"].change_keys == {"id": "person"}
    assert config.changing_tables == {"silver.people", "silver.words"}
    assert config.spec("silver.words").has_feed
    assert config.gold["t"].follows_changes


JOIN_OF_CHANGES = {
    "source": "silver.words",
    "join": {"with": "silver.people", "on": {"person": "id"}, "within": "1 hour"},
    "columns": {"word": "words.word"},
}


@pytest.mark.parametrize(
    ("child", "gold", "message"),
    [
        ({"columns": {"word": "item"}, "keys": ["word"]}, WORDS, "columns must have id"),
        ({"keys": ["word"]}, WORDS, "keys must have person"),
        ({}, {"sql": "words.sql", "output_mode": "append"}, "output_mode must be one of complete"),
        ({}, WORDS | {"window": "1 day"}, "window needs an event time"),
        ({}, JOIN_OF_CHANGES, "source needs an event time"),
    ],
)
def test_invalid_readers_of_changing_tables(
    tmp_path: Path, child: dict[str, Any], gold: dict[str, Any], message: str
) -> None:
    _, errors = load_with_changes(tmp_path, CHILD_OF_CHANGES | child, gold)
    assert len(errors) == 1
    assert message in errors[0]


def test_joins_of_changing_tables_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CHANGES, "silver", {"id": "id", "words": "words", "at": "ts"})
    monkeypatch.setitem(CHANGES, "event_time", "at")
    child = CHILD_OF_CHANGES | {"columns": {"person": "id", "word": "item", "at": "at"}}
    _, errors = load_with_changes(tmp_path, child, JOIN_OF_CHANGES)
    assert len(errors) == 1
    assert "gold.t joins silver.words, whose rows change" in errors[0]
