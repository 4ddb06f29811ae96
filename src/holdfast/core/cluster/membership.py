"""Who is here, and who leads? Discovery, the installed view, and what makes a member want the next one.

- V-1: Views are numbered and agreed (`agreement`); nobody shrinks the cluster alone. The oldest member is the master.
- V-2: A member is a UUID and a life. Removed though alive, it keeps its data, asks to be admitted again as
  its next life, and serves nothing until it is.
- V-3: A cluster is formed only by the first seed, and only when every other seed is known to be in none; or by order.
- V-4: A leaving member goes with a view that names it as left, when it holds nothing any more and a majority
  of that view knows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from holdfast.core.cluster.agreement import Agreement, is_quorum
from holdfast.core.cluster.detector import Detector
from holdfast.core.machine import MILLISECOND, Address, CloseLink, MemberId, OpenLink, Outbox, Stop
from holdfast.core.messages import Heartbeat, JoinAnswer, JoinRequest, MemberInfo, View, ViewDecided
from holdfast.core.placement.table import Row

JOIN_INTERVAL_NS = 500 * MILLISECOND
RETURN_FACTOR = 3
"""For how many times of suspicion a removed member may still come back."""
CANDIDATE_NS = 4 * JOIN_INTERVAL_NS
"""Whoever has not asked for so long does not want to be admitted any more, or is dead."""
LAST_WORDS_NS = 1000 * MILLISECOND
"""When all leave together, how long the word of it has to reach the others."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What this process is and which cluster it wants to be in."""

    info: MemberInfo
    cluster: str
    shared: dict[str, str]
    seeds: tuple[Address, ...]
    bootstrap: bool
    new_cluster_id: str
    """The id to give to the cluster if this member forms it (drawn outside: the core has no randomness)."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How often and how long, in nanoseconds."""

    heartbeat_ns: int
    suspect_after_ns: int


class Membership:
    """The state of this member in its cluster: `joining`, `member`, `exiled` (removed though alive),
    `parting`, `gone`.
    """

    def __init__(
        self,
        identity: Identity,
        timing: Timing,
        out: Outbox,
        *,
        majority: bool,
        view_changed: Callable[[View | None, View | None], None],
        may_part: Callable[[MemberId], bool],
        known_rows: Callable[[], list[tuple[int, Row]]],
    ) -> None:
        self.me = identity.info.uuid
        self.info = identity.info
        self.identity = identity
        self._timing = timing
        self._out = out
        self._majority = majority
        self._view_changed = view_changed
        self._may_part = may_part
        self.view: View | None = None
        self._last_view: View | None = None
        self.state = "joining"
        self.leaving = False
        self.refusal = ""
        self.detector = Detector(timing.suspect_after_ns)
        self._candidates: dict[MemberId, tuple[MemberInfo, int]] = {}
        """Who has asked to be admitted, and when it last did."""
        self._accusations: dict[MemberId, list[MemberId]] = {}
        self.leavers: set[MemberId] = set()
        self._sealed_since: dict[MemberId, int] = {}
        self._idle_seeds: set[Address] = set()
        self.carried: list[tuple[int, Row]] = []
        """Rows that members left out of the present view knew (A-2)."""
        self._reached: dict[MemberId, int] = {}
        self._evicted_at_ns: int | None = None
        self._minority_told = False
        self.agreement = Agreement(
            self.me,
            out,
            choose=self._wanted,
            decided=self._on_decided,
            known_rows=known_rows,
            may_propose=self._may_propose,
            majority=majority,
        )

    # -- what others ask

    @property
    def master(self) -> MemberId | None:
        """The oldest member of the view."""
        return self.view.members[0].uuid if self.view and self.view.members else None

    @property
    def is_master(self) -> bool:
        """Whether this member leads."""
        return self.view is not None and self.master == self.me and self.state == "member"

    def member(self, uuid: MemberId | None) -> MemberInfo | None:
        """The member's entry in the view."""
        if self.view is not None:
            for info in self.view.members:
                if info.uuid == uuid:
                    return info
        return None

    def members(self) -> list[MemberInfo]:
        """The members of the view, oldest first; none before admission."""
        return list(self.view.members) if self.view else []

    def is_quorum(self, members: set[MemberId]) -> bool:
        """Whether these members can decide for the view."""
        assert self.view is not None
        return not self._majority or is_quorum(self.view, members)

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        since = self._out.now_ns - 2 * CANDIDATE_NS
        here = {info.uuid for info in self.members()}
        noted = {*self._accusations, *self._sealed_since, *self.leavers}
        return {
            "candidates that ask no more": sum(1 for _, asked in self._candidates.values() if asked < since),
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
        self._out.timer("join", 1 * MILLISECOND)
        self._out.timer("heartbeat", self._timing.heartbeat_ns)

    def leave(self) -> None:
        """The operator wants this member to leave."""
        self.leaving = True
        if self.state == "joining":
            self.state = "gone"
            self._out.effects.append(Stop("left before it had joined a cluster"))
        elif self.state == "member":
            self._beat()

    def on_timer(self, name: str) -> None:
        if name == "join":
            self._seek()
        elif name == "heartbeat":
            self._out.timer("heartbeat", self._timing.heartbeat_ns)
            since = self._out.now_ns - CANDIDATE_NS
            self._candidates = {uuid: one for uuid, one in self._candidates.items() if one[1] >= since}
            if self.view is not None:
                self._beat()
                self.consider()
        elif name == "propose":
            self.agreement.retry()
        elif name == "part" and self.state == "parting":
            self._depart()

    def _seek(self) -> None:
        if self.state not in ("joining", "exiled"):
            return
        if self.state == "joining" and self._may_form():
            self._form()
            return
        self._out.timer("join", JOIN_INTERVAL_NS, JOIN_INTERVAL_NS // 4)
        own = Address(self.info.host, self.info.port)
        targets = [seed for seed in self.identity.seeds if seed != own]
        if self._last_view is not None:
            known = [
                Address(info.host, info.port) for info in self._last_view.members if info.uuid != self.me
            ]
            targets += [address for address in known if address not in targets]
        cluster_id = self._last_view.cluster_id if self._last_view else ""
        request = JoinRequest(self.info, self.identity.cluster, self.identity.shared, cluster_id)
        for address in targets:
            self._out.whisper(address, request)

    def _may_form(self) -> bool:
        """V-3."""
        if self.identity.bootstrap or not self.identity.seeds:
            return True
        own = Address(self.info.host, self.info.port)
        if self.identity.seeds[0] != own:
            return False
        return all(seed in self._idle_seeds for seed in self.identity.seeds if seed != own)

    def _form(self) -> None:
        self._out.note("cluster formed", cluster=self.identity.cluster, by=self.me)
        self.install(View(1, self.identity.new_cluster_id, [self.info]))

    def seed_absent(self, address: Address) -> None:
        """Nothing listens at this seed: it is in no cluster."""
        self._idle_seeds.add(address)

    # -- heartbeats

    def _beat(self) -> None:
        assert self.view is not None
        beat = Heartbeat(
            self.me,
            self.info.life,
            self.view.number,
            self.detector.suspects(self._out.now_ns),
            self.leaving,
            self.agreement.sealed,
        )
        for info in self.view.members:
            if info.uuid != self.me:
                self._out.whisper(Address(info.host, info.port), beat)

    def on_heartbeat(self, sender: Address, beat: Heartbeat) -> None:
        view = self.view
        if view is None:
            return
        info = self.member(beat.uuid)
        if info is not None and info.life == beat.life:
            self.detector.heard(beat.uuid, self._out.now_ns)
            self._accusations[beat.uuid] = beat.suspects
            if beat.leaving:
                self.leavers.add(beat.uuid)
            if beat.sealed and beat.view == view.number:
                self._sealed_since.setdefault(beat.uuid, self._out.now_ns)
            else:
                self._sealed_since.pop(beat.uuid, None)
        if beat.view < view.number:
            if info is None and self._evicted_at_ns is not None:
                # Alive, and removed perhaps: it will hear of that now, and ask to return.
                self._evicted_at_ns = self._out.now_ns
            self._out.whisper(sender, ViewDecided(view, self.carried))
        elif self.state == "member" and (
            beat.view > view.number or (info is None and beat.view == view.number)
        ):
            # It knows a newer view, and is to learn that it is needed here; or it is parting, and wants to be told that
            # its going is known.
            self._out.whisper(sender, Heartbeat(self.me, self.info.life, view.number))
        if self.state == "parting":
            self._note_reached(beat)

    def _note_reached(self, beat: Heartbeat) -> None:
        """V-4: go when enough members know the view that this one has left with to hold on to it without it."""
        view = self.view
        assert view is not None
        self._reached[beat.uuid] = max(beat.view, self._reached.get(beat.uuid, 0))
        told = {uuid for uuid, number in self._reached.items() if number >= view.number}
        if beat.view > view.number or is_quorum(view, told):
            self._depart()

    # -- discovery

    def on_join_request(self, sender: Address, request: JoinRequest) -> None:
        info = request.info
        home = Address(info.host, info.port)
        refusal = self._refusal(request)
        if refusal:
            self._out.whisper(home, JoinAnswer(self.me, False, refusal, self.info.host, self.info.port))
            return
        if self.view is None or self.state != "member":
            idle = self.state == "joining"
            self._out.whisper(home, JoinAnswer(self.me, idle, "", self.info.host, self.info.port))
            return
        if self.member(info.uuid) is not None:
            self._out.whisper(home, ViewDecided(self.view, self.carried))
            return
        if not self.is_master:
            master = self.view.members[0]
            if home != Address(master.host, master.port):
                self._out.whisper(Address(master.host, master.port), request)
        for other in self.view.members:
            if _home(other) == home and other.uuid != info.uuid:
                # Its port is taken by a new process: the old one has ended. But if it has just been heard, it is the
                # request that is old: of a process that ended before.
                since = self._out.now_ns - self._timing.heartbeat_ns * 3 // 2
                if not self.detector.heard_since(other.uuid, since):
                    self.detector.silent(other.uuid)
        home_taken = [uuid for uuid, (other, _) in self._candidates.items() if _home(other) == home]
        for uuid in home_taken:
            del self._candidates[uuid]
        self._candidates[info.uuid] = (info, self._out.now_ns)
        self.consider()

    def _refusal(self, request: JoinRequest) -> str:
        if request.cluster != self.identity.cluster:
            return f"cluster.name is {self.identity.cluster!r} here, yours is {request.cluster!r}"
        here = self._last_view.cluster_id if self._last_view is not None else ""
        if here and request.cluster_id not in ("", here):
            return f"you hold data of another cluster (id {request.cluster_id}); this one is {here}"
        for key, value in sorted(self.identity.shared.items()):
            theirs = request.shared.get(key, "")
            if theirs != value:
                return f"{key} is {value} in this cluster, yours is {theirs or 'not set'}"
        return ""

    def on_join_answer(self, sender: Address, answer: JoinAnswer) -> None:
        if self.state not in ("joining", "exiled"):
            return
        if answer.idle:
            self._idle_seeds.add(Address(answer.host, answer.port))
        if answer.refusal and answer.refusal != self.refusal:
            self.refusal = answer.refusal
            self._out.note("join refused", level="error", by=str(sender), why=answer.refusal)

    # -- wanting and agreeing on the next view

    def _suspects(self) -> set[MemberId]:
        """Whom this member would leave out: its own suspicions, and the younger of two that do not hear each other."""
        assert self.view is not None
        order = [info.uuid for info in self.view.members]
        own = set(self.detector.suspects(self._out.now_ns))
        result = set(own)
        for accuser in order:
            if accuser in own or accuser == self.me:
                continue
            for accused in self._accusations.get(accuser, []):
                if accused in order and accused != self.me and accused not in own:
                    result.add(max(accuser, accused, key=order.index))
        return result

    def _may_propose(self, candidate: MemberId) -> bool:
        """A-4, for this member as a consenting one."""
        assert self.view is not None
        if candidate == self.me:
            return True
        suspects = set(self.detector.suspects(self._out.now_ns))
        for info in self.view.members:
            if info.uuid == candidate:
                return True
            if info.uuid not in suspects:
                return False
        return False

    def _leads(self) -> bool:
        """Whether every older member is suspected, so that it is this member's turn to propose."""
        assert self.view is not None
        suspects = set(self.detector.suspects(self._out.now_ns))
        for info in self.view.members:
            if info.uuid == self.me:
                return True
            if info.uuid not in suspects:
                return False
        return False

    def _wanted(self) -> View | None:
        """The next view this member would like, or None when the present one is right (or no majority could agree)."""
        view = self.view
        if view is None or self.state != "member" or not self._leads():
            return None
        suspects = self._suspects()
        left: list[MemberId] = []
        if not suspects:
            # Never both at once: who goes must know that those who stay are there.
            left = [uuid for uuid in sorted(self.leavers) if self.member(uuid) and self._may_part(uuid)]
        members = [info for info in view.members if info.uuid not in suspects and info.uuid not in left]
        staying = {info.uuid for info in members} | set(left)
        if not self.is_quorum(staying & {info.uuid for info in view.members}):
            self._tell_minority(suspects)
            return None
        self._minority_told = False
        members += self._admissible(view, members)
        if [info.uuid for info in members] == [
            info.uuid for info in view.members
        ] and not self._long_sealed():
            return None
        return View(view.number + 1, view.cluster_id, members, left)

    def _admissible(self, view: View, staying: list[MemberInfo]) -> list[MemberInfo]:
        """Who is let in: those who still ask, and no more than those who stay, who thus can decide without them.

        Their life is the number of the view that admits them: no two admissions share one.
        """
        taken = {_home(info) for info in staying}
        since = self._out.now_ns - CANDIDATE_NS
        chosen: list[MemberInfo] = []
        for uuid in sorted(self._candidates):
            info, asked_ns = self._candidates[uuid]
            wanted = asked_ns >= since and _home(info) not in taken and self.member(uuid) is None
            if wanted and len(chosen) < len(staying):
                chosen.append(msgspec.structs.replace(info, life=view.number + 1))
        return chosen

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

    def _long_sealed(self) -> bool:
        """Whether someone has been sealed by a proposal that came to nothing: a view must be agreed to free it."""
        limit = self._out.now_ns - 2 * self._timing.heartbeat_ns - 1000 * MILLISECOND
        return self.agreement.sealed or any(since < limit for since in self._sealed_since.values())

    def consider(self) -> None:
        """Propose a next view if one is wanted."""
        if self.view is None or self.state != "member" or self.agreement.proposing:
            return
        if self._wanted() is not None:
            self.agreement.propose()

    def _on_decided(self, view: View, rows: list[tuple[int, Row]]) -> None:
        old = self.view
        assert old is not None
        self.carried = rows
        told: set[MemberId] = {self.me}
        for info in [*old.members, *view.members]:
            if info.uuid not in told:
                told.add(info.uuid)
                self._out.whisper(Address(info.host, info.port), ViewDecided(view, rows))
        self.install(view)

    def on_view(self, message: ViewDecided) -> None:
        """A view was decided, says a message; every decided view may be believed, the newest counts."""
        view = message.view
        if self._last_view is not None and view.cluster_id != self._last_view.cluster_id:
            return
        if self._last_view is not None and view.number <= self._last_view.number:
            return
        mine = next((info for info in view.members if info.uuid == self.me), None)
        if self.view is None and mine is None:
            return
        if self.state == "parting":
            self._depart()
            return
        self.carried = message.rows
        self.install(view)

    def install(self, view: View) -> None:
        """Take the view as the present one: open and close links, and tell the other machines."""
        old = self.view
        mine = next((info for info in view.members if info.uuid == self.me), None)
        admitted = mine is not None
        if mine is not None and mine.life != self.info.life:
            if self.state == "member":
                # Removed and admitted again, and told of the latter only.
                self._go_into_exile(old, view)
                old = None
            self.info = mine
        before = {(info.uuid, info.life): info for info in old.members} if old else {}
        after = (
            {(info.uuid, info.life): info for info in view.members}
            if admitted or self.me in view.left
            else {}
        )
        for who in before:
            if who not in after and who[0] != self.me:
                self._out.effects.append(CloseLink(who[0]))
        for who, info in after.items():
            if who not in before and who[0] != self.me:
                self._out.effects.append(OpenLink(info.uuid, info.life, Address(info.host, info.port)))
        self._last_view = view
        alive = {info.uuid for info in view.members}
        if any(who[0] not in alive and who[0] not in view.left for who in before):
            self._evicted_at_ns = self._out.now_ns
        self._candidates = {uuid: asked for uuid, asked in self._candidates.items() if uuid not in alive}
        self._accusations = {}
        self._sealed_since = {}
        self.leavers &= alive
        if admitted:
            self._enter(old, view)
        elif self.me in view.left:
            self.view = view
            self.state = "parting"
            self.agreement.install(None)
            self._out.note("left the view", view=view.number)
            self._view_changed(old, view)
            if not view.members:
                self._out.timer("part", LAST_WORDS_NS)
        else:
            self._go_into_exile(old, view)

    def _enter(self, old: View | None, view: View) -> None:
        self.view = view
        self.state = "member"
        self.refusal = ""
        self.agreement.install(view)
        self.detector.watch([info.uuid for info in view.members if info.uuid != self.me], self._out.now_ns)
        if self.leaving:
            self.leavers.add(self.me)
        self._out.note(
            "view",
            number=view.number,
            master=view.members[0].name,
            members=[info.name for info in view.members],
            left=list(view.left),
        )
        self._beat()
        self._view_changed(old, view)

    def _go_into_exile(self, old: View | None, view: View) -> None:
        if self.state == "joining":
            return
        self.view = None
        self.state = "exiled"
        for info in old.members if old is not None else []:
            if info.uuid != self.me:
                self._out.effects.append(CloseLink(info.uuid))
        self.agreement.install(None)
        self.detector.watch([], self._out.now_ns)
        self._out.note(
            "removed from the cluster though alive; asking to return", level="warning", view=view.number
        )
        self._out.timer("join", JOIN_INTERVAL_NS, JOIN_INTERVAL_NS)
        self._view_changed(old, None)

    def _depart(self) -> None:
        self.state = "gone"
        self._out.effects.append(Stop("left the cluster; every partition is safe elsewhere"))

    def mark_leaving(self) -> None:
        """Count this member itself among those that want to leave."""
        self.leavers.add(self.me)


def _home(info: MemberInfo) -> Address:
    return Address(info.host, info.port)
