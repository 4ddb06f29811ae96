"""What do members want to become, and the operator the cluster? Said again and again until it is so.

A wish travels with the heartbeats of the member that has it, so each master knows it. An order for the whole cluster
goes to the master, and to the next one if that one has not carried it out.
"""

from __future__ import annotations

import msgspec

from holdfast.core.machine import Outbox
from holdfast.core.messages import BaselineWanted, Heartbeat, StateWanted
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.levels import LOWEST
from holdfast.core.model.views import ClusterState, Intent, MemberInfo, Room, View

ORDER_NS = 3 * SECOND
"""An order about the baseline, or the level, counts for so long after it was heard: a few times the interval of
repeating it."""


class DesiredState:
    """The wishes of all members, and the orders of the operator, as one member knows them."""

    def __init__(self, me: MemberId, out: Outbox) -> None:
        self._me = me
        self._out = out
        self.mine = Intent.NONE
        self.number = 0
        """Which wish of this member it is: heartbeats may arrive out of order."""
        self._of: dict[MemberId, tuple[int, Intent]] = {}
        self.safe: set[MemberId] = set()
        """Who has said in this view that it sees nothing unsafe, and not taken it back."""
        self.full: set[MemberId] = set()
        """Whose disk is full."""
        self.short: dict[MemberId, Room] = {}
        """Who has not plenty of room in its memory, and how much."""
        self.heard_from: set[MemberId] = {me}
        """Who has said that it has this view."""
        self._order: StateWanted | None = None
        """What was ordered here, and is not so yet."""
        self._ordered: StateWanted | None = None
        """As master: the newest order of anybody."""
        self._baseline: tuple[BaselineWanted, int] | None = None
        """As master: who is to own data, says the newest order of anybody; and when it was heard last."""
        self._level: tuple[int, int] | None = None
        """As master: the feature level that the newest order of anybody wants, and when it was heard last."""

    # -- wishes of members

    def become(self, wish: Intent) -> None:
        """This member wants to leave, to own nothing (LITE) or to own partitions (DATA). Who leaves keeps to it."""
        if self.mine is not Intent.LEAVE:
            self.mine = wish
            self.number += 1
            assert self.number > self._of.get(self._me, (0, wish))[0], (
                "the newest wish has the highest number"
            )
            self._of[self._me] = (self.number, wish)
        assert self.of(self._me) is self.mine, "what is said of this member is what it wants"

    def heard(self, beat: Heartbeat, view: int) -> None:
        """A heartbeat of a member of the view."""
        if beat.wish_number > self._of.get(beat.uuid, (0, Intent.NONE))[0]:
            self._of[beat.uuid] = (beat.wish_number, beat.wish)
        if beat.view == view:
            self.heard_from.add(beat.uuid)
            self.note_safe(beat.uuid, safe=beat.safe)
        self.note_full(beat.uuid, full=beat.full)
        self.note_room(beat.uuid, beat.room)

    def note_full(self, member: MemberId, *, full: bool) -> None:
        """Remember whether the member's disk is full."""
        if full:
            self.full.add(member)
        else:
            self.full.discard(member)

    def note_room(self, member: MemberId, room: Room) -> None:
        """Remember how much room the member has left in its memory."""
        if room is Room.PLENTY:
            self.short.pop(member, None)
        else:
            self.short[member] = room

    def note_safe(self, member: MemberId, *, safe: bool) -> None:
        """Remember whether the member sees nothing unsafe."""
        if safe:
            self.safe.add(member)
        else:
            self.safe.discard(member)

    def of(self, member: MemberId) -> Intent:
        """What this member wants to become."""
        known = self._of.get(member)
        return known[1] if known is not None else Intent.NONE

    def leaving(self, view: View) -> list[MemberId]:
        """Members of the view that want to leave."""
        return [info.uuid for info in view.members if self.of(info.uuid) is Intent.LEAVE]

    @property
    def noted(self) -> set[MemberId]:
        """Members of whom something is remembered here."""
        return {*self._of, *self.safe, *self.full, *self.short}

    def departing(self, view: View) -> set[MemberId]:
        """Who shall hold no partition any more: leavers, and data members that want to be lite.

        The latter only if somebody remains who holds the data.
        """
        leaving = set(self.leaving(view))
        data = {info.uuid for info in view.members if view.may_hold(info)} - leaving
        demoted = {uuid for uuid in data if self.of(uuid) is Intent.LITE}
        return leaving | demoted if data - demoted else leaving

    def wished(self, info: MemberInfo) -> MemberInfo:
        """The member as it wants to be, a data member or a lite one."""
        wish = self.of(info.uuid)
        if wish not in (Intent.DATA, Intent.LITE):
            return info
        return msgspec.structs.replace(info, lite=wish is Intent.LITE)

    # -- orders of the operator

    def order(self, view: View, state: ClusterState, *, ending: bool) -> None:
        """The cluster shall be in this state; a later order replaces one that is not carried out yet.

        Also one for the present state: the master may have taken another one that it could not carry out so far.
        """
        assert view.members, "somebody is there to carry it out"
        order = StateWanted(view.number, state, ending)
        self._order = None if _fulfilled(order, view) else order
        self._out.send(view.members[0].uuid, order)

    def ordered(self, order: StateWanted) -> None:
        """As master: somebody's operator wants this."""
        self._ordered = order

    def order_baseline(self, order: BaselineWanted, now_ns: int) -> None:
        """As master: somebody's operator wants others to own data."""
        self._baseline = (order, now_ns)

    def baseline_order(self, now_ns: int) -> BaselineWanted | None:
        """As master: what an operator wants of the baseline; None: nothing, or nobody has said so for a while."""
        if self._baseline is not None and now_ns - self._baseline[1] > ORDER_NS:
            self._baseline = None
        return self._baseline[0] if self._baseline is not None else None

    def order_level(self, level: int, now_ns: int) -> None:
        """As master: somebody's operator wants this feature level in force."""
        self._level = (level, now_ns)

    def level_order(self, now_ns: int) -> int:
        """As master: the level that an operator wants; the lowest when nobody has said so for a while."""
        if self._level is not None and now_ns - self._level[1] > ORDER_NS:
            self._level = None
        return self._level[0] if self._level is not None else LOWEST

    def wanted(self, view: View) -> tuple[ClusterState, bool]:
        """As master: the state that the next view should have, and whether the cluster is to end."""
        order = self._ordered
        return (order.state, order.ending) if order is not None else (view.state, view.ending)

    def exiled(self) -> None:
        """This member was removed: what was ordered here is void, for others may have ordered something else since."""
        self._order = None

    # -- a new view

    def installed(self, view: View, mine: MemberInfo) -> None:
        """This member is in the view: what has come true is no wish any more; the rest is said again."""
        here = {info.uuid for info in view.members}
        self._of = {uuid: wish for uuid, wish in self._of.items() if uuid in here}
        self.safe = set()
        self.full &= here
        self.short = {uuid: room for uuid, room in self.short.items() if uuid in here}
        self.heard_from = {self._me}
        if view.ending:
            self.become(Intent.LEAVE)
        elif self.mine is (Intent.LITE if mine.lite else Intent.DATA):
            self.become(Intent.NONE)
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
