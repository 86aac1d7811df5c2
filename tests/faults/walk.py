"""The walk: random steps and faults from a seed, and an undisturbed run after every few."""

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
_REMEDY = re.compile(r"medallion (refresh|run|erase|nightly|apply)\b ?([a-z_.]*)")
_ERRNOS = ("ENOSPC", "EIO", "EACCES", "EROFS")
_TRIES = 8
_REPEATED = ("backfill", "replay", "erase")


class LostError(AssertionError):
    """Rows were lost or counted wrongly, or a message named no remedy."""


@dataclass
class Walk:
    """A walk over one lakehouse, initially empty; `act` runs a step here or in another process."""

    world: World
    conf: Path
    act: Act
    results: Results
    can_kill: bool = False
    can_fill: bool = False  # the root is on a separate small disk
    every: int = 4
    is_aimed: bool = False  # kill processes at write sites that had no kill yet
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
        self.interrupted: list[dict[str, Any]] = []  # interrupted steps, which users repeat

    def run_steps(self, steps: int) -> None:
        """Run this many steps; raise `LostError` if the lakehouse is incorrect."""
        for number in range(1, steps + 1):
            self._step()
            if number % self.every == 0 or number == steps:
                self.check_at_rest()

    def _step(self) -> None:
        self.results.steps += 1
        for _ in range(self.random.randint(0, 3)):
            self.world.land()
        # These cause writes that few runs do.
        draw = self.random.random() * (0.35 if self.is_aimed else 1)
        if draw < 0.03 and (rule := self.world.relax()):
            damage.write_suites(self.conf, self.world)
            self.interrupted += [{"do": "replay", "with": {"source": self.world.sources[0]}}]
            self._note("rule edited", rule)
        elif draw < 0.06:
            self._note("conf edited", damage.edit(self.conf, self.world))
        elif draw < 0.12 and self.world.land_name_collision():
            self._note("another file under a known name")
        elif draw < 0.22:
            damage_type, query = (
                self.random.choice(damage.DAMAGE_TYPES),
                self.random.choice(self.world.queries),
            )
            if damaged_file := damage.damage_checkpoint(self.root, self.random, damage_type, query):
                self._note(f"{damage_type}: {query.partition('.')[0]}", damaged_file)
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
        if do == "erase" and any(step["do"] == "backfill" for step in self.interrupted):
            do = "layers"  # the file may have rows of the key that would arrive after the erasure
        arguments: dict[str, Any] = {}
        if do == "run":
            arguments = {"layer": self.random.choice(("bronze", "silver", "gold", "publish"))}
        elif do == "refresh":
            arguments = {"table": self.random.choice(self._refreshed)}
        elif do == "backfill":
            source, path = self.world.land_elsewhere()
            arguments = {"source": source, "path": str(path)}
        elif do == "stream":
            number = self.random.choice((signal.SIGTERM, signal.SIGINT))
            arguments = {"seconds": self.random.uniform(2, 8), "number": int(number)}
        elif do == "erase":
            arguments = self._erasure()
        elif do == "replay":
            arguments = {"source": self.random.choice(self.world.sources)}
        if do in _REPEATED:
            self.interrupted.append({"do": do, "with": arguments})
        return {"do": do, "with": arguments, "clock": self.clock}

    @property
    def _refreshed(self) -> list[str]:
        return [name for name in self.world.queries if not name.startswith("bronze.")]

    def _erasure(self) -> dict[str, str]:
        source = self.random.choice(self.world.sources)
        key = self.random.choice([*self.world.keys(source), "nobody"])
        condition = self.world.key_condition(source, key)
        return {"source": source, "key": key, "condition": condition}

    def _disturb(self, step: dict[str, Any]) -> None:
        """Run a step, usually with a fault."""
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
            restrictions = ["no open files", "file too large"]
            restrictions += ["disk full", "read-only disk"] if self.can_fill else []
            fault = step["squeeze"] = self.random.choice(restrictions)
        self._do_and_note(step, strike, fault)

    def _do_and_note(
        self, step: dict[str, Any], strike: dict[str, Any] | None = None, fault: str | None = None
    ) -> Outcome:
        """Run a step; raise `LostError` for a crash that no fault explains."""
        if strike:
            step["strike"], fault = strike, strike["how"]
        outcome = self._do(step)
        if outcome.struck:
            self.results.add_strike(outcome.struck, fault == "kill")
            self._note(f"{fault} at a write" if fault != "kill" else "kill -9 at a write")
        elif "squeeze" in step or outcome.how == "killed":
            self._note(str(fault))
        was_hit = outcome.struck or "kill_after" in step or "squeeze" in step
        if outcome.how == "hung" or (outcome.how == "crashed" and not was_hit):
            raise LostError(self._with_log(f"{step} crashed: {outcome.output}"))
        return outcome

    def check_at_rest(self) -> None:
        """Run without faults, follow the remedies of refusals, then compare the tables."""
        self.clock = 0
        for _ in range(_TRIES):
            outcome = self._undisturbed()
            if outcome.how == "done":
                break
            self._apply_remedy(outcome)
        else:
            raise LostError(self._with_log(f"remedies do not converge: {outcome.output}"))
        output = differences(self.world)
        if output:
            raise LostError(self._with_log("; ".join(output)))
        audit = self._do({"do": "audit"})
        if audit.how != "done":
            raise LostError(self._with_log(f"the tables are right, and audit says: {audit.output}"))
        self.results.checks += 1
        self.results.count_survived()

    def _undisturbed(self) -> Outcome:
        """Repeat interrupted steps, erasures last, and run all layers."""
        backfills, replays, erasures = (
            [step for step in self.interrupted if step["do"] == command] for command in _REPEATED
        )
        if replays:
            replays.append({"do": "layers"})
        for step in (*backfills, {"do": "layers"}, *replays, *erasures):
            if step["do"] == "erase":  # it needs all rows, validated
                self._complete({"do": "nightly"})
                self._disturb(dict(step))
                if step not in self.interrupted:
                    continue
            outcome = self._complete(step)
            if outcome.how != "done":
                return outcome
        return outcome

    def _complete(self, step: dict[str, Any]) -> Outcome:
        """Run a step undisturbed; an aimed walk first kills it at each remaining site."""
        while self.is_aimed:
            outcome = self._do_and_note(dict(step), self._aim())
            if not outcome.struck:
                return outcome
        return self._do(step)

    def _apply_remedy(self, outcome: Outcome) -> None:
        """Run the command that the message names."""
        remedy = _REMEDY.search(outcome.output)
        if outcome.how != "refused":
            raise LostError(self._with_log(f"an undisturbed run {outcome.how}: {outcome.output}"))
        if not remedy:
            raise LostError(self._with_log(f"no remedy is named: {outcome.output}"))
        self.results.add_remedy(outcome.output)
        verb, target = remedy.groups()
        arguments = {"refresh": {"table": target.rstrip(".")}, "run": {"layer": target}}
        self._complete({"do": verb, "with": arguments.get(verb, {})})

    def _do(self, step: dict[str, Any]) -> Outcome:
        outcome = self.act(step)
        self.results.add_sites(step["do"], [*outcome.sites, *filter(None, [outcome.struck])])
        if outcome.how == "done" and step["do"] in _REPEATED and step["with"]:
            if step["do"] == "erase":
                self.world.erase(step["with"]["source"], step["with"]["key"])
            self.interrupted.remove({"do": step["do"], "with": step["with"]})
        arguments = {key: value for key, value in step.items() if key != "strike"}
        self.log.append(
            f"{arguments} -> {outcome.how} {outcome.struck or ''} {outcome.output[:300]}"
        )
        return outcome

    def _note(self, fault: str, details: str = "") -> None:
        self.results.add_fault(fault)
        self.log.append(f"{fault} {details}")

    def _with_log(self, message: str) -> str:
        return "\n".join([message, "The last steps:", *self.log[-25:]])
