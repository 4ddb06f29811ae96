"""A member changes the peers of the groups that it leads, and reports completed changes.

- zones/A-20: Only the member that leads a group changes its peers and reports completions, and it decides by what it
  has read from the metastore's leader, never by its own copy, which may be old.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.core.metastore.invoke import PutKey
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_state import CaughtUp, ChangeApplied, ChangeFailed, GroupNotice, LeaderElected
from holdfast.core.raft.reconfiguration import ChangeAnswer
from holdfast.core.zones.adjusting import (
    LeaderDuty,
    LocalCopy,
    assignments_of,
    cancellable,
    cancelled,
    change_failed,
    leader_duty,
    try_catch_up_finish,
    without_doubted,
)
from holdfast.core.zones.assignments import PartitionKeys
from holdfast.core.zones.data_nodes import data_nodes_of
from holdfast.core.zones.descriptors import Adjustment, ZoneDescriptor
from holdfast.core.zones.rendezvous import placed_by
from holdfast.core.zones.transitions import Result, configuration_applied
from holdfast.core.zones.work_queue import (
    RETRY_MOST_MS,
    RETRY_MS,
    WorkKind,
    WorkQueue,
    WorkStep,
    ZoneWork,
)
from holdfast.core.zones.zone_keys import KeysRead, changes_to, encoded, part_key, partition_keys, zone_key
from holdfast.core.zones.zone_ports import Part, ZoneGroups

CHANGES_AT_ONCE: Final = 32
"""See zones/A-24."""


@dataclass(slots=True)
class _GroupReport:
    """Notices of a group about its change that are not processed yet."""

    applied: ChangeApplied | None = None
    caught_up: int = 0
    """Token of the target that may join; 0: none."""
    failed: bool = False


class LeaderDuties:
    def __init__(self, groups: ZoneGroups, queue: WorkQueue) -> None:
        self._groups = groups
        self._queue = queue
        self._changing: dict[Part, int] = {}
        """Groups that change their peers, with the term in which this member leads them."""
        self._queued: dict[Part, None] = {}
        self._reports: dict[Part, _GroupReport] = {}

    def on_notice(self, part: Part, notice: GroupNotice) -> None:
        report = self._reports.setdefault(part, _GroupReport())
        work = (WorkKind.GROUP, *part)
        match notice:
            case LeaderElected():
                self._reports[part] = _GroupReport()
                self._queue.forget(work)
                self._changed(part)
            case ChangeApplied():
                self._changed(part)
                report.applied = notice
                self._queue.step(work).attempts = 0
            case CaughtUp(token):
                report.caught_up = token
            case ChangeFailed(_, why):
                self._changed(part)
                if self._groups.term(part) is None:
                    return  # The present leader knows better.
                report.failed = True
                self._queue.failed(work, why)
        self._queue.wake(work)
        self._queue.go()

    def on_tick(self) -> None:
        """Free the places of groups that this member no longer leads."""
        for part in [part for part, term in self._changing.items() if self._groups.term(part) != term]:
            self._changed(part)
        self._change_next()

    @property
    def rests(self) -> bool:
        return not (self._changing or self._queued)

    def forget(self, part: Part) -> None:
        self._reports.pop(part, None)

    def forget_zone(self, number: int) -> None:
        for part in [part for part in self._reports if part[0] == number and self._groups.copy(part) is None]:
            del self._reports[part]

    def group(self, work: ZoneWork, step: WorkStep, read: KeysRead) -> None:
        """Take the next step for a group that this member leads (zones/A-20)."""
        part = work[1:]
        term, copy = self._groups.term(part), self._groups.copy(part)
        zone = read.value(zone_key(part[0], "descriptor"), ZoneDescriptor)
        if term is None or copy is None or zone is None:
            self._queue.forget(work)
            return
        before = partition_keys(read, *part)
        if copy.generation < before.generation:
            self._queue.forget(work)  # It leads a group that was given up (zones/A-23).
            return
        revision = read.entry(part_key(*part, "pending")).revision
        report = self._reports.setdefault(part, _GroupReport())
        if self._completed(work, step, zone, before, revision, read):
            return
        if report.failed and before.lock is not None:
            report.failed = False
            after = change_failed(before, term=term)
            self._queue.write(work, step, read, changes_to(*part, before, after))
            return
        may, after = try_catch_up_finish(before, token=report.caught_up, pending_revision=revision, term=term)
        if may:
            lock = [PutKey(part_key(*part, "lock"), encoded(after.lock))]
            self._queue.write(work, step, read, lock, "agree")
            return
        after = without_doubted(before, copy.configuration)
        if after != before:
            self._queue.write(work, step, read, changes_to(*part, before, after))
            return
        self._drive(work, step, zone, before, copy, term, revision, read)

    def _completed(
        self,
        work: ZoneWork,
        step: WorkStep,
        zone: ZoneDescriptor,
        before: PartitionKeys,
        revision: int,
        read: KeysRead,
    ) -> bool:
        """Write a change that the group has reported as complete; returns whether there is one."""
        part = work[1:]
        notice = self._reports[part].applied
        if notice is None or notice.configuration.token != revision:
            return False
        nodes = data_nodes_of(read, zone.id).latest
        result, after = configuration_applied(
            before,
            applied=assignments_of(notice.configuration),
            calculated=placed_by(read, zone, part[1], nodes),
            term=notice.term,
            index=notice.index,
        )
        if result is Result.IGNORED_NOT_PENDING:
            return False
        if before.pending[0].force:
            after = msgspec.structs.replace(after, generation=revision)
        self._queue.write(work, step, read, changes_to(*part, before, after))
        return True

    def _drive(
        self,
        work: ZoneWork,
        step: WorkStep,
        zone: ZoneDescriptor,
        before: PartitionKeys,
        copy: LocalCopy,
        term: int,
        revision: int,
        read: KeysRead,
    ) -> None:
        part = work[1:]
        cancels = zone.settings.adjustment is Adjustment.CANCEL
        duty = leader_duty(before, copy.configuration, pending_revision=revision, cancels=cancels)
        if duty is LeaderDuty.NOTHING:
            return
        head = before.pending[0]
        if head.force and copy.configuration.token != revision:
            return  # The reset is not done.
        try:
            if duty is LeaderDuty.CANCEL and self._groups.cancel_change(part, term, revision):
                self._changed(part)
                after = cancelled(before, token=revision, pending_revision=revision)
                assert cancellable(before), "something waits"
                self._queue.write(work, step, read, changes_to(*part, before, after))
                return
            if not self._may_change(part, term):
                return
            answer = self._groups.change_peers(part, term, head, revision)
        except ProposalRefused:
            self._changed(part)
            return  # It does not lead any more.
        if answer not in (ChangeAnswer.STARTED, ChangeAnswer.REPLACED):
            self._changed(part)
        if answer is ChangeAnswer.BUSY:
            self._queue.again_in(step, RETRY_MS)
        elif answer in (ChangeAnswer.STARTED, ChangeAnswer.REPLACED):
            # The group reports the outcome. If the report is lost, this step runs again.
            self._queue.again_in(step, RETRY_MOST_MS)

    def _may_change(self, part: Part, term: int) -> bool:
        """Whether this group may change its peers now; otherwise it is queued (zones/A-24)."""
        if part not in self._changing and len(self._changing) >= CHANGES_AT_ONCE:
            self._queued[part] = None
            return False
        self._changing[part] = term
        return True

    def _changed(self, part: Part) -> None:
        if self._changing.pop(part, None) is not None:
            self._change_next()

    def _change_next(self) -> None:
        """Look at the next queued groups again. Those that need no change any more leave the queue."""
        for part in list(self._queued)[: CHANGES_AT_ONCE - len(self._changing)]:
            del self._queued[part]
            self._queue.wake((WorkKind.GROUP, *part))

    def group_written(self, part: Part, step: WorkStep) -> None:
        report = self._reports.setdefault(part, _GroupReport())
        if step.then == "agree":
            term, token, report.caught_up = self._groups.term(part), report.caught_up, 0
            # A new leader or a cancelled change may have lost the target again: look at the group once more.
            if term is not None and self._groups.agree_change(part, term, token):
                return
        self._queue.wake((WorkKind.GROUP, *part))
