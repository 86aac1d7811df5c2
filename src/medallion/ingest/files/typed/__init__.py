"""Files that bring their columns' types: Parquet, ORC and Avro.

`rows` reads them by Spark. Here, and in a module for each kind, they are looked at without Spark:
their rows are counted, their columns told, and files are found that Spark would read otherwise than
they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from medallion.ingest.files.typed import avro, orc, parquet
from medallion.storage.text import error_reason

_KINDS = {"parquet": parquet, "orc": orc, "avro": avro}
_NAMES = {"parquet": "Parquet", "orc": "ORC", "avro": "Avro"}


def count(path: Path, kind: str) -> int:
    """The rows of a file, by its footer or block by block.

    Args:
        kind: one of `config.model.TYPED_FORMATS`.

    Raises:
        OSError: it is not there, torn, or not of that kind.
    """
    with _in_words(kind):
        return int(_KINDS[kind].count(path))


@contextmanager
def _in_words(kind: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ImportError, KeyboardInterrupt, SystemExit):
        raise
    # Hostile bytes end the libraries with errors of a dozen classes, and DataFusion with panics.
    except BaseException as error:
        why = str(error) or type(error).__name__
        raise OSError(f"torn, or no {_NAMES[kind]} file: {why}") from error


def why_unreadable(path: Path, kind: str) -> str | None:
    """Why Spark would not read all of a file, or not as it is, and say nothing of it."""
    try:
        count(path, kind)
        if kind != "parquet":
            return None
        with _in_words(kind):
            return parquet.why_not_as_it_is(path)
    except FileNotFoundError:  # it has gone: whoever reads it tells
        return None
    except OSError as error:
        return f"cannot be read: {error_reason(error)}"


def columns(path: Path, kind: str) -> str:
    """What tells the columns of a file to Spark; raises as `count` does."""
    with _in_words(kind):
        return str(_KINDS[kind].columns(path))


def columns_without_type(path: Path) -> str:
    """The columns of a Parquet file that Spark may have no type for; a UUID is bytes to others."""
    try:
        with _in_words("parquet"):
            return parquet.columns_without_type(path)
    except OSError:  # it has gone
        return ""
