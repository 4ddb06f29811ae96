"""Who is let in? Those who ask and fit; never more at once than can be outvoted.

- membership/B-1: Whose files know another history of the baseline is not let in: one that has branched, or that goes on
  where this cluster's ends. While a stopped cluster comes back the latter tells it what it did not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from holdfast.core.membership.failure_detector import FailureDetector
from holdfast.core.membership.identity import Timing
from holdfast.core.membership.known_files import KnownFiles, is_behind
from holdfast.core.messages import JoinRequest
from holdfast.core.model.baseline import Baseline, is_beginning
from holdfast.core.model.ids import MILLISECOND, Address, MemberId
from holdfast.core.model.levels import LOWEST, FeatureLevels
from holdfast.core.model.views import MemberInfo, View

NOT_SET = "not set"
SERVICE = re.compile(r"services\.(.+)\.(\w+)$")
"""A shared setting of a service."""
CANDIDATE_NS = 2000 * MILLISECOND
"""Whoever has not asked for so long does not want to be admitted any more, or is dead. A few times the interval of
asking."""


def home(info: MemberInfo) -> Address:
    """Where the member listens for members."""
    return Address(info.host, info.port)


def refusal(
    request: JoinRequest, cluster: str, shared: dict[str, str], cluster_id: str, view: View | None
) -> str:
    """Why this stranger cannot be admitted, in words that say what to do; empty when it can."""
    if request.cluster != cluster:
        return f"cluster.name is {cluster!r} here, yours is {request.cluster!r}"
    if cluster_id and request.cluster_id not in ("", cluster_id):
        return f"you hold data of another cluster (id {request.cluster_id}); this one is {cluster_id}"
    if view is not None and view.ending:
        return "the cluster is being shut down; start this member again when all others have ended"
    if view is not None and (why := levels_problem(request.info.levels, view.level)):
        return why
    if view is not None and view.state.frozen:
        known = {home(info) for info in (*view.missing, *view.members)}
        if home(request.info) not in known:
            gone = ", ".join(str(home(info)) for info in view.missing)
            return (
                f"the cluster is {view.state}: only members that have gone since then may come back"
                f"{f' (at {gone})' if gone else ''}; set its state to active first: holdfast cluster state active"
            )
    for key in sorted({*shared, *request.shared}):
        ours, theirs = shared.get(key, NOT_SET), request.shared.get(key, NOT_SET)
        if theirs != ours:
            service = SERVICE.match(key)
            if service:
                return _other_service(service[1], service[2], shared, request.shared)
            return f"{key} is {ours} in this cluster, yours is {theirs}"
    return ""


def levels_problem(levels: FeatureLevels, level: int) -> str:
    """membership/L-2: why whoever can do these levels is not let in while this one is in force; empty when it is."""
    if levels.can(level):
        return ""
    this = f"this cluster is at feature level {level}, and your Holdfast can do {levels}"
    if levels.highest < level:
        return f"{this}: start a version there that can do level {level}; the cluster does not go back"
    return (
        f"{this}: bring the cluster to level {levels.lowest} first (holdfast cluster upgrade), with a version between "
        "if its members cannot do that"
    )


def fits_level(level: int, members: Iterable[MemberInfo]) -> bool:
    """Whether all of these can be in a cluster of this level (membership/L-2)."""
    return all(info.levels.can(level) for info in members)


def awaited(view: View, members: list[MemberInfo]) -> list[MemberInfo]:
    """Who may hold acknowledged writes in files, and is not here: while a cluster comes back, or when it stops."""
    here = {info.store for info in members}
    found = {
        info.store: info for info in (*view.missing, *view.members) if info.store and view.may_hold(info)
    }
    return [info for store, info in found.items() if store not in here]


def _other_service(name: str, field: str, shared: dict[str, str], theirs: dict[str, str]) -> str:
    key = f"services.{name}.{field}"
    if key not in theirs:
        why = f"this cluster runs the service {name!r}, you do not"
    elif key not in shared:
        why = f"you run the service {name!r}, this cluster does not"
    elif field == "backups":
        why = f"the service {name!r} has {shared[key]} backups in this cluster, yours has {theirs[key]}"
    else:
        why = f"the service {name!r} has {field} = {shared[key]} in this cluster, yours has {theirs[key]}"
    return f"{why}; all members need the same ones"


def history_problem(theirs: Baseline | None, view: View, *, surely_newest: bool) -> str:
    """membership/B-1: why a stranger with files cannot be of this cluster as it is now; empty when it can.

    Who knows more than this view cannot, either, but while a stopped cluster comes back: then the others learn of it.
    `surely_newest`: this view is the newest one.
    """
    if is_beginning(theirs, view.baseline):
        return ""
    if is_beginning(view.baseline, theirs) and (view.recovering or not surely_newest):
        return ""
    assert theirs is not None, "no history is the beginning of each"
    ours = f"{view.baseline.changes} changes, the last {view.baseline.point}" if view.baseline else "none"
    return (
        f"your files are of another history of the baseline ({theirs.changes} changes, the last {theirs.point}) than "
        f"this cluster ({ours}): both parts have gone on without each other, and each has written what the other does "
        "not have. Keep what the part that is to stay has, and start this member with an empty persistence.directory; "
        "if this member's part is to stay, stop this cluster first"
    )


def missing(view: View, members: list[MemberInfo]) -> list[MemberInfo]:
    """Who has gone since the table was frozen, and has not come back, nor another process in its place."""
    homes = {home(info) for info in members}
    here = {info.uuid for info in members}
    return [
        info for info in (*view.missing, *view.members) if info.uuid not in here and home(info) not in homes
    ]


class Admission:
    """Who has asked to be admitted, and when it last did."""

    def __init__(self) -> None:
        self._asked: dict[MemberId, tuple[MemberInfo, int]] = {}
        self._twins: dict[str, int] = {}
        """Files that a stranger has shown while a member has the same, and since when."""
        self._baselines: dict[MemberId, Baseline | None] = {}
        """What those who have asked know of who owns data."""
        self._levels: dict[MemberId, int] = {}
        """The feature level that they have known in force."""

    def ask(
        self, info: MemberInfo, now_ns: int, baseline: Baseline | None = None, level: int = LOWEST
    ) -> None:
        """It asks (again). Of two processes at one address only the newer can be alive."""
        for uuid in [uuid for uuid, (other, _) in self._asked.items() if home(other) == home(info)]:
            del self._asked[uuid]
        self._asked[info.uuid] = (info, now_ns)
        self._baselines[info.uuid] = baseline
        self._levels[info.uuid] = level
        assert len({home(other) for other, _ in self._asked.values()}) == len(self._asked), (
            "one at an address"
        )

    def refused(self, uuid: MemberId) -> None:
        """It has been told that it is not let in, and ends: what it asked before does not count any more."""
        self._asked.pop(uuid, None)

    def same_files(
        self,
        info: MemberInfo,
        view: View | None,
        me: MemberId,
        detector: FailureDetector,
        now_ns: int,
        timing: Timing,
        old: str,
    ) -> str:
        """Why a stranger's files cannot be its own alone, or its newest; empty when they may be.

        A process that was started again shows the files of the one before it, which is dead but may not be missed yet.
        If that one is heard after the other has asked, there are two; and if it is the one who is asked, `me`, at once.
        old: why they cannot be its newest, if they cannot.
        """
        if not info.store or view is None:
            return old
        other = next((m for m in view.members if m.store == info.store and m.uuid != info.uuid), None)
        if other is None:
            self._twins.pop(info.store, None)
            return old
        first_ns = self._twins.setdefault(info.store, now_ns)
        if old or other.uuid == me or detector.heard_since(other.uuid, first_ns + 2 * timing.heartbeat_ns):
            return (
                f"member {other.name} is running with the same files, or was just now: one of the two directories is a "
                "copy. Start this member with an empty persistence.directory"
            )
        return ""

    def installed(self, view: View) -> None:
        """Who is in the view asks no more."""
        for info in view.members:
            self._asked.pop(info.uuid, None)
        assert self._asked.keys().isdisjoint(info.uuid for info in view.members), "who is in asks no more"
        self._forget_baselines()
        self._twins.clear()

    def forget(self, now_ns: int) -> None:
        """Who has not asked for long does not want to be admitted any more."""
        self._asked = {uuid: one for uuid, one in self._asked.items() if one[1] >= now_ns - CANDIDATE_NS}
        self._forget_baselines()

    def _forget_baselines(self) -> None:
        self._baselines = {uuid: one for uuid, one in self._baselines.items() if uuid in self._asked}
        self._levels = {uuid: one for uuid, one in self._levels.items() if uuid in self._asked}

    def forgotten(self, now_ns: int) -> int:
        """How many have not asked for so long that they should not be remembered."""
        return sum(1 for _, asked_ns in self._asked.values() if asked_ns < now_ns - 2 * CANDIDATE_NS)

    def newest_baseline(self, view: View, members: list[MemberInfo]) -> Baseline | None:
        """Who owns data when these are let in: while a stopped cluster comes back somebody may know of a change."""
        newest = view.baseline
        for info in members if view.recovering else ():
            theirs = self._baselines.get(info.uuid)
            if is_beginning(newest, theirs) and not is_beginning(theirs, newest):
                newest = theirs
        return newest

    def newest_level(self, view: View, members: list[MemberInfo]) -> int:
        """membership/L-3: the highest feature level that these, or this view, know of."""
        return max([view.level, *(self._levels.get(info.uuid, LOWEST) for info in members)])

    def admissible(
        self,
        view: View,
        staying: list[MemberInfo],
        now_ns: int,
        files_known: KnownFiles,
    ) -> list[MemberInfo]:
        """Who is let in: those who still ask, and no more than those who stay, who thus can decide without them.

        Their life is the number of the view that admits them: no two admissions share one. While the table is frozen
        only those come in who have gone since, or processes that were started in their place.
        """
        if view.ending:
            return []
        homes = {home(info) for info in view.missing}
        taken = {home(info) for info in staying}
        here = {info.uuid for info in view.members}
        files = {info.store for info in staying}
        chosen: list[MemberInfo] = []
        known, reached = view, view.level
        for uuid in sorted(self._asked):
            info, asked_ns = self._asked[uuid]
            if asked_ns < now_ns - CANDIDATE_NS or home(info) in taken or uuid in here:
                continue
            if info.store and info.store in files:
                continue
            if history_problem(self._baselines.get(uuid), known, surely_newest=True):
                continue
            level = max(reached, self._levels.get(uuid, LOWEST))
            if not fits_level(level, [*staying, *chosen, info]):
                continue
            files.add(info.store)
            if (not view.state.frozen or home(info) in homes) and len(chosen) < len(staying):
                behind = info.behind or is_behind(info, files_known.seen(info.store, view))
                chosen.append(msgspec.structs.replace(info, life=view.number + 1, behind=behind))
                known = msgspec.structs.replace(view, baseline=self.newest_baseline(view, chosen))
                reached = level
        assert len(chosen) <= len(staying), "who stays can decide without those who come"
        assert here.isdisjoint(info.uuid for info in chosen), "who is in the view is not let in again"
        return chosen
