"""The files of a new source: finding, sampling and copying them to landing."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatch
from glob import glob
from pathlib import Path
from urllib.parse import unquote

from medallion.config.model import IGNORED_NAMES
from medallion.errors import UsageError
from medallion.ingest.files.content import READ_ERRORS, ContentError, open_members
from medallion.ingest.files.listing import DELTA_LOG, DELTA_TABLE
from medallion.storage.files import list_tree
from medallion.storage.paths import StoragePath

SAMPLE_BYTES = 1 << 20
_CODECS = {
    b"\x1f\x8b": ".gz",
    b"BZh": ".bz2",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"\xfd7zXZ\x00": ".xz",
    b"PK\x03\x04": ".zip",
}


@dataclass(frozen=True)
class InputFile:
    """A file of a new source, and its path below the source's directory in landing."""

    path: Path
    target: Path

    @property
    def partitions(self) -> dict[str, str]:
        """The values of directories such as `date=2026-05-01`, by name."""
        parts = (part.partition("=") for part in self.target.parent.parts)
        return {name: unquote(value) for name, equals, value in parts if name and equals}


@dataclass(frozen=True)
class Sample:
    """The start of a file, decompressed.

    Attributes:
        data: the first bytes.
        codec: the suffix of its compression, or "".
        is_complete: whether `data` is all of it.
        member: its name in a zip archive.
    """

    data: bytes
    codec: str
    is_complete: bool
    member: str = ""


def input_files(paths: Iterable[str]) -> list[InputFile]:
    """Return the files of paths, directories and globs, without hidden and ignored ones.

    Raises:
        UsageError: a path does not exist, or has no files.
        OSError: a directory cannot be listed.
    """
    files: dict[Path, InputFile] = {}
    for given in paths:
        path = Path(given)
        if path.is_dir():
            found = sorted(list_tree(path))
            if log := next((each for each in found if each.name == DELTA_LOG), None):
                raise UsageError(f"{log.parent} is {DELTA_TABLE.text}.")
            inputs = [InputFile(each, each.relative_to(path)) for each in found]
        else:
            names = [given] if path.exists() else sorted(glob(given, recursive=True))  # noqa: PTH207
            inputs = [InputFile(Path(name), Path(Path(name).name)) for name in names]
        inputs = [file for file in inputs if file.path.is_file() and _is_visible(file.target)]
        if not inputs:
            raise UsageError(f"{given}: no such file, or a folder without files to ingest.")
        files |= {file.path: file for file in inputs}
    return list(files.values())


def _is_visible(target: Path) -> bool:
    is_hidden = any(part.startswith((".", "_")) for part in target.parts)
    return not is_hidden and not any(fnmatch(target.name, each) for each in IGNORED_NAMES)


def read_samples(path: Path, size: int = SAMPLE_BYTES) -> Iterator[Sample]:
    """Yield the decompressed start of a file; of a zip archive, that of each member.

    Raises:
        UsageError: its compressed data is corrupt.
    """
    codec = _codec(path)
    try:
        with closing(open_members(path, codec)) as members:
            for name, file in members:
                with file:
                    data = file.read(size + 1)
                yield Sample(data[:size], codec, len(data) <= size, name)
    except (ContentError, *READ_ERRORS) as error:
        raise UsageError(f"{path}: cannot be read ({error}).") from None


def _codec(path: Path) -> str:
    """Return the suffix of a file's compression by its first bytes, or ""."""
    with path.open("rb") as file:
        start = file.read(6)
    return next((suffix for magic, suffix in _CODECS.items() if start.startswith(magic)), "")


def copy_to_landing(files: Iterable[InputFile], directory: StoragePath) -> list[StoragePath]:
    """Copy files into a landing directory, and return their new paths.

    A compressed file gets the suffix of its compression, which sources need to read it.

    Raises:
        UsageError: a file of that name already exists there, or two files would have the same
            name; no file is copied.
    """
    targets: dict[Path, StoragePath] = {}
    for file in files:
        codec = _codec(file.path)
        suffix = "" if file.path.suffix.lower() == codec else codec
        targets[file.path] = directory / f"{file.target}{suffix}"
    if existing := [target for target in targets.values() if target.is_stored()]:
        raise UsageError(f"{existing[0]} already exists: no file was copied.")
    if len(set(targets.values())) < len(targets):
        advice = "rename one, or name the directory above them"
        raise UsageError(f"two of the files would have the same name in {directory}: {advice}.")
    for path, target in targets.items():
        target.copy_from(StoragePath(path))
    return list(targets.values())
