"""Download of jars by PySpark's Ivy, from the repositories that it is configured with."""

from __future__ import annotations

import hashlib
import os
import ssl
import subprocess
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit
from urllib.request import getproxies

from medallion.errors import UsageError
from medallion.install.jars import Jar, spark_home
from medallion.storage.files import write_atomic
from medallion.storage.text import Reporter, counted

_LOG_LINES = 30
"""The most lines of Ivy's output that a failure shows; its summary is at the end."""


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
        ivy = _Ivy(list(jars), Path(folder), target, report)
        ivy.run([])
        if ivy.jars:  # perhaps for an authority that is new to a Java from a wheel
            ivy.run(_trust_options(Path(folder)))
        if ivy.jars:
            for line in ivy.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]:
                report(line)
            raise UsageError(
                f"{counted(len(ivy.jars), 'jar')} could not be fetched: {ivy.jars[0].file_name}. "
                "Check the network, or let MEDALLION_IVY_SETTINGS name an ivysettings.xml with "
                "your mirror; then run it again."
            )


class _Ivy:
    """Runs of Ivy; each complete jar moves to the target at once.

    Attributes:
        jars: those that are still missing.
        log: the output of the last run.
    """

    def __init__(self, jars: list[Jar], work: Path, target: Path, report: Reporter) -> None:
        self.jars, self._work, self._target, self._report = jars, work, target, report
        self._count = len(jars)
        self.log = work / "log"

    def run(self, options: Sequence[str]) -> None:
        with self.log.open("w") as log:
            process = subprocess.Popen(self._command(options), stdout=log, stderr=subprocess.STDOUT)
            try:
                while process.poll() is None:
                    time.sleep(0.2)
                    self._take_complete()
            finally:
                process.kill()
        self._take_complete()

    def _take_complete(self) -> None:
        for jar in list(self.jars):
            # Ivy gives a file its name once it is complete.
            files = self._work.glob(f"cache/{jar.group}/{jar.artifact}/*/{jar.artifact}-*.jar")
            for file in files:
                data = file.read_bytes()
                if hashlib.sha256(data).hexdigest() != jar.sha256:
                    raise UsageError(f"{jar.file_name} does not have the checksum of this release.")
                write_atomic(self._target / jar.file_name, data)
                self.jars.remove(jar)
                done = f"{self._count - len(self.jars)}/{self._count}"
                self._report(f"  {done}  {jar.file_name}, {len(data) / 2**20:.1f} MiB")

    def _command(self, options: Sequence[str]) -> list[str]:
        home, settings = os.environ.get("JAVA_HOME"), os.environ.get("MEDALLION_IVY_SETTINGS")
        (ivy,) = (spark_home() / "jars").glob("ivy-*.jar")
        return [
            f"{home}/bin/java" if home else "java",
            f"-Divy.default.ivy.user.dir={self._work}",
            *_proxy_options(),
            *options,
            *("-jar", str(ivy)),
            *(("-settings", settings) if settings else ()),
            *("-ivy", str(self._list()), "-cache", str(self._work / "cache"), "-confs", "default"),
        ]

    def _list(self) -> Path:
        """Write Ivy's list: the main artifact of each module, without dependencies."""
        dependencies = "\n".join(
            f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}"'
            ' conf="default->master" transitive="false"/>'
            for jar in self.jars
        )
        file = self._work / "ivy.xml"
        file.write_text(
            '<ivy-module version="2.0"><info organisation="medallion" module="jars"/>\n'
            f"<dependencies>\n{dependencies}\n</dependencies></ivy-module>\n"
        )
        return file


def _proxy_options() -> list[str]:
    """Return the proxy for Java, which ignores https_proxy."""
    proxy = urlsplit(getproxies().get("https", ""))
    if not proxy.hostname:
        return []
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 443}"]


def _trust_options(work: Path) -> list[str]:
    """Return options for a Java trust store with the authorities that pip and Python trust."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12

    bundle = os.environ.get("PIP_CERT") or ssl.get_default_verify_paths().cafile
    if not bundle:
        return []
    entries = []
    for number, der in enumerate(ssl.create_default_context(cafile=bundle).get_ca_certs(True)):
        with warnings.catch_warnings(), suppress(ValueError):  # some authorities bend the standard
            warnings.simplefilter("ignore")
            certificate = x509.load_der_x509_certificate(der)
            entries.append(pkcs12.PKCS12Certificate(certificate, str(number).encode()))
    store = work / "authorities.p12"
    store.write_bytes(pkcs12.serialize_java_truststore(entries, NoEncryption()))
    return [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=PKCS12"]
