"""Java classes for the test session, compiled with Janino, which Spark includes."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

QUIET_FILES = """
package tests;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
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

    public FileStatus getFileLinkStatus(Path path) throws IOException {
      return getFileStatus(path);
    }
  }

  public static class Context extends ChecksumFs {
    public Context(URI uri, Configuration settings) throws Exception {
      super(new RawContext(uri, settings));
    }
  }

  public static class RawContext extends DelegateToFileSystem {
    RawContext(URI uri, Configuration settings) throws Exception {
      super(uri, new Raw(), settings, "file", false);
    }

    public int getUriDefaultPort() { return -1; }

    public boolean isValidName(String name) { return true; }
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
    """Let Hadoop do itself what it starts processes for.

    That is a `chmod` for each file and directory, and four times `readlink` (which fails, because
    it gets a URI) for each commit of Delta: about a tenth of the processor time of a small query.
    """
    define_class(spark, "tests.QuietFiles", QUIET_FILES)
    context: Any = spark.sparkContext
    settings = context._jsc.hadoopConfiguration()
    settings.set("fs.file.impl", "tests.QuietFiles")
    settings.set("fs.AbstractFileSystem.file.impl", "tests.QuietFiles$Context")
    context._jvm.org.apache.hadoop.fs.FileSystem.closeAll()
