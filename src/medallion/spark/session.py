"""The SparkSession: its settings, and how much work it is started for."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark import __version__ as version
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.errors import ConfigError, MedallionError
from medallion.spark import jvm, signals
from medallion.spark.errors import SPARK_ERRORS, one_line
from medallion.storage.text import error_reason

_JAVA_OPTIONS = "-XX:+ExitOnOutOfMemoryError"
"""After a lack of memory in one thread, Spark would wait for that thread for ever."""
FIRST_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""Only Java's first compiler: a short process ends before the second pays off. With a smaller code
cache Java prints warnings on standard output."""
TASKS_FIRST = (
    "-XX:+UnlockDiagnosticVMOptions -XX:+DisplayVMOutputToStderr "
    f'"-XX:CompilerDirectivesFile={Path(__file__).with_name("compilers.json")}"'
)
"""Java's second compiler for tasks only, not for planning. Java reports it on standard
error, for standard output may be one JSON document."""
INTERPRETED: Mapping[str, str] = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
"""No generated code: to compile it takes longer than to process a few thousand rows."""


class Workload(Enum):
    """The amount of work, as far as it matters to Java and Spark."""

    LITTLE = "little"
    SOME = "some"
    MUCH = "much"
    ENDLESS = "endless"  # or unknown

    @classmethod
    def of(cls, size: int, rows: int) -> Workload:
        """Return the workload of files to ingest and rows to read or rewrite.

        The limits are near where one setting took as long as the next (docs/benchmarks.md).

        Args:
            size: bytes of files.
            rows: rows of tables.
        """
        if size <= 4 * 2**20 and rows <= 100_000:
            return cls.LITTLE
        return cls.SOME if size <= 64 * 2**20 and rows <= 500_000 else cls.MUCH

    @property
    def java(self) -> str:
        """Return the options of Java."""
        return {Workload.MUCH: TASKS_FIRST, Workload.ENDLESS: ""}.get(self, FIRST_COMPILER)

    @property
    def spark(self) -> Mapping[str, str]:
        """Return the settings of Spark."""
        return INTERPRETED if self is Workload.LITTLE else {}


_JAVA = "spark.driver.extraJavaOptions"
# With other values the same line would become another row, or rows could not be counted.
_FIXED: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    # Timestamps are instants, as in tables and suites; in SQL a backslash starts an escape.
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.parser.escapedStringLiterals": "false",
    # Java's old time classes lack 5 to 14 October 1582: a Parquet file with one would be skipped.
    "spark.sql.datetime.java8API.enabled": "true",
    # Dates before 15 October 1582 are read as written, without conversion of calendars.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    # In milliseconds, different rows would become duplicates; INT96 is slower to read.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
    # Unreadable input is an error, and never skipped, as Hadoop does with long lines.
    "spark.hadoop.mapreduce.input.linerecordreader.line.maxlength": str(2**31 - 1),
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # A field of the wrong type must not cost the other fields of its line.
    "spark.sql.json.enablePartialResults": "true",
    "spark.sql.legacy.json.allowEmptyString.enabled": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # Rows are counted by Delta's commit metrics, and found by the offsets of batches.
    "spark.databricks.delta.history.metricsEnabled": "true",
    "spark.databricks.delta.stats.collect": "true",
    "spark.sql.streaming.minBatchesToRetain": "100",
}
# For Spark in one process: the host name need not resolve, and the executor must not count as lost
# if the clock jumps ahead, as after a sleep.
_LOCAL: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "3650d",
}
# Names that PySpark looks up in the JVM for each call, which would search all of Spark's jars.
_CLASSES = (
    "functions",
    "PythonUtils",
    "PythonSQLUtils",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession",
)


def spark_session(
    config: Config | None = None,
    name: str = "medallion",
    debug: bool = False,
    more: Mapping[str, str] | None = None,
    work: Workload = Workload.ENDLESS,
) -> SparkSession:
    """Start Spark, or join the one that spark-submit has started.

    Settings come from `conf/spark/spark-defaults.conf`, then from `more`; those of spark-submit
    win, except the ones that decide the contents of a row.

    Args:
        config: the configuration; without one, that of this process.
        name: the name of the application in Spark.
        debug: log errors of Spark with their stack traces.
        more: settings for this session, which win over the file's.
        work: how much it has to do.

    Raises:
        ConfigError: the settings file is missing or invalid; Spark does not start with the
            configured master; or SPARK_HOME has another version.
        MedallionError: the Java process has ended.
    """
    config = config or load()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # set by spark-submit, whose JVM runs already
    given = _submitted() if submitted else {}
    master = given.get("spark.master") or config.master or "local[*]"
    local = _LOCAL if master.startswith("local") else {}
    wanted = {**local, **session_settings(config), **work.spark, **(more or {})}
    builder = SparkSession.builder.appName(name)
    if not submitted:
        _refuse_another_spark()
        log4j = (config.conf_dir / "spark/log4j2.properties").as_uri()
        options = (wanted.get(_JAVA, ""), f"-Dlog4j2.configurationFile={log4j}")
        java = (*options, _JAVA_OPTIONS, work.java)
        wanted[_JAVA] = " ".join(java).strip()
        builder = builder.master(master)
    for key, value in wanted.items():
        if key not in given:
            builder = builder.config(key, value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Otherwise each thread of Java keeps memory that RocksDB has freed in its own arena.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    session = _started(builder, None if submitted else config.master)
    _prepare(session, debug)
    return session


def _refuse_another_spark() -> None:
    """Raise ConfigError if SPARK_HOME is a Spark that this PySpark cannot use."""
    home = os.environ.get("SPARK_HOME")
    if home and not any(Path(home, "jars").glob(f"spark-core_*-{version}.jar")):
        raise ConfigError(f"SPARK_HOME: {home} has no Spark {version}, which is needed: unset it.")


def _prepare(session: SparkSession, debug: bool) -> None:
    """Set what is set in the JVM, which spark-submit may have started."""
    # Errors are reported in one line, and many are handled: stack traces only if asked for.
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
        config: the configuration.
        name: the name of the application in Spark.
        debug: log errors of Spark with their stack traces.
        work: how much it has to do.

    Raises:
        ConfigError: as `spark_session` does.
        KeyboardInterrupt: a signal has come, or Java has died of it.
    """
    spark = None
    # Python gets Spark's times in its own zone, without a name, as in gates.
    os.environ["TZ"] = "UTC"
    time.tzset()
    with signals.defer_signals():
        try:
            with ThreadPoolExecutor(1) as beside:  # in the main thread PySpark takes over Ctrl-C
                spark = beside.submit(spark_session, config, name, debug, work=work).result()
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


def _started(builder: SparkSession.Builder, master: str | None) -> SparkSession:
    """Return the session; `master` is the configured one, if any."""
    try:
        return builder.getOrCreate()
    except SPARK_ERRORS as error:
        if master is None:
            raise
        reason = f"Spark does not start with {master}: {one_line(str(error))}"
        raise ConfigError(f"MEDALLION_MASTER: {reason}") from error
    except ConnectionError as error:
        raise MedallionError(
            "Java has ended while Spark started: its own lines above say why, such as a folder for "
            "temporary files that cannot be written to (spark.local.dir, SPARK_LOCAL_DIRS)."
        ) from error


def _submitted() -> dict[str, str]:
    """Return the settings of spark-submit, from its command line or Spark's own file."""
    SparkContext._ensure_initialized()  # otherwise PySpark has no JVM to ask
    return {key: value for key, value in SparkConf().getAll() if key not in _FIXED}


def session_settings(config: Config) -> dict[str, str]:
    """Return Spark's settings from the file, one key and value a line, and the fixed ones.

    Raises:
        ConfigError: the file is missing, has an invalid line, or sets a fixed setting.
    """
    file = config.conf_dir / "spark/spark-defaults.conf"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error_reason(error)}).") from None
    settings = {}
    for number, line in enumerate(lines, 1):
        words = line.split(None, 1)
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not words[0].startswith("spark."):
            raise ConfigError(
                f"{file} line {number}: must be a key that begins with spark. and a value."
            )
        key, value = words[0], words[1].strip()
        if value.lower() != _FIXED.get(key, value).lower():
            raise ConfigError(
                f"{file} line {number}: {key} is {_FIXED[key]} here, whatever else is set: with "
                "another value the same line would be another row, or not be counted. Take it out."
            )
        settings[key] = value
    return {**settings, **_FIXED}
