"""How a lakehouse is operated, as frozen dataclasses: maintenance, and the login of Kafka."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from medallion.config.values import Duration
from medallion.storage.table_specs import TableSpec


@dataclass(frozen=True)
class Maintenance:
    """The maintenance policy of all tables.

    Attributes:
        retention: How long older versions of a table stay readable; at least `1 hour`. Versions
            that a query, a blocked gate or a refresh still needs stay longer.
        every: How often a stream maintains the tables; a nightly run does it at its end.
        compact_from: Compact a table that has this many files below `target_file_size`.
        target_file_size: The size of a compacted file.
    """

    retention: Duration
    every: Duration
    compact_from: int
    target_file_size: int

    def properties(self, spec: TableSpec) -> dict[str, str]:
        """Return the properties of a Delta table under this policy."""
        # Two days more, for the time between two nightly runs.
        tombstone_days = 2 + math.ceil(self.retention.seconds / 86400)
        return spec.properties(self.retention.text, tombstone_days)


@dataclass(frozen=True)
class Login:
    """The login for Kafka's brokers, from the environment or `.env`.

    Attributes:
        protocol: Kafka's security protocol.
        mechanism: The SASL mechanism.
        username: The user, for `SASL_SSL` and `SASL_PLAINTEXT`.
        password: The user's password.
        ca: The absolute path of a PEM file with the certificates to trust.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str = "PLAIN"
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    ca: str = ""
