"""Orders to found the metastore in a running cluster, or to change the number of its voters.

- membership/F-4: Only the master carries an order out, with its next view (model/F-1), and only if that view follows
  the one in which the order was given: an order that arrives late finds the metastore founded, and founds no second
  one. While a stopped cluster recovers nothing is founded, because a member that is still away may know of a founding,
  which it reports when it joins.
- membership/F-5: A founding needs the consent of all builds: the feature level `STARTS_METASTORE`. A metastore that was
  begun at a lower level, by the setting, is taken over by the view that raises the level.

A member whose `metastore.voters` is set gives the order by itself, until the view has a founding.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec.structs import replace

from holdfast.core.membership.admission import Admission
from holdfast.core.membership.desired_state import ORDER_NS
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.membership.next_level import possible
from holdfast.core.messages import MetastoreWanted
from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import STARTS_METASTORE
from holdfast.core.model.metastore_founding import MetastoreFounding
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.outbox import Outbox


def founding_problem(view: View) -> str:
    """Why no metastore can be founded, with advice; empty: one can."""
    if view.level < STARTS_METASTORE:
        short = [info for info in (*view.members, *view.missing) if not info.levels.can(STARTS_METASTORE)]
        need = (
            f"a metastore can be started from feature level {STARTS_METASTORE} on, and the cluster is at "
            f"{view.level}"
        )
        if possible(view) >= STARTS_METASTORE:
            return f"{need}: raise it first (holdfast cluster upgrade)"
        names = ", ".join(sorted(f"{info.name} ({info.levels})" for info in short))
        return f"{need}; upgrade these members first, then the level (holdfast cluster upgrade): {names}"
    if view.recovering:
        return "the cluster was stopped, and its data is still being recovered: try again when it is safe"
    return ""


class MetastoreOrdersDelegate(Protocol):
    def consider(self) -> None:
        """Propose a next view if one is wanted."""


class MetastoreOrders:
    def __init__(
        self, status: MembershipStatus, configured: int, out: Outbox, delegate: MetastoreOrdersDelegate
    ) -> None:
        """`configured`: the setting `metastore.voters`."""
        self._status = status
        self.configured = configured
        self._out = out
        self._delegate = delegate
        self._ordered: MetastoreWanted | None = None
        self._repeated_ns = 0

    def order(self, voters: int) -> None:
        """The caller repeats the order."""
        view = self._status.view
        # An older master would not know the message.
        if view is not None and self._status.admitted and not founding_problem(view):
            self._out.send(view.members[0].uuid, MetastoreWanted(view.number, voters))

    def on_timer(self) -> None:
        """Called with each heartbeat: order what is configured, if the cluster has no metastore."""
        view = self._status.view
        if self.configured and view is not None and view.metastore is None and not view.ending:
            self.order(self.configured)

    def on_wanted(self, order: MetastoreWanted) -> None:
        """As master: take the order only if it was given in the present view (membership/F-4)."""
        view = self._status.view
        if view is None or not self._status.is_master or order.view != view.number or view.ending:
            return
        self._ordered, self._repeated_ns = order, self._out.now_ns
        self._delegate.consider()

    def voters_wanted(self, view: View) -> int:
        """As master: the number of voters that is ordered; 0: no order."""
        order = self._ordered
        if order is None or order.view != view.number or self._out.now_ns - self._repeated_ns > ORDER_NS:
            return 0
        return order.voters


class NextMetastore:
    def __init__(self, membership: MembershipStatus, candidates: Admission, orders: MetastoreOrders) -> None:
        self._membership = membership
        self._candidates = candidates
        self._orders = orders

    def wanted(self, view: View, members: list[MemberInfo], level: int) -> MetastoreFounding | None:
        known = self._candidates.known_founding(view, members)
        voters = self._orders.voters_wanted(view)
        if known is not None:
            return replace(known, voters=voters) if voters else known
        if self._orders.configured and view.level < STARTS_METASTORE <= level:
            return MetastoreFounding(self._orders.configured)  # membership/F-5
        if not voters or founding_problem(view):
            return None
        before = {info.uuid for info in view.members}
        return founded(voters, [info for info in members if info.uuid in before], self._membership.departing)


def founded(
    voters: int, staying: Sequence[MemberInfo], departing: Collection[MemberId]
) -> MetastoreFounding | None:
    """An odd number of voters, data members that stay first. The leader of the group adjusts them later. None: no
    member can begin it.
    """
    order = sorted(staying, key=lambda info: (info.uuid in departing, info.lite))
    may_vote = [info for info in order if info.lite == order[0].lite and info.uuid not in departing] or order
    count = min(voters, len(may_vote))
    first = [info.node for info in may_vote[: count - 1 + count % 2]]
    others = [info.node for info in order if info.node not in first]
    return MetastoreFounding(voters, tuple(first), tuple(others)) if first else None
