"""The one place that makes a SparkSession."""

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

FIRST_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""Java's first compiler alone: the second makes code several times as fast, and a process with
little to do ends before that has paid. Without that room it complains on standard output.
"""
TASKS_FIRST = (
    "-XX:+UnlockDiagnosticVMOptions -XX:+DisplayVMOutputToStderr "
    f'"-XX:CompilerDirectivesFile={Path(__file__).with_name("compilers.json")}"'
)
"""Java's second compiler for what tasks run, and not for what plans them. It says that it has read
the file, and standard output may be one JSON document."""
INTERPRETED: Mapping[str, str] = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
"""No code made for each plan: to write and to compile it takes longer than a few thousand rows."""


class Workload(Enum):
    """How much there is to do, as far as it matters to Java and Spark."""

    LITTLE = "little"
    SOME = "some"
    MUCH = "much"
    ENDLESS = "endless"  # or nobody has looked

    @classmethod
    def of(cls, size: int, rows: int) -> Workload:
        """Of bytes of files to take in, and rows of tables to read or to write whole.

        The figures are near where one way took as long as the next (docs/benchmarks.md).
        """
        if size <= 4 * 2**20 and rows <= 100_000:
            return cls.LITTLE
        return cls.SOME if size <= 64 * 2**20 and rows <= 500_000 else cls.MUCH

    @property
    def java(self) -> str:
        """Options of Java."""
        return {Workload.MUCH: TASKS_FIRST, Workload.ENDLESS: ""}.get(self, FIRST_COMPILER)

    @property
    def spark(self) -> Mapping[str, str]:
        """Settings of Spark."""
        return INTERPRETED if self is Workload.LITTLE else {}


_JAVA = "spark.driver.extraJavaOptions"
# Under other values the same line would become another row, or none, or the next night have another
# key; or what has become of it could not be counted.
_FIXED: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    # A timestamp is a moment, as tables and suites have it; in SQL a backslash begins an escape.
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.parser.escapedStringLiterals": "false",
    # Java's older times have no 5 to 14 October 1582: a Parquet file with one would be passed over.
    "spark.sql.datetime.java8API.enabled": "true",
    # Days before 15 October 1582 are those that the file says, none of another calendar.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    # By milliseconds, rows of one would be duplicates; INT96 is dearer for whoever reads it.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
    # What cannot be read is told, and never passed over, as Hadoop does with longer lines; nor is a
    # page that is not as written.
    "spark.hadoop.mapreduce.input.linerecordreader.line.maxlength": str(2**31 - 1),
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # A field of the wrong type must not cost the other fields of its line.
    "spark.sql.json.enablePartialResults": "true",
    "spark.sql.variant.allowDuplicateKeys": "true",
    "spark.sql.legacy.json.allowEmptyString.enabled": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # Rows are counted by what Delta puts down of each commit, and found by what batches have read.
    "spark.databricks.delta.history.metricsEnabled": "true",
    "spark.databricks.delta.stats.collect": "true",
    "spark.sql.streaming.minBatchesToRetain": "100",
}
# Of a Spark that is one process. A laptop's host name need not resolve, and nobody else has to
# reach this driver. Nor is its executor lost where the clock jumps ahead, as after a sleep: Spark
# would end Java ten minutes later.
_LOCAL: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "3650d",
}
# What PySpark asks the JVM for by name, hundreds of times a night; for a name without its package
# that is a look into each of Spark's three hundred jars.
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

    Settings come from `conf/spark/spark-defaults.conf`, then from `more`; what spark-submit was
    given wins, but for those that decide what a row says.

    Args:
        config: whose settings file and master are taken; that of this process if none is given.
        name: the application's, as Spark shows it.
        debug: Spark says what fails with its stack trace.
        more: settings for this session, which win over the file's.
        work: how much it has to do.

    Raises:
        ConfigError: that file is missing, or a line of it is not a setting; or Spark does not start
            with the master that is set, or that of SPARK_HOME is another one.
        MedallionError: Java has ended meanwhile.
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
        java = (wanted.get(_JAVA, ""), f"-Dlog4j2.configurationFile={log4j}", work.java)
        wanted[_JAVA] = " ".join(java).strip()
        builder = builder.master(master)
    for key, value in wanted.items():
        if key not in given:
            builder = builder.config(key, value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Else each of Java's threads may keep what RocksDB has freed in an arena of its own.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    session = _started(builder, None if submitted else config.master)
    _prepare(session, debug)
    return session


def _refuse_another_spark() -> None:
    """Raise ConfigError where the Spark that a user has set is none that this PySpark can speak to:
    many a machine has an older one."""
    home = os.environ.get("SPARK_HOME")
    if home and not any(Path(home, "jars").glob(f"spark-core_*-{version}.jar")):
        raise ConfigError(f"SPARK_HOME: {home} has no Spark {version}, which is needed: unset it.")


def _prepare(session: SparkSession, debug: bool) -> None:
    """What is set in the JVM, which spark-submit may have started."""
    # What fails is told in a sentence, and much of it is dealt with: no stack traces unless asked.
    session.sparkContext.setLogLevel("ERROR" if debug else "FATAL")
    if not debug:
        PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.FATAL)
    # ORC's times without a zone would be those of the machine.
    java: Any = session._jvm
    zones = getattr(java, "java.util.TimeZone")  # and so no look for a class `java`, or `java.util`
    zones.setDefault(zones.getTimeZone("UTC"))
    for name in _CLASSES:
        setattr(java, name, getattr(java, name))
    jvm.install_handler(session)


@contextmanager
def session_of_command(
    config: Config, name: str, debug: bool = False, work: Workload = Workload.ENDLESS
) -> Iterator[SparkSession]:
    """A session for one command, stopped at its end; SIGTERM and Ctrl-C end it as `signals` has it.

    Raises:
        ConfigError: as `spark_session` does.
        KeyboardInterrupt: one of these has come, or Java has died of it.
    """
    spark = None
    # What Python has of a time of Spark's, as a gate does, is in its own zone, without a name.
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
    """Stop the queries that are left, and then Spark: a batch must not go on without it."""
    # What failed before it is what is to be told; and Java may be gone.
    with suppress(*SPARK_ERRORS, OSError):
        for query in spark.streams.active:
            with suppress(*SPARK_ERRORS):  # one that cannot be stopped leaves no other on
                query.stop()  # returns once its batch has ended
    with suppress(*SPARK_ERRORS, OSError):
        spark.stop()


def _started(builder: SparkSession.Builder, master: str | None) -> SparkSession:
    """The session; `master` is the one that a user has set, if any."""
    try:
        return builder.getOrCreate()
    except SPARK_ERRORS as error:
        if master is None:
            raise
        told = f"Spark does not start with {master}: {one_line(str(error))}"
        raise ConfigError(f"MEDALLION_MASTER: {told}") from error
    except ConnectionError as error:
        raise MedallionError(
            "Java has ended while Spark started: its own lines above say why, such as a folder for "
            "temporary files that cannot be written to (spark.local.dir, SPARK_LOCAL_DIRS)."
        ) from error


def _submitted() -> dict[str, str]:
    """What spark-submit was given, on its command line or by Spark's own file."""
    SparkContext._ensure_initialized()  # else PySpark asks no JVM
    return {key: value for key, value in SparkConf().getAll() if key not in _FIXED}


def session_settings(config: Config) -> dict[str, str]:
    """Spark's settings as the file has them, a key, blanks, a value a line; and those that decide
    what a row says.

    Raises:
        ConfigError: the file is missing, a line of it is not a setting, or sets one of these.
    """
    file = config.conf_dir / "spark/spark-defaults.conf"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error_reason(error)}).") from None
    found = {}
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
        found[key] = value
    return {**found, **_FIXED}
