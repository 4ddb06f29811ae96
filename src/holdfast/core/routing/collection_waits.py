"""Requests that wait at a primary for a change of a collection: to poll an empty queue, to add to a full one, or to
read an item that a ringbuffer does not have yet.

- routing/R-20: Requests that wait for the same collection are answered in the order of arrival. A change of it lets the
  first be decided again, then the next, up to one that still has to wait, which keeps its place. So the cost of a
  change depends on the requests that it serves, not on those that wait. In a group, where a decision takes a while,
  the next one is decided after it, and a new request goes to the end of the line.
- routing/R-22: All that wait for the same item of a ringbuffer get it: those that need the lowest sequence come first,
  and requests that need a later one are not looked at.
- routing/R-23: Requests that wait for the end of a transaction that has locked the collection have lines of their own.
  Example: a poll waits for an item, and behind it a clear for the lock. When the lock is released and no item was
  added, the poll still waits, and the clear is done.
- routing/R-24: Requests for one collection are decided again in steps of some ms, each with `WOKEN_ITEMS` items.
- routing/R-21: A request whose client has gone waits no longer, so that it takes no item. It is also sent to no other
  primary. An item that was taken before the member knew is lost with the client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from holdfast.config import LimitSettings
from holdfast.core.collections.changed_collections import Line
from holdfast.core.model.collections import decode_step
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.waiting_steps import wait_of, with_remaining_wait
from holdfast.core.routing.pending import Asker, Parked

_Which = tuple[str, bytes, Op, bool]
"""Map, key and operation, and whether these requests wait for the end of a transaction. Only locks, entries that
they guard, and CP objects have a key.
"""
_WAITING = (Op.TAKE_FROM_COLLECTION, Op.ADD_TO_COLLECTION, Op.AWAIT_ITEMS, Op.CHANGE_CP)
WAIT_SHARE = 2
"""The call timeout divided by this is the longest wait for a change; `limits.waiting_requests` divided by it is the
largest number of requests that wait for changes of collections.
"""
WOKEN_ITEMS = 10_000
REQUEST_ITEMS = 50
"""A request costs as much as so many items, besides those that a reader may get."""
CP_ITEMS = 500
"""A request for permits of a semaphore as much as these, because it may have many holders."""
_SPARE = 1000
"""So many deadlines of requests that wait no longer may stay."""


class WaitingLine:
    """Requests with one operation on one collection: those with the smallest need first, then first come first."""

    __slots__ = ("_order", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, Parked] = {}
        self._order: list[tuple[int, int]] = []
        """A heap of needs and numbers, also of some requests that wait no longer."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[Parked]:
        return iter(self._waiting.values())

    def add(self, parked: Parked) -> None:
        self._waiting[parked.number] = parked
        heappush(self._order, (_need(parked), parked.number))
        if len(self._order) > 2 * len(self._waiting) + _SPARE:
            self._order = sorted((_need(one), number) for number, one in self._waiting.items())

    def remove(self, parked: Parked) -> None:
        del self._waiting[parked.number]

    @property
    def first(self) -> Parked:
        while True:
            need, number = self._order[0]
            parked = self._waiting.get(number)
            if parked is not None and _need(parked) == need:
                return parked
            heappop(self._order)


def _waits_for_transaction(parked: Parked) -> bool:
    return parked.wait is not None and bool(parked.wait.holder)


def _which(parked: Parked) -> _Which:
    request = parked.request
    return request.map, request.key, request.op, _waits_for_transaction(parked)


def _cost(parked: Parked) -> int:
    """In items."""
    if parked.request.op is Op.CHANGE_CP:
        return CP_ITEMS
    reads = parked.request.op is Op.AWAIT_ITEMS
    return REQUEST_ITEMS + (max(0, decode_step(parked.request.value).end) if reads else 0)


def _need(parked: Parked) -> int:
    return parked.wait.need if parked.wait is not None else 0


class CollectionWaits:
    def __init__(self, limits: LimitSettings) -> None:
        self._timeout_ns = limits.call_timeout_ms * MILLISECOND
        self._most = limits.waiting_requests // WAIT_SHARE
        self._lines: dict[int, dict[_Which, WaitingLine]] = {}
        """By partition."""
        self._decisions: dict[tuple[int, str, bytes, Op], int] = {}
        """Number of requests that have waited and are being decided, by partition, map, key and operation."""
        self._by_asker: dict[Asker, Parked] = {}
        self._ends: list[tuple[int, int, Parked]] = []
        """A heap of the ends of waits, with the numbers of the requests."""
        self._numbered = 0
        self.elsewhere: dict[Asker, Parked] = {}
        """Steps that another member decides, or that wait for a primary."""
        self.unfinished: dict[Line, None] = {}
        """Lines with more requests to wake (routing/R-24)."""

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
        """To the end of its line; to its former place if it has had one there."""
        request = parked.request
        lines = self._lines.setdefault(request.partitions[0], {})
        if not parked.number:
            self._numbered = parked.number = self._numbered + 1
        lines.setdefault(_which(parked), WaitingLine()).add(parked)
        self.elsewhere.pop(parked.asker, None)
        assert parked.asker not in self._by_asker, "an asker waits for one answer"
        self._by_asker[parked.asker] = parked
        heappush(self._ends, (parked.until_ns, parked.number, parked))
        if len(self._ends) > 2 * len(self) + _SPARE:
            self._ends = [one for one in self._ends if self._waits(one[2])]
            heapify(self._ends)

    def _waits(self, parked: Parked) -> bool:
        return self._by_asker.get(parked.asker) is parked

    def _remove(self, parked: Parked) -> None:
        partition, which = parked.request.partitions[0], _which(parked)
        lines = self._lines[partition]
        lines[which].remove(parked)
        if not lines[which]:
            del lines[which]
        if not lines:
            del self._lines[partition]
        del self._by_asker[parked.asker]

    def lock_lines(self, partition: int) -> list[tuple[str, bytes]]:
        """Locks of this partition that requests wait for, and keys of multimaps, which may be locked."""
        return list(dict.fromkeys((name, key) for name, key, *_ in self._lines.get(partition, ()) if key))

    def woken(self, partition: int, name: str, key: bytes) -> Iterator[Parked]:
        """The collection or lock has changed: those to be decided again, before the next one is taken
        (routing/R-20).
        """
        if (partition, name, key) in self.unfinished:
            return
        items = 0
        for op in _WAITING:
            lines = {(name, key, op, False), (name, key, op, True)}
            while first := self._first(partition, lines):
                if (partition, name, key, op) in self._decisions:
                    break
                if items >= WOKEN_ITEMS:
                    self.unfinished[partition, name, key] = None
                    return
                items += _cost(first)
                self._remove(first)
                yield first
                if not self._waits(first):
                    continue
                if _waits_for_transaction(first):
                    break
                which = _which(first)
                if self._lines[partition][which].first is first:
                    lines.discard(which)

    def _first(self, partition: int, some: Iterable[_Which]) -> Parked | None:
        """The request that has come first, of the first ones of these lines."""
        lines = self._lines.get(partition, {})
        return min((lines[one].first for one in some if one in lines), key=_number, default=None)

    def has_line(self, request: Request) -> bool:
        """Whether others wait for the same, or are being decided after they have waited."""
        partition, name, key, op = _place_of(request)
        lines = self._lines.get(partition, {})
        waits = (name, key, op, False) in lines or (name, key, op, True) in lines
        return waits or (partition, name, key, op) in self._decisions

    def begin_decision(self, parked: Parked) -> None:
        """The engine decides this one, which has waited, and says so later (`end_decision`)."""
        assert not parked.in_decision, "a request is decided once at a time"
        parked.in_decision = True
        place = _place_of(parked.request)
        self._decisions[place] = self._decisions.get(place, 0) + 1

    def end_decision(self, parked: Parked) -> None:
        parked.in_decision = False
        place = _place_of(parked.request)
        self._decisions[place] -= 1
        if not self._decisions[place]:
            del self._decisions[place]

    def take_unfinished(self) -> list[Line]:
        """None is left."""
        found = list(self.unfinished)
        self.unfinished.clear()
        return found

    def take_all(self, partition: int) -> list[Parked]:
        """Those of this partition wait here no longer; in the order of arrival."""
        lines = self._lines.get(partition, {})
        found = sorted((one for line in lines.values() for one in line), key=_number)
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


def _place_of(request: Request) -> tuple[int, str, bytes, Op]:
    return request.partitions[0], request.map, request.key, request.op


def _number(parked: Parked) -> int:
    return parked.number
