"""Join protocol.

A process sends a `JoinRequest` to its seeds and known members every `JOIN_INTERVAL_NS`. A member rejects it with the
reason (`JoinAnswer`), or forwards it to the master, whose next view admits it. If all seeds are in no cluster, one of
them forms it (`formation`).

- membership/V-2: A member is a UUID and a life. If it is removed though alive, it keeps its data, asks to return with
  its next life, and serves nothing until it is admitted.
"""

from __future__ import annotations

import msgspec

from holdfast.core.effects import Stop
from holdfast.core.membership import admission
from holdfast.core.membership.admission import Admission
from holdfast.core.membership.formation import Formation, baseline_of_before
from holdfast.core.membership.known_files import files_gone, stale_files_reason
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
from holdfast.core.model.map_changes import MapChanges
from holdfast.core.model.metastore_founding import MetastoreFounding
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import FilesGone, View
from holdfast.core.outbox import Outbox

JOIN_INTERVAL_NS = 500 * MILLISECOND


EVICTED = (
    "this member was evicted by an operator (holdfast member evict), and the cluster continues without it, so it "
    "stops. A new process may join"
)


class Joining:
    def __init__(self, membership: MembershipStatus, candidates: Admission, out: Outbox) -> None:
        self._membership = membership
        self._candidates = candidates
        self._out = out
        self._formation = Formation(membership.identity)
        self._forms = False
        """This process has formed the cluster itself."""

    def seek(self) -> View | None:
        """Returns the first view if this process forms the cluster itself."""
        if self._membership.state not in SEEKING:
            return None
        assert self._membership.view is None, "who looks for a cluster is in none"
        own = admission.home(self._membership.info)
        if self._membership.state is MembershipState.JOINING and self._formation.may_form(own):
            self._out.note(
                "cluster formed", cluster=self._membership.identity.cluster, by=self._membership.me
            )
            self._forms = True
            admitted = [] if self._membership.identity.cluster_id else [self._membership.info]
            return self._formation.first_view(self._membership.files.stores(None, admitted))
        if self._membership.state is MembershipState.JOINING:
            self._membership.join_advice = self._formation.join_advice(own)
        self._out.timer(TimerName.JOIN, JOIN_INTERVAL_NS, JOIN_INTERVAL_NS // 4)
        targets = [seed for seed in self._membership.identity.seeds if seed != own]
        targets += [address for address in self._formation.known(own) if address not in targets]
        if self._membership.last_view is not None:
            known = [
                Address(info.host, info.port)
                for info in self._membership.last_view.members
                if info.uuid != self._membership.me
            ]
            targets += [address for address in known if address not in targets]
        cluster_id = (
            self._membership.last_view.cluster_id
            if self._membership.last_view
            else self._membership.identity.cluster_id
        )
        proof = self._membership.info.proof
        # An exiled member has gone on writing.
        proof = msgspec.structs.replace(proof, reached=max(proof.reached, self._membership.files.position))
        request = JoinRequest(
            msgspec.structs.replace(self._membership.info, proof=proof),
            self._membership.identity.cluster,
            self._membership.identity.shared,
            cluster_id,
            self._membership.files.stores(self._membership.last_view, ()) if cluster_id else {},
            self._known_baseline() if cluster_id else None,
            self._known_level() if cluster_id else LOWEST,
            self._known_maps() if cluster_id else MapChanges(),
            self._known_founding() if cluster_id else None,
            self._files_gone(),
        )
        for address in targets:
            self._out.send_datagram(address, request)
        return None

    def with_awaited(self, view: View) -> View:
        """The view of a recovering cluster, and the members that this member's files await (membership/F-3): with this
        view they forget their last one. Example: A waits alone and knows view 5. B knows view 8, with C, and joins A
        with view 9. All are stopped before the table is made. Next time B has to await C again. The first view of the
        process that forms the cluster has them already.
        """
        seen = self._membership.identity.seen
        if not view.recovering or seen is None or self._forms:
            return view
        known = {info.store for info in view.missing}
        more = [info for info in admission.awaited(seen, view.members) if info.store not in known]
        return msgspec.structs.replace(view, missing=[*view.missing, *more]) if more else view

    def _files_gone(self) -> FilesGone | None:
        """membership/F-6: as the files know it that this member reports in its inventory, and not as an exiled member
        has learned it since then: the inventory does not name the members of that later view.
        """
        membership = self._membership
        return files_gone(membership.identity.seen) if membership.last_view is None else None

    def _known_baseline(self) -> Baseline | None:
        view = self._membership.last_view or self._membership.identity.seen
        return baseline_of_before(view, self._membership.info) if view is not None else None

    def _known_level(self) -> int:
        view = self._membership.last_view or self._membership.identity.seen
        return max(self._membership.identity.level, view.level if view is not None else LOWEST)

    def _known_maps(self) -> MapChanges:
        view = self._membership.last_view or self._membership.identity.seen
        return view.maps if view is not None else MapChanges()

    def _known_founding(self) -> MetastoreFounding | None:
        view = self._membership.last_view or self._membership.identity.seen
        return view.metastore if view is not None else None

    def _history_problem(self, request: JoinRequest) -> str:
        """membership/B-1."""
        membership = self._membership
        view = membership.view
        if view is None or not membership.admitted or request.baseline is None:
            return ""
        certainly_newest = membership.is_master and self._hears_majority(view)
        return admission.history_problem(request.baseline, view, certainly_newest=certainly_newest)

    def _level_problem(self, request: JoinRequest) -> str:
        """membership/L-3: this cluster cannot reach the level of a process's files; empty: it can."""
        view = self._membership.view
        if view is None or not self._membership.is_master or request.level <= view.level:
            return ""
        short = [info.name for info in view.members if not info.levels.can(request.level)]
        return (
            f"your files were written at feature level {request.level}, which {', '.join(short)} cannot read: upgrade "
            "these to the version that wrote them, or a newer one"
            if short
            else ""
        )

    def seed_absent(self, address: Address) -> None:
        self._formation.absent(address)

    def seed_behind(self, seed: Address, members: tuple[MemberId, ...]) -> None:
        self._formation.behind(seed, tuple(member for member in members if member != self._membership.me))

    @property
    def _own_cluster(self) -> str:
        """The id of the cluster that this process is in; empty: it is in none, or hears no majority, and so cannot
        admit a process, which has to form the cluster (membership/V-11).
        """
        view = self._membership.view
        heard = view is not None and self._membership.admitted and self._hears_majority(view)
        return view.cluster_id if view is not None and heard else ""

    def _hears_majority(self, view: View) -> bool:
        silent = set(self._membership.detector.suspects(self._out.now_ns))
        return self._membership.may_decide(view, {info.uuid for info in view.members} - silent)

    def refuses(self, request: JoinRequest) -> bool:
        """Whether this process can never join as it is; it gets the reason."""
        info = request.info
        home = admission.home(info)
        here = (
            self._membership.last_view.cluster_id
            if self._membership.last_view is not None
            else self._membership.identity.cluster_id
        )
        why = admission.refusal(
            request,
            self._membership.identity.cluster,
            self._membership.identity.shared,
            here,
            self._membership.view,
        )
        old = (
            stale_files_reason(info, self._membership.files.seen(info.store, self._membership.view))
            if info.store
            else ""
        )
        evicted = info.uuid in self._membership.evicted and self._membership.member(info.uuid) is None
        why = EVICTED if evicted else why or self._history_problem(request)
        why = why or self._level_problem(request)
        why = why or self._candidates.same_files(
            info,
            self._membership.view,
            self._membership.me,
            self._membership.detector,
            self._out.now_ns,
            self._membership.timing,
            old,
        )
        if why:
            self._candidates.refused(info.uuid)
            answer = JoinAnswer(
                self._membership.me,
                False,
                why,
                self._membership.info.host,
                self._membership.info.port,
                self._membership.ending,
                cluster_id=self._own_cluster,
                asker=info.uuid,
                evicted=evicted,
            )
            self._out.send_datagram(home, answer)
        return bool(why)

    def takes(self, request: JoinRequest) -> bool:
        """Returns whether it fits and asks to join."""
        info = request.info
        home = admission.home(info)
        if self._membership.view is None or not self._membership.admitted:
            idle = self._membership.state is MembershipState.JOINING
            if idle:
                self._formation.idle(home, request.cluster_id, info.uuid)
            held = self._membership.identity.cluster_id if idle else ""
            me = self._membership.info
            self._out.send_datagram(home, JoinAnswer(me.uuid, idle, "", me.host, me.port, cluster_id=held))
            return False
        if self._membership.member(info.uuid) is not None:
            self._out.send_datagram(home, ViewDecided(self._membership.view, self._membership.carried))
            return False
        if request.cluster_id:
            # So that the process does not form the cluster of its files meanwhile (membership/V-11).
            me = self._membership.info
            answer = JoinAnswer(me.uuid, False, "", me.host, me.port, cluster_id=self._own_cluster)
            self._out.send_datagram(home, answer)
        if not self._membership.is_master:
            master = self._membership.view.members[0]
            if home != Address(master.host, master.port):
                self._out.send_datagram(Address(master.host, master.port), request)
        for other in self._membership.view.members:
            if admission.home(other) == home:
                # A new process has the port of this member, which has thus ended; unless it was heard just now, and the
                # request comes from a process that ended before.
                since = self._out.now_ns - self._membership.timing.heartbeat_ns * 3 // 2
                if not self._membership.detector.heard_since(other.uuid, since):
                    self._membership.detector.silent(other.uuid)
        if not info.store or all(other.store != info.store for other in self._membership.view.members):
            # A process with the files of a member asks again when that member is gone; a copy was rejected above.
            assert info.uuid != self._membership.me, "no member asks itself"
            self._candidates.ask(
                info,
                self._out.now_ns,
                request.baseline,
                request.level,
                request.maps,
                request.metastore,
                request.gone,
            )
        return True

    def on_join_answer(self, sender: Address, answer: JoinAnswer) -> None:
        if self._membership.state not in SEEKING:
            return
        home = Address(answer.host, answer.port)
        if answer.idle:
            self._formation.idle(home, answer.cluster_id, answer.uuid)
        elif answer.cluster_id and answer.cluster_id == self._membership.identity.cluster_id:
            self._formation.runs(home)
        if answer.refusal and (answer.asker != self._membership.me or self._is_foreign(home, answer)):
            return
        assert self._membership.view is None, "who looks for a cluster is in none"
        if answer.ending and self._membership.state is MembershipState.EXILED:
            self._membership.step(MembershipStep.ENDED)
            self._out.effects.append(Stop("the cluster was shut down while this member was away"))
            return
        if answer.evicted and self._membership.state is MembershipState.EXILED:
            self._membership.refusal = answer.refusal
            self._membership.step(MembershipStep.ENDED)
            self._out.effects.append(Stop(answer.refusal))
            return
        if answer.refusal and answer.refusal != self._membership.refusal:
            self._membership.refusal = answer.refusal
            self._out.note("join refused", level="error", by=str(sender), reason=answer.refusal)

    def _is_foreign(self, home: Address, answer: JoinAnswer) -> bool:
        """Whether only the files name this address, and the process there is not in their cluster (membership/V-11).
        Members of older builds, and processes in no cluster, do not name a cluster. They may be behind a seed that is a
        name, unless this process needs no other seed.
        """
        identity, own = self._membership.identity, admission.home(self._membership.info)
        if home in identity.seeds or home not in self._formation.known(own):
            return False
        if answer.cluster_id:
            return answer.cluster_id != identity.cluster_id
        return not identity.seeds or own in identity.seeds

    def own_stale_files_reason(self, request: JoinRequest) -> str:
        """membership/F-3: learn from the files of others while a recovering cluster has no table yet. Returns why this
        member's own files are an old copy; empty: they may be the newest.
        """
        membership = self._membership
        waiting = (
            membership.state is MembershipState.JOINING
            if membership.view is None
            else membership.view.recovering
        )
        here = membership.view.cluster_id if membership.view is not None else membership.identity.cluster_id
        if not waiting or not here or request.cluster_id != here:
            return ""
        membership.files.learn(request.stores)
        store = membership.info.store
        return (
            stale_files_reason(membership.files.by_now(membership.info), membership.files.seen(store, None))
            if store
            else ""
        )
