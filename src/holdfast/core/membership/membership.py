"""Who is here, and who leads? Heartbeats, the orders of operators, and the installation of views.

- membership/V-1: Views are numbered and agreed (`agreement`); nobody shrinks the cluster alone. The oldest member is
  the master.
- membership/V-5: The state of the cluster, and who is a lite member, are part of the view: they change for all at once.
  What the operator wants is repeated to each master until it is so.
- membership/V-8: A member that hears no majority of its view lets the seeds hear of it, too: the others may have gone
  on without it, and those whom it knows have left or ended since, so that nobody else would tell it.
- membership/V-9: A member that an operator evicts is suspected at once by the members that have heard nothing of it for
  some heartbeats, and a majority removes it like any suspected member. If it still runs, it is not admitted again: it
  ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from holdfast.core.effects import CloseLink, OpenLink, Stop
from holdfast.core.membership import admission
from holdfast.core.membership.admission import Admission
from holdfast.core.membership.identity import Identity, Timing
from holdfast.core.membership.joining import JOIN_INTERVAL_NS, Joining
from holdfast.core.membership.membership_status import MembershipState, MembershipStatus, MembershipStep
from holdfast.core.membership.next_view import NextView, Permissions
from holdfast.core.membership.view_agreement import ViewAgreement, is_quorum
from holdfast.core.messages import (
    BaselineWanted,
    EvictMembers,
    EvictMembersWithoutMajority,
    Heartbeat,
    JoinAnswer,
    JoinRequest,
    LevelWanted,
    StateWanted,
    ViewDecided,
)
from holdfast.core.model.ids import MILLISECOND, Address, MemberId
from holdfast.core.model.levels import LOWEST
from holdfast.core.model.notices import (
    BeatHeard,
    DiskRoomChanged,
    FilesHeardOf,
    IntentsChanged,
    ViewInstalled,
)
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import ClusterState, Intent, MemberInfo, Room, View
from holdfast.core.outbox import Outbox

SILENT_BEATS = 3
"""Of whom nothing was heard for so many heartbeats an operator may say that it has ended."""
EVICTED_KEPT = 64
"""So many of those are remembered: longer than one that lives after all takes to ask to return."""
LAST_WORDS_NS = 1000 * MILLISECOND
"""When all leave together, how long the others have to say that they know, after the last that did not."""


class MembershipDelegate(Permissions, Protocol):
    """What the membership asks of the machines above it."""

    def unsafe_reason(self) -> str:
        """Why a crash could cost something now; empty when, as far as this member knows, it could not."""

    def rounds(self) -> tuple[int, int]:
        """The last round of the table that is applied and durable here, and up to which one all have, as the master
        knows.
        """

    def known_assignments(self) -> list[tuple[int, Assignment]]:
        """The newest row of each assigned partition, stored or applied."""


class Membership(MembershipStatus):
    """What changes how this member stands to its cluster."""

    def __init__(
        self,
        identity: Identity,
        timing: Timing,
        out: Outbox,
        delegate: MembershipDelegate,
        *,
        majority: bool,
    ) -> None:
        super().__init__(identity, timing, out, majority=majority)
        out.level = LOWEST
        self._delegate = delegate
        self._candidates = Admission()
        self.joining = Joining(self, self._candidates, out)
        self.next_view = NextView(self, self._candidates, out, delegate)
        self._reached: dict[MemberId, int] = {}
        """As a member that is parting: which view each other one has."""
        self.agreement = ViewAgreement(self.me, out, self)

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        here = {info.uuid for info in self.members()}
        noted = self.intents.noted | self.fenced_since.keys()
        return {
            "candidates that ask no more": self._candidates.forgotten(self._out.now_ns),
            "notes about members that are gone": len(noted - here),
        }

    # -- start, time, and the operator

    def start(self) -> None:
        """Begin to look for the cluster."""
        self._out.timer(TimerName.JOIN, 1 * MILLISECOND)
        self._out.timer(TimerName.HEARTBEAT, self.timing.heartbeat_ns)

    def leave(self) -> None:
        """The operator wants this member to leave."""
        if self.state is MembershipState.JOINING:
            self.step(MembershipStep.ENDED)
            self._out.effects.append(Stop("left before it had joined a cluster"))
        else:
            self.become(Intent.LEAVE)

    def become(self, wish: Intent) -> None:
        """The operator wants this member to leave, to own nothing (LITE) or to own partitions (DATA)."""
        self.intents.become(wish)
        if self.admitted:
            self._beat()
            self.consider()
        self._out.tell(IntentsChanged())

    def order(self, state: ClusterState, *, ending: bool = False) -> None:
        """The operator wants the cluster in this state, or to end; repeated to each master until it is so."""
        if self.view is not None and self.admitted:
            self.intents.order(self.view, state, ending=ending)

    def order_baseline(self, after: str, members: Sequence[str], adjust_ms: int) -> None:
        """The operator wants just these to own data, if `after` is still the end of the history. Who gives the order
        repeats it: a new master has not heard it.
        """
        if self.view is not None and self.admitted:
            wanted = BaselineWanted(self.view.number, after, list(members), adjust_ms)
            self._out.send(self.view.members[0].uuid, wanted)

    def on_baseline_wanted(self, order: BaselineWanted) -> None:
        """As master: somebody's operator wants others to own data (membership/B-2)."""
        if self.view is not None and self.is_master and not self.view.ending:
            self.intents.order_baseline(order, self._out.now_ns)
            self.consider()

    def order_level(self, level: int) -> None:
        """The operator wants this feature level in force. Who gives the order repeats it, as with the baseline."""
        if self.view is not None and self.admitted:
            self._out.send(self.view.members[0].uuid, LevelWanted(self.view.number, level))

    def on_level_wanted(self, order: LevelWanted) -> None:
        """As master: somebody's operator wants this feature level in force (membership/L-1)."""
        if self.view is not None and self.is_master and not self.view.ending:
            self.intents.order_level(order.level, self._out.now_ns)
            self.consider()

    def note_full(self, *, full: bool) -> None:
        """This member's disk is full, or has room again: the others are to know at once."""
        self.intents.note_full(self.me, full=full)
        if self.admitted:
            self._beat()
        self._out.tell(DiskRoomChanged())

    def note_room(self, room: Room) -> None:
        """How much room is left in this member's memory: the others are to know at once."""
        self.intents.note_room(self.me, room)
        if self.admitted:
            self._beat()

    def evict_without_majority(self, dead: set[MemberId]) -> set[MemberId]:
        """The operator evicts these members, and vouches that they have ended. Answers those that were heard of not
        long ago, which are not evicted; all others are left out of the next view, whatever remains.
        """
        silent = set(self.detector.suspects(self._out.now_ns))
        assert self.me not in silent, "nobody suspects itself"
        for info in self.members():
            if info.uuid in dead & silent and info.uuid not in self.evicted_without_majority:
                self._note_evicted([info.uuid])
                self._out.note(
                    "evicted by the operator, without a majority", level="warning", member=info.name
                )
        assert self.me not in self.evicted_without_majority, "no member evicts itself"
        if self.view is not None and self.evicted_without_majority:
            for info in self.view.members:
                if info.uuid not in silent and info.uuid != self.me:
                    self._out.send(
                        info.uuid,
                        EvictMembersWithoutMajority(self.view.number, sorted(self.evicted_without_majority)),
                    )
            self.consider()
        return dead - silent

    def on_evict_members_without_majority(self, message: EvictMembersWithoutMajority) -> None:
        """Another member's operator evicts these members although the rest is no majority."""
        if self.view is not None and message.view == self.view.number and self.admitted:
            self._note_evicted(message.members)
            self.consider()

    def _note_evicted(self, members: Sequence[MemberId]) -> None:
        """Leave these members out of the next view, and do not admit them again: the others go on without them."""
        for member in members:
            self.evicted_without_majority.add(member)
            self.evicted.pop(member, None)
            self.evicted[member] = None
        while len(self.evicted) > EVICTED_KEPT:
            del self.evicted[next(iter(self.evicted))]

    def evict(self, ended: set[MemberId]) -> set[MemberId]:
        """The operator evicts these members. Answers those that were heard of just now, which are not evicted
        (membership/V-9).
        """
        taken = self._suspect_evicted(ended)
        if self.view is not None and self.admitted and taken:
            for info in self.view.members:
                if info.uuid not in ended and info.uuid != self.me:
                    self._out.send(info.uuid, EvictMembers(self.view.number, sorted(taken)))
            self.consider()
        return {info.uuid for info in self.members() if info.uuid in ended - taken}

    def unheard(self) -> list[MemberId]:
        """Of whom nothing has been heard for `SILENT_BEATS`."""
        return self.detector.not_heard_for(SILENT_BEATS * self.timing.heartbeat_ns, self._out.now_ns)

    def on_evict_members(self, message: EvictMembers) -> None:
        """Another member's operator evicts these members."""
        if self.view is not None and message.view == self.view.number and self.admitted:
            self._suspect_evicted(set(message.members))
            self.consider()

    def _suspect_evicted(self, ended: set[MemberId]) -> set[MemberId]:
        """Suspect those of whom nothing is heard here either; answers who that is."""
        unheard = set(self.unheard())
        assert self.me not in unheard, "nobody suspects itself"
        for info in self.members():
            if info.uuid in ended & unheard:
                if info.uuid not in self.evicted:
                    self._out.note("evicted by the operator", level="warning", member=info.name)
                self.evicted.pop(info.uuid, None)
                self.evicted[info.uuid] = None
                self.detector.silent(info.uuid)
        while len(self.evicted) > EVICTED_KEPT:
            del self.evicted[next(iter(self.evicted))]
        return ended & unheard

    def on_state_wanted(self, sender: MemberId, order: StateWanted) -> None:
        """As master: somebody's operator wants another state. It is said again in each view: older words are void."""
        if self.view is None or not self.is_master or order.view < self.view.number:
            return
        if self.view.ending:
            if not order.ending:
                self._out.note(
                    "state change refused: the cluster is shutting down", level="warning", wanted=order.state
                )
            return
        self.intents.ordered(order)
        self.consider()

    def on_timer(self, name: str) -> None:
        if name == "join":
            self._seek()
        elif name == "heartbeat":
            self._out.timer(TimerName.HEARTBEAT, self.timing.heartbeat_ns)
            self._candidates.forget(self._out.now_ns)
            if self.view is not None:
                self._beat()
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
        """Where somebody may know a newer view than the one of which no majority is heard (membership/V-8)."""
        assert self.view is not None
        silent = set(self.detector.suspects(self._out.now_ns))
        if self.may_decide(self.view, {info.uuid for info in self.view.members} - silent):
            return []
        homes = {admission.home(info) for info in self.view.members}
        return [seed for seed in self.identity.seeds if seed not in homes]

    def on_heartbeat(self, sender: Address, beat: Heartbeat) -> None:
        """A member says that it is there, and what it knows."""
        self._hear(sender, beat)
        self._out.tell(BeatHeard(beat.uuid, beat.life, beat.view, beat.applied, beat.known))

    def _hear(self, sender: Address, beat: Heartbeat) -> None:
        view = self.view
        if view is None:
            if self.last_view is not None and beat.view < self.last_view.number:
                # Nobody else may be left who knows of the view that removed this member.
                self._out.send_datagram(sender, ViewDecided(self.last_view, self.carried))
            return
        info = self.member(beat.uuid)
        if info is not None and info.life == beat.life:
            self.detector.heard(beat.uuid, self._out.now_ns)
            # Whoever is heard of is not dead, whatever was said.
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
                # Alive, and removed perhaps: it will hear of that now, and ask to return.
                self.evicted_at_ns = self._out.now_ns
            self._out.send_datagram(sender, ViewDecided(view, self.carried))
        elif self.admitted and (beat.view > view.number or (info is None and beat.view == view.number)):
            # It knows a newer view, and is to learn that it is needed here; or it is parting, and wants to be told that
            # its going is known.
            self._out.send_datagram(sender, Heartbeat(self.me, self.info.life, view.number))
        if self.state is MembershipState.PARTING:
            self._note_reached(beat)

    def _note_reached(self, beat: Heartbeat) -> None:
        """membership/V-4: go when enough members know the view that this one has left with to hold on to it without it;
        where nobody stays, when all who left with it know.
        """
        view = self.view
        assert view is not None
        self._reached[beat.uuid] = max(beat.view, self._reached.get(beat.uuid, 0))
        told = {uuid for uuid, number in self._reached.items() if number >= view.number}
        known = is_quorum(view, told) if view.members else told >= set(view.left) - {self.me}
        if beat.view > view.number or known:
            self._depart()
        elif not view.members and beat.view < view.number:
            self._out.timer(TimerName.PART, LAST_WORDS_NS)

    # -- who asks to be let in

    def _seek(self) -> None:
        formed = self.joining.seek()
        if formed is not None:
            self.install(formed)

    def on_join_request(self, sender: Address, request: JoinRequest) -> None:
        """Somebody looks for its cluster."""
        if self.joining.refuses(request):
            return
        why = self.joining.own_stale_files_reason(request)
        if why:
            self._end_with_old_files(request, why)
        elif self.joining.takes(request):
            self.consider()

    def on_join_answer(self, sender: Address, answer: JoinAnswer) -> None:
        """An answer to this member's own request."""
        self.joining.on_join_answer(sender, answer)

    def _end_with_old_files(self, request: JoinRequest, why: str) -> None:
        """membership/F-3: with an old copy of its files this member is none of this cluster."""
        self._out.note("join refused", level="error", by=request.info.name, reason=why)
        if self.view is not None:
            self._go_into_exile(self.view, self.view)
        assert self.view is None, "who goes is in no view"
        self.step(MembershipStep.ENDED)
        self.refusal = why
        assert self.state is MembershipState.GONE, "no cluster takes this process any more"

    # -- files (`core.membership.known_files`)

    def durable(self, reached: int) -> None:
        """This member's journal is durable up to this block."""
        if reached:
            self.files.position = max(self.files.position, reached)
            self.files.heard(self.info, self.files.position)

    def _write_down_files(self) -> None:
        """Let the journal say how far the journals of the others are."""
        if self.view is not None and self.admitted:
            view = self.files.to_write_down(self.view, self._out.now_ns)
            if view is not None:
                self._out.tell(FilesHeardOf(view))

    # -- agreeing on the next view

    def may_propose(self, candidate: MemberId) -> bool:
        """membership/A-4, for this member as a consenting one."""
        return self.next_view.may_propose(candidate)

    def wanted(self) -> View | None:
        """The next view this member would like, or None when the present one is right (or no majority could agree)."""
        return self.next_view.wanted(self.agreement)

    def consider(self) -> None:
        """Propose a next view if one is wanted."""
        if not self.agreement.proposing and self.wanted() is not None:
            self.agreement.propose()

    def known_assignments(self) -> list[tuple[int, Assignment]]:
        """The newest row of each assigned partition, which those who agree carry over (membership/A-2)."""
        return self._delegate.known_assignments()

    def decided(self, view: View, rows: list[tuple[int, Assignment]]) -> None:
        """The next view is agreed."""
        old = self.view
        assert old is not None
        assert not self.agreement.proposing, "what is decided is proposed no more"
        self.carried = rows
        told: set[MemberId] = {self.me}
        for info in [*old.members, *view.members]:
            if info.uuid not in told:
                told.add(info.uuid)
                self._out.send_datagram(Address(info.host, info.port), ViewDecided(view, rows))
        self.install(view)

    def on_view(self, message: ViewDecided) -> None:
        """A view was decided, says a message; every decided view may be believed, the newest counts."""
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
        """Take the view as the present one: open and close links, and tell the other machines."""
        old = self.view
        assert not self.has_left, "who has left is in no later view"
        mine = _entry(view, self.me)
        admitted = mine is not None
        if mine is not None and mine.life != self.info.life and self.admitted:
            # Removed and admitted again, and told of the latter only.
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
                self._tell_lost(lost, surely=old is not None and view.number == old.number + 1)
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
                self._tell_all_left(before, view)
        else:
            self._go_into_exile(old, view)
        assert self.last_view.number >= view.number, "what is told of a view may lead to the next, never back"

    def _tell_all_left(self, before: list[MemberInfo], view: View) -> None:
        """What told them of this view may have gone with the links: who asks now is told again."""
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
            "who is in the view is admitted, and nobody else"
        )
        assert (self.agreement.view is not None) is self.admitted, (
            "members agree on what comes after their view"
        )
        self._out.tell(ViewInstalled(old, new, self.admitted, gone, came))

    def _link(self, before: list[MemberInfo], after: list[MemberInfo]) -> None:
        """Links follow the members and their lives."""
        was, is_now = ({(info.uuid, info.life) for info in members} for members in (before, after))

        for info in before:
            if (info.uuid, info.life) not in is_now and info.uuid != self.me:
                self._out.effects.append(CloseLink(info.uuid))
        for info in after:
            if (info.uuid, info.life) not in was and info.uuid != self.me:
                self._out.effects.append(OpenLink(info.uuid, info.life, Address(info.host, info.port)))

    def _tell_lost(self, lost: list[MemberInfo], *, surely: bool) -> None:
        """Who is gone, and where he was: the first thing that somebody who is called at night wants to know.

        `surely`: no view was missed here in which he may have left in order.
        """
        how = "without leaving: it crashed, or was cut off or stopped for too long"
        for info in lost:
            self._out.note(
                f"member gone {how if surely else 'while this member received no views'}",
                level="warning",
                name=info.name,
                address=str(admission.home(info)),
                reason=self._removal_reason(info.uuid),
                uuid=info.uuid,
            )

    def _removal_reason(self, member: MemberId) -> str:
        """As far as this member knows."""
        if member in self.evicted_without_majority:
            return "evicted by the operator, without a majority"
        return self.detector.silence_reason(member, self._out.now_ns)

    def _enter(self, old: View | None, view: View) -> None:
        assert old is None or view.number > old.number, "views are numbered"
        self.view = view
        # Before anybody hears of the view, and sends something because of it.
        self._out.level = view.level
        self.step(MembershipStep.ADMITTED)
        self.refusal = self.way_in = ""
        mine = self.member(self.me)
        assert mine is not None
        assert mine.life >= self.info.life, "nobody comes back as an earlier life"
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
        # After all machines know the view: what the heartbeat says is of this view.
        self._beat()

    def _go_into_exile(self, old: View | None, view: View) -> None:
        if self.state is MembershipState.JOINING:
            return
        assert (
            all(info.uuid != self.me or info.life != self.info.life for info in view.members) or old is view
        )
        self.view = None
        self.step(MembershipStep.REMOVED)
        assert self.last_view is not None, "who was removed knows from what"
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
        assert self.view is not None, "a view says that it has left"
        self.step(MembershipStep.ENDED)
        assert self.has_left, "its process ends"
        whole = "left the cluster, which was shut down as a whole"
        stays = any(
            self.may_hold(info) and self.intents.of(info.uuid) is not Intent.LEAVE for info in self.members()
        )
        rest = "everything it held is on other members" if stays else "so have all who held data"
        self._out.effects.append(Stop(whole if self.ending else f"left the cluster; {rest}"))


def _changes(old: View | None, view: View, me: MemberId) -> dict[str, Any]:
    """Who came and who went, by name, and how; what has not happened is left out."""
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
    """The member's entry in a view that may not be the present one."""
    return next((info for info in view.members if info.uuid == member), None)
