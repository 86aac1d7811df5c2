"""How much work a process has, and what of Java and Spark pays for it. Neither is needed here."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path

FIRST_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""Java's first compiler alone: the second makes code several times as fast, and a process with
little to do ends before that has paid. Without that room it complains on standard output.
"""
TASKS_FIRST = (
    "-XX:+UnlockDiagnosticVMOptions -XX:+DisplayVMOutputToStderr "
    f'"-XX:CompilerDirectivesFile={Path(__file__).with_name("compilers.json")}"'
)
"""Java's second compiler for what tasks run, and not for what plans them. It says that it has read
the file, and standard output may be one JSON document."""
INTERPRETED: Mapping[str, str] = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
"""No code made for each plan: to write and to compile it takes longer than a few thousand rows."""


class Work(Enum):
    """How much there is to do, as far as it matters to Java and Spark."""

    LITTLE = "little"
    SOME = "some"
    MUCH = "much"
    ENDLESS = "endless"  # or nobody has looked

    @classmethod
    def of(cls, size: int, rows: int) -> Work:
        """Of bytes of files to take in, and rows of tables to read or to write whole.

        The figures are near where one way took as long as the next (docs/benchmarks.md).
        """
        if size <= 4 * 2**20 and rows <= 100_000:
            return cls.LITTLE
        return cls.SOME if size <= 64 * 2**20 and rows <= 500_000 else cls.MUCH

    @property
    def java(self) -> str:
        """Options of Java."""
        return {Work.MUCH: TASKS_FIRST, Work.ENDLESS: ""}.get(self, FIRST_COMPILER)

    @property
    def spark(self) -> Mapping[str, str]:
        """Settings of Spark."""
        return INTERPRETED if self is Work.LITTLE else {}
