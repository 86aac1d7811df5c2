"""`import medallion` is lazy, and offers the public names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import medallion


def test_import_is_lazy() -> None:
    heavy = "{'pyspark', 'deltalake', 'ruamel', 'pandas', 'great_expectations'}"
    code = f"import sys, medallion; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names_exist(tmp_path: Path) -> None:
    assert {"DataFactory", "query", "spark_session", "__version__"} <= set(dir(medallion))
    reports = medallion.DataFactory(tmp_path / "landing").land(rows=3, files=1, source="event")
    assert reports["event"].lines == 3
    assert medallion.query(tmp_path, "SELECT 1 AS n").rows == [(1,)]
    assert medallion.spark_session.__module__ == "medallion.spark.catalog"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = medallion.nothing
