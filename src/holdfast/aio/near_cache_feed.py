"""Feed of a near cache: invalidations from all members, and the periodic check for lost ones (`near_cache`)."""

from __future__ import annotations

from typing import Protocol

from holdfast.aio.member_line import MemberLine
from holdfast.client_core.invalidations import (
    positions_request,
    read_invalidations,
    read_positions,
    registration,
)
from holdfast.client_core.message_decoding import answer_in
from holdfast.client_core.near_cache import NearCache
from holdfast.client_core.request_forms import RequestForm
from holdfast.errors import ProtocolError


class Routing(Protocol):
    partition_count: int
    route: list[MemberLine | None]


class NearCacheFeed:
    def __init__(self, name: str, cache: NearCache, client: Routing) -> None:
        self.name = name
        self.cache = cache
        self._client = client
        self._lines: set[MemberLine] = set()
        self._route: list[MemberLine | None] = []
        """Owner of each partition when the feed last looked."""

    def request(self) -> tuple[RequestForm, bytes]:
        return registration(self.name)

    def begun(self, line: MemberLine, again: bool) -> None:
        """Entries of the member's partitions may be kept from now on."""
        self._lines.add(line)
        self.rerouted()

    def lost(self, line: MemberLine) -> None:
        """Entries of the member's partitions may become stale unnoticed."""
        self._lines.discard(line)
        self.rerouted()

    def closed(self) -> None:
        self.cache.clear()

    def rerouted(self) -> None:
        before, now = self._route, self._client.route
        self._route = list(now)
        fed = [line in self._lines for line in now]
        self.cache.feed(fed, lambda partition: before[partition] is not now[partition])

    def heard(self, line: MemberLine, kind: int, whole: bytes) -> None:
        try:
            changed = read_invalidations(kind, whole)
        except ProtocolError:
            self.cache.clear()
            raise
        if changed is None:
            self.cache.clear()
            return
        for one in changed:
            self.cache.invalidated(
                one.key, one.partition(self._client.partition_count), one.history, one.sequence
            )

    async def repair(self, line: MemberLine) -> None:
        """Ask this member for its sequences and compare. Raises HoldfastError."""
        asked, rest = positions_request(line.member, self.name)
        _, future = line.begin(asked, -1, rest)
        self.cache.repair(read_positions(answer_in(asked, await future), self.name))
