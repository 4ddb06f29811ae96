"""The stand-in for Hazelcast's remote controller (`rc_shim.py`), for tests of TLS: what their XML says of key stores
becomes `[tls]` of Holdfast members, in PEM. See the README beside this file.

Environment, besides that of `rc_shim.py`:
    RC_SHIM      folder of `rc_shim.py`
    RC_PUBLIC    PEM file with key, certificate and authority that stands for `letsencrypt.jks`, a key store that is in
                 Hazelcast's own jar; the client has to trust the authority as the system's (SSL_CERT_FILE)
"""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

sys.path.insert(0, os.environ["RC_SHIM"])

import rc_shim as rc

TESTS = Path(os.environ["HZ_CLIENT_CHECKOUT"], "tests/integration/backward_compatible/ssl_tests")
PLACES = (TESTS, TESTS / "hostname_verification")
FOLDER = Path(rc.FOLDER, "pem")
PASSWORD = "changed"
_plain = rc.parse
_look = rc.Cluster.look
_now = threading.local()


def run(*command: str) -> str:
    """What it says. Raises CalledProcessError."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def pem_of(store: str, password: str) -> str:
    """A key store as one PEM file: key, and certificates."""
    name = Path(store.strip()).name
    if name.startswith("letsencrypt"):
        return os.environ["RC_PUBLIC"]
    file = next(place / name for place in PLACES if (place / name).exists())
    FOLDER.mkdir(parents=True, exist_ok=True)
    new, pem = FOLDER / f"{name}.new.p12", FOLDER / f"{name}.pem"
    if not pem.exists():
        stores = ["-srckeystore", str(file), "-srcstorepass", password, "-destkeystore", str(new)]
        run(
            "keytool",
            "-importkeystore",
            "-noprompt",
            *stores,
            "-deststorepass",
            PASSWORD,
            "-deststoretype",
            "PKCS12",
        )
        run("openssl", "pkcs12", "-in", str(new), "-passin", f"pass:{PASSWORD}", "-nodes", "-out", str(pem))
    return str(pem)


def members_own() -> str:
    """A certificate, with key, by which members trust each other."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    pem = FOLDER / "members.pem"
    if not pem.exists():
        both = ["-keyout", str(FOLDER / "key"), "-out", str(FOLDER / "cert")]
        run(
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=members",
            *both,
        )
        pem.write_text((FOLDER / "key").read_text() + (FOLDER / "cert").read_text())
    return str(pem)


def parse(xml: Any) -> dict[str, Any]:
    """As `rc_shim.parse`, with TLS."""
    cfg: dict[str, Any] = _plain(xml)
    if not cfg["tls"]:
        return cfg
    cfg["tls"], cfg["secured"] = False, True
    text = xml.decode() if isinstance(xml, bytes) else xml
    root = ET.fromstring(text.strip())
    properties = {
        each.get("name"): (each.text or "").strip() for each in root.iter() if each.tag.endswith("property")
    }
    settings = cfg["settings"]
    settings["tls.certificate"] = pem_of(properties["keyStore"], properties["keyStorePassword"])
    settings["tls.member_certificate"] = settings["tls.ca"] = members_own()
    settings["tls.verify_host"] = False
    wanted = properties.get("javax.net.ssl.mutualAuthentication", "")
    if wanted:
        settings["tls.client_certificates"] = wanted.lower()
        settings["tls.client_ca"] = pem_of(properties["trustStore"], properties["trustStorePassword"])
    return cfg


def connect(*arguments: Any, **keywords: Any) -> Any:
    """A connection to a member, with TLS if the cluster that is being looked at speaks it."""
    plain = _socket.create_connection(*arguments, **keywords)
    if not getattr(_now, "secured", False):
        return plain
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(TESTS / "client1-cert.pem", TESTS / "client1-key.pem")
    return context.wrap_socket(plain)


def look(cluster: Any, member: Any) -> Any:
    """As `Cluster.look`."""
    _now.secured = cluster.cfg.get("secured", False)
    try:
        return _look(cluster, member)
    finally:
        _now.secured = False


_socket = rc.socket
rc.socket = types.SimpleNamespace(**{**vars(_socket), "create_connection": connect})
rc.parse = parse
rc.Cluster.look = look

if __name__ == "__main__":
    rc.main()
