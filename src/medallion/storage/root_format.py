"""The version of the format in which a lakehouse is stored, in one document of its root.

Increase `FORMAT` with each change that an earlier release cannot read, convert what the releases
before it wrote in `journal.upgrade_format`, and add their lakehouse to `tests/data/formats`.
"""

import json

from medallion import __version__
from medallion.errors import MedallionError, UsageError
from medallion.storage.layout import Layout

FORMAT = 2
"""1 has no document, and keeps unfinished commands elsewhere; 2 keeps them in `_journal/`."""


def read_format(layout: Layout) -> int | None:
    """Return the version of a lakehouse's format; None if there are no tables yet.

    Raises:
        UsageError: a newer release wrote it.
        MedallionError: the document is damaged.
    """
    try:
        document = json.loads(layout.format.read())
        version, release = int(document["format"]), str(document["release"])
    except FileNotFoundError:
        return 1 if layout.tables() else None
    except (ValueError, LookupError, TypeError):
        raise MedallionError(
            f"{layout.format} is damaged. Restore it from a backup; its content is "
            f'{{"format": {FORMAT}, "release": "{__version__}"}} if this release wrote it.'
        ) from None
    if version > FORMAT:
        newer = f"format {version} of medallion {release}, but this is medallion {__version__}"
        raise UsageError(f"{layout.root} has the {newer}: install that release or a newer one.")
    return version


def write_format(layout: Layout) -> None:
    """Write the current version, atomically and durably."""
    layout.format.write_atomic(json.dumps({"format": FORMAT, "release": __version__}))
