"""The wheel in a separate environment, without files of this repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

from medallion.install.jars import cache_dir, listed_jars, spark_home
from tests.support import PROJECT

SALES = """\
order,shop,amount,time
o1,north,12.50,2026-05-01T10:00:00Z
o2,south,7.00,2026-05-01T11:30:00Z
o3,north,1.25,2026-05-01T11:59:59Z
"""


class NewUser:
    """A new user with an empty home directory, the wheel, and a Spark without other jars."""

    def __init__(self, home: Path, wheel: Path) -> None:
        self.home = home
        python = str(home / "env/bin/python")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "env"], check=True)
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
        subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True)
        (packages,) = (home / "env").glob("lib/python*/site-packages")
        # Dependencies are shared; a path in a .pth file does not add the editable install.
        (packages / "shared.pth").write_text(sysconfig.get_path("purelib"))
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("MEDALLION", "PYTHON"))},
            "HOME": str(home),
            "SPARK_HOME": str(self._spark()),
        }

    def _spark(self) -> Path:
        """Return a PySpark without the jars and settings that `medallion setup` added."""
        installed, spark = spark_home(), self.home / "spark"
        (spark / "jars").mkdir(parents=True)
        for path in installed.iterdir():
            if path.name not in ("jars", "conf"):
                (spark / path.name).symlink_to(path)
        added = {
            path.name for jar in listed_jars() for path in installed.glob(f"jars/{jar.group}_*")
        }
        for jar in installed.glob("jars/*.jar"):
            if jar.name not in added:
                (spark / "jars" / jar.name).symlink_to(jar)
        return spark

    def __call__(self, *arguments: str, folder: str = "shop") -> tuple[int, str, str]:
        command = [str(self.home / "env/bin/medallion"), *arguments]
        process = subprocess.run(
            command,
            cwd=self.home / folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        return process.returncode, process.stdout, process.stderr

    def download(self) -> None:
        """Fill the cache, so that the test needs no network; test_fetch has the download."""
        jars = self.home / ".cache/medallion" / cache_dir().name / "jars"
        jars.mkdir(parents=True)
        for jar in listed_jars():
            shutil.copy(spark_home() / "jars" / jar.file_name, jars)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Build the wheel."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    isolation = ["--no-build-isolation"] if find_spec("hatchling") else []
    command = [*pip, *isolation, "--wheel-dir", str(tmp_path), str(PROJECT)]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("medallion-0.1.0-*.whl")
    return wheel


@pytest.fixture
def new_user(wheel: Path) -> NewUser:
    return NewUser(wheel.parent, wheel)


def test_wheel_has_each_file_of_the_package(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        scripts = archive.read("medallion-0.1.0.dist-info/entry_points.txt").decode()
    source = PROJECT / "src"
    expected = {
        str((Path(folder) / file).relative_to(source))
        for folder, _, files in os.walk(source / "medallion", followlinks=True)
        for file in files
        if not file.endswith(".pyc")
    }
    assert {name for name in names if name.startswith("medallion/")} == expected
    assert "medallion = medallion.cli.main:main" in scripts.splitlines()


@pytest.mark.slow
@pytest.mark.spark
def test_wheel_from_an_empty_folder_to_numbers(new_user: NewUser) -> None:
    (new_user.home / "sales.csv").write_text(SALES)
    status, out, err = new_user("nightly", folder=".")
    assert (status, out) == (2, "")
    assert "no pipeline.yaml here" in err

    assert new_user("init", "shop", folder=".")[0] == 0
    assert new_user("add", "sales", "../sales.csv", "--land")[0] == 0
    status, out, err = new_user("nightly")
    assert (status, out) == (2, "")
    assert "Spark needs 7 jars" in err
    assert err.endswith("run medallion setup\n")

    new_user.download()
    assert new_user("setup")[0] == 0
    status, out, err = new_user("nightly")
    assert status == 0, out + err
    assert "\nbalanced\n" in out
    totals = "SELECT sum(row_count) AS n FROM gold.sales_by_hour"
    status, out, err = new_user("sql", "--json", totals)
    assert json.loads(out) == {"columns": ["n"], "rows": [[3]]}
