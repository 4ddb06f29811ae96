"""Admits processes that ask to join, and never more at once than the members could outvote.

- membership/B-1: A process whose files know another history of the baseline is rejected: a branch, or one that
  continues where this cluster's ends. While a stopped cluster recovers, it accepts a longer history and learns from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from holdfast.core.membership.failure_detector import FailureDetector
from holdfast.core.membership.identity import Timing
from holdfast.core.membership.known_files import KnownFiles, is_behind, is_gone
from holdfast.core.messages import JoinRequest
from holdfast.core.model.baseline import Baseline, is_beginning
from holdfast.core.model.ids import MILLISECOND, Address, MemberId
from holdfast.core.model.levels import LOWEST, STARTS_METASTORE, FeatureLevels
from holdfast.core.model.map_changes import MapChanges, without_changed
from holdfast.core.model.metastore_founding import MetastoreFounding
from holdfast.core.model.views import FilesGone, MemberInfo, View

NOT_SET = "not set"
SERVICE = re.compile(r"services\.(.+)\.(\w+)$")
NO_CHANGES = MapChanges()
METASTORE_VOTERS = "metastore.voters"
CANDIDATE_NS = 2000 * MILLISECOND
"""Forget a process that has not asked for so long; a few times the interval of asking."""


def home(info: MemberInfo) -> Address:
    return Address(info.host, info.port)


def refusal(
    request: JoinRequest, cluster: str, shared: dict[str, str], cluster_id: str, view: View | None
) -> str:
    """Why the request is rejected, with advice; empty: admit the process."""
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
    changes = newest_maps(view, request.maps)
    here, there = without_changed(shared, changes), without_changed(request.shared, changes)
    for key in sorted({*here, *there}):
        if key == METASTORE_VOTERS and (view is None or view.level >= STARTS_METASTORE):
            continue  # The view has the number of voters, and the setting only orders a metastore.
        ours, theirs = here.get(key, NOT_SET), there.get(key, NOT_SET)
        if theirs != ours:
            service = SERVICE.match(key)
            if service:
                return _other_service(service[1], service[2], shared, request.shared)
            return f"{key} is {ours} in this cluster, yours is {theirs}"
    return ""


def newest_maps(view: View | None, known: MapChanges) -> MapChanges:
    """The changes after a process that knows these is admitted: a recovering cluster learns newer ones
    (membership/C-2).
    """
    ours = view.maps if view is not None else MapChanges()
    recovers = view is None or view.recovering
    return known if recovers and known.version > ours.version else ours


def levels_problem(levels: FeatureLevels, level: int) -> str:
    """membership/L-2: levels do not include the one in force; empty: they do."""
    if levels.can(level):
        return ""
    this = f"this cluster is at feature level {level}, and your Holdfast supports {levels}"
    if levels.highest < level:
        return f"{this}: install a version that supports level {level}; the level of a cluster never falls"
    return (
        f"{this}: bring the cluster to level {levels.lowest} first (holdfast cluster upgrade), and if its members "
        "do not support that, upgrade them to an intermediate version before"
    )


def fits_level(level: int, members: Iterable[MemberInfo]) -> bool:
    """See membership/L-2."""
    return all(info.levels.can(level) for info in members)


def awaited(view: View, members: list[MemberInfo]) -> list[MemberInfo]:
    """Absent members whose files may hold acknowledged writes, while a cluster recovers or stops."""
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


def history_problem(theirs: Baseline | None, view: View, *, certainly_newest: bool) -> str:
    """membership/B-1: files do not belong to this cluster; empty: they may. `certainly_newest`: no newer view exists.
    Only then a history that knows more is certainly foreign.
    """
    if is_beginning(theirs, view.baseline):
        return ""
    if is_beginning(view.baseline, theirs) and (view.recovering or not certainly_newest):
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
    """Gone since the table was frozen, and not replaced by another process at their address."""
    homes = {home(info) for info in members}
    here = {info.uuid for info in members}
    return [
        info for info in (*view.missing, *view.members) if info.uuid not in here and home(info) not in homes
    ]


class Admission:
    def __init__(self) -> None:
        self._asked: dict[MemberId, tuple[MemberInfo, int]] = {}
        self._twins: dict[str, int] = {}
        """Files shown by a process while a member has the same ones -> since when."""
        self._baselines: dict[MemberId, Baseline | None] = {}
        self._levels: dict[MemberId, int] = {}
        """The highest level in force that each knows."""
        self._maps: dict[MemberId, MapChanges] = {}
        self._foundings: dict[MemberId, MetastoreFounding] = {}
        self._gone: dict[MemberId, FilesGone] = {}

    def ask(
        self,
        info: MemberInfo,
        now_ns: int,
        baseline: Baseline | None = None,
        level: int = LOWEST,
        maps: MapChanges = NO_CHANGES,
        metastore: MetastoreFounding | None = None,
        gone: FilesGone | None = None,
    ) -> None:
        """Note a request, perhaps a repeated one. If two processes have one address, only the newer can be alive."""
        for uuid in [uuid for uuid, (other, _) in self._asked.items() if home(other) == home(info)]:
            del self._asked[uuid]
        self._asked[info.uuid] = (info, now_ns)
        self._baselines[info.uuid] = baseline
        self._levels[info.uuid] = level
        self._maps[info.uuid] = maps
        if metastore is not None:
            self._foundings[info.uuid] = metastore
        if gone is not None:
            self._gone[info.uuid] = gone
        assert len({home(other) for other, _ in self._asked.values()}) == len(self._asked), (
            "one at an address"
        )

    def refused(self, uuid: MemberId) -> None:
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
        """Why files belong to another process too, or are not its newest; empty: neither.

        A restarted process shows the files of its dead predecessor, which may still be in the view. If a heartbeat of
        that one arrives after the request, both are running, and one directory is a copy; if the predecessor is `me`,
        that is certain at once. `old`: a known reason why the files are not the newest, or empty.
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
        for info in view.members:
            self._asked.pop(info.uuid, None)
        assert self._asked.keys().isdisjoint(info.uuid for info in view.members), "who is in asks no more"
        self._forget_baselines()
        self._twins.clear()

    def forget(self, now_ns: int) -> None:
        self._asked = {uuid: one for uuid, one in self._asked.items() if one[1] >= now_ns - CANDIDATE_NS}
        self._forget_baselines()

    def _forget_baselines(self) -> None:
        self._baselines = {uuid: one for uuid, one in self._baselines.items() if uuid in self._asked}
        self._levels = {uuid: one for uuid, one in self._levels.items() if uuid in self._asked}
        self._maps = {uuid: one for uuid, one in self._maps.items() if uuid in self._asked}
        self._foundings = {uuid: one for uuid, one in self._foundings.items() if uuid in self._asked}
        self._gone = {uuid: one for uuid, one in self._gone.items() if uuid in self._asked}

    def forgotten(self, now_ns: int) -> int:
        return sum(1 for _, asked_ns in self._asked.values() if asked_ns < now_ns - 2 * CANDIDATE_NS)

    def newest_baseline(self, view: View, members: list[MemberInfo]) -> Baseline | None:
        """The baseline if these members are admitted; while a cluster recovers, one of them may know a newer one."""
        newest = view.baseline
        for info in members if view.recovering else ():
            theirs = self._baselines.get(info.uuid)
            if is_beginning(newest, theirs) and not is_beginning(theirs, newest):
                newest = theirs
        return newest

    def newest_level(self, view: View, members: list[MemberInfo]) -> int:
        return max([view.level, *(self._levels.get(info.uuid, LOWEST) for info in members)])

    def newest_maps(self, view: View, members: list[MemberInfo]) -> MapChanges:
        """The changes of maps if these members are admitted (membership/C-2)."""
        newest = view.maps
        for info in members:
            known = newest_maps(view, self._maps.get(info.uuid, NO_CHANGES))
            newest = known if known.version > newest.version else newest
        return newest

    def awaited(self, view: View, members: list[MemberInfo]) -> list[MemberInfo]:
        """Absent members of a recovering cluster whose files may hold acknowledged writes, if these members are
        admitted. They may know that others have gone before the stop (membership/F-6). A member that is not awaited
        itself does not count: if it crashes before its inventory arrives, nothing is known of the members of its view.
        """
        known = [
            self._gone[info.uuid]
            for info in members
            if info.uuid in self._gone and info.store and view.may_hold(info)
        ]
        return [info for info in awaited(view, members) if not any(is_gone(info, one) for one in known)]

    def known_founding(self, view: View, members: list[MemberInfo]) -> MetastoreFounding | None:
        """If these members are admitted. While a stopped cluster recovers, one of them may know it from a view that the
        others have not stored.
        """
        known = [self._foundings[info.uuid] for info in members if info.uuid in self._foundings]
        return view.metastore or (known[0] if known and view.recovering else None)

    def admissible(
        self,
        view: View,
        staying: list[MemberInfo],
        now_ns: int,
        files_known: KnownFiles,
    ) -> list[MemberInfo]:
        """Those that still ask, and at most as many as there are staying members.

        So the staying members can decide without the new ones. Example: {1, 2} admit a and b, which crash at once. 1
        and 2 are half of {1, 2, a, b}, with its oldest member, and can remove them. With c as well, two of five could
        decide nothing.

        The life of a new member is the number of the view that admits it, so lives are unique. While the table is
        frozen only members that have gone since, or processes at their addresses, are admitted.
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
            if history_problem(self._baselines.get(uuid), known, certainly_newest=True):
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
