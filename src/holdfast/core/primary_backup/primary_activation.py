"""Activation of a new primary (DESIGN rule 5).

- primary_backup/O-1: A new primary serves only after every other replica of its assignment has reported that it knows
  the assignment and holds what the primary holds.
- primary_backup/O-2: A replica that holds something else is filled from the primary first. Its old copy stays until the
  new one is complete, so no crash in between costs an acknowledged write.
- primary_backup/O-3: When a replica comes back in a new life, the primary stops serving and activates again.
- primary_backup/O-4: Only the former primary knew when an entry was last used. A new primary treats all as used just
  now; otherwise entries in constant use would expire.
- primary_backup/O-5: While a stopped cluster recovers, replicas do not report, so no primary serves. They report in the
  view that ends the recovery, when that view is durable. If the operator has accepted a loss, it has a new entry in the
  history of the baseline (membership/B-5): no member holds an acknowledged write without that entry.
- primary_backup/O-6: A new primary serves only when it knows all locks that the former one has left in its copy. It
  reads them in slices.

Example for primary_backup/O-1: primary 1 has sent update 18 to member 2, not yet to member 3, and crashes. Member 2
becomes primary and serves update 18 to a reader. If it crashed now, member 3 would become primary and the reader's
value would be gone. So member 2 sends `Enlist` with its counters, and member 3 answers `Enlisted`: equal or not.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Final

from holdfast.core.journal.log import Log
from holdfast.core.messages import Enlist, Enlisted
from holdfast.core.model.ids import MemberId
from holdfast.core.model.lifecycle import Lifecycle
from holdfast.core.model.notices import (
    ActivationBegan,
    CopyDurable,
    LeadershipTaken,
    ReplicaDiffers,
    ViewInstalled,
)
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.timer_name import TimerName
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.local_replicas import LocalReplicas


@unique
class LeadershipPhase(StrEnum):
    NONE = "not the primary"
    ENLISTING = "taking office"
    """See primary_backup/O-1."""
    SERVING = "in office"
    """Requests pause during the handover of a partition."""


@unique
class LeadershipStep(StrEnum):
    NAMED = "its assignment names this member as primary"
    EQUAL = "all replicas hold what it holds"
    CANCELLED = "the assignment changes, or a replica is back"


_P, _S = LeadershipPhase, LeadershipStep
LEADERSHIP: Final[Lifecycle[LeadershipPhase, LeadershipStep]] = Lifecycle(
    "the primary of a partition",
    _P.NONE,
    {
        (_P.NONE, _S.NAMED): _P.ENLISTING,
        (_P.ENLISTING, _S.EQUAL): _P.SERVING,
        **{(phase, _S.CANCELLED): _P.NONE for phase in _P},
    },
)


class PrimaryActivation:
    def __init__(
        self,
        me: MemberId,
        out: Outbox,
        rows: list[Assignment],
        copies: LocalReplicas,
        log: Log,
    ) -> None:
        self._me = me
        self._out = out
        self._rows = rows
        self._copies = copies
        self._log = log
        self.active: set[int] = set()
        """Served here as primary, or paused."""
        self._waiting: dict[int, set[MemberId]] = {}
        """Replicas that may lack something, while activating."""
        self._calls: dict[MemberId, list[tuple[int, int, list[tuple[str, int, int]]]]] = {}
        self._restoring: dict[int, None] = {}
        """Partitions whose locks are still read; their copies are durable."""
        self._recovering = False
        """See primary_backup/O-5."""

    def on_view(self, notice: ViewInstalled) -> None:
        recovered = self._recovering
        self._recovering = notice.new is not None and notice.new.recovering
        if recovered and not self._recovering:
            for partition in list(self._waiting):
                self._wait_for_disk(partition)

    def phase(self, partition: int) -> LeadershipPhase:
        if partition in self._waiting:
            return _P.ENLISTING
        return _P.SERVING if partition in self.active else _P.NONE

    def _step(self, partition: int, step: LeadershipStep) -> None:
        """Raises InvariantBroken if this step leads nowhere."""
        phase = LEADERSHIP.after(self.phase(partition), step)
        if phase is _P.ENLISTING:
            self._waiting[partition] = set()
        else:
            self._waiting.pop(partition, None)
        self._restoring.pop(partition, None)
        if phase is _P.SERVING:
            self.active.add(partition)
        else:
            self.active.discard(partition)
        assert self.phase(partition) is phase, "the phase is the one of the step"
        assert partition not in self.active or partition not in self._waiting, (
            "a partition is activating or active, not both"
        )

    def begin(self, partition: int) -> None:
        """Begin to activate; `LeadershipTaken` reports that it has succeeded."""
        row = self._rows[partition]
        assert row.owner == self._me, "the assignment names the primary"
        assert self._copies.held[partition].epoch == row.epoch, "the copy is of the assignment's epoch"
        self.cancel(partition)
        self._step(partition, _S.NAMED)
        self._out.notify(ActivationBegan(partition))
        others = {member for member in row.holding[1:] if member is not None}
        # Its own copy counts when it is durable: it may answer for writes without any acknowledgement yet.
        self._waiting[partition] = others | {self._me}
        copy = self._copies.held[partition]
        for index, member in enumerate(row.holding):
            if index and member is not None:
                counters = self._copies.counters(copy, index)
                self._calls.setdefault(member, []).append((partition, row.version, counters))
        assert len(self._waiting[partition]) > len(others), "its own disk is waited for, too"
        if not self._recovering:
            self._wait_for_disk(partition)

    def _wait_for_disk(self, partition: int) -> None:
        self._log.notify_when_durable(CopyDurable(partition, self._rows[partition].version))

    def on_durable(self, notice: CopyDurable) -> None:
        if self._rows[notice.partition].version == notice.version and notice.partition in self._waiting:
            self._restoring[notice.partition] = None
            self._read_locks(notice.partition)

    def _read_locks(self, partition: int) -> None:
        """Its own copy counts when its locks are known (primary_backup/O-6)."""
        if self._copies.held[partition].locks.restored:
            del self._restoring[partition]
            self.holds(partition, self._me)
        else:
            self._out.timer(TimerName.RESTORE, 0)

    def on_locks(self) -> None:
        """One slice of one partition, so that a step stays short."""
        partition = next(iter(self._restoring), None)
        if partition is not None:
            self._copies.held[partition].locks.restore_more()
            self._read_locks(partition)
        if self._restoring:
            self._out.timer(TimerName.RESTORE, 0)

    def flush(self) -> None:
        if self._calls:
            calls, self._calls = self._calls, {}
            for member, partitions in calls.items():
                self._out.send(member, Enlist(partitions))

    def on_enlisted(self, sender: MemberId, message: Enlisted) -> None:
        for partition, version, same in message.partitions:
            waiting = self._waiting.get(partition)
            if waiting is None or version != self._rows[partition].version or sender not in waiting:
                continue
            if same:
                self.holds(partition, sender)
            else:
                self._out.notify(ReplicaDiffers(partition, sender))

    def holds(self, partition: int, member: MemberId) -> None:
        """Note that this member knows the assignment and holds what the primary holds."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            return
        waiting.discard(member)
        if not waiting:
            self._become_primary(partition)

    def _become_primary(self, partition: int) -> None:
        assert not self._waiting[partition], "all replicas hold the same (primary_backup/O-1)"
        assert self._copies.held[partition].locks.restored, "its locks are known (primary_backup/O-6)"
        assert self._rows[partition].owner == self._me, "the assignment names the primary"
        assert partition in self._copies.held, "a primary holds what it serves"
        self._step(partition, _S.EQUAL)
        self._copies.held[partition].used(self._out.now_ns)
        self._out.notify(LeadershipTaken(partition))

    def cancel(self, partition: int) -> None:
        self._step(partition, _S.CANCELLED)
        assert self.phase(partition) is LeadershipPhase.NONE, "a cancelled primary is not active"
        for calls in self._calls.values():
            calls[:] = [call for call in calls if call[0] != partition]

    @property
    def leftovers(self) -> dict[str, int]:
        return {
            "primaries taking office": len(self._waiting),
            "primaries that read locks": len(self._restoring),
            "enlistments not sent": len(self._calls),
        }

    @property
    def pending(self) -> int:
        return len(self._waiting)
