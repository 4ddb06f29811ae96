"""Engine 2: a Raft group per partition; a request is decided when its log entry is applied.

The log holds the requests, with the time of the leader that accepted them, so all replicas decide alike. A change
passes through `proposals` into the log and, when it is committed, through `zone_partition` to the `state_machine`. A
read waits in `read_barrier` until a majority has confirmed the leader.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import msgspec

from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.collections.collection_steps import is_clear
from holdfast.core.model.decisions import Decision, Wait
from holdfast.core.model.ids import MemberId
from holdfast.core.model.map_moves import CLOSED, NOT_DUE, PauseMap, decode_move_step
from holdfast.core.model.operations import (
    CLEARING,
    MOVING,
    READS,
    STEPS,
    STRUCTURE_CHANGES,
    EntryEvent,
    Op,
    Outcome,
    Request,
    Status,
    Value,
)
from holdfast.core.model.waiting_steps import for_log
from holdfast.core.model.zone_batches import ZoneChanges
from holdfast.core.operations.map_operations import decide_whole, merge
from holdfast.core.operations.move_steps import decide_move
from holdfast.core.raft_partition.proposals import LOCKED
from holdfast.core.raft_partition.stepwise_clearing import StepwiseClearing
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.core.raft_partition.zone_replicas import NOT_LEADING, Answered, ZoneReplicas
from holdfast.core.replication_engine import Decided, ReplicationEngineDelegate, ShareDone
from holdfast.core.store.move_marks import is_closed


@dataclass(slots=True)
class _Whole:
    request: Request
    done: ShareDone
    missed: list[int]
    waiting: int
    value: Value = None
    failed: Outcome | None = None


class ConsensusReplication:
    decides_later = True
    crowded = False
    refusing = False
    running = 0

    def __init__(self, zone: ZoneReplicas) -> None:
        self._zone = zone
        self.partitions: dict[int, ZonePartition] = {}
        """By client partition: the replica that serves it, perhaps with others."""
        self._dirty: set[int] = set()

    def serve(self, delegate: ReplicationEngineDelegate) -> None:
        """There is no long work to start, so the delegate is not needed."""

    def leads(self, partition: int) -> bool:
        found = self.partitions.get(partition)
        return found is not None and found.leads

    def joining(self, partition: int) -> MemberId | None:
        """Records are sent inside the group only."""
        return None

    def publish(self, event: EntryEvent) -> None:
        if event.map in self._zone.sink.listening:
            self._zone.sink.hear(event)

    def on_timer(self) -> None: ...

    def submit(self, request: Request, done: Decided, *, late: bool = False, behind: bool = False) -> None:
        partition = request.partitions[0]
        found = self.partitions[partition]
        assert found.leads, "only the leader is given requests"
        if (rejected := self._rejection(found, request)) is not None:
            done(rejected)
            return
        self._dirty.add(partition)
        if request.op in STEPS:
            found.locks.submit(request, done, late=late)
        elif request.op in READS:
            if request.map == TRANSACTIONS_MAP and request.op is Op.CONTAINS_KEY:
                done(Outcome(Status.OK, found.locks.holds(partition, request.key)))
            else:
                found.reads.submit(request, done)
        elif request.op is Op.PROCESS:
            found.locks.process(request, done, late=late)
        elif request.op in STRUCTURE_CHANGES:
            self._submit_item_step(found, request, done, late=late, behind=behind)
        elif (waits := found.locks.wait_of(request)) is None:
            found.proposals.submit(request, done)
        elif isinstance(waits, Wait) and not late:
            done(waits)
        else:
            found.locks.reject(request, _ended(waits), done)

    def end_run(self, request: Request) -> None:
        found = self.partitions.get(request.partitions[0])
        if found is not None:
            found.locks.end_run(request)

    def _submit_item_step(
        self, found: ZonePartition, request: Request, done: Decided, *, late: bool, behind: bool
    ) -> None:
        """raft_partition/Z-14."""
        if not late and (wait := found.state.must_wait(request, behind=behind)) is not None:
            done(wait)  # As far as this leader knows; what it applies later wakes the request.
            return

        def decided(outcome: Outcome | Wait) -> None:
            if not isinstance(outcome, Wait):  # The next one in its line is decided now (routing/R-20).
                self._zone.changed[found.number, request.partitions[0], request.map, request.key] = None
            done(outcome)

        if request.map in self._zone.sink.listening and is_clear(request):
            StepwiseClearing(request, found.state, self, partial(_cleared, decided)).begin()
            return
        proposed = for_log(request, self._zone.settings.limits.answer_bytes, late=late)
        found.proposals.submit(proposed, decided)

    def _rejection(self, found: ZonePartition, request: Request) -> Outcome | None:
        """Why a step of a move (operations/V-1, operations/V-3), or a request for a map that moves, is rejected."""
        if request.op in MOVING:
            step = decode_move_step(request.value)
            if not self._zone.moves.is_due(request.map, step):
                return NOT_DUE
            partition = request.partitions[0]
            if not isinstance(step, PauseMap) or not found.locks.guards(partition, request.map):
                return None
            maps = found.state.copies[partition].maps
            return Outcome(Status.OK, decide_move(maps, request.map, step, 0, locked=True).answer)
        copy = found.state.copies[request.partitions[0]]
        if not is_closed(copy.maps, request.map) or (
            request.id and copy.applied(request.id, request.map) is not None
        ):
            return None
        return CLOSED

    def change(self, partition: int, changes: list[ZoneChanges], on_done: Answered) -> None:
        """Propose changes of one map. `on_done` is called once, with a list of answers."""
        found = self.partitions.get(partition)
        if found is None:
            on_done(NOT_LEADING)
            return
        if found.locks.hold_up(partition, changes):
            on_done(LOCKED)
            return
        self._dirty.add(partition)
        found.proposals.change(changes, on_done)

    def propose(self, request: Request, on_done: Answered) -> None:
        """`on_done` is called once."""
        partition = request.partitions[0]
        found = self.partitions.get(partition)
        if found is None:
            on_done(NOT_LEADING)
            return
        if request.op in CLEARING and found.locks.guards(partition, request.map):
            on_done(LOCKED)
            return
        self._dirty.add(partition)
        found.proposals.submit(request, on_done)

    def submit_whole(self, request: Request, done: ShareDone) -> int:
        """One request for each partition led here."""
        led = [partition for partition in request.partitions if self.leads(partition)]
        missed = [partition for partition in request.partitions if not self.leads(partition)]
        whole = _Whole(request, done, missed, len(led))
        if not led:
            done(Outcome(Status.OK, decide_whole(None, request, 0).answer), [], missed)
        for partition in led:
            self._dirty.add(partition)
            share = msgspec.structs.replace(request, partitions=[partition])
            found = self.partitions[partition]
            on_done = _ShareOf(whole, partition)
            if share.op in CLEARING and found.locks.guards(partition, share.map):
                on_done(LOCKED)
            elif share.op in CLEARING and self._zone.settings.map(share.map).changes_bytes:
                StepwiseClearing(share, found.state, self, on_done).begin()
            else:
                (found.reads if share.op in READS else found.proposals).submit(share, on_done)
        return len(led)

    @property
    def dirty(self) -> bool:
        return bool(self._dirty)

    def flush(self) -> None:
        while self._dirty:
            dirty, self._dirty = sorted(self._dirty), set()
            for partition in dirty:
                found = self.partitions.get(partition)
                if found is not None:
                    found.flush()

    def sweep(self) -> None:
        for found in self._replicas():
            found.sweep()

    @property
    def waiting(self) -> int:
        return sum(found.waiting for found in self._replicas())

    def _replicas(self) -> list[ZonePartition]:
        return list(dict.fromkeys(found for _, found in sorted(self.partitions.items())))


def _ended(waits: Wait | Decision) -> Outcome:
    """The outcome of a change that waits no longer for a lock."""
    if isinstance(waits, Decision):
        return Outcome(Status.OK, waits.answer)
    return Outcome(Status.NOT_READY, None, waits.refused)


def _cleared(done: Answered, outcome: Outcome) -> None:
    """All items of a collection were removed one by one, for their listeners."""
    done(Outcome(Status.OK) if outcome.status is Status.OK else outcome)


class _ShareOf:
    __slots__ = ("_partition", "_whole")

    def __init__(self, whole: _Whole, partition: int) -> None:
        self._whole = whole
        self._partition = partition

    def __call__(self, outcome: Outcome) -> None:
        whole = self._whole
        whole.waiting -= 1
        assert whole.waiting >= 0, "each share is told once"
        if outcome.status is Status.OK:
            whole.value = merge(whole.request.op, whole.value, outcome.value)
        elif outcome.status in (Status.MOVED, Status.NOT_READY):
            whole.missed.append(self._partition)
        else:
            whole.failed = outcome
        if whole.waiting:
            return
        value = whole.value
        if value is None:
            value = decide_whole(None, whole.request, 0).answer
        whole.done(whole.failed or Outcome(Status.OK, value), [], sorted(whole.missed))
