"""Change streams of maps that move between engines: readers get each change once, or are told that some are gone."""

from __future__ import annotations

from functools import partial

import pytest
from tests.lab.sim.test_map_moves import KEYS, PLAIN, Held, MoveStage, settings

from holdfast.core.map_moves.move_master import MoveMaster
from holdfast.core.model.changes_since import Asked, ChangesSince
from holdfast.core.model.map_moves import COUNTERS, MovePhase
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.records import Change
from holdfast.core.streams.change_streams import ChangeStreams
from holdfast.core.streams.retained_changes import KEPT_NS
from holdfast.observe.status import counted, status_of
from holdfast.wire import own
from holdfast_lab.sim.calls import key_of

STREAMED = 1 << 20


class StreamReader:
    """Reads as `client.change_reader` does, and checks that each change fits the one before."""

    def __init__(self, stage: MoveStage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.at = dict.fromkeys(range(stage.settings.partitions.count), (0, 0))
        self.values: dict[str, list[str | None]] = {}
        """The values of each key, in the order of their changes."""
        self.gone: dict[int, str] = {}
        """By partition: why changes cannot be read any more."""

    def heads(self) -> dict[int, own.Head]:
        """The present heads, which all partitions have in a moment."""
        heads: dict[int, own.Head] = {}

        def complete() -> bool:
            for process in self.stage.living():
                found = process.picture.change_streams.heads(self.name, list(self.at))[0]
                heads.update(
                    {
                        at: own.Head(at, one.counter, one.term, one.since, one.lineage)
                        for at, one in found.items()
                    }
                )
            return len(heads) == len(self.at)

        self.stage.until(complete, what="a partition has no head")
        return heads

    def read(self) -> None:
        """Read everything up to the present heads."""
        heads = self.heads()
        for partition in self.at.keys() - self.gone.keys():
            self._read(partition, heads[partition])

    def _read(self, partition: int, head: own.Head) -> None:
        while (at := self.at[partition]) != (head.counter, head.term):
            if not head.follows(*at):
                self.gone[partition] = f"{at} is not in the history of {head}"
                return
            switch = head.switch_after(at[0])
            if switch is not None and at[0] == switch.end:
                self.at[partition] = (switch.start, switch.start_term)
                continue
            upto = (switch.end, switch.end_term) if switch is not None else (head.counter, head.term)
            if not self._ask(Asked(self.name, partition, *at, *upto, bytes_max=500)):
                return

    def _ask(self, asked: Asked) -> bool:
        whys: list[str] = []
        for process in self.stage.living():
            found: list[ChangesSince] = []
            process.step(partial(process.driver.callers.ask_changes, asked, found.append))
            self.stage.until(lambda found=found: bool(found), what="no answer")  # type: ignore[misc]
            if found[0].upto > asked.after:
                assert found[0].upto <= asked.upto
                for term, record in found[0].records:
                    assert term
                    values = self.values.setdefault(key_of(record.key), [])
                    old = record.old.decode() if record.old is not None else None
                    assert old == (values[-1] if values else None), (record, values)
                    values.append(record.value.decode() if record.change is Change.SET else None)
                self.at[asked.partition] = (found[0].upto, found[0].term)
                return True
            whys.append(found[0].why)
        self.gone[asked.partition] = "; ".join(whys)
        return False


def begun(**of_map: object) -> MoveStage:
    return MoveStage(3, settings=settings(changes_bytes=STREAMED, **of_map))


def write(stage: MoveStage, name: str, word: str) -> None:
    stage.fill(name, word)


def wanted(*words: str) -> dict[str, list[str | None]]:
    return {key: [f"{word}{number}" for word in words] for number, key in enumerate(KEYS)}


@pytest.mark.rule("model/M-4", "operations/V-4", "streams/G-5")
def test_a_reader_goes_on_in_both_directions() -> None:
    stage = begun()
    write(stage, PLAIN, "a")
    reader = StreamReader(stage, PLAIN)
    reader.read()
    words = ["a"]
    for zone, word in (("z", "b"), ("", "c"), ("z", "d")):
        stage.move(PLAIN, zone)
        reader.read()
        assert all(counter > COUNTERS for counter, _ in reader.at.values()), (
            "it goes on without a change, too"
        )
        write(stage, PLAIN, word)
        words.append(word)
        reader.read()
        assert reader.gone == {}
        assert reader.values == wanted(*words)


@pytest.mark.parametrize("zone", ["z", ""])
def test_a_new_reader_of_the_oldest_changes_gets_none_of_the_copying(zone: str) -> None:
    stage = begun()
    if not zone:
        stage.move(PLAIN, "z")
    write(stage, PLAIN, "a")
    stage.move(PLAIN, zone)
    before = StreamReader(stage, PLAIN).heads()
    assert [head.since for head in before.values()] == [head.counter for head in before.values()]
    write(stage, PLAIN, "b")
    reader = StreamReader(stage, PLAIN)
    after = reader.heads()
    assert {partition: head.since for partition, head in after.items()} == {
        partition: head.counter for partition, head in before.items()
    }
    reader.at = {partition: (head.since, head.term_at(head.since)) for partition, head in after.items()}
    reader.values = wanted("a")
    reader.read()
    assert reader.gone == {}
    assert reader.values == wanted("a", "b")


@pytest.mark.rule("streams/K-1", "streams/K-2")
def test_a_reader_that_is_behind_gets_the_changes_before_the_move() -> None:
    stage = begun()
    write(stage, PLAIN, "a")
    early, late = StreamReader(stage, PLAIN), StreamReader(stage, PLAIN)
    early.read()
    write(stage, PLAIN, "b")
    stage.move(PLAIN, "z")
    write(stage, PLAIN, "c")
    stage.move(PLAIN)
    write(stage, PLAIN, "d")
    for reader in (early, late):
        reader.read()
        assert reader.gone == {}
        assert reader.values == wanted("a", "b", "c", "d")


@pytest.mark.parametrize("zone", ["z", ""])
def test_after_an_hour_changes_before_the_move_are_gone(zone: str) -> None:
    stage = begun()
    write(stage, PLAIN, "a")
    if not zone:
        stage.move(PLAIN, "z")
    late, present = StreamReader(stage, PLAIN), StreamReader(stage, PLAIN)
    present.read()
    stage.move(PLAIN, zone)
    for process in stage.living():
        streams = process.driver.member.changes
        kept = status_of(process.driver.member, counted(process.driver.member)).retained_change_bytes
        assert kept == streams.retained_bytes > 0
        streams._retained.sweep(process.driver.member.out.now_ns + KEPT_NS)
        assert streams.retained_bytes == 0
    late.read()
    assert late.gone.keys() == late.at.keys() and late.values == {}
    assert all("the map was moved here after update" in why for why in late.gone.values())
    write(stage, PLAIN, "b")
    present.read()
    assert present.gone == {}
    assert present.values == wanted("a", "b")


class Load:
    """Writes of all keys from all members, one of each key at a time; a reader reads now and then."""

    def __init__(self, stage: MoveStage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.reader = StreamReader(stage, name)
        self.turn = 0
        self.asked: dict[str, list[tuple[str, list[Outcome]]]] = {key: [] for key in KEYS}

    def go(self, turns: int) -> None:
        for _ in range(turns):
            self.turn += 1
            for number, key in enumerate(KEYS):
                calls = self.asked[key]
                if not calls or calls[-1][1]:
                    value = str(self.turn)
                    calls.append((value, self.stage.of(self.name, Op.SET, key, value, number + self.turn)))
            self.stage.wait(0.3)

    def judge(self) -> None:
        """Each acknowledged write was seen once, in order; of the others some."""
        self.stage.until(lambda: all(calls[-1][1] for calls in self.asked.values()), what="no answer")
        self.reader.read()
        assert self.reader.gone == {}
        for key, calls in self.asked.items():
            seen = self.reader.values[key]
            acknowledged = [value for value, [answer] in calls if answer.status is Status.OK]
            assert len(set(seen)) == len(seen), (key, seen)
            assert [value for value in seen if value in acknowledged] == acknowledged, (key, seen)
            assert set(seen) <= {value for value, _ in calls}


@pytest.mark.parametrize("zone", ["z", ""])
def test_under_load_each_acknowledged_write_is_seen_once_and_in_order(zone: str) -> None:
    stage = begun()
    if not zone:
        stage.move(PLAIN, "z")
    load = Load(stage, PLAIN)
    load.go(2)
    stage.order(PLAIN, zone)
    load.go(3)
    load.reader.read()
    load.go(12)
    stage.until(lambda: stage.homes(PLAIN) == {zone} and stage.ended(), what="the map is not moved")
    load.judge()


PHASES = [MovePhase.COPYING, MovePhase.SWITCHING, MovePhase.MOVED, MovePhase.CLEANING]
QUICK = {("z", MovePhase.SWITCHING, 2), ("", MovePhase.SWITCHING, 2), ("", MovePhase.MOVED, 0)}
"""The second one needs map_moves/T-3 and unique request ids (routing/R-13)."""
CRASHES = [
    pytest.param(zone, phase, victim, marks=[] if (zone, phase, victim) in QUICK else [pytest.mark.slow])
    for zone in ("z", "")
    for phase in PHASES
    for victim in (0, 2)
]


@pytest.mark.parametrize(("zone", "phase", "victim"), CRASHES)
def test_a_reader_goes_on_when_a_member_crashes(zone: str, phase: MovePhase, victim: int) -> None:
    """Member 0 is the master; each member leads partitions of the source and of the target."""
    stage = begun()
    if not zone:
        stage.move(PLAIN, "z")
    load = Load(stage, PLAIN)
    load.go(2)
    stage.order(PLAIN, zone, member=1)

    def reached() -> bool:
        moves = [process.picture.maps.changes.moves.get(PLAIN) for process in stage.living()]
        return any(move is not None and move.phase >= phase for move in moves)

    while not reached():
        stage.wait(0.005)
    stage.processes[victim].crash()
    load.go(25)
    stage.until(lambda: stage.homes(PLAIN) == {zone} and stage.ended(), what="the map is not moved")
    load.judge()


def test_a_reader_goes_on_at_the_source_when_a_move_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target was filled, and has a switch, before the move is cancelled; then the map moves again."""
    following = MoveMaster._next
    monkeypatch.setattr(
        MoveMaster,
        "_next",
        lambda self, move, *rest: move if move.phase is MovePhase.SWITCHING else following(self, move, *rest),
    )
    stage = begun()
    words = ["a"]
    write(stage, PLAIN, "a")
    reader = StreamReader(stage, PLAIN)
    for zone, word in (("z", "b"), ("", "c")):
        stage.order(PLAIN, zone)
        stage.wait(2)
        assert not stage.ended()
        stage.order(PLAIN, cancel=True)
        stage.until(stage.ended, what="the move is not cancelled")
        write(stage, PLAIN, word)
        words.append(word)
        reader.read()
        with monkeypatch.context() as patched:
            patched.setattr(MoveMaster, "_next", following)
            stage.move(PLAIN, zone)
        reader.read()
        write(stage, PLAIN, word * 2)
        words.append(word * 2)
        reader.read()
        assert reader.gone == {}
        assert reader.values == wanted(*words)


@pytest.mark.parametrize("zone", ["z", ""])
def test_partitions_without_updates_have_a_switch_under_a_new_leader(zone: str) -> None:
    """A reader at the beginning goes on after the move, and the next updates have higher numbers (operations/V-4)."""
    stage = begun()
    if not zone:
        stage.move(PLAIN, "z")
    reader = StreamReader(stage, PLAIN)
    reader.read()
    stage.move(PLAIN, zone)
    stage.processes[0].crash()
    stage.wait(10)
    write(stage, PLAIN, "a")
    reader.read()
    assert reader.gone == {}
    assert reader.values == wanted("a")
    assert all(counter > COUNTERS for counter, _ in reader.at.values())


def test_a_destroyed_map_has_no_switch_any_more() -> None:
    stage = begun()
    write(stage, PLAIN, "a")
    reader = StreamReader(stage, PLAIN)
    reader.read()
    stage.move(PLAIN, "z")
    answers: list[Outcome] = []
    asked = Request(Op.DESTROY, PLAIN, list(reader.at))
    process = stage.living()[0]
    process.step(partial(process.driver.execute, asked, answers.append))
    stage.until(lambda: bool(answers), what="not destroyed")
    write(stage, PLAIN, "b")
    begun_before = {partition for partition, at in reader.at.items() if at[0]}
    reader.read()
    assert begun_before
    assert begun_before <= reader.gone.keys()
    assert reader.values == wanted("a")


@pytest.mark.parametrize("zone", ["z", ""])
def test_entries_that_expire_while_the_map_is_paused_are_removed_for_readers(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = begun(ttl_ms=6_000)
    if not zone:
        stage.move(PLAIN, "z")
    write(stage, PLAIN, "a")
    reader = StreamReader(stage, PLAIN)
    reader.read()
    held = Held(monkeypatch)
    stage.order(PLAIN, zone)
    stage.wait(8)
    held.on = False
    stage.until(lambda: stage.homes(PLAIN) == {zone} and stage.ended(), what="the map is not moved")
    assert stage.size(PLAIN) == 0
    stage.wait(5)
    reader.read()
    assert reader.gone == {}
    assert reader.values == {key: [f"a{number}", None] for number, key in enumerate(KEYS)}


@pytest.mark.rule("map_moves/V-4")
def test_the_last_fill_waits_until_all_updates_of_the_source_are_safe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = begun()
    write(stage, PLAIN, "a")
    with monkeypatch.context() as patched:
        patched.setattr(ChangeStreams, "is_settled", lambda self, name, copy: False)
        stage.order(PLAIN, "z")
        stage.wait(3)
        assert stage.homes(PLAIN) == {""}
        assert any(process.picture.maps.changes.moves[PLAIN].round for process in stage.living())
    stage.until(lambda: stage.homes(PLAIN) == {"z"} and stage.ended(), what="the map is not moved")
