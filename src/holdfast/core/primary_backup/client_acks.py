"""Clients that collect acknowledgements of backups themselves (H8). With `replication.backup_acks` = "client" the
primary responds at once, with the number of backups that will acknowledge. Each notifies the client over its own
connection when it holds the records. A backup without such a connection must not be counted, or the client waits in
vain: so members report their registered clients to each other.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.effects import Notify
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import Ack, Collecting
from holdfast.core.model.ids import MemberId, Token
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.outbox import Outbox


class ClientAcks:
    def __init__(self, out: Outbox, membership: MembershipStatus) -> None:
        self._out = out
        self._membership = membership
        self._here: dict[bytes, list[Token]] = {}
        self._clients: dict[Token, bytes] = {}
        self._there: dict[MemberId, set[bytes]] = {}

    def add(self, token: Token, client: bytes) -> None:
        """Register a client's connection: the token is notified when this member, as a backup, holds records of the
        client.
        """
        assert token not in self._clients, "a token names one registration"
        self._clients[token] = client
        connections = self._here.setdefault(client, [])
        connections.append(token)
        if len(connections) == 1:
            self._send_to_all(Collecting([client], []))

    def remove(self, token: Token) -> None:
        """End a registration. An unknown token is ignored."""
        client = self._clients.pop(token, None)
        if client is None:
            return
        connections = self._here[client]
        connections.remove(token)
        assert token not in connections, "a token names one registration"
        if not connections:
            del self._here[client]
            self._send_to_all(Collecting([], [client]))

    def _send_to_all(self, message: Collecting) -> None:
        for info in self._membership.members():
            self._out.send(info.uuid, message)

    def on_collecting(self, sender: MemberId, message: Collecting) -> None:
        there = self._there.setdefault(sender, set())
        there.update(message.added)
        there.difference_update(message.removed)

    def on_view(self, notice: ViewInstalled) -> None:
        for member in notice.gone:
            self._there.pop(member, None)
        if self._here:
            for member in sorted(notice.came):
                self._out.send(member, Collecting(list(self._here), []))

    def reached(self, client: bytes, members: Iterable[str]) -> bool:
        there = self._there
        return all(client in there.get(MemberId(member), ()) for member in members)

    def notify(self, acks: Iterable[Ack]) -> None:
        for ack in acks:
            connections = self._here.get(ack.client)
            if connections:
                for correlation in ack.correlations:
                    self._out.effects.append(Notify(connections[0], correlation))
