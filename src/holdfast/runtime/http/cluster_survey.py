"""Data of all members for the console, collected by the member that serves the page.

Others are asked on their client ports, with the credentials of the console's user, so no user learns more than these
permit. Threads ask and merge; the result is shared by all requests for a moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from holdfast.client.blocking import Client
from holdfast.client.connection import Credentials
from holdfast.core.model.ids import Address
from holdfast.core.model.views import MemberInfo
from holdfast.errors import HoldfastError

FRESH_S: Final = 1.0
"""Maximum age of a shared result."""
PATIENCE_S: Final = 2.0
"""A member that takes longer is shown as not responding."""
AT_A_TIME: Final = 8
MAPS_SHOWN: Final = 5_000
"""The largest maps that are shown."""
LEFT_OUT: Final = ("members", "counted", "reads", "running", "maps", "zone_maps", "rejections")
"""Fields of a status that are sent elsewhere in the result, or not needed."""

Said = dict[str, Any]
Done = Callable[[bytes], None]


class ClusterSurvey:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        me: str,
        own: Callable[[Callable[[Said], None]], None],
        members: Callable[[], Sequence[MemberInfo]],
        wall_ms: Callable[[], int],
        failed: Callable[[Exception], None],
    ) -> None:
        """`own`: gives its callback the data of this member, possibly later. `failed` gets errors."""
        self._loop = loop
        self._me = me
        self._own = own
        self._members = members
        self._wall_ms = wall_ms
        self._failed = failed
        self._threads = ThreadPoolExecutor(AT_A_TIME, "survey")
        self._waiting: list[Done] = []
        self._working = False
        self._made_s = -FRESH_S
        self._told = b"{}"
        self._before: tuple[float, frozenset[str], dict[str, Said]] = (0.0, frozenset(), {})
        """Maps at the previous survey: its time, the members that answered, and their figures."""

    def ask(self, credentials: Credentials, done: Done) -> None:
        if time.monotonic() - self._made_s < FRESH_S:
            done(self._told)
            return
        self._waiting.append(done)
        if not self._working:
            self._working = True
            self._own(lambda said: self._ask_others(credentials, said))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask_others(self, credentials: Credentials, own: Said) -> None:
        members = list(self._members())
        try:
            work = self._loop.run_in_executor(
                self._threads, self._gathered, credentials, members, own, self._wall_ms()
            )
        except RuntimeError:
            self._over(b"{}")  # The member ends.
            return
        work.add_done_callback(self._came)

    def _came(self, work: asyncio.Future[bytes]) -> None:
        error = None if work.cancelled() else work.exception()
        if isinstance(error, Exception):
            self._failed(error)
        if work.cancelled() or error is not None:
            self._over(b"{}")
            return
        self._made_s = time.monotonic()
        self._told = work.result()
        self._over(self._told)

    def _over(self, told: bytes) -> None:
        self._working = False
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(told)

    # -- in a thread

    def _gathered(self, credentials: Credentials, members: list[MemberInfo], own: Said, at_ms: int) -> bytes:
        said: dict[str, Said] = {self._me: own}
        silent: dict[str, str] = {}

        def ask(info: MemberInfo) -> None:
            try:
                said[info.uuid] = ask_member(
                    Address(info.client_host, info.client_port), credentials, PATIENCE_S, counted=True
                )
            except (HoldfastError, OSError) as error:
                silent[info.uuid] = str(error)

        others = [info for info in members if info.uuid != self._me]
        if others:
            with ThreadPoolExecutor(min(AT_A_TIME, len(others)), "asking") as threads:
                list(threads.map(ask, others))
        told = together(members, said, silent)
        self._add_rates(told["maps"], frozenset(said))
        return msgspec.json.encode({**told, "at_ms": at_ms, "me": self._me})

    def _add_rates(self, maps: list[Said], answered: frozenset[str]) -> None:
        now_s = time.monotonic()
        before_s, who, before = self._before
        comparable = who == answered and now_s > before_s
        for one in maps:
            known = before.get(one["name"]) if comparable else None
            for rate, what in (("rate", "updates"), ("read_rate", "reads")):
                one[rate] = None if known is None else max(0, one[what] - known[what]) / (now_s - before_s)
        self._before = now_s, answered, {one["name"]: one for one in maps}


def ask_member(address: Address, credentials: Credentials, patience_s: float, *, counted: bool) -> Said:
    """The status of the member at this address, `counted`: with its maps. Raises HoldfastError or OSError."""
    with Client(
        str(address),
        username=credentials.username,
        password=credentials.password,
        token=credentials.token,
        tls=credentials.tls,
        timeout_s=patience_s,
        operates=True,
    ) as client:
        return client.status(counted=counted)


def together(members: Sequence[MemberInfo], said: Mapping[str, Said], silent: Mapping[str, str]) -> Said:
    maps: dict[str, Said] = {}
    running: list[Said] = []
    for uuid, status in said.items():
        for name, (entries, size, updates) in status.get("counted", {}).items():
            one = maps.setdefault(
                name, {"name": name, "entries": 0, "bytes": 0, "updates": 0, "reads": 0, "by_member": {}}
            )
            one["entries"] += entries
            one["bytes"] += size
            one["updates"] += updates
            one["by_member"][uuid] = entries
    for status in said.values():
        # Members of earlier versions do not count reads.
        for name, reads in status.get("reads", {}).items():
            if name in maps:
                maps[name]["reads"] += reads
        if status.get("is_master") or not running:
            running = status.get("running", []) or running
    shown = sorted(maps.values(), key=lambda one: (-one["entries"], one["name"]))
    rows = {row["uuid"]: row for status in said.values() for row in status.get("members", [])}
    return {
        "members": [
            {
                **rows.get(info.uuid, {"uuid": info.uuid, "name": info.name}),
                "status": _shortened(said.get(info.uuid)),
                "error": silent.get(info.uuid, ""),
            }
            for info in members
        ],
        "maps": shown[:MAPS_SHOWN],
        "maps_left_out": max(0, len(shown) - MAPS_SHOWN),
        "running": running,
    }


def _shortened(status: Said | None) -> Said | None:
    return status and {name: value for name, value in status.items() if name not in LEFT_OUT}
