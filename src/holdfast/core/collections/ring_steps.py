"""Steps of a ringbuffer, whose items have sequences: 0, 1, 2, …

- collections/B-1: A sequence is given once while the ringbuffer exists, also after all items have expired. Where items
  can expire, the last sequence is an entry of its own.
- collections/B-2: An answer shows only what the backups hold. Otherwise a reader might get an item with a sequence that
  another item has after a crash.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from holdfast.core.collections.ordered_steps import LOOKED_MAX, REMOVED_MAX
from holdfast.core.model.collections import CollectionStep, StepKind
from holdfast.core.model.decisions import Decision, Update, Wait
from holdfast.core.model.records import Change
from holdfast.core.store.derived_index import index_of
from holdfast.core.store.map_state import MapState

SEQUENCE_BYTES = 8
TAIL_KEY = b"tail"
"""Its value is the last sequence. It is there if items can expire."""


def key_of(sequence: int) -> bytes:
    return sequence.to_bytes(SEQUENCE_BYTES, "big", signed=True)


def sequence_of(key: bytes) -> int:
    return int.from_bytes(key, "big", signed=True)


class RingBounds:
    """An `Observer`: the first sequence that has an item, and the last one that was given."""

    __slots__ = ("head", "tail")

    def __init__(self, entries: Mapping[bytes, bytes]) -> None:
        self.head, self.tail = 0, -1
        keys = [key for key in entries if len(key) == SEQUENCE_BYTES]
        if keys:
            self.tail = sequence_of(max(keys))
        self._see_tail(entries)
        self.head = sequence_of(min(keys)) if keys else self.tail + 1

    def _see_tail(self, entries: Mapping[bytes, bytes]) -> None:
        if TAIL_KEY in entries:
            self.tail = max(self.tail, sequence_of(entries[TAIL_KEY]))

    def absorb(self, touched: Mapping[bytes, bytes | None], entries: Mapping[bytes, bytes]) -> None:
        here = [key for key in touched if key in entries and len(key) == SEQUENCE_BYTES]
        if here:
            self.head = min(self.head, sequence_of(min(here)))
            self.tail = max(self.tail, sequence_of(max(here)))
        if TAIL_KEY in touched:
            self._see_tail(entries)
        if len(entries) == (TAIL_KEY in entries):
            self.head = self.tail + 1
        self._pass_removed(len(touched), entries)

    def _pass_removed(self, most: int, entries: Mapping[bytes, bytes]) -> None:
        """The head follows the items that were removed. A longer gap is that of a damaged copy: an entry that was never
        added may have any sequence.
        """
        for _ in range(most + 1):
            if self.head > self.tail or key_of(self.head) in entries:
                return
            self.head += 1
        keys = [key for key in entries if len(key) == SEQUENCE_BYTES]
        self.head = sequence_of(min(keys)) if keys else self.tail + 1

    def complete(self, entries: Mapping[bytes, bytes]) -> bool:
        self.head, self.tail = 0, -1
        return True


class RingSteps:
    def __init__(self, state: MapState | None, now_ns: int) -> None:
        bounds = index_of(state, RingBounds) if state is not None else RingBounds({})
        self._entries: Mapping[bytes, bytes] = state.entries if state is not None else {}
        self._first, self._tail = bounds.head, bounds.tail
        self._head = self._first
        """The first item that has not expired. Primaries remove expired items a little later."""
        if state is not None and state.expiries:
            sequences = range(self._first, self._tail + 1)
            alive = bisect_left(
                sequences, 1, key=lambda one: not state.expired(key_of(one), now_ns, touch=False)
            )
            self._head = self._first + alive

    def decide(self, step: CollectionStep, items: Sequence[bytes]) -> Decision | Wait:
        kind = step.kind
        if kind is StepKind.APPEND or kind is StepKind.APPEND_IF_ROOM:
            return self._append(step, items)
        if kind is StepKind.READ_ITEM:
            return self._read_item(step)
        if kind is StepKind.READ_ITEMS:
            return self._read_items(step)
        answers = {
            StepKind.SIZE: self._tail - self._head + 1,
            StepKind.HEAD: self._head,
            StepKind.TAIL: self._tail,
        }
        return Decision(answers[kind], unconfirmed=True)

    def _append(self, step: CollectionStep, items: Sequence[bytes]) -> Decision:
        if not items:
            return Decision(self._tail, unconfirmed=True)
        capacity = max(1, step.max_size)
        full = self._tail - self._head + 1 + len(items) > capacity
        # Without a time to live there would never be room again.
        if full and step.kind is StepKind.APPEND_IF_ROOM and step.ttl_ms:
            return Decision(-1, unconfirmed=True)
        last = self._tail + len(items)
        kept = items[-capacity:]
        updates = [
            Update(Change.SET, key_of(sequence), item, step.ttl_ms, 0)
            for sequence, item in enumerate(kept, last - len(kept) + 1)
        ]
        # After the capacity was lowered, some more are removed each time.
        end = min(last - capacity, self._tail, self._first + REMOVED_MAX + len(items))
        gone = map(key_of, range(self._first, end + 1))
        updates += [Update(Change.REMOVE, key, b"", 0, 0) for key in gone if key in self._entries]
        if step.ttl_ms or TAIL_KEY in self._entries:
            updates.append(Update(Change.SET, TAIL_KEY, key_of(last), 0, 0))
        return Decision(last, updates)

    def _read_item(self, step: CollectionStep) -> Decision | Wait:
        sequence = step.index
        if sequence == self._tail + 1:
            return Wait(step.wait_ms, need=sequence) if step.wait_ms else Decision(unconfirmed=True)
        item = self._entries.get(key_of(sequence)) if self._head <= sequence <= self._tail else None
        bounds: list[None | int | bytes] = [key_of(self._head), key_of(self._tail)]
        return Decision(bounds if item is None else item, unconfirmed=True)

    def _read_items(self, step: CollectionStep) -> Decision | Wait:
        start = min(max(step.index, self._head), self._tail + 1)
        least = min(step.count, max(1, step.max_size))
        if self._tail - start + 1 < least:
            if not step.wait_ms:
                return Decision(unconfirmed=True)
            return Wait(step.wait_ms, need=start + least - 1, start=start)
        # There are gaps only if the time to live was changed while there were items.
        looks = range(start, min(self._tail + 1, start + LOOKED_MAX))
        first = next((one for one in looks if key_of(one) in self._entries), looks.stop)
        found: list[None | int | bytes] = [key_of(first)]
        size = 0
        for sequence in range(first, min(self._tail + 1, first + step.end)):
            item = self._entries.get(key_of(sequence))
            if item is None:
                break
            size += len(item)
            if step.max_bytes and size > step.max_bytes and len(found) > 1:
                break
            found.append(item)
        return Decision(found, unconfirmed=True)
