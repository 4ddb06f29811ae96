"""One client for each process and cluster, whoever uses it.

Frameworks make a cache object for each thread, and servers that prefork make them before they fork. Connections are of
one process: so they are made by the first use, shared by all objects with the same options, and made anew in a child.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.aio.blocking_client import BlockingClient, BlockingMap
from holdfast.errors import ConfigError

PATIENCE_S = 10.0
"""For how long a request that was not applied is sent again. A page waits for it, so it is less than a client's own."""
OPTIONS = frozenset(
    {
        "cluster_name",
        "connect_timeout_s",
        "connections",
        "message_bytes",
        "password",
        "patience_s",
        "serializers",
        "tls",
        "username",
    }
)
"""Those of `BlockingClient` that an adapter passes on."""


class ProcessClient:
    """The client of this process for one set of options."""

    def __init__(self, addresses: tuple[str, ...], options: Mapping[str, Any]) -> None:
        """Connects to nobody yet."""
        self._addresses = addresses
        self._options = {"patience_s": PATIENCE_S, **options}
        self._made: BlockingClient | None = None
        self._maps: dict[str, BlockingMap[Any, Any]] = {}
        self._making = threading.Lock()

    def map(self, name: str) -> BlockingMap[Any, Any]:
        """The map of this name. Connects when nobody did yet. Raises ConfigError, Denied, NotReady."""
        found = self._maps.get(name)
        if found is not None:
            return found
        with self._making:
            if self._made is None:
                self._made = BlockingClient(self._addresses, **self._options)
            return self._maps.setdefault(name, self._made.map(name))

    def close(self) -> None:
        """End the connections; the next use makes new ones."""
        with self._making:
            made, self._made = self._made, None
            self._maps = {}
        if made is not None:
            made.close()

    def forked(self) -> None:
        """This process is the child of the one that made the client, and has one thread."""
        self._making = threading.Lock()
        self._maps = {}
        made, self._made = self._made, None
        if made is not None:
            made.abandon()


_CLIENTS: dict[tuple[Any, ...], ProcessClient] = {}
_FINDING = threading.Lock()


def process_client(addresses: str | Iterable[str], options: Mapping[str, Any]) -> ProcessClient:
    """The client of this process for these members and options (`OPTIONS`). `addresses`: `host:port`, several of them
    apart by commas, semicolons or blanks, or as a list. Raises ConfigError.
    """
    parts = [addresses] if isinstance(addresses, str) else list(addresses)
    members = tuple(one for part in parts for one in re.split(r"[;,\s]+", part) if one)
    if not members:
        raise ConfigError("name at least one member, as host:port")
    if unknown := sorted(options.keys() - OPTIONS):
        raise ConfigError(f"{unknown[0]} is no option: there are {', '.join(sorted(OPTIONS))}")
    key = (members, *sorted(options.items(), key=lambda option: option[0]))
    with _FINDING:
        return _CLIENTS.setdefault(key, ProcessClient(members, options))


def close_all() -> None:
    """End all connections of this process that adapters have made."""
    for client in list(_CLIENTS.values()):
        client.close()


def _forked() -> None:
    global _FINDING  # noqa: PLW0603 - another thread may have held it, and is not here
    _FINDING = threading.Lock()
    for client in list(_CLIENTS.values()):
        client.forked()


os.register_at_fork(after_in_child=_forked)
atexit.register(close_all)
