"""A share that falls into ranges: what differs of a copy is sent, and nothing else of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.core.model.records import Change, Record
from holdfast.core.model.sync_request import Base, How
from holdfast.core.state_transfer.delta_or_full import Mine, choose
from holdfast.core.store.chunk import Chunk
from holdfast.core.store.replica import service_replica
from holdfast.core.store.service_state import ServiceState


class Bits:
    """Words, each in the range of its first letter."""

    def __init__(self, *words: bytes) -> None:
        self.words = set(words)

    def apply(self, update: bytes) -> bytes:
        self.words.add(update)
        return b""

    def ask(self, question: bytes) -> bytes:
        return b""

    def supply(self) -> Iterable[bytes]:
        return sorted(self.words)

    def receive(self, piece: bytes) -> None:
        self.words.add(piece)

    def range_digests(self) -> Sequence[int]:
        return [sum(word) for word in (b"".join(self._of(at)) for at in range(3))]

    def supply_ranges(self, ranges: frozenset[int]) -> Iterable[bytes]:
        return [word for at in sorted(ranges) for word in self._of(at)]

    def forget_ranges(self, ranges: frozenset[int]) -> None:
        self.words -= {word for at in ranges for word in self._of(at)}

    def _of(self, at: int) -> list[bytes]:
        return sorted(word for word in self.words if word[0] - ord("a") == at)


def test_only_the_range_that_differs_is_sent_and_takes_the_place_of_what_was_there() -> None:
    here, there = Bits(b"a1", b"b1", b"c1"), Bits(b"a1", b"b2", b"c1")
    mine, other = service_replica("s", ServiceState(here)), service_replica("s", ServiceState(there))
    assert mine.state.compared() != other.state.compared()
    base = Base("s", [(1, 0)], 5, 5, list(other.state.range_digests()))
    choice = choose(Mine([(1, 0)], 5, 0, 5, mine.state.range_digests()), base)
    assert (choice.how, choice.ranges) == (How.RANGES, (1,))
    chunk = Chunk()
    portion = mine.state.portion(mine, frozenset(choice.ranges))
    assert portion is not None
    assert portion.add_to(chunk, 1000, 0)
    assert [part.pieces for part in chunk.shares] == [[b"b1"]]
    receiver = other.state.receiver()
    receiver.begin(5, frozenset((1, 60)))
    receiver.pour(chunk.shares[0], 0)
    receiver.take(Record("s", 6, Change.CALL, b"", b"b3"), 0)
    receiver.land()
    assert there.words == {b"a1", b"b1", b"c1"}
    assert mine.state.compared() == other.state.compared()


def test_a_share_without_ranges_that_differs_is_sent_whole() -> None:
    base = Base("s", [(1, 0)], 5, 5, [7])
    assert choose(Mine([(1, 0)], 5, 0, 5, [8]), base).how is How.FULL
    assert choose(Mine([(1, 0)], 5, 0, 5, [7]), base).how is How.SAME
    assert choose(Mine([(1, 0)], 5, 0, 5, [7, 8]), base).how is How.FULL
