"""How much of one connection may be under way: when its session stops, and how long work goes on."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from holdfast.server.flow import SLICE_BYTES, SLICE_ITEMS, Flow, Pressure, slices


def work(name: str, length: int, done: list[str]) -> Generator[None, None, None]:
    try:
        for number in range(length):
            done.append(f"{name}{number}")
            yield
    finally:
        done.append(f"{name} ends")


@pytest.mark.rule("server/F-2")
def test_the_first_slice_is_made_at_once_and_the_session_stops_until_the_last() -> None:
    done: list[str] = []
    woken: list[int] = []
    flow = Flow(wake=lambda: woken.append(1))
    flow.begin(work("a", 3, done))
    assert (done, woken, flow.must_halt) == (["a0"], [1], True)
    flow.step()
    assert (done[1:], flow.must_halt) == (["a1"], True)
    flow.step()
    flow.step()
    assert (done[2:], flow.must_halt, flow.halted) == (["a2", "a ends"], False, False)
    flow.step()


@pytest.mark.rule("server/F-2")
def test_work_of_no_slices_wakes_nobody() -> None:
    done: list[str] = []
    woken: list[int] = []
    flow = Flow(wake=lambda: woken.append(1))
    flow.begin(work("a", 0, done))
    assert (done, woken, flow.must_halt) == (["a ends"], [], False)


def test_several_works_take_turns() -> None:
    done: list[str] = []
    flow = Flow()
    flow.begin(work("a", 2, done))
    flow.begin(work("b", 2, done))
    while flow.halted:
        flow.step()
    assert [one for one in done if "ends" not in one] == ["a0", "b0", "a1", "b1"]


def test_the_end_of_the_connection_ends_its_work() -> None:
    done: list[str] = []
    flow = Flow()
    flow.begin(work("a", 5, done))
    flow.rest = True
    flow.end()
    assert (done, flow.halted) == (["a0", "a ends"], False)


@pytest.mark.rule("server/F-1")
def test_a_session_stops_when_answers_take_more_than_there_is_room_for() -> None:
    flow = Flow(most=1000)
    assert not flow.must_halt
    flow.gathered, flow.held, flow.expected = 400, 300, 300
    assert (flow.left, flow.must_halt) == (0, False)
    for what in ("gathered", "held", "expected"):
        setattr(flow, what, getattr(flow, what) + 1)
        assert flow.must_halt, f"{what} counts"
        setattr(flow, what, getattr(flow, what) - 1)
    flow.paused = True
    assert flow.must_halt, "a client that does not read gets nothing more"


@pytest.mark.rule("server/F-1")
def test_where_all_connections_have_too_much_only_the_room_of_this_one_counts() -> None:
    pressure = Pressure()
    flow = Flow(room=lambda: 10, most=1000, pressure=pressure)
    flow.held = 20
    assert not flow.must_halt
    pressure.crowded = True
    assert flow.must_halt
    flow.held = 10
    assert not flow.must_halt


def test_slices_are_bounded_by_number_and_by_bytes_and_hold_all_once() -> None:
    assert list(slices([])) == []
    assert list(slices([1] * (SLICE_ITEMS + 1))) == [(0, SLICE_ITEMS), (SLICE_ITEMS, SLICE_ITEMS + 1)]
    half = SLICE_BYTES // 2
    assert list(slices([half, half, 1])) == [(0, 2), (2, 3)]
    assert list(slices([2 * SLICE_BYTES, 1])) == [(0, 1), (1, 2)], "what is too large has a slice of its own"
