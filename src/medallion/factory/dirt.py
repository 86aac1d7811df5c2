"""The lines of one file, clean or with counted defects, at most one for each line."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from random import Random

from medallion.factory.activity import ActivitySource
from medallion.factory.event import EventSource
from medallion.factory.faults import MALFORMED_LINE, Fault, malformed, with_extra_field
from medallion.factory.landed import Landed
from medallion.factory.plan import FilePlan

Source = ActivitySource | EventSource
SOURCES: dict[str, Source] = {source.name: source for source in (ActivitySource(), EventSource())}

# The share of a dirty file's lines that each defect has.
SHARES = {
    "malformed": 0.005,
    "invalid": 0.010,
    "unknown_fields": 0.005,
    "late": 0.005,
    "same_file": 0.004,
    "same_batch": 0.003,
    "earlier_batch": 0.003,
    "blank_lines": 0.002,
}
ORIGINS = ("same_file", "same_batch", "earlier_batch")
BLANKS = ("", "   ", "\t")


def file_lines(plan: FilePlan) -> tuple[list[str], Landed]:
    """What to write into the file, and the figures of it. Some items hold several lines."""
    source = SOURCES[plan.batch.source]
    if not plan.batch.dirty:
        return source.clean_lines(plan, plan.rows), Landed(files=1, lines=plan.rows)
    random = plan.random("dirt")
    counts = _counts(plan, random)
    base = plan.rows - sum(counts[origin] for origin in ORIGINS)
    lines = source.clean_lines(plan, base)
    spoilt, rules, rescued = _spoil(lines, plan, counts, random)
    after = _repeats(lines, plan, counts, spoilt, random)
    for _ in range(counts["blank_lines"]):
        after[random.randrange(base)].append(random.choice(BLANKS))
    for place, additions in after.items():
        lines[place] = "\n".join((lines[place], *additions))
    return lines, _landed(plan, counts, rules, rescued)


def _counts(plan: FilePlan, random: Random) -> Counter[str]:
    """How many of each defect. A share that comes to 2.3 is 2, or by chance 3."""
    counts = Counter(
        {kind: int(plan.rows * share + random.random()) for kind, share in SHARES.items()}
    )
    if plan.previous is None:
        # Nothing came before: nothing can be late, and what is repeated is the file's own.
        del counts["late"]
        counts["same_file"] += counts.pop("earlier_batch")
    if plan.file == 1:
        counts["same_file"] += counts.pop("same_batch")
    kinds = [kind for kind in counts if kind != "blank_lines"]
    while sum(counts[kind] for kind in kinds) > plan.rows - plan.head:
        counts[max(kinds, key=lambda kind: counts[kind])] -= 1
    return counts


def _spoil(
    lines: list[str], plan: FilePlan, counts: Counter[str], random: Random
) -> tuple[set[int], Counter[str], Counter[str]]:
    """Put a defect into lines beyond the head.

    Returns:
        Which lines; the rules that invalid ones break, one each; and the rules about rescued values
        that some of them break besides.

    The head stays as it is, because other files and the next batch repeat its rows.
    """
    source = SOURCES[plan.batch.source]
    kinds = [
        kind
        for kind in ("malformed", "invalid", "unknown_fields", "late")
        for _ in range(counts[kind])
    ]
    places = random.sample(range(plan.head, len(lines)), len(kinds))
    rules, rescued = Counter[str](), Counter[str]()
    for ordinal, (kind, place) in enumerate(zip(kinds, places, strict=True)):
        if kind == "malformed":
            lines[place] = malformed(lines[place], random)
            continue
        row = json.loads(lines[place])
        if kind == "invalid":
            fault: Fault = random.choice(source.faults)
            rules[fault.rule] += 1
            row = fault.spoil(row, random) if fault.bad_values else source.made_future(row)
            rescued.update(fault.rescue_rules(row))
        elif kind == "unknown_fields":
            row = with_extra_field(row, random)
        else:
            row = source.made_late(row, plan, random, ordinal)
        lines[place] = source.dump(row)
    return set(places), rules, rescued


def _repeats(
    lines: list[str], plan: FilePlan, counts: Counter[str], spoilt: set[int], random: Random
) -> defaultdict[int, list[str]]:
    """Copies of good rows, by the place after which each is to stand."""
    source = SOURCES[plan.batch.source]
    after: defaultdict[int, list[str]] = defaultdict(list)
    near = max(1, len(lines) // 20)
    for _ in range(counts["same_file"]):
        place = random.randrange(len(lines))
        if place in spoilt or not source.has_identity(lines[place]):
            place = 0
        target = min(len(lines) - 1, place + random.randrange(near))
        after[target].append(source.retold(lines[place], random))
    if counts["same_batch"]:
        heads = _head(source, FilePlan(plan.batch, plan.previous, plan.file - 1))
        for _ in range(counts["same_batch"]):
            after[random.randrange(near)].append(source.retold(random.choice(heads), random))
    if counts["earlier_batch"] and plan.previous is not None:
        file = 1 + random.randrange(plan.previous.files)
        heads = _head(source, FilePlan(plan.previous, None, file))
        for _ in range(counts["earlier_batch"]):
            place = random.randrange(len(lines))
            after[place].append(source.retold(random.choice(heads), random))
    return after


def _head(source: Source, plan: FilePlan) -> list[str]:
    """Rows of another file that are surely as they were recorded, and can be repeated."""
    return [line for line in source.clean_lines(plan, plan.head) if source.has_identity(line)]


def _landed(
    plan: FilePlan, counts: Counter[str], rules: Counter[str], rescued: Counter[str]
) -> Landed:
    lost = counts["malformed"]
    quarantine = rules + rescued
    if lost:
        # Of a malformed line nothing is known, so that it breaks every rule about missing values.
        missing = {f.rule for f in SOURCES[plan.batch.source].faults if f.bad_values}
        quarantine.update(dict.fromkeys((*missing, MALFORMED_LINE), lost))
    origins = {origin: counts[origin] for origin in ORIGINS if counts[origin]}
    return Landed(
        files=1,
        lines=plan.rows,
        malformed=lost,
        invalid=counts["invalid"],
        duplicates=sum(origins.values()),
        late=counts["late"],
        unknown_fields=counts["unknown_fields"],
        blank_lines=counts["blank_lines"],
        invalid_by_rule=dict(sorted(rules.items())),
        expected_quarantine=dict(sorted(quarantine.items())),
        duplicates_by_origin=origins,
    )
