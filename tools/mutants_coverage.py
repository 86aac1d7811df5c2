"""A pytest plugin for coverage data with contexts, if some tests become another user.

Coverage writes at the start and end of each test. As another user it cannot, and pytest leaves the
test before it becomes root again, so that all later tests fail: write as root instead.

    PYTHONPATH=src:tools python -m pytest -p mutants_coverage --cov --cov-context=test
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    from coverage import collector, control  # type: ignore[import-not-found,unused-ignore]

    collector.Collector.flush_data = as_root(collector.Collector.flush_data)
    control.Coverage.switch_context = as_root(control.Coverage.switch_context)


def as_root(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs as the user who started the process."""

    def run(*arguments: Any, **options: Any) -> Any:
        user = os.geteuid()
        os.seteuid(os.getuid())
        try:
            return function(*arguments, **options)
        finally:
            os.seteuid(user)

    return run
