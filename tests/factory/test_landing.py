"""Seeds, batches, interruptions and invalid arguments."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medallion.errors import UsageError
from medallion.factory import DataFactory
from medallion.storage import locks
from medallion.storage.layout import Layout
from tests.support import PROJECT

Recounter = Callable[[Path], Any]


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


def landed(root: Path) -> dict[str, bytes]:
    """Return all files of the landing zone, including hidden ones."""
    landing = root / "landing"
    files = [path for path in sorted(landing.rglob("*")) if path.is_file()]
    return {str(path.relative_to(landing)): path.read_bytes() for path in files}


def state_path(root: Path) -> Path:
    return root / "_factory/state.json"


def factory(root: Path, seed: int = 7, dirty: bool = True) -> DataFactory:
    return DataFactory(root / "landing", seed=seed, dirty=dirty)


@pytest.mark.parametrize("dirty", [False, True])
def test_three_batches_equal_three_single_batches(tmp_path: Path, dirty: bool) -> None:
    at_once, one_by_one = tmp_path / "a", tmp_path / "b"
    together = factory(at_once, dirty=dirty).land(batches=3, files=3, rows=800)
    singles = [factory(one_by_one, dirty=dirty).land(files=3, rows=800) for _ in range(3)]
    assert landed(at_once) == landed(one_by_one)
    for source, counts in together.items():
        first, second, third = (single[source] for single in singles)
        assert counts == first + second + third


def test_one_source_at_a_time_lands_the_same_files(tmp_path: Path) -> None:
    together_root, single_root = tmp_path / "a", tmp_path / "b"
    factory(together_root).land(batches=2)
    for source in ("event", "activity"):
        assert list(factory(single_root).land(batches=2, source=source)) == [source]
    assert landed(together_root) == landed(single_root)


def test_another_seed_lands_other_rows(tmp_path: Path) -> None:
    factory(tmp_path / "a", seed=7).land()
    factory(tmp_path / "b", seed=8).land()
    first, second = landed(tmp_path / "a"), landed(tmp_path / "b")
    assert list(first) == list(second)
    assert not set(first.values()) & set(second.values())


def test_another_process_lands_the_same_bytes(tmp_path: Path) -> None:
    in_process, in_subprocess = tmp_path / "a", tmp_path / "b"
    factory(in_process).land(batches=2)
    code = (
        "import sys; from medallion.factory import DataFactory; "
        "DataFactory(sys.argv[1], seed=7, dirty=True).land(batches=2); "
        "assert not {'numpy', 'pandas', 'pyspark', 'duckdb'} & sys.modules.keys()"
    )
    path = {"PYTHONPATH": str(PROJECT / "src"), "PYTHONHASHSEED": "11"}
    subprocess.run([sys.executable, "-c", code, in_subprocess / "landing"], env=path, check=True)
    assert landed(in_process) == landed(in_subprocess)


def test_names_sort_in_the_order_of_landing(tmp_path: Path) -> None:
    for _ in range(2):
        factory(tmp_path).land(files=2, source="event")
    assert list(landed(tmp_path)) == [
        f"event/event-{batch:06d}-{file:05d}.json" for batch in (1, 2) for file in (1, 2)
    ]


def test_arguments_may_change_between_batches(tmp_path: Path, recount: Recounter) -> None:
    total = factory(tmp_path, seed=7, dirty=False).land(rows=30, files=3)
    for seed, rows, files in ((8, 4000, 2), (7, 1, 1), (9, 4000, 5)):
        for source, counts in factory(tmp_path, seed=seed).land(rows=rows, files=files).items():
            total[source] += counts
    for source, counts in total.items():
        counted = recount(tmp_path / "landing" / source)
        assert counts.expected_silver == len(counted.silver)
        assert (counts.duplicates, counts.late) == (
            counted.figures["duplicates"],
            counted.figures["late"],
        )
        assert counts.late > 0


def test_names_of_moved_files_are_not_reused(tmp_path: Path) -> None:
    factory(tmp_path).land()
    for path in (tmp_path / "landing").rglob("*.json"):
        path.unlink()
    factory(tmp_path).land()
    assert {name[-17:-11] for name in landed(tmp_path)} == {"000002"}


@pytest.mark.parametrize("renames_before_kill", range(20))
def test_interrupted_batch_is_completed_as_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames_before_kill: int
) -> None:
    """The process is killed at each rename of a file; landed files may be moved away."""
    uninterrupted, interrupted = tmp_path / "complete", tmp_path / "broken"
    for root in (uninterrupted, interrupted):
        factory(root).land(files=2, rows=400)
    factory(uninterrupted).land(files=4, rows=900)
    expected, renames, rename = landed(uninterrupted), list[str](), Path.replace

    def killed_replace(self: Path, target: Path) -> Path:
        if len(renames) == renames_before_kill:
            raise Killed
        renames.append(target.name)
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed_replace)
        # Two sources, four files, a state before each file and at the end.
        if renames_before_kill < 18:
            with pytest.raises(Killed):
                factory(interrupted).land(files=4, rows=900)
        else:
            factory(interrupted).land(files=4, rows=900)

    partial = landed(interrupted)
    visible = {name: data for name, data in partial.items() if "/." not in name}
    assert visible.items() <= expected.items()
    # Only the last file may have landed without a record.
    moved = [name for name in visible if Path(name).name not in renames[-1:]]
    for name in moved:
        (interrupted / "landing" / name).unlink()
    # Whatever the next call requests, this batch's files get the planned bytes.
    factory(interrupted, seed=99, dirty=False).land(files=1, rows=10)
    after = landed(interrupted)
    assert not {*moved} & after.keys()
    assert not [name for name in after if "/." in name]
    if 1 <= renames_before_kill < 9:
        activity = {name: data for name, data in expected.items() if name.startswith("activity")}
        assert activity.items() <= {**visible, **after}.items()


def test_concurrent_landing_is_refused(tmp_path: Path) -> None:
    with (
        locks.lock_layers(Layout(tmp_path), ["_factory"], "land"),
        pytest.raises(UsageError, match=r"is being written by pid \d+ \(land, since "),
    ):
        factory(tmp_path).land()


def test_lost_state_overwrites_no_file(tmp_path: Path) -> None:
    factory(tmp_path).land()
    before = landed(tmp_path)
    state_path(tmp_path).unlink()
    for seed in (7, 8):
        with pytest.raises(UsageError, match="already exists"):
            factory(tmp_path, seed=seed).land()
    assert landed(tmp_path) == before


def test_state_is_beside_the_landing_zone(tmp_path: Path) -> None:
    factory(tmp_path).land()
    assert json.loads(state_path(tmp_path).read_text())["sources"].keys() == {
        "activity",
        "event",
    }


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"generator": 3, "sources": {"event": {"done": {"odd": 1}}}}',
        '{"generator": 3, "sources": {"event": 5}}',
    ],
)
def test_invalid_state_is_refused(tmp_path: Path, content: str) -> None:
    state = state_path(tmp_path)
    state.parent.mkdir()
    state.write_text(content)
    with pytest.raises(UsageError, match=r"state\.json is not the state"):
        factory(tmp_path).land(source="event")


def test_state_of_another_generator_is_refused(tmp_path: Path) -> None:
    factory(tmp_path).land()
    state = state_path(tmp_path)
    state.write_text(state.read_text().replace('"generator": 3', '"generator": 0'))
    with pytest.raises(UsageError, match="generator 0"):
        factory(tmp_path).land()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batches": 0}, "batches must be at least 1, not 0."),
        ({"files": -1}, "files must be at least 1, not -1."),
        ({"rows": 0}, "rows must be at least 1, not 0."),
        ({"source": "weather"}, "generates activity and event, not 'weather'"),
    ],
)
def test_invalid_arguments_are_refused(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        factory(tmp_path).land(**arguments)
    assert not state_path(tmp_path).exists()
