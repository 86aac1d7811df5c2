"""`medallion init`: a new project."""

from pathlib import Path

from medallion.errors import UsageError
from medallion.storage.files import write_atomic

_TEMPLATE = Path(__file__).with_name("template")
_NAMES = {"env.example": ".env.example", "gitignore": ".gitignore"}
"""Names of files that would have an effect on this package itself."""


def create_project(folder: Path) -> tuple[list[str], list[str]]:
    """Write the files of a new project; return the names of the new and of the kept files.

    Raises:
        UsageError: the folder already has a project.
    """
    for file in (folder / "pipeline.yaml", folder / "conf/pipeline.yaml"):
        if file.exists():
            raise UsageError(f"{file}: there is a project already, and nothing was written.")
    files = {_NAMES.get(file.name, file.name): file for file in sorted(_TEMPLATE.iterdir())}
    kept = [name for name in files if (folder / name).exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for name in files.keys() - {*kept}:
        write_atomic(folder / name, files[name].read_bytes())
    return sorted(files.keys() - {*kept}), kept
