"""Install the jars of a list into this environment's PySpark.

Every launcher of Spark finds them there, and no session resolves packages when it starts. PySpark's
Ivy downloads them; its cache stays in .venv.

    jars.py             install Delta's jars
    jars.py LIST        install another list
    jars.py LIST DIR    install it into another folder
"""

import hashlib
import os
import shutil
import ssl
import subprocess
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

ROOT = Path(__file__).resolve().parents[1]
DEFAULTS = ROOT / "src/medallion/spark/defaults"
WORK = ROOT / ".venv" / "ivy"


@dataclass(frozen=True)
class Jar:
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.group}_{self.artifact}-{self.version}.jar"

    def is_in(self, folder: Path) -> bool:
        path = folder / self.file_name
        return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == self.sha256


def listed_jars(listed: Path) -> list[Jar]:
    jars = []
    for line in listed.read_text().splitlines():
        if line and not line.startswith("#"):
            coordinates, sha256 = line.split()
            group, artifact, revision = coordinates.split(":")
            jars.append(Jar(group, artifact, revision, sha256))
    return jars


def check_versions(jars: list[Jar]) -> None:
    """Exit if the Python package and the jar of Delta have different versions."""
    package = version("delta-spark")
    for jar in jars:
        if jar.artifact.startswith("delta-spark") and jar.version != package:
            sys.exit(f"jars.txt names Delta {jar.version}, but pip installed {package}.")


def spark_jars() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        sys.exit("PySpark is not installed in this environment.")
    return Path(spec.origin).parent / "jars"


def ivy_file(jars: list[Jar]) -> Path:
    """Write Ivy's list: the main artifact of each module, without dependencies."""
    dependencies = "\n".join(
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}"'
        ' conf="default->master" transitive="false"/>'
        for jar in jars
    )
    path = WORK / "ivy.xml"
    path.write_text(
        '<ivy-module version="2.0"><info organisation="medallion" module="jars"/>\n'
        f"<dependencies>\n{dependencies}\n</dependencies></ivy-module>\n"
    )
    return path


def proxy_options() -> list[str]:
    """Return the proxy for Java, which ignores https_proxy."""
    proxy = urlsplit(getproxies().get("https", ""))
    if not proxy.hostname:
        return []
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 443}"]


def trust_options() -> list[str]:
    """Return options for a Java trust store with the authorities that pip and Python trust.

    A Java from a wheel does not know authorities that were added to the machine.
    """
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
    store = WORK / "authorities.p12"
    store.write_bytes(pkcs12.serialize_java_truststore(entries, NoEncryption()))
    return [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=PKCS12"]


def run_ivy(jars: list[Jar], ivy: Path, options: list[str]) -> subprocess.CompletedProcess[str]:
    java_home = os.environ.get("JAVA_HOME")
    settings = os.environ.get("MEDALLION_IVY_SETTINGS")
    return subprocess.run(
        [
            f"{java_home}/bin/java" if java_home else "java",
            f"-Divy.default.ivy.user.dir={WORK}",
            *proxy_options(),
            *options,
            *("-jar", str(ivy)),
            *(("-settings", settings) if settings else ()),
            *("-ivy", str(ivy_file(jars)), "-cache", str(WORK / "cache"), "-confs", "default"),
            *("-retrieve", str(WORK / "jars" / "[organisation]_[artifact]-[revision].[ext]")),
        ],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


def resolve(jars: list[Jar], ivy: Path, listed: Path) -> Path:
    """Return a folder with the downloaded jars, whose checksums are right."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    run = run_ivy(jars, ivy, [])
    if run.returncode and "PKIX path building failed" in run.stdout:
        run = run_ivy(jars, ivy, trust_options())
    if run.returncode:
        print(run.stdout, file=sys.stderr)
        sys.exit(
            f"Ivy could not fetch the jars of {listed}; check the network, or let "
            "MEDALLION_IVY_SETTINGS name an ivysettings.xml with your mirror."
        )
    for jar in jars:
        if not jar.is_in(WORK / "jars"):
            sys.exit(f"{jar.file_name} is not the file that {listed} describes.")
    return WORK / "jars"


def main(listed: Path, folder: Path | None = None) -> None:
    jars = listed_jars(listed)
    check_versions(jars)
    target = folder or spark_jars()
    missing = [jar for jar in jars if not jar.is_in(target)]
    if missing:
        print(f"fetching {len(missing)} jars of {listed.name}", flush=True)
        (ivy,) = spark_jars().glob("ivy-*.jar")
        fetched = resolve(missing, ivy, listed)
        target.mkdir(exist_ok=True)
        for jar in missing:
            shutil.copy(fetched / jar.file_name, target)
        shutil.rmtree(WORK)
    names = {jar.file_name for jar in jars}
    for group in {jar.group for jar in jars}:
        for path in target.glob(f"{group}_*.jar"):
            if path.name not in names:  # of an earlier version
                path.unlink()


if __name__ == "__main__":
    main(*[Path(argument) for argument in sys.argv[1:]] or [DEFAULTS / "jars.txt"])
