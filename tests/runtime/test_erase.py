"""Steps of an erasure without Spark; tests/e2e/test_erase.py has the command."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from medallion.config.tables import LookupConfig
from medallion.runtime import erase
from medallion.state.journal import Action, Entry, ErasedOrigin, Erasure
from tests.support.home import Home

ORIGIN = ErasedOrigin("landing/o/a.json", 3, Action.REWRITTEN, 1, "archive/o/a.json")
ERASURE = Erasure("a1", "silver.o", "name = 'Ada'", False, {"bronze.o": 3}, origins=(ORIGIN,))


@pytest.mark.parametrize(("done", "action"), [((), Action.DELETED), (("files",), Action.REWRITTEN)])
def test_erasure_of_an_older_version_deletes_files(
    home: Home, monkeypatch: pytest.MonkeyPatch, done: tuple[str, ...], action: Action
) -> None:
    """It planned to rewrite them; the record says what was done."""
    completed = list[Erasure]()

    def steps(_: object, erasure: Erasure) -> tuple[Any, ...]:
        return (("record", lambda: completed.append(erasure)),)

    monkeypatch.setattr(erase, "_steps", steps)
    monkeypatch.setattr(erase, "_notes", lambda *_: ())
    pipeline: Any = SimpleNamespace(config=home.config)
    result = erase._complete(pipeline, Entry("silver.o", ERASURE, done))
    (erasure,) = completed
    assert [origin.action for origin in erasure.origins] == [action]
    assert result.erasure == erasure
    assert not (home.layout.journal / "erase-silver.o.json").is_stored()


def test_lookups_in_an_erased_table_are_noted(home: Home) -> None:
    config = home.project_config
    activity, event = config.sources["activity"], config.sources["event"]
    devices = LookupConfig("silver/activity", "device", {"model": "string"})
    looking_up = {
        "event": replace(event, lookup=devices),
        "other": replace(event, name="other", lookup=replace(devices, file="devices.csv")),
    }
    config = replace(config, sources={"activity": activity, **looking_up})
    erasure = Erasure("a1", "silver.activity", "device = 'a'", True, {})
    note = "silver.event keeps columns that it has looked up in silver.activity."
    assert [*erase._notes(config, erasure)] == [note]
