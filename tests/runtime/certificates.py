"""Certificates for tests, made when they are needed and kept nowhere."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

import trustme

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Shown:
    """A certificate and its key, as files."""

    certificate: str
    key: str


class Authority:
    """An authority, and what it has signed."""

    def __init__(self, directory: Path, name: str) -> None:
        self._ca = trustme.CA(organization_name=name)
        self._directory = directory
        self._name = name
        directory.mkdir(parents=True, exist_ok=True)
        self.file = str(directory / f"{name}-ca.pem")
        self._ca.cert_pem.write_to_path(self.file)

    def sign(self, host: str = HOST, name: str = "", *, also: str = "", expired: bool = False) -> Shown:
        """A certificate for a host, perhaps for one more."""
        ends = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
        hosts = [host, *filter(None, [also])]
        made = self._ca.issue_cert(*hosts, not_after=ends if expired else None)
        shown = Shown(
            *(str(self._directory / f"{self._name}-{name or host}{end}") for end in (".pem", ".key"))
        )
        Path(shown.certificate).write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
        made.private_key_pem.write_to_path(shown.key)
        return shown
