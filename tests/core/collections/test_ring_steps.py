"""Steps of a ringbuffer: sequences, overflow, expiry, and the bounds of a request."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.collections.structures import Structure

from holdfast.core.collections.ring_steps import RingBounds, key_of, sequence_of
from holdfast.core.model.collections import (
    CollectionKind,
    CollectionStep,
    StepKind,
    encode_step,
    step_problem,
)
from holdfast.core.model.decisions import Decision, Wait
from holdfast.core.model.operations import Op, Request

A, B, C, D = b"a", b"b", b"c", b"d"


class Ring(Structure):
    def __init__(self, capacity: int = 3, ttl_ms: int = 0) -> None:
        super().__init__(CollectionKind.RINGBUFFER)
        self.capacity = capacity
        self.ttl_ms = ttl_ms

    def add(self, *items: bytes, fail: bool = False) -> int:
        kind = StepKind.APPEND_IF_ROOM if fail else StepKind.APPEND
        added = self.do(kind, *items, max_size=self.capacity, ttl_ms=self.ttl_ms)
        assert isinstance(added, int)
        return added

    def bounds(self) -> tuple[Any, Any]:
        head, tail = self.do(StepKind.HEAD), self.do(StepKind.TAIL)
        assert self.do(StepKind.SIZE) == tail - head + 1
        return head, tail

    def read(self, start: int, least: int = 0, most: int = 10, **more: int) -> tuple[int, list[bytes]]:
        first, *items = self.do(
            StepKind.READ_ITEMS, index=start, count=least, end=most, max_size=self.capacity, **more
        )
        return sequence_of(first), items


def test_items_get_ascending_sequences_and_replace_the_oldest() -> None:
    ring = Ring()
    assert ring.bounds() == (0, -1)
    assert [ring.add(item) for item in (A, B, C)] == [0, 1, 2]
    assert ring.bounds() == (0, 2)
    assert ring.add(D, A) == 4
    assert ring.bounds() == (2, 4)
    assert ring.read(0) == (2, [C, D, A])
    assert ring.add(*(b"%d" % number for number in range(7))) == 11
    assert ring.read(0) == (9, [b"4", b"5", b"6"])
    assert ring.add() == 11


def test_items_are_rejected_only_where_others_will_expire() -> None:
    ring = Ring(ttl_ms=1000)
    assert ring.add(A, B, fail=True) == 1
    assert ring.add(C, D, fail=True) == -1
    assert ring.add(C, fail=True) == 2
    assert ring.add(D, fail=True) == -1
    ring.now_ms = 1000
    assert ring.add(D, fail=True) == 3
    forever = Ring()
    assert forever.add(A, B, C, D, fail=True) == 3


@pytest.mark.rule("collections/B-1")
def test_a_sequence_is_given_once_also_after_all_items_have_expired() -> None:
    ring = Ring(ttl_ms=1000)
    ring.add(A, B)
    ring.now_ms = 1001
    assert ring.bounds() == (2, 1), "before the primary has removed them"
    ring.expire()
    assert ring.bounds() == (2, 1)
    ring.fail_over()
    assert ring.bounds() == (2, 1)
    assert ring.add(C) == 2
    ring.ttl_ms = 0
    assert ring.add(D) == 3
    ring.now_ms = 9999
    ring.expire()
    ring.fail_over()
    assert ring.read(0) == (3, [D])
    assert ring.add(A) == 4


def test_one_item_is_read_or_awaited_or_out_of_reach() -> None:
    ring = Ring()
    ring.add(A, B, C, D)
    assert ring.do(StepKind.READ_ITEM, index=1) == B
    for sequence in (0, 5, -7, 2**62):
        assert list(map(sequence_of, ring.do(StepKind.READ_ITEM, index=sequence))) == [1, 3]
    assert ring.do(StepKind.READ_ITEM, index=4) is None
    assert ring.decide(StepKind.READ_ITEM, index=4, wait_ms=9) == Wait(9, need=4)


def test_many_items_are_read_within_bounds() -> None:
    ring = Ring(capacity=10)
    ring.add(A, B, C, D)
    assert ring.read(1, 1, 2) == (1, [B, C])
    assert ring.read(4) == (4, [])
    assert ring.read(100) == (4, [])
    assert ring.decide(StepKind.READ_ITEMS, index=3, count=2, end=5, max_size=10) == Decision(
        unconfirmed=True
    )
    waits = ring.decide(StepKind.READ_ITEMS, index=3, count=2, end=5, max_size=10, wait_ms=7)
    assert waits == Wait(7, need=4, start=3)
    waits = ring.decide(StepKind.READ_ITEMS, index=50, count=2, end=5, max_size=10, wait_ms=7)
    assert waits == Wait(7, need=5, start=4), "there is nothing at 50, and perhaps never will be"
    ring.add(b"x" * 100, b"y")
    assert ring.read(4, max_bytes=50) == (4, [b"x" * 100])
    assert ring.read(3, max_bytes=50) == (3, [D])
    assert ring.read(0, 6, 6, max_bytes=4) == (0, [A, B, C, D]), (
        "fewer than were wanted, because of their size"
    )


def test_a_reader_that_wants_more_than_there_can_be_gets_all() -> None:
    ring = Ring(capacity=2)
    ring.add(A, B, C)
    assert ring.read(0, 5, 9) == (1, [B, C])


def test_a_lower_capacity_removes_items_little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.core.collections.ring_steps.REMOVED_MAX", 2)
    ring = Ring(capacity=10)
    ring.add(*(b"%d" % number for number in range(10)))
    ring.capacity = 3
    ring.add(A)
    assert ring.bounds() == (4, 10)
    ring.add(B)
    assert ring.bounds() == (8, 11)
    ring.add(C)
    assert ring.bounds() == (10, 12)


def test_a_gap_is_stepped_over() -> None:
    ring = Ring(capacity=10)
    ring.add(A)
    ring.ttl_ms = 1000
    ring.add(B, C)
    ring.ttl_ms = 0
    ring.add(D)
    ring.now_ms = 2000
    ring.expire()
    assert ring.bounds() == (0, 3)
    assert ring.read(0) == (0, [A])
    assert ring.read(1) == (3, [D])
    assert list(map(sequence_of, ring.do(StepKind.READ_ITEM, index=1))) == [0, 3]


@given(
    st.lists(st.tuples(st.integers(1, 7), st.booleans(), st.integers(0, 400)), max_size=20), st.integers(1, 5)
)
def test_a_ring_keeps_the_last_items(adds: list[tuple[int, bool, int]], capacity: int) -> None:
    ring = Ring(capacity, ttl_ms=1000)
    model: list[tuple[int, int]] = []
    """Of each sequence: the item's number, and when it expires."""
    for count, fails, passing in adds:
        ring.now_ms += passing
        alive = [one for one in model[-capacity:] if one[1] > ring.now_ms]
        told = ring.add(*(b"%d" % (len(model) + at) for at in range(count)), fail=fails)
        if fails and len(alive) + count > capacity:
            assert told == -1
        else:
            model += [(len(model) + at, ring.now_ms + 1000) for at in range(count)]
            assert told == len(model) - 1
        alive = [one for one in model[-capacity:] if one[1] > ring.now_ms]
        assert ring.read(0) == (len(model) - len(alive), [b"%d" % number for number, _ in alive])
        if passing % 3 == 0:
            ring.expire()
        if passing % 5 == 0:
            ring.fail_over()
        assert ring.bounds() == (len(model) - len(alive), len(model) - 1)


def test_steps_of_other_members_are_checked() -> None:
    def problem(**step: Any) -> str:
        value = encode_step(CollectionStep(StepKind.READ_ITEMS, **step))
        return step_problem(Request(Op.AWAIT_ITEMS, CollectionKind.RINGBUFFER.map_of("r"), [0], value=value))

    assert problem(count=1, end=1000) == ""
    assert "at most 1000" in problem(end=1001)
    assert "as many as are wanted" in problem(count=5, end=4)
    assert "not negative" in problem(count=-1)
    assert key_of(-1) != key_of(0)


def test_a_damaged_copy_with_a_far_sequence_or_a_strange_key_is_indexed_at_once() -> None:
    """Until it is repaired, its bounds are those of some items."""
    entries = {key_of(sequence): b"" for sequence in range(3)}
    bounds = RingBounds(entries)
    for strange in (key_of(1 << 60), b"a key of other length"):
        entries[strange] = b""
        bounds.absorb({strange: None}, entries)
    del entries[key_of(0)], entries[key_of(1)], entries[key_of(2)]
    bounds.absorb({key_of(sequence): b"" for sequence in range(3)}, entries)
    assert (bounds.head, bounds.tail) == (1 << 60, 1 << 60)
    del entries[key_of(1 << 60)]
    bounds.absorb({key_of(1 << 60): b""}, entries)
    assert bounds.head == bounds.tail + 1
