"""Desired state of members and of the cluster, repeated until it is reached.

Heartbeats carry a member's intent. An order for the whole cluster goes to the master, and to the next one if the first
has not carried it out.
"""

from __future__ import annotations

import msgspec

from holdfast.core.messages import BaselineWanted, Heartbeat, StateWanted
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.levels import LOWEST
from holdfast.core.model.views import ClusterState, Intent, MemberInfo, Room, View
from holdfast.core.outbox import Outbox

ORDER_NS = 3 * SECOND
"""Lifetime of an order about baseline or level; a few times its repetition interval."""


class DesiredState:
    def __init__(self, me: MemberId, out: Outbox) -> None:
        self._me = me
        self._out = out
        self.mine = Intent.NONE
        self.number = 0
        """Number of this member's newest intent: heartbeats may arrive out of order."""
        self._of: dict[MemberId, tuple[int, Intent]] = {}
        self.safe: set[MemberId] = set()
        """Members that report no unsafe state in this view."""
        self.full: set[MemberId] = set()
        self.short: dict[MemberId, Room] = {}
        """Low on memory."""
        self.heard_from: set[MemberId] = {me}
        """Members that are known to have this view."""
        self._order: StateWanted | None = None
        """Given here, not fulfilled yet."""
        self._ordered: StateWanted | None = None
        self._baseline: tuple[BaselineWanted, int] | None = None
        """As master, with the time of the last repetition."""
        self._level: tuple[int, int] | None = None
        """As master, with the time of the last repetition."""

    # -- intents of members

    def set_intent(self, intent: Intent) -> None:
        """LEAVE is final."""
        if self.mine is not Intent.LEAVE:
            self.mine = intent
            self.number += 1
            assert self.number > self._of.get(self._me, (0, intent))[0], (
                "the newest intent has the highest number"
            )
            self._of[self._me] = (self.number, intent)
        assert self.of(self._me) is self.mine, "what is said of this member is what it wants"

    def heard(self, beat: Heartbeat, view: int) -> None:
        if beat.wish_number > self._of.get(beat.uuid, (0, Intent.NONE))[0]:
            self._of[beat.uuid] = (beat.wish_number, beat.wish)
        if beat.view == view:
            self.heard_from.add(beat.uuid)
            self.note_safe(beat.uuid, safe=beat.safe)
        self.note_full(beat.uuid, full=beat.full)
        self.note_room(beat.uuid, beat.room)

    def note_full(self, member: MemberId, *, full: bool) -> None:
        if full:
            self.full.add(member)
        else:
            self.full.discard(member)

    def note_room(self, member: MemberId, room: Room) -> None:
        if room is Room.PLENTY:
            self.short.pop(member, None)
        else:
            self.short[member] = room

    def note_safe(self, member: MemberId, *, safe: bool) -> None:
        if safe:
            self.safe.add(member)
        else:
            self.safe.discard(member)

    def of(self, member: MemberId) -> Intent:
        known = self._of.get(member)
        return known[1] if known is not None else Intent.NONE

    def leaving(self, view: View) -> list[MemberId]:
        return [info.uuid for info in view.members if self.of(info.uuid) is Intent.LEAVE]

    @property
    def noted(self) -> set[MemberId]:
        return {*self._of, *self.safe, *self.full, *self.short}

    def departing(self, view: View) -> set[MemberId]:
        """They should not hold partitions any more: leavers, and, while another member can hold the data, data members
        that want to be lite.
        """
        leaving = set(self.leaving(view))
        data = {info.uuid for info in view.members if view.may_hold(info)} - leaving
        demoted = {uuid for uuid in data if self.of(uuid) is Intent.LITE}
        return leaving | demoted if data - demoted else leaving

    def wished(self, info: MemberInfo) -> MemberInfo:
        intent = self.of(info.uuid)
        if intent not in (Intent.DATA, Intent.LITE):
            return info
        return msgspec.structs.replace(info, lite=intent is Intent.LITE)

    # -- orders of the operator

    def order(self, view: View, state: ClusterState, *, ending: bool) -> None:
        """Replaces an unfulfilled order. Sent even if the cluster is in that state: the master may have another order
        pending.
        """
        assert view.members, "a view has members that can carry it out"
        order = StateWanted(view.number, state, ending)
        self._order = None if _fulfilled(order, view) else order
        self._out.send(view.members[0].uuid, order)

    def ordered(self, order: StateWanted) -> None:
        self._ordered = order

    def order_baseline(self, order: BaselineWanted, now_ns: int) -> None:
        self._baseline = (order, now_ns)

    def baseline_order(self, now_ns: int) -> BaselineWanted | None:
        """As master: the order, while it is repeated."""
        if self._baseline is not None and now_ns - self._baseline[1] > ORDER_NS:
            self._baseline = None
        return self._baseline[0] if self._baseline is not None else None

    def order_level(self, level: int, now_ns: int) -> None:
        self._level = (level, now_ns)

    def level_order(self, now_ns: int) -> int:
        """As master: the ordered level, while the order is repeated; else the lowest."""
        if self._level is not None and now_ns - self._level[1] > ORDER_NS:
            self._level = None
        return self._level[0] if self._level is not None else LOWEST

    def wanted(self, view: View) -> tuple[ClusterState, bool]:
        """As master, for the next view: the state, and whether the cluster is to end."""
        order = self._ordered
        return (order.state, order.ending) if order is not None else (view.state, view.ending)

    def exiled(self) -> None:
        """The others may have a newer order."""
        self._order = None

    # -- a new view

    def installed(self, view: View, mine: MemberInfo) -> None:
        here = {info.uuid for info in view.members}
        self._of = {uuid: intent for uuid, intent in self._of.items() if uuid in here}
        self.safe = set()
        self.full &= here
        self.short = {uuid: room for uuid, room in self.short.items() if uuid in here}
        self.heard_from = {self._me}
        if view.ending:
            self.set_intent(Intent.LEAVE)
        elif self.mine is (Intent.LITE if mine.lite else Intent.DATA):
            self.set_intent(Intent.NONE)
        if self.number:
            self._of[self._me] = (self.number, self.mine)
        assert self.noted <= here, "what is remembered is of members of the view"
        assert not view.ending or self.mine is Intent.LEAVE, "all leave a cluster that ends"
        master = view.members[0].uuid
        if self._ordered is not None and (master != self._me or _fulfilled(self._ordered, view)):
            self._ordered = None
        assert self._ordered is None or master == self._me, "only the master carries out orders"
        if master != self._me:
            self._baseline = self._level = None
        if self._order is not None and _fulfilled(self._order, view):
            self._order = None
        if self._order is not None:
            self._out.send(master, msgspec.structs.replace(self._order, view=view.number))


def _fulfilled(order: StateWanted, view: View) -> bool:
    return view.state is order.state and view.ending >= order.ending
