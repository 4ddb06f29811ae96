"""Ablations of the rules about files: what is written, and what is trusted after a restart."""

# ruff: noqa: SLF001, ARG001 - a twin sits where the original does, and is given what that is given

from __future__ import annotations

from typing import Any

from holdfast.core.journal.recovery import Recovery
from holdfast.core.messages import RetainedCopy
from holdfast.core.migration.returning_members import ReturningMembers
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import MemberInfo
from holdfast.core.placement.revival import Claim
from holdfast.engine.journal_disk import JournalDisk
from holdfast.engine.ports import DiskFull
from holdfast_lab.sim.ablations.place import Place, nothing
from holdfast_lab.sim.replacing import Method


def _waits_for_nobody(_: Method, returns: ReturningMembers, missing: list[MemberInfo]) -> str:
    return ""


def _claims_of_anybody(_: Method, returns: ReturningMembers, partition: int, row: Assignment) -> list[Claim]:
    return [
        Claim(uuid, 0, RetainedCopy(partition, row.epoch, [], True))
        for uuid, copies in returns._kept.items()
        if partition in copies
    ]


def _revives_from_any_slot(
    truth: Method, returns: ReturningMembers, *given: Any, **how: Any
) -> Assignment | None:
    holders, returns._holders = returns._holders, returns._width
    try:
        row: Assignment | None = truth(returns, *given, **how)
    finally:
        returns._holders = holders
    return row


def _tries_again(_: Method, disk: JournalDisk, deeds: Any, done: Any, error: Exception) -> None:
    disk._submit_again(deeds, done)


def _has_failed(disk: JournalDisk, deeds: Any, done: Any, error: Exception | None) -> bool:
    return error is not None and not isinstance(error, DiskFull) and not disk.is_over


RESTARTING: dict[str, tuple[Place, ...]] = {
    "wait-for-stores": (Place(ReturningMembers, "_wait_for_reason", _waits_for_nobody),),
    "owner-by-proof": (
        Place(ReturningMembers, "_claims", _claims_of_anybody),
        Place(ReturningMembers, "_revived", _revives_from_any_slot),
    ),
    "failed-sync-stops": (Place(JournalDisk, "on_done", _tries_again, when=_has_failed),),
    "damage-ends": (Place(Recovery, "_end_copies", nothing),),
}
