"""Reasons that decide something later, spelled as they stand in ledgers that people have.

Whoever words one anew keeps the old words beside it: else such a file is called lost, or never
looked at again.
"""

from __future__ import annotations

import pytest

from medallion.ingest.files.listing import current_file
from medallion.ingest.formats import SOURCE_TYPES
from medallion.state.ledger import PENDING, REJECTED, VANISHED, Entry, File
from tests.support.home import Home

NO_LOSS = {
    PENDING: (
        "hidden: its name or its folder's begins with . or _, or it ends with ._COPYING_; rename "
        "it to have it taken in, and where it is a backfill's, ask for that again",
        "a symbolic link, which is left where it is and never followed: move or copy the files "
        "themselves here, or name their folder in the source's folders",
        "there is no such folder, or it is a link to one whose disk is not mounted",
        "neither a file nor a directory",
        "its name is not UTF-8, in which tables have theirs: rename it",
        "its name, or its folder's, has a colon, which Hadoop cannot open: rename it",
        "its name, or its folder's, has a line break: rename it",
    ),
    VANISHED: (
        "not there any more under this name, by which it was not to be taken in",
        "a folder that can be listed again; where it is a backfill's, ask for that again",
    ),
}
NAMESAKES = (
    "a file of this name was taken in before, and this is another one: give it a name of its own, "
    "or set allow_overwrites",
    "a file of this name and size was taken in before, and this one has another time: if it is "
    "that file, copied without its time (by cp -r, say, and not cp -a), it may stay, for its rows "
    "are there; if it has other rows, give it a name of its own (allow_overwrites takes in all "
    "that are told so, the copies once more)",
)


def enter(home: Home, file: File, version: int, state: str, why: str) -> None:
    at = file.modified_at
    entry = Entry("activity", file.path, version, file.size, at, at, state=state, why=why)
    home.discovery().ledger.write([entry])


@pytest.mark.parametrize("state", NO_LOSS)
def test_what_was_not_to_be_taken_in_by_its_name_is_no_loss_once_it_is_gone(
    home: Home, state: str
) -> None:
    home.landing.mkdir(parents=True)
    for number, why in enumerate([*NO_LOSS[state], "some other reason"]):
        enter(home, File(home.path(f"{number}.json"), 0, 1), 1, state, why)
    home.poll()
    assert set(home.states().values()) == {VANISHED}
    told = SOURCE_TYPES["json"].losses(home.config, home.source)
    assert told == ["1 file gone without being ingested (medallion files --state vanished)"]


@pytest.mark.parametrize("why", NAMESAKES)
def test_a_namesake_is_taken_in_once_that_is_allowed(home: Home, why: str) -> None:
    home.land("a.json", age=9)
    home.poll()
    home.take_in("a.json")
    home.land("a.json", "{}\n{}\n", age=4)
    file = current_file(home.layout, home.path("a.json"))
    assert file
    enter(home, file, 2, REJECTED, why)
    assert home.poll() == 0
    home.change(allow_overwrites=True)
    assert [home.poll(), home.poll()] == [1, 0]
