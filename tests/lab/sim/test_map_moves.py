"""Maps move between engines while they are used: no acknowledged write is lost, and every read is right."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.lab.sim.clients.test_near_cache_client import connected, kept
from tests.lab.sim.zone_stage import ZONED, ZoneStage, zoned_settings
from tests.sampled_cases import sampled

from holdfast.actions.change_zone import RenameZone
from holdfast.actions.move_map import MoveMap
from holdfast.config import MapSettings, Settings
from holdfast.core.events import ActionRequested
from holdfast.core.map_moves import partition_transfer
from holdfast.core.map_moves.member_moves import PARALLEL, MemberMoves
from holdfast.core.map_moves.move_master import MoveMaster
from holdfast.core.model.keys import partition_of
from holdfast.core.model.map_moves import FillMap, MapMove, MovePhase, MoveStep
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.store.move_marks import marks_in
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import wire_key

PLAIN = "plain"
"""A map that lives in no zone at the beginning."""
KEYS = [f"k{number}" for number in range(60)]


def settings(**of_map: object) -> Settings:
    base = zoned_settings()
    return msgspec.structs.replace(base, maps={**base.maps, PLAIN: MapSettings(backups=1, **of_map)})  # type: ignore[arg-type]


class MoveStage(ZoneStage):
    def order(self, name: str, zone: str = "", *, cancel: bool = False, member: int = 0) -> None:
        action = MoveMap(name, zone, no_zone=not zone and not cancel, cancel=cancel)
        process = self.living()[member]
        process.step(partial(process.driver.handle, ActionRequested(action)))

    def ended(self) -> bool:
        return all(not process.picture.maps.changes.moves for process in self.living())

    def homes(self, name: str) -> set[str]:
        return {process.picture.maps.home(name) for process in self.living()}

    def move(self, name: str, zone: str = "") -> None:
        self.order(name, zone)
        self.until(lambda: self.homes(name) == {zone} and self.ended(), what="the map is not moved")

    def of(
        self, name: str, op: Op, key: str, value: str = "", member: int = 0, request_id: bytes = b""
    ) -> list[Outcome]:
        raw = wire_key(key)
        partition = partition_of(raw, 0, self.settings.partitions.count)
        answers: list[Outcome] = []
        asked = Request(op, name, [partition], raw, value.encode(), id=request_id)
        process = self.living()[member % len(self.living())]
        process.step(partial(process.driver.execute, asked, answers.append))
        return answers

    def fill(self, name: str, value: str = "v") -> None:
        answers = [self.of(name, Op.SET, key, f"{value}{number}", number) for number, key in enumerate(KEYS)]
        self.until(lambda: all(answers), what="not everything is stored")
        assert {answer.status for [answer] in answers} == {Status.OK}

    def wrong(self, name: str, value: str = "v") -> dict[str, object]:
        """Keys without the value of `fill`."""
        answers = {key: self.of(name, Op.GET, key, member=number) for number, key in enumerate(KEYS)}
        self.until(lambda: all(answers.values()), what="not everything is read")
        return {
            key: answers[key][0]
            for number, key in enumerate(KEYS)
            if answers[key][0].value != f"{value}{number}".encode()
        }

    def size(self, name: str) -> object:
        answers: list[Outcome] = []
        asked = Request(Op.SIZE, name, list(range(self.settings.partitions.count)))
        process = self.living()[0]
        process.step(partial(process.driver.execute, asked, answers.append))
        self.until(lambda: bool(answers), what="no size")
        return answers[0].value

    def marks(self) -> list[object]:
        """Marks in any copy of any member."""
        found: list[object] = []
        for process in self.living():
            member = process.driver.member
            copies = [*member.copies.held.values(), *(one.copy for one in member.picture.copies.in_zones())]
            found += [mark for copy in copies for mark in marks_in(copy.maps).items()]
        return found

    def left_behind(self, name: str) -> int:
        """Entries of a map in copies of the engine that it does not live in."""
        count = 0
        for process in self.living():
            member = process.driver.member
            zoned = bool(process.picture.maps.home(name))
            copies = (
                member.copies.held.values()
                if zoned
                else [one.copy for one in member.picture.copies.in_zones()]
            )
            count += sum(len(copy.maps[name].state.entries) for copy in copies if name in copy.maps)
        return count


def begun(**of_map: object) -> MoveStage:
    return MoveStage(3, settings=settings(**of_map))


@pytest.mark.rule("map_moves/V-1", "model/M-2")
def test_a_map_moves_into_a_zone_and_out_again() -> None:
    stage = begun()
    stage.fill(PLAIN)
    stage.move(PLAIN, "z")
    assert stage.wrong(PLAIN) == {}
    assert stage.size(PLAIN) == len(KEYS)
    assert stage.marks() == []
    assert stage.left_behind(PLAIN) == 0
    stage.fill(PLAIN, "w")
    stage.move(PLAIN)
    assert stage.wrong(PLAIN, "w") == {}
    assert stage.size(PLAIN) == len(KEYS)
    assert stage.marks() == []
    assert stage.left_behind(PLAIN) == 0
    stage.same()


@pytest.mark.rule("model/M-5")
def test_a_request_that_is_repeated_after_moves_is_applied_once() -> None:
    """Its client did not get the answer, and asks again with the same id while others have written."""
    stage = begun()

    def put(value: str, number: int) -> Outcome:
        answers = stage.of(PLAIN, Op.PUT, KEYS[0], value, request_id=b"client-%d" % number)
        stage.until(lambda: bool(answers), what="no answer")
        return answers[0]

    def now() -> object:
        answers = stage.of(PLAIN, Op.GET, KEYS[0])
        stage.until(lambda: bool(answers), what="no answer")
        return answers[0].value

    assert put("a", 1).value is None
    assert put("b", 2).value == b"a"
    stage.move(PLAIN, "z")
    assert put("a", 1) == Outcome(Status.OK, None)
    assert now() == b"b"
    assert put("c", 3).value == b"b"
    stage.move(PLAIN)
    for number, value, former in ((1, "a", None), (2, "b", b"a"), (3, "c", b"b")):
        assert put(value, number).value == former
    assert now() == b"c"
    stage.move(PLAIN, "z")
    assert put("b", 2).value == b"a"
    assert now() == b"c"
    stage.same()


def counters(stage: MoveStage, name: str) -> dict[int, int]:
    """The update counter of the map in each partition, where it is served."""
    found: dict[int, int] = {}
    for process in stage.living():
        for partition in range(stage.settings.partitions.count):
            led = process.picture.copies.led(name, partition)
            held = led.copy.maps.get(name) if led is not None else None
            if held is not None:
                found[partition] = held.counter
    return found


@pytest.mark.rule("model/M-3")
def test_positions_in_the_source_are_no_positions_in_the_target() -> None:
    stage = begun()
    stage.fill(PLAIN)
    seen = counters(stage, PLAIN)
    for zone in ("z", "", "z"):
        stage.move(PLAIN, zone)
        now = counters(stage, PLAIN)
        assert now.keys() == seen.keys()
        assert all(now[partition] > counter + len(KEYS) for partition, counter in seen.items())
        seen = now


def test_a_map_that_was_configured_in_a_zone_moves_out() -> None:
    stage = begun()
    stage.fill(ZONED)
    stage.move(ZONED)
    assert stage.wrong(ZONED) == {}
    assert stage.homes(ZONED) == {""}


def counted(stage: MoveStage, name: str, rounds: int = 1) -> dict[str, int]:
    """Set every key again and again, from all members, one write of a key at a time; returns the number that each key
    has at least.
    """
    done: dict[str, int] = {}
    asked: dict[str, tuple[int, list[Outcome]]] = {}
    for turn in range(rounds):
        for number, key in enumerate(KEYS):
            if key not in asked:
                asked[key] = (turn, stage.of(name, Op.SET, key, f"{turn}", number + turn))
        stage.wait(0.3)
        for key, (wrote, answers) in list(asked.items()):
            if answers:
                del asked[key]
                if answers[0].status is Status.OK:
                    done[key] = wrote
    return done


def later(stage: MoveStage, name: str, done: dict[str, int]) -> dict[str, object]:
    """Keys with an older value than was acknowledged."""
    answers = {key: stage.of(name, Op.GET, key) for key in done}
    stage.until(lambda: all(answers.values()), what="not everything is read")
    values = {key: answers[key][0].value for key in done}
    return {
        key: value for key, value in values.items() if not isinstance(value, bytes) or int(value) < done[key]
    }


@pytest.mark.parametrize("zone", ["z", ""])
def test_writes_during_a_move_are_kept(zone: str) -> None:
    stage = begun()
    name = PLAIN if zone else ZONED
    stage.fill(name, "0")
    stage.order(name, zone)
    done = counted(stage, name, 15)
    assert len(done) == len(KEYS)
    stage.until(lambda: stage.homes(name) == {zone} and stage.ended(), what="the map is not moved")
    assert later(stage, name, done) == {}
    assert stage.marks() == []


PHASES = [MovePhase.COPYING, MovePhase.SWITCHING, MovePhase.MOVED, MovePhase.CLEANING]


CRASHES = [
    pytest.param(
        zone, phase, victim, marks=[] if (phase + victim) % 4 == (3 if zone else 1) else [pytest.mark.slow]
    )
    for zone in ("z", "")
    for phase in PHASES
    for victim in (0, 2)
]
"""A quick run has one of each direction and each half of a move."""


@pytest.mark.parametrize(("zone", "phase", "victim"), CRASHES)
def test_a_member_crashes_during_a_move(zone: str, phase: MovePhase, victim: int) -> None:
    """Member 0 is the master."""
    stage = begun()
    name = PLAIN if zone else ZONED
    stage.fill(name, "0")
    stage.order(name, zone, member=1)

    def reached() -> bool:
        moves = [process.picture.maps.changes.moves.get(name) for process in stage.living()]
        return any(move is not None and move.phase >= phase for move in moves)

    while not reached():
        stage.wait(0.005)
    stage.processes[victim].crash()
    done = counted(stage, name, 25)
    stage.until(lambda: stage.homes(name) == {zone} and stage.ended(), what="the map is not moved")
    assert later(stage, name, done) == {}
    assert stage.marks() == []


def test_a_cancelled_move_leaves_the_map_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    following = MoveMaster._next
    monkeypatch.setattr(
        MoveMaster,
        "_next",
        lambda self, move, *rest: move if move.phase is MovePhase.COPYING else following(self, move, *rest),
    )
    stage = begun()
    for name, zone, there in ((PLAIN, "z", ""), (ZONED, "", "z")):
        stage.fill(name)
        stage.order(name, zone)
        stage.wait(2)
        assert stage.left_behind(name), "the map is copied"
        stage.order(name, cancel=True, member=2)
        stage.until(stage.ended, what="the move has not ended")
        assert stage.homes(name) == {there}
        assert stage.wrong(name) == {}
        assert stage.marks() == []
        assert stage.left_behind(name) == 0


@pytest.mark.rule("map_moves/V-3")
@pytest.mark.rule("zones/Z-7")
@pytest.mark.parametrize(("name", "zone", "way"), [(PLAIN, "z", "into"), (ZONED, "", "out of")])
def test_a_zone_keeps_its_name_while_a_map_moves(
    name: str, zone: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    following = MoveMaster._next
    monkeypatch.setattr(
        MoveMaster,
        "_next",
        lambda self, move, *rest: move if move.phase is MovePhase.COPYING else following(self, move, *rest),
    )
    stage = begun()
    answers: list[object] = []

    def rename(number: int) -> object:
        process = stage.living()[1]
        process.step(partial(process.driver.act, RenameZone("z", "y"), answers.append))
        stage.until(lambda: len(answers) == number, what="no answer")
        return answers[-1]

    stage.order(name, zone)
    stage.until(lambda: not stage.ended(), what="no move begins")
    assert f"the map {name!r} is moving {way} it" in str(rename(1))
    stage.order(name, cancel=True)
    stage.until(stage.ended, what="it is not cancelled")
    assert rename(2) is None


def test_copying_leaves_time_to_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each member's fills few are under way at a time, and there is a rest behind each until the map is paused."""
    monkeypatch.setattr(partition_transfer, "FILL_KEYS", 1)
    stage = begun()
    stage.fill(PLAIN)
    under_way: Counter[MemberMoves] = Counter()
    most: Counter[MemberMoves] = Counter()
    ended: dict[tuple[MemberMoves, int], tuple[int, int]] = {}
    rests: list[tuple[int, int]] = []
    send, on_outcome = MemberMoves._send, MemberMoves._on_outcome

    def sent(moves: MemberMoves, name: str, partition: int, step: MoveStep, engine: str) -> None:
        if isinstance(step, FillMap) and not step.round:
            under_way[moves] += 1
            most[moves] = max(most[moves], under_way[moves])
            if step.place:
                took_ns, ended_ns = ended[moves, partition]
                rests.append((took_ns, moves._out.now_ns - ended_ns))
        send(moves, name, partition, step, engine)

    def answered(moves: MemberMoves, done: Any, outcome: Outcome) -> bool:
        if isinstance(done.step, FillMap) and not done.step.round:
            under_way[moves] -= 1
            now_ns = moves._out.now_ns
            ended[moves, done.partition] = now_ns - done.sent_ns, now_ns
        return on_outcome(moves, done, outcome)

    monkeypatch.setattr(MemberMoves, "_send", sent)
    monkeypatch.setattr(MemberMoves, "_on_outcome", answered)
    stage.move(PLAIN, "z")
    assert stage.wrong(PLAIN) == {}
    assert max(most.values()) == PARALLEL
    assert len(rests) > len(KEYS) / 2
    assert all(rest_ns >= took_ns > 0 for took_ns, rest_ns in rests)


def test_a_map_moves_with_times_to_live() -> None:
    stage = begun(ttl_ms=20_000)
    stage.fill(PLAIN)
    stage.move(PLAIN, "z")
    assert stage.wrong(PLAIN) == {}
    stage.wait(25)
    assert stage.size(PLAIN) == 0


@pytest.mark.parametrize("zone", ["z", ""])
def test_maximum_idle_times_move_along_and_begin_again_with_the_switch(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A use in the source is no change that would be sent: entries must not end because they were copied long ago."""
    waits = [True]
    following = MoveMaster._next

    def held(master: MoveMaster, move: MapMove, *rest: Any) -> MapMove | None:
        wanted = following(master, move, *rest)
        switches = wanted is not None and wanted.phase is MovePhase.SWITCHING
        return move if switches and waits else wanted

    stage = begun(max_idle_ms=20_000)
    if not zone:
        stage.move(PLAIN, "z")
    stage.fill(PLAIN)
    monkeypatch.setattr(MoveMaster, "_next", held)
    stage.order(PLAIN, zone)
    for _ in range(10):
        stage.wait(3)
        assert stage.wrong(PLAIN) == {}
    waits.clear()
    stage.until(lambda: stage.homes(PLAIN) == {zone} and stage.ended(), what="the map is not moved")
    stage.wait(10)
    assert stage.wrong(PLAIN) == {}
    stage.wait(18)
    assert stage.size(PLAIN) == len(KEYS)
    stage.wait(9)
    assert stage.size(PLAIN) == 0


class Held:
    """Keeps a move in the phase in which the source is paused and the target filled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on = True
        following = MoveMaster._next

        def held(master: MoveMaster, move: MapMove, *rest: Any) -> MapMove | None:
            return move if self.on and move.phase is MovePhase.SWITCHING else following(master, move, *rest)

        monkeypatch.setattr(MoveMaster, "_next", held)


def paused_for_a_while(zone: str, held: Held) -> tuple[MoveStage, str, dict[str, int]]:
    stage = begun()
    name = PLAIN if zone else ZONED
    stage.fill(name, "0")
    stage.order(name, zone)
    stage.wait(2)
    assert any(process.picture.maps.changes.moves for process in stage.living())
    # These wait, and are passed on.
    asked = {key: stage.of(name, Op.SET, key, "1", number) for number, key in enumerate(KEYS)}
    stage.wait(2)
    held.on = False
    stage.until(lambda: all(asked.values()), what="a request is not answered")
    stage.until(lambda: stage.homes(name) == {zone} and stage.ended(), what="the map is not moved")
    return stage, name, {key: 1 for key, [answer] in asked.items() if answer.status is Status.OK}


@pytest.mark.rule("operations/V-1", "raft_partition/Z-8", "routing/R-13", "model/M-1")
@pytest.mark.parametrize("zone", ["z", ""])
def test_requests_wait_while_the_map_is_paused_and_are_carried_out_at_its_new_place(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, name, done = paused_for_a_while(zone, Held(monkeypatch))
    assert len(done) == len(KEYS)
    assert later(stage, name, done) == {}


@pytest.mark.parametrize("zone", ["z", ""])
def test_without_pauses_acknowledged_writes_are_lost(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ablated("map-paused"):
        stage, name, done = paused_for_a_while(zone, Held(monkeypatch))
        assert later(stage, name, done) != {}


@pytest.mark.parametrize("zone", sampled(["z", ""], 2))
def test_if_waiting_requests_stay_where_they_are_their_writes_are_lost(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ablated("waiters-follow"):
        stage, name, done = paused_for_a_while(zone, Held(monkeypatch))
        assert later(stage, name, done) != {}


@pytest.mark.rule("map_moves/V-5")
def test_near_caches_drop_a_map_that_moves_and_go_on() -> None:
    stage = begun()
    stage.fill(PLAIN)
    client = connected(stage, PLAIN)
    for zone in ("z", ""):
        assert all(kept(client, key) for key in KEYS[:5])
        before = client.cleared
        stage.move(PLAIN, zone)
        stage.wait(1)
        assert client.cleared > before
        assert client.kept == []
        stage.fill(PLAIN, "w")
        assert [kept(client, key) for key in KEYS[:5]] == [f"w{number}" for number in range(5)]
        stage.fill(PLAIN, "x")
        stage.wait(1)
        assert client.kept == []
    assert client.fed == 3, "the registrations stay"
    assert client.problems == []
