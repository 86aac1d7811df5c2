"""Expectation suites, read without importing Great Expectations, which takes seconds."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from medallion.errors import ConfigError
from medallion.storage.files import list_tree
from medallion.storage.text import error_reason

BY_QUERY = "unexpected_rows_expectation"
BETWEEN = "expect_column_values_to_be_between"
UNIQUE = "expect_compound_columns_to_be_unique"
ON_FAILURE = ("warn", "quarantine", "stop")


@dataclass(frozen=True)
class Expectation:
    """One expectation of a suite file; `notes` explain a failure."""

    name: str
    on_failure: str
    type: str
    kwargs: dict[str, Any]
    notes: str


@dataclass(frozen=True)
class Failure:
    """An expectation that a table fails, and the consequence for the run (`on_failure`)."""

    table: str
    expectation: str
    on_failure: str
    unexpected_count: int | None
    element_count: int | None
    examples: tuple[str, ...]
    detail: str

    def __str__(self) -> str:
        example = f", such as {self.examples[0]}" if self.examples else ""
        return f"{self.expectation} failed: {self.detail}{example}"


@dataclass(frozen=True)
class Verdict:
    """The result of validating one table; no failures if all expectations pass."""

    table: str
    rows: int
    failures: tuple[Failure, ...]


def suite_path(conf_dir: Path, table: str) -> Path:
    """Return the path of the suite of `layer.table`, below `conf_dir`/great_expectations."""
    return _suites_dir(conf_dir).joinpath(*table.split(".")).with_suffix(".json")


def unused_suites(conf_dir: Path, tables: Iterable[str]) -> list[Path]:
    """Return the suite files that belong to none of these tables."""
    used = {suite_path(conf_dir, table) for table in tables}
    suites = (file for file in list_tree(_suites_dir(conf_dir)) if file.suffix == ".json")
    return sorted(set(suites) - used)


def _suites_dir(conf_dir: Path) -> Path:
    return conf_dir / "great_expectations" / "expectations"


def read_suite(conf_dir: Path, table: str) -> tuple[Expectation, ...]:
    """Return the expectations of a table in the order of its suite; empty without a suite.

    Raises:
        ConfigError: the file is not a suite, or an expectation lacks `name` or `on_failure`.
    """
    path = suite_path(conf_dir, table)
    try:
        if not path.exists():
            return ()
        entries = json.loads(path.read_text(encoding="utf-8"))["expectations"]
        if not isinstance(entries, list):
            raise TypeError('"expectations" is not a list')
        expectations = tuple(_expectation(path, *entry) for entry in enumerate(entries, start=1))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error_reason(error)}).") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not a Great Expectations suite ({type(error).__name__}: {error}). It must "
            'be JSON with "expectations", each with "type", "kwargs" and "meta".'
        ) from error
    names = [expectation.name for expectation in expectations]
    for expectation in expectations:
        label = f'"{expectation.name}"'
        if names.count(expectation.name) > 1:
            suite_error(path, label, "is defined twice: give each expectation its own name")
        if table.startswith("gold.") and expectation.on_failure == "quarantine":
            problem = "cannot quarantine, because gold has no quarantine: use warn or stop"
            suite_error(path, label, problem)
    return expectations


def suite_error(path: Path, expectation: str, problem: str) -> NoReturn:
    """Raise ConfigError for an expectation, by name or number; `problem` completes the sentence."""
    raise ConfigError(f"{path}: expectation {expectation} {problem}.")


def _expectation(path: Path, number: int, entry: Any) -> Expectation:
    """Parse one entry of a suite; errors other than ConfigError mean that it is malformed.

    Args:
        path: the suite's file, for messages.
        number: the position of the entry, from 1.
        entry: the parsed JSON.
    """
    type_, kwargs, meta = entry["type"], dict(entry["kwargs"]), dict(entry.get("meta") or {})
    name = meta.get("name")
    if not isinstance(name, str) or not name:
        suite_error(path, f"number {number} ({type_})", 'needs a "name" in its "meta"')
    on_failure = meta.get("on_failure")
    if on_failure not in ON_FAILURE:
        choices = ", ".join(ON_FAILURE)
        problem = f'has "on_failure": {json.dumps(on_failure)} in its "meta"'
        suite_error(path, f'"{name}"', f"{problem}, which must be one of {choices}")
    notes = entry.get("notes") or ""
    notes = notes if isinstance(notes, str) else " ".join(notes)
    return Expectation(name, on_failure, type_, kwargs, notes)
