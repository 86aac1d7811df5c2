"""Spark's settings: by workload, those of this package, then those of a project's conf/spark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from medallion.config.document import read_text
from medallion.config.model import Config
from medallion.config.tables import ToKafka
from medallion.errors import ConfigError
from medallion.install.jars import Extra, class_path
from medallion.storage import objects
from medallion.storage.paths import ObjectPath

FIRST_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""Only Java's first compiler: a short process ends before the second pays off. With a smaller code
cache Java prints warnings on standard output."""
TASKS_FIRST = (
    "-XX:+UnlockDiagnosticVMOptions -XX:+DisplayVMOutputToStderr "
    f'"-XX:CompilerDirectivesFile={Path(__file__).with_name("compilers.json")}"'
)
"""Java's second compiler for tasks only, not for planning. Java logs this on standard
error, because standard output may be one JSON document."""
INTERPRETED: Mapping[str, str] = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.subexpressionElimination.enabled": "false",
}
"""No generated code, and no search for equal expressions: each takes longer than processing a few
thousand rows."""


class Workload(Enum):
    """The amount of work, which selects settings of Java and Spark."""

    LITTLE = "little"
    SOME = "some"
    MUCH = "much"
    ENDLESS = "endless"  # or unknown

    @classmethod
    def for_input(cls, size: int, rows: int) -> Workload:
        """Return the workload of files to ingest and rows to read or rewrite.

        At the limits, neighbouring settings are about equally fast (docs/benchmarks-log.md).

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


DEFAULTS = Path(__file__).with_name("defaults")
"""Files with the defaults of Spark and its logging, and the lists of jars."""
SETTINGS, LOGGING = "spark-defaults.conf", "log4j2.properties"
_CREDENTIALS = re.compile(
    r"\.fs\.(s3a\..*(access\.key|secret\.key|session\.token)$|azure\.account\.(key|oauth2\.client\.s)"
    r"|gs\..*(secret|private\.key))"
)


def required_extras(config: Config) -> list[Extra]:
    """Return the jars that a project needs beside Delta's."""
    outputs = [output for table in config.gold.values() for output in table.outputs.values()]
    has_kafka = any(source.stream for source in config.sources.values())
    has_kafka |= any(isinstance(output, ToKafka) for output in outputs)
    used = {Extra.KAFKA: has_kafka, Extra.S3: uses_store(config, "s3")}
    return [extra for extra, is_used in used.items() if is_used]


def uses_store(config: Config, scheme: str) -> bool:
    """Return True if the root has addresses of this scheme, or a folder or a lookup table has."""
    return any(objects.scheme_of(path.address) == scheme for path in _objects(config))


def _objects(config: Config) -> Iterator[ObjectPath]:
    """Yield the root, the folders and the lookup tables that are in buckets."""
    sources, layout = config.sources.values(), config.layout
    folders = [folder for source in sources for folder in source.folders_in(layout)]
    folders += [layout.root / source.lookup.file for source in sources if source.lookup]
    yield from (path for path in (layout.root, *folders) if isinstance(path, ObjectPath))


def _refuse_other_stores(config: Config, settings: Mapping[str, str]) -> None:
    """Raise ConfigError if Spark cannot use a bucket: it has connectors to S3 alone."""
    for path in _objects(config):
        if (scheme := objects.scheme_of(path.address)) == "s3":
            continue
        if path == config.layout.root:
            raise ConfigError(
                "MEDALLION_HOME: Spark writes tables on a disk or on s3://, not on "
                f"{scheme}://, which is for commands without Spark, such as medallion sql."
            )
        if not settings.keys() & {"spark.jars", "spark.jars.packages"}:
            raise ConfigError(
                f"{path}: Spark needs a connector to {scheme}://: set spark.jars.packages in "
                f"{config.conf_dir / 'spark' / SETTINGS}, see docs/operations.md."
            )


def jar_settings(
    config: Config, settings: Mapping[str, str], has_executors: bool
) -> dict[str, str]:
    """Return the settings for jars that Spark does not have itself.

    Args:
        config: the configuration, which may need the jars of extras.
        settings: the other settings.
        has_executors: whether there are executors, which get the jars from the driver.

    Raises:
        UsageError: a jar is missing.
    """
    paths = [str(path) for path in class_path(required_extras(config))]
    separators = {"spark.driver.extraClassPath": ":"}
    if has_executors:
        separators["spark.jars"] = ","
    own = {key: [settings[key]] if key in settings else [] for key in separators}
    return {key: mark.join([*own[key], *paths]) for key, mark in separators.items() if paths}


def is_submitted() -> bool:
    """Return whether spark-submit has started this process, and with it Java."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def logging_file(config: Config) -> Path:
    """Return the project's settings of Log4j, or else the default ones."""
    file = config.conf_dir / "spark" / LOGGING
    return file if file.is_file() else DEFAULTS / LOGGING


def session_settings(config: Config) -> dict[str, str]:
    """Return the default settings, replaced by those of the project's file, and the fixed ones.

    Raises:
        ConfigError: the project's file is unreadable, has an invalid line, sets a fixed setting, or
            has credentials; or Spark has no connector to a bucket.
    """
    settings, fixed = _read_settings(DEFAULTS / SETTINGS, FIXED), {**FIXED}
    if uses_store(config, "s3"):
        settings |= _read_settings(DEFAULTS / "s3.conf", FIXED)
        fixed |= {**S3_FIXED, **_s3_address()}
    settings |= _read_settings(config.conf_dir / "spark" / SETTINGS, fixed)
    _refuse_other_stores(config, settings)
    return {**settings, **fixed}


def _s3_address() -> dict[str, str]:
    """Return where S3 is; clients without Spark read the same variables."""
    settings = {}
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    if endpoint := objects.endpoint():
        settings["spark.hadoop.fs.s3a.endpoint"] = endpoint
        # Other servers than Amazon's have no host name for each bucket.
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"
    return settings


def _read_settings(file: Path, fixed: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a file, one key and value a line; none if there is no such file.

    Raises:
        ConfigError: it is unreadable, has an invalid line, another value of a fixed setting, or
            credentials.
    """
    settings = {}
    for number, line in enumerate(read_text(file).splitlines(), 1):
        words = line.split(None, 1)
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not words[0].startswith("spark."):
            raise ConfigError(
                f"{file} line {number}: must be a key that starts with spark. and a value."
            )
        key, value = words[0], words[1].strip()
        if _CREDENTIALS.search(key):
            raise ConfigError(
                f"{file} line {number}: {key} would be on Java's command line, which all users can "
                "read. Remove the line, and set the variables of the store."
            )
        if value.lower() != fixed.get(key, value).lower():
            raise ConfigError(
                f"{file} line {number}: {key} must be {fixed[key]}: with another value, rows "
                "would change, or not be counted. Remove the line."
            )
        settings[key] = value
    return settings


FIXED: Mapping[str, str] = _read_settings(DEFAULTS / "fixed.conf", {})
"""With other values the same line would become another row, or rows could not be counted."""
S3_FIXED: Mapping[str, str] = _read_settings(DEFAULTS / "s3-fixed.conf", {})
"""With other values two writers on S3 could replace each other's commits."""
assert FIXED, "the package has fixed.conf"
