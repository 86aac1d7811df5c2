"""Steps of an erasure without Spark; tests/e2e/test_erase.py has the command."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

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
