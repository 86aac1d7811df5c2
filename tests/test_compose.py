"""docker-compose.yml: all services that open tables find the same ones, on the volume or on S3."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.support import PROJECT

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())[
    "services"
]
OPENERS = ("worker-1", "worker-2", "nightly", "thrift")
STORE = (
    "MEDALLION_HOME", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
)  # fmt: skip


@pytest.mark.parametrize("service", OPENERS)
def test_service_has_the_variables_of_the_store(service: str) -> None:
    environment = SERVICES[service]["environment"]
    assert {name: environment.get(name, "missing") for name in STORE} == {
        **dict.fromkeys(STORE),  # passed on from the shell
        "MEDALLION_HOME": "${LAKEHOUSE:-/lakehouse}",
    }
    (volume,) = SERVICES[service]["volumes"]
    assert volume.removesuffix(":ro") == "lakehouse:/lakehouse"


def test_server_is_that_of_the_tests() -> None:
    server, script = SERVICES["s3"], (PROJECT / "tools/test_servers.sh").read_text()
    version = re.findall(r"^versitygw=(\S+)$", script, re.MULTILINE)
    assert re.findall(r"versitygw@(\S+)", server["build"]["dockerfile_inline"]) == version
    assert server["profiles"] == ["s3"]  # the volume is enough for all others
    for name in OPENERS:
        needed = SERVICES[name].get("depends_on", {}).get("s3", {})
        assert needed.get("required", False) is False


def test_image_has_the_jars_of_s3() -> None:
    assert "setup-s3" in (PROJECT / "Dockerfile").read_text()
