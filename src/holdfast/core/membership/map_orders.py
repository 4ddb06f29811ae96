"""Orders of operators to change settings of a map in use, and the choice of the next view's changes.

- membership/C-1: All members take a change, or none. The master asks every member of its view, and the next view
  contains the change only when all accept; if one rejects it, the operator gets the reason. The order names the version
  of the changes that its sender has seen, so it is carried out once. The caller repeats it; it is void in a later view,
  and some time after the last repetition.
- membership/C-2: Changes are never forgotten while a member knows them: each view has those of the previous one. A
  cluster that was stopped as a whole continues with the newest ones in its members' files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from holdfast.config import Settings
from holdfast.config.loading import check_map, move_problem
from holdfast.config.schema import COPIES
from holdfast.core.membership.admission import Admission
from holdfast.core.membership.desired_state import ORDER_NS
from holdfast.core.membership.maps_in_force import MapsInForce, OperatorOrder
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import (
    MapChangeAsked,
    MapChangeJudged,
    MapChangeRefused,
    MapChangeWanted,
)
from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import CHANGES_MAPS, MOVES_MAPS, RESETS_MAPS
from holdfast.core.model.map_changes import CHANGED_MAPS_MAX, MapChanges, MapOrder, target_of, targets
from holdfast.core.model.views import MemberInfo, Room, View
from holdfast.core.outbox import Outbox
from holdfast.errors import ConfigError


class MapOrdersDelegate(Protocol):
    def consider(self) -> None:
        """Propose a next view if one is wanted."""


class CopyProofs(Protocol):
    def copies_proven(self) -> bool:
        """As master: every member has proved that its replicas hold what the present view wants (model/C-1)."""


class MapOrders:
    def __init__(
        self, status: MembershipStatus, maps: MapsInForce, out: Outbox, delegate: MapOrdersDelegate
    ) -> None:
        self._status = status
        self._maps = maps
        self._out = out
        self._delegate = delegate
        self._ordered: MapChangeWanted | None = None
        self._repeated_ns = 0
        self._accepted_by: set[MemberId] = set()
        self._tickets = 0

    # -- the member of the operator

    def order(self, order: MapOrder) -> None:
        """Replaces an earlier order."""
        view = self._status.view
        if view is None or not self._status.admitted:
            return
        mine = self._maps.order_of(order, self._out.now_ns)
        if mine is None:
            self._tickets += 1
            mine = self._maps.order = OperatorOrder(order, self._tickets)
        mine.repeated_ns = self._out.now_ns
        if order.is_in(view.maps):
            mine.taken = True
        elif mine.taken:
            mine.refusal = f"another order has changed {order.name} in the meantime"
        elif not mine.refusal:
            mine.refusal = level_problem(view, order)
        if mine.taken or mine.refusal:
            # An older master would not know the message.
            return
        wanted = MapChangeWanted(
            view.number,
            view.maps.version,
            mine.ticket,
            self._status.me,
            order.name,
            self._configured_values(view.maps, order.name) if order.resets else dict(order.values),
            order.to,
            order.cancels,
            order.resets,
        )
        self._out.send(view.members[0].uuid, wanted)

    def on_refused(self, message: MapChangeRefused) -> None:
        mine = self._maps.order
        if mine is not None and message.ticket == mine.ticket:
            mine.refusal = message.why

    # -- every member

    def on_asked(self, sender: MemberId, message: MapChangeAsked) -> None:
        view = self._status.view
        if view is not None and view.number == message.view and sender == self._status.master:
            why = self.problem(view, order_in(message))
            self._out.send(sender, MapChangeJudged(view.number, message.after, why))

    def problem(self, view: View, order: MapOrder) -> str:
        """Why this member rejects the order; empty: it accepts."""
        changes, name, values = view.maps, order.name, order.values
        if changes.find(name) is None and len(changes.changes) >= CHANGED_MAPS_MAX:
            return f"{CHANGED_MAPS_MAX} maps have changed settings already, and there can be no more"
        present = targets(self._maps.configured, changes)
        if order.cancels:
            return ""
        if order.resets and (mine := self._configured_values(changes, name)) != values:
            return f"its configuration has {_text(mine)} for {name}, and another member's has {_text(values)}"
        if order.to is not None:
            return move_problem(present, name, order.to)
        try:
            check_map(present, name, values)
        except ConfigError as wrong:
            return str(wrong)
        before = present.map(name).copies
        after = 1 + sum(values.get(key, getattr(present.map(name), key)) for key in COPIES)
        if after > before and self._status.intents.short.get(self._status.me, Room.PLENTY) is not Room.PLENTY:
            return (
                f"{self._status.info.name} is short of memory, and more copies need more: raise its "
                "limits.memory_bytes (holdfast config set), or add members first"
            )
        return ""

    def rejection(self, order: MapOrder) -> str:
        """Why the order would be rejected now, as far as this member knows; empty: it would not."""
        view = self._status.view
        if view is None or not self._status.admitted:
            return f"{self._status.info.name} is in no cluster"
        return (
            level_problem(view, order)
            or _phase_problem(view, order)
            or _state_problem(view, order)
            or self.problem(view, order)
        )

    def _configured_values(self, changes: MapChanges, name: str) -> dict[str, int]:
        """The changed settings of a map with the values that they have without its changes, as configured here."""
        known = changes.find(name)
        wanted = target_of(self._maps.configured, changes.without(name), name)
        return {key: getattr(wanted, key) for key in (known.values if known is not None else ())}

    # -- the master

    def moves_wanted(self, changes: MapChanges) -> MapChanges:
        """These changes, with the next phase of a move that can continue."""
        return self._maps.moves.wanted(changes)

    def on_wanted(self, order: MapChangeWanted) -> None:
        """See membership/C-1."""
        view = self._status.view
        if view is None or not self._status.is_master or order.view != view.number or view.ending:
            return
        if order.after != view.maps.version:
            return
        if why := self._rejection(view, order):
            self._refuse(order, why)
            return
        if self._ordered != order:
            self._ordered = order
            self._accepted_by = set()
        self._repeated_ns = self._out.now_ns
        asked = MapChangeAsked(
            view.number, order.after, order.name, order.values, order.to, order.cancels, order.resets
        )
        for info in view.members:
            if info.uuid not in self._accepted_by:
                self._out.send(info.uuid, asked)

    def _rejection(self, view: View, order: MapChangeWanted) -> str:
        wanted = order_in(order)
        if why := level_problem(view, wanted) or _phase_problem(view, wanted) or _state_problem(view, wanted):
            return why
        present = self._present(view)
        if present is not None and present != order:
            return "another order about a map is under way: try again"
        return ""

    def on_judged(self, sender: MemberId, message: MapChangeJudged) -> None:
        view = self._status.view
        order = self._present(view) if view is not None else None
        if view is None or order is None or message.view != view.number or message.after != order.after:
            return
        if message.why:
            self._ordered = None
            self._refuse(order, message.why)
            return
        self._accepted_by.add(sender)
        if self.accepted(view) is not None:
            self._delegate.consider()

    def _refuse(self, order: MapChangeWanted, why: str) -> None:
        self._out.note("change of a map refused", map=order.name, reason=why)
        self._out.send(order.origin, MapChangeRefused(order.ticket, why))

    def _present(self, view: View) -> MapChangeWanted | None:
        """As master: the order of this view that is repeated and not carried out."""
        order = self._ordered
        if order is None or order.view != view.number or order.after != view.maps.version:
            return None
        return order if self._out.now_ns - self._repeated_ns <= ORDER_NS else None

    def accepted(self, view: View) -> MapChangeWanted | None:
        order = self._present(view)
        return order if order and {info.uuid for info in view.members} <= self._accepted_by else None


def order_in(message: MapChangeWanted | MapChangeAsked) -> MapOrder:
    return MapOrder(message.name, message.values, message.to, message.cancels, message.resets)


def _text(values: Mapping[str, int]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(values.items()))


def level_problem(view: View, order: MapOrder) -> str:
    """Why no map can be changed so yet; empty: it can."""
    level, what = CHANGES_MAPS, "settings of maps can be changed"
    if order.to is not None or order.cancels:
        level, what = MOVES_MAPS, "maps can be moved"
    if order.resets:
        level, what = RESETS_MAPS, "settings of maps can be reset"
    if view.level >= level:
        return ""
    return (
        f"{what} in use from feature level {level} on, and the cluster is at {view.level}: raise it first "
        "(holdfast cluster upgrade)"
    )


def _state_problem(view: View, order: MapOrder) -> str:
    """Why the state of the cluster does not allow the copies that a change needs; empty: it does."""
    makes_copies = set(COPIES) & order.values.keys() or order.to is not None
    if not makes_copies or view.state.migrates:
        return ""
    return (
        f"the cluster is {view.state}, so no copies can be made or dropped: set its state to active first "
        "(holdfast cluster state active)"
    )


def _phase_problem(view: View, order: MapOrder) -> str:
    """Why a move cannot begin, or be cancelled, in its present phase; empty: it can."""
    move = view.maps.moves.get(order.name)
    if order.cancels and move is not None and move.home == move.target:
        return f"{order.name} is served at its new place already: move it back when this move has ended"
    if order.to is not None and move is not None:
        return f"{order.name} is being moved: wait, or cancel that first (holdfast map move {order.name} --cancel)"
    return ""


class NextMaps:
    def __init__(
        self,
        settings: Settings,
        candidates: Admission,
        orders: MapOrders,
        permissions: CopyProofs,
    ) -> None:
        self._settings = settings
        self._candidates = candidates
        self._orders = orders
        self._permissions = permissions

    def wanted(self, view: View, members: list[MemberInfo]) -> MapChanges:
        changes = self._candidates.newest_maps(view, members)
        order = self._orders.accepted(view)
        asked = {info.uuid for info in view.members}
        if order is not None and {info.uuid for info in members} <= asked:
            return order_in(order).applied(self._settings, changes)
        if members != view.members:
            return changes
        if not changes.done and self._permissions.copies_proven():
            return changes.advanced().settled(self._settings)
        return self._orders.moves_wanted(changes) if changes.moves else changes
