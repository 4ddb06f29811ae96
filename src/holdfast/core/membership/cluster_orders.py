"""Orders of operators about the whole cluster: its state, baseline and feature level.

The next view of the master carries an order out. The state is part of this member's desired state, which is repeated to
each new master; the caller repeats orders about baseline and level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import BaselineWanted, LevelWanted, StateWanted
from holdfast.core.model.ids import MemberId
from holdfast.core.model.views import ClusterState
from holdfast.core.outbox import Outbox


class ClusterOrdersDelegate(Protocol):
    def consider(self) -> None:
        """Propose a next view if one is wanted."""


class ClusterOrders:
    def __init__(self, status: MembershipStatus, out: Outbox, delegate: ClusterOrdersDelegate) -> None:
        self._status = status
        self._out = out
        self._delegate = delegate

    def set_state(self, state: ClusterState, *, ending: bool = False) -> None:
        """`ending`: the shutdown. Repeated until it is in force."""
        status = self._status
        if status.view is not None and status.admitted:
            status.intents.order(status.view, state, ending=ending)

    def set_baseline(self, after: str, members: Sequence[str], adjust_ms: int) -> None:
        """Order a baseline that follows the point `after` of its history."""
        view = self._status.view
        if view is not None and self._status.admitted:
            wanted = BaselineWanted(view.number, after, list(members), adjust_ms)
            self._out.send(view.members[0].uuid, wanted)

    def set_level(self, level: int) -> None:
        view = self._status.view
        if view is not None and self._status.admitted:
            self._out.send(view.members[0].uuid, LevelWanted(view.number, level))

    # -- at the master

    def on_state_wanted(self, sender: MemberId, order: StateWanted) -> None:
        """An order is repeated in each view, so one from an older view is void."""
        view = self._status.view
        if view is None or not self._status.is_master or order.view < view.number:
            return
        if view.ending:
            if not order.ending:
                self._out.note(
                    "state change refused: the cluster is shutting down", level="warning", wanted=order.state
                )
            return
        self._status.intents.ordered(order)
        self._delegate.consider()

    def on_baseline_wanted(self, order: BaselineWanted) -> None:
        """See membership/B-2."""
        if self._accepts():
            self._status.intents.order_baseline(order, self._out.now_ns)
            self._delegate.consider()

    def on_level_wanted(self, order: LevelWanted) -> None:
        """See membership/L-1."""
        if self._accepts():
            self._status.intents.order_level(order.level, self._out.now_ns)
            self._delegate.consider()

    def _accepts(self) -> bool:
        view = self._status.view
        return view is not None and self._status.is_master and not view.ending
