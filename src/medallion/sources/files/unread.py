"""Files that lie in landing/ and that nobody reads, such as those of a misspelled source."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from medallion.config.model import Config
from medallion.lakehouse.text import counted


def unread(config: Config) -> list[str]:
    """A line for each folder of landing/ with files that no source takes in, now or later.

    A name that begins with a dot is still to be renamed.
    """
    landing = config.layout.landing("")
    sources = [source for source in config.sources.values() if not source.stream]
    read = {Path(os.path.realpath(p)) for s in sources for p in s.places(config.layout)}
    found: Counter[Path] = Counter()
    for folder, below, files in os.walk(landing):
        if Path(os.path.realpath(folder)) in read:
            below.clear()
            continue
        parts = Path(folder).relative_to(landing).parts
        found[landing.joinpath(*parts[:1])] += sum(not name.startswith(".") for name in files)
    return [
        f"{config.layout.relative(str(folder))}: {counted(files, 'file')} that no source of "
        "pipeline.yaml reads"
        for folder, files in sorted(found.items())
        if files
    ]
