"""The SparkSession, with settings for the amount of work."""

import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark import __version__ as version
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from medallion.config.model import Config
from medallion.errors import ConfigError, MedallionError
from medallion.install.classes import archive_settings
from medallion.install.java import use_java
from medallion.spark import jvm, signals
from medallion.spark.errors import SPARK_ERRORS, one_line
from medallion.spark.settings import (
    FIXED,
    S3_FIXED,
    Workload,
    is_submitted,
    jar_settings,
    logging_file,
    session_settings,
)
from medallion.storage import objects

_JAVA_OPTIONS = "-XX:+ExitOnOutOfMemoryError"
"""Otherwise Spark would wait forever for a thread that ran out of memory."""
_JAVA = "spark.driver.extraJavaOptions"
# For Spark in one process: the host name need not resolve, and the executor must not count as lost
# if the clock jumps ahead, as after a sleep.
_LOCAL: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "3650d",
}
# Names that PySpark uses in each call; each lookup in the JVM would search all of Spark's jars.
_CLASSES = (
    "functions",
    "PythonUtils",
    "PythonSQLUtils",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession",
)


def spark_session(
    config: Config,
    name: str = "medallion",
    debug: bool = False,
    more: Mapping[str, str] | None = None,
    work: Workload = Workload.ENDLESS,
) -> SparkSession:
    """Start Spark, or join the one that spark-submit has started.

    Settings come from this package, then from `conf/spark/spark-defaults.conf`, then from `more`;
    those of spark-submit win, except the ones that decide the contents of a row.

    Args:
        name: the name of the application in Spark.
        debug: log errors of Spark with their stack traces.
        more: settings for this session, which override the file's.
        work: the amount of work.

    Raises:
        UsageError: Java or a jar is missing.
        ConfigError: the settings file is invalid; Spark does not start with the
            configured master; or SPARK_HOME has another version.
        MedallionError: the Java process has ended.
    """
    submitted = is_submitted()
    submitted_settings = _submitted_settings() if submitted else {}
    master = submitted_settings.get("spark.master") or config.master or "local[*]"
    local = _LOCAL if master.startswith("local") else {}
    settings = {**local, **session_settings(config), **work.spark, **(more or {})}
    builder = SparkSession.builder.appName(name)
    if not submitted:
        _refuse_another_spark()
        use_java()
        is_one_process = bool(local) and not master.startswith("local-cluster")
        settings |= jar_settings(config, settings, has_executors=not is_one_process)
        log4j = f"-Dlog4j2.configurationFile={logging_file(config).absolute().as_uri()}"
        options = (settings.get(_JAVA, ""), log4j, _JAVA_OPTIONS, work.java)
        settings[_JAVA] = " ".join(options).strip()
        os.environ.update(archive_settings())
        builder = builder.master(master)
    for key, value in settings.items():
        if key not in submitted_settings:
            builder = builder.config(key, value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # In the locale C, Java finds no file whose path is not ASCII; Python does.
    if os.environ.get("LC_ALL") in ("C", "POSIX"):
        os.environ["LC_ALL"] = "C.UTF-8"
    # Otherwise memory that RocksDB has freed stays in an arena of each Java thread.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    session = _get_session(builder, None if submitted else config.master)
    _prepare(session, debug)
    return session


def _refuse_another_spark() -> None:
    """Raise ConfigError if SPARK_HOME is a Spark that this PySpark cannot use."""
    home = os.environ.get("SPARK_HOME")
    if home and not any(Path(home, "jars").glob(f"spark-core_*-{version}.jar")):
        raise ConfigError(f"SPARK_HOME: {home} has no Spark {version}: unset it.")


def _prepare(session: SparkSession, debug: bool) -> None:
    """Configure logging, time zone and class lookups in the JVM."""
    # Errors are handled, or reported in one line: stack traces only with --debug.
    session.sparkContext.setLogLevel("ERROR" if debug else "FATAL")
    if not debug:
        PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.FATAL)
    # ORC reads times without a zone in the machine's zone.
    java: Any = session._jvm
    zones = getattr(java, "java.util.TimeZone")  # without lookups of `java` and `java.util`
    zones.setDefault(zones.getTimeZone("UTC"))
    for name in _CLASSES:
        setattr(java, name, getattr(java, name))


@contextmanager
def session_of_command(
    config: Config, name: str, debug: bool = False, work: Workload = Workload.ENDLESS
) -> Iterator[SparkSession]:
    """Start a session for one command, and stop it at the end, also on SIGTERM and Ctrl-C.

    Args:
        name: the name of the application in Spark.
        debug: log errors of Spark with their stack traces.
        work: the amount of work.

    Raises:
        ConfigError: as `spark_session` does.
        KeyboardInterrupt: a signal has come.
    """
    spark = None
    # PySpark returns timestamps in Python's local zone, without naming it.
    os.environ["TZ"] = "UTC"
    time.tzset()
    with objects.asking_each_time(), signals.defer_signals():
        try:
            with ThreadPoolExecutor(1) as executor:  # in the main thread PySpark takes over Ctrl-C
                spark = executor.submit(spark_session, config, name, debug, work=work).result()
            signals.raise_if_requested()
            yield spark
        except Exception:
            if spark is None or not jvm.is_alive(spark):
                signals.raise_if_requested()
            raise
        finally:
            if spark is not None:
                _stop(spark)


def _stop(spark: SparkSession) -> None:
    """Stop the remaining queries, and then Spark: no batch may run without it."""
    # An earlier error is the one to report, and Java may be gone.
    with suppress(*SPARK_ERRORS, OSError):
        for query in spark.streams.active:
            with suppress(*SPARK_ERRORS):  # stop the others in any case
                query.stop()  # returns once its batch has ended
    with suppress(*SPARK_ERRORS, OSError):
        spark.stop()


def _get_session(builder: SparkSession.Builder, master: str | None) -> SparkSession:
    """Return the session; `master` is the configured one, if any."""
    try:
        return builder.getOrCreate()
    except SPARK_ERRORS as error:
        if master is None:
            raise
        reason = f"Spark does not start with {master}: {one_line(str(error))}"
        raise ConfigError(f"MEDALLION_MASTER: {reason}") from error
    except ConnectionError as error:
        advice = "see its output above; can it write to spark.local.dir and SPARK_LOCAL_DIRS?"
        raise MedallionError(f"Java has ended while Spark started: {advice}") from error


def _submitted_settings() -> dict[str, str]:
    """Return the settings of spark-submit, from its command line or Spark's own file."""
    SparkContext._ensure_initialized()  # otherwise PySpark has no JVM to ask
    return {key: value for key, value in SparkConf().getAll() if key not in {**FIXED, **S3_FIXED}}
