"""What does a change of the row, or of the destination, do to what a primary has not delivered yet?

- primary_backup/P-2: When a row changes and this member stays primary, unfinished records are sent again at the new
  version, and their batches wait for the members that this row wants (primary_backup/P-1).
- primary_backup/P-3: When this member is no longer primary, what is unfinished is unknown, and said to be
  (`PendingAcks.abandon`).
"""

from __future__ import annotations

from operator import attrgetter

from holdfast.core.machine import Outbox
from holdfast.core.messages import Replicate, Section
from holdfast.core.model.ids import MemberId
from holdfast.core.model.records import Record, one_by_one
from holdfast.core.primary_backup.pending_acks import PendingAcks
from holdfast.core.primary_backup.replication_targets import ReplicationTargets
from holdfast.core.store.partition_copy import PartitionCopy


def retarget(copy: PartitionCopy, targets: ReplicationTargets, batches: PendingAcks, out: Outbox) -> None:
    """The row or the destination changed while this member is primary: primary_backup/P-1 and primary_backup/P-2."""
    partition = copy.partition
    assert targets.terms[partition] <= copy.term, "terms rise"
    targets.terms[partition] = copy.term
    for held in copy:
        targets.aim(partition, held)
    waiting = batches.again(partition)
    if not waiting:
        return
    again: dict[str, list[Record]] = {}
    for batch in waiting:
        batch.forget(partition)
        for held, update in batch.records[partition]:
            batch.wait_for(partition, held, batches.backlog.slow)
            for target in held.targets:
                again.setdefault(target, []).extend(one_by_one((update,)))
        for name in sorted(batch.resting.get(partition, ())):
            sync = targets.followers(partition, name)[1]
            batch.rest_on(partition, name, sync)
            for target in sorted(sync):
                again.setdefault(target, [])
    version = targets.rows[partition].version
    numbers = [batch.number for batch in waiting]
    for target, records in again.items():
        # Buffers of one turn may have joined batches crosswise: an older batch may hold newer updates.
        records.sort(key=attrgetter("counter"))
        out.send(
            MemberId(target),
            Replicate(numbers, [Section(partition, version, records, targets.terms[partition])]),
        )
    for batch in waiting:
        batches.look(batch)
