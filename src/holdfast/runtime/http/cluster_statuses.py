"""The status of all members, fetched by one of them for a browser, which can reach only that one.

Others are asked on their client ports by threads, with the credentials of the requester. The result is cached for a
moment, and concurrent requests share it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import msgspec

from holdfast.client.connection import Credentials
from holdfast.config import Settings
from holdfast.config.client_tls import ClientTls
from holdfast.core.model.ids import Address
from holdfast.errors import HoldfastError
from holdfast.runtime.http.cluster_survey import ask_member
from holdfast.server.logins import Login

FRESH_S = 2.0
"""Maximum age of a cached result."""
ANSWER_S = 3.0
"""Timeout per member."""
AT_A_TIME = 16
ASKERS_MAX = 8
"""Results are cached for this many different credentials."""

Told = Callable[[bytes], None]
Key = tuple[str | None, str | None, bytes | None]


class ClusterStatuses:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        threads: Executor,
        settings: Settings,
        own: Callable[[], dict[str, Any]],
        failed: Callable[[Exception], None],
    ) -> None:
        """`own`: the status of this member. `failed` gets errors."""
        self._loop = loop
        self._threads = threads
        self._own = own
        self._failed = failed
        self._tls = tls_to_members(settings)
        self._kept: dict[Key, tuple[float, bytes]] = {}
        self._waiting: dict[Key, list[Told]] = {}

    def ask(self, login: Login | None, done: Told) -> None:
        """Get the statuses as JSON. `login`: credentials for the others; None: none."""
        key = (login.username, login.password, login.token) if login is not None else (None, None, None)
        made_s, text = self._kept.get(key, (0.0, b""))
        if text and time.monotonic() - made_s < FRESH_S:
            done(text)
            return
        waiting = self._waiting.setdefault(key, [])
        waiting.append(done)
        if len(waiting) == 1:
            asking = self._loop.run_in_executor(self._threads, self._gather, self._own(), key)
            asking.add_done_callback(lambda asked: self._came(key, asked))

    def _came(self, key: Key, asked: asyncio.Future[bytes]) -> None:
        waiting = self._waiting.pop(key)
        if asked.cancelled():
            return
        error = asked.exception()
        if error is not None:
            self._failed(error if isinstance(error, Exception) else RuntimeError(str(error)))
            text = b""
        else:
            text = asked.result()
            self._kept.pop(key, None)
            if len(self._kept) >= ASKERS_MAX:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = (time.monotonic(), text)
        for done in waiting:
            done(text)

    def _gather(self, seen: dict[str, Any], key: Key) -> bytes:
        shown = Credentials(None, *key, operates=True, tls=self._tls)

        def one(member: dict[str, Any]) -> dict[str, Any]:
            if member["uuid"] == seen["uuid"]:
                return {**member, "status": seen, "error": None}
            address = Address.of_clients(member)
            try:
                told = ask_member(address, shown, ANSWER_S, counted=False)
                return {**member, "status": told, "error": None}
            except (HoldfastError, OSError) as error:
                return {**member, "status": None, "error": str(error)}

        with ThreadPoolExecutor(AT_A_TIME) as threads:
            members = list(threads.map(one, seen["members"]))
        why = next((f"{each['name']} does not answer" for each in members if each["status"] is None), "")
        why = why or next(
            (each["status"]["unsafe_reason"] for each in members if not each["status"]["safe"]), ""
        )
        whole = {
            name: seen[name]
            for name in ("cluster", "cluster_id", "master", "cluster_state", "shutting_down", "table")
        }
        return msgspec.json.encode({**whole, "safe": not why, "unsafe_reason": why, "members": members})


def tls_to_members(settings: Settings) -> ClientTls | None:
    """TLS for connections to other members' client ports, with the CA of members."""
    tls = settings.tls
    if not tls.enabled:
        return None
    return ClientTls(
        tls.ca,
        tls.member_certificate or tls.certificate,
        (tls.member_key if tls.member_certificate else tls.key) or None,
        tls.key_password or None,
        tls.verify_host,
        tls.minimum_version,
    )
