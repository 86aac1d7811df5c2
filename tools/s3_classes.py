"""Compile src/medallion/install/java_s3 into the jar beside it, which is committed.

Machines that install medallion have no compiler. The jar has its sources, so that a test sees
whether it was forgotten. It is the same for the same compiler.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile, ZipInfo

from medallion.install.jars import S3_CLASSES, cache_dir, spark_home

SOURCES = sorted(S3_CLASSES.with_name("java_s3").glob("*.java"))


def compiled() -> dict[str, bytes]:
    """Return the content of the jar by name: sources and classes, for Java 17."""
    jars = ":".join(f"{folder}/*" for folder in (spark_home() / "jars", cache_dir() / "jars"))
    with TemporaryDirectory() as folder:
        options = ["--release", "17", "-g:none", "-Xlint:-options", "-cp", jars, "-d", folder]
        subprocess.run(["javac", *options, *map(str, SOURCES)], check=True)
        classes = sorted(Path(folder).rglob("*.class"))
        entries = {f"medallion/{path.name}": path.read_bytes() for path in (*SOURCES, *classes)}
    return {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\r\n\r\n", **entries}


def main(target: Path = S3_CLASSES) -> None:
    with ZipFile(target, "w") as jar:
        for name, content in compiled().items():
            jar.writestr(ZipInfo(name), content)  # with a constant time


if __name__ == "__main__":
    main(*[Path(argument) for argument in sys.argv[1:]])
