"""Who would read what lands here: a source of that name, of JSON lines, whose pattern fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from medallion.config.values import matches_pattern
from medallion.errors import UsageError
from medallion.factory.plan import SOURCE_NAMES, BatchPlan, FilePlan

if TYPE_CHECKING:
    from medallion.config.model import SourceConfig


def is_read(sources: Mapping[str, SourceConfig], source: str, file: str) -> bool:
    """Whether a file of JSON lines of that name is taken in as one of a source."""
    found = sources.get(source)
    if found is None or found.format != "json" or found.multi_line:
        return False
    return matches_pattern(file, found.pattern)


def refuse_unread(sources: Mapping[str, SourceConfig], source: str | None) -> None:
    """Raise UsageError where nobody would read what is landed of a source, or of all of them."""
    files = {name: _first_file(name) for name in SOURCE_NAMES}
    unread = [name for name, file in files.items() if not is_read(sources, name, file)]
    if refused := [name for name in unread if source in (None, name)]:
        read = " or ".join(f"--source {name}" for name in SOURCE_NAMES if name not in unread)
        lacking = (f"no source {name} of JSON lines that takes {files[name]}" for name in refused)
        raise UsageError(
            f"the configuration has {' and '.join(lacking)}, and nobody would read what is landed: "
            f"{f'take {read}' if read else 'land files of your own sources'}."
        )


def _first_file(source: str) -> str:
    return FilePlan(BatchPlan(source, 1, 1, False, 1, 1), None, 1).name
