"""The cluster view of clients: members and owners of partitions, pushed at every change."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

from holdfast.server.grid import ClusterCard, MemberCard
from holdfast.server.hazelcast.conversation import Conversation, RequestKind
from holdfast.wire.hazelcast.hazelcast_frames import (
    BEGIN,
    END,
    INT,
    NULL,
    event,
    frame,
    message,
    response,
    text,
    uuid,
)
from holdfast.wire.hazelcast.layouts import Call, RequestLayout

ADD_CLUSTER_VIEW_LISTENER = 0x000300
MEMBERS_VIEW = 0x000302
PARTITIONS_VIEW = 0x000303

MEMBER_DOOR = 0
CLIENT_DOOR = 1
"""Kinds of endpoints in the member list. Java clients reject a member without the first."""

CARDS_KEPT = 8
"""Encoded views are cached for the latest cards; a process may run several members."""
_MEMBER = Struct("<17s?")
_VERSION = frame(bytes((5, 6, 0)))
"""The member version in the list; see `authentication.SPOKEN_VERSION`."""


def address(host: str, port: int) -> list[bytes]:
    return [BEGIN, frame(INT.pack(port)), text(host), END]


def member_list(members: list[MemberCard]) -> list[bytes]:
    """Members, oldest first.

    A member's address is that of its client port, as with Hazelcast's members. A map of both endpoints follows: clients
    connect to the client port, and Java clients identify a member by its member port.
    """
    frames = [BEGIN]
    for member in members:
        door = address(member.host, member.client_port)
        member_door = address(member.host, member.member_port)
        frames += (BEGIN, frame(_MEMBER.pack(uuid(member.uuid), member.lite)), *door, BEGIN)
        for name, value in member.attributes.items():
            frames += (text(name), text(value))
        frames += (END, BEGIN, _VERSION, END)
        frames.append(BEGIN)
        frames += (BEGIN, frame(INT.pack(MEMBER_DOOR)), NULL, END, *member_door)
        frames += (BEGIN, frame(INT.pack(CLIENT_DOOR)), NULL, END, *door)
        frames += (END, END)
    frames.append(END)
    return frames


def owner_lists(owners: dict[str, list[int]]) -> list[bytes]:
    """Partitions by owner; in this type values come before keys."""
    lists = [frame(Struct(f"<{len(held)}i").pack(*held)) for held in owners.values()]
    return [BEGIN, *lists, END, frame(b"".join(uuid(owner) for owner in owners))]


@lru_cache(maxsize=CARDS_KEPT)
def members_of(card: ClusterCard) -> tuple[bytes, bytes]:
    """Frames that may follow others."""
    return _joined(member_list(card.members))


@lru_cache(maxsize=CARDS_KEPT)
def owners_of(card: ClusterCard) -> tuple[bytes, bytes]:
    return _joined(owner_lists(card.owners))


def _joined(frames: list[bytes]) -> tuple[bytes, bytes]:
    """All frames but the last, and the last, which `message` marks as final."""
    return b"".join(frames[:-1]), frames[-1]


class ViewListener:
    def __init__(self, talk: Conversation, correlation: int) -> None:
        self._talk = talk
        self._correlation = correlation
        self._members_version = -1
        self._owners_version = -1
        self._told: set[str] = set()
        """Members that the client knows."""

    def push(self) -> None:
        """Send owners and members if they have changed, in an order that clients survive.

        A client must know a member before that member owns anything, and disconnects from members that are not listed
        any more. So owners go first, which moves requests away from leaving members, unless an owner is new to the
        client.
        """
        card = self._talk.grid.cluster()
        owners_first = self._told.issuperset(card.owners)
        if owners_first:
            self._push_owners(card)
        if card.members_version > self._members_version:
            self._members_version = card.members_version
            self._told = {member.uuid for member in card.members}
            first = event(MEMBERS_VIEW, self._correlation, INT.pack(card.members_version))
            self._talk.send(message([first, *members_of(card)]))
        if not owners_first:
            self._push_owners(card)

    def _push_owners(self, card: ClusterCard) -> None:
        if card.owners and card.owners_version > self._owners_version:
            self._owners_version = card.owners_version
            first = event(PARTITIONS_VIEW, self._correlation, INT.pack(card.owners_version))
            self._talk.send(message([first, *owners_of(card)]))


def _add_cluster_view_listener(talk: Conversation, call: Call) -> None:
    listener = ViewListener(talk, call.correlation)
    talk.register(lambda: talk.grid.watch(talk.callback("members and owners", listener.push)))
    talk.send(message([response(call.kind + 1, call.correlation)]))
    listener.push()


MESSAGES = {ADD_CLUSTER_VIEW_LISTENER: RequestKind(RequestLayout("|"), _add_cluster_view_listener)}
