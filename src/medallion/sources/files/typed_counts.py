"""Rows of Parquet, ORC and Avro files, counted by libraries that share nothing with Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import SEEK_END
from pathlib import Path


def count(path: Path, kind: str) -> int:
    """The rows of a file, by its footer or block by block.

    Args:
        kind: one of `config.model.TYPED`.

    Raises:
        OSError: it is not there, torn, or not of that kind.
    """
    try:
        return _COUNTS[kind](path)
    except OSError:
        raise
    except Exception as error:  # hostile bytes end the libraries with errors of a dozen classes
        why = str(error) or type(error).__name__
        raise OSError(f"torn, or no {_NAMES[kind]} file: {why}") from error


def _parquet(path: Path) -> int:
    """As DataFusion reads the footer."""
    from deltalake import QueryBuilder

    with path.open("rb") as file:
        size = file.seek(0, SEEK_END)
        file.seek(-min(size, 8), SEEK_END)
        end = file.read()
    # DataFusion does not survive a footer that would begin before the file.
    if end[4:] != b"PAR1" or int.from_bytes(end[:4], "little") > size - 12:
        raise EOFError("its footer is torn")
    engine = QueryBuilder()
    engine.execute(f"create external table f stored as parquet location '{path.as_uri()}'")
    return int(engine.execute("select count(*) from f").read_all().column(0)[0].as_py())


def _orc(path: Path) -> int:
    """As ORC's own library in C++ reads the footer."""
    import pyorc

    with path.open("rb") as file:
        return len(pyorc.Reader(file))


def _avro(path: Path) -> int:
    """By the blocks, whose number of rows stands before each."""
    import fastavro

    with path.open("rb") as file:
        return sum(block.num_records for block in fastavro.block_reader(file))


_COUNTS: Mapping[str, Callable[[Path], int]] = {"parquet": _parquet, "orc": _orc, "avro": _avro}
_NAMES = {"parquet": "Parquet", "orc": "ORC", "avro": "Avro"}
