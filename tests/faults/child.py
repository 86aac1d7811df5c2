"""A worker process that can be killed, and whose disk or limits can be restricted."""

from __future__ import annotations

import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from tests.faults import disk
from tests.faults.actions import Outcome
from tests.support import PROJECT

READ_ONLY = "read-only disk"
_LONGEST = 400.0  # seconds; a longer step counts as hung
_LIMITS = {"file too large": resource.RLIMIT_FSIZE, "no open files": resource.RLIMIT_NOFILE}


class Child:
    """Runs steps in a worker, and starts a new one after a kill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.starts = 0
        # Outside the directory, whose disk may be full or read-only.
        self._note, self._log = (folder.with_suffix(end) for end in (".note", ".log"))
        self._process: subprocess.Popen[bytes] | None = None
        self._java = 0

    def __call__(self, step: Mapping[str, Any]) -> Outcome:
        """Run one step; it contains the paths `conf` and `root`."""
        process = self._process or self._start()
        self._note.unlink(missing_ok=True)
        assert process.stdin is not None
        squeeze = step.get("squeeze")
        with self._disturbed(squeeze, process.pid, Path(step["root"])):
            process.stdin.write(json.dumps({**step, "note": str(self._note)}).encode() + b"\n")
            process.stdin.flush()
            answer = self._answer(step.get("kill_after", _LONGEST))
        if answer is None:
            self.kill()
            if self._note.exists():
                return Outcome("killed", struck=self._note.read_text())
            how = "killed" if "kill_after" in step else "hung"
            return Outcome(how, "" if how == "killed" else f"no answer in {_LONGEST} seconds")
        outcome = Outcome(**answer)
        if squeeze and outcome.how == "crashed":
            self.kill()
        return outcome

    def _disturbed(self, squeeze: str | None, pid: int, root: Path) -> AbstractContextManager[None]:
        if squeeze is None:
            return nullcontext()
        if squeeze == READ_ONLY:
            return disk.read_only(self.folder)
        return _squeezed(squeeze, [pid, self._java], root)

    def kill(self) -> None:
        """Kill the worker and its JVM, as a power cut would."""
        if self._process:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        log = self._log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.worker"],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # a limit on file sizes must not affect the log
            start_new_session=True,
        )
        threading.Thread(target=_copy, args=(self._process.stderr, log), daemon=True).start()
        greeting = self._answer(_LONGEST)
        if greeting is None:
            raise RuntimeError(f"no session: see {log.name}")
        self._java = int(greeting["java"])
        return self._process

    def _answer(self, seconds: float) -> Any:
        """Return the next line of JSON, or None if the process ends or the time is up."""
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline() if ready else b""
        return json.loads(line) if line.strip() else None


def _copy(stream: Any, log: Any) -> None:
    for line in stream:
        log.write(line)
        log.flush()


class _squeezed(AbstractContextManager[None]):
    """Restrict the disk or the limits for a moment within a step."""

    def __init__(self, restriction: str, pids: list[int], root: Path) -> None:
        self.restriction, self.pids, self.folder = restriction, pids, root.parent
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._squeeze, daemon=True)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *raised: object) -> None:
        self.is_over.set()
        self.thread.join()

    def _squeeze(self) -> None:
        self.is_over.wait(random.uniform(0, 4))
        if self.restriction == "disk full":
            with disk.full(self.folder):
                self.is_over.wait(random.uniform(1, 5))
            return
        limit = _LIMITS[self.restriction]
        original = {}
        for pid in self.pids:
            with suppress(ProcessLookupError):
                original[pid] = resource.prlimit(pid, limit)
                resource.prlimit(pid, limit, (random.choice((1, 300)), original[pid][1]))
        self.is_over.wait(random.uniform(0.5, 4))
        for pid, limits in original.items():
            with suppress(ProcessLookupError):
                resource.prlimit(pid, limit, limits)
