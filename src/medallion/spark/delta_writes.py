"""Commits of Delta tables that are made once, however often their batch runs."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame

from medallion.storage.paths import StoragePath

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
    option, save_mode = java("scala.Option"), java("org.apache.spark.sql.SaveMode").valueOf(mode)
    none, columns, settings = option.empty(), jvm.PythonUtils.toSeq([]), jvm.PythonUtils.toScalaMap
    own = java(f"{_DELTA}.DeltaOptions")(settings({**options}), session.sessionState().conf())
    write = java(f"{_DELTA}.commands.WriteIntoDelta")(
        log, save_mode, own, columns, settings({}), rows._jdf, none, none, False
    )
    commit = write.writeAndReturnCommitData(transaction, session, none, False)
    metadata = option.apply(json.dumps(counts())) if counts else none
    operation = java(f"{_DELTA}.DeltaOperations$Write")(
        save_mode, option.apply(columns), none, metadata, none, none, none, none, none
    )
    transaction.commitIfNeeded(commit.actions(), operation, commit.stringTags())
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
