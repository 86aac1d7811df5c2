"""How a lakehouse is operated, as frozen dataclasses: maintenance, alerts, login of Kafka."""

from dataclasses import dataclass, field

from medallion.config import values
from medallion.config.values import Duration, key
from medallion.storage import table_specs


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

    retention: Duration = key(values.duration, values.DURATION, table_specs.RETENTION)
    every: Duration = key(values.duration, values.DURATION, "1 hour")
    compact_from: int = key(values.count, values.COUNT, 20)
    target_file_size: int = key(values.size, "a size such as '128 MiB'", "128 MiB")


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


@dataclass(frozen=True)
class OnFailure:
    """Alerts if `nightly`, `run` or `stream` ends with an error, which never fail the run.

    Attributes:
        command: A program with its arguments, as a list. It gets the text on standard input.
        post: A URL to which JSON with the key `text` is posted, as Slack expects it. `${VARIABLE}`
            takes a secret one from the environment or `.env`.
        details: `true` adds the messages of errors, which may quote values of rows.
        variable: the variable of `post`, or None.
    """

    command: tuple[str, ...] = key(values.string_list, "a list such as [mail, -s, x, me@x.org]", [])
    post: str | None = field(default=None, repr=False)
    details: bool = key(values.boolean, values.BOOLEAN, False)
    variable: str | None = None

    @property
    def is_configured(self) -> bool:
        """Return whether there is an alert to send."""
        return bool(self.command or self.post or self.variable)
