"""The move of one map in one partition, from the first question to the last fill."""

from __future__ import annotations

import pytest

from holdfast.config import MOVES_MAP
from holdfast.core.map_moves import partition_transfer
from holdfast.core.map_moves.partition_transfer import DELAY_NS, PartitionTransfer, Stage, Times
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.map_moves import (
    AskFill,
    FillMap,
    MapMove,
    MarkKind,
    MoveAnswer,
    MoveMark,
    MovePhase,
    MoveStep,
    PauseMap,
    ResumeMap,
    StreamSwitch,
    decode_move_answer,
)
from holdfast.core.model.records import Change, Record
from holdfast.core.operations.move_steps import decide_move
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast_lab.sim.ablations.switching import ablated

NAME = "m"


class Bench:
    """A source and a target, and a transfer between them."""

    def __init__(self, target: str = "z") -> None:
        self.source, self.target = PartitionCopy(0, 0), PartitionCopy(0, 0)
        self.move = MapMove(1, "" if target else "z", target)
        self.transfer = PartitionTransfer(NAME, 0)
        self.now_ns = 0

    def set(self, key: str, value: str, ttl_ms: int = 0, max_idle_ms: int = 0) -> None:
        self.source.open(NAME).state.store(key.encode(), value.encode(), ttl_ms, max_idle_ms, 0, self.now_ns)

    def phase(self, phase: MovePhase, round: int) -> None:  # noqa: A002
        self.move = MapMove(1, self.move.source, self.move.target, phase, round)

    def next(self) -> MoveStep | None:
        self.now_ns += MILLISECOND
        return self.transfer.next_step(self.move, self.source, Times(self.now_ns, self.now_ns, 0))

    def carry_out(self, step: MoveStep) -> MoveAnswer:
        copy = self.source if isinstance(step, PauseMap | ResumeMap) else self.target
        decision = decide_move(copy.maps, NAME, step, 0)
        for update in decision.updates:
            values = (update.key, update.value, update.ttl_ms, update.max_idle_ms)
            copy.open(update.map).state.apply(Record(update.map, 1, update.change, *values), self.now_ns)
        assert isinstance(decision.answer, bytes)
        return decode_move_answer(decision.answer)

    def step(self) -> MoveStep | None:
        step = self.next()
        if step is not None:
            self.transfer.on_answer(step, self.carry_out(step), self.move, self.source)
        return step

    def until(self, stage: Stage) -> list[MoveStep]:
        steps: list[MoveStep] = []
        for _ in range(100):
            if self.transfer.stage_in(self.move) is stage:
                return steps
            step = self.step()
            if step is not None:
                steps.append(step)
        raise AssertionError(f"{stage.name} is not reached: {steps[-3:]}")

    @property
    def moved(self) -> dict[str, str]:
        held = self.target.maps.get(NAME)
        return {key.decode(): value.decode() for key, value in held.state.entries.items()} if held else {}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_everything_is_copied_and_then_what_has_changed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_transfer, "FILL_KEYS", 2)
    monkeypatch.setattr(partition_transfer, "CLOSE_KEYS", 1)
    for number in range(5):
        bench.set(f"k{number}", "old")
    assert isinstance(bench.step(), AskFill)
    assert isinstance(bench.step(), FillMap)
    bench.set("k0", "new")
    bench.set("k4", "new")
    bench.source.maps[NAME].state.drop(b"k1")
    bench.until(Stage.CLOSE)
    bench.phase(MovePhase.SWITCHING, 1)
    steps = bench.until(Stage.FILLED)
    assert isinstance(steps[0], PauseMap)
    assert isinstance(steps[-1], FillMap)
    assert steps[-1].round == 1
    assert bench.moved == {"k0": "new", "k2": "old", "k3": "old", "k4": "new"}
    assert bench.next() is None


def test_changes_of_a_close_partition_are_sent_from_time_to_time(bench: Bench) -> None:
    bench.set("a", "1")
    bench.until(Stage.CLOSE)
    bench.set("a", "2")
    assert bench.next() is None
    bench.now_ns += DELAY_NS
    step = bench.step()
    assert isinstance(step, FillMap)
    assert (step.keys, step.round) == ([b"a"], 0)
    assert bench.moved == {"a": "2"}


@pytest.mark.rule("map_moves/T-2")
def test_a_fill_without_an_answer_is_repeated(bench: Bench) -> None:
    bench.set("a", "1")
    bench.step()
    lost = bench.next()
    bench.set("a", "2")
    assert isinstance(lost, FillMap)
    assert bench.next() is lost
    bench.carry_out(lost)
    assert bench.step() is lost, "it was applied, and the answer was lost"
    bench.until(Stage.CLOSE)
    bench.phase(MovePhase.SWITCHING, 1)
    bench.until(Stage.FILLED)
    assert bench.moved == {"a": "2"}


@pytest.mark.rule("map_moves/T-3")
@pytest.mark.parametrize("late", [0, 1, 2])
def test_a_late_answer_to_a_last_fill_does_not_count_in_the_next_round(bench: Bench, late: int) -> None:
    """`late`: it comes in round 1, after that round, or in round 2."""
    bench.set("a", "1")
    bench.until(Stage.CLOSE)
    bench.phase(MovePhase.SWITCHING, 1)
    bench.until(Stage.PAUSED)
    fill = bench.next()
    assert isinstance(fill, FillMap)
    assert fill.round == 1
    answer = bench.carry_out(fill)
    moves: list[MapMove] = []
    for at, (phase, number) in enumerate(
        [(MovePhase.SWITCHING, 1), (MovePhase.COPYING, 1), (MovePhase.SWITCHING, 2)]
    ):
        bench.phase(phase, number)
        moves.append(bench.move)
        if at == late:
            bench.transfer.on_answer(fill, answer, bench.move, bench.source)
        if phase is MovePhase.COPYING:
            bench.carry_out(ResumeMap(1, 1))
            bench.set("a", "2")
        assert (bench.transfer.stage_in(bench.move) is Stage.FILLED) is (at == 0 and late == 0)
    bench.until(Stage.FILLED)
    assert bench.moved == {"a": "2"}
    assert [bench.transfer.stage_in(move) for move in moves] == [Stage.CLOSE, Stage.CLOSE, Stage.FILLED]


@pytest.mark.rule("map_moves/T-1")
def test_the_last_fill_is_read_from_a_copy_that_holds_the_pause(bench: Bench) -> None:
    """The pause was answered by the next leader, and this one has not heard of its writes."""
    bench.set("a", "1")
    bench.until(Stage.CLOSE)
    bench.phase(MovePhase.SWITCHING, 1)
    step = bench.next()
    assert isinstance(step, PauseMap)
    bench.transfer.on_answer(step, MoveAnswer(MoveMark(1, MarkKind.PAUSED, 1)), bench.move, bench.source)
    assert bench.next() is None, "not the last fill"
    assert isinstance(bench.next(), PauseMap), "it asks again"
    assert bench.transfer.stage is not Stage.FILLED


@pytest.mark.rule("map_moves/T-1")
def test_another_state_is_copied_from_the_beginning(bench: Bench) -> None:
    bench.set("a", "1")
    bench.set("b", "1")
    bench.until(Stage.CLOSE)
    del bench.source.maps[NAME]
    bench.set("a", "2")
    assert isinstance(bench.step(), AskFill)
    bench.until(Stage.CLOSE)
    bench.phase(MovePhase.SWITCHING, 1)
    bench.until(Stage.FILLED)
    assert bench.moved == {"a": "2"}


def test_if_another_state_is_taken_for_the_observed_one_a_write_is_lost(bench: Bench) -> None:
    bench.set("a", "1")
    with ablated("source-observed"):
        bench.until(Stage.CLOSE)
        del bench.source.maps[NAME]
        bench.set("a", "2")
        bench.phase(MovePhase.SWITCHING, 1)
        bench.until(Stage.FILLED)
        assert bench.moved == {"a": "1"}


def test_a_map_that_appears_in_the_meantime_is_copied(bench: Bench) -> None:
    bench.until(Stage.CLOSE)
    bench.set("a", "1")
    assert isinstance(bench.step(), AskFill)
    bench.until(Stage.CLOSE)
    assert bench.moved == {"a": "1"}


def test_a_switch_that_was_given_up_is_undone_and_done_again(bench: Bench) -> None:
    bench.set("a", "1")
    bench.until(Stage.CLOSE)
    bench.phase(MovePhase.SWITCHING, 1)
    bench.until(Stage.FILLED)
    bench.phase(MovePhase.COPYING, 1)
    assert isinstance(bench.step(), ResumeMap)
    assert bench.source.maps[MOVES_MAP].state.entries == {}
    bench.set("a", "2")
    bench.next()
    assert bench.transfer.stage is Stage.CLOSE
    bench.phase(MovePhase.SWITCHING, 2)
    bench.until(Stage.FILLED)
    assert bench.moved == {"a": "2"}


def test_the_next_leader_finds_that_the_last_fill_was_sent(bench: Bench) -> None:
    bench.set("a", "1")
    bench.until(Stage.CLOSE)
    bench.phase(MovePhase.SWITCHING, 1)
    bench.until(Stage.FILLED)
    bench.transfer = PartitionTransfer(NAME, 0)
    assert isinstance(bench.step(), AskFill)
    assert bench.transfer.stage is Stage.FILLED


def test_the_next_leader_begins_another_attempt(bench: Bench) -> None:
    bench.set("a", "1")
    bench.set("b", "1")
    bench.until(Stage.CLOSE)
    bench.source.maps[NAME].state.drop(b"b")
    bench.transfer.end()
    bench.transfer = PartitionTransfer(NAME, 0)
    steps = bench.until(Stage.CLOSE)
    assert [step.attempt for step in steps if isinstance(step, FillMap)] == [2]
    assert bench.moved == {"a": "1"}


def test_a_fill_of_a_switch_that_was_given_up_counts_no_more(bench: Bench) -> None:
    """The source has been written since."""
    bench.set("a", "1")
    bench.until(Stage.CLOSE)
    bench.phase(MovePhase.SWITCHING, 1)
    bench.until(Stage.FILLED)
    bench.phase(MovePhase.COPYING, 1)
    assert isinstance(bench.step(), ResumeMap)
    bench.set("a", "2")
    bench.transfer.end()
    bench.transfer = PartitionTransfer(NAME, 0)
    steps = bench.until(Stage.CLOSE)
    assert [step.attempt for step in steps if isinstance(step, FillMap)] == [2]
    assert bench.moved == {"a": "2"}


def test_times_to_live_go_along_and_what_has_ended_does_not(bench: Bench) -> None:
    bench.set("short", "1", ttl_ms=1)
    bench.set("long", "2", ttl_ms=9000)
    bench.now_ns += 1000 * MILLISECOND
    bench.until(Stage.CLOSE)
    assert bench.moved == {"long": "2"}
    assert 7900 <= bench.target.maps[NAME].state.expiries[b"long"].ttl_ms <= 8000


def test_a_changed_time_to_live_is_a_change(bench: Bench) -> None:
    bench.set("a", "1", ttl_ms=9000)
    bench.until(Stage.CLOSE)
    bench.source.maps[NAME].state.apply(Record(NAME, 9, Change.EXPIRY, b"a", b"", 50_000), bench.now_ns)
    bench.now_ns += DELAY_NS
    assert isinstance(bench.step(), FillMap)
    assert bench.target.maps[NAME].state.expiries[b"a"].ttl_ms > 9000


@pytest.mark.parametrize("target", ["z", ""])
def test_a_maximum_idle_time_goes_along(target: str) -> None:
    bench = Bench(target)
    bench.set("a", "1", max_idle_ms=60_000)
    fills = [step for step in bench.until(Stage.CLOSE) if isinstance(step, FillMap)]
    assert [fill.max_idles_ms for fill in fills if fill.keys] == [[60_000]]
    assert bench.transfer.problem == ""


def test_it_observes_nothing_after_its_end(bench: Bench) -> None:
    bench.set("a", "1")
    bench.until(Stage.CLOSE)
    state = bench.source.maps[NAME].state
    assert state.observers
    bench.transfer.end()
    assert not state.observers


# -- change streams


@pytest.mark.rule("model/M-4")
def test_the_last_fill_has_the_switch_of_a_change_stream() -> None:
    bench = Bench()
    bench.transfer.streamed = True
    bench.set("a", "1")
    held = bench.source.maps[NAME]
    held.enter(3)
    held.updates.next()
    bench.until(Stage.CLOSE)
    bench.phase(MovePhase.SWITCHING, 1)
    bench.set("a", "2")
    held.updates.next()
    fills = [step for step in bench.until(Stage.FILLED) if isinstance(step, FillMap)]
    assert [fill.switch for fill in fills] == [StreamSwitch(2, [(3, 0)])]


def test_a_partition_without_updates_has_a_switch_too() -> None:
    bench = Bench()
    bench.transfer.streamed = True
    bench.until(Stage.CLOSE)
    bench.phase(MovePhase.SWITCHING, 1)
    fills = [step for step in bench.until(Stage.FILLED) if isinstance(step, FillMap)]
    assert [fill.switch for fill in fills] == [StreamSwitch(0, [])]


def test_an_expired_entry_ends_in_the_target_if_there_is_a_change_stream() -> None:
    """Readers have not got its removal."""
    bench = Bench()
    bench.transfer.streamed = True
    bench.set("a", "1", ttl_ms=1)
    bench.now_ns += 2 * MILLISECOND
    bench.until(Stage.CLOSE)
    assert bench.target.maps[NAME].state.expiries[b"a"].ttl_ms == 1
