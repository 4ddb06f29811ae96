"""One `Membership`, and what the others and the other machines of its member are to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core.effects import Datagram, Note, Send
from holdfast.core.membership.identity import Identity, Timing
from holdfast.core.membership.membership import Membership
from holdfast.core.messages import Heartbeat, JoinRequest
from holdfast.core.model import notices as n
from holdfast.core.model.ids import MILLISECOND, SECOND, Address, MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import FilesProof, FilesSeen, MemberInfo, View
from holdfast.core.outbox import Outbox

HEARTBEAT_NS = 500 * MILLISECOND
TIMING = Timing(HEARTBEAT_NS, 3000 * MILLISECOND)
START_NS = 100 * SECOND


def info(name: str, **changed: Any) -> MemberInfo:
    """A member that is at the host of its name."""
    return msgspec.structs.replace(
        MemberInfo(MemberId(name), 1, name, 5701, name, 5702, f"name-{name}"), **changed
    )


A, B, C, D, E, F, G = (info(name) for name in "abcdefg")
a, b, c, d, e = (one.uuid for one in (A, B, C, D, E))


def view(*members: MemberInfo, **changed: Any) -> View:
    return msgspec.structs.replace(View(5, "id", list(members)), **changed)


def home(who: MemberInfo) -> Address:
    return Address(who.host, who.port)


def row(version: int) -> Assignment:
    return Assignment(version, (b,))


SEEDS = (home(A), home(B), home(C))


class Above:
    """What a membership asks of the machines above it, as its `One` says."""

    def __init__(self, one: One) -> None:
        self._one = one

    def can_leave(self, member: MemberId) -> bool:
        return member in self._one.can_leave

    def waits_for_copies(self) -> bool:
        return False

    def may_demote(self, member: MemberId) -> bool:
        return member in self._one.may_demote

    def unsafe_reason(self) -> str:
        return "" if self._one.safe else "unsafe"

    def rounds(self) -> tuple[int, int]:
        return 4, 3

    def known_assignments(self) -> list[tuple[int, Assignment]]:
        return self._one.rows

    def is_assigned(self) -> bool:
        return self._one.assigned

    def copies_proven(self) -> bool:
        return self._one.copies_proven


class One:
    """One member, and what the others and its own machines are to it."""

    def __init__(
        self, who: MemberInfo = A, *members: MemberInfo, majority: bool = True, **changed: Any
    ) -> None:
        """With `members`, it is in a view of these (itself among them)."""
        self.out = Outbox(self)
        self.out.now_ns = START_NS
        self.changes: list[tuple[View | None, View | None]] = []
        self.notices: list[n.Notice] = []
        """What it told but for views and heartbeats."""
        self.looks: Callable[[], object] = lambda: None
        """What is done when a view is told."""
        self.assigned = True
        self.can_leave: set[MemberId] = set()
        self.may_demote: set[MemberId] = set()
        self.safe = False
        self.copies_proven = False
        self.rows: list[tuple[int, Assignment]] = []
        identity = Identity(who, "prod", {"partitions.count": "7"}, (), False, "new")
        self.membership = Membership(
            dataclasses.replace(identity, **changed),
            TIMING,
            self.out,
            Above(self),
            majority=majority,
        )
        if members:
            self.membership.install(view(*members))
            self.fresh()

    def on_notice(self, notice: n.Notice) -> None:
        if isinstance(notice, n.ViewInstalled):
            self.changes.append((notice.old, notice.new))
            self.looks()
        elif not isinstance(notice, n.BeatHeard):
            self.notices.append(notice)

    def fresh(self) -> None:
        """Forget what was done so far."""
        self.out.take()
        self.changes.clear()

    def pass_time(self, nanoseconds: int) -> None:
        """In steps small enough not to be a pause."""
        end = self.out.now_ns + nanoseconds
        while self.out.now_ns < end:
            self.out.now_ns = min(end, self.out.now_ns + HEARTBEAT_NS)
            self.membership.detector.awake(self.out.now_ns)

    def silence(self, *who: MemberInfo) -> None:
        for one in who:
            self.membership.detector.silent(one.uuid)

    def beat(self, who: MemberInfo, number: int = 5, **said: Any) -> None:
        """A heartbeat of this member comes in."""
        beat = msgspec.structs.replace(Heartbeat(who.uuid, who.life, number), **said)
        self.membership.on_heartbeat(home(who), beat)

    def ask(self, who: MemberInfo, **changed: Any) -> None:
        """A request to be admitted comes in."""
        request = JoinRequest(who, "prod", {"partitions.count": "7"})
        self.membership.on_join_request(home(who), msgspec.structs.replace(request, **changed))

    def done(self, kind: type) -> list[Any]:
        """The effects of this kind; the others are forgotten."""
        return [effect for effect in self.out.take() if isinstance(effect, kind)]

    def datagram_received(self, kind: type) -> list[tuple[str, Any]]:
        """Whom it told a message of this kind, by host."""
        return [
            (one.address.host, one.message) for one in self.done(Datagram) if isinstance(one.message, kind)
        ]

    def sent(self, kind: type) -> list[tuple[MemberId, Any]]:
        return [(one.to, one.message) for one in self.done(Send) if isinstance(one.message, kind)]

    def noted(self, kind: str) -> list[dict[str, object]]:
        return [note.fields | {"level": note.level} for note in self.done(Note) if note.kind == kind]

    @property
    def proposes(self) -> bool:
        return self.membership.agreement.proposing

    def wanted(self) -> View:
        wanted = self.membership.wanted()
        assert wanted is not None
        return wanted


def parting(*rest: MemberInfo) -> One:
    one = One(A, A, *rest)
    one.membership.install(view(*rest, number=6, left=[a]))
    one.fresh()
    return one


OLD = info("a", store="s", incarnation=2, proof=FilesProof("token2", "token1", 5))
NEWS = {"s": FilesSeen(7, "token7", 9)}


def recovering(who: MemberInfo = OLD, *others: MemberInfo) -> One:
    """One that forms a stopped cluster again."""
    one = One(who, cluster_id="old")
    one.membership.install(View(9, "old", [who, *others], recovering=True))
    one.fresh()
    return one
