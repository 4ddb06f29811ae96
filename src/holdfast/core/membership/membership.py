"""Membership of this process in its cluster. A *view* is a numbered list of the members, oldest first.

- membership/V-1: Views are numbered and agreed (`view_agreement`); no member shrinks the cluster alone. The oldest
  member is the master.
- membership/V-5: The cluster state and the list of lite members are part of the view, so they change for all members at
  once. The desired state is repeated to each master until it is in force.
- membership/V-8: A member that gets heartbeats from no majority of its view also sends its own to the seeds. All
  members that it knows may have left. Example: {1, 2, 3} lost 3, 4 and 5 joined, and 1 and 2 left. Only a seed leads 3
  to 4 and 5.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from holdfast.config import Settings
from holdfast.core.effects import CloseLink, OpenLink, Stop
from holdfast.core.membership import admission
from holdfast.core.membership.admission import Admission
from holdfast.core.membership.cluster_orders import ClusterOrders
from holdfast.core.membership.evictions import Evictions
from holdfast.core.membership.identity import Identity, Timing
from holdfast.core.membership.joining import JOIN_INTERVAL_NS, Joining
from holdfast.core.membership.map_orders import MapOrders
from holdfast.core.membership.maps_in_force import MapsInForce
from holdfast.core.membership.membership_status import MembershipState, MembershipStatus, MembershipStep
from holdfast.core.membership.metastore_orders import MetastoreOrders, founded
from holdfast.core.membership.next_view import NextView, Permissions
from holdfast.core.membership.view_agreement import ViewAgreement, is_quorum
from holdfast.core.messages import (
    Heartbeat,
    JoinAnswer,
    JoinRequest,
    ViewDecided,
)
from holdfast.core.model.ids import MILLISECOND, Address, MemberId
from holdfast.core.model.levels import LOWEST, STARTS_METASTORE
from holdfast.core.model.notices import (
    BeatHeard,
    DiskRoomChanged,
    FilesHeardOf,
    IntentsChanged,
    ViewInstalled,
)
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import Intent, MemberInfo, Room, View
from holdfast.core.outbox import Outbox

LAST_WORDS_NS = 1000 * MILLISECOND
"""When all members leave together, each waits for so long before it ends, so that the others can learn of that view. A
heartbeat with an older view restarts the wait.
"""


class MembershipDelegate(Permissions, Protocol):
    def unsafe_reason(self) -> str:
        """Why a crash could lose data now, as far as this member knows; empty: it could not."""

    def rounds(self) -> tuple[int, int]:
        """The last round of the table that is durable here, and, at the master, on all members."""

    def known_assignments(self) -> list[tuple[int, Assignment]]:
        """The newest assignments, stored or applied."""


class Membership(MembershipStatus):
    def __init__(
        self,
        identity: Identity,
        timing: Timing,
        out: Outbox,
        delegate: MembershipDelegate,
        settings: Settings | None = None,
        *,
        majority: bool,
    ) -> None:
        super().__init__(identity, timing, out, majority=majority)
        self.maps = MapsInForce(settings or Settings())
        out.level = LOWEST
        self._delegate = delegate
        self._candidates = Admission()
        self.joining = Joining(self, self._candidates, out)
        self.map_orders = MapOrders(self, self.maps, out, self)
        self.metastore_orders = MetastoreOrders(self, self.maps.configured.metastore.voters, out, self)
        self.next_view = NextView(
            self,
            self._candidates,
            out,
            delegate,
            self.maps.configured,
            self.map_orders,
            self.metastore_orders,
        )
        self._reached: dict[MemberId, int] = {}
        """While parting: the newest view of each other member."""
        self.agreement = ViewAgreement(self.me, out, self)
        self.evictions = Evictions(self, out, self)
        self.orders = ClusterOrders(self, out, self)

    @property
    def leftovers(self) -> dict[str, int]:
        """Counts that are 0 when nothing is pending."""
        here = {info.uuid for info in self.members()}
        noted = self.intents.noted | self.fenced_since.keys()
        return {
            "candidates that ask no more": self._candidates.forgotten(self._out.now_ns),
            "notes about members that are gone": len(noted - here),
        }

    # -- start, time, and orders about this member

    def start(self) -> None:
        self._out.timer(TimerName.JOIN, 1 * MILLISECOND)
        self._out.timer(TimerName.HEARTBEAT, self.timing.heartbeat_ns)

    def leave(self) -> None:
        if self.state is MembershipState.JOINING:
            self.step(MembershipStep.ENDED)
            self._out.effects.append(Stop("left before it had joined a cluster"))
        else:
            self.set_intent(Intent.LEAVE)

    def set_intent(self, intent: Intent) -> None:
        self.intents.set_intent(intent)
        if self.admitted:
            self._beat()
            self.consider()
        self._out.notify(IntentsChanged())

    def note_full(self, *, full: bool) -> None:
        """Report at once that the disk of this member is full, or has room again."""
        self.intents.note_full(self.me, full=full)
        if self.admitted:
            self._beat()
        self._out.notify(DiskRoomChanged())

    def note_room(self, room: Room) -> None:
        self.intents.note_room(self.me, room)
        if self.admitted:
            self._beat()

    def on_timer(self, name: str) -> None:
        if name == "join":
            self._seek()
        elif name == "heartbeat":
            self._out.timer(TimerName.HEARTBEAT, self.timing.heartbeat_ns)
            self._candidates.forget(self._out.now_ns)
            if self.view is not None:
                self._beat()
                self.metastore_orders.on_timer()
                self.consider()
            self._write_down_files()
        elif name == "propose":
            self.agreement.retry()
        elif name == "part" and self.state is MembershipState.PARTING:
            self._depart()

    # -- heartbeats

    def _beat(self) -> None:
        assert self.view is not None
        beat = Heartbeat(
            self.me,
            self.info.life,
            self.view.number,
            self.detector.overdue(self._out.now_ns),
            self.intents.mine,
            self.intents.number,
            self.agreement.fenced,
            not self._delegate.unsafe_reason(),
            *self._delegate.rounds(),
            self.me in self.intents.full,
            self.files.position,
            self.intents.short.get(self.me, Room.PLENTY),
        )
        self.intents.note_safe(self.me, safe=beat.safe)
        for info in self.view.members:
            if info.uuid != self.me:
                self._out.send_datagram(Address(info.host, info.port), beat)
        for address in self._elsewhere():
            self._out.send_datagram(address, beat)

    def _elsewhere(self) -> list[Address]:
        """Seeds outside the view, while no majority sends heartbeats (membership/V-8)."""
        assert self.view is not None
        silent = set(self.detector.suspects(self._out.now_ns))
        if self.may_decide(self.view, {info.uuid for info in self.view.members} - silent):
            return []
        homes = {admission.home(info) for info in self.view.members}
        return [seed for seed in self.identity.seeds if seed not in homes]

    def on_heartbeat(self, sender: Address, beat: Heartbeat) -> None:
        self._hear(sender, beat)
        self._out.notify(BeatHeard(beat.uuid, beat.life, beat.view, beat.applied, beat.known))

    def _hear(self, sender: Address, beat: Heartbeat) -> None:
        view = self.view
        if view is None:
            if self.last_view is not None and beat.view < self.last_view.number:
                # Perhaps no member of the view that removed this member is left to pass it on.
                self._out.send_datagram(sender, ViewDecided(self.last_view, self.carried))
            return
        info = self.member(beat.uuid)
        if info is not None and info.life == beat.life:
            self.detector.heard(beat.uuid, self._out.now_ns)
            # It runs, so the order to evict it was wrong.
            self.evicted_without_majority.discard(beat.uuid)
            self.evicted.pop(beat.uuid, None)
            self.detector.accuse(beat.uuid, beat.suspects)
            self.intents.heard(beat, view.number)
            self.files.heard(info, beat.reached)
            if beat.sealed and beat.view == view.number:
                self.fenced_since.setdefault(beat.uuid, self._out.now_ns)
            else:
                self.fenced_since.pop(beat.uuid, None)
        if beat.view < view.number:
            if info is None and self.evicted_at_ns is not None:
                # It was perhaps removed: with this view it asks to rejoin.
                self.evicted_at_ns = self._out.now_ns
            self._out.send_datagram(sender, ViewDecided(view, self.carried))
        elif self.admitted and (beat.view > view.number or (info is None and beat.view == view.number)):
            # Either the sender has a newer view, and responds to this older number with it. Or it is parting, and
            # learns that this member has the view.
            self._out.send_datagram(sender, Heartbeat(self.me, self.info.life, view.number))
        if self.state is MembershipState.PARTING:
            self._note_reached(beat)

    def _note_reached(self, beat: Heartbeat) -> None:
        """membership/V-4: end as soon as enough others have the view with which this member left: a majority of the
        members that remain, or all that left together.
        """
        view = self.view
        assert view is not None
        self._reached[beat.uuid] = max(beat.view, self._reached.get(beat.uuid, 0))
        reached = {uuid for uuid, number in self._reached.items() if number >= view.number}
        known = is_quorum(view, reached) if view.members else reached >= set(view.left) - {self.me}
        if beat.view > view.number or known:
            self._depart()
        elif not view.members and beat.view < view.number:
            self._out.timer(TimerName.PART, LAST_WORDS_NS)

    # -- joins

    def _seek(self) -> None:
        formed = self.joining.seek()
        if formed is not None:
            self.install(self._with_metastore(formed))

    def _with_metastore(self, first: View) -> View:
        voters = self.metastore_orders.configured
        if not voters or first.recovering or first.level < STARTS_METASTORE:
            return first
        return msgspec.structs.replace(first, metastore=founded(voters, first.members, ()))

    def on_join_request(self, sender: Address, request: JoinRequest) -> None:
        if self.joining.refuses(request):
            return
        why = self.joining.own_stale_files_reason(request)
        if why:
            self._end_with_old_files(request, why)
        elif self.joining.takes(request):
            self.consider()

    def on_join_answer(self, sender: Address, answer: JoinAnswer) -> None:
        self.joining.on_join_answer(sender, answer)

    def _end_with_old_files(self, request: JoinRequest, why: str) -> None:
        """membership/F-3: it does not belong to this cluster."""
        self._out.note("join refused", level="error", by=request.info.name, reason=why)
        if self.view is not None:
            self._go_into_exile(self.view, self.view)
        assert self.view is None, "a member in exile is in no view"
        self.step(MembershipStep.ENDED)
        self.refusal = why
        assert self.state is MembershipState.GONE, "no cluster takes this process any more"

    # -- files (`core.membership.known_files`)

    def durable(self, reached: int) -> None:
        if reached:
            self.files.position = max(self.files.position, reached)
            self.files.heard(self.info, self.files.position)

    def _write_down_files(self) -> None:
        """Journal positions of other members, in this member's journal."""
        if self.view is not None and self.admitted:
            view = self.files.to_write_down(self.view, self._out.now_ns)
            if view is not None:
                self._out.notify(FilesHeardOf(view))

    # -- agreeing on the next view

    def may_propose(self, candidate: MemberId) -> bool:
        """See membership/A-4."""
        return self.next_view.may_propose(candidate)

    def wanted(self) -> View | None:
        return self.next_view.wanted(self.agreement)

    def consider(self) -> None:
        if not self.agreement.proposing and self.wanted() is not None:
            self.agreement.propose()

    def known_assignments(self) -> list[tuple[int, Assignment]]:
        """See membership/A-2."""
        return self._delegate.known_assignments()

    def decided(self, view: View, rows: list[tuple[int, Assignment]]) -> None:
        """Send it to all members of both views, and install it."""
        old = self.view
        assert old is not None
        assert not self.agreement.proposing, "a decided view is not proposed any more"
        self.carried = rows
        notified: set[MemberId] = {self.me}
        for info in [*old.members, *view.members]:
            if info.uuid not in notified:
                notified.add(info.uuid)
                self._out.send_datagram(Address(info.host, info.port), ViewDecided(view, rows))
        self.install(view)

    def on_view(self, message: ViewDecided) -> None:
        """Decided views form one sequence without branches."""
        view = message.view
        if self.last_view is not None and view.cluster_id != self.last_view.cluster_id:
            return
        if self.last_view is not None and view.number <= self.last_view.number:
            return
        mine = _entry(view, self.me)
        if self.view is None and mine is None:
            return
        if self.has_left:
            if self.state is MembershipState.PARTING:
                self._depart()
            return
        self.carried = message.rows
        self.install(view)

    def install(self, view: View) -> None:
        old = self.view
        assert not self.has_left, "a member that has left is in no later view"
        mine = _entry(view, self.me)
        admitted = mine is not None
        if admitted:
            view = self.joining.with_awaited(view)
        if mine is not None and mine.life != self.info.life and self.admitted:
            # Removed by one view and admitted again by another, and only the second has arrived.
            self._go_into_exile(old, view)
            old = None
        belongs = admitted or self.me in view.left
        before = old.members if old is not None else []
        self._link(before, view.members if belongs else [])
        assert self.last_view is None or view.number > self.last_view.number, "no older view follows"
        self.last_view = view
        alive = {info.uuid for info in view.members}
        if alive != {info.uuid for info in before}:
            self.members_changed_ns = self._out.now_ns
        lost = [info for info in before if info.uuid not in alive and info.uuid not in view.left]
        if lost:
            self.evicted_at_ns = self._out.now_ns
            if admitted:
                self._log_lost(lost, complete=old is not None and view.number == old.number + 1)
        self._candidates.installed(view)
        self.evicted_without_majority = set()
        self.fenced_since = {}
        if admitted:
            self._enter(old, view)
        elif self.me in view.left:
            self.view = view
            self.step(MembershipStep.LEFT)
            self.agreement.install(None)
            self._out.note("left the view", view=view.number)
            self._tell_view(old, view)
            if not view.members:
                self._announce_all_left(before, view)
        else:
            self._go_into_exile(old, view)
        assert self.last_view.number >= view.number, "notices of a view may lead to the next one, never back"

    def _announce_all_left(self, before: list[MemberInfo], view: View) -> None:
        """Messages with this view may be lost with the links, so wait before the process ends: a member that lacks the
        view sends a heartbeat with an older number, and gets the view.
        """
        others = [info for info in before if info.uuid != self.me]
        self._out.timer(TimerName.PART, LAST_WORDS_NS if others else 0)
        for info in others:
            address = Address(info.host, info.port)
            self._out.send_datagram(address, Heartbeat(self.me, self.info.life, view.number))

    def _tell_view(self, old: View | None, new: View | None) -> None:
        before, after = (
            {(info.uuid, info.life) for info in view.members if info.uuid != self.me}
            if view is not None
            else set()
            for view in (old, new)
        )
        gone, came = (frozenset(uuid for uuid, _ in lives) for lives in (before - after, after - before))
        assert self.admitted is (self.view is not None and self.me not in self.view.left), (
            "exactly the members of the view are admitted"
        )
        assert (self.agreement.view is not None) is self.admitted, (
            "exactly the members of a view agree on the next one"
        )
        self._out.notify(ViewInstalled(old, new, self.admitted, gone, came))

    def _link(self, before: list[MemberInfo], after: list[MemberInfo]) -> None:
        """A member in a new life gets a new link."""
        was, is_now = ({(info.uuid, info.life) for info in members} for members in (before, after))

        for info in before:
            if (info.uuid, info.life) not in is_now and info.uuid != self.me:
                self._out.effects.append(CloseLink(info.uuid))
        for info in after:
            if (info.uuid, info.life) not in was and info.uuid != self.me:
                self._out.effects.append(OpenLink(info.uuid, info.life, Address(info.host, info.port)))

    def _log_lost(self, lost: list[MemberInfo], *, complete: bool) -> None:
        """`complete`: this member has missed no view, so they did not leave in order by an earlier one."""
        how = "without leaving: it crashed, or was cut off or stopped for too long"
        for info in lost:
            self._out.note(
                f"member gone {how if complete else 'while this member received no views'}",
                level="warning",
                name=info.name,
                address=str(admission.home(info)),
                reason=self._removal_reason(info.uuid),
                uuid=info.uuid,
            )

    def _removal_reason(self, member: MemberId) -> str:
        if member in self.evicted_without_majority:
            return "evicted by the operator, without a majority"
        return self.detector.silence_reason(member, self._out.now_ns)

    def _enter(self, old: View | None, view: View) -> None:
        assert old is None or view.number > old.number, "views are numbered"
        self.view = view
        # Before other machines act on the view: they send at its feature level.
        self._out.level = view.level
        self.step(MembershipStep.ADMITTED)
        self.refusal = self.join_advice = ""
        mine = self.member(self.me)
        assert mine is not None
        assert mine.life >= self.info.life, "lives only rise"
        self.info = mine
        self.agreement.install(view)
        self.detector.watch([info.uuid for info in view.members if info.uuid != self.me], self._out.now_ns)
        self.intents.installed(view, mine)
        fields: dict[str, Any] = _changes(old, view, self.me)
        self._out.note(
            "view",
            number=view.number,
            state=view.state,
            master=view.members[0].name,
            members=[info.name for info in view.members],
            **fields,
        )
        if old is not None and view.level > old.level:
            self._out.note("feature level in force", feature_level=view.level, before=old.level)
        self._tell_view(old, view)
        # After the other machines know the view, because the heartbeat reports their state in it.
        self._beat()

    def _go_into_exile(self, old: View | None, view: View) -> None:
        if self.state is MembershipState.JOINING:
            return
        assert (
            all(info.uuid != self.me or info.life != self.info.life for info in view.members) or old is view
        )
        self.view = None
        self.step(MembershipStep.REMOVED)
        assert self.last_view is not None, "a removed member had a view"
        self.intents.exiled()
        for info in old.members if old is not None else []:
            if info.uuid != self.me:
                self._out.effects.append(CloseLink(info.uuid))
        self.agreement.install(None)
        self.detector.watch([], self._out.now_ns)
        self._out.note("removed from the cluster while alive: rejoining", level="warning", view=view.number)
        self._out.timer(TimerName.JOIN, JOIN_INTERVAL_NS, JOIN_INTERVAL_NS)
        self._tell_view(old, None)

    def _depart(self) -> None:
        assert self.view is not None, "it leaves with a view"
        self.step(MembershipStep.ENDED)
        assert self.has_left, "its process ends"
        whole = "left the cluster, which was shut down as a whole"
        stays = any(
            self.may_hold(info) and self.intents.of(info.uuid) is not Intent.LEAVE for info in self.members()
        )
        rest = (
            "everything it held is on other members"
            if stays
            else "all other members that held data have left too"
        )
        self._out.effects.append(Stop(whole if self.ending else f"left the cluster; {rest}"))


def _changes(old: View | None, view: View, me: MemberId) -> dict[str, Any]:
    """Names by kind of change; kinds without members are left out."""
    before = {info.uuid: info for info in old.members} if old is not None else {}
    here = {info.uuid: info for info in view.members}
    others = [info for info in view.members if old is not None and info.uuid != me]
    changes = {
        "joined": [info.name for info in others if info.uuid not in before],
        "returned": [
            info.name for info in others if info.uuid in before and before[info.uuid].life < info.life
        ],
        "left_after_draining": [before[uuid].name for uuid in view.left if uuid in before],
        "removed": [info.name for uuid, info in before.items() if uuid not in here and uuid not in view.left],
    }
    return {how: names for how, names in changes.items() if names}


def _entry(view: View, member: MemberId) -> MemberInfo | None:
    return next((info for info in view.members if info.uuid == member), None)
