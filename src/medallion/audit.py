"""The balance of rows, from the record of runs and the tables; no JVM."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from medallion import accounting, analyst, tables
from medallion.accounting import Balance
from medallion.config import Config


@dataclass(frozen=True)
class Audit:
    """The balance of each source, and what to look at where it is not even."""

    balances: dict[str, Balance]
    findings: tuple[str, ...]

    @property
    def is_balanced(self) -> bool:
        """Whether every source's balance adds up."""
        return not self.findings and not accounting.uneven(self.balances.items())

    def as_json(self) -> dict[str, Any]:
        """The contract's document."""
        sources = {name: asdict(balance) for name, balance in self.balances.items()}
        document: dict[str, Any] = {"balanced": self.is_balanced, "sources": sources}
        return document if not self.findings else {**document, "findings": list(self.findings)}

    def as_text(self) -> str:
        """An aligned table, and the findings under it."""
        columns = ("source", *Balance.__dataclass_fields__)
        rows = [(name, *asdict(balance).values()) for name, balance in self.balances.items()]
        verdict = "balanced" if self.is_balanced else "NOT BALANCED"
        table = analyst.as_table(analyst.Result(columns, rows))
        return "\n".join([table, *self.findings, verdict])


def audit(config: Config) -> Audit:
    """Balance every source; where one does not add up, name the files that differ."""
    found = accounting.balances(config)
    findings = [
        f"{name}: a run was cut off before it was put on record; the next run settles it."
        for name in accounting.unsettled(config)
    ]
    for name in accounting.uneven(found.items()):
        findings += _differences(config, name, found[name])
    return Audit(found, tuple(findings))


def _differences(config: Config, name: str, balance: Balance) -> list[str]:
    findings = []
    if balance.landed_lines != balance.bronze_rows:
        lines = f"{balance.landed_lines:,} lines were read, bronze has {balance.bronze_rows:,}"
        findings.append(f"{name}: {lines}.")
        findings += _files_unlike_bronze(config, name)
    carried = balance.silver_rows + balance.quarantined_rows + balance.duplicate_rows
    if carried + balance.waiting_rows != balance.bronze_rows:
        findings.append(
            f"{name}: bronze has {balance.bronze_rows:,} rows, but silver, quarantine, duplicates "
            f"and rows that wait make {carried + balance.waiting_rows:,}."
        )
        findings += _files_beyond_bronze(config, name)
    return findings


def _files_unlike_bronze(config: Config, name: str) -> list[str]:
    """Files in landing with other line counts than bronze has rows of them."""
    in_bronze = _rows_by_file(config, f"bronze.{name}")
    landing = config.layout.landing(name)
    in_landing = {str(f): _lines(f) for f in sorted(landing.rglob("*")) if f.is_file()}
    return [
        f"{name}: {file} has {in_landing.get(file, 0):,} lines and {in_bronze[file]:,} rows."
        for file in sorted({*in_landing, *in_bronze})
        if in_landing.get(file, 0) != in_bronze[file] and not Path(file).name.endswith(".gz")
    ]


def _files_beyond_bronze(config: Config, name: str) -> list[str]:
    """Files whose rows in silver and quarantine differ from bronze's by more than duplicates."""
    in_bronze = _rows_by_file(config, f"bronze.{name}")
    carried = _rows_by_file(config, f"silver.{name}") + _rows_by_file(config, f"quarantine.{name}")
    return [
        f"{name}: {file} has {in_bronze[file]:,} rows in bronze, and {carried[file]:,} in silver "
        "and quarantine."
        for file in sorted({*in_bronze, *carried})
        if carried[file] != in_bronze[file]
    ]


def _rows_by_file(config: Config, table: str) -> Counter[str]:
    if tables.version(config.layout.table(table)) < 0:
        return Counter()
    sql = f"select _source_file, count(*) from {table} group by _source_file"
    rows = analyst.query(str(config.layout.root), sql).rows
    return Counter({unquote(urlparse(file).path): int(count) for file, count in rows})


def _lines(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for line in lines if line.strip())
