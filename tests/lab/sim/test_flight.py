"""Bytes in flight while partitions move: bounded for each member and for the cluster, at every instant of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from tests.lab.sim.stage import Stage, settings

from holdfast.core.events import FlightBounded
from holdfast.core.member import Member
from holdfast.core.messages import Fill, Filled, Message
from holdfast.core.migration.migration_master import MigrationMaster
from holdfast.core.migration.planning import Way
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import Op
from holdfast.core.model.partition_table import Assignment
from holdfast.engine.driver import Driver

CHUNK = 1024
FREE = 1 << 30
ENTRIES, VALUE_BYTES = 600, 200


class Watched:
    """A cluster with entries, and the most that was ever in flight; counted from the messages, not by the source."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **bounds: int) -> None:
        self.flying: dict[tuple[MemberId, int], int] = {}
        """(Source, ticket of the supply) -> bytes of the chunk that is sent and not acknowledged."""
        self._look: Callable[[], None] = lambda: None
        self.largest_chunk = 0
        self.most_of_one = self.most_at_once = self.most_at_one_end = self.most_owners = 0
        send, received = Driver._send, Member.on_received

        def watch_send(driver: Driver, to: MemberId, message: object) -> None:
            if isinstance(message, Fill):
                size = sum(len(one) for part in message.maps for one in (*part.keys, *part.values))
                self.flying[driver.member.me, message.ticket] = size
                self.largest_chunk = max(self.largest_chunk, size)
                me = driver.member.me
                its = sum(flying for (source, _), flying in self.flying.items() if source == me)
                if size:  # The last chunk has no entries, and waits for no room.
                    self.most_of_one = max(self.most_of_one, its)
                self._look()
            send(driver, to, message)

        def watch_received(member: Member, sender: MemberId, message: Message) -> None:
            if isinstance(message, Filled):
                self.flying.pop((member.me, message.ticket), None)
            received(member, sender, message)

        monkeypatch.setattr(Driver, "_send", watch_send)
        monkeypatch.setattr(Member, "on_received", watch_received)
        partitions = {"count": 24, "chunk_bytes": CHUNK, "parallel_migrations": 8} | bounds
        self.stage = Stage(2, spare=1, settings=settings(partitions=partitions))
        answers = [
            self.stage.ask(self.stage.processes[0], Op.SET, f"key {number}", "v" * VALUE_BYTES)
            for number in range(ENTRIES)
        ]
        self.stage.wait(3)
        assert all(len(found) == 1 for found in answers)
        self.largest_chunk = self.most_of_one = 0

    def grow(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """A third member joins; look at the master at every chunk, and do something every 100 ms."""
        stage = self.stage
        migrations = stage.processes[0].driver.member.migrations

        def look() -> None:
            running = migrations.running.values()
            self.most_at_once = max(self.most_at_once, len(running))
            ends = Counter(end for one in running for end in (one.owner, one.migration.destination))
            self.most_at_one_end = max(self.most_at_one_end, *ends.values(), 0)
            self.most_owners = max(self.most_owners, len({one.owner for one in running}))

        def settled() -> bool:
            meanwhile()
            return stage.cluster.settled()

        self._look = look
        before = migrations.completed
        stage.processes.append(stage.cluster.start(2))
        stage.world.run_until(stage.world.now_ns + 60_000_000_000, stop=settled)
        stage.rest()
        assert migrations.completed - before > 8


@pytest.mark.rule("state_transfer/S-5")
def test_chunks_and_the_bytes_of_one_member_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = 3 * CHUNK
    watched = Watched(monkeypatch, max_in_flight_bytes=bound)
    watched.grow()
    assert VALUE_BYTES < watched.largest_chunk <= CHUNK
    assert CHUNK < watched.most_of_one <= bound


@pytest.mark.rule("state_transfer/S-5")
def test_bounds_can_change_while_a_member_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, max_in_flight_bytes=FREE)
    for process in watched.stage.processes:
        process.driver.handle(FlightBounded(CHUNK // 2))
        process.driver.handle(FlightBounded(2 * CHUNK))
    watched.grow()
    assert CHUNK // 2 < watched.largest_chunk <= CHUNK, "chunks are as large again as they may be"
    assert CHUNK < watched.most_of_one <= 2 * CHUNK


@pytest.mark.rule("state_transfer/S-5")
def test_a_bound_counts_in_the_middle_of_migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, max_in_flight_bytes=FREE)
    before: list[int] = []

    def lower() -> None:
        if not before and watched.most_of_one > 3 * CHUNK:
            before.append(watched.most_of_one)
            watched.most_of_one = 0
            for process in watched.stage.processes:
                process.driver.handle(FlightBounded(CHUNK // 2))

    watched.grow(lower)
    assert before, "it was lowered while much was on its way"
    assert 0 < watched.most_of_one <= CHUNK, "chunks that were ready go one at a time"


def test_chunks_are_not_larger_than_what_may_be_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, max_in_flight_bytes=FREE)
    for process in watched.stage.processes:
        process.driver.handle(FlightBounded(CHUNK // 2))
    watched.grow()
    assert watched.most_of_one == watched.largest_chunk <= CHUNK // 2


def test_without_a_bound_one_member_has_more_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, max_in_flight_bytes=FREE)
    watched.grow()
    assert watched.most_of_one > 3 * CHUNK


@pytest.mark.parametrize(
    ("bound", "most"),
    [(5 * CHUNK, 5), (2 * CHUNK - 1, 1), (CHUNK, 1)],
    ids=["five", "one and a bit", "one"],
)
def test_no_more_migrations_run_than_may_have_a_chunk_in_flight(
    monkeypatch: pytest.MonkeyPatch, bound: int, most: int
) -> None:
    watched = Watched(monkeypatch, max_in_flight_bytes_total=bound)
    watched.grow()
    assert watched.most_at_once == most


def test_without_a_bound_in_total_more_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to eight at a time go to the new member when nothing else bounds them."""
    watched = Watched(monkeypatch, max_in_flight_bytes_total=FREE)
    watched.grow()
    assert 5 < watched.most_at_once <= 8


def test_partitions_move_at_the_same_time_from_all_owners_and_no_member_has_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, parallel_migrations=5)
    watched.grow()
    assert watched.most_at_one_end == 5
    assert watched.most_owners == 2


def test_what_restores_a_copy_is_started_before_what_only_balances(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two members one crashes, and another joins; one migration at a time."""
    watched = Watched(monkeypatch, parallel_migrations=1)
    started: list[bool] = []
    start = MigrationMaster._start_one

    def watch_start(migrations: MigrationMaster, partition: int, row: Assignment, way: Way) -> bool:
        started.append(way.balances)
        assert all(other.balances for other in migrations.planning.planned.waiting) or not way.balances
        return start(migrations, partition, row, way)

    monkeypatch.setattr(MigrationMaster, "_start_one", watch_start)
    watched.stage.processes[1].crash()
    watched.grow()
    assert set(started) == {False, True}
