"""Shared clients: one for each process, cluster and set of options.

Frameworks create a cache object for each thread, and preforking servers create them before they fork.
Connections cannot be shared between processes, so they are made at the first use, shared by all objects with
the same options, and made again in a forked child.
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
"""Default patience of adapters: a page waits for the cache, so it is less than a client's own."""
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
"""Options of `BlockingClient` that an adapter passes on."""


class ProcessClient:
    def __init__(self, addresses: tuple[str, ...], options: Mapping[str, Any]) -> None:
        self._addresses = addresses
        self._options = {"patience_s": PATIENCE_S, **options}
        self._made: BlockingClient | None = None
        self._maps: dict[str, BlockingMap[Any, Any]] = {}
        self._making = threading.Lock()

    def map(self, name: str) -> BlockingMap[Any, Any]:
        """The map of this name. Connects if this is the first use. Raises ConfigError, Denied, NotReady."""
        found = self._maps.get(name)
        if found is not None:
            return found
        client = self.connected()
        with self._making:
            return self._maps.setdefault(name, client.map(name))

    def connected(self) -> BlockingClient:
        """The client. Connects if this is the first use. Raises ConfigError, Denied, NotReady."""
        with self._making:
            if self._made is None:
                self._made = BlockingClient(self._addresses, **self._options)
            return self._made

    def close(self) -> None:
        """End the connections; the next use makes new ones."""
        with self._making:
            made, self._made = self._made, None
            self._maps = {}
        if made is not None:
            made.close()

    def forked(self) -> None:
        """Forget the parent's connections, in a child process, which has one thread."""
        self._making = threading.Lock()
        self._maps = {}
        made, self._made = self._made, None
        if made is not None:
            made.abandon()


_CLIENTS: dict[tuple[Any, ...], ProcessClient] = {}
_FINDING = threading.Lock()


def process_client(addresses: str | Iterable[str], options: Mapping[str, Any]) -> ProcessClient:
    """The client of this process for these members and options (`OPTIONS`). `addresses`: `host:port`, several
    separated by commas, semicolons or spaces, or a list. Raises ConfigError.
    """
    parts = [addresses] if isinstance(addresses, str) else list(addresses)
    members = tuple(one for part in parts for one in re.split(r"[;,\s]+", part) if one)
    if not members:
        raise ConfigError("name at least one member, as host:port")
    if unknown := sorted(options.keys() - OPTIONS):
        raise ConfigError(f"{unknown[0]} is not an option; the options are {', '.join(sorted(OPTIONS))}")
    key = (members, *sorted(options.items(), key=lambda option: option[0]))
    with _FINDING:
        return _CLIENTS.setdefault(key, ProcessClient(members, options))


def close_all() -> None:
    """End all connections of adapters in this process."""
    for client in list(_CLIENTS.values()):
        client.close()


def _forked() -> None:
    global _FINDING  # noqa: PLW0603 - another thread may have held it, and is not here
    _FINDING = threading.Lock()
    for client in list(_CLIENTS.values()):
        client.forked()


os.register_at_fork(after_in_child=_forked)
atexit.register(close_all)
