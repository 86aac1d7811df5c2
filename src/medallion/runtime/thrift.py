"""`medallion thrift`: the tables and views over JDBC and ODBC, by Spark's Thrift server."""

import socket
import time
from functools import cache
from typing import Any

from pyspark.sql import SparkSession

from medallion.config.model import Config
from medallion.errors import MedallionError, UsageError
from medallion.spark import jvm, signals
from medallion.spark.catalog import register_tables
from medallion.spark.session import session_of_command
from medallion.storage.text import Reporter, error_reason

_SCAN_SECONDS = 30.0  # between two scans for new tables
_STEP_SECONDS = 0.5


def serve(config: Config, host: str, port: int, report: Reporter, debug: bool = False) -> None:
    """Serve the tables and views until SIGTERM or Ctrl-C; new tables are found every 30 seconds.

    There are no passwords, and a client's statements may change tables.

    Args:
        host: the address to listen on.
        port: the port; 0 for any free one.
        report: reports the address, and tables and views that cannot be read; each line once.
        debug: log errors of Spark with their stack traces.

    Raises:
        UsageError: the address is invalid, or in use.
        MedallionError: Java has ended.
        KeyboardInterrupt: a signal has come.
    """
    port = _free_port(host, port)
    with session_of_command(config, "medallion thrift", debug) as spark:
        report_once = cache(report)
        _register(spark, config, report_once)
        spark.conf.set("hive.server2.thrift.bind.host", host)
        spark.conf.set("hive.server2.thrift.port", str(port))
        java: Any = spark._jvm
        server = java.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
        server.startWithSparkSession(spark._jsparkSession, False)
        report(f"jdbc:hive2://{host}:{port} until Ctrl-C")
        scanned_at = time.monotonic()
        while jvm.is_alive(spark):
            signals.raise_if_requested()
            time.sleep(_STEP_SECONDS)
            if time.monotonic() - scanned_at > _SCAN_SECONDS:
                _register(spark, config, report_once)
                scanned_at = time.monotonic()
        signals.raise_if_requested()
    raise MedallionError(f"{jvm.HAS_ENDED}.")


def _register(spark: SparkSession, config: Config, report: Reporter) -> None:
    """Register tables and views, and report what cannot be read."""
    for error in register_tables(spark, config, is_server=True):
        report(str(error))


def _free_port(host: str, port: int) -> int:
    """Return the port, or a free one for 0.

    Raises:
        UsageError: the address is invalid, or in use.
    """
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except (OSError, OverflowError) as error:
        reason = error_reason(error)
        raise UsageError(f"{host}:{port}: {reason}; choose another --host or --port.") from None
