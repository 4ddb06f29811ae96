"""What a service holds of a partition, as the state of a replica: with a share of each kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import mmh3
import pytest

from holdfast.core.model.decisions import Decision, Update, Wait
from holdfast.core.model.journal_entries import MapSnapshot
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.records import Change, Record
from holdfast.core.store.service_state import ServiceState, WrittenShare, WrittenState
from holdfast.errors import InvariantBroken


class Lines:
    """A share that keeps what it is given."""

    def __init__(self, *lines: bytes) -> None:
        self.lines = list(lines)

    def apply(self, update: bytes) -> bytes:
        self.lines.append(update)
        return b"line %d" % len(self.lines)

    def ask(self, question: bytes) -> bytes:
        return b"%d lines, " % len(self.lines) + question

    def supply(self) -> Iterable[bytes]:
        return list(self.lines)

    def receive(self, piece: bytes) -> None:
        self.lines.append(piece)


class Choosy(Lines):
    """It looks first."""

    def decide(self, update: bytes) -> tuple[bytes, bytes | None] | Wait:
        if update == b"later":
            return Wait(5, b"too late")
        return b"known", None if update in self.lines else update + b"!"


class Ranged(Lines):
    """Each line is in the range of its length."""

    digests: Sequence[int] = (2, -2, 3)

    def range_digests(self) -> Sequence[int]:
        return self.digests

    def supply_ranges(self, ranges: frozenset[int]) -> Iterable[bytes]:
        return [line for line in self.lines if len(line) in ranges]

    def forget_ranges(self, ranges: frozenset[int]) -> None:
        self.forgot = ranges
        self.lines = [line for line in self.lines if len(line) not in ranges]


def call(value: bytes, op: Op = Op.CALL) -> Request:
    return Request(op, "s", [0], b"", value)


def record(value: bytes, number: int = 1) -> Record:
    return Record("s", number, Change.CALL, b"", value)


def snapshot(*pieces: bytes) -> MapSnapshot:
    taken = MapSnapshot("s", [], b"", [], [])
    ServiceState(Lines(*pieces)).write_to(taken, 0)
    return taken


def test_a_question_is_answered_and_changes_nothing() -> None:
    for share in (Lines(b"a"), Choosy(b"a")):
        assert ServiceState(share).decide(call(b"q", Op.ASK)) == Decision(b"1 lines, q")
        assert share.lines == [b"a"]


def test_a_share_that_does_not_look_answers_when_it_is_applied() -> None:
    state = ServiceState(Lines(b"a"))
    decision = state.decide(call(b"b"))
    assert decision == Decision(None, [Update(Change.CALL, b"", b"b")], applied_answers=True)
    assert state.apply(record(b"b"), 0) == b"line 2"


def test_a_share_that_looks_answers_before_and_may_change_nothing_or_wait() -> None:
    state = ServiceState(Choosy(b"a"))
    assert state.decide(call(b"a")) == Decision(b"known")
    assert state.decide(call(b"b")) == Decision(b"known", [Update(Change.CALL, b"", b"b!")])
    assert state.decide(call(b"later")) == Wait(5, b"too late")


def test_pieces_are_of_all_or_of_some_ranges() -> None:
    state = ServiceState(Ranged(b"", b"a", b"bb"))
    assert list(state.pieces(None)) == [b"", b"a", b"bb"]
    assert list(state.pieces(frozenset({0, 2}))) == [b"", b"bb"]
    with pytest.raises(AssertionError, match="only a ranged share"):
        ServiceState(Lines(b"a")).pieces(frozenset({0}))


def test_ranges_begin_anew_as_far_as_there_are_some() -> None:
    share = Ranged(b"", b"a", b"bb", b"ccc")
    ServiceState(share).begin_ranges(frozenset({0, 2, 3, 64}))
    assert (share.lines, share.forgot) == ([b"a", b"ccc"], {0, 2})
    lines = Lines(b"a")
    ServiceState(lines).begin_ranges(frozenset({0, 1}))
    assert lines.lines == [b"a"], "it has none"


def test_a_state_starts_from_another_and_goes_its_own_way() -> None:
    base = ServiceState(Lines(b"a", b"b"))
    share = Lines()
    ServiceState(share).start_from(base)
    ServiceState(share).receive(b"c")
    assert share.lines == [b"a", b"b", b"c"]
    assert list(base.pieces(None)) == [b"a", b"b"]


def test_a_share_without_ranges_is_compared_by_all_its_pieces() -> None:
    state, same, other = (ServiceState(Lines(*lines)) for lines in ([b"a"], [b"a"], [b"b"]))
    assert state.range_digests() == [state.digest()]
    assert state.compared() == state.digest() == same.compared() != other.compared()
    assert state.digest() != 0


def test_a_share_with_ranges_is_compared_by_them() -> None:
    share = Ranged(b"a")
    state = ServiceState(share)
    assert state.range_digests() == (2, -2, 3)
    words = b"".join((word & (2**64 - 1)).to_bytes(8, "big") for word in (2, -2, 3))
    assert state.compared() == mmh3.hash64(words, signed=False)[0], "the same on members of every version"
    share.lines.append(b"more")
    assert state.range_digests() == (2, -2, 3), "it says so itself"


@pytest.mark.parametrize(("count", "right"), [(0, False), (1, True), (64, True), (65, False)])
def test_a_share_has_1_to_64_ranges(count: int, *, right: bool) -> None:
    share = Ranged()
    share.digests = [7] * count
    if right:
        assert ServiceState(share).range_digests() == [7] * count
    else:
        with pytest.raises(InvariantBroken, match=f"a share has 1 to 64 ranges, and not {count}"):
            ServiceState(share).range_digests()


# -- what was written down


def test_what_was_written_down_answers_nothing_and_tells_all() -> None:
    share = WrittenShare()
    share.receive(b"a")
    assert share.apply(b"b") == b""
    share.receive(b"c")
    assert share.ask(b"q") == b""
    assert share.supply() == [b"a", b"c", b"b"], "pieces come before updates"


def test_who_opens_what_was_written_down_gets_all_of_it_in_order() -> None:
    written = WrittenState()
    written.read_from(snapshot(b"a", b"b"), 5)
    assert written.apply(record(b"c"), 6) == b""
    written.apply(record(b"d", 2), 7)
    assert list(written.pieces(None)) == [b"a", b"b", b"c", b"d"]
    times: list[int] = []

    class Timed(ServiceState):
        def read_from(self, taken: MapSnapshot, at_ns: int) -> None:
            times.append(at_ns)
            super().read_from(taken, at_ns)

        def apply(self, record: Record, now_ns: int) -> bytes | None:
            times.append(now_ns)
            return super().apply(record, now_ns)

    share = Lines()
    written.open_as(Timed(share))
    assert share.lines == [b"a", b"b", b"c", b"d"]
    assert times == [5, 6, 7], "the checkpoint and the updates as of their own times"


def test_what_was_never_in_a_checkpoint_is_its_updates() -> None:
    written, share = WrittenState(), Lines()
    written.apply(record(b"a"), 1)
    written.open_as(ServiceState(share))
    assert share.lines == [b"a"]


def test_a_checkpoint_is_what_a_state_begins_with() -> None:
    twice, late = WrittenState(), WrittenState()
    twice.read_from(snapshot(b"a"), 0)
    late.apply(record(b"a"), 0)
    for written in (twice, late):
        with pytest.raises(AssertionError, match="a checkpoint is read into a new state"):
            written.read_from(snapshot(b"b"), 0)
