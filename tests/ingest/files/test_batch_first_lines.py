"""Sampled first lines of files, from which formats are detected."""

from __future__ import annotations

import gzip
from pathlib import Path

from medallion.ingest.files.batch import first_lines


def test_first_lines_samples_eight_files(tmp_path: Path) -> None:
    files = [tmp_path / f"{number:03}.json" for number in range(80)]
    for number, file in enumerate(files):
        file.write_text("".join(f"{number} {line}\n" for line in range(100)))
    assert first_lines(files) == [f"{f} {line}" for f in range(0, 80, 10) for line in range(20)]


def test_first_lines_of_unusual_files(tmp_path: Path) -> None:
    contents = {
        "plain.json": b'\xef\xbb\xbf{"a":1}\r\n\n{"b":2}',
        "compressed.json.gz": gzip.compress(b'{"c":3}\n'),
        "truncated.json.gz": gzip.compress(b'{"c":3}\n')[:-9],
        "empty.json": b"",
        "long.json": b'{"d":4}\n' + b"x" * 100_000 + b"\n",
        "longer.json": b"x" * 100_000 + b"\n",
        "latin.json": b"\xe9\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    files = [*(tmp_path / name for name in contents), tmp_path / "gone.json"]
    assert first_lines(files) == ['{"a":1}', "", '{"b":2}', '{"c":3}', '{"d":4}', "\ufffd"]


def test_first_lines_without_files() -> None:
    assert first_lines([]) == []
