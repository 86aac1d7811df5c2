"""Delta tables in Spark: reads of rows, versions, files and streams, and commits made once."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from medallion.storage import delta_tables
from medallion.storage.paths import StoragePath

AT_ONCE = {"maxFilesPerTrigger": 2**31 - 1}
"""An option of `stream_table`: the first batch reads the complete table."""
_PATTERN = re.compile(r"[\[\]{}*?\\]")


def read_table(spark: SparkSession, table: StoragePath, version: int | None = None) -> DataFrame:
    """Return the current rows of a table, or those of a version with its columns."""
    options = {} if version is None else {"versionAsOf": version}
    return spark.read.format("delta").options(**options).load(str(table))


def stream_table(spark: SparkSession, table: StoragePath, **options: Any) -> DataFrame:
    """Return a stream of a table's rows, with options of Delta's source."""
    return spark.readStream.format("delta").options(**options).load(str(table))


def rows_at(spark: SparkSession, table: StoragePath, version: int | None = None) -> DataFrame:
    """Return all rows of a version of a table, with its current columns.

    Delta would list the files in a Spark job, which on a small table takes as long as the query.

    Args:
        version: the version; None for the current one.
    """
    return rows_of(spark, table, delta_tables.data_files(table, version))


def rows_of(spark: SparkSession, table: StoragePath, files: Sequence[StoragePath]) -> DataFrame:
    """Return the rows of data files, with the table's columns.

    Delta's change feed would convert times to `java.sql.Timestamp`, which overflow far from today,
    and shift by days in October 1582.

    Args:
        files: the paths of its files.
    """
    current = read_table(spark, table)
    if not files:
        return current.where("false")  # needs no job
    return spark.read.schema(current.schema).parquet(*map(escape_path, files))


def escape_path(file: str | os.PathLike[str]) -> str:
    """Return a path with its glob characters escaped for Spark."""
    return _PATTERN.sub(r"\\\g<0>", str(file))


ROWS_READ = "rows_read"
"""The number of rows that Spark read for a batch, in the `userMetadata` of its commit."""
_DELTA = "org.apache.spark.sql.delta"


def write_once(
    rows: DataFrame,
    table: StoragePath,
    options: Mapping[str, str],
    mode: str = "Append",
    counts: Callable[[], Mapping[str, Any]] | None = None,
) -> bool:
    """Write rows to a table in one commit, unless it has the transaction of the commit.

    `DataFrame.write` does the same, but looks for the transaction in the complete state of the
    table, which takes two jobs; the checksum of the last commit has it. The steps are those of
    Delta's `WriteIntoDelta.run`.

    Args:
        table: the table, which exists.
        options: options of Delta's writer, with those of `checkpoints.once_only`.
        mode: Append or Overwrite.
        counts: returns counts of the rows for the commit's `userMetadata`. It is called after they
            are written, and before the commit.

    Returns:
        False if the table has the transaction: nothing was computed.
    """
    jvm: Any = rows.sparkSession._jvm
    session = rows.sparkSession._jsparkSession

    def java(name: str) -> Any:
        return getattr(jvm, name)  # in one piece: each part would be looked up in all jars

    log = java(f"{_DELTA}.DeltaLog").forTable(session, str(table))
    transaction = log.startTransaction()
    if _is_committed(transaction, options["txnAppId"], int(options["txnVersion"])):
        return False
    removed = _removed_files(rows, table, transaction) if mode == "Overwrite" else None
    option, modes = java("scala.Option"), java("org.apache.spark.sql.SaveMode")
    none, columns, settings = option.empty(), jvm.PythonUtils.toSeq([]), jvm.PythonUtils.toScalaMap
    own = java(f"{_DELTA}.DeltaOptions")(settings({**options}), session.sessionState().conf())
    added = modes.valueOf(mode if removed is None else "Append")
    write = java(f"{_DELTA}.commands.WriteIntoDelta")(
        log, added, own, columns, settings({}), rows._jdf, none, none, False
    )
    commit = write.writeAndReturnCommitData(transaction, session, none, False)
    actions = commit.actions().appendedAll(jvm.PythonUtils.toSeq(removed or []))
    metadata = option.apply(json.dumps(counts())) if counts else none
    operation = java(f"{_DELTA}.DeltaOperations$Write")(
        modes.valueOf(mode), option.apply(columns), none, metadata, none, none, none, none, none
    )
    transaction.commitIfNeeded(actions, operation, commit.stringTags())
    return True


def _is_committed(transaction: Any, application: str, number: int) -> bool:
    """Return whether a table has a transaction, on which Delta's own now depends.

    Delta then refuses to commit if another process has committed one of that application meanwhile.
    """
    checksum = transaction.snapshot().checksumOpt()
    known = checksum.get().setTransactions() if checksum.isDefined() else checksum
    if known.isEmpty():  # another writer made the last commit, and left no checksum
        return bool(transaction.txnVersion(application) >= number)
    transaction.readTxn().append(application)
    committed = (known.get().apply(index) for index in range(known.get().size()))
    return any(t.appId() == application and t.version() >= number for t in committed)


def _removed_files(rows: DataFrame, table: StoragePath, transaction: Any) -> list[Any] | None:
    """Return the removals of all files of a table, which it then depends on, if these are known.

    Otherwise return None: Delta computes them in the complete state of the table. It also changes
    the table's columns, if the rows have others.
    """
    snapshot = transaction.snapshot()
    checksum, schema = snapshot.checksumOpt(), rows._jdf.schema()
    known = checksum.get().allFiles() if checksum.isDefined() else checksum
    if known.isEmpty() or not schema.equalsIgnoreNullability(schema, snapshot.schema()):
        return None
    files = [known.get().apply(index) for index in range(known.get().size())]
    in_log = delta_tables.data_files(table, transaction.readVersion())
    if {unquote(file.path()) for file in files} != {file.name for file in in_log}:
        return None
    transaction.readWholeTable()
    return [file.remove() for file in files]
