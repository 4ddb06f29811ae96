"""The cluster as clients see it: members and owners of partitions, pushed at every change."""

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
"""The kinds of endpoint that a member is listed with. Java clients refuse a member whose list lacks the first."""

CARDS_KEPT = 8
"""What clients are told is kept for so many cards, the last that were asked for: a process may run several members."""
_MEMBER = Struct("<17s?")
_VERSION = frame(bytes((5, 6, 0)))
"""The member version that clients are shown; see `authentication.SPOKEN_VERSION`."""


def address(host: str, port: int) -> list[bytes]:
    """An address as a structure."""
    return [BEGIN, frame(INT.pack(port)), text(host), END]


def member_list(members: list[MemberCard]) -> list[bytes]:
    """Members, oldest first.

    The address of a member is that of its client door, as Hazelcast's own members tell it. Beside it stands a map of
    both doors: clients connect to the one for clients, and Java clients name a member by the one for members.
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
    """Partitions of each owner; in this type the values come before the keys."""
    lists = [frame(Struct(f"<{len(held)}i").pack(*held)) for held in owners.values()]
    return [BEGIN, *lists, END, frame(b"".join(uuid(owner) for owner in owners))]


@lru_cache(maxsize=CARDS_KEPT)
def members_of(card: ClusterCard) -> tuple[bytes, bytes]:
    """The members of the card, as frames that may follow others. All clients are told the same."""
    return _joined(member_list(card.members))


@lru_cache(maxsize=CARDS_KEPT)
def owners_of(card: ClusterCard) -> tuple[bytes, bytes]:
    """And the partitions of each owner."""
    return _joined(owner_lists(card.owners))


def _joined(frames: list[bytes]) -> tuple[bytes, bytes]:
    """The same in two pieces: a message says of its last frame that it is that."""
    return b"".join(frames[:-1]), frames[-1]


class ViewListener:
    """Pushes what has changed since it last did."""

    def __init__(self, talk: Conversation, correlation: int) -> None:
        self._talk = talk
        self._correlation = correlation
        self._members_version = -1
        self._owners_version = -1
        self._told: set[str] = set()
        """The members that the client knows."""

    def push(self) -> None:
        """Send the owners and the members, if they are news.

        A client must know a member before it owns anything, and hangs up on a member that is not listed any more. So
        the owners come first, which makes it turn away from members that leave, unless one of them is new to it.
        """
        card = self._talk.grid.cluster()
        owners_first = self._told.issuperset(card.owners)
        if owners_first:
            self._push_owners(card)
        if card.members_version > self._members_version:
            self._members_version = card.members_version
            self._told = {member.uuid for member in card.members}
            first = event(MEMBERS_VIEW, self._correlation, INT.pack(card.members_version))
            self._talk.say(message([first, *members_of(card)]))
        if not owners_first:
            self._push_owners(card)

    def _push_owners(self, card: ClusterCard) -> None:
        if card.owners and card.owners_version > self._owners_version:
            self._owners_version = card.owners_version
            first = event(PARTITIONS_VIEW, self._correlation, INT.pack(card.owners_version))
            self._talk.say(message([first, *owners_of(card)]))


def _add_cluster_view_listener(talk: Conversation, call: Call) -> None:
    listener = ViewListener(talk, call.correlation)
    talk.register(lambda: talk.grid.watch(talk.telling("members and owners", listener.push)))
    talk.say(message([response(call.kind + 1, call.correlation)]))
    listener.push()


MESSAGES = {ADD_CLUSTER_VIEW_LISTENER: RequestKind(RequestLayout("|"), _add_cluster_view_listener)}
