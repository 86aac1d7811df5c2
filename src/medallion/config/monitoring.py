"""Parsing of `on_failure`, `openlineage` and the file of metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from medallion.config import values
from medallion.config.document import Node
from medallion.config.operations import Monitoring, OnFailure, OpenLineage
from medallion.errors import ConfigError

METRICS_FILE = "MEDALLION_METRICS_FILE"
KEYS = ("on_failure", "openlineage")
_URL = re.compile(r"https?://[^\s/]\S*")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_url_or_variable = values.matching(f"{_URL.pattern}|{_VARIABLE.pattern}")


def parse_monitoring(document: Node, variables: Mapping[str, str]) -> Monitoring:
    """Parse what is sent and written for other systems; by default that is nothing.

    Args:
        document: the document of pipeline.yaml.
        variables: the environment and `.env`.

    Raises:
        ConfigError: a key is unknown or invalid.
    """
    file = variables.get(METRICS_FILE)
    if file and not Path(file).is_absolute():
        raise ConfigError(f"{METRICS_FILE}: {file} must be an absolute path.")
    lineage = None
    if "openlineage" in document.value:
        lineage = document.child("openlineage").parse(OpenLineage)
    return Monitoring(
        on_failure=parse_on_failure(document.child("on_failure"), variables),
        metrics_file=Path(file) if file else None,
        openlineage=lineage,
    )


def parse_on_failure(node: Node, variables: Mapping[str, str]) -> OnFailure:
    """Parse the alerts of failed runs; a variable that is not set is reported by each alert."""
    node.allow_only("command", "post", "details")
    post = node.optional(
        "post", _url_or_variable, "a URL such as https://..., or ${VARIABLE} that has one"
    )
    variable = _VARIABLE.fullmatch(post or "")
    if variable:
        post = variables.get(variable[1])
        if post and not _URL.fullmatch(post):  # the message leaves the secret value out
            node.fail("post", f"names {variable[1]}, whose value is not a URL of http or https")
    name = variable[1] if variable else None
    return OnFailure(post=post, variable=name, **node.settings(OnFailure))
