"""Another file under a name that bronze has taken in: refused, or a new version of it."""

from __future__ import annotations

from medallion.config.values import Duration
from medallion.state.ledger import INGESTED, PENDING, REJECTED
from tests.support.home import Home, aged


def test_another_file_of_a_known_name_is_refused_once(home: Home) -> None:
    home.land("a.json", "{}\n", age=20)
    home.poll()
    home.take_in("a.json")
    file = home.land("a.json", "{}\n{}\n", age=10)
    assert [home.poll(), home.poll(), home.poll()] == [0, 0, 0]
    assert file.is_file()
    assert home.states() == {("a.json", 1): INGESTED, ("a.json", 2): REJECTED}
    (said,) = home.said
    assert "grew after it was read, from 3 to 6 bytes: bronze has the 1 row read before" in said
    assert home.handed() == [("a.json", 1)]


def test_a_copy_that_did_not_keep_its_time_is_told_as_what_it_may_be(home: Home) -> None:
    """As of a lakehouse copied by `cp -r`, where files stay in landing: nobody has their bytes."""
    names = [f"{number:02}.json" for number in range(25)]
    files = [home.land(name, age=20) for name in names]
    home.poll()
    home.take_in(*names)
    for file in files:
        aged(file, 10)
    assert [home.poll(), home.poll()] == [0, 0]
    assert home.states() == {
        (name, version): state
        for name in names
        for version, state in ((1, INGESTED), (2, REJECTED))
    }
    *said, more = home.said
    assert [line.split()[1] for line in said] == [f"{home.path(name)}:" for name in names[:20]]
    why = "if it is that file, copied without its time (by cp -r, say, and not cp -a), it may stay"
    assert all(why in line for line in said)
    assert more.endswith(
        "and 5 more rejected for the same reason (medallion files --state rejected)"
    )
    home.change(allow_overwrites=True)
    assert [home.poll(), home.poll()] == [25, 0]


def test_it_is_refused_again_when_it_changes_once_more(home: Home) -> None:
    home.land("a.json", "{}\n", age=20)
    home.poll()
    home.take_in("a.json")
    for lines in (2, 3):
        home.land("a.json", "{}\n" * lines, age=10 - lines)
        assert home.poll() == 0
    assert home.handed() == [("a.json", 1)]
    states = {("a.json", 1): INGESTED, ("a.json", 2): REJECTED, ("a.json", 3): REJECTED}
    assert home.states() == states
    assert len(home.said) == 2


def test_a_refused_file_is_taken_in_once_overwriting_is_allowed(home: Home) -> None:
    """That is what the ledger's reason tells people to do."""
    home.land("a.json", "{}\n", age=20)
    home.poll()
    home.take_in("a.json")
    home.land("a.json", "{}\n{}\n", age=10)
    home.poll()
    home.change(allow_overwrites=True)
    assert [home.poll(), home.poll()] == [1, 0]
    version = home.handed()[-1][1]
    assert home.states()["a.json", version] == PENDING
    assert version > 1


def test_another_file_of_a_known_name_is_a_new_version(home: Home) -> None:
    home.change(allow_overwrites=True)
    home.land("a.json", "{}\n", age=20)
    home.poll()
    home.take_in("a.json")
    home.land("a.json", "{}\n{}\n", age=10)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.handed() == [("a.json", 1), ("a.json", 2)]
    assert home.states() == {("a.json", 1): INGESTED, ("a.json", 2): PENDING}


def test_a_new_version_waits_until_it_has_been_still_too(home: Home) -> None:
    home.change(allow_overwrites=True, quiet_period=Duration.parse("1 minute"))
    home.land("a.json", "{}\n", age=200)
    home.poll()
    home.take_in("a.json")
    file = home.land("a.json", "{}\n{}\n", age=10)
    assert [home.poll(), home.poll()] == [0, 0]
    aged(file, 100)
    assert [home.poll(), home.poll()] == [1, 0]
    assert home.handed() == [("a.json", 1), ("a.json", 2)]
