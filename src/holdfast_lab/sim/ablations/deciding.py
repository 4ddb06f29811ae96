"""Ablations of the rules of the master: changes of table and view, and departures."""

# ruff: noqa: SLF001, ARG001 - a twin sits where the original does, and is given what that is given

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.core.membership import admission, next_level
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.migration import failover_planner, planning, returning_members
from holdfast.core.migration.failover_planner import FailoverPlanner
from holdfast.core.migration.migration_master import MigrationMaster
from holdfast.core.model.baseline import Baseline
from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import FeatureLevels
from holdfast.core.model.migration import ReplicaList
from holdfast.core.model.operations import Request
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.outbox import Outbox
from holdfast.core.partition_table.table_replication import TableReplication
from holdfast.core.placement.planner import Plan
from holdfast.core.placement.revival import Claim
from holdfast.core.routing.lost_partitions import LostPartitions
from holdfast.planning.strategies import plan_carelessly
from holdfast_lab.sim.ablations.place import Place, always, nothing
from holdfast_lab.sim.replacing import Method


def _plans_carelessly(
    _: Method, partition: int, current: ReplicaList, target: ReplicaList, **_more: bool
) -> Plan:
    return plan_carelessly(partition, current, target)


def _names_nobody(
    _: Method, table_replication: TableReplication, rows: dict[int, Assignment]
) -> set[MemberId]:
    return set()


def _misses_nobody(_: Method, table_replication: TableReplication) -> list[MemberId]:
    return []


def _goes_back(_: Method, offered: Assignment, base: Assignment) -> Assignment:
    return base


def _majority_counts(membership: MembershipStatus, *_: Any) -> bool:
    return membership._majority


def _loss_is_not_accepted(settlement: FailoverPlanner) -> bool:
    return settlement._settings.partitions.lost == "wait" and not settlement._returns.accepted


def _something_is_lost(losses: LostPartitions, request: Request) -> bool:
    return losses.any


def _is_lost(newest: Assignment, *_: Any, **__: Any) -> bool:
    return bool(newest.lost)


def _forgets_the_loss(
    truth: Method, newest: Assignment, claims: Sequence[Claim], width: int, **how: Any
) -> Assignment | None:
    return truth(replace(newest, lost=()), claims, width, **how)  # type: ignore[no-any-return]


def _is_told(theirs: Baseline | None, view: View, **_: Any) -> bool:
    return theirs is not None


def _finds_nothing(_: Method, theirs: Baseline | None, view: View, **__: Any) -> str:
    return ""


def _is_outside(standing: MembershipStatus, info: MemberInfo) -> bool:
    return standing.view is not None and not info.lite and standing.view.is_outside(info)


def _somebody_cannot(members: Iterable[MemberInfo], level: int) -> bool:
    return not all(info.levels.can(level) for info in members)


def _does_not_fit(level: int, members: Iterable[MemberInfo]) -> bool:
    return _somebody_cannot(members, level)


def _cannot(levels: FeatureLevels, level: int) -> bool:
    return not levels.can(level)


def _lets_in(_: Method, levels: FeatureLevels, level: int) -> str:
    return ""


def _does_not(out: Outbox, level: int) -> bool:
    return out.level < level


DECIDING: dict[str, tuple[Place, ...]] = {
    "destination-first": (Place(TableReplication, "_named", _names_nobody),),
    "newest-table": (Place(TableReplication, "_unreported", _misses_nobody),),
    "table-majority": (Place(TableReplication, "_may_commit", always),),
    "view-majority": (
        Place(MembershipStatus, "is_quorum", always, when=_majority_counts),
        Place(MembershipStatus, "may_decide", always, when=_majority_counts),
    ),
    "failed-version": (
        Place(failover_planner, "_taken_back", _goes_back),
        Place(FailoverPlanner, "_raise", nothing),
    ),
    "plan-keeps-copies": (Place(planning, "plan", _plans_carelessly),),
    "wait-for-copies": (Place(FailoverPlanner, "_accepts_loss", always, when=_loss_is_not_accepted),),
    "lost-refused": (Place(LostPartitions, "rejection", nothing, when=_something_is_lost),),
    "lost-stays": (Place(returning_members, "revived", _forgets_the_loss, when=_is_lost),),
    "baseline-history": (Place(admission, "history_problem", _finds_nothing, when=_is_told),),
    "baseline-outside": (Place(MembershipStatus, "may_hold", always, when=_is_outside),),
    "level-by-all": (Place(next_level, "all_can", always, when=_somebody_cannot),),
    "level-admits": (
        Place(admission, "levels_problem", _lets_in, when=_cannot),
        Place(admission, "fits_level", always, when=_does_not_fit),
    ),
    "level-in-force": (Place(Outbox, "does", always, when=_does_not),),
    "drain-waits": (Place(MigrationMaster, "can_leave", always),),
}
