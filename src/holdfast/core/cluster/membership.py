"""Who is here, and who leads? Discovery, the installed view, and what makes a member want the next one.

- cluster/V-1: Views are numbered and agreed (`agreement`); nobody shrinks the cluster alone. The oldest member is the
  master.
- cluster/V-2: A member is a UUID and a life. Removed though alive, it keeps its data, asks to be admitted again as
  its next life, and serves nothing until it is.
- cluster/V-4: A leaving member goes with a view that names it as left, when it holds nothing any more and a majority
  of that view knows it.
- cluster/V-5: The state of the cluster, and who is a lite member, are part of the view: they change for all at once.
  What the operator wants is repeated to each master until it is so.
- cluster/V-6: When so many have died that the rest is no majority, the operator may declare dead who is silent; then
  the majority of the others decides. Were one of them alive, there would be two clusters: only the operator can know.
- cluster/V-8: A member that hears no majority of its view lets the seeds hear of it, too: the others may have gone on
  without it, and those whom it knows have left or ended since, so that nobody else would tell it.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Final, Protocol

import msgspec

from holdfast.core.cluster import admission
from holdfast.core.cluster.admission import Candidates
from holdfast.core.cluster.agreement import Agreement, is_quorum
from holdfast.core.cluster.detector import Detector
from holdfast.core.cluster.file_proofs import KnownFiles, why_old
from holdfast.core.cluster.formation import Formation
from holdfast.core.cluster.identity import Identity, Timing
from holdfast.core.cluster.intents import Intents
from holdfast.core.machine import CloseLink, OpenLink, Outbox, Stop
from holdfast.core.messages import DeclareDead, Heartbeat, JoinAnswer, JoinRequest, StateWanted, ViewDecided
from holdfast.core.model.ids import MILLISECOND, Address, MemberId
from holdfast.core.model.lifecycle import Lifecycle
from holdfast.core.model.notices import (
    BeatHeard,
    DiskRoomChanged,
    FilesHeardOf,
    IntentsChanged,
    ViewInstalled,
)
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.timers import TimerName
from holdfast.core.model.views import ClusterState, Intent, MemberInfo, Room, View

JOIN_INTERVAL_NS = 500 * MILLISECOND
RETURN_FACTOR = 3
"""For how many times of suspicion a removed member may still come back."""
LAST_WORDS_NS = 1000 * MILLISECOND
"""When all leave together, how long the word of it has to reach the others."""


@unique
class MembershipState(StrEnum):
    """How a member stands to its cluster."""

    JOINING = "joining"
    """It looks for the cluster, and was never admitted."""
    MEMBER = "member"
    """It is in the newest view that it knows."""
    EXILED = "exiled"
    """It was removed though alive, and asks to return."""
    PARTING = "parting"
    """A view says that it has left; it waits until enough others know."""
    GONE = "gone"
    """It is no member any more, and will not be one: its process ends."""


@unique
class MembershipStep(StrEnum):
    """What changes how a member stands to its cluster."""

    ADMITTED = "a view names it"
    REMOVED = "a view does without it"
    LEFT = "a view says that it has left"
    ENDED = "it has nothing to wait for any more"


SEEKING = (MembershipState.JOINING, MembershipState.EXILED)
"""Who looks for a cluster that takes it."""

MEMBERSHIP: Final = Lifecycle(
    "a member",
    MembershipState.JOINING,
    {
        (MembershipState.JOINING, MembershipStep.ADMITTED): MembershipState.MEMBER,
        (MembershipState.JOINING, MembershipStep.ENDED): MembershipState.GONE,
        (MembershipState.MEMBER, MembershipStep.ADMITTED): MembershipState.MEMBER,
        (MembershipState.MEMBER, MembershipStep.REMOVED): MembershipState.EXILED,
        (MembershipState.MEMBER, MembershipStep.LEFT): MembershipState.PARTING,
        (MembershipState.EXILED, MembershipStep.ADMITTED): MembershipState.MEMBER,
        (MembershipState.EXILED, MembershipStep.ENDED): MembershipState.GONE,
        (MembershipState.PARTING, MembershipStep.ENDED): MembershipState.GONE,
    },
)


class MembershipDelegate(Protocol):
    """What the membership asks of the machines above it."""

    def may_part(self, member: MemberId) -> bool:
        """As master: whether this member may leave: it holds nothing any more, and all know that."""

    def may_demote(self, member: MemberId) -> bool:
        """As master: whether this member may become a lite one: it holds nothing any more."""

    def why_unsafe(self) -> str:
        """Why a crash could cost something now; empty when, as far as this member knows, it could not."""

    def rounds(self) -> tuple[int, int]:
        """The last round of the table that is applied and durable here, and up to which one all have, as the master
        knows.
        """

    def known_assignments(self) -> list[tuple[int, Assignment]]:
        """The newest row of each assigned partition, stored or applied."""

    def is_assigned(self) -> bool:
        """Whether the partitions have owners."""


class Membership:
    """The state of this member in its cluster: `joining`, `member`, `exiled` (removed though alive),
    `parting`, `gone`.
    """

    def __init__(
        self,
        identity: Identity,
        timing: Timing,
        out: Outbox,
        delegate: MembershipDelegate,
        *,
        majority: bool,
    ) -> None:
        self.me = identity.info.uuid
        self.info = identity.info
        self.identity = identity
        self._timing = timing
        self._out = out
        self._majority = majority
        self._delegate = delegate
        self.view: View | None = None
        self._last_view: View | None = None
        self.state = MEMBERSHIP.begins
        self.refusal = ""
        self.detector = Detector(timing.suspect_after_ns, 2 * timing.heartbeat_ns)
        self._candidates = Candidates()
        self._dead: set[MemberId] = set()
        """Who is dead, says the operator: the majority of the others decides on the next view."""
        self.intents = Intents(self.me, out)
        self._fenced_since: dict[MemberId, int] = {}
        self._formation = Formation(identity)
        self._files = KnownFiles(identity.seen)
        self.numbers_from = 0
        """As master: the highest number that a view of an earlier time is known to have had."""
        self.carried: list[tuple[int, Assignment]] = []
        """Rows that members left out of the present view knew (cluster/A-2)."""
        self._reached: dict[MemberId, int] = {}
        self._evicted_at_ns: int | None = None
        self._minority_told = False
        self.agreement = Agreement(self.me, out, self)

    def _step(self, step: MembershipStep) -> None:
        self.state = MEMBERSHIP.after(self.state, step)

    # -- what others ask

    @property
    def admitted(self) -> bool:
        """Whether this member is in the newest view that it knows."""
        return self.state is MembershipState.MEMBER

    @property
    def has_left(self) -> bool:
        """Whether this member has left for good."""
        state = self.state
        return state is MembershipState.PARTING or state is MembershipState.GONE

    @property
    def master(self) -> MemberId | None:
        """The oldest member of the view."""
        return self.view.members[0].uuid if self.view and self.view.members else None

    @property
    def is_master(self) -> bool:
        """Whether this member leads."""
        return self.master == self.me and self.admitted

    def is_member(self, member: MemberId) -> bool:
        """Whether it is in the view."""
        return self.member(member) is not None

    def hears(self, member: MemberId) -> bool:
        """Whether this member is in the cluster, and has heard of that one not long ago."""
        return self.admitted and self.detector.hears(member, self._out.now_ns)

    def member(self, uuid: MemberId | None) -> MemberInfo | None:
        """The member's entry in the view."""
        return next((info for info in self.members() if info.uuid == uuid), None)

    def members(self) -> list[MemberInfo]:
        """The members of the view, oldest first; none before admission."""
        return list(self.view.members) if self.view else []

    def missing(self) -> list[MemberInfo]:
        """Who has gone while the table is frozen, and keeps its slots."""
        return self.view.missing if self.view else []

    @property
    def ending(self) -> bool:
        """Whether the cluster is being shut down."""
        return self.view is not None and self.view.ending

    @property
    def known_by_all(self) -> bool:
        """Whether every member has said that it has the present view, and so the state of the cluster."""
        here = {info.uuid for info in self.members()}
        return self.admitted and self.intents.heard_from >= here

    def is_quorum(self, members: set[MemberId]) -> bool:
        """Whether these members can decide for the view."""
        assert self.view is not None
        return not self._majority or is_quorum(self.view, members)

    def may_decide(self, view: View, members: set[MemberId]) -> bool:
        """Whether these members can decide on the view after this one: cluster/A-1, and cluster/V-6."""
        if not self._majority:
            return True
        counted = [info for info in view.members if info.uuid not in self._dead]
        return is_quorum(msgspec.structs.replace(view, members=counted), members)

    @property
    def cluster_state(self) -> ClusterState:
        """What the operator allows; ACTIVE before admission."""
        return self.view.state if self.view is not None else ClusterState.ACTIVE

    @property
    def leaving(self) -> bool:
        """Whether this member wants to leave."""
        return self.intents.mine is Intent.LEAVE

    @property
    def departing(self) -> set[MemberId]:
        """Who shall hold no partition any more: leavers, and data members that want to be lite."""
        return self.intents.departing(self.members())

    def data_members(self) -> list[MemberInfo]:
        """Members that may hold partitions, and go on doing so."""
        departing = self.departing
        return [info for info in self.members() if not info.lite and info.uuid not in departing]

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        here = {info.uuid for info in self.members()}
        noted = self.intents.noted | self._fenced_since.keys()
        return {
            "candidates that ask no more": self._candidates.forgotten(self._out.now_ns),
            "notes about members that are gone": len(noted - here),
        }

    @property
    def may_be_missed(self) -> bool:
        """Whether somebody was removed, or heard though removed, so short a time ago that he may be about to come back.

        Only whether the last member may take everything with it depends on this time; no safety rule does.
        """
        since = self._evicted_at_ns
        return since is not None and self._out.now_ns - since < RETURN_FACTOR * self._timing.suspect_after_ns

    # -- start, time, and the operator

    def start(self) -> None:
        """Begin to look for the cluster."""
        self._out.timer(TimerName.JOIN, 1 * MILLISECOND)
        self._out.timer(TimerName.HEARTBEAT, self._timing.heartbeat_ns)

    def leave(self) -> None:
        """The operator wants this member to leave."""
        if self.state is MembershipState.JOINING:
            self._step(MembershipStep.ENDED)
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

    def declare_dead(self, dead: set[MemberId]) -> set[MemberId]:
        """The operator vouches that these members have ended. Answers those who were heard of not long ago, for which
        that is refused; all others are left out of the next view, whatever remains.
        """
        silent = set(self.detector.suspects(self._out.now_ns))
        for info in self.members():
            if info.uuid in dead & silent and info.uuid not in self._dead:
                self._dead.add(info.uuid)
                self._out.note("declared dead by the operator", level="warning", member=info.name)
        if self.view is not None and self._dead:
            for info in self.view.members:
                if info.uuid not in silent and info.uuid != self.me:
                    self._out.send(info.uuid, DeclareDead(self.view.number, sorted(self._dead)))
            self.consider()
        return dead - silent

    def on_declare_dead(self, message: DeclareDead) -> None:
        """Somebody's operator vouches that these have ended."""
        if self.view is not None and message.view == self.view.number and self.admitted:
            self._dead.update(message.members)
            self.consider()

    def on_state_wanted(self, sender: MemberId, order: StateWanted) -> None:
        """As master: somebody's operator wants another state. It is said again in each view: older words are void."""
        if self.view is None or not self.is_master or order.view < self.view.number:
            return
        if self.view.ending:
            if not order.ending:
                self._out.note("the cluster is ending: its state stays", level="warning", wanted=order.state)
            return
        self.intents.ordered(order)
        self.consider()

    def on_timer(self, name: str) -> None:
        if name == "join":
            self._seek()
        elif name == "heartbeat":
            self._out.timer(TimerName.HEARTBEAT, self._timing.heartbeat_ns)
            self._candidates.forget(self._out.now_ns)
            if self.view is not None:
                self._beat()
                self.consider()
            self._write_down_files()
        elif name == "propose":
            self.agreement.retry()
        elif name == "part" and self.state is MembershipState.PARTING:
            self._depart()

    def _seek(self) -> None:
        if self.state not in SEEKING:
            return
        own = admission.home(self.info)
        if self.state is MembershipState.JOINING and self._formation.may_form(own):
            self._out.note("cluster formed", cluster=self.identity.cluster, by=self.me)
            admitted = [] if self.identity.cluster_id else [self.info]
            self.install(self._formation.first_view(self._files.stores(None, admitted)))
            return
        self._out.timer(TimerName.JOIN, JOIN_INTERVAL_NS, JOIN_INTERVAL_NS // 4)
        targets = [seed for seed in self.identity.seeds if seed != own]
        if self._last_view is not None:
            known = [
                Address(info.host, info.port) for info in self._last_view.members if info.uuid != self.me
            ]
            targets += [address for address in known if address not in targets]
        cluster_id = self._last_view.cluster_id if self._last_view else self.identity.cluster_id
        proof = self.info.proof
        # Who was removed though alive has gone on writing meanwhile.
        proof = msgspec.structs.replace(proof, reached=max(proof.reached, self._files.position))
        request = JoinRequest(
            msgspec.structs.replace(self.info, proof=proof),
            self.identity.cluster,
            self.identity.shared,
            cluster_id,
            self._files.stores(self._last_view, ()) if cluster_id else {},
        )
        for address in targets:
            self._out.send_datagram(address, request)

    def seed_absent(self, address: Address) -> None:
        """Nothing listens at this seed: it is in no cluster."""
        self._formation.absent(address)

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
            not self._delegate.why_unsafe(),
            *self._delegate.rounds(),
            self.me in self.intents.full,
            self._files.position,
            self.intents.short.get(self.me, Room.PLENTY),
        )
        self.intents.note_safe(self.me, safe=beat.safe)
        for info in self.view.members:
            if info.uuid != self.me:
                self._out.send_datagram(Address(info.host, info.port), beat)
        for address in self._elsewhere():
            self._out.send_datagram(address, beat)

    def _elsewhere(self) -> list[Address]:
        """Where somebody may know a newer view than the one of which no majority is heard (cluster/V-8)."""
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
            if self._last_view is not None and beat.view < self._last_view.number:
                # Nobody else may be left who knows of the view that removed this member.
                self._out.send_datagram(sender, ViewDecided(self._last_view, self.carried))
            return
        info = self.member(beat.uuid)
        if info is not None and info.life == beat.life:
            self.detector.heard(beat.uuid, self._out.now_ns)
            # Whoever is heard of is not dead, whatever was said.
            self._dead.discard(beat.uuid)
            self.detector.accuse(beat.uuid, beat.suspects)
            self.intents.heard(beat, view.number)
            self._files.heard(info, beat.reached)
            if beat.sealed and beat.view == view.number:
                self._fenced_since.setdefault(beat.uuid, self._out.now_ns)
            else:
                self._fenced_since.pop(beat.uuid, None)
        if beat.view < view.number:
            if info is None and self._evicted_at_ns is not None:
                # Alive, and removed perhaps: it will hear of that now, and ask to return.
                self._evicted_at_ns = self._out.now_ns
            self._out.send_datagram(sender, ViewDecided(view, self.carried))
        elif self.admitted and (beat.view > view.number or (info is None and beat.view == view.number)):
            # It knows a newer view, and is to learn that it is needed here; or it is parting, and wants to be told that
            # its going is known.
            self._out.send_datagram(sender, Heartbeat(self.me, self.info.life, view.number))
        if self.state is MembershipState.PARTING:
            self._note_reached(beat)

    def _note_reached(self, beat: Heartbeat) -> None:
        """cluster/V-4: go when enough members know the view that this one has left with to hold on to it without it."""
        view = self.view
        assert view is not None
        self._reached[beat.uuid] = max(beat.view, self._reached.get(beat.uuid, 0))
        told = {uuid for uuid, number in self._reached.items() if number >= view.number}
        if beat.view > view.number or is_quorum(view, told):
            self._depart()

    # -- discovery

    def on_join_request(self, sender: Address, request: JoinRequest) -> None:
        info = request.info
        home = admission.home(info)
        here = self._last_view.cluster_id if self._last_view is not None else self.identity.cluster_id
        why = admission.refusal(request, self.identity.cluster, self.identity.shared, here, self.view)
        old = why_old(info, self._files.seen(info.store, self.view)) if info.store else ""
        why = why or self._candidates.same_files(
            info, self.view, self.me, self.detector, self._out.now_ns, self._timing, old
        )
        if why:
            self._candidates.refused(info.uuid)
            answer = JoinAnswer(
                self.me, False, why, self.info.host, self.info.port, self.ending, asker=info.uuid
            )
            self._out.send_datagram(home, answer)
            return
        if self._learns_of_its_own_files(request):
            return
        if self.view is None or not self.admitted:
            idle = self.state is MembershipState.JOINING
            if idle:
                self._formation.idle(home, request.cluster_id)
            answer = JoinAnswer(self.me, idle, "", self.info.host, self.info.port)
            self._out.send_datagram(
                home, msgspec.structs.replace(answer, cluster_id=self.identity.cluster_id)
            )
            return
        if self.member(info.uuid) is not None:
            self._out.send_datagram(home, ViewDecided(self.view, self.carried))
            return
        if not self.is_master:
            master = self.view.members[0]
            if home != Address(master.host, master.port):
                self._out.send_datagram(Address(master.host, master.port), request)
        for other in self.view.members:
            if admission.home(other) == home:
                # Its port is taken by a new process: the old one has ended. But if it has just been heard, it is the
                # request that is old: of a process that ended before.
                since = self._out.now_ns - self._timing.heartbeat_ns * 3 // 2
                if not self.detector.heard_since(other.uuid, since):
                    self.detector.silent(other.uuid)
        if not info.store or all(other.store != info.store for other in self.view.members):
            # Whoever shows the files of a member asks again when that one is gone; a copy has been refused by then.
            self._candidates.ask(info, self._out.now_ns)
        self.consider()

    def on_join_answer(self, sender: Address, answer: JoinAnswer) -> None:
        if self.state not in SEEKING:
            return
        if answer.idle:
            self._formation.idle(Address(answer.host, answer.port), answer.cluster_id)
        if answer.refusal and answer.asker != self.me:
            return
        if answer.ending and self.state is MembershipState.EXILED:
            self._step(MembershipStep.ENDED)
            self._out.effects.append(Stop("the cluster was shut down while this member was away"))
            return
        if answer.refusal and answer.refusal != self.refusal:
            self.refusal = answer.refusal
            self._out.note("join refused", level="error", by=str(sender), why=answer.refusal)

    # -- files (`core.cluster.file_proofs`)

    def durable(self, reached: int) -> None:
        """This member's journal is durable up to this block."""
        if reached:
            self._files.position = max(self._files.position, reached)
            self._files.heard(self.info, self._files.position)

    def _write_down_files(self) -> None:
        """Let the journal say how far the journals of the others are."""
        if self.view is not None and self.admitted:
            view = self._files.to_write_down(self.view, self._out.now_ns)
            if view is not None:
                self._out.tell(FilesHeardOf(view))

    def _learns_of_its_own_files(self, request: JoinRequest) -> bool:
        """cluster/F-3: while the table of a stopped cluster is not made, hear what others have found in their files.
        Answers whether this member's own are an old copy: then it is no member of this cluster.
        """
        waiting = self.state is MembershipState.JOINING if self.view is None else self.view.recovering
        here = self.view.cluster_id if self.view is not None else self.identity.cluster_id
        if not waiting or not here or request.cluster_id != here:
            return False
        self._files.learn(request.stores)
        why = (
            why_old(self._files.by_now(self.info), self._files.seen(self.info.store, None))
            if self.info.store
            else ""
        )
        if not why:
            return False
        self._out.note("join refused", level="error", by=request.info.name, why=why)
        if self.view is not None:
            self._go_into_exile(self.view, self.view)
        self._step(MembershipStep.ENDED)
        self.refusal = why
        return True

    # -- wanting and agreeing on the next view

    def may_propose(self, candidate: MemberId) -> bool:
        """cluster/A-4, for this member as a consenting one."""
        return candidate == self.me or self._is_next(candidate)

    def _is_next(self, candidate: MemberId) -> bool:
        """Whether every older member is suspected, so that it is this one's turn to propose."""
        assert self.view is not None
        suspects = set(self.detector.suspects(self._out.now_ns))
        first = next((info.uuid for info in self.view.members if info.uuid not in suspects), None)
        older = [info.uuid for info in self.view.members]
        if candidate not in older:
            return False
        return first is None or older.index(candidate) <= older.index(first)

    def wanted(self) -> View | None:
        """The next view this member would like, or None when the present one is right (or no majority could agree)."""
        view = self.view
        if view is None or not self.admitted or not self._is_next(self.me):
            return None
        suspects = self.detector.unwanted(self.me, view.members, self._out.now_ns)
        if view.recovering:
            suspects = suspects | self._files.outdated(view.members)
        # Never both at once: who goes must know that those who stay are there.
        left = (
            [uuid for uuid in self.intents.leaving(view) if self._delegate.may_part(uuid)]
            if not suspects
            else []
        )
        if not self.may_decide(view, {info.uuid for info in view.members} - suspects):
            self._tell_minority(suspects)
            return None
        self._minority_told = False
        members = self._next_members(view, suspects | set(left))
        state, ending = self.intents.wanted(view)
        recovering = view.recovering and not self._delegate.is_assigned()
        now = (view.members, view.state, view.ending, view.recovering)
        same = (members, state, ending, recovering) == now
        if same and not self._long_fenced():
            return None
        missing = admission.missing(view, members) if state.frozen else []
        if recovering or not members:
            missing = admission.awaited(view, members)
        number = max(view.number, self.numbers_from) + 1
        stores = self._files.stores(view, () if recovering else members)
        return View(number, view.cluster_id, members, left, state, ending, missing, stores, recovering)

    def _next_members(self, view: View, without: set[MemberId]) -> list[MemberInfo]:
        """Who stays, as data or lite members as they wish, and then who is let in."""
        staying = [info for info in view.members if info.uuid not in without]
        admitted = self._candidates.admissible(view, staying, self._out.now_ns, self._files)
        return [self._granted(info) for info in staying] + admitted

    def _granted(self, info: MemberInfo) -> MemberInfo:
        """A data member becomes a lite one only when it may."""
        wished = self.intents.wished(info)
        demoted = wished.lite and not info.lite
        return info if demoted and not self._delegate.may_demote(info.uuid) else wished

    def _tell_minority(self, suspects: set[MemberId]) -> None:
        """Say once why nothing can be decided, and what ends that."""
        if not self._minority_told:
            self._minority_told = True
            assert self.view is not None
            names = [info.name for info in self.view.members if info.uuid in suspects]
            self._out.note(
                "no majority: waiting for silent members to return; partitions that need them are not served",
                level="warning",
                silent=names,
                members=len(self.view.members),
            )

    def _long_fenced(self) -> bool:
        """Whether someone has been sealed by a proposal that came to nothing: a view must be agreed to free it."""
        limit = self._out.now_ns - 2 * self._timing.heartbeat_ns - 1000 * MILLISECOND
        return self.agreement.fenced or any(since < limit for since in self._fenced_since.values())

    def consider(self) -> None:
        """Propose a next view if one is wanted."""
        if not self.agreement.proposing and self.wanted() is not None:
            self.agreement.propose()

    def known_assignments(self) -> list[tuple[int, Assignment]]:
        """The newest row of each assigned partition, which those who agree carry over (cluster/A-2)."""
        return self._delegate.known_assignments()

    def decided(self, view: View, rows: list[tuple[int, Assignment]]) -> None:
        """The next view is agreed."""
        old = self.view
        assert old is not None
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
        if self._last_view is not None and view.cluster_id != self._last_view.cluster_id:
            return
        if self._last_view is not None and view.number <= self._last_view.number:
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
        mine = _entry(view, self.me)
        admitted = mine is not None
        if mine is not None and mine.life != self.info.life and self.admitted:
            # Removed and admitted again, and told of the latter only.
            self._go_into_exile(old, view)
            old = None
        belongs = admitted or self.me in view.left
        before = old.members if old is not None else []
        self._link(before, view.members if belongs else [])
        self._last_view = view
        alive = {info.uuid for info in view.members}
        lost = [info for info in before if info.uuid not in alive and info.uuid not in view.left]
        if lost:
            self._evicted_at_ns = self._out.now_ns
            if admitted:
                self._tell_lost(lost, surely=old is not None and view.number == old.number + 1)
        self._candidates.installed(view)
        self._dead = set()
        self._fenced_since = {}
        if admitted:
            self._enter(old, view)
        elif self.me in view.left:
            self.view = view
            self._step(MembershipStep.LEFT)
            self.agreement.install(None)
            self._out.note("left the view", view=view.number)
            self._tell_view(old, view)
            if not view.members:
                self._out.timer(TimerName.PART, LAST_WORDS_NS)
        else:
            self._go_into_exile(old, view)

    def _tell_view(self, old: View | None, new: View | None) -> None:
        before, after = (
            {(info.uuid, info.life) for info in view.members if info.uuid != self.me}
            if view is not None
            else set()
            for view in (old, new)
        )
        gone, came = (frozenset(uuid for uuid, _ in lives) for lives in (before - after, after - before))
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
                f"member gone {how if surely else 'while this one was not told of views'}",
                level="warning",
                name=info.name,
                address=str(admission.home(info)),
                uuid=info.uuid,
            )

    def _enter(self, old: View | None, view: View) -> None:
        assert old is None or view.number > old.number, "views are numbered"
        self.view = view
        self._step(MembershipStep.ADMITTED)
        self.refusal = ""
        mine = self.member(self.me)
        assert mine is not None
        assert mine.life >= self.info.life, "nobody comes back as an earlier life"
        self.info = mine
        self.agreement.install(view)
        self.detector.watch([info.uuid for info in view.members if info.uuid != self.me], self._out.now_ns)
        self.intents.installed(view, mine)
        self._out.note(
            "view",
            number=view.number,
            state=view.state,
            master=view.members[0].name,
            members=[info.name for info in view.members],
            left=list(view.left),
        )
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
        self._step(MembershipStep.REMOVED)
        self.intents.exiled()
        for info in old.members if old is not None else []:
            if info.uuid != self.me:
                self._out.effects.append(CloseLink(info.uuid))
        self.agreement.install(None)
        self.detector.watch([], self._out.now_ns)
        self._out.note(
            "removed from the cluster though alive; asking to return", level="warning", view=view.number
        )
        self._out.timer(TimerName.JOIN, JOIN_INTERVAL_NS, JOIN_INTERVAL_NS)
        self._tell_view(old, None)

    def _depart(self) -> None:
        self._step(MembershipStep.ENDED)
        whole = "left the cluster, which was shut down as a whole"
        stays = any(
            not info.lite and self.intents.of(info.uuid) is not Intent.LEAVE for info in self.members()
        )
        rest = "everything it held is on other members" if stays else "so have all who held data"
        self._out.effects.append(Stop(whole if self.ending else f"left the cluster; {rest}"))


def _entry(view: View, member: MemberId) -> MemberInfo | None:
    """The member's entry in a view that may not be the present one."""
    return next((info for info in view.members if info.uuid == member), None)
