"""Java classes for the test session, compiled with Janino, which Spark includes."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

QUIET_FILES = """
package tests;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class QuietFiles extends LocalFileSystem {
  public QuietFiles() { super(new Raw()); }

  public static class Raw extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission permission) throws IOException {
      String text = permission.toString().substring(0, 9).replace('t', 'x').replace('T', '-');
      Files.setPosixFilePermissions(
          pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
    }
  }
}
"""


def define_class(spark: SparkSession, name: str, source: str) -> None:
    """Define a class, and those within it, in the system class loader, where executors look."""
    gateway: Any = spark.sparkContext._gateway
    lang = gateway.jvm.java.lang
    try:
        lang.Class.forName(name)
    except Py4JError:
        pass
    else:
        return
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(source)
    parameter_types = gateway.new_array(lang.Class, 4)
    for at, type_name in enumerate(("java.lang.String", "[B")):
        parameter_types[at] = lang.Class.forName(type_name)
    parameter_types[2] = parameter_types[3] = lang.Integer.TYPE
    define = lang.Class.forName("java.lang.ClassLoader").getDeclaredMethod(
        "defineClass", parameter_types
    )
    define.setAccessible(True)
    for each, code in compiler.getBytecodes().items():
        arguments = gateway.new_array(lang.Object, 4)
        arguments[0], arguments[1], arguments[2], arguments[3] = each, code, 0, len(code)
        define.invoke(lang.ClassLoader.getSystemClassLoader(), arguments)


def write_files_without_processes(spark: SparkSession) -> None:
    """Let Hadoop set permissions itself: it starts a `chmod` for each file and directory.

    About a tenth of the processor time of a small query.
    """
    define_class(spark, "tests.QuietFiles", QUIET_FILES)
    context: Any = spark.sparkContext
    context._jsc.hadoopConfiguration().set("fs.file.impl", "tests.QuietFiles")
    context._jvm.org.apache.hadoop.fs.FileSystem.closeAll()
