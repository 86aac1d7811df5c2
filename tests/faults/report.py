"""The counts of faults and repairs, as the tables of docs/faults.md and docs/fault-sites.md."""

from __future__ import annotations

import os
import platform
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

import pyspark

from tests.support import PROJECT


def made_by(seed: int) -> str:
    """Return the seed, the commit, the day, the machine and its versions, for a page."""
    asked = ["git", "-C", str(PROJECT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True).stdout.strip() or "unknown"
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    by = f"{datetime.now(UTC):%Y-%m-%d}, {machine}, Spark {pyspark.__version__}"
    return f"Seed {seed}, commit {commit}, {by}"


@dataclass
class Results:
    """Counts of a walk. A fault is survived if the next run without faults has correct tables."""

    steps: int = 0
    checks: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    survived: Counter[str] = field(default_factory=Counter)
    sites: dict[str, set[str]] = field(default_factory=dict)  # by the command that writes there
    killed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    remedies: Counter[str] = field(default_factory=Counter)

    def of_a_world(self) -> Results:
        """Return results for one more lakehouse that share the known writes."""
        return Results(sites=self.sites, killed=self.killed, failed=self.failed)

    def add(self, world: Results) -> None:
        """Add the results of one lakehouse."""
        self.steps += world.steps
        self.checks += world.checks
        for ours, its in (
            (self.faults, world.faults),
            (self.survived, world.survived),
            (self.remedies, world.remedies),
        ):
            ours.update(its)

    def fault(self, what: str) -> None:
        """Count a fault."""
        self.faults[what] += 1

    def settle(self) -> None:
        """Count all faults so far as survived."""
        self.survived = Counter(self.faults)

    def strike(self, site: str, is_kill: bool) -> None:
        """Count a write that was prevented."""
        (self.killed if is_kill else self.failed)[site] += 1

    def sites_of(self, command: str, sites: list[str]) -> None:
        """Record the writes of a command."""
        self.sites.setdefault(command, set()).update(sites)

    def output(self, sentence: str) -> None:
        """Count a refusal whose message named the command that repaired it."""
        words = sentence.partition("medallion refresh")
        self.remedies["medallion refresh" if words[1] else "medallion run"] += 1

    def next_write(self, random: Random) -> dict[str, Any]:
        """Return at which write to strike: most often at a site that had no fault yet."""
        if random.random() < 0.2:
            return {"nth": random.randint(1, 30)}
        return {"nth": random.randint(1, 8), "but": sorted({*self.killed, *self.failed})}

    def lines(self) -> list[str]:
        """Return the results in Markdown."""
        rows = [f"| {what} | {n} | {self.survived[what]} |" for what, n in _sorted(self.faults)]
        everywhere = sorted(set[str]().union(*self.sites.values()))
        points = [f"| `{s}` | {self.killed[s]} | {self.failed[s]} |" for s in everywhere]
        hit = [site for site in everywhere if self.killed[site] + self.failed[site]]
        return [
            f"{self.steps} steps, {self.checks} runs without faults, whose tables were "
            f"compared with the landed lines; {self.remedies.total()} refusals named a command, "
            "and that command repaired it.",
            "",
            "| fault | times | repaired, nothing lost |",
            "| --- | --- | --- |",
            *rows,
            "",
            f"The code wrote at {len(everywhere)} places. {len(hit)} of them had a fault, "
            f"{sum(map(bool, map(self.killed.get, everywhere)))} of these a killed process.",
            "",
            "| before this write | killed | failed |",
            "| --- | --- | --- |",
            *points,
        ]


def _sorted(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items())
