"""Lost partitions of maps, and the requests that are rejected because of them.

- routing/R-12: If a map's `loss_policy` does not ignore losses, nothing of it is read or written in a partition whose
  assignment names it as lost, even when a member that holds it is back. With `read-only-safe` the map is not written at
  all. A transaction cannot lock or prepare anything there either. Branches prepared before are ended, because they may
  be committed elsewhere.
"""

from __future__ import annotations

from holdfast.config import Settings
from holdfast.config.schema import INTERNAL, TRANSACTIONS_MAP
from holdfast.core.model.operations import READS, Op, Outcome, Request, Status
from holdfast.core.model.transactions import LockKeys, PrepareBranch, TransactionStep, decode_step
from holdfast.core.partition_table.event_log import ranges_of

IGNORE, READ_ONLY = "ignore", "read-only-safe"
LOST = (
    "partitions {partitions} of map {name!r} are lost, and maps.{configured}.loss_policy is {policy!r}: start the "
    "members that held them, then give the order `holdfast cluster reset-lost`; if these are gone for good, "
    "`holdfast cluster accept-loss` comes first"
)


class LostPartitions:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._of: dict[str, set[int]] = {}

    def learn(self, partition: int, maps: tuple[str, ...]) -> bool:
        """Set the maps that have lost this partition. Returns whether another map has become read-only."""
        read_only = self._read_only()
        for name, partitions in list(self._of.items()):
            partitions.discard(partition)
            if not partitions:
                del self._of[name]
        for name in maps:
            if self._settings.map(name).loss_policy == IGNORE:
                # The policy has changed since the loss was declared.
                continue
            self._of.setdefault(name, set()).add(partition)
        return not self._read_only() <= read_only

    def _read_only(self) -> set[str]:
        return {name for name in self._of if self._settings.map(name).loss_policy == READ_ONLY}

    @property
    def any(self) -> bool:
        return bool(self._of)

    def concern(self, name: str) -> bool:
        return not name.startswith(INTERNAL) and self._settings.configured(name) in self._of

    def rejection(self, request: Request) -> Outcome | None:
        """See routing/R-12."""
        if not self._of or request.op in (Op.CALL, Op.ASK):
            return None
        if request.op is Op.TRANSACT and request.map == TRANSACTIONS_MAP:
            return self._step_rejection(request.partitions, decode_step(request.value))
        return self._map_rejection(request.map, request.partitions, reads=request.op in READS)

    def _step_rejection(self, partitions: list[int], step: TransactionStep) -> Outcome | None:
        """The entries of the step count, not the place of its locks."""
        read: set[str] = set()
        written: set[str] = set()
        if isinstance(step, LockKeys):
            read.update(name for name, _ in step.keys)
        elif isinstance(step, PrepareBranch):
            read.update(seen.map for seen in step.seen)
            written.update(write.map for write in step.writes)
        for name in sorted(read | written):
            refused = self._map_rejection(name, partitions, reads=name not in written)
            if refused is not None:
                return refused
        return None

    def _map_rejection(self, name: str, partitions: list[int], *, reads: bool) -> Outcome | None:
        if not self.concern(name):
            return None
        configured = self._settings.configured(name)
        policy = self._settings.map(name).loss_policy
        lost = self._of[configured]
        touched = lost.intersection(partitions)
        if not touched and (policy != READ_ONLY or reads):
            return None
        told = ranges_of(sorted(touched or lost))
        detail = LOST.format(partitions=told, name=name, configured=configured, policy=policy)
        return Outcome(Status.LOST, None, detail)
