"""The sources that the factory can play, and what it needs to know of each."""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

from medallion.factory.activity import ActivitySource
from medallion.factory.event import EventSource
from medallion.factory.faults import Fault
from medallion.factory.plan import FilePlan


class Source(Protocol):
    """Makes a source's clean rows, and knows what can be done to one."""

    @property
    def name(self) -> str:
        """The source's name, which is also its folder's."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The ways in which a row breaks one of the pipeline's rules."""

    def clean_lines(self, plan: FilePlan, count: int) -> list[str]:
        """The first `count` rows of a file; fewer are a prefix of more."""

    def has_identity(self, line: str) -> bool:
        """Whether a second row like this clean one would be a duplicate."""

    def dump(self, row: dict[str, Any]) -> str:
        """The row as a line."""

    def made_late(
        self, row: dict[str, Any], plan: FilePlan, random: Random, ordinal: int
    ) -> dict[str, Any]:
        """A valid row with a key of its own, over an hour older than any of the batch before."""

    def made_future(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row, many years ahead of its time."""

    def retold(self, line: str, random: Random) -> str:
        """The line again, perhaps in a spelling that means the same."""


SOURCES: dict[str, Source] = {source.name: source for source in (ActivitySource(), EventSource())}
