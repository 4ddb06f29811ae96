"""A state that no machine knows is replicated, moved, written down, brought back and mended like every other one."""

from __future__ import annotations

from functools import partial

import pytest
from tests.core.operations.logs import NAME, Logs, LogState
from tests.lab.sim.stage import Stage
from tests.lab.sim.test_repair import unjudged

from holdfast.core.member import Member
from holdfast.core.model.object_names import part_name
from holdfast.core.model.operations import EntryEvent, Op, Outcome, Request, Status
from holdfast.core.model.sync_request import How
from holdfast.core.store.replica import ServiceReplica
from holdfast_lab.check import convergence
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.world import Process


class Logging(Stage):
    """Three members with a log in each partition; that of partition 0 is spoken of."""

    def __init__(
        self,
        journal: str = "off",
        backups: int = 1,
        *,
        anti_entropy_ms: int = 0,
        chunk_bytes: int = 64,
        tail_bytes: int = 65_536,
    ) -> None:
        base = simulated_settings(
            1,
            3,
            journal=journal,
            chunk_bytes=chunk_bytes,
            anti_entropy_ms=anti_entropy_ms,
            tail_bytes=tail_bytes,
        )
        super().__init__(3, settings=base, services=lambda: [Logs(backups, journal)])

    @property
    def owner(self) -> Process:
        return next(p for p in self.cluster.living() if p.driver.member.lane.leading[0] is not None)

    @property
    def backup(self) -> Process:
        name = self.owner.driver.member.table.rows[0].replicas[1]
        return next(p for p in self.cluster.living() if p.driver.member.me == name)

    def told(self, update: bytes, op: Op = Op.CALL) -> list[Outcome]:
        answers: list[Outcome] = []
        request = Request(op, NAME, [0], value=update)
        self.owner.step(partial(self.owner.driver.execute, request, answers.append))
        return answers

    def write(self, *updates: bytes) -> None:
        """Each is acknowledged."""
        answers = [self.told(update) for update in updates]
        self.wait(1)
        assert [answer.status for one in answers for answer in one] == [Status.OK] * len(updates)


def log_of(member: Member) -> ServiceReplica | None:
    copy = member.copies.held.get(0)
    return copy.services.get(part_name(NAME)) if copy is not None else None


def held_by(process: Process) -> dict[int, bytes]:
    held = log_of(process.driver.member)
    assert held is not None
    assert isinstance(held.state, LogState)
    return held.state.lines


LINES = [b"+line %d" % number for number in range(40)]
HELD = {number: b"line %d" % number for number in range(40)}


def test_it_is_copied_in_chunks_to_who_joins_and_read_from_there() -> None:
    stage = Logging()
    stage.write(*LINES, b"-5")
    for _ in range(2):
        host = stage.cluster.addresses.index(stage.owner.address)
        stage.owner.crash()
        stage.rest(120)
        stage.cluster.start(host)
        stage.rest(120)
        later = {number: line for number, line in HELD.items() if number >= 5}
        assert held_by(stage.owner) == held_by(stage.backup) == later
    answers = stage.told(b"7", Op.ASK)
    stage.wait(1)
    assert [answer.value for answer in answers] == [b"line 7"]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_it_comes_back_from_its_files_in_the_form_that_it_has_written(checkpoint: bool) -> None:
    stage = Logging("sync")
    stage.write(*LINES[:20])
    if checkpoint:
        # Whoever is filled writes a checkpoint.
        host = stage.cluster.addresses.index(stage.backup.address)
        stage.backup.crash()
        stage.cluster.start(host)
        stage.rest(120)
    stage.write(*LINES[20:], b"-5")
    expected = {number: line for number, line in HELD.items() if number >= 5}
    assert held_by(stage.owner) == expected
    living = [stage.cluster.addresses.index(process.address) for process in stage.cluster.living()]
    stage.cluster.power_cut_everywhere()
    for host in living:
        stage.cluster.start(host)
    stage.rest(120)
    assert held_by(stage.owner) == held_by(stage.backup) == expected
    stage.write(b"+after")
    assert held_by(stage.owner)[40] == b"after"


@pytest.mark.parametrize("tail_bytes", [65_536, 0])
def test_who_returns_with_its_files_is_sent_what_it_has_missed(tail_bytes: int) -> None:
    """Of what memory does not hold any more the journal tells."""
    stage = Logging("sync", 2, tail_bytes=tail_bytes)
    stage.write(*LINES[:20])
    host = stage.cluster.addresses.index(stage.backup.address)
    stage.backup.crash()
    for line in LINES[20:]:
        stage.told(line)
    stage.wait(1)
    stage.cluster.start(host)
    stage.rest(120)
    assert all(held_by(process) == HELD for process in stage.cluster.living())
    assert sum(m.source.selection.fills[How.HISTORY] for m in stage.cluster.members()) > 0


@pytest.mark.rule("state_transfer/R-2", "primary_backup/F-5")
def test_what_differs_is_found_and_only_its_range_is_sent_while_it_is_written_to() -> None:
    stage = Logging(anti_entropy_ms=1000)
    stage.write(*LINES)
    unjudged(stage)
    held_by(stage.backup)[6] = b"something else"
    for number in range(300):
        stage.told(b"+more %d" % number)
        stage.wait(0.1)
    stage.rest()
    assert held_by(stage.owner) == held_by(stage.backup)
    assert held_by(stage.backup)[6] == HELD[6]
    fills = stage.owner.driver.member.source.selection.fills
    assert fills[How.RANGES] == 1


def test_the_judge_of_copies_sees_what_differs() -> None:
    stage = Logging()
    stage.write(*LINES)
    held_by(stage.backup)[6] = b"something else"
    name = part_name(NAME)
    assert convergence.judge(stage.cluster.pictures()) == [
        f"partition 0: what {name} holds differs at index 1"
    ]


def test_listeners_hear_what_is_done_to_it() -> None:
    stage = Logging()
    heard: list[EntryEvent] = []
    listen = stage.backup.driver.callers.listen
    stage.backup.step(lambda: listen(part_name(NAME), key=None, local_only=False, on_event=heard.append))
    stage.wait(1)
    stage.write(*LINES[:3], b"-2", b"-2")
    assert [event.value for event in heard] == [*LINES[:3], b"-2"], "the second cut has cut nothing"
