"""Put jars where every launcher of Spark finds them: among the jars of Spark itself.

jars.py             those that `medallion setup` has fetched
jars.py LIST        those of another list, which are fetched
jars.py LIST DIR    the same into another folder
"""

import shutil
import sys
from pathlib import Path

from medallion.install.fetch import fetch_jars
from medallion.install.jars import (
    S3_CLASSES,
    Extra,
    Jar,
    cache_dir,
    listed_jars,
    missing_jars,
    read_list,
    spark_home,
)
from medallion.install.java import use_java


def main(listed: Path | None = None, folder: Path | None = None) -> None:
    target = folder or spark_home() / "jars"
    jars = read_list(listed) if listed else listed_jars(*Extra)
    missing = [jar for jar in jars if not (target / jar.file_name).is_file()]
    if listed and missing:
        use_java()
        fetch_jars(missing, target, print)
    elif not listed:
        copy(missing, target)
        if not missing_jars(Extra.S3):
            shutil.copy(S3_CLASSES, target)
    names = {jar.file_name for jar in jars}
    for group in {jar.group for jar in jars}:
        for path in target.glob(f"{group}_*.jar"):
            if path.name not in names:  # of an earlier version
                path.unlink()


def copy(jars: list[Jar], target: Path) -> None:
    for jar in jars:
        cached = cache_dir() / "jars" / jar.file_name
        if cached.is_file():
            shutil.copy(cached, target)


if __name__ == "__main__":
    main(*[Path(argument) for argument in sys.argv[1:]])
