"""The pytest plugin of `tools/mutants.py run`: tests one mutant after the other in one session.

Only the Spark session stays between mutants. All other fixtures and the caches of medallion are
created again; also the broker, because a second run of a test needs one without its topics. A test
counts as failed by a mutant if it passes without the mutant right afterwards. The file of results
is written before each test and after each mutant.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

RESTART, NO_SPARK = 75, 76  # exit statuses: try a test again in another process; Spark has ended
KEPT = {"spark"}
WITHOUT_MEDALLION = {"spark", "broker"}  # fixtures whose set-up shows nothing about other tests
SECONDS_OF_UNKNOWN_TEST = 10.0
SECONDS_OF_TEST = 120.0  # at least, before it counts as hanging
FRESH_TESTS = 5  # of a mutant that needs a process of its own

REPORTS: list[pytest.TestReport] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    REPORTS.append(report)


def pytest_runtestloop(session: pytest.Session) -> bool:
    job = json.loads(Path(os.environ["MUTANTS_JOB"]).read_text(encoding="utf-8"))
    MutantRun(session, job).run()
    return True


class NoItem:
    """Stands for a next test that shares only the session, so that other fixtures end."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session

    def listchain(self) -> list[pytest.Session]:
        return [self._session]


class MutantRun:
    """Runs the mutants of a job with the collected tests."""

    def __init__(self, session: pytest.Session, job: dict[str, Any]) -> None:
        self._session, self._job = session, job
        self._out, self._switch = Path(job["out"]), Path(job["switch"])
        self._state = json.loads(self._out.read_text(encoding="utf-8"))
        self._no_item = cast(pytest.Item, NoItem(session))
        self._items = {item.nodeid: item for item in session.items}
        fixtures = {test: fixtures_of(item) for test, item in self._items.items()}
        self._scopes = {t: {n: f.scope for n, f in fs.items()} for t, fs in fixtures.items()}
        self._session_fixtures = {
            n: f for fs in fixtures.values() for n, f in fs.items() if f.scope == "session"
        }
        for test, item in self._items.items():
            seconds = max(SECONDS_OF_TEST, 4 * self._seconds(test))
            item.add_marker(pytest.mark.timeout(seconds, method="signal"), append=False)
        self._by_file: dict[str, list[str]] = defaultdict(list)
        for name in self._items:
            self._by_file[name.partition("::")[0]].append(name)
        self._slowest = {
            file: max(map(self._seconds, names)) for file, names in self._by_file.items()
        }

    def run(self) -> None:
        for mutant in self._job["mutants"]:
            started = time.monotonic()
            result = self._run_mutant(mutant)
            result["seconds"] = round(time.monotonic() - started, 1)
            self._state["results"][mutant["id"]] = result
            self._state["current"] = None
            self._write()
            print(f"\n{mutant['id']} {mutant['file']}:{mutant['line']} {result}", flush=True)
            if not self._is_spark_usable():
                self._exit(NO_SPARK)

    def _run_mutant(self, mutant: dict[str, Any]) -> dict[str, Any]:
        is_fresh = bool(self._job.get("fresh"))
        tests = self._tests(mutant)[: FRESH_TESTS if is_fresh else None]
        if not tests:
            return {"status": "no test"}
        deadline = time.monotonic() + self._job["seconds"]
        self._clear()
        self._activate(mutant["number"])
        result: dict[str, Any] = {"status": "survived", "tests": len(tests)}
        for n, test in enumerate(tests):
            if time.monotonic() > deadline:
                result["left"] = len(tests) - n
                break
            had_spark, before = self._spark() is not None, time.monotonic()
            status = self._run_test(mutant, test, tests[n + 1] if n + 1 < len(tests) else None)
            if self._spark() is not None and not had_spark:  # its start takes half a minute
                deadline += time.monotonic() - before
            if status == "passed":
                continue
            if is_fresh or self._passes_without_mutant(mutant, test):
                result = {"status": status, "by": test, "tests": n + 1}
                break
            self._activate(mutant["number"])
        self._clear()
        return result | ({"fresh": True} if is_fresh else {})

    def _passes_without_mutant(self, mutant: dict[str, Any], test: str) -> bool:
        """Return whether a test passes; exclude it if it fails in two processes."""
        self._clear()
        if self._is_spark_usable() and self._run_test(mutant, test, None) == "passed":
            return True
        if self._is_spark_usable():
            suspects = self._state["suspects"]
            suspects[test] = suspects.get(test, 0) + 1
            if suspects[test] >= 2:
                self._state["excluded"].append(test)
                self._clear()
                return False
            self._exit(RESTART)
        self._exit(NO_SPARK)
        return False

    def _run_test(self, mutant: dict[str, Any], test: str, following: str | None) -> str:
        self._state["current"] = {"id": mutant["id"], "test": test}
        self._write()
        item = self._items[test]
        REPORTS.clear()
        next_item = self._items[following] if following else self._no_item
        item.ihook.pytest_runtest_protocol(item=item, nextitem=next_item)
        self._session.testsfailed = 0
        failed = [report for report in REPORTS if report.failed]
        is_timeout = any("Failed: Timeout" in report.longreprtext for report in failed)
        return ("timeout" if is_timeout else "caught") if failed else "passed"

    def _tests(self, mutant: dict[str, Any]) -> list[str]:
        """Return the tests that execute a mutant, quickest first, those of its module earlier.

        The set-up of a shared fixture belongs to all tests that use it.
        """
        tests = set()
        for context in mutant["contexts"]:
            test, _, phase = context.rpartition("|")
            tests.add(test)
            shared = self._scopes.get(test, {}) if phase == "setup" else {}
            is_of_module = "module" in shared.values()
            tests |= set(self._by_file[test.partition("::")[0]] if is_of_module else ())
            session_wide = {name for name, scope in shared.items() if scope == "session"}
            session_wide -= WITHOUT_MEDALLION
            tests |= {t for t, names in self._scopes.items() if session_wide & names.keys()}
        likely = f"test_{Path(mutant['file']).stem}.py"
        if self._job.get("fresh"):  # code at import has no context
            tests |= {test for test in self._items if f"/{likely}::" in test}
        usable = (tests & self._items.keys()) - set(self._state["excluded"])
        cost = {test: self._cost(test) / (8 if f"/{likely}::" in test else 1) for test in usable}
        # By powers of two, so that tests of one file share its fixtures.
        return sorted(
            usable, key=lambda t: (int(cost[t] * 4).bit_length(), t.partition("::")[0], cost[t], t)
        )

    def _cost(self, test: str) -> float:
        """Return the seconds of a test, with its module's fixtures."""
        is_alone = "module" not in self._scopes[test].values()
        return self._seconds(test) if is_alone else self._slowest[test.partition("::")[0]]

    def _seconds(self, test: str) -> float:
        return float(self._job["durations"].get(test, SECONDS_OF_UNKNOWN_TEST))

    def _activate(self, number: int) -> None:
        with self._switch.open("r+b") as file:
            file.write(number.to_bytes(4, sys.byteorder))

    def _clear(self) -> None:
        """Deactivate the mutant; forget all fixtures but `spark`, queries and caches."""
        if not self._job.get("fresh"):
            self._activate(0)
        with suppress(BaseException):
            self._session._setupstate.teardown_exact(self._no_item)
        request = cast(Any, SimpleNamespace(node=self._session))
        for name, fixture in self._session_fixtures.items():
            if name not in KEPT:
                with suppress(Exception):
                    fixture.finish(request)
        if spark := self._spark():
            with suppress(Exception):
                for query in spark.streams.active:
                    query.stop()
                spark.catalog.clearCache()
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] in ("medallion", "tests"):
                for value in list(vars(module).values()):
                    clear = getattr(value, "cache_clear", None)
                    if callable(clear):
                        clear()

    def _spark(self) -> Any:
        """Return the Spark session; None if it has not started, or failed."""
        result = getattr(self._session_fixtures.get("spark"), "cached_result", None)
        return result[0] if result else None

    def _is_spark_usable(self) -> bool:
        """Return whether the Spark session runs, or has not started."""
        result = getattr(self._session_fixtures.get("spark"), "cached_result", None)
        try:
            return not result or not result[0].sparkContext._jsc.sc().isStopped()
        except Exception:
            return False

    def _write(self) -> None:
        text = json.dumps(self._state, indent=1) + "\n"
        partial = self._out.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(self._out)

    def _exit(self, status: int) -> None:
        """End the process at once; the parent starts another for the rest."""
        self._write()
        sys.stdout.flush()
        os._exit(status)


def fixtures_of(item: pytest.Item) -> dict[str, Any]:
    """Return the fixtures that a test uses, without pytest's own."""
    info = getattr(item, "_fixtureinfo", None)
    fixtures = {name: found[-1] for name, found in info.name2fixturedefs.items()} if info else {}
    return {n: f for n, f in fixtures.items() if not f.func.__module__.startswith("_pytest")}
