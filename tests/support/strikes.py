"""Injected failures of Spark's checkpoint writes.

Spark's checkpoint file manager is a setting, and this one is written in Java.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from tests.support.java import define_class
from tests.support.settings import changed_settings

_SETTING = "spark.sql.streaming.checkpointFileManagerClass"
_PROPERTY = "tests.strike"
_CLASS = "tests.StrikingFileManager"
_SOURCE = """
package tests;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

public class StrikingFileManager extends FileSystemBasedCheckpointFileManager {
  public StrikingFileManager(Path path, Configuration conf) { super(path, conf); }

  private static synchronized void strike(String what, Path path) {
    String asked = System.getProperty("tests.strike");
    String here = what + " " + path.toUri().getPath();
    if (asked != null && here.matches(".*" + asked + ".*")) {
      System.clearProperty("tests.strike");
      org.apache.spark.unsafe.Platform.throwException(new IOException("injected: " + here));
    }
  }

  public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(
      Path path, boolean overwrite) {
    strike("create", path);
    return super.createAtomic(path, overwrite);
  }

  public void renameTempFile(Path from, Path to, boolean overwrite) {
    strike("rename", to);
    super.renameTempFile(from, to, overwrite);
  }

  public FileStatus[] list(Path path, PathFilter filter) {
    strike("list", path);
    return super.list(path, filter);
  }
}
"""


class Strikes:
    """Sets the next failure: `create`, `rename` or `list`, and a pattern of the path."""

    def __init__(self, jvm: Any) -> None:
        self._system = jvm.java.lang.System

    def ask(self, strike: str) -> None:
        self._system.setProperty(_PROPERTY, strike)

    @property
    def has_struck(self) -> bool:
        return self._system.getProperty(_PROPERTY) is None


@contextmanager
def failing_checkpoint_writes(spark: SparkSession) -> Iterator[Strikes]:
    """Make the session write its checkpoints with the failing manager."""
    define_class(spark, _CLASS, _SOURCE)
    java: Any = spark._jvm
    try:
        with changed_settings(spark, {_SETTING: _CLASS}):
            yield Strikes(java)
    finally:
        java.java.lang.System.clearProperty(_PROPERTY)
