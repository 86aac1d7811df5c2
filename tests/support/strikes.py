"""Injected failures of Spark's checkpoint writes.

Spark's checkpoint file manager is a setting. This one is written in Java and compiled with Janino,
which Spark includes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

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
    gateway: Any = spark.sparkContext._gateway
    _define(gateway)
    original = spark.conf.get(_SETTING)
    spark.conf.set(_SETTING, _CLASS)
    try:
        yield Strikes(gateway.jvm)
    finally:
        spark.conf.set(_SETTING, str(original))
        gateway.jvm.java.lang.System.clearProperty(_PROPERTY)


def _define(gateway: Any) -> None:
    """Define the class in the system class loader, where executors find it."""
    lang = gateway.jvm.java.lang
    if _is_defined(lang):
        return
    loader = lang.ClassLoader.getSystemClassLoader()
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(_SOURCE)
    code = compiler.getBytecodes()[_CLASS]
    parameter_types = gateway.new_array(lang.Class, 4)
    for at, class_ in enumerate((lang.Class.forName("java.lang.String"), lang.Class.forName("[B"))):
        parameter_types[at] = class_
    parameter_types[2] = parameter_types[3] = lang.Integer.TYPE
    define = lang.Class.forName("java.lang.ClassLoader").getDeclaredMethod(
        "defineClass", parameter_types
    )
    define.setAccessible(True)
    arguments = gateway.new_array(lang.Object, 4)
    arguments[0], arguments[1], arguments[2], arguments[3] = _CLASS, code, 0, len(code)
    define.invoke(loader, arguments)


def _is_defined(lang: Any) -> bool:
    try:
        lang.Class.forName(_CLASS)
    except Py4JError:
        return False
    return True
