"""Partitions are lost, and maps that do not ignore it refuse them until the operator resets them.

Scenarios G2 and G3 of Ignite, with a change of the master and restarts of everybody in between.
"""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from tests.lab.sim.stage import Stage

from holdfast.actions.drain import Drain
from holdfast.actions.reset_lost import ResetLost
from holdfast.config import MapSettings
from holdfast.core.events import ActionRequested
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.world import Process

SAFE, STRICT, CARELESS = "safe", "strict", "careless"
POLICIES = {SAFE: "read-write-safe", STRICT: "read-only-safe", CARELESS: "ignore"}
COUNT = 7
KEYS = {partition_of(wire_key(f"k{number}"), 0, COUNT): f"k{number}" for number in range(60)}
"""A key of each partition."""


class Lost:
    """Some hosts with files and maps without backups; one of them dies, which is not the oldest."""

    def __init__(self, victim: int = 1, lost: str = "wait", hosts: int = 3) -> None:
        plain = simulated_settings(0, COUNT, journal="sync")
        maps = {
            name: MapSettings(backups=0, journal="sync", loss_policy=policy)  # type: ignore[arg-type]
            for name, policy in POLICIES.items()
        }
        partitions = msgspec.structs.replace(plain.partitions, lost=lost)  # type: ignore[arg-type]
        chosen = msgspec.structs.replace(plain, maps=plain.maps | maps, partitions=partitions)
        self.stage = Stage(hosts, settings=chosen)
        for name in POLICIES:
            for key in KEYS.values():
                assert self.ask(Op.SET, name, key).status is Status.OK
        gone = self.stage.processes[victim].driver.member.me
        rows = self.any.driver.member.table.rows
        self.partitions = [partition for partition, row in enumerate(rows) if row.owner == gone]
        assert self.partitions
        assert len(self.partitions) < COUNT
        self.stage.processes[victim].crash()
        self.victim = victim
        self.here = [process for at, process in enumerate(self.stage.processes) if at != victim]
        self.stage.wait(10)

    @property
    def any(self) -> Process:
        return self.stage.cluster.living()[0]

    def begin(self, op: Op, name: str, *keys: str, through: Process | None = None) -> list[Outcome]:
        raw = [wire_key(key) for key in keys]
        partitions = [partition_of(one, 0, COUNT) for one in raw] or list(range(COUNT))
        answers: list[Outcome] = []
        request = Request(
            op, name, partitions, raw[0] if raw else b"", f"value of {keys}".encode() if keys else b""
        )
        process = through or self.any
        process.step(partial(process.driver.execute, request, answers.append))
        return answers

    def ask(self, op: Op, name: str, *keys: str, through: Process | None = None) -> Outcome:
        answers = self.begin(op, name, *keys, through=through)
        self.stage.wait(1)
        assert len(answers) == 1
        return answers[0]

    def statuses(self, op: Op, name: str) -> set[int]:
        """In which partitions each living member refuses this as lost; in all others it is done."""
        told: list[set[int]] = []
        for process in self.stage.cluster.living():
            lost = set()
            for partition, key in KEYS.items():
                outcome = self.ask(op, name, key, through=process)
                assert outcome.status in (Status.OK, Status.LOST), outcome
                if outcome.status is Status.LOST:
                    lost.add(partition)
            told.append(lost)
        assert all(one == told[0] for one in told), told
        return told[0]

    def known(self) -> list[dict[int, tuple[str, ...]]]:
        """What each living member knows to be lost."""
        return [dict(member.picture.lost_partitions) for member in self.stage.cluster.members()]

    def everybody_knows(self, *names: str) -> None:
        expected = dict.fromkeys(self.partitions, tuple(sorted(names))) if names else {}
        assert self.known() == [expected] * len(self.stage.cluster.members())

    def back(self) -> None:
        """Who has died comes again, with its files."""
        self.stage.cluster.start(self.victim)
        self.stage.rest(120)

    def reset(self, *names: str) -> None:
        process = self.any
        process.step(
            partial(process.driver.handle, ActionRequested(ResetLost(list(self.partitions), list(names))))
        )
        self.stage.wait(2)


@pytest.mark.rule("routing/R-12")
@pytest.mark.rule("migration/M-7")
def test_g2_what_is_lost_is_refused_until_it_is_reset_and_then_its_data_is_there() -> None:
    """G2: all owners of p left, READ_WRITE_SAFE: read and write of p fail with an error of their own, other partitions
    work; owners return: still lost until reset; after reset the data is readable.
    """
    lost = Lost()
    lost.everybody_knows(SAFE, STRICT)
    assert lost.statuses(Op.GET, SAFE) == set(lost.partitions)
    assert lost.statuses(Op.SET, SAFE) == set(lost.partitions)
    for op in (Op.SIZE, Op.KEYS, Op.CLEAR):
        assert lost.ask(op, SAFE).status is Status.LOST

    lost.back()
    lost.everybody_knows(SAFE, STRICT)
    assert lost.statuses(Op.GET, SAFE) == set(lost.partitions)
    assert lost.ask(Op.SIZE, SAFE).status is Status.LOST
    assert lost.ask(Op.SIZE, CARELESS) == Outcome(Status.OK, len(KEYS))

    lost.reset(SAFE)
    lost.everybody_knows(STRICT)
    assert lost.statuses(Op.GET, SAFE) == set()
    assert lost.ask(Op.SIZE, SAFE) == Outcome(Status.OK, len(KEYS))
    for key in KEYS.values():
        assert lost.ask(Op.GET, SAFE, key).value == f"value of {(key,)}".encode()


@pytest.mark.rule("routing/R-12")
def test_g3_a_read_only_safe_map_takes_no_write_at_all_while_a_partition_is_lost() -> None:
    """G3: READ_ONLY_SAFE: every write to the cache fails."""
    lost = Lost()
    assert lost.statuses(Op.SET, STRICT) == set(range(COUNT))
    assert lost.statuses(Op.GET, STRICT) == set(lost.partitions)
    lost.back()
    assert lost.statuses(Op.DELETE, STRICT) == set(range(COUNT))
    lost.reset(STRICT)
    assert lost.statuses(Op.SET, STRICT) == set()


def test_g3_a_map_that_ignores_losses_waits_or_reads_what_is_absent() -> None:
    """G3: IGNORE: reads return absent, where the loss is accepted at once; else they wait, and nothing is refused."""
    waits = Lost()
    asked = waits.begin(Op.GET, CARELESS, KEYS[waits.partitions[0]])
    waits.stage.wait(5)
    assert asked == []
    waits.back()
    assert [one.value for one in asked] == [f"value of {(KEYS[waits.partitions[0]],)}".encode()]

    goes_on = Lost(lost="accept")
    assert goes_on.statuses(Op.GET, CARELESS) == set()
    assert goes_on.ask(Op.GET, CARELESS, KEYS[goes_on.partitions[0]]) == Outcome(Status.OK, None)
    assert goes_on.ask(Op.SIZE, CARELESS).value == COUNT - len(goes_on.partitions)
    assert goes_on.statuses(Op.GET, SAFE) == set(goes_on.partitions), "safe maps do not take that for granted"
    goes_on.reset(SAFE, STRICT)
    goes_on.everybody_knows()
    assert goes_on.ask(Op.SIZE, SAFE).value == COUNT - len(goes_on.partitions)


@pytest.mark.rule("migration/M-7")
def test_what_is_lost_is_known_to_a_new_master_and_to_who_is_left_alone() -> None:
    """IGNITE-10043: the list of lost partitions is not made of who is here."""
    lost = Lost(victim=3, hosts=4)
    declared = set(lost.partitions)
    lost.stage.processes[0].crash()
    lost.stage.wait(10)
    more = lost.known()[0].keys()
    assert declared < more
    (master,) = [one for one in lost.stage.cluster.living() if one.driver.member.picture.is_master]
    assert master is not lost.stage.processes[0]
    master.step(partial(master.driver.handle, ActionRequested(Drain())))
    lost.stage.wait(20)
    (alone,) = lost.stage.cluster.members()
    assert alone.picture.lost_partitions.keys() == more
    assert lost.statuses(Op.GET, SAFE) == more
    assert len(more) < COUNT


@pytest.mark.rule("migration/M-7")
@pytest.mark.parametrize("returned", [True, False])
def test_what_is_lost_survives_a_restart_of_everybody(returned: bool) -> None:
    lost = Lost()
    if returned:
        lost.back()
    lost.stage.cluster.power_cut_everywhere()
    lost.stage.world.weather.refusal = 1.0
    for host in range(3):
        lost.stage.cluster.start(host, bootstrap=host == 0)
    lost.stage.rest(120)
    lost.everybody_knows(SAFE, STRICT)
    assert lost.statuses(Op.GET, SAFE) == set(lost.partitions)
    lost.reset(SAFE, STRICT)
    lost.everybody_knows()
    for name in POLICIES:
        assert lost.ask(Op.SIZE, name) == Outcome(Status.OK, len(KEYS))


@pytest.mark.rule("routing/R-12")
def test_a_request_that_waits_is_refused_when_its_partition_is_declared_lost() -> None:
    """It does not wait for as long as a call may take."""
    lost = Lost(victim=2)
    owner = lost.stage.processes[1]
    rows = lost.any.driver.member.table.rows
    theirs = [partition for partition, row in enumerate(rows) if row.owner == owner.driver.member.me]
    owner.crash()
    asked = lost.begin(Op.GET, SAFE, KEYS[theirs[0]])
    lost.stage.wait(1)
    assert asked == []
    lost.stage.wait(10)
    assert [one.status for one in asked] == [Status.LOST]


# -- without the rules


@ablated("lost-refused")
def test_without_the_rule_what_is_lost_is_read() -> None:
    lost = Lost()
    lost.back()
    lost.everybody_knows(SAFE, STRICT)
    assert lost.statuses(Op.GET, SAFE) == set()


@ablated("lost-stays")
def test_without_the_rule_nobody_knows_of_the_loss_when_its_owner_is_back() -> None:
    lost = Lost()
    lost.everybody_knows(SAFE, STRICT)
    lost.back()
    lost.everybody_knows()
