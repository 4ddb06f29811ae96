"""Join protocol: how a process finds its cluster, and how members answer it.

- membership/V-2: A member is a UUID and a life. If it is removed though alive, it keeps its data, asks to return with
  its next life, and serves nothing until it is admitted.
"""

from __future__ import annotations

import msgspec

from holdfast.core.effects import Stop
from holdfast.core.membership import admission
from holdfast.core.membership.admission import Admission
from holdfast.core.membership.formation import Formation, baseline_of_before
from holdfast.core.membership.known_files import stale_files_reason
from holdfast.core.membership.membership_status import (
    SEEKING,
    MembershipState,
    MembershipStatus,
    MembershipStep,
)
from holdfast.core.messages import JoinAnswer, JoinRequest, ViewDecided
from holdfast.core.model.baseline import Baseline
from holdfast.core.model.ids import MILLISECOND, Address, MemberId
from holdfast.core.model.levels import LOWEST
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import View
from holdfast.core.outbox import Outbox

JOIN_INTERVAL_NS = 500 * MILLISECOND


EVICTED = (
    "this member was evicted by an operator (holdfast member evict), and the others have gone on without it: it ends. "
    "A new process may join"
)


class Joining:
    def __init__(self, standing: MembershipStatus, candidates: Admission, out: Outbox) -> None:
        self._standing = standing
        self._candidates = candidates
        self._out = out
        self._formation = Formation(standing.identity)

    def seek(self) -> View | None:
        """Ask to join. Returns the first view if this process forms the cluster itself."""
        if self._standing.state not in SEEKING:
            return None
        assert self._standing.view is None, "who looks for a cluster is in none"
        own = admission.home(self._standing.info)
        if self._standing.state is MembershipState.JOINING and self._formation.may_form(own):
            self._out.note("cluster formed", cluster=self._standing.identity.cluster, by=self._standing.me)
            admitted = [] if self._standing.identity.cluster_id else [self._standing.info]
            return self._formation.first_view(self._standing.files.stores(None, admitted))
        if self._standing.state is MembershipState.JOINING:
            self._standing.way_in = self._formation.way_in(own)
        self._out.timer(TimerName.JOIN, JOIN_INTERVAL_NS, JOIN_INTERVAL_NS // 4)
        targets = [seed for seed in self._standing.identity.seeds if seed != own]
        if self._standing.last_view is not None:
            known = [
                Address(info.host, info.port)
                for info in self._standing.last_view.members
                if info.uuid != self._standing.me
            ]
            targets += [address for address in known if address not in targets]
        cluster_id = (
            self._standing.last_view.cluster_id
            if self._standing.last_view
            else self._standing.identity.cluster_id
        )
        proof = self._standing.info.proof
        # An exiled member has gone on writing since then.
        proof = msgspec.structs.replace(proof, reached=max(proof.reached, self._standing.files.position))
        request = JoinRequest(
            msgspec.structs.replace(self._standing.info, proof=proof),
            self._standing.identity.cluster,
            self._standing.identity.shared,
            cluster_id,
            self._standing.files.stores(self._standing.last_view, ()) if cluster_id else {},
            self._known_baseline() if cluster_id else None,
            self._known_level() if cluster_id else LOWEST,
        )
        for address in targets:
            self._out.send_datagram(address, request)
        return None

    def _known_baseline(self) -> Baseline | None:
        view = self._standing.last_view or self._standing.identity.seen
        return baseline_of_before(view, self._standing.info) if view is not None else None

    def _known_level(self) -> int:
        view = self._standing.last_view or self._standing.identity.seen
        return max(self._standing.identity.level, view.level if view is not None else LOWEST)

    def _history_problem(self, request: JoinRequest) -> str:
        """membership/B-1, as a member of the cluster."""
        standing = self._standing
        view = standing.view
        if view is None or not standing.admitted or request.baseline is None:
            return ""
        silent = set(standing.detector.suspects(self._out.now_ns))
        hears_majority = standing.may_decide(view, {info.uuid for info in view.members} - silent)
        surely_newest = standing.is_master and hears_majority
        return admission.history_problem(request.baseline, view, surely_newest=surely_newest)

    def _level_problem(self, request: JoinRequest) -> str:
        """membership/L-3: the reason why this cluster cannot reach the level of a process's files; empty: none."""
        view = self._standing.view
        if view is None or not self._standing.is_master or request.level <= view.level:
            return ""
        short = [info.name for info in view.members if not info.levels.can(request.level)]
        return (
            f"your files were written at feature level {request.level}, which {', '.join(short)} cannot do: start the "
            "version there that wrote them, or a newer one"
            if short
            else ""
        )

    def seed_absent(self, address: Address) -> None:
        self._formation.absent(address)

    def seed_behind(self, seed: Address, members: tuple[MemberId, ...]) -> None:
        self._formation.behind(seed, tuple(member for member in members if member != self._standing.me))

    def refuses(self, request: JoinRequest) -> bool:
        """Whether this process can never join as it is. It is told the reason."""
        info = request.info
        home = admission.home(info)
        here = (
            self._standing.last_view.cluster_id
            if self._standing.last_view is not None
            else self._standing.identity.cluster_id
        )
        why = admission.refusal(
            request,
            self._standing.identity.cluster,
            self._standing.identity.shared,
            here,
            self._standing.view,
        )
        old = (
            stale_files_reason(info, self._standing.files.seen(info.store, self._standing.view))
            if info.store
            else ""
        )
        evicted = info.uuid in self._standing.evicted and self._standing.member(info.uuid) is None
        why = EVICTED if evicted else why or self._history_problem(request)
        why = why or self._level_problem(request)
        why = why or self._candidates.same_files(
            info,
            self._standing.view,
            self._standing.me,
            self._standing.detector,
            self._out.now_ns,
            self._standing.timing,
            old,
        )
        if why:
            self._candidates.refused(info.uuid)
            answer = JoinAnswer(
                self._standing.me,
                False,
                why,
                self._standing.info.host,
                self._standing.info.port,
                self._standing.ending,
                asker=info.uuid,
                evicted=evicted,
            )
            self._out.send_datagram(home, answer)
        return bool(why)

    def takes(self, request: JoinRequest) -> bool:
        """Answer a process that fits. Returns whether it asks to join."""
        info = request.info
        home = admission.home(info)
        if self._standing.view is None or not self._standing.admitted:
            idle = self._standing.state is MembershipState.JOINING
            if idle:
                self._formation.idle(home, request.cluster_id, info.uuid)
            answer = JoinAnswer(
                self._standing.me, idle, "", self._standing.info.host, self._standing.info.port
            )
            self._out.send_datagram(
                home, msgspec.structs.replace(answer, cluster_id=self._standing.identity.cluster_id)
            )
            return False
        if self._standing.member(info.uuid) is not None:
            self._out.send_datagram(home, ViewDecided(self._standing.view, self._standing.carried))
            return False
        if not self._standing.is_master:
            master = self._standing.view.members[0]
            if home != Address(master.host, master.port):
                self._out.send_datagram(Address(master.host, master.port), request)
        for other in self._standing.view.members:
            if admission.home(other) == home:
                # A new process has the port of this member, so the old one has ended; unless the member was heard just
                # now, and the request comes from a process that ended before.
                since = self._out.now_ns - self._standing.timing.heartbeat_ns * 3 // 2
                if not self._standing.detector.heard_since(other.uuid, since):
                    self._standing.detector.silent(other.uuid)
        if not info.store or all(other.store != info.store for other in self._standing.view.members):
            # A process with the files of a member asks again when that member is gone; a copy was rejected above.
            assert info.uuid != self._standing.me, "no member asks itself"
            self._candidates.ask(info, self._out.now_ns, request.baseline, request.level)
        return True

    def on_join_answer(self, sender: Address, answer: JoinAnswer) -> None:
        if self._standing.state not in SEEKING:
            return
        if answer.idle:
            self._formation.idle(Address(answer.host, answer.port), answer.cluster_id, answer.uuid)
        if answer.refusal and answer.asker != self._standing.me:
            return
        assert self._standing.view is None, "who looks for a cluster is in none"
        if answer.ending and self._standing.state is MembershipState.EXILED:
            self._standing.step(MembershipStep.ENDED)
            self._out.effects.append(Stop("the cluster was shut down while this member was away"))
            return
        if answer.evicted and self._standing.state is MembershipState.EXILED:
            self._standing.refusal = answer.refusal
            self._standing.step(MembershipStep.ENDED)
            self._out.effects.append(Stop(answer.refusal))
            return
        if answer.refusal and answer.refusal != self._standing.refusal:
            self._standing.refusal = answer.refusal
            self._out.note("join refused", level="error", by=str(sender), reason=answer.refusal)

    def own_stale_files_reason(self, request: JoinRequest) -> str:
        """membership/F-3: while a stopped cluster has no table yet, learn what others have found in their files.
        Returns the reason why this member's own files are an old copy; empty: they may be the newest.
        """
        standing = self._standing
        waiting = (
            standing.state is MembershipState.JOINING if standing.view is None else standing.view.recovering
        )
        here = standing.view.cluster_id if standing.view is not None else standing.identity.cluster_id
        if not waiting or not here or request.cluster_id != here:
            return ""
        standing.files.learn(request.stores)
        store = standing.info.store
        return (
            stale_files_reason(standing.files.by_now(standing.info), standing.files.seen(store, None))
            if store
            else ""
        )
