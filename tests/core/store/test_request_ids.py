"""What a copy remembers of the requests that it has applied."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.model.operations import Value
from holdfast.core.store.request_ids import KEPT_BYTES, Remembered, id_of, mark_of, naming, split_mark


@pytest.mark.parametrize("value", [None, True, False, 17, b"old value", [b"k", b"v", None]])
def test_an_answer_is_remembered_as_it_was(value: Value) -> None:
    memory = Remembered()
    memory.note(mark_of(b"id", value))
    assert memory.knows(b"id")
    assert memory.answer(b"id") == value
    assert not memory.knows(b"i")
    with pytest.raises(KeyError):
        memory.answer(b"other")


def test_only_the_last_are_remembered() -> None:
    memory = Remembered(3)
    for number in range(10):
        memory.note(mark_of(b"%d" % number, None))
    assert [memory.knows(b"%d" % number) for number in range(10)] == [False] * 7 + [True] * 3


def test_one_that_comes_again_counts_as_new() -> None:
    memory = Remembered(2)
    for name in (b"a", b"b", b"a", b"c"):
        memory.note(mark_of(name, name))
    assert memory.knows(b"a")
    assert not memory.knows(b"b")


def test_who_remembers_nothing_knows_nothing() -> None:
    memory = Remembered(0)
    memory.note(mark_of(b"a", 1))
    memory.note(b"")
    assert len(memory) == 0
    assert memory.encode() == b""


def test_large_answers_are_forgotten_sooner_but_never_the_last() -> None:
    memory = Remembered(1000)
    for number in range(100):
        memory.note(mark_of(b"%d" % number, bytes(KEPT_BYTES // 10)))
    assert 5 < len(memory) < 11
    memory.note(mark_of(b"huge", bytes(2 * KEPT_BYTES)))
    assert len(memory) == 1
    assert memory.knows(b"huge")
    for number in range(100):
        memory.note(mark_of(b"%d" % number, None))
    assert len(memory) == 100, "its bytes do not count any more"


def test_a_copy_takes_over_what_another_one_remembers_as_the_older_part() -> None:
    supplier, receiver = Remembered(4), Remembered(4)
    for name in (b"a", b"b", b"c"):
        supplier.note(mark_of(name, name))
    receiver.note(mark_of(b"c", b"c"))
    receiver.note(mark_of(b"d", b"d"))
    receiver.merge(supplier.encode())
    assert all(receiver.answer(name) == name for name in (b"a", b"b", b"c", b"d"))
    receiver.note(mark_of(b"e", b"e"))
    assert not receiver.knows(b"a")
    receiver.merge(b"")
    with pytest.raises(msgspec.MsgspecError):
        receiver.merge(b"nonsense")


def test_a_mark_names_its_request() -> None:
    assert id_of(mark_of(b"x" * 64, [b"k"])) == b"x" * 64
    assert id_of(b"") == b""
    with pytest.raises(AssertionError):
        mark_of(b"", None)


def test_marks_have_room_up_to_their_last_byte() -> None:
    half = KEPT_BYTES // 2
    small, large = mark_of(b"a", b""), mark_of(b"b", bytes(half))
    rest = bytes(KEPT_BYTES - len(small) - len(large) - len(mark_of(b"c", bytes(half))) + half)
    memory = Remembered()
    assert (memory.most, KEPT_BYTES) == (1000, 256 * 1024)
    memory.note(small)
    memory.note(large)
    memory.note(large)
    memory.note(mark_of(b"c", rest))
    assert [memory.knows(name) for name in (b"a", b"b", b"c")] == [True, True, True]
    memory.note(mark_of(b"c", rest + b"x"))
    assert [memory.knows(name) for name in (b"a", b"b", b"c")] == [False, True, True]


def test_no_mark_is_no_request() -> None:
    memory = Remembered()
    memory.note(b"")
    assert len(memory) == 0


def test_a_transaction_may_be_named_before_a_mark() -> None:
    transaction = bytes(range(16))
    mark = mark_of(b"id", b"answer")
    for name in (b"", transaction):
        for carried in (b"", mark):
            told = naming(name) + carried
            assert split_mark(told) == (name, carried)
            assert id_of(told) == (b"id" if carried else b"")
            memory = Remembered()
            memory.note(told)
            assert len(memory) == (1 if carried else 0), "a transaction is no request"
            other = Remembered()
            other.merge(memory.encode())
            assert other.knows(b"id") is bool(carried)
            assert not carried or other.answer(b"id") == b"answer"


@pytest.mark.rule("store/Q-1")
def test_a_request_that_took_items_is_known_when_its_answer_is_not_kept() -> None:
    memory = Remembered(3)
    for number in range(3):
        memory.note(mark_of(b"take %d" % number, bytes(KEPT_BYTES // 2), kept=True))
        memory.note(mark_of(b"put %d" % number, bytes(KEPT_BYTES // 2)))
    assert not memory.knows(b"put 0")
    assert all(memory.knows(b"take %d" % number) for number in range(3))
    assert memory.has_dropped(b"take 0")
    copy = Remembered(3)
    copy.merge(memory.encode())
    assert copy.encode() == memory.encode()
    assert copy.has_dropped(b"take 0")
    assert id_of(mark_of(b"x" * 64, None, kept=True)) == b"x" * 64
    memory.note(mark_of(b"take 2", b"again", kept=True))
    assert memory.answer(b"take 2") == b"again"
    for number in range(4):
        memory.note(mark_of(b"%d" % number, None, kept=True))
    assert memory.encode() == copied(memory).encode()
    assert not memory.knows(b"take 0")


def copied(memory: Remembered) -> Remembered:
    copy = Remembered(memory.most)
    copy.merge(memory.encode())
    return copy
