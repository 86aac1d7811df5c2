"""The walk: steps and faults drawn from a seed, and an undisturbed run after every few."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults import damage
from tests.faults.actions import Outcome
from tests.faults.check import differences
from tests.faults.report import Results
from tests.faults.world import World

Act = Callable[[Mapping[str, Any]], Outcome]
_REMEDY = re.compile(r"medallion (refresh|run|erase|nightly)\b ?([a-z_.]*)")
_ERRNOS = ("ENOSPC", "EIO", "EACCES", "EROFS")
_TRIES = 8
_ASKED_AGAIN = ("backfill", "replay", "erase")


class LostError(AssertionError):
    """Rows were lost, or counted wrongly, or nobody was told what to do."""


@dataclass
class Walk:
    """One lakehouse, from empty on; `act` does a step here or in another process."""

    world: World
    conf: Path
    act: Act
    results: Results
    can_kill: bool = False
    can_fill: bool = False  # the root is on a small disk of its own
    every: int = 4
    is_aimed: bool = False  # processes are killed, wherever none was yet that wrote there
    commands: tuple[str, ...] = (
        "layers",
        "run",
        "refresh",
        "backfill",
        "stream",
        "maintain",
        "erase",
        "replay",
    )
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root, self.random = self.world.root, self.world.random
        self.clock = 0
        self.asked: list[dict[str, Any]] = []  # steps that were interrupted: users ask again

    def go(self, steps: int) -> None:
        """So many steps; raises LostError where something is not as it must be."""
        for number in range(1, steps + 1):
            self._step()
            if number % self.every == 0 or number == steps:
                self.rest()

    def _step(self) -> None:
        self.results.steps += 1
        for _ in range(self.random.randint(0, 3)):
            self.world.land()
        draw = self.random.random() * (0.35 if self.is_aimed else 1)  # what few runs write
        if draw < 0.03 and (rule := self.world.loosen()):
            damage.write_suites(self.conf, self.world)
            self.asked += [{"do": "replay", "with": {"source": self.world.sources[0]}}]
            self._note("rule edited", rule)
        elif draw < 0.06:
            self._note("conf edited", damage.edit(self.conf, self.world))
        elif draw < 0.12 and self.world.land_namesake():
            self._note("another file under a known name")
        elif draw < 0.22:
            kind, query = self.random.choice(damage.TEARS), self.random.choice(self.world.queries)
            if torn := damage.tear(self.root, self.random, kind, query):
                self._note(f"{kind}: {query.partition('.')[0]}", torn)
        elif draw < 0.28:
            self.clock = self.random.choice((0, -7200, -30, 5400))
            self._note("clock stepped", str(self.clock))
        if self.is_aimed:
            self._do_and_note(self._command(), self._aim())
        else:
            self._disturb(self._command())

    def _aim(self) -> dict[str, Any]:
        """Kill before the first write at a site where no process was killed yet."""
        return {"how": "kill", "nth": 1, "but": sorted(self.results.killed)}

    def _command(self) -> dict[str, Any]:
        do = self.random.choice(self.commands)
        if do == "erase" and any(step["do"] == "backfill" for step in self.asked):
            do = "layers"  # the file may have rows that would come after the erasure
        given: dict[str, Any] = {}
        if do == "run":
            given = {"layer": self.random.choice(("bronze", "silver", "gold", "publish"))}
        elif do == "refresh":
            given = {"table": self.random.choice(self._refreshed)}
        elif do == "backfill":
            source, path = self.world.land_elsewhere()
            given = {"source": source, "path": str(path)}
        elif do == "stream":
            number = self.random.choice((signal.SIGTERM, signal.SIGINT))
            given = {"seconds": self.random.uniform(2, 8), "number": int(number)}
        elif do == "erase":
            given = self._erasure()
        elif do == "replay":
            given = {"source": self.random.choice(self.world.sources)}
        if do in _ASKED_AGAIN:
            self.asked.append({"do": do, "with": given})
        return {"do": do, "with": given, "clock": self.clock}

    @property
    def _refreshed(self) -> list[str]:
        return [name for name in self.world.queries if not name.startswith("bronze.")]

    def _erasure(self) -> dict[str, str]:
        source = self.random.choice(self.world.sources)
        key = self.random.choice([*self.world.keys(source), "nobody"])
        condition = self.world.key_condition(source, key)
        return {"source": source, "key": key, "condition": condition}

    def _disturb(self, step: dict[str, Any]) -> None:
        """Do a step, most often with a fault of its own."""
        draw = self.random.random()
        fault, strike = None, None
        if draw < 0.4:
            how = self.random.choice(_ERRNOS)
            if self.can_kill and draw < 0.2:
                how = "kill"
            strike = {"how": how, **self.results.next_write(self.random)}
        elif self.can_kill and draw < 0.55:
            step["kill_after"] = self.random.uniform(0.1, 6)
            fault = "kill -9 at a random moment"
        elif self.can_kill and draw < 0.65:
            kinds = ["no open files", "file too large"]
            kinds += ["disk full", "read-only disk"] if self.can_fill else []
            fault = step["squeeze"] = self.random.choice(kinds)
        self._do_and_note(step, strike, fault)

    def _do_and_note(
        self, step: dict[str, Any], strike: dict[str, Any] | None = None, fault: str | None = None
    ) -> Outcome:
        """Do a step; a crash that no fault explains is a finding."""
        if strike:
            step["strike"], fault = strike, strike["how"]
        outcome = self._do(step)
        if outcome.struck:
            self.results.strike(outcome.struck, fault == "kill")
            self._note(f"{fault} at a write" if fault != "kill" else "kill -9 at a write")
        elif "squeeze" in step or outcome.how == "killed":
            self._note(str(fault))
        was_hit = outcome.struck or "kill_after" in step or "squeeze" in step
        if outcome.how == "hung" or (outcome.how == "crashed" and not was_hit):
            raise LostError(self._with_log(f"{step} crashed: {outcome.output}"))
        return outcome

    def rest(self) -> None:
        """One undisturbed run, with what the messages of refusals ask for; then the comparison."""
        self.clock = 0
        for _ in range(_TRIES):
            outcome = self._undisturbed()
            if outcome.how == "done":
                break
            self._follow(outcome)
        else:
            raise LostError(self._with_log(f"it does not come to rest: {outcome.output}"))
        found = differences(self.world)
        if found:
            raise LostError(self._with_log("; ".join(found)))
        audit = self._do({"do": "audit"})
        if audit.how != "done":
            raise LostError(self._with_log(f"the tables are right, and audit says: {audit.output}"))
        self.results.checks += 1
        self.results.settle()

    def _undisturbed(self) -> Outcome:
        """Do what was asked, an erasure after all rows have arrived, and run all layers."""
        backfills, replays, erasures = (
            [step for step in self.asked if step["do"] == command] for command in _ASKED_AGAIN
        )
        if replays:
            replays.append({"do": "layers"})
        for step in (*backfills, {"do": "layers"}, *replays, *erasures):
            if step["do"] == "erase":  # it needs all rows, validated
                self._to_its_end({"do": "nightly"})
                self._disturb(dict(step))
                if step not in self.asked:
                    continue
            outcome = self._to_its_end(step)
            if outcome.how != "done":
                return outcome
        return outcome

    def _to_its_end(self, step: dict[str, Any]) -> Outcome:
        """Do a step undisturbed; an aimed walk, once no process is killed any more."""
        while self.is_aimed:
            outcome = self._do_and_note(dict(step), self._aim())
            if not outcome.struck:
                return outcome
        return self._do(step)

    def _follow(self, outcome: Outcome) -> None:
        """Do as the sentence says."""
        remedy = _REMEDY.search(outcome.output)
        if outcome.how != "refused":
            raise LostError(self._with_log(f"an undisturbed run {outcome.how}: {outcome.output}"))
        if not remedy:
            raise LostError(self._with_log(f"no remedy is named: {outcome.output}"))
        self.results.output(outcome.output)
        verb, what = remedy.groups()
        given = {"refresh": {"table": what.rstrip(".")}, "run": {"layer": what}}
        self._to_its_end({"do": verb, "with": given.get(verb, {})})

    def _do(self, step: dict[str, Any]) -> Outcome:
        outcome = self.act(step)
        self.results.sites_of(step["do"], [*outcome.sites, *filter(None, [outcome.struck])])
        if outcome.how == "done" and step["do"] in _ASKED_AGAIN and step["with"]:
            if step["do"] == "erase":
                self.world.erase(step["with"]["source"], step["with"]["key"])
            self.asked.remove({"do": step["do"], "with": step["with"]})
        asked = {key: value for key, value in step.items() if key != "strike"}
        self.log.append(f"{asked} -> {outcome.how} {outcome.struck or ''} {outcome.output[:300]}")
        return outcome

    def _note(self, fault: str, what: str = "") -> None:
        self.results.fault(fault)
        self.log.append(f"{fault} {what}")

    def _with_log(self, what: str) -> str:
        return "\n".join([what, "The last steps:", *self.log[-25:]])
