"""The Thrift server's settings; Spark itself is not started."""

from __future__ import annotations

import runpy
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from medallion.storage.paths import Layout
from tests.support import PROJECT


def test_root_and_master_are_those_of_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file beside conf/, as for the other commands."""
    shutil.copytree(PROJECT / "conf", tmp_path / "conf")
    (tmp_path / ".env").write_text("MEDALLION_HOME=lake\nMEDALLION_MASTER=local[3]\n")
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "MASTER", "CONF"):
        monkeypatch.delenv(f"MEDALLION_{name}", raising=False)
    monkeypatch.setattr(sys, "argv", ["thrift_server.py"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    asked: list[Any] = []

    def session(master: str, *_: Any) -> Any:
        asked.append(master)
        return SimpleNamespace(sql=lambda _: None, stop=lambda: None)

    def register(_: Any, layout: Layout, *__: Any) -> None:
        asked.append(layout.root)
        raise KeyboardInterrupt

    main = runpy.run_path(str(PROJECT / "tools/thrift_server.py"))["main"]
    main.__globals__.update(session=session, register=register)
    with pytest.raises(KeyboardInterrupt):
        main()
    assert [asked[0], str(asked[1])] == ["local[3]", str(tmp_path / "lake")]
    (tmp_path / ".env").write_text("MEDALLION_MISTER=local[3]\n")
    with pytest.raises(SystemExit, match="MEDALLION_MISTER is not a known key"):
        main()
