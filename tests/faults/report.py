"""Counts of faults and repairs, as the tables of docs/faults.md and docs/fault-sites.md."""

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


def provenance(seed: int) -> str:
    """Return seed, commit, day, machine and versions for a report."""
    command = ["git", "-C", str(PROJECT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    details = f"{datetime.now(UTC):%Y-%m-%d}, {machine}, Spark {pyspark.__version__}"
    return f"Seed {seed}, commit {commit}, {details}"


@dataclass
class Results:
    """Counts of a walk; a fault is survived if the next run without faults has correct tables."""

    steps: int = 0
    checks: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    survived: Counter[str] = field(default_factory=Counter)
    sites: dict[str, set[str]] = field(default_factory=dict)  # by the command that writes there
    killed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    remedies: Counter[str] = field(default_factory=Counter)

    def for_world(self) -> Results:
        """Return results for one more lakehouse that share the known write sites."""
        return Results(sites=self.sites, killed=self.killed, failed=self.failed)

    def add(self, world: Results) -> None:
        """Add the results of one lakehouse."""
        self.steps += world.steps
        self.checks += world.checks
        for total, added in (
            (self.faults, world.faults),
            (self.survived, world.survived),
            (self.remedies, world.remedies),
        ):
            total.update(added)

    def add_fault(self, fault: str) -> None:
        """Count a fault."""
        self.faults[fault] += 1

    def count_survived(self) -> None:
        """Count all faults so far as survived."""
        self.survived = Counter(self.faults)

    def add_strike(self, site: str, is_kill: bool) -> None:
        """Count a prevented write."""
        (self.killed if is_kill else self.failed)[site] += 1

    def add_sites(self, command: str, sites: list[str]) -> None:
        """Record the write sites of a command."""
        self.sites.setdefault(command, set()).update(sites)

    def add_remedy(self, message: str) -> None:
        """Count a refusal whose message named the command that repaired it."""
        words = message.partition("medallion refresh")
        self.remedies["medallion refresh" if words[1] else "medallion run"] += 1

    def next_write(self, random: Random) -> dict[str, Any]:
        """Return which write to prevent: usually at a site that had no fault yet."""
        if random.random() < 0.2:
            return {"nth": random.randint(1, 30)}
        return {"nth": random.randint(1, 8), "but": sorted({*self.killed, *self.failed})}

    def lines(self) -> list[str]:
        """Return the results in Markdown."""
        rows = [f"| {fault} | {n} | {self.survived[fault]} |" for fault, n in _sorted(self.faults)]
        sites = sorted(set[str]().union(*self.sites.values()))
        points = [f"| `{s}` | {self.killed[s]} | {self.failed[s]} |" for s in sites]
        hit = [site for site in sites if self.killed[site] + self.failed[site]]
        return [
            f"{self.steps} steps, {self.checks} runs without faults, whose tables were "
            f"compared with the landed lines; {self.remedies.total()} refusals named a command, "
            "and that command repaired it.",
            "",
            "| fault | times | repaired, nothing lost |",
            "| --- | --- | --- |",
            *rows,
            "",
            f"The code wrote at {len(sites)} places. {len(hit)} of them had a fault, "
            f"{sum(map(bool, map(self.killed.get, sites)))} of these a killed process.",
            "",
            "| before this write | killed | failed |",
            "| --- | --- | --- |",
            *points,
        ]


def _sorted(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items())
