"""Cuts in the simulated world: whoever is named as a holder shows the same, whatever becomes of the cluster (S1)."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from tests.lab.sim.stage import Stage, change, clean
from tests.sampled_cases import sampled

from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request
from holdfast.core.model.views import ClusterState
from holdfast.core.primary_backup.cuts import Taken
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process

PARTITIONS = 7
KEYS = [f"k{number}" for number in range(30)]
CUT = b"cut".ljust(16, b".")
LEASE_MS = 600_000
Content = dict[bytes, bytes]


class Cutting(Stage):
    """A cluster with data, and a client that takes cuts and remembers what it should see."""

    def __init__(self, hosts: int, **more: object) -> None:
        super().__init__(hosts, **more)  # type: ignore[arg-type]
        self.seen: dict[tuple[int, int, int], Content] = {}
        """Partition, update counter and term -> what the primary held."""
        self.marks: dict[int, tuple[int, int, tuple[str, ...]]] = {}
        """Partition -> counter, term and holders, of the cut as the client knows it."""
        self.asked: dict[int, int] = {}
        """Partition -> the number of the last question: only its answer counts, as that of the last connection."""
        self.questions = 0
        self.write("first")
        self.wait(1)

    def write(self, value: str, keys: list[str] = KEYS, op: Op = Op.SET, ttl_ms: int = -1) -> list[Outcome]:
        living = self.cluster.living()
        answers: list[Outcome] = []
        for number, key in enumerate(keys):
            process = living[number % len(living)]
            raw = wire_key(key)
            request = Request(op, MAP, [partition_of(raw, 0, PARTITIONS)], raw, value.encode(), ttl_ms=ttl_ms)
            process.step(partial(process.driver.execute, request, answers.append))
        return answers

    def clear(self) -> None:
        process = self.cluster.living()[0]
        request = Request(Op.CLEAR, MAP, list(range(PARTITIONS)))
        process.step(partial(process.driver.execute, request, lambda outcome: None))

    def lane(self, process: Process, deed: Callable[[], None]) -> None:
        """As a session does."""

        def act() -> None:
            process.driver.enter()
            deed()
            process.driver.leave_lane()

        process.step(act)

    def take(self, process: Process, cut: bytes = CUT, partitions: list[int] | None = None) -> list[Taken]:
        """Ask this member; the answer comes into the list."""
        answers: list[Taken] = []
        member = process.driver.member
        wanted = list(range(PARTITIONS)) if partitions is None else partitions
        self.questions += 1
        question = self.questions
        self.asked |= dict.fromkeys(wanted, question)

        def note(taken: Taken) -> None:
            answers.append(taken)
            for pin in taken.pins:
                if self.asked[pin.partition] == question:
                    self.marks[pin.partition] = (pin.counter, pin.term, pin.holders)
            for number, _ in taken.unwritten:
                if self.asked[number] == question:
                    self.marks[number] = (0, 0, ())

        def deed() -> None:
            cuts = member.copies.cuts
            before = {
                number for number in wanted if (pin := cuts.find(cut, number, MAP)) is not None and pin.known
            }
            passive = member.router.refusals.passive
            process.driver.callers.take_cut(cut, (MAP,), tuple(wanted), LEASE_MS, note, passive=passive)
            for number in wanted:
                pin = cuts.find(cut, number, MAP)
                copy = member.lane.leading[number]
                if pin is not None and copy is not None and number not in before:
                    self.seen[number, pin.counter, pin.term] = dict(copy.maps[MAP].state.entries)

        self.lane(process, deed)
        return answers

    def ask_owners(self, cut: bytes = CUT, *, told_by: Process | None = None) -> None:
        """Ask for what is not cut yet, as a client does: those whom a member says to be the owners."""
        left = [number for number in range(PARTITIONS) if number not in self.marks]
        told_by = told_by or self.cluster.living()[0]
        rows = told_by.driver.member.table.rows
        for process in self.cluster.living():
            mine = [number for number in left if rows[number].owner == process.driver.member.me]
            if mine:
                self.take(process, cut, mine)

    def take_all(self, cut: bytes = CUT) -> None:
        """As a client does: ask the owners until all partitions are cut."""
        for turn in range(60):
            if len(self.marks) == PARTITIONS:
                return
            living = self.cluster.living()
            self.ask_owners(cut, told_by=living[turn % len(living)])
            self.wait(0.5)
        raise AssertionError(f"could not be cut: {self.marks}")

    def holders(self, number: int) -> list[Process]:
        """Those who are named, and live."""
        _, _, named = self.marks[number]
        return [process for process in self.cluster.living() if process.driver.member.me in named]

    def read(self, process: Process, number: int, cut: bytes = CUT) -> tuple[int, int, Content] | None:
        pin = process.driver.member.copies.cuts.find(cut, number, MAP)
        return None if pin is None else (pin.counter, pin.term, dict(pin.content()))

    def judge(self, *, least: int = 1) -> None:
        """Every named holder that lives shows what the primary held; there are at least so many."""
        assert self.marks.keys() == set(range(PARTITIONS))
        for number, (counter, term, _) in self.marks.items():
            if not counter:
                continue
            holders = self.holders(number)
            assert len(holders) >= least, (number, self.marks[number])
            expected = (counter, term, self.seen[number, counter, term])
            for process in holders:
                assert self.read(process, number) == expected, process.name

    def pins(self) -> int:
        return sum(process.driver.member.copies.cuts.pins for process in self.cluster.living())


def test_writes_removes_clear_and_ends_of_times_to_live_do_not_change_a_cut() -> None:
    stage = Cutting(3)
    stage.write("short", KEYS[:6], ttl_ms=4000)
    stage.wait(1)
    stage.take_all()
    stage.judge(least=2)
    whole = {
        key for number in range(PARTITIONS) for key in stage.seen.get((number, *stage.marks[number][:2]), {})
    }
    assert whole == {wire_key(key) for key in KEYS}
    stage.write("second", KEYS[5:15])
    stage.write("", KEYS[10:20], Op.DELETE)
    stage.write("new", [f"n{number}" for number in range(10)])
    stage.wait(1)
    stage.judge(least=2)
    stage.wait(6)
    assert stage.get(stage.processes[0], KEYS[0]) is None, "its time is over"
    stage.judge(least=2)
    stage.clear()
    stage.wait(1)
    assert stage.get(stage.processes[0], KEYS[20]) is None
    stage.judge(least=2)
    stage.write("third")
    stage.wait(1)
    stage.judge(least=2)
    clean(stage, again=False)


def test_a_cut_survives_moves_away_from_all_who_keep_it() -> None:
    stage = Cutting(2, spare=5)
    stage.take_all()
    stage.processes += [stage.cluster.start(host) for host in range(2, 7)]
    stage.rest(120)
    stage.write("second")
    stage.wait(1)
    moved = [
        number
        for number, row in enumerate(stage.processes[0].driver.member.table.rows)
        if not set(stage.marks[number][2]).intersection(row.replicas)
    ]
    assert moved, "some partition is to have left both of its holders"
    stage.judge(least=2)
    stage.clear()
    stage.wait(1)
    stage.judge(least=2)
    clean(stage, again=False)


def test_a_cut_survives_the_crash_of_primaries_and_the_return_of_the_partition() -> None:
    stage = Cutting(3)
    stage.take_all()
    stage.write("second")
    stage.wait(1)
    stage.processes[1].crash()
    stage.rest(120)
    stage.write("third")
    stage.wait(1)
    stage.judge(least=1)
    stage.processes[1] = stage.cluster.start(1)
    stage.rest(120)
    stage.write("fourth")
    stage.clear()
    stage.wait(1)
    stage.judge(least=1)
    assert stage.processes[1].driver.member.copies.cuts.pins == 0, "who is filled keeps no cut"
    clean(stage, again=False)


@pytest.mark.parametrize("packets", range(1, 6))
def test_a_crash_while_the_cut_is_taken(packets: int) -> None:
    stage = Cutting(3)
    primary = stage.processes[packets % 3]
    primary.crash_armed(packets, primary.crash)
    stage.take(primary)
    stage.write("second", KEYS[::2])
    stage.wait(1)
    stage.marks = {number: mark for number, mark in stage.marks.items() if stage.holders(number)}
    stage.take_all()
    stage.write("third", KEYS[1::2])
    stage.wait(1)
    stage.judge()
    stage.rest(120)
    stage.judge()


def test_while_a_backup_cannot_be_reached_a_cut_is_not_answered() -> None:
    stage = Cutting(3)
    primary = stage.processes[0]
    mine = [number for number, copy in enumerate(primary.driver.member.lane.serving) if copy is not None]
    stage.isolate(primary)
    answers = stage.take(primary, partitions=mine)
    stage.wait(0.5)
    assert not answers
    stage.wait(20)
    assert all(not taken.pins for taken in answers), "it was removed: nobody can say"
    stage.take_all()
    stage.heal()
    stage.rest(120)
    stage.write("second")
    stage.wait(1)
    stage.judge()


@ablated("cut-kept")
def test_without_that_rule_a_holder_is_named_that_keeps_nothing() -> None:
    stage = Cutting(3)
    primary = stage.processes[0]
    mine = [number for number, copy in enumerate(primary.driver.member.lane.serving) if copy is not None]
    stage.isolate(primary)
    answers = stage.take(primary, partitions=mine)
    assert [pin.partition for pin in answers[0].pins] == mine
    primary.crash()
    stage.wait(20)
    for number in mine:
        (backup,) = stage.holders(number)
        assert stage.read(backup, number) is None, "the cut is lost, though one of two holders lives"


def test_the_same_cut_again_is_the_same() -> None:
    stage = Cutting(3)
    stage.take_all()
    before = dict(stage.marks)
    stage.write("second")
    stage.wait(1)
    stage.marks.clear()
    stage.take_all()
    assert stage.marks == before
    stage.judge(least=2)
    other = b"other".ljust(16, b".")
    stage.marks.clear()
    stage.take_all(other)
    assert all(mark[0] > before[number][0] for number, mark in stage.marks.items() if mark[0])
    assert stage.pins() == 2 * 2 * sum(1 for mark in before.values() if mark[0])


def test_leases_end_on_every_member_and_nothing_is_kept() -> None:
    stage = Cutting(3)
    stage.take_all()
    stage.write("second")
    stage.wait(1)
    assert stage.pins()
    for process in stage.cluster.living():
        process.driver.callers.hold_cut(CUT, 5000, lambda count: None)
    stage.wait(4)
    stage.judge(least=2)  # which renews it
    stage.wait(4)
    stage.judge(least=2)
    stage.wait(6)
    assert stage.pins() == 0
    for member in stage.cluster.members():
        for copy in member.copies.held.values():
            assert all(held.state.observers == () for held in copy)


def test_a_passive_cluster_can_be_cut_and_is_read_when_it_is_active_again() -> None:
    stage = Cutting(3)
    stage.rest()
    change(stage, ClusterState.PASSIVE)
    stage.take_all()
    assert {len(mark[2]) for mark in stage.marks.values() if mark[0]} == {1}
    change(stage, ClusterState.ACTIVE)
    stage.write("second")
    stage.wait(1)
    stage.judge()


def test_the_records_of_a_cut_are_in_the_files_and_do_no_harm() -> None:
    stage = Cutting(3, settings=simulated_settings(1, PARTITIONS, journal="sync"))
    stage.write("second")
    stage.wait(3)
    stage.marks.clear()
    stage.take_all()
    stage.judge(least=2)
    stage.write("third", KEYS[:9])
    stage.wait(3)
    clean(stage)
    assert stage.pins() == 0, "a cut does not outlive the processes"
    assert stage.get(stage.processes[0], KEYS[0]) == "third"
    assert stage.get(stage.processes[0], KEYS[20]) == "second"


@pytest.mark.parametrize("seed", sampled([208, *range(40)], 8))
def test_cuts_in_a_cluster_that_changes_all_the_time(seed: int) -> None:
    dice = random.Random(seed)
    stage = Cutting(4, spare=3, backups=1 + seed % 2)
    spare = [4, 5, 6]
    taken = False
    for turn in range(14):
        what = dice.choice(
            ["write", "write", "remove", "clear", "short", "join", "crash", "take", "cut off", "heal", "wait"]
        )
        some = dice.sample(KEYS, 8)
        if what == "write":
            stage.write(f"{turn}", some)
        elif what == "remove":
            stage.write("", some, Op.DELETE)
        elif what == "clear":
            stage.clear()
        elif what == "short":
            stage.write(f"{turn}", some, ttl_ms=dice.randrange(50, 3000))
        elif what == "join" and spare:
            stage.processes.append(stage.cluster.start(spare.pop()))
        elif what == "crash" and stage.cluster.settled() and len(stage.cluster.living()) > 3:
            dice.choice(stage.cluster.living()).crash()
        elif what == "cut off" and len(stage.cluster.living()) > 3:
            stage.heal()
            stage.isolate(dice.choice(stage.cluster.living()))
        elif what == "heal":
            stage.heal()
        elif what == "take" and not taken:
            taken = True
            stage.ask_owners(told_by=dice.choice(stage.cluster.living()))
            stage.wait(dice.random() * 0.02)
        stage.wait(dice.random() * 2)
    stage.heal()
    stage.take_all()
    stage.write("last", KEYS[::3])
    stage.wait(1)
    stage.judge(least=0)
    assert sum(1 for each in range(PARTITIONS) if stage.holders(each))


@pytest.mark.parametrize("ttl_ms", [200])
def test_clocks_have_no_say(ttl_ms: int) -> None:
    """What was over at the primary is in no copy of the cut; what was not is in all, though it ends a moment later."""
    stage = Cutting(3)
    stage.write("short", ttl_ms=ttl_ms)
    stage.wait((ttl_ms - 1) / 1000)
    stage.take_all()
    stage.judge(least=2)
    stage.wait(2)
    stage.judge(least=2)
    assert stage.world.now_ns > ttl_ms * MILLISECOND
