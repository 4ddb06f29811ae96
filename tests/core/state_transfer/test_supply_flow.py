"""How much of what is supplied is on its way at a time, together and to one member (state_transfer/S-5)."""

from __future__ import annotations

import pytest

from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.sync_request import How
from holdfast.core.state_transfer import supply_flow
from holdfast.core.state_transfer.supply import Supply
from holdfast.core.state_transfer.supply_flow import SupplyFlow
from holdfast.core.store.chunk import Chunk

ANN, BEN = MemberId("ann"), MemberId("ben")


class Flow:
    """Supplies with a chunk of ten bytes each, which go when they may."""

    def __init__(self, most: int) -> None:
        self.rows = [Assignment(1, (MemberId("me"),)) for _ in range(20)]
        self.flow = SupplyFlow(self.rows, most)
        self.count = 0

    def hold(self, to: MemberId, size: int = 10, how: How = How.FULL) -> Supply:
        supply = Supply(self.count, 1, to, 0, self.count)
        self.count += 1
        chunk = Chunk()
        chunk.count(how, size)
        self.flow.hold(supply, chunk)
        return supply

    def go(self) -> list[Supply]:
        gone = []
        while (ready := self.flow.next()) is not None:
            self.flow.leaves(*ready)
            gone.append(ready[0])
            assert ready[0].ready is None, "it waits no more"
        return gone


@pytest.fixture(autouse=True)
def _room_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supply_flow, "TO_ONE_BYTES", 20)


@pytest.mark.rule("state_transfer/S-5")
def test_what_goes_to_one_member_does_not_wait_for_what_goes_to_another() -> None:
    it = Flow(1000)
    first, second, third, fourth = (it.hold(ANN) for _ in range(4))
    other = it.hold(BEN)
    last = it.hold(ANN)
    assert it.go() == [first, second, other]
    it.flow.lands(other)
    assert it.go() == []
    it.flow.lands(second)
    assert it.go() == [third], "first come, first served"
    it.flow.lands(first)
    it.flow.lands(third)
    assert it.go() == [fourth, last]
    it.flow.lands(fourth)
    it.flow.lands(last)
    assert it.flow.flight == 0
    assert it.flow.bytes_sent == 60


@pytest.mark.rule("state_transfer/S-5")
def test_one_chunk_may_always_go_to_a_member() -> None:
    it = Flow(1000)
    long = it.hold(ANN, 50)
    short = it.hold(ANN, 1)
    assert it.go() == [long]
    it.flow.lands(long)
    assert it.go() == [short]


@pytest.mark.rule("state_transfer/S-5")
def test_all_wait_for_what_is_on_its_way_together() -> None:
    it = Flow(20)
    long = it.hold(ANN, 50)
    assert it.go() == [long], "one goes in any case"
    it.flow.lands(long)
    first, second = it.hold(ANN), it.hold(BEN)
    third, fourth = it.hold(BEN), it.hold(ANN)
    assert it.go() == [first, second]
    it.flow.lands(first)
    assert it.go() == [third]
    it.flow.lands(second)
    assert it.go() == [fourth]


def test_what_waits_is_left_out_when_its_row_has_changed() -> None:
    it = Flow(1000)
    first, second = it.hold(ANN), it.hold(ANN)
    waits, stays = it.hold(ANN), it.hold(ANN)
    assert it.go() == [first, second]
    it.rows[waits.partition] = Assignment(2, (MemberId("me"),))
    it.flow.lands(first)
    it.flow.lands(second)
    assert it.go() == [stays]


def test_a_member_that_was_removed_begins_anew() -> None:
    it = Flow(20)
    it.hold(ANN), it.hold(ANN), it.hold(ANN)
    assert len(it.go()) == 2
    it.flow.reset()
    assert it.flow.flight == 0
    assert it.go() == []
    again = it.hold(ANN, 20)
    assert it.go() == [again], "nothing is on its way any more"


def test_what_was_sent_is_counted_by_what_it_was() -> None:
    it = Flow(1000)
    for to, size, how in ((ANN, 1, How.HISTORY), (BEN, 2, How.RANGES), (ANN, 4, How.FULL)):
        supply = it.hold(to, size, how)
        assert it.go() == [supply]
        assert (supply.bytes, supply.flight) == (size, size)
        it.flow.lands(supply)
        it.flow.lands(supply)
        assert (supply.bytes, supply.flight) == (size, 0)
    flow = it.flow
    assert (flow.bytes_history, flow.bytes_ranges, flow.bytes_full) == (1, 2, 4)
    assert (flow.bytes_sent, flow.chunks_sent, flow.flight) == (7, 3, 0)


@pytest.mark.rule("state_transfer/S-5")
def test_nothing_goes_while_more_is_on_its_way_than_may_be_now() -> None:
    it = Flow(40)
    gone = [it.hold(to) for to in (ANN, ANN, BEN, BEN)]
    assert it.go() == gone
    it.flow.most = 10
    later = [it.hold(ANN), it.hold(BEN)]
    for supply in gone:
        assert it.go() == []
        it.flow.lands(supply)
    assert it.go() == later[:1]
    it.flow.most = 40
    assert it.go() == later[1:]
