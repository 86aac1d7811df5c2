"""Spark's own checkpoint writes made to fail, once each: its file manager is a setting.

The manager is written in Java and compiled by Janino, which Spark has for its own code.
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
    """What is to fail next: `create`, `rename` or `list`, a blank, and a pattern of the path."""

    def __init__(self, jvm: Any) -> None:
        self._system = jvm.java.lang.System

    def ask(self, strike: str) -> None:
        self._system.setProperty(_PROPERTY, strike)

    @property
    def has_struck(self) -> bool:
        return self._system.getProperty(_PROPERTY) is None


@contextmanager
def striking(spark: SparkSession) -> Iterator[Strikes]:
    """The session writes its checkpoints by that manager."""
    gateway: Any = spark.sparkContext._gateway
    _define(gateway)
    before = spark.conf.get(_SETTING)
    spark.conf.set(_SETTING, _CLASS)
    try:
        yield Strikes(gateway.jvm)
    finally:
        spark.conf.set(_SETTING, str(before))
        gateway.jvm.java.lang.System.clearProperty(_PROPERTY)


def _define(gateway: Any) -> None:
    """Give the class to the loader that has Spark's own, where executors find it too."""
    lang = gateway.jvm.java.lang
    if _is_there(lang):
        return
    loader = lang.ClassLoader.getSystemClassLoader()
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(_SOURCE)
    code = compiler.getBytecodes()[_CLASS]
    kinds = gateway.new_array(lang.Class, 4)
    for at, kind in enumerate((lang.Class.forName("java.lang.String"), lang.Class.forName("[B"))):
        kinds[at] = kind
    kinds[2] = kinds[3] = lang.Integer.TYPE
    define = lang.Class.forName("java.lang.ClassLoader").getDeclaredMethod("defineClass", kinds)
    define.setAccessible(True)
    given = gateway.new_array(lang.Object, 4)
    given[0], given[1], given[2], given[3] = _CLASS, code, 0, len(code)
    define.invoke(loader, given)


def _is_there(lang: Any) -> bool:
    try:
        lang.Class.forName(_CLASS)
    except Py4JError:
        return False
    return True
