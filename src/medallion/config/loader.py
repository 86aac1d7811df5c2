"""The configuration, from `pipeline.yaml`, `.env` and the environment.

The environment overrides `.env`, and `.env` overrides the defaults.
"""

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TypeVar

from dotenv.parser import parse_stream

from medallion.config import values
from medallion.config.document import Node, read_text, read_yaml
from medallion.config.gold import inputs_first, parse_gold_table, refuse_shared_topics
from medallion.config.model import ON_CHANGE, Config, GoldTable, SilverTable, SourceConfig
from medallion.config.operations import Login, Maintenance, OnFailure
from medallion.config.sources import (
    parents_first,
    parse_child_table,
    parse_source,
    refuse_shared_files,
    refuse_shared_tables,
)
from medallion.config.tables import ChildTable, ToKafka
from medallion.errors import ConfigError, NoSourceError
from medallion.storage.files import list_tree
from medallion.storage.layout import Layout
from medallion.storage.objects import is_address
from medallion.storage.paths import StoragePath
from medallion.storage.text import counted, error_reason

T = TypeVar("T")

_NUMBER = r"(\*|[1-9][0-9]*)"
_MASTER = re.compile(
    rf"local(\[{_NUMBER}(, *[1-9][0-9]*)?\])?|local-cluster\[[0-9, ]+\]|yarn|(spark|k8s)://\S+"
)
CHOICES = {
    "protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
}

LOGIN = {f"MEDALLION_KAFKA_{each.name.upper()}": each.name for each in fields(Login)}
"""Environment variables of the login, each with its field of `Login`."""

_NOT_EXPANDED = ("MEDALLION_HOME", "MEDALLION_MASTER")
METRICS_FILE = "MEDALLION_METRICS_FILE"
KEYS = (*_NOT_EXPANDED, METRICS_FILE, *LOGIN)
_URL = re.compile(r"https?://[^\s/]\S*")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_url_or_variable = values.matching(f"{_URL.pattern}|{_VARIABLE.pattern}")
_KEYS = (
    "sources", "silver", "gold", "views", "maintain", "max_concurrent_queries", "on_failure",
    "on_change",
)  # fmt: skip
PIPELINE = "pipeline.yaml"
PROJECT = Path(__file__).resolve().parents[3]
"""The repository, whose own project is the one of other directories; nothing in a wheel."""


def load(environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> Config:
    """Return the configuration of a process.

    Args:
        environ: the environment variables; by default those of this process.
        cwd: the directory that relative paths start from; by default the current one.

    Raises:
        ConfigError: a file is missing or unreadable, or a key is unknown or invalid.
    """
    config, errors = load_with_errors(environ, cwd)
    if errors:
        more = f" {counted(len(errors) - 1, 'more error')}: medallion check." if errors[1:] else ""
        raise ConfigError(f"{errors[0]}{more}", errors[0].key)
    return config


def load_with_errors(
    environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> tuple[Config, list[ConfigError]]:
    """Return the valid part of the configuration, and all errors of the rest.

    Args:
        environ: the environment variables; by default those of this process.
        cwd: the directory that relative paths start from; by default the current one.

    Raises:
        ConfigError: pipeline.yaml, conf/ or `.env` cannot be read, or the root is invalid.
    """
    environ = os.environ if environ is None else environ
    cwd = cwd or Path.cwd()
    try:
        file = find_pipeline_file(environ, cwd)
        project, conf_dir = _project_and_conf(file)
        for folder in ("great_expectations", "spark"):
            list_tree(conf_dir / folder)  # files of a closed folder would count as missing
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be read ({error_reason(error)}).") from None
    dotenv = read_dotenv(project / ".env")
    layout = Layout(_root(environ, cwd, dotenv, project))
    document = Document(file)
    variables = dotenv | {name: value for name, value in environ.items() if value}
    sql = "names with their SQL"
    attempt = document.attempt
    attempt(lambda: document.allow_only(*_KEYS))
    sources = _sources(document, layout)
    silver = _silver(document, sources)
    gold = _gold(document, {**sources, **silver})
    config = Config(
        pipeline_file=file,
        conf_dir=conf_dir,
        master=attempt(lambda: _master(variables.get("MEDALLION_MASTER", ""))),
        layout=layout,
        sources=sources,
        gold=gold,
        login=attempt(lambda: _login(document, sources, gold, variables)) or Login(),
        maintain=attempt(lambda: parse_maintenance(document.child("maintain"))) or Maintenance(),
        max_concurrent_queries=attempt(
            lambda: document.optional("max_concurrent_queries", values.count, values.COUNT)
        ),
        views=attempt(lambda: document.get("views", values.named_columns, sql, None)) or {},
        on_change=attempt(lambda: document.choice("on_change", ON_CHANGE)) or ON_CHANGE[0],
        silver=silver,
        on_failure=attempt(lambda: parse_on_failure(document.child("on_failure"), variables))
        or OnFailure(),
        metrics_file=attempt(lambda: _metrics_file(variables)),
    )
    return config, document.errors


class Document(Node):
    """A pipeline.yaml, with its errors so far: they are collected, to report all at once."""

    def __init__(self, file: Path) -> None:
        super().__init__(read_yaml(file), file)
        self.errors: list[ConfigError] = []

    def attempt(self, parse: Callable[[], T]) -> T | None:
        """Return the result of a function; if it raises ConfigError, collect it: None."""
        try:
            return parse()
        except ConfigError as error:
            self.errors.append(error)
            return None

    def parse_each(self, key: str, parse: Callable[[str, Node], T | None]) -> dict[str, T]:
        """Return the valid entries of a mapping by name, and collect the errors of the others.

        Args:
            key: the key of the mapping.
            parse: parses an entry from its name and its node.
        """
        nodes = self.attempt(lambda: self.children(key)) or {}
        parsed = {
            name: self._parse_entry(node, partial(parse, name)) for name, node in nodes.items()
        }
        return {name: entry for name, entry in parsed.items() if entry is not None}

    def _parse_entry(self, node: Node, parse: Callable[[Node], T | None]) -> T | None:
        """Return an entry, or None if it has an error.

        The entry is parsed again without each invalid key, to collect its other errors.
        """
        invalid_keys: set[str] = set()
        while True:
            try:
                entry = parse(node)
                return None if invalid_keys else entry
            except ConfigError as error:
                key = error.key.removeprefix(f"{node.path}.").split(".")[0]
                if key in invalid_keys:  # the entry is invalid without it
                    return None
                self.errors.append(error)
                if key not in node.value or key in ("format", "sql", "cdc"):
                    return None  # it decides on other keys
                invalid_keys.add(key)
                node = node.without(key)


def _sources(document: Document, layout: Layout) -> dict[str, SourceConfig]:
    before = len(document.errors)
    sources = document.parse_each("sources", partial(parse_source, layout=layout))
    if not sources and len(document.errors) == before:
        problem = "there is no source yet; medallion add NAME FILE writes one"
        document.errors.append(NoSourceError(f"{document.file}: {problem}."))
    document.attempt(lambda: refuse_shared_files(document, layout, sources.values()))
    document.attempt(lambda: refuse_shared_tables(document, sources))
    return sources


def _silver(document: Document, sources: Mapping[str, SourceConfig]) -> dict[str, ChildTable]:
    tables, invalid = dict[str, SilverTable](sources), _names(document, "sources") - {*sources}

    def parse(name: str, node: Node) -> ChildTable | None:
        reads_invalid = _reads_any(node, invalid)
        invalid.add(name)
        if reads_invalid:
            return None
        tables[name] = table = parse_child_table(name, node, tables)
        invalid.discard(name)
        return table

    entries = document.value.get("silver")
    if isinstance(entries, dict):
        document.value["silver"] = {name: entries[name] for name in parents_first(entries)}
    return document.parse_each("silver", parse)


def _gold(document: Document, tables: Mapping[str, SilverTable]) -> dict[str, GoldTable]:
    invalid = (_names(document, "sources") | _names(document, "silver")) - {*tables}
    folder, names = document.file.parent, _names(document, "gold")

    def parse(name: str, node: Node) -> GoldTable | None:
        if invalid and ("sql" in node.value or _reads_any(node, invalid)):
            return None
        return parse_gold_table(name, node, tables, folder, names)

    parsed = document.parse_each("gold", parse)
    return document.attempt(lambda: inputs_first(document, parsed)) or {}


def _names(document: Node, key: str) -> set[str]:
    entries = document.value.get(key)
    return set(map(str, entries)) if isinstance(entries, dict) else set()


def _reads_any(node: Node, invalid: Collection[str]) -> bool:
    """Return True if an entry reads an invalid table, whose error is not reported again."""
    names = re.compile(rf"\bsilver\.(?:{'|'.join(map(re.escape, invalid))})\b")
    return bool(invalid) and bool(names.search(repr(node.value)))


def _login(
    document: Node,
    sources: Mapping[str, SourceConfig],
    gold: Mapping[str, GoldTable],
    variables: Mapping[str, str],
) -> Login:
    """Return the login of Kafka, if topics are read or written.

    Args:
        sources: the valid sources.
        gold: the valid gold tables.
        variables: the environment and `.env`.

    Raises:
        ConfigError: a topic is shared, or a variable is invalid.
    """
    read = {f"sources.{n}": s.stream for n, s in sources.items() if s.stream}
    written = {
        f"gold.{name}.publish.{key}": output
        for name, table in gold.items()
        for key, output in table.outputs.items()
        if isinstance(output, ToKafka)
    }
    refuse_shared_topics(document, read, written)
    return kafka_login(variables) if read or written else Login()


def find_pipeline_file(environ: Mapping[str, str], cwd: Path) -> Path:
    """Return the path of pipeline.yaml: MEDALLION_CONF, or else the project of a directory.

    Args:
        environ: the environment, whose MEDALLION_CONF is the file, its folder or its project.
        cwd: the current directory.

    Raises:
        ConfigError: the current directory is no project.
    """
    if given := environ.get("MEDALLION_CONF"):
        path = (cwd / given).absolute()
        return path if path.suffix == ".yaml" else _file_in(path) or path / PIPELINE
    if file := _file_in(cwd.absolute()) or _file_in(PROJECT):
        return file
    raise ConfigError(f"{cwd.absolute()}: no {PIPELINE} here: set --conf, or run medallion init.")


def _file_in(project: Path) -> Path | None:
    files = (project / PIPELINE, project / "conf" / PIPELINE)
    return next((file for file in files if file.is_file()), None)


def _project_and_conf(file: Path) -> tuple[Path, Path]:
    """Return the folder of the project of a pipeline.yaml, and that of its suites and settings."""
    folder = file.parent
    if folder.name == "conf":
        return folder.parent, folder
    # A folder of another name may still be what conf/ is, with the suites beside pipeline.yaml.
    is_conf = (folder / "great_expectations").is_dir() and not (folder / "conf").is_dir()
    return folder, folder if is_conf else folder / "conf"


def _master(value: str) -> str | None:
    """Return the valid Spark master; for an invalid one Spark prints a Java stack trace."""
    master, known = value.strip(), "local, local[2], local[*], spark://..., yarn and k8s://..."
    if master and not _MASTER.fullmatch(master):
        raise ConfigError(f"MEDALLION_MASTER: {value!r} must be one of {known}.")
    return master or None


def _root(
    environ: Mapping[str, str], cwd: Path, dotenv: Mapping[str, str], project: Path
) -> StoragePath:
    """Return the root, a local directory or a prefix of a bucket.

    Args:
        environ: the environment, whose MEDALLION_HOME is relative to `cwd`.
        cwd: the current directory.
        dotenv: the settings of `.env`, whose MEDALLION_HOME is relative to `project`.
        project: the folder of `conf/` and `.env`.
    """
    value, start = environ.get("MEDALLION_HOME"), cwd
    if not value:
        value, start = dotenv.get("MEDALLION_HOME") or "data/lakehouse", project
    if "://" in value and not is_address(value):
        raise ConfigError("MEDALLION_HOME: must be a local path, or s3://bucket/prefix.")
    if value != value.strip():
        raise ConfigError(f"MEDALLION_HOME: {value!r} starts or ends with a blank.")
    try:
        path = StoragePath(value if is_address(value) else start / Path(value).expanduser())
    except RuntimeError:  # ~name of an unknown user
        raise ConfigError(f"MEDALLION_HOME: {value} has no home folder.") from None
    if reason := path.unsupported_reason():
        raise ConfigError(f"MEDALLION_HOME: {value!r}: {reason}.")
    return path.normalized()


def parse_maintenance(node: Node) -> Maintenance:
    """Parse the maintenance policy; every key has a default."""
    policy = node.parse(Maintenance)
    if policy.retention.seconds < 3600:  # a user's query may take that long
        node.fail("retention", "must be at least 1 hour")
    return policy


def _metrics_file(variables: Mapping[str, str]) -> Path | None:
    file = variables.get(METRICS_FILE)
    if file and not Path(file).is_absolute():
        raise ConfigError(f"{METRICS_FILE}: {file} must be an absolute path.")
    return Path(file) if file else None


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


def read_dotenv(file: Path) -> dict[str, str]:
    """Return the settings of a `.env`, empty if the file is missing; ignore other programs' keys.

    Raises:
        ConfigError: the file cannot be read, a line of it sets nothing, or a key is unknown.
    """
    settings: dict[str, str] = {}
    for binding in parse_stream(StringIO(read_text(file, "utf-8-sig"))):
        key, value = binding.key, binding.value
        if binding.error or (key and value is None):
            written = binding.original.string  # it starts with the blank lines before
            line = binding.original.line + len(written) - len(written.lstrip("\n"))
            # The message leaves the line out: it may be a password.
            raise ConfigError(f"{file} line {line}: must be KEY=value, or KEY='a value'.")
        if key == "MEDALLION_CONF":
            raise ConfigError(f"{file}: MEDALLION_CONF can only be set in the environment.")
        if key and key.startswith("MEDALLION_") and key not in KEYS:
            raise ConfigError(f"{file}: {key} is not a known key; known here: {', '.join(KEYS)}.")
        if key in _NOT_EXPANDED and "$" in (value or ""):
            raise ConfigError(f"{file}: {key} has a $, which is not expanded: write the path.")
        if key and value:
            settings[key] = value
    return settings


def kafka_login(variables: Mapping[str, str]) -> Login:
    """Return the login for Kafka's brokers from the environment and `.env`.

    Raises:
        ConfigError: a variable is invalid; the message never has the password.
    """
    login = Login(**{LOGIN[key]: variables[key] for key in LOGIN if variables.get(key)})
    for name, choices in CHOICES.items():
        if getattr(login, name) not in choices:
            key = f"MEDALLION_KAFKA_{name.upper()}"
            raise ConfigError(f"{key} must be one of {', '.join(choices)}.")
    if login.protocol.startswith("SASL_") != bool(login.username and login.password):
        need = "need MEDALLION_KAFKA_PROTOCOL SASL_SSL (or SASL_PLAINTEXT): set all three, or none"
        raise ConfigError(f"MEDALLION_KAFKA_USERNAME and MEDALLION_KAFKA_PASSWORD {need}.")
    if login.ca and not login.protocol.endswith("SSL"):
        raise ConfigError("MEDALLION_KAFKA_CA needs MEDALLION_KAFKA_PROTOCOL SSL or SASL_SSL.")
    if login.ca and not (Path(login.ca).is_absolute() and Path(login.ca).is_file()):
        raise ConfigError(f"MEDALLION_KAFKA_CA: {login.ca}: must be the absolute path of a file.")
    return login
