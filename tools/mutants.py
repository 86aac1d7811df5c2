"""Mutation tests: put small faults into src/medallion and report which of them the tests catch.

    python tools/mutants.py sample --coverage .coverage --seed 52 --out mutants.json
    python tools/mutants.py run --mutants mutants.json --coverage .coverage --out results.json
    python tools/mutants.py table before.json after.json

The coverage data needs a context for each test: `pytest --cov --cov-context=test`. `run` copies the
project, writes each mutant as a branch that a shared number selects (tools/mutants_faults.py), and
runs them one after the other in one pytest process (tools/mutants_plugin.py), so that Spark starts
once. The tests that execute the mutant's line run, quickest first, until one fails.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import random
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.mutants_faults import Mutant, find_mutants, with_switches

TOOLS = Path(__file__).resolve().parent
PACKAGE = "src/medallion"
IGNORED = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", ".coverage*", "*.log", "metastore_db"
)
SWITCH = '''"""The mutant that is active, in all processes that import this copy of the package."""

import mmap
from pathlib import Path

with Path(__file__).with_name("_mutant.bin").open("rb") as file:
    NUMBER = memoryview(mmap.mmap(file.fileno(), 4, access=mmap.ACCESS_READ)).cast("I")


def is_active(number: int) -> bool:
    return NUMBER[0] == number
'''
RESTART, NO_SPARK = 75, 76  # exit statuses of mutants_plugin.py
CAUGHT = ("caught", "timeout", "crash")
Contexts = dict[str, dict[int, set[str]]]


def read_coverage(paths: Iterable[Path]) -> Contexts:
    """Return the contexts that executed each line of each module."""
    contexts: Contexts = defaultdict(lambda: defaultdict(set))
    query = (
        "select path, context, numbits from line_bits join file on file.id = file_id"
        " join context on context.id = context_id"
    )
    for path in paths:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            for file, context, bits in database.execute(query):
                module = contexts[file.rpartition("src/medallion/")[2]]
                for index, byte in enumerate(bits):
                    for bit in range(8) if byte else ():
                        if byte & (1 << bit):
                            module[index * 8 + bit].add(context)
    return contexts


def covering(mutant: Mutant, contexts: Contexts) -> set[str]:
    """Return the contexts that execute a mutant; without any, those of its statement."""
    lines = contexts.get(mutant.file, {})
    return lines.get(mutant.line) or lines.get(mutant.statement_line) or set()


def all_mutants(root: Path) -> list[Mutant]:
    package = root / PACKAGE
    files = sorted(str(path.relative_to(package)) for path in package.rglob("*.py"))
    return [m for file in files for m in find_mutants(package, file)]


def sample(options: argparse.Namespace) -> None:
    """Draw mutants from covered lines, for each package in proportion to its statements."""
    contexts = read_coverage(options.coverage)
    candidates = all_mutants(options.root)
    covered = [m for m in candidates if covering(m, contexts) - {""}]
    uncovered: dict[str, list[int]] = defaultdict(list)
    for file, line in sorted(
        {(m.file, m.line) for m in candidates} - {(m.file, m.line) for m in covered}
    ):
        uncovered[file].append(line)
    chosen = draw(covered, options.count, random.Random(options.seed))
    document = {
        "seed": options.seed,
        "candidates": len(candidates),
        "covered": len(covered),
        "lines_without_test": uncovered,
        "mutants": [m.as_json() for m in chosen],
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    lines = sum(map(len, uncovered.values()))
    print(
        f"{len(chosen)} mutants of {len(covered)} possible ones on covered lines;"
        f" {len(candidates) - len(covered)} more on {lines} lines that no test executes"
    )
    print(dict(Counter(m.package for m in chosen)), dict(Counter(m.operator for m in chosen)))


def draw(candidates: list[Mutant], count: int, generator: random.Random) -> list[Mutant]:
    """Return mutants: at most one on a line and two in a function, operators evenly."""
    sizes = Counter(m.package for m in candidates for _ in {m.line})
    exact = {package: count * size / sizes.total() for package, size in sizes.items()}
    quotas = {package: int(share) for package, share in exact.items()}
    for package in sorted(exact, key=lambda p: quotas[p] - exact[p])[
        : count - sum(quotas.values())
    ]:
        quotas[package] += 1
    chosen: list[Mutant] = []
    for package, quota in sorted(quotas.items()):
        rest = defaultdict(list)
        for mutant in candidates:
            if mutant.package == package:
                rest[mutant.operator].append(mutant)
        used: Counter[tuple[object, ...]] = Counter()
        while quota and rest:
            names = sorted(rest)
            weights = [math.sqrt(len(rest[name])) for name in names]
            (operator,) = generator.choices(names, weights)
            mutant = rest[operator].pop(generator.randrange(len(rest[operator])))
            if not rest[operator]:
                del rest[operator]
            line, function = (mutant.file, mutant.line), (mutant.file, mutant.function, "")
            if not used[line] and used[function] < 2:
                used[line] += 1
                used[function] += 1
                quota -= 1
                chosen.append(mutant)
    return sorted(chosen, key=lambda m: (m.file, m.line))


def run(options: argparse.Namespace) -> None:
    """Run the tests of each mutant, in as few processes as possible."""
    wanted = json.loads(options.mutants.read_text(encoding="utf-8"))["mutants"]
    if options.only:
        wanted = [m for m in wanted if m["id"] in options.only.split(",")]
    if options.survivors:
        others = read_results(options.survivors)
        wanted = [m for m in wanted if others.get(m["id"], {}).get("status") not in CAUGHT]
    if options.shard:
        index, shards = map(int, options.shard.split("/"))
        wanted = wanted[index - 1 :: shards]
    in_tree = {m.id: m for m in all_mutants(options.root)}
    mutants = [in_tree[m["id"]] for m in wanted if m["id"] in in_tree]
    for missing in (m for m in wanted if m["id"] not in in_tree):
        print(f"not in this tree: {missing['id']} {missing['file']}:{missing['line']}")
    contexts = read_coverage(options.coverage)
    durations, failed = read_junit(options.junit)
    state: dict[str, Any] = {
        "results": {},
        "excluded": sorted(failed),
        "suspects": {},
        "current": None,
    }
    if options.out.exists():
        state |= json.loads(options.out.read_text(encoding="utf-8"))
    if options.assume:
        assume(state["results"], mutants, contexts, options)
    work = Path(tempfile.mkdtemp(prefix="mutants-"))
    work.chmod(0o755)  # some tests become another user
    try:
        tree = write_tree(options.root.resolve(), work / "project", mutants)
        jobs = [
            mutant.as_json() | {"number": n, "contexts": sorted(covering(mutant, contexts) - {""})}
            for n, mutant in enumerate(mutants, 1)
        ]
        fixed = {
            "durations": durations,
            "seconds": options.seconds_per_mutant,
            "arguments": shlex.split(options.pytest_args),
        }
        Processes(tree, work, options.out, state, fixed).run(jobs)
        is_import = {m.id for m in mutants if is_setup(covering(m, contexts), m)}
        survived = {i for i, r in state["results"].items() if r["status"] == "survived"}
        for job in jobs:
            if job["id"] in is_import & survived and not state["results"][job["id"]].get("fresh"):
                del state["results"][job["id"]]
                Processes(tree, work, options.out, state, fixed | {"fresh": True}).run([job])
    finally:
        shutil.rmtree(work, ignore_errors=True)


def is_setup(contexts: set[str], mutant: Mutant) -> bool:
    """Return whether a mutant's line runs at import or when the shared Spark session starts."""
    return "" in contexts or (
        mutant.package == "spark" and any(c.endswith("|setup") for c in contexts)
    )


def read_junit(paths: Iterable[Path]) -> tuple[dict[str, float], set[str]]:
    """Return the seconds of each test, and the tests that did not pass; later files count."""
    durations: dict[str, float] = {}
    failed: dict[str, bool] = {}
    for path in paths:
        for case in ElementTree.parse(path).iter("testcase"):
            if not (module := case.get("file")):
                continue
            package = module.removesuffix(".py").replace("/", ".")
            classes = case.get("classname", "").removeprefix(package).split(".")
            test = "::".join([module, *filter(None, classes), case.get("name", "")])
            durations[test] = float(case.get("time", 0))
            failed[test] = any(case.find(tag) is not None for tag in ("failure", "error"))
    return durations, {test for test, has_failed in failed.items() if has_failed}


def write_tree(root: Path, tree: Path, mutants: list[Mutant]) -> Path:
    """Copy a project, and write its modules with all mutants behind a switch."""
    shutil.copytree(root, tree, symlinks=True, ignore=IGNORED)
    (tree / ".venv").symlink_to((root / ".venv").resolve())
    package = tree / PACKAGE
    (package / "_mutant.py").write_text(SWITCH, encoding="utf-8")
    (package / "_mutant.bin").write_bytes(bytes(4))
    (package / "_mutant.bin").chmod(0o644)
    for file in sorted({m.file for m in mutants}):
        numbers = {m.id: n for n, m in enumerate(mutants, 1) if m.file == file}
        text = with_switches(package, file, numbers)
        (package / file).write_text(text, encoding="utf-8")
    return tree


class Processes:
    """Runs mutants in a pytest process, and in another one if it dies, hangs or asks for one."""

    def __init__(
        self, tree: Path, work: Path, out: Path, state: dict[str, Any], fixed: dict[str, Any]
    ) -> None:
        self._tree, self._work, self._out = tree, work, out
        self._state, self._fixed = state, fixed
        self._deaths: Counter[str] = Counter()

    def run(self, jobs: list[dict[str, Any]]) -> None:
        while pending := [job for job in jobs if job["id"] not in self._state["results"]]:
            self._state["current"] = None
            self._write()
            status = self._run_process(pending)
            self._state |= json.loads(self._out.read_text(encoding="utf-8"))
            current, fresh = self._state["current"], bool(self._fixed.get("fresh"))
            if status == 0:
                continue
            if status == RESTART or (status == NO_SPARK and not current):
                continue
            if not current and not fresh:
                log = (self._work / "log").read_text(encoding="utf-8", errors="replace")
                raise SystemExit(f"pytest ended with status {status}:\n{log[-3000:]}")
            current = current or {"id": pending[0]["id"], "test": "collection"}
            self._deaths[current["id"]] += 1
            if fresh or self._deaths[current["id"]] > 2 or status is None:
                result = {"status": "crash" if status else "timeout", "by": current["test"]}
                self._state["results"][current["id"]] = result | {"fresh": fresh}
        self._write()

    def _write(self) -> None:
        self._out.write_text(json.dumps(self._state, indent=1) + "\n", encoding="utf-8")

    def _run_process(self, jobs: list[dict[str, Any]]) -> int | None:
        """Return pytest's exit status; None if it stopped responding and was killed."""
        job = self._work / "job.json"
        is_fresh = bool(self._fixed.get("fresh"))
        switch = self._tree / PACKAGE / "_mutant.bin"
        switch.write_bytes((jobs[0]["number"] if is_fresh else 0).to_bytes(4, "little"))
        document = {"mutants": jobs, "out": str(self._out.resolve()), "switch": str(switch)}
        job.write_text(json.dumps(document | self._fixed), encoding="utf-8")
        path = f"{self._tree / 'src'}:{TOOLS}"
        command = [".venv/bin/python", "-m", "pytest", "-q", "-p", "mutants_plugin"]
        command += self._fixed["arguments"]
        command += ["-p", "no:cacheprovider", "-o", "tmp_path_retention_policy=failed"]
        command += ["--timeout=600", "--timeout-method=signal", f"--basetemp={self._work / 'tmp'}"]
        with (self._work / "log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                command,
                cwd=self._tree,
                env={**os.environ, "PYTHONPATH": path, "MUTANTS_JOB": str(job)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                while process.poll() is None:
                    time.sleep(1)
                    # The plugin writes before each test; pytest-timeout ends a test earlier.
                    if time.time() - max(job.stat().st_mtime, self._out.stat().st_mtime) > 600:
                        return None
                return process.returncode
            finally:  # also Java, the broker and processes that tests left
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def assume(
    results: dict[str, Any], mutants: list[Mutant], contexts: Contexts, options: argparse.Namespace
) -> None:
    """Take over "caught" from another tree, if the test is the same here and covers the line."""
    for mutant in mutants:
        other = read_results([options.assume]).get(mutant.id, {})
        test = other.get("by", "")
        is_covered = any(context.startswith(f"{test}|") for context in covering(mutant, contexts))
        if other.get("status") in CAUGHT and is_covered and mutant.id not in results:
            ours, theirs = (test_source(r, test) for r in (options.root, options.assume_root))
            if ours and ours == theirs:
                results[mutant.id] = other | {"assumed": True}


def test_source(root: Path, test: str) -> str | None:
    """Return the code of a test function, None if the tree does not have it."""
    file, _, name = test.partition("::")
    if not (root / file).is_file():
        return None
    name = name.partition("[")[0].rpartition("::")[2]
    text = (root / file).read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.unparse(node)
    return None


def read_results(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Return the results of all shards by mutant."""
    results: dict[str, dict[str, Any]] = {}
    for path in paths:
        results |= json.loads(path.read_text(encoding="utf-8"))["results"]
    return results


def table(options: argparse.Namespace) -> None:
    """Print counts by operator and package, and the survivors, as Markdown."""
    mutants = json.loads(options.mutants.read_text(encoding="utf-8"))["mutants"]
    suites = [read_results(map(Path, paths.split(","))) for paths in options.results]
    names = ["before", "after"] if len(suites) == 2 else [""]
    for group in ("operator", "package"):
        columns = [
            f"{c} {n}".strip() for n in names for c in ("caught", "survived", "timeouts", "not run")
        ]
        print(f"| {group} | mutants | {' | '.join(columns)} |")
        print("| --- |" + " ---: |" * (len(columns) + 1))
        for value in [*sorted({m[group] for m in mutants}), "all"]:
            members = [m["id"] for m in mutants if value in (m[group], "all")]
            cells: list[int] = [len(members)]
            for results in suites:
                counts = Counter(results.get(i, {}).get("status", "-") for i in members)
                cells += [
                    counts["caught"] + counts["crash"],
                    counts["survived"] + counts["no test"],
                ]
                cells += [counts["timeout"], counts["-"]]
            print(f"| {value} | {' | '.join(map(str, cells))} |")
        print()
    if len(suites) == 2:
        before, after = ({i for i, r in s.items() if r["status"] in CAUGHT} for s in suites)
        lost = [m for m in mutants if m["id"] in before - after]
        print(f"## Caught before and not after: {len(lost)}\n")
        for m in lost:
            print(f"{describe(m)}; caught before by `{suites[0][m['id']]['by']}`")
        print()
    for name, results in zip(names, suites, strict=True):
        survivors = [
            m for m in mutants if results.get(m["id"], {}).get("status") in ("survived", "no test")
        ]
        print(f"## Survivors {name}: {len(survivors)}\n".replace(" :", ":"))
        for m in survivors:
            left = results[m["id"]].get("left", 0)
            print(describe(m) + (f" ({left} tests not run: out of time)" if left else ""))
        print()


def describe(m: dict[str, Any]) -> str:
    change = f"`{m['before']}` -> `{m['after']}`"
    return (
        f"- {m['id']} {PACKAGE}/{m['file']}:{m['line']} {m['operator']}: {change} in `{m['text']}`"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    root: dict[str, Any] = {
        "type": Path,
        "default": TOOLS.parent,
        "help": "the tree: src and tests",
    }
    coverage: dict[str, Any] = {
        "type": Path,
        "nargs": "+",
        "required": True,
        "help": "data files with contexts",
    }

    command = commands.add_parser("sample", help="draw mutants")
    command.set_defaults(function=sample)
    command.add_argument("--count", type=int, default=160)
    command.add_argument("--seed", type=int, default=52)
    command.add_argument("--coverage", **coverage)
    command.add_argument("--root", **root)
    command.add_argument("--out", type=Path, required=True)

    command = commands.add_parser("run", help="run the tests of each mutant; resumes from --out")
    command.set_defaults(function=run)
    command.add_argument("--mutants", type=Path, required=True)
    command.add_argument("--coverage", **coverage)
    command.add_argument("--root", **root)
    command.add_argument("--out", type=Path, required=True)
    command.add_argument("--junit", type=Path, nargs="+", default=[], help="durations; failures")
    command.add_argument("--pytest-args", default="", help="for example '-m slow'")
    command.add_argument("--only", help="ids, with commas")
    command.add_argument("--survivors", type=Path, nargs="+", help="only what these results lack")
    command.add_argument("--shard", help="for example 1/2")
    command.add_argument("--seconds-per-mutant", type=float, default=240)
    command.add_argument("--assume", type=Path, help="results of another tree, for unchanged tests")
    command.add_argument("--assume-root", type=Path, help="that other tree")

    command = commands.add_parser("table", help="print results; shards with commas")
    command.set_defaults(function=table)
    command.add_argument("results", nargs="+", metavar="before.json after.json")
    command.add_argument("--mutants", type=Path, default=Path("mutants.json"))

    # Also end pytest, Java and the copied tree.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options = parser.parse_args()
    options.function(options)


if __name__ == "__main__":
    main()
