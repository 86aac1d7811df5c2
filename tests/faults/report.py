"""What was tried and how often, as the table of docs/faults.md."""

from __future__ import annotations

import os
import platform
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

import pyspark

from tests.support import PROJECT


def made_by(seed: int) -> str:
    """What a page's figures are of: the seed, the commit, the day, the machine and its versions."""
    asked = ["git", "-C", str(PROJECT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True).stdout.strip() or "unknown"
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    by = f"{datetime.now(UTC):%Y-%m-%d}, {machine}, Spark {pyspark.__version__}"
    return f"Seed {seed}, commit {commit}, {by}"


@dataclass
class Results:
    """Counts of a walk. A fault is counted as survived once an undisturbed run came out right."""

    steps: int = 0
    checks: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    survived: Counter[str] = field(default_factory=Counter)
    sites: dict[str, set[str]] = field(default_factory=dict)  # by the command that writes there
    killed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    remedies: Counter[str] = field(default_factory=Counter)

    def of_a_world(self) -> Results:
        """The results of one lakehouse, which knows the writes that were seen in the others."""
        return Results(sites=self.sites, killed=self.killed, failed=self.failed)

    def add(self, world: Results) -> None:
        """Put those of one lakehouse to the others'."""
        self.steps += world.steps
        self.checks += world.checks
        for ours, its in (
            (self.faults, world.faults),
            (self.survived, world.survived),
            (self.remedies, world.remedies),
        ):
            ours.update(its)

    def fault(self, what: str) -> None:
        """A fault befell the lakehouse."""
        self.faults[what] += 1

    def settle(self) -> None:
        """All that happened so far has been made good."""
        self.survived = Counter(self.faults)

    def strike(self, site: str, is_kill: bool) -> None:
        """A write was kept from happening."""
        (self.killed if is_kill else self.failed)[site] += 1

    def sites_of(self, command: str, sites: list[str]) -> None:
        """The writes that a command made."""
        self.sites.setdefault(command, set()).update(sites)

    def output(self, sentence: str) -> None:
        """A run was refused in a sentence that named a command, and the command helped."""
        words = sentence.partition("medallion refresh")
        self.remedies["medallion refresh" if words[1] else "medallion run"] += 1

    def next_site(self, random: Random, command: str) -> tuple[str | None, int]:
        """A write to strike at: one of the command's that was hit least; at first any."""
        known = sorted(self.sites.get(command, ()))
        if not known or random.random() < 0.2:
            return None, random.randint(1, 30)
        hits = {site: self.killed[site] + self.failed[site] for site in known}
        least = min(hits.values())
        return random.choice([site for site in known if hits[site] == least]), random.randint(1, 2)

    def lines(self) -> list[str]:
        """The results in Markdown."""
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
            f"Between two writes: {len(everywhere)} places at which the code writes were seen, "
            f"{len(hit)} of them struck, at {sum(map(bool, map(self.killed.get, everywhere)))} a "
            "process killed.",
            "",
            "| before this write | killed | failed |",
            "| --- | --- | --- |",
            *points,
        ]


def _sorted(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items())
