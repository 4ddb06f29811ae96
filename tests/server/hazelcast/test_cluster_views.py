"""In which order clients hear of members and owners."""

from __future__ import annotations

from uuid import UUID

from hazelcast.protocol.client_message import InboundMessage
from hazelcast.protocol.codec import client_add_cluster_view_listener_codec as codec
from tests.server.hazelcast.one_member import ME, OneMemberGrid
from tests.server.hazelcast.wire import Wire

from holdfast.server.grid import ClusterCard, MemberCard

OTHER = "0000000d-0000-000e-0000-00000000000f"
CARDS = {
    uuid: MemberCard(uuid, "127.0.0.1", port, port + 50, lite=False)
    for port, uuid in enumerate((ME, OTHER), start=5701)
}


def card(version: int, members: list[str], owner_of: list[str]) -> ClusterCard:
    owners: dict[str, list[int]] = {}
    for partition, owner in enumerate(owner_of):
        owners.setdefault(owner, []).append(partition)
    return ClusterCard(version, [CARDS[uuid] for uuid in members], version, owners)


class Listening:
    """A client that listens to the cluster's view."""

    def __init__(self, first: ClusterCard) -> None:
        self.grid = OneMemberGrid(2)
        self.grid.card = first
        self.wire = Wire(self.grid)
        self.wire.login()
        self.wire.tell(codec.encode_request())
        self.wire.take()

    def heard(self, change: ClusterCard) -> list[tuple[str, set[UUID]]]:
        """What the client is told of a change: members by UUID, or owners."""
        found: list[tuple[str, set[UUID]]] = []
        self.grid.change(change)
        for message in self.wire.take():
            self._decode(message, found)
        return found

    def _decode(self, message: InboundMessage, found: list[tuple[str, set[UUID]]]) -> None:
        codec.handle(
            message,
            lambda _version, members: found.append(("members", {member.uuid for member in members})),
            lambda _version, owners: found.append(("owners", {uuid for uuid, _ in owners})),
        )


def test_a_member_is_known_before_it_owns_anything() -> None:
    client = Listening(card(1, [ME], [ME, ME]))
    assert client.heard(card(2, [ME, OTHER], [ME, OTHER])) == [
        ("members", {UUID(ME), UUID(OTHER)}),
        ("owners", {UUID(ME), UUID(OTHER)}),
    ]


def test_a_client_turns_away_from_a_member_before_it_hangs_up_on_it() -> None:
    client = Listening(card(1, [ME, OTHER], [ME, OTHER]))
    assert client.heard(card(2, [ME], [ME, ME])) == [("owners", {UUID(ME)}), ("members", {UUID(ME)})]


def test_what_is_no_news_is_not_told() -> None:
    client = Listening(card(1, [ME], [ME, ME]))
    assert client.heard(card(1, [ME], [ME, ME])) == []
