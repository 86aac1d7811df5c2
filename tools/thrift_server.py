"""SQL for BI clients over JDBC and ODBC: a Thrift server whose schemas are the lakehouse's layers.

    .venv/bin/python tools/thrift_server.py [--host 127.0.0.1] [--port 10000] [--every SECONDS]

The catalog is kept in memory and read from the directories every EVERY seconds: no metastore has to
run. There are no passwords, so bind the port to a loopback address, or give the process a read-only
file system as Compose does. Root and master come from the environment or `.env`.
"""

import argparse
import signal
import sys
import tempfile
import time
from types import FrameType

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.errors import ConfigError
from medallion.storage.paths import SCHEMAS, Layout
from medallion.storage.table_specs import quote_identifier


def session(master: str, host: str, port: int) -> SparkSession:
    """Return a session with Delta, UTC, and a catalog without a database.

    Args:
        master: the Spark master.
        host: the address to listen on.
        port: the port to listen on.
    """
    warehouse = tempfile.mkdtemp(prefix="medallion-thrift-")
    settings: dict[str, bool | float | int | str | None] = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.warehouse.dir": warehouse,
        "spark.hadoop.hive.server2.thrift.bind.host": host,
        "spark.hadoop.hive.server2.thrift.port": str(port),
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.appName("medallion-thrift")
    return builder.master(master).config(map=settings).getOrCreate()


def register(spark: SparkSession, layout: Layout, failed: set[str]) -> None:
    """Register each table; one that cannot be read yet is tried again.

    Args:
        spark: the session of the server.
        layout: the paths of the tables.
        failed: tables whose error was reported.
    """
    for table, path in layout.tables().items():
        name = ".".join(map(quote_identifier, table.split(".", 1)))
        if spark.catalog.tableExists(name):
            continue
        location = str(path).replace("'", "\\'")
        try:
            spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION '{location}'")
            print(f"serving {name}", flush=True)
        except PySparkException as error:  # its first commit may still be under way
            if name not in failed:
                print(f"not yet {name}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
            failed.add(name)


def stop(signal_number: int, frame: FrameType | None) -> None:
    """End as on Ctrl-C, so that Spark is shut down."""
    raise SystemExit(0)


def main() -> None:
    """Serve until a signal stops it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=10000)
    parser.add_argument("--every", type=float, default=30, help="seconds between two scans")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    try:
        config = load()
    except ConfigError as error:
        sys.exit(f"thrift_server: {error}")
    failed: set[str] = set()
    spark = session(config.master or "local[*]", options.host, options.port)
    try:
        for layer in SCHEMAS:
            spark.sql(f"CREATE SCHEMA IF NOT EXISTS {layer}")
        register(spark, config.layout, failed)
        assert spark._jvm is not None
        server = spark._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
        server.startWithContext(spark._jsparkSession.sqlContext())
        print(f"listening on {options.host}:{options.port}", flush=True)
        while True:
            time.sleep(options.every)
            register(spark, config.layout, failed)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
