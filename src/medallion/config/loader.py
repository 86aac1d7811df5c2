"""The configuration, from `conf/pipeline.yaml`, `.env` and the environment.

The environment wins over `.env`, and `.env` over the defaults.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from medallion.config import connections, environment
from medallion.config.connections import Kafka, Login
from medallion.config.document import Node, read_yaml
from medallion.config.gold import gold_table
from medallion.config.maintenance import maintenance
from medallion.config.model import Config, GoldTable, SourceConfig
from medallion.config.publish import ToKafka, refuse_shared_topics
from medallion.config.sources import refuse_shared_files, source
from medallion.errors import ConfigError
from medallion.storage.paths import Layout, plain, why_no_place

_NUMBER = r"(\*|[1-9][0-9]*)"
_MASTER = re.compile(
    rf"local(\[{_NUMBER}(, *[1-9][0-9]*)?\])?|local-cluster\[[0-9, ]+\]|yarn|(spark|k8s)://\S+"
)
PROJECT = Path(__file__).resolve().parents[3]


def load(environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> Config:
    """Read the configuration as a process started in `cwd` with `environ` would see it.

    Raises:
        ConfigError: a file is missing or unreadable, or a key is unknown or of the wrong kind.
    """
    environ = os.environ if environ is None else environ
    cwd = cwd or Path.cwd()
    conf_dir = _conf_dir(environ, cwd)
    dotenv = environment.read(conf_dir.parent / ".env")
    layout = Layout(_root(environ, cwd, dotenv, conf_dir.parent))
    document = Node(read_yaml(conf_dir / "pipeline.yaml"), conf_dir / "pipeline.yaml")
    document.only("sources", "gold", "maintain")
    sources = _sources(document, layout)
    tables = document.children("gold").items()
    gold = {name: gold_table(name, node, sources, conf_dir) for name, node in tables}
    master = _master(environ.get("MEDALLION_MASTER") or dotenv.get("MEDALLION_MASTER") or "")
    maintain = maintenance(document.child("maintain"))
    asks_brokers = _asks_brokers(document, sources, gold)
    login = connections.login(environ, dotenv) if asks_brokers else Login()
    return Config(conf_dir, master, layout, sources, gold, maintain, login)


def _sources(document: Node, layout: Layout) -> dict[str, SourceConfig]:
    sources = {n: source(n, node, layout) for n, node in document.children("sources").items()}
    if not sources:
        raise ConfigError(f"{document.file}: sources must name at least one source.")
    refuse_shared_files(document, layout, sources.values())
    return sources


def _asks_brokers(
    document: Node, sources: Mapping[str, SourceConfig], gold: Mapping[str, GoldTable]
) -> bool:
    """Whether topics are read or written; none may be shared."""
    read = {f"sources.{n}": s.stream for n, s in sources.items() if isinstance(s.stream, Kafka)}
    written = {
        f"gold.{name}.publish.{kind}": output
        for name, table in gold.items()
        for kind, output in table.outputs.items()
        if isinstance(output, ToKafka)
    }
    refuse_shared_topics(document, read, written)
    return bool(read or written)


def _conf_dir(environ: Mapping[str, str], cwd: Path) -> Path:
    named = environ.get("MEDALLION_CONF")
    if named:
        return (cwd / named).absolute()
    return (cwd if (cwd / "conf/pipeline.yaml").is_file() else PROJECT) / "conf"


def _master(named: str) -> str | None:
    """Where Spark is to run; Java would say that it does not know it, with a stack trace."""
    master = named.strip()
    if master and not _MASTER.fullmatch(master):
        raise ConfigError(
            f"MEDALLION_MASTER: {named!r} is none of local, local[2], local[*], spark://host:port, "
            "yarn, and k8s://host:port."
        )
    return master or None


def _root(environ: Mapping[str, str], cwd: Path, dotenv: Mapping[str, str], project: Path) -> Path:
    """The caller's path counts from where the caller is, others from the project."""
    named, start = environ.get("MEDALLION_HOME"), cwd
    if not named:
        named, start = dotenv.get("MEDALLION_HOME") or "data/lakehouse", project
    if "://" in named:
        raise ConfigError("MEDALLION_HOME: only a local path can be used, not an address.")
    if named != named.strip():
        raise ConfigError(f"MEDALLION_HOME: {named!r} begins or ends with a blank.")
    try:
        path = start / Path(named).expanduser()
    except RuntimeError:  # ~ of somebody unknown
        raise ConfigError(f"MEDALLION_HOME: there is no home folder for {named}.") from None
    if why := why_no_place(path):
        raise ConfigError(f"MEDALLION_HOME: {named!r}: {why}.")
    return plain(path)
