"""The master's part in moves of maps: it collects what members report, and chooses the next phase (map_moves/V-2)."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import MapMoveReport
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.map_changes import MapChanges
from holdfast.core.model.map_moves import MapMove, MovePhase
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.outbox import Outbox

SWITCH_NS = 800 * MILLISECOND
"""Requests on the map wait so long for a switch before it is given up for now; the next try may take twice as long."""
LONGEST = 3
"""How many times that time is doubled."""
REST_NS = 500 * MILLISECOND
"""After a switch that was given up, requests are served for this long, times the tries so far, before the next one."""


class MoveMaster:
    def __init__(self, out: Outbox, membership: MembershipStatus, partitions: int) -> None:
        self._out = out
        self._membership = membership
        self._all = frozenset(range(partitions))
        self._since: dict[str, tuple[MapMove, int]] = {}
        """By map: the present phase of its move, and since when it has been known here."""
        self._reports: dict[str, dict[MemberId, MapMoveReport]] = {}

    def on_view(self, notice: ViewInstalled) -> None:
        moves = notice.new.maps.moves if notice.new is not None else {}
        for name in self._since.keys() - moves.keys():
            del self._since[name]
        for name, move in moves.items():
            if name not in self._since or self._since[name][0] != move:
                self._since[name] = (move, self._out.now_ns)
        # The partitions of a report may have other leaders by now.
        self._reports.clear()

    def on_report(self, sender: MemberId, message: MapMoveReport) -> None:
        view = self._membership.view
        if view is None or message.view != view.number or not self._membership.is_master:
            return
        self._reports.setdefault(message.name, {})[sender] = message

    def wanted(self, changes: MapChanges) -> MapChanges:
        """These changes, with the next phase of the first move that can continue."""
        for name, move in changes.moves.items():
            since = self._since.get(name)
            if since is None or since[0] != move:
                continue
            mine = [
                report
                for report in self._reports.get(name, {}).values()
                if (report.number, report.phase, report.round) == (move.number, move.phase, move.round)
            ]
            following = self._next(move, mine, self._out.now_ns - since[1])
            if following is None:
                return changes.moving(name, None, move.home)
            if following != move:
                return changes.moving(name, following)
        return changes

    def _next(self, move: MapMove, reports: list[MapMoveReport], for_ns: int) -> MapMove | None:
        """The next state of a move; None: it has ended."""
        source = self._all <= {partition for report in reports for partition in report.source}
        if move.phase is MovePhase.COPYING:
            if problem := next((report.problem for report in reports if report.problem), ""):
                return replace(move, phase=MovePhase.CANCELLING, why=problem)
            rests = move.round > 0 and for_ns < REST_NS * move.round
            if source and not rests:
                return replace(move, phase=MovePhase.SWITCHING, round=move.round + 1)
        elif move.phase is MovePhase.SWITCHING:
            if source:
                return replace(move, phase=MovePhase.MOVED)
            if for_ns >= SWITCH_NS << min(LONGEST, move.round - 1):
                return replace(move, phase=MovePhase.COPYING)
        elif move.phase is MovePhase.MOVED:
            if len(reports) == len(self._membership.members()):
                return replace(move, phase=MovePhase.CLEANING)
        elif source and self._all <= {partition for report in reports for partition in report.target}:
            return None
        return move
