"""`.env`, beside the folder of the configuration: what a machine sets once, and not every shell."""

from __future__ import annotations

import os
import re
from io import StringIO
from pathlib import Path

from dotenv import dotenv_values
from dotenv.parser import parse_stream

from medallion.config.connections import LOGIN
from medallion.errors import ConfigError
from medallion.storage.text import reason_of

_PLACES = ("MEDALLION_HOME", "MEDALLION_MASTER")
KEYS = (*_PLACES, *LOGIN)
_PREFIX = "MEDALLION_"


def read(file: Path) -> dict[str, str]:
    """The settings of a `.env`; empty where there is no such file. Other programs' keys are theirs.

    Raises:
        ConfigError: the file cannot be read, a line of it sets nothing, or a key is unknown.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read ({reason_of(error)}).") from None
    plain: dict[str, str | None] = {}  # as it is written: a password may have a ${
    for binding in parse_stream(StringIO(text)):
        written = binding.original.string
        line = binding.original.line + len(written) - len(written.lstrip("\n"))
        if binding.error or (binding.key and binding.value is None):
            # What stands there is not repeated: it may be a password.
            raise ConfigError(
                f"{file} line {line}: must be KEY=value; a value that has ' in it stands in \", "
                "and the other way round."
            )
        if binding.key == f"{_PREFIX}CONF":
            raise ConfigError(
                f"{file} line {line}: MEDALLION_CONF names the folder that this file lies beside, "
                "so it can only be set in the environment."
            )
        if (binding.key or "").startswith(_PREFIX) and binding.key not in KEYS:
            raise ConfigError(
                f"{file} line {line}: {binding.key} is not a known key; known here: "
                f"{', '.join(KEYS)}."
            )
        if binding.key in plain and binding.key in KEYS:
            raise ConfigError(f"{file} line {line}: {binding.key} stands there twice.")
        plain[binding.key or ""] = binding.value
    found = {**dotenv_values(stream=StringIO(text)), **{k: plain[k] for k in LOGIN if k in plain}}
    for key in _PLACES:
        value = plain.get(key) or ""
        if bare := re.search(r"\$([A-Za-z_]\w*)", value):  # a folder of that very name
            raise ConfigError(f"{file}: {key} has {bare[0]}: write ${{{bare[1]}}}.")
        for name in re.findall(r"\$\{([^}:]+)\}", value):
            if name not in plain and name not in os.environ:  # ${DATA}/lake would be /lake
                raise ConfigError(
                    f"{file}: {key} has ${{{name}}}, which is set neither in this file nor in the "
                    "environment."
                )
    return {key: value for key, value in found.items() if value}
