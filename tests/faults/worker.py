"""The process that a walk kills: it reads steps as lines of JSON from standard input."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from medallion.config.loader import load
from medallion.spark.session import spark_session
from tests.conftest import SETTINGS
from tests.faults.actions import Actor
from tests.support import PROJECT


def main() -> None:
    """Read steps until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # Java prints to standard output as well
    # Use production's checkpoint file manager: its atomic writes are part of the test.
    settings = {key: value for key, value in SETTINGS.items() if "FileManager" not in key}
    # The address of a server means that the lakehouses are on S3.
    environ = {"MEDALLION_HOME": "s3://any"} if "AWS_ENDPOINT_URL" in os.environ else {}
    spark = spark_session(load(environ, PROJECT), "faults", more=settings)
    gateway: Any = spark.sparkContext._gateway
    print(json.dumps({"java": gateway.proc.pid}), file=answers, flush=True)
    for line in sys.stdin:
        step = json.loads(line)
        outcome = Actor(spark, Path(step["conf"]), step["root"]).act(step)
        print(json.dumps(asdict(outcome)), file=answers, flush=True)


if __name__ == "__main__":
    main()
