"""Which partitions of which maps are lost, and what must not be asked of them?

- routing/R-12: Of a map whose `loss_policy` does not ignore it nothing is read or written in a partition that its row
  names as lost, also when a member is back that holds it; with `read-only-safe` nothing of the map is written at all.
"""

from __future__ import annotations

from holdfast.config import Settings
from holdfast.config.schema import INTERNAL
from holdfast.core.model.operations import READS, Op, Outcome, Request, Status
from holdfast.core.placement.event_log import ranges_of

IGNORE, READ_ONLY = "ignore", "read-only-safe"
LOST = (
    "partitions {partitions} of map {name!r} are lost, and maps.{configured}.loss_policy is {policy!r}: start the "
    "members that held them, then give the order `holdfast cluster reset-lost`; if these are gone for good, "
    "`holdfast cluster accept-loss` comes first"
)
"""Why a request is refused, and what helps."""


class LostPartitions:
    """What the rows that this member has applied say of losses."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._of: dict[str, set[int]] = {}
        """By configured map, its lost partitions."""
        self.changes = 0
        """How often something else was lost than before."""

    def learn(self, partition: int, maps: tuple[str, ...]) -> bool:
        """These maps have lost this partition. Answers whether one can only be read now that could be written."""
        self.changes += 1
        read_only = self._read_only()
        for name, partitions in list(self._of.items()):
            partitions.discard(partition)
            if not partitions:
                del self._of[name]
        for name in maps:
            if self._settings.map(name).loss_policy == IGNORE:
                # It did not when this was declared.
                continue
            self._of.setdefault(name, set()).add(partition)
        return not self._read_only() <= read_only

    def _read_only(self) -> set[str]:
        return {name for name in self._of if self._settings.map(name).loss_policy == READ_ONLY}

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return bool(self._of)

    def concern(self, name: str) -> bool:
        """Whether the map has lost partitions."""
        return not name.startswith(INTERNAL) and self._settings.configured(name) in self._of

    def why_refused(self, request: Request) -> Outcome | None:
        """routing/R-12: the answer to a request on what is lost."""
        if request.op in (Op.CALL, Op.ASK) or not self.concern(request.map):
            return None
        configured = self._settings.configured(request.map)
        policy = self._settings.map(request.map).loss_policy
        lost = self._of[configured]
        touched = lost.intersection(request.partitions)
        if not touched and (policy != READ_ONLY or request.op in READS):
            return None
        partitions = ranges_of(sorted(touched or lost))
        detail = LOST.format(partitions=partitions, name=request.map, configured=configured, policy=policy)
        return Outcome(Status.LOST, None, detail)
