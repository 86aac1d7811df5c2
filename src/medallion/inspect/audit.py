"""The audit: the rows of every source balanced, at a moment at which they can be, and counted again
where they do not add up. No JVM, but where everything is to be counted again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from medallion.config.model import Config, SourceConfig
from medallion.config.queries import queries
from medallion.errors import ITEM_ERRORS, error_message
from medallion.ingest.files.listing import unread_file_warnings
from medallion.ingest.formats import SOURCE_TYPES, refuse_format_change
from medallion.ingest.source import Verification
from medallion.inspect import balance as accounting
from medallion.inspect import ledger_files
from medallion.inspect.balance import Balance, BalanceSnapshot
from medallion.inspect.ledger_files import Attention
from medallion.spark import checkpoints
from medallion.state import refresh_plan
from medallion.state.runs import Runs
from medallion.storage import delta_tables, locks
from medallion.storage.paths import layer_of
from medallion.storage.table_specs import OFFSET
from medallion.storage.text import Reporter, counted

PATIENCE = 35.0  # seconds; a stream settles every 30


@dataclass(frozen=True)
class Audit:
    """The balance of each source, and what to look at where something does not add up.

    Attributes:
        balances: by source.
        findings: faults, a sentence each.
        notes: no faults: what could not be looked at, and what a ledger has as lost or waiting.
        unjudged: sources that are being written, whose last batches are not on record yet.
        unreadable: those of the findings that are about tables which cannot be read.
        files: those that the user has to see to.
        failed: queries that failed when they ran last.
    """

    balances: dict[str, Balance]
    findings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    files: Attention = field(default_factory=Attention)
    failed: tuple[str, ...] = ()

    @property
    def is_balanced(self) -> bool:
        """Whether the balance of every source that was judged adds up, and nothing was found."""
        wrong = set(accounting.unbalanced(self.balances)) - set(self.unjudged)
        return not self.findings and not wrong


def run_audit(config: Config, everything: bool = False, say: Reporter = lambda _: None) -> Audit:
    """Balance every source; where one does not add up, name the files that differ.

    With `everything`, every file and table is counted again, whatever the balance says. Beside a
    stream that is on, waits up to half a minute for the moment at which all is on record.
    """
    look, writers = _at_rest(config, say)
    found = look.balances
    written, cut_off = _by_writer(look.unsettled, writers)
    unjudged = {_source(query): who for query, who in written.items()}
    findings = [
        *look.unreadable,
        *_half_done(config),
        *_not_on_record(Runs(config.layout), written, cut_off),
    ]
    files = _files(config, findings)
    notes = [
        f"{table}: the configuration has no source of that name; its rows are in no balance."
        for table in _given_up(config, "bronze", config.sources)
    ]
    notes += [
        f"{table}: the configuration has no table of that name, and nothing writes it any more."
        for table in _given_up(config, "gold", config.gold)
    ]
    notes += [f"{line}: in no balance." for line in unread_file_warnings(config)]
    if files.not_compared:
        notes.append(
            f"{counted(files.not_compared, 'older file')} in archive/ not compared with the ledger."
        )
    for name in [name for name in found if name not in unjudged]:
        judged = _judge_at_rest(config, name, look.of(name), everything, say)
        if judged is None:
            unjudged[name] = next(iter(writers.values()), "another process")
        else:
            found[name], deeper = judged
            findings += deeper.findings
            notes += deeper.notes
    if everything:
        from medallion.inspect import verify  # PySpark, and a JVM: only for this

        deeper = verify.verify_tables(config, unjudged, say)
        findings += deeper.findings
        notes += deeper.notes
    not_judged = (
        f"{name}: {who} is writing it, and its last batches are not on record yet: not judged."
        for name, who in sorted(unjudged.items())
    )
    told = (tuple(dict.fromkeys(findings)), (*not_judged, *notes))
    failed = _failed(config)
    return Audit(found, *told, tuple(sorted(unjudged)), tuple(look.unreadable), files, failed)


def _failed(config: Config) -> tuple[str, ...]:
    """Return the queries that failed when they ran last, as far as the record can be read."""
    runs = Runs(config.layout)
    try:
        return tuple(query.name for query in queries(config) if runs.has_failed(query.name))
    except ITEM_ERRORS:  # which the balance has found
        return ()


def _files(config: Config, findings: list[str]) -> Attention:
    """Return the files to see to; archived ones that have changed are findings."""
    try:
        files = ledger_files.find_attention(config)
    except ITEM_ERRORS as fault:
        findings.append(error_message(fault))
        return Attention()
    findings += [f"{entry.source}: {entry.path}: {entry.why}" for entry in files.changed]
    return files


def _at_rest(config: Config, say: Reporter) -> tuple[BalanceSnapshot, dict[str, str]]:
    """All sources, looked at when all is on record, or when patience has run out; and who writes
    which layer then."""
    until: float | None = None
    while True:
        # Asked before the look: a writer that ends during it has put all on record before that.
        writers = {
            layer: who
            for layer in accounting.SETTLED
            if (who := locks.lock_holder(config.layout, layer))
        }
        found = accounting.take_snapshot(config, Runs(config.layout))
        written, cut_off = _by_writer(found.unsettled, writers)
        if any(locks.lock_holder(config.layout, layer_of(query)) for query in cut_off):
            continue  # a writer has begun since
        odd = set(accounting.unbalanced(found.balances)) - set(map(_source, cut_off))
        is_at_rest = not written and not (writers and odd)
        if is_at_rest or (until and time.monotonic() > until):
            return found, writers
        if until is None:
            holders = " and ".join(dict.fromkeys(writers.values()))
            say(f"waiting until the last batches of {holders} are on record")
            until = time.monotonic() + PATIENCE
        time.sleep(0.2)


def _source(query: str) -> str:
    return query.partition(".")[2]


def _by_writer(
    unsettled: Iterable[str], writers: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Queries that are not on record, in two: those whose layer somebody writes, with who does; and
    those that were cut off."""
    found = {query: writers.get(layer_of(query)) for query in unsettled}
    written = {query: who for query, who in found.items() if who}
    return written, [query for query in found if query not in written]


def _not_on_record(runs: Runs, written: Mapping[str, str], cut_off: list[str]) -> list[str]:
    """Findings about queries whose last batches are not on record, parted by `_by_writer`."""
    told = "a run was cut off before it was put on record; the next run settles it."
    return [f"{name}: {told}" for name in cut_off] + [
        f"{name}: it has failed, and what it did last is not on record "
        f"({runs.run_state.last[name].error}); {who} tries it again."
        for name, who in written.items()
        if runs.has_failed(name)
    ]


def _half_done(config: Config) -> list[str]:
    """A refresh that was cut off while it put tables in the place of others."""
    try:
        plan = refresh_plan.read_plan(config.layout)
    except ITEM_ERRORS as fault:
        return [error_message(fault)]
    if not plan or not plan.built or locks.lock_holder(config.layout, layer_of(plan.table)):
        return []
    return [f"{plan.table}: a refresh was cut off while it put it in place; the next run ends it."]


def _given_up(config: Config, layer: str, known: Collection[str]) -> list[str]:
    logs = sorted((config.layout.root / layer).glob("*/_delta_log"))
    return [f"{layer}.{log.parent.name}" for log in logs if log.parent.name not in known]


def _judge_at_rest(
    config: Config, name: str, look: BalanceSnapshot, everything: bool, say: Reporter
) -> tuple[Balance, Verification] | None:
    """A source's balance, and what its ledger, or its rows counted again, say beside it; None where
    it is written all the while.

    With the rows of a batch that has ended since the look, the ledger would differ from the
    balance: so a finding counts only if a second look shows the same.
    """
    alone = replace(config, sources={name: config.sources[name]}, gold={})
    until = time.monotonic() + PATIENCE
    while True:
        judged = _judge(config, name, look.balances[name], everything)
        if not judged.findings or accounting.take_snapshot(alone, Runs(config.layout)) == look:
            return look.balances[name], judged
        now, writers = _at_rest(alone, say)
        if now.unreadable:
            return look.balances[name], Verification(now.unreadable)
        if time.monotonic() > until or _by_writer(now.unsettled, writers)[0]:
            return None
        look = now


def _judge(config: Config, name: str, balance: Balance, everything: bool) -> Verification:
    source = config.sources[name]
    try:
        refuse_format_change(config, source)
        if everything or not balance.is_balanced:
            found = verify_counts(config, source)
        else:
            found = Verification(_unlike_the_ledger(config, name, balance))
        if losses := SOURCE_TYPES[source.format].losses(config, source):
            found.notes.append(f"{name}: {'; '.join(losses)}.")
    except ITEM_ERRORS as fault:  # a table cannot be read, or is of a source of another kind
        found = Verification([error_message(fault)])
    return replace(found, findings=[*(f"{name}: {f}" for f in balance.faults), *found.findings])


def _unlike_the_ledger(config: Config, name: str, balance: Balance) -> list[str]:
    """The ledger's rows, counted file by file or topic by topic, against the table's."""
    source = config.sources[name]
    rows = SOURCE_TYPES[source.format].rows_in_ledger(config, source)
    if rows is None or rows == balance.bronze_rows:
        return []
    return [f"{name}: the ledger has {rows:,} rows, bronze has {balance.bronze_rows:,}."]


_SHOWN = 20


def verify_counts(config: Config, source: SourceConfig) -> Verification:
    """Count what a source gave, and its rows in every table; name what differs."""
    found = SOURCE_TYPES[source.format].verify(config, source)
    found.findings += _beyond_bronze(config, source)
    found.findings += _twice_in_silver(config, source)
    if len(found.findings) > _SHOWN:
        more = len(found.findings) - _SHOWN
        found.findings[_SHOWN:] = [f"{source.name}: and {more:,} more."]
    return found


def _beyond_bronze(config: Config, source: SourceConfig) -> list[str]:
    """Files, or partitions of topics, with more rows in silver and quarantine than in bronze."""
    columns = [column for column in source.silver_origin_columns if column != OFFSET]
    bronze = _by_origin(config, f"bronze.{source.name}", columns)
    carried = _by_origin(config, f"silver.{source.name}", columns)
    carried.update(_by_origin(config, f"quarantine.{source.name}", columns))
    return [
        f"{source.name}: {place or 'all of it'} has {counted(bronze[place], 'row')} in bronze, and "
        f"{rows:,} in silver and quarantine."
        for place, rows in carried.items()
        if rows > bronze[place]
    ]


def _by_origin(config: Config, table: str, columns: list[str]) -> Counter[str]:
    grouped = f"group by {', '.join(columns)}" if columns else ""
    what = ", ".join([*columns, "count(*)"])
    found = delta_tables.select_rows(config.layout.table(table), what, grouped)
    return Counter({"/".join(map(str, row[:-1])): int(row[-1]) for row in found})


def _twice_in_silver(config: Config, source: SourceConfig) -> list[str]:
    name = f"silver.{source.name}"
    # The table's own keys: others are refused until it is made anew by them.
    made = checkpoints.noted(config.layout.checkpoint(name), "definition") or {}
    names = made.get("keys", source.keys)
    keys = ", ".join(f'"{key}"' for key in names)
    known = " and ".join(f'"{key}" is not null' for key in names)
    sql = f"where {known} group by {keys} having count(*) > 1 limit {_SHOWN}"
    return [
        f"{source.name}: silver has {row[-1]} rows of {dict(zip(names, row, strict=False))}."
        for row in delta_tables.select_rows(config.layout.table(name), f"{keys}, count(*)", sql)
    ]
