"""Commits of Delta tables that are made once, however often their batch runs."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from medallion.storage.paths import StoragePath

_DELTA = "org.apache.spark.sql.delta"


def write_once(
    rows: DataFrame, table: StoragePath, options: Mapping[str, str], mode: str = "Append"
) -> None:
    """Write rows to a table in one commit, unless it has the transaction of the commit.

    `DataFrame.write` does the same, but looks for the transaction in the complete state of the
    table, which takes two jobs; the checksum of the last commit has it. The steps are those of
    Delta's `WriteIntoDelta.run`.

    Args:
        table: the table, which exists.
        options: options of Delta's writer, with those of `checkpoints.once_only`.
        mode: Append or Overwrite.
    """
    jvm: Any = rows.sparkSession._jvm
    session = rows.sparkSession._jsparkSession

    def java(name: str) -> Any:
        return getattr(jvm, name)  # in one piece: each part would be looked up in all jars

    log = java(f"{_DELTA}.DeltaLog").forTable(session, str(table))
    transaction = log.startTransaction()
    if _is_committed(transaction, options["txnAppId"], int(options["txnVersion"])):
        return
    none, columns = java("scala.Option").empty(), jvm.PythonUtils.toSeq([])
    as_map, save_mode = jvm.PythonUtils.toScalaMap, java("org.apache.spark.sql.SaveMode")
    save_mode, conf = save_mode.valueOf(mode), session.sessionState().conf()
    settings = java(f"{_DELTA}.DeltaOptions")(as_map({**options}), conf)
    write = java(f"{_DELTA}.commands.WriteIntoDelta")(
        log, save_mode, settings, columns, as_map({}), rows._jdf, none, none, False
    )
    commit = write.writeAndReturnCommitData(transaction, session, none, False)
    partitioned_by, metadata = java("scala.Option").apply(columns), settings.userMetadata()
    operation = java(f"{_DELTA}.DeltaOperations$Write")(
        save_mode, partitioned_by, none, metadata, none, none, none, none, none
    )
    transaction.commitIfNeeded(commit.actions(), operation, commit.stringTags())


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
