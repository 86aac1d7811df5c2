"""Archive the classes that a run loads (class-data sharing, JEP 350).

Loading some 25,000 classes is a fifth of a short nightly run. tools/venv/spark-env.sh passes the
archive to each Java that Spark starts here. Java ignores an archive of other jars or of another
Java, and this script creates it again.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
CONF = HERE / "conf"
KEPT = Path(sys.prefix) / "classes"
ARCHIVE, MADE_OF, NO_SETTINGS = KEPT / "java.jsa", KEPT / "made-of", KEPT / "no-settings"


def java_of_spark() -> str:
    """Return the Java that Spark's launchers use."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    return found or sys.exit("there is no Java here: make setup")


def fingerprint(java: str) -> str:
    """Return a digest of what decides whether Java uses the archive, and of its content."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        sys.exit("there is no PySpark here: make setup")
    jars = (Path(spec.origin).parent / "jars").iterdir()
    files = [*sorted(jars), Path(java).resolve(), Path(__file__)]
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime) for file in files]
    return hashlib.sha256(repr(stats).encode()).hexdigest()


def keep(archive: Path) -> None:
    """Run the layers once in a temporary folder, and wait for Java to write the archive."""
    # The user's settings for Spark could change the class path.
    os.environ["SPARK_CONF_DIR"] = str(NO_SETTINGS)
    # Without a line for each class that cannot be archived, such as generated ones.
    options = f'"-XX:ArchiveClassesAtExit={archive}" -Xlog:cds=off -Xlog:cds+dynamic=off'
    os.environ["SPARK_SUBMIT_OPTS"] = options
    from pyspark import SparkContext

    from medallion.config.loader import load
    from medallion.factory import DataFactory
    from medallion.runtime.graph import open_pipeline
    from medallion.storage.paths import LAYERS

    with tempfile.TemporaryDirectory(prefix="medallion-classes-") as root:
        conf = Path(root) / "conf"
        shutil.copytree(CONF, conf)  # the project's sources may be the user's
        home = {"MEDALLION_HOME": f"{root}/lakehouse", "MEDALLION_CONF": str(conf)}
        config = replace(load(home), master="local[2]")
        DataFactory(config.layout.landing("activity").parent).land(
            rows=100, files=2, source="activity"
        )
        try:
            with open_pipeline(config, "nightly", LAYERS, lambda _: None) as pipeline:
                for layer in LAYERS:
                    pipeline.run(layer)
        finally:  # else it would continue writing
            if SparkContext._gateway is not None:
                java = SparkContext._gateway.proc
                java.stdin.close()  # which ends it
                java.wait()


def main() -> None:
    java = java_of_spark()
    made_of = fingerprint(java)
    if MADE_OF.is_file() and MADE_OF.read_text() == made_of:
        return
    # An archive goes by that of Java's own classes, which a Java from elsewhere need not have.
    if subprocess.run(
        [java, "-Xshare:on", "-version"], capture_output=True, check=False
    ).returncode:
        return
    print(
        "keeping Java's classes, once: each start takes a fifth less from then on"
        " (a minute; to interrupt it does no harm)",
        flush=True,
    )
    started = time.monotonic()
    new = KEPT / f"java.{os.getpid()}"
    try:
        NO_SETTINGS.mkdir(parents=True, exist_ok=True)
        keep(new)
        # Java trusts what it is given: half an archive would end each start.
        with new.open("rb") as written:
            os.fsync(written.fileno())
        new.rename(ARCHIVE)
        MADE_OF.write_text(made_of)
        print(f"kept: {ARCHIVE.stat().st_size >> 20} MiB, {time.monotonic() - started:.0f} s")
    except Exception as error:  # nothing depends on it
        print(f"not kept: {error}")
    finally:
        new.unlink(missing_ok=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: nothing is kept")
