"""Releases the locks of clients that have gone.

A primary with locks asks all members, once in a while, which of the locks' clients are connected there. So nothing has
to be reported when a connection ends, and nothing is missed when a member crashes together with its connections.

- primary_backup/G-1: A client is gone when every member of the view has said, for `GONE_NS`, that it is not connected
  there. A round of questions ends without a result when the view changes. So a client that changes from one member to
  another keeps its locks.
- primary_backup/G-2: A client that has taken a lock since then is not gone.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import ClientsAsked, ClientsConnected
from holdfast.core.model.decisions import Update
from holdfast.core.model.ids import MILLISECOND, MemberId, PartitionId, Token
from holdfast.core.model.map_locks import ClientUuid, client_of, locks_of
from holdfast.core.model.notices import LockEnded
from holdfast.core.model.records import Change
from holdfast.core.model.timer_name import TimerName
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.store.partition_copy import PartitionCopy

LOOK_NS: Final = 1000 * MILLISECOND
GONE_NS: Final = 3000 * MILLISECOND
MORE_NS: Final = 5 * MILLISECOND
LOOKED_MAX: Final = 5000
"""Locks in one step: some milliseconds."""
ASKED_MAX: Final = 1000
"""Clients in one question; the others have their turn in the next ones."""


class ConnectedClients:
    """The clients that are connected to this member."""

    def __init__(self) -> None:
        self._clients: dict[Token, ClientUuid] = {}
        self._connections: dict[ClientUuid, int] = {}

    def __contains__(self, client: ClientUuid) -> bool:
        return client in self._connections

    def add(self, token: Token, client: ClientUuid) -> None:
        assert token not in self._clients, "a token names one connection"
        self._clients[token] = client
        self._connections[client] = self._connections.get(client, 0) + 1

    def remove(self, token: Token) -> None:
        """An unknown token is ignored."""
        client = self._clients.pop(token, None)
        if client is None:
            return
        self._connections[client] -= 1
        if not self._connections[client]:
            del self._connections[client]


class LockOwners:
    def __init__(self, out: Outbox, membership: MembershipStatus, lane: Lane) -> None:
        self._out = out
        self._membership = membership
        self._lane = lane
        self.connected = ConnectedClients()
        self._timer = False
        self._left: list[tuple[int, str]] = []
        """Partitions and maps whose locks this walk has still to look at,"""
        self._keys: list[bytes] = []
        """and keys of locks that are left of the last one."""
        self._found: set[ClientUuid] = set()
        """Clients with locks, in this walk."""
        self._asked: list[ClientUuid] = []
        self._round = 0
        self._asked_ns = 0
        self._unheard: set[MemberId] = set()
        """Members that have not answered in this round."""
        self._nowhere: set[ClientUuid] = set()
        """Clients that no member has named in this round."""
        self._missing_since: dict[ClientUuid, int] = {}
        self._gone: set[ClientUuid] = set()

    # -- walks through the locks

    def look_soon(self) -> None:
        """There may be locks."""
        if not self._timer:
            self._timer = True
            self._out.timer(TimerName.LOCK_OWNERS, LOOK_NS)

    def on_locked(self, client: ClientUuid) -> None:
        """See primary_backup/G-2."""
        self._missing_since.pop(client, None)
        self._gone.discard(client)
        self.look_soon()

    def on_served(self, partition: PartitionId) -> None:
        copy = self._lane.leading[partition]
        if copy is not None and copy.locks.closed:
            self.look_soon()

    def on_timer(self) -> None:
        self._timer = False
        if not self._left:
            self._begin_walk()
        if not self._left:
            self._missing_since.clear()
            self._gone.clear()
            return
        self._walk()
        self._timer = True
        self._out.timer(TimerName.LOCK_OWNERS, MORE_NS if self._left else LOOK_NS)
        if not self._left:
            self._ask()

    def _begin_walk(self) -> None:
        self._found.clear()
        self._left = [
            (copy.partition, name)
            for copy in self._lane.serving
            if copy is not None and copy.locks.closed
            for name in copy.locks.guarding()
        ]

    def _walk(self) -> None:
        looks = LOOKED_MAX
        while self._left and looks > 0:
            partition, name = self._left[-1]
            copy = self._lane.serving[partition]
            held = copy.maps.get(locks_of(name)) if copy is not None else None
            if copy is None or held is None:
                self._keys = []
            else:
                self._keys = self._keys or list(held.state.entries)
                some = list(islice(reversed(self._keys), looks))
                del self._keys[len(self._keys) - len(some) :]
                looks -= len(some) + 1
                self._look_at(copy, name, some)
            if not self._keys:
                self._left.pop()

    def _look_at(self, copy: PartitionCopy, name: str, keys: list[bytes]) -> None:
        held = copy.maps[locks_of(name)]
        entries, lane = held.state.entries, self._lane
        for key in keys:
            encoded = entries.get(key)
            if encoded is None:
                continue
            client = client_of(encoded)
            if client in self._gone and client not in self.connected:
                lane.carry_out(copy, held, Update(Change.REMOVE, key, b"", 0, 0, 0))
                self._out.notify(LockEnded(copy.partition, held.name, key))
            else:
                self._found.add(client)
        lane.close_batch(_ignore)

    # -- questions

    def _ask(self) -> None:
        """Ask which of the clients are connected anywhere, after a walk."""
        found = sorted(self._found)
        self._gone.clear()
        self._missing_since = {one: since for one, since in self._missing_since.items() if one in self._found}
        if self._asked and len(found) > ASKED_MAX:
            last = self._asked[-1]
            found = [one for one in found if one > last] + [one for one in found if one <= last]
        self._asked = found[:ASKED_MAX]
        self._round += 1
        self._asked_ns = self._out.now_ns
        self._nowhere = {one for one in self._asked if one not in self.connected}
        for one in self._asked:
            if one in self.connected:
                self._missing_since.pop(one, None)
        self._unheard = set()
        if not self._nowhere:
            return
        others = [info.uuid for info in self._membership.members() if info.uuid != self._membership.me]
        self._unheard = set(others)
        message = ClientsAsked(self._round, sorted(self._nowhere))
        for member in others:
            self._out.send(member, message)
        self._end_round()

    def on_asked(self, sender: MemberId, message: ClientsAsked) -> None:
        here = [client for client in message.clients if client in self.connected]
        self._out.send(sender, ClientsConnected(message.round, here))

    def on_connected(self, sender: MemberId, message: ClientsConnected) -> None:
        if message.round != self._round or sender not in self._unheard:
            return
        self._unheard.discard(sender)
        for client in message.clients:
            self._nowhere.discard(client)
            self._missing_since.pop(client, None)
        self._end_round()

    def _end_round(self) -> None:
        """Conclude when all members have answered (primary_backup/G-1)."""
        if self._unheard:
            return
        for client in sorted(self._nowhere):
            if client in self.connected:
                continue
            since = self._missing_since.setdefault(client, self._asked_ns)
            if self._out.now_ns - since >= GONE_NS:
                self._gone.add(client)
        self._nowhere.clear()
        if self._gone:
            # At once: they may come back.
            self._timer = True
            self._out.timer(TimerName.LOCK_OWNERS, MORE_NS)

    def on_view(self) -> None:
        """The round ends without a result."""
        self._round += 1
        self._unheard.clear()
        self._nowhere.clear()


def _ignore(known: bool) -> None:
    """The locks end with these records, wherever they end."""
