"""Requests that wait at a primary for a change of a collection: to poll an empty queue, or to add to a full one.

- routing/R-20: Requests that wait for the same collection are answered in the order of arrival. A change of it lets the
  first be decided again, then the next, up to one that still has to wait, which keeps its place. So the cost of a
  change depends on the requests that it serves, not on those that wait.
- routing/R-21: A request whose client has gone waits no longer, so that it takes no item. It is also sent to no other
  primary. An item that was taken before the member knew is lost with the client.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from holdfast.config import LimitSettings
from holdfast.core.model.collections import wait_of, with_remaining_wait
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import Op, Request
from holdfast.core.routing.pending import Asker, Parked

_Line = OrderedDict[int, Parked]
"""Requests with one operation on one collection, by number, first come first."""
WAIT_SHARE = 2
"""The call timeout divided by this is the longest wait for a change; `limits.waiting_requests` divided by it is the
largest number of requests that wait for changes of collections.
"""
_SPARE = 1000
"""So many deadlines of requests that wait no longer may stay."""


class CollectionWaits:
    def __init__(self, limits: LimitSettings) -> None:
        self._timeout_ns = limits.call_timeout_ms * MILLISECOND
        self._most = limits.waiting_requests // WAIT_SHARE
        self._lines: dict[int, dict[tuple[str, Op], _Line]] = {}
        """By partition."""
        self._by_asker: dict[Asker, Parked] = {}
        self._ends: list[tuple[int, int, Parked]] = []
        """A heap of the ends of waits, with the numbers of the requests."""
        self._numbered = 0
        self.elsewhere: dict[Asker, Parked] = {}
        """Steps that another member decides, or that wait for a primary."""

    def __len__(self) -> int:
        """Those that wait here."""
        return len(self._by_asker)

    def __iter__(self) -> Iterator[Parked]:
        return iter(self._by_asker.values())

    def are_many(self, request: Request) -> bool:
        """Whether so many wait, here or elsewhere, that this one must not (routing/R-6)."""
        return len(self) + len(self.elsewhere) >= self._most and wait_of(request) > 0

    def end_of_wait(self, parked: Parked, wait_ms: int) -> int:
        """The time at which a step stops waiting that may wait so long after its arrival (routing/R-11)."""
        arrived_ns = parked.deadline_ns - self._timeout_ns
        return arrived_ns + min(wait_ms * MILLISECOND, self._timeout_ns // WAIT_SHARE)

    def limit_wait(self, parked: Parked, now_ns: int) -> None:
        """Limit the wait of a step that another member decides (routing/R-11)."""
        if not parked.until_ns:
            wait_ms = wait_of(parked.request)
            if not wait_ms:
                return
            parked.until_ns = self.end_of_wait(parked, wait_ms)
        left_ms = max(0, parked.until_ns - now_ns) // MILLISECOND
        parked.request = with_remaining_wait(parked.request, left_ms)

    def add(self, parked: Parked) -> None:
        """To the end of its line; to the beginning if it has had a place there."""
        request = parked.request
        line = self._lines.setdefault(request.partitions[0], {}).setdefault(
            (request.map, request.op), OrderedDict()
        )
        again = parked.number > 0
        if not again:
            self._numbered = parked.number = self._numbered + 1
        line[parked.number] = parked
        self.elsewhere.pop(parked.asker, None)
        if again:
            line.move_to_end(parked.number, last=False)
        assert parked.asker not in self._by_asker, "an asker waits for one answer"
        self._by_asker[parked.asker] = parked
        heappush(self._ends, (parked.until_ns, parked.number, parked))
        if len(self._ends) > 2 * len(self) + _SPARE:
            self._ends = [one for one in self._ends if self._waits(one[2])]
            heapify(self._ends)

    def _waits(self, parked: Parked) -> bool:
        return self._by_asker.get(parked.asker) is parked

    def _remove(self, parked: Parked) -> None:
        request = parked.request
        partition, which = request.partitions[0], (request.map, request.op)
        lines = self._lines[partition]
        del lines[which][parked.number]
        if not lines[which]:
            del lines[which]
        if not lines:
            del self._lines[partition]
        del self._by_asker[parked.asker]

    def woken(self, partition: int, name: str) -> Iterator[Parked]:
        """The collection has changed: those to be decided again, before the next one is taken (routing/R-20)."""
        for op in (Op.TAKE_FROM_COLLECTION, Op.ADD_TO_COLLECTION):
            while line := self._lines.get(partition, {}).get((name, op)):
                first = next(iter(line.values()))
                self._remove(first)
                yield first
                if self._waits(first):
                    break

    def take_all(self, partition: int) -> list[Parked]:
        """Those of this partition wait here no longer; in the order of arrival."""
        lines = self._lines.get(partition, {})
        found = sorted((one for line in lines.values() for one in line.values()), key=_number)
        return self.take_these(found)

    def take_due(self, now_ns: int) -> list[Parked]:
        """Those whose wait is over."""
        due: list[Parked] = []
        while self._ends and self._ends[0][0] <= now_ns:
            parked = heappop(self._ends)[2]
            if self._waits(parked):
                self._remove(parked)
                due.append(parked)
        return due

    def take(self, asker: Asker) -> Parked | None:
        """The request of this asker, which waits no longer (routing/R-21)."""
        parked = self._by_asker.get(asker)
        if parked is not None:
            self._remove(parked)
        return parked

    def take_these(self, some: Iterable[Parked]) -> list[Parked]:
        found = list(some)
        for parked in found:
            self._remove(parked)
            parked.number = 0
        return found

    @property
    def first_end_ns(self) -> int:
        """0: nothing waits."""
        while self._ends and not self._waits(self._ends[0][2]):
            heappop(self._ends)
        return self._ends[0][0] if self._ends else 0


def _number(parked: Parked) -> int:
    return parked.number
