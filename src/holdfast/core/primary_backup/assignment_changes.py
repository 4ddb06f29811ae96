"""Retarget what a primary has not delivered yet, when its assignment or the destination of a migration changes.

- primary_backup/P-2: When the assignment changes and this member stays primary, unfinished records are sent again at
  the new version, and their batches wait for the members of the new assignment (primary_backup/P-1).
- primary_backup/P-3: When this member is no longer primary, the outcome of unfinished writes is unknown and reported as
  unknown (`PendingAcks.abandon`).

Example for primary_backup/P-2: a partition has primary 1 and the sync backups 2 and 3 at version 5. Batch 40 holds
update 18; member 2 has acknowledged it and member 3 has died. Version 6 names 1, 2 and 4. The batch stops waiting for
3, sends update 18 at version 6 to 2 and 4, and waits for both. Member 2 holds it already, and acknowledges again
(primary_backup/B-2). Member 4 must hold it before the client gets its answer: it may be the next primary.
"""

from __future__ import annotations

from operator import attrgetter

from holdfast.core.messages import Replicate, Section
from holdfast.core.model.ids import MemberId
from holdfast.core.model.records import Record, after_wait, one_by_one
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.pending_acks import PendingAcks
from holdfast.core.primary_backup.replication_targets import ReplicationTargets
from holdfast.core.store.partition_copy import PartitionCopy


def retarget(copy: PartitionCopy, targets: ReplicationTargets, batches: PendingAcks, out: Outbox) -> None:
    """Send unfinished records of a copy to the members of its present assignment, and wait for these
    (primary_backup/P-1, primary_backup/P-2). This member is, and stays, the primary.
    """
    partition = copy.partition
    assert targets.terms[partition] <= copy.term, "terms rise"
    targets.terms[partition] = copy.term
    for held in copy:
        targets.aim(partition, held)
    waiting = batches.to_resend(partition)
    if not waiting:
        return
    resent: dict[str, list[Record]] = {}
    for batch in waiting:
        batch.forget(partition)
        for held, update in batch.records[partition]:
            batch.wait_for(partition, held, batches.backlog.slow)
            for target in held.targets:
                waited_ns = out.now_ns - batch.since_ns
                records = [after_wait(record, waited_ns) for record in one_by_one((update,))]
                resent.setdefault(target, []).extend(records)
        for name in sorted(batch.pending_reads.get(partition, ())):
            sync = targets.confirming(partition, name)
            batch.add_read(partition, name, sync)
            for target in sorted(sync):
                resent.setdefault(target, [])
    version = targets.rows[partition].version
    numbers = [batch.number for batch in waiting]
    for target, records in resent.items():
        # Buffers of one turn may have joined batches crosswise: an older batch may hold newer updates.
        records.sort(key=attrgetter("counter"))
        out.send(
            MemberId(target),
            Replicate(numbers, [Section(partition, version, records, targets.terms[partition])]),
        )
    for batch in waiting:
        batches.look(batch)
