"""Seeds, batches, interruptions and wrong use."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from medallion.errors import UsageError
from medallion.factory import DataFactory
from tests.support import PROJECT

Recounter = Callable[[Path], Any]


class Killed(BaseException):
    """As the end of a process is: nothing catches it."""


def landed(root: Path) -> dict[str, bytes]:
    """Everything in the landing zone, hidden files included."""
    landing = root / "landing"
    files = [path for path in sorted(landing.rglob("*")) if path.is_file()]
    return {str(path.relative_to(landing)): path.read_bytes() for path in files}


def factory(root: Path, seed: int = 7, dirty: bool = True) -> DataFactory:
    return DataFactory(root / "landing", seed=seed, dirty=dirty)


@pytest.mark.parametrize("dirty", [False, True])
def test_three_batches_are_three_times_one(tmp_path: Path, dirty: bool) -> None:
    at_once, one_by_one = tmp_path / "a", tmp_path / "b"
    together = factory(at_once, dirty=dirty).land(batches=3, files=3, rows=800)
    singles = [factory(one_by_one, dirty=dirty).land(files=3, rows=800) for _ in range(3)]
    assert landed(at_once) == landed(one_by_one)
    for source, one in together.items():
        first, second, third = (single[source] for single in singles)
        assert one == first + second + third


def test_one_source_at_a_time_gives_the_same_files(tmp_path: Path) -> None:
    both, each = tmp_path / "a", tmp_path / "b"
    factory(both).land(batches=2)
    for source in ("event", "activity"):
        assert list(factory(each).land(batches=2, source=source)) == [source]
    assert landed(both) == landed(each)


def test_another_seed_gives_other_rows(tmp_path: Path) -> None:
    factory(tmp_path / "a", seed=7).land()
    factory(tmp_path / "b", seed=8).land()
    first, second = landed(tmp_path / "a"), landed(tmp_path / "b")
    assert list(first) == list(second)
    assert not set(first.values()) & set(second.values())


def test_another_process_gives_the_same_bytes(tmp_path: Path) -> None:
    here, there = tmp_path / "a", tmp_path / "b"
    factory(here).land(batches=2)
    code = (
        "import sys; from medallion.factory import DataFactory; "
        "DataFactory(sys.argv[1], seed=7, dirty=True).land(batches=2); "
        "assert not {'numpy', 'pandas', 'pyspark', 'duckdb'} & sys.modules.keys()"
    )
    path = {"PYTHONPATH": str(PROJECT / "src"), "PYTHONHASHSEED": "11"}
    subprocess.run([sys.executable, "-c", code, there / "landing"], env=path, check=True)
    assert landed(here) == landed(there)


def test_names_sort_in_the_order_of_landing(tmp_path: Path) -> None:
    for _ in range(2):
        factory(tmp_path).land(files=2, source="event")
    assert list(landed(tmp_path)) == [
        f"event/event-{batch:06d}-{file:05d}.json" for batch in (1, 2) for file in (1, 2)
    ]


def test_seed_dirt_and_size_may_change_from_batch_to_batch(
    tmp_path: Path, recount: Recounter
) -> None:
    total = factory(tmp_path, seed=7, dirty=False).land(rows=30, files=3)
    for seed, rows, files in ((8, 4000, 2), (7, 1, 1), (9, 4000, 5)):
        for source, one in factory(tmp_path, seed=seed).land(rows=rows, files=files).items():
            total[source] += one
    for source, one in total.items():
        counted = recount(tmp_path / "landing" / source)
        assert one.expected_silver == len(counted.silver)
        assert (one.duplicates, one.late) == (
            counted.figures["duplicates"],
            counted.figures["late"],
        )
        assert one.late > 0
        assert one.duplicates_by_origin["earlier_batch"] > 0


def test_names_are_not_used_again_when_files_have_moved_on(tmp_path: Path) -> None:
    factory(tmp_path).land()
    for path in (tmp_path / "landing").rglob("*.json"):
        path.unlink()
    factory(tmp_path).land()
    assert {name[-17:-11] for name in landed(tmp_path)} == {"000002"}


@pytest.mark.parametrize("survived", range(15))
def test_an_interrupted_batch_is_finished_as_it_was_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    """Killed at each rename in turn: the states' (three a batch and source) and the files'.

    What was shown may be taken in and moved away before the rest lands: it does not land again.
    """
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for root in (whole, broken):
        factory(root).land(files=2, rows=400)
    factory(whole).land(files=4, rows=900)
    expected, renames, rename = landed(whole), 0, Path.replace

    def killed_replace(self: Path, target: Path) -> Path:
        nonlocal renames
        renames += 1
        if renames > survived:
            raise Killed
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed_replace)
        if survived < 14:
            with pytest.raises(Killed):
                factory(broken).land(files=4, rows=900)
        else:
            factory(broken).land(files=4, rows=900)

    partly = landed(broken)
    visible = {name: data for name, data in partly.items() if "/." not in name}
    assert visible.items() <= expected.items()
    for name in visible:
        (broken / "landing" / name).unlink()
    # Whatever is asked for next, the files of this batch get the bytes that they were to have.
    factory(broken, seed=99, dirty=False).land(files=1, rows=10)
    after = landed(broken)
    assert not visible.keys() & after.keys()
    assert not [name for name in after if "/." in name]
    if 1 <= survived < 7:
        activity = {name: data for name, data in expected.items() if name.startswith("activity")}
        assert activity.items() <= {**visible, **after}.items()


def test_a_file_is_never_seen_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(_: Path) -> None:
        raise Killed

    monkeypatch.setattr("medallion.factory.writing.os.utime", killed)
    with pytest.raises(Killed):
        factory(tmp_path).land(source="event")
    names = [name.removeprefix("event/") for name in landed(tmp_path)]
    assert names
    assert all(name.startswith(".") for name in names)


def test_landings_at_once_take_turns(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: factory(tmp_path).land(batches=3, rows=50), range(4)))
    factory(tmp_path / "alone").land(batches=12, rows=50)
    assert landed(tmp_path) == landed(tmp_path / "alone")


def test_a_lost_state_does_not_overwrite_files(tmp_path: Path) -> None:
    factory(tmp_path).land()
    before = landed(tmp_path)
    factory(tmp_path).state_path.unlink()
    for seed in (7, 8):
        with pytest.raises(UsageError, match="is there already"):
            factory(tmp_path, seed=seed).land()
    assert landed(tmp_path) == before


def test_the_state_lies_beside_the_landing_zone(tmp_path: Path) -> None:
    factory(tmp_path).land()
    assert factory(tmp_path).state_path == tmp_path / "_factory" / "state.json"
    assert json.loads(factory(tmp_path).state_path.read_text())["sources"].keys() == {
        "activity",
        "event",
    }


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"generator": 1, "sources": {"event": {"done": {"odd": 1}}}}',
        '{"generator": 1, "sources": {"event": 5}}',
        '{"generator": 1, "sources": {"event": {"given": 5}}}',
    ],
)
def test_a_damaged_state_is_named(tmp_path: Path, content: str) -> None:
    state = factory(tmp_path).state_path
    state.parent.mkdir()
    state.write_text(content)
    with pytest.raises(UsageError, match=r"state\.json is not the data factory's state"):
        factory(tmp_path).land(source="event")


def test_another_generators_state_is_refused(tmp_path: Path) -> None:
    factory(tmp_path).land()
    state = factory(tmp_path).state_path
    state.write_text(state.read_text().replace('"generator": 1', '"generator": 0'))
    with pytest.raises(UsageError, match="generator 0"):
        factory(tmp_path).land()


def test_the_future_is_not_landed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medallion.factory.landing.time.time", lambda: 1_704_090_000.0)
    with pytest.raises(UsageError, match="dated in the future"):
        factory(tmp_path).land()
    assert landed(tmp_path) == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batches": 0}, "batches must be at least 1, not 0."),
        ({"files": -1}, "files must be at least 1, not -1."),
        ({"rows": 0}, "rows must be at least 1, not 0."),
        ({"source": "weather"}, "makes up activity and event, not 'weather'"),
    ],
)
def test_wrong_use(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        factory(tmp_path).land(**arguments)
    assert not factory(tmp_path).state_path.exists()


def test_only_local_folders() -> None:
    with pytest.raises(UsageError, match="local folders only"):
        DataFactory("s3a://lake/landing").land()


def test_an_empty_path_is_not_the_folder_one_is_in(tmp_path: Path) -> None:
    for empty in (DataFactory("", given=tmp_path), DataFactory(tmp_path / "landing", given=" ")):
        with pytest.raises(UsageError, match="an empty path"):
            empty.load()
