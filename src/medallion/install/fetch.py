"""`medallion setup`: jars and Java for Spark, in the cache of the user.

PySpark's Ivy downloads jars from the repositories that it is configured with.
"""

import hashlib
import os
import ssl
import subprocess
import warnings
from collections.abc import Collection, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit
from urllib.request import getproxies

from medallion.errors import UsageError
from medallion.install import java
from medallion.install.jars import Extra, Jar, cache_dir, missing_jars, spark_home
from medallion.storage.files import write_atomic
from medallion.storage.text import Reporter, counted

_TRUST_STORE = "authorities.p12"
_LOG_LINES = 30
"""The most lines of Ivy's output that a failure shows; its summary is at the end."""


def set_up(extras: Collection[Extra], report: Reporter) -> None:
    """Fetch the jars and the Java that are missing, into the cache of the user.

    Raises:
        UsageError: a jar or Java cannot be fetched.
    """
    if java.find_java() is None:
        java.install_java(report)
    java.use_java()
    if missing := missing_jars(*extras):
        fetch_jars(missing, cache_dir() / "jars", report)
    for extra in extras:
        if find_spec(extra.package) is None:
            report(f"--{extra} also needs a Python package: pip install 'medallion[{extra}]'")


def fetch_jars(jars: Sequence[Jar], target: Path, report: Reporter) -> None:
    """Download jars into a folder; after an interruption, only those that are missing.

    Args:
        jars: the missing jars.
        target: the folder.
        report: gets a line for each jar.

    Raises:
        UsageError: a jar cannot be fetched, or has another checksum.
    """
    target = target.absolute()  # Ivy refuses a relative folder
    target.mkdir(parents=True, exist_ok=True)
    report(f"fetching {counted(len(jars), 'jar')} into {target}")
    with TemporaryDirectory(dir=target, prefix=".ivy-") as folder:
        for number, jar in enumerate(jars, start=1):
            data = _download(jar, Path(folder), report)
            if hashlib.sha256(data).hexdigest() != jar.sha256:
                raise UsageError(f"{jar.file_name} does not have the checksum of this release.")
            write_atomic(target / jar.file_name, data)
            report(f"  {number}/{len(jars)}  {jar.file_name}, {len(data) / 2**20:.1f} MiB")


def _download(jar: Jar, work: Path, report: Reporter) -> bytes:
    """Return a jar that Ivy downloads.

    Args:
        jar: the jar.
        work: the folder of Ivy.
        report: gets Ivy's output if it fails.

    Raises:
        UsageError: Ivy cannot fetch it.
    """
    file = work / f"{jar.artifact}-{jar.version}.jar"
    for _ in range(2):
        command = _ivy_command(jar, work)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if file.is_file():
            return file.read_bytes()
        _write_trust_store(work)  # perhaps for an authority that is new to a Java from a wheel
    for line in done.stdout.decode(errors="replace").splitlines()[-_LOG_LINES:]:
        report(line)
    advice = (
        "let MEDALLION_IVY_SETTINGS name an ivysettings.xml with your mirror; then run it again"
    )
    raise UsageError(f"{jar.file_name} could not be fetched. Check the network, or {advice}.")


def _ivy_command(jar: Jar, work: Path) -> list[str]:
    home, settings = os.environ.get("JAVA_HOME"), os.environ.get("MEDALLION_IVY_SETTINGS")
    (ivy,) = (spark_home() / "jars").glob("ivy-*.jar")
    store = work / _TRUST_STORE
    trust = (f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=PKCS12")
    return [
        f"{home}/bin/java" if home else "java",
        f"-Divy.default.ivy.user.dir={work}",
        *_proxy_options(),
        *(trust if store.is_file() else ()),
        *("-jar", str(ivy)),
        *(("-settings", settings) if settings else ()),
        *("-cache", str(work / "cache"), "-notransitive", "-confs", "master"),
        *("-dependency", jar.group, jar.artifact, jar.version),
        *("-retrieve", f"{work}/[artifact]-[revision].[ext]"),
    ]


def _proxy_options() -> list[str]:
    """Return the proxy for Java, which ignores https_proxy."""
    proxy = urlsplit(getproxies().get("https", ""))
    if not proxy.hostname:
        return []
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 443}"]


def _write_trust_store(work: Path) -> None:
    """Write a Java trust store with the authorities that pip and Python trust."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12

    bundle = os.environ.get("PIP_CERT") or ssl.get_default_verify_paths().cafile
    if not bundle:
        return
    entries = []
    for number, der in enumerate(ssl.create_default_context(cafile=bundle).get_ca_certs(True)):
        with warnings.catch_warnings(), suppress(ValueError):  # some authorities bend the standard
            warnings.simplefilter("ignore")
            certificate = x509.load_der_x509_certificate(der)
            entries.append(pkcs12.PKCS12Certificate(certificate, str(number).encode()))
    (work / _TRUST_STORE).write_bytes(pkcs12.serialize_java_truststore(entries, NoEncryption()))
