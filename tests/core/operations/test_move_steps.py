"""Steps of the move of a map in one partition."""

from __future__ import annotations

import pytest

from holdfast.config import MOVES_MAP, SWITCHES_MAP
from holdfast.core.model.decisions import LockChanges
from holdfast.core.model.ids import MemberId
from holdfast.core.model.map_moves import (
    COUNTERS,
    AskFill,
    EndMove,
    FillMap,
    MarkKind,
    MoveAnswer,
    MoveMark,
    MoveStep,
    PauseMap,
    ResumeMap,
    StreamSwitch,
    decode_move_answer,
)
from holdfast.core.model.records import Change, Record
from holdfast.core.model.transactions import KeyLock, lock_key
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.operations.move_steps import LOCKED, NOT_FORGOTTEN, SUPERSEDED, decide_move
from holdfast.core.store.move_marks import is_closed, kept_switch, mark_in, switch_in
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.request_ids import mark_of
from holdfast_lab.sim.ablations.switching import ablated

NAME = "m"
NUMBER = 7


class One:
    """A copy in which steps are carried out."""

    def __init__(self) -> None:
        self.copy = PartitionCopy(0, 0)

    def step(self, step: MoveStep, wall_ms: int = 0) -> MoveAnswer:
        decision = decide_move(self.copy.maps, NAME, step, wall_ms, locked=self.copy.locks.guards(NAME))
        for update in decision.updates:
            state = self.copy.open(update.map).state
            record = Record(update.map, 1, update.change, update.key, update.value, update.ttl_ms)
            state.apply(record, 0)
        assert isinstance(decision.answer, bytes)
        return decode_move_answer(decision.answer)

    def fill(self, place: int, *, attempt: int = 1, round: int = 0, **entries: str | None) -> MoveAnswer:  # noqa: A002
        keys = [key.encode() for key in entries]
        values = [None if value is None else value.encode() for value in entries.values()]
        return self.step(FillMap(NUMBER, attempt, place, keys, values, round=round))

    @property
    def entries(self) -> dict[str, str]:
        held = self.copy.maps.get(NAME)
        found = held.state.entries.items() if held is not None else ()
        return {key.decode(): value.decode() for key, value in found}

    @property
    def mark(self) -> MoveMark | None:
        return mark_in(self.copy.maps, NAME)

    @property
    def closed(self) -> bool:
        return is_closed(self.copy.maps, NAME)


def test_fills_are_applied_in_order_and_once() -> None:
    one = One()
    assert not one.fill(0, a="1", b="2").refused
    assert one.closed
    assert not one.fill(1, a="3", b=None).refused
    assert one.entries == {"a": "3"}
    assert not one.fill(0, a="1", b="2").refused, "a repeated fill is answered"
    assert one.entries == {"a": "3"}, "and changes nothing"
    assert one.fill(3, a="9").refused
    assert not one.fill(2, round=4).refused
    assert one.mark == MoveMark(NUMBER, MarkKind.FILLED, 4, 1, 3)
    assert not one.closed


@pytest.mark.rule("operations/V-2")
def test_a_fill_of_a_former_leader_changes_nothing() -> None:
    one = One()
    one.fill(0, a="old", gone="x")
    assert not one.fill(0, attempt=2, a="new").refused
    assert one.entries == {"a": "new"}, "an attempt begins with nothing"
    assert one.fill(1, attempt=1, a="old").refused == SUPERSEDED
    assert one.fill(0, attempt=1, a="old").refused == SUPERSEDED
    assert one.fill(1, attempt=3, a="x").refused, "the first fill of an attempt comes first"
    assert one.entries == {"a": "new"}


def test_without_an_order_of_fills_an_old_value_comes_back() -> None:
    one = One()
    with ablated("fills-in-order"):
        one.fill(0, a="old")
        one.fill(0, attempt=2, a="new")
        one.fill(1, attempt=1, a="old")
        assert one.entries == {"a": "old"}


def test_a_pause_closes_the_map_until_its_round_is_resumed() -> None:
    one = One()
    assert one.step(PauseMap(NUMBER, 2)).mark == MoveMark(NUMBER, MarkKind.PAUSED, 2)
    assert one.closed
    one.step(ResumeMap(NUMBER, 1))
    assert one.closed, "this is about an earlier round"
    one.step(ResumeMap(NUMBER, 2))
    assert not one.closed
    assert one.mark is None


@pytest.mark.rule("operations/V-3")
def test_a_map_with_a_locked_entry_is_not_paused() -> None:
    one = One()
    transaction = b"t" * 16
    locks = one.copy.locks
    locks.change(LockChanges([(lock_key(NAME, b"k"), KeyLock(transaction, MemberId("member")))]))
    assert one.step(PauseMap(NUMBER, 1)).refused == LOCKED
    assert not one.closed
    locks.change(LockChanges(released=transaction))
    assert not one.step(PauseMap(NUMBER, 1)).refused


@pytest.mark.parametrize("keep", [True, False])
def test_the_end_of_a_move_removes_the_mark_and_perhaps_the_entries(keep: bool) -> None:
    one = One()
    one.fill(0, a="1", round=1)
    one.step(EndMove(NUMBER, keep))
    assert one.mark is None
    assert one.entries == ({"a": "1"} if keep else {})


def test_steps_of_an_earlier_move_are_refused() -> None:
    one = One()
    one.fill(0, a="1")
    for step in (PauseMap(6, 1), FillMap(6, 9, 0, [b"a"], [b"2"]), EndMove(6, False), AskFill(6)):
        assert one.step(step).refused
    assert one.entries == {"a": "1"}
    assert one.step(AskFill(NUMBER)).mark == one.mark


def test_what_an_earlier_move_has_left_is_removed_by_the_first_fill() -> None:
    one = One()
    one.fill(0, a="1", b="2")
    assert not one.step(FillMap(NUMBER + 1, 1, 0, [b"a"], [b"3"])).refused
    assert one.entries == {"a": "3"}


def test_times_to_live_are_shorter_by_the_time_on_the_way() -> None:
    one = One()
    one.step(FillMap(NUMBER, 1, 0, [b"a", b"b"], [b"1", b"2"], ttls_ms=[5000, 0], time_ms=1000), wall_ms=3000)
    expiries = one.copy.maps[NAME].state.expiries
    assert {key: expiry.ttl_ms for key, expiry in expiries.items()} == {b"a": 3000}
    assert MOVES_MAP in one.copy.maps


# -- change streams


SWITCH = StreamSwitch(50, [(3, 0)])
ABOVE = 50 + COUNTERS


def count(one: One, step: MoveStep, opened_at: int = ABOVE) -> list[Change]:
    """Carry out a step and count updates, as an engine does; returns those of the map."""
    decision = decide_move(one.copy.maps, NAME, step, 0, opened_at)
    for update in decision.updates:
        if update.map not in one.copy.maps:
            one.copy.open(update.map).updates = UpdateCounter(opened_at if update.map == NAME else 0)
        held = one.copy.maps[update.map]
        held.enter(2)
        held.apply(Record(update.map, held.updates.next(), update.change, update.key, update.value), 0)
    return [update.change for update in decision.updates if update.map == NAME]


def fill(place: int, keys: list[bytes], *, last: bool = False, attempt: int = 1) -> FillMap:
    switch = SWITCH if last else None
    return FillMap(
        NUMBER, attempt, place, keys, [b"v"] * len(keys), round=int(last), above=ABOVE, switch=switch
    )


@pytest.mark.rule("operations/V-4")
@pytest.mark.parametrize("filled", [0, 1, 2])
@pytest.mark.parametrize("changed", [0, 1, 2])
def test_a_switch_names_the_last_update_after_the_last_fill(filled: int, changed: int) -> None:
    one = One()
    count(one, fill(0, [b"a", b"b"][:filled]))
    assert kept_switch(one.copy.maps, NAME) is None
    changes = count(one, fill(1, [b"b", b"c"][:changed], last=True))
    assert changes == ([Change.SET] * changed if filled or changed else [Change.CLEAR])
    switch = switch_in(one.copy.maps, NAME)
    assert switch == StreamSwitch(50, [(3, 0)], one.copy.maps[NAME].counter)
    assert switch is not None
    assert switch.start == ABOVE + (filled + changed or 1)


@pytest.mark.rule("operations/V-4")
def test_a_later_last_fill_or_another_attempt_replaces_the_switch() -> None:
    one = One()
    count(one, fill(0, [b"a"], last=True))
    count(one, fill(1, [b"a"]))
    count(one, fill(2, [b"b"], last=True))
    switch = kept_switch(one.copy.maps, NAME)
    assert switch is not None and switch.start == ABOVE + 3
    count(one, fill(0, [b"a"], last=True, attempt=2))
    switch = kept_switch(one.copy.maps, NAME)
    assert switch is not None and switch.start == ABOVE + 5, "the map was cleared"


@pytest.mark.parametrize("keep", [True, False])
def test_a_switch_is_forgotten_with_the_entries(keep: bool) -> None:
    one = One()
    count(one, fill(0, [b"a"], last=True))
    count(one, EndMove(NUMBER, keep))
    assert (kept_switch(one.copy.maps, NAME) is not None) is keep
    assert one.copy.maps[SWITCHES_MAP].counter == (1 if keep else 2)


@pytest.mark.rule("model/M-3")
def test_a_map_that_was_here_before_is_forgotten_first() -> None:
    """Its updates would have lower numbers than those of the source."""
    one = One()
    held = one.copy.open(NAME)
    held.changes = 1000
    held.apply(Record(NAME, held.updates.next(), Change.SET, b"old", b"v"), 0)
    step = FillMap(NUMBER, 1, 0, [b"a"], [b"v"], above=COUNTERS + 2)
    decision = decide_move(one.copy.maps, NAME, step, 0)
    assert decode_move_answer(decision.answer).refused == NOT_FORGOTTEN  # type: ignore[arg-type]
    assert [update.change for update in decision.updates] == [Change.CLEAR]
    one.copy.forget(NAME)
    assert not decode_move_answer(decide_move(one.copy.maps, NAME, step, 0).answer).refused  # type: ignore[arg-type]


@pytest.mark.parametrize("keep", [False, True])
def test_requests_of_the_source_come_with_the_last_fill_and_go_with_the_entries(keep: bool) -> None:
    source, one = PartitionCopy(0, 0), One()
    source.requests.note(mark_of(b"first", b"answer"))
    one.copy.requests.note(mark_of(b"own", None))
    one.step(FillMap(NUMBER, 1, 0, [b"a"], [b"1"], round=1, requests=source.requests_of(NAME)))
    known = one.copy.applied(b"first", NAME)
    assert known is not None
    assert known.answer(b"first") == b"answer"
    assert one.copy.applied(b"first", "another") is None
    assert one.copy.applied(b"own", "another") is one.copy.requests
    later = PartitionCopy(0, 0)
    later.requests.merge(one.copy.requests_of(NAME))
    assert later.requests.knows(b"first") and later.requests.knows(b"own")
    one.step(EndMove(NUMBER, keep))
    assert (one.copy.applied(b"first", NAME) is not None) is keep
