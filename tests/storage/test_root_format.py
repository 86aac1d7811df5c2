"""The version of the format of a lakehouse."""

from __future__ import annotations

import json

import pytest

from medallion import __version__
from medallion.errors import MedallionError, UsageError
from medallion.state import journal
from medallion.storage.root_format import FORMAT, read_format
from tests.support.home import Home


def test_new_lakehouse_gets_the_current_format(home: Home) -> None:
    messages = list[str]()
    assert read_format(home.layout) is None
    with journal.lock_layers(home.config, ["silver"], "run silver", messages.append):
        document = json.loads(home.layout.format.read())
    assert document == {"format": FORMAT, "release": __version__}
    assert messages == []


def test_lakehouse_without_a_document_is_upgraded(home: Home) -> None:
    messages = list[str]()
    (home.layout.table("bronze.activity") / "_delta_log").create_directory()
    assert read_format(home.layout) == 1
    for _ in range(2):
        with journal.lock_layers(home.config, ["silver"], "run silver", messages.append):
            assert read_format(home.layout) == FORMAT
    assert messages == [f"upgraded  {home.layout.root} from format 1 to {FORMAT}"]


def test_newer_format_is_refused(home: Home) -> None:
    home.layout.format.write_atomic('{"format": 7, "release": "3.1.0", "more": {}}')
    message = (
        rf"^{home.layout.root} has the format 7 of medallion 3\.1\.0, but this is medallion "
        rf"{__version__}: install that release or a newer one\.$"
    )
    with pytest.raises(UsageError, match=message):
        read_format(home.layout)
    with (
        pytest.raises(UsageError, match=message),
        journal.lock_layers(home.config, ["bronze"], "run bronze"),
    ):
        pass
    assert not home.layout.lock("bronze").is_stored()


@pytest.mark.parametrize("text", ["", "[]", "2", '{"format": "x", "release": "1"}', "\udcff"])
def test_damaged_format_is_refused(home: Home, text: str) -> None:
    home.layout.format.write_atomic(text.encode(errors="surrogateescape"))
    with pytest.raises(MedallionError, match=r"_format\.json is damaged"):
        read_format(home.layout)
