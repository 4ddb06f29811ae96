"""Replicas that are not what they should be are found and mended, and no more is sent than is missing."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from tests.lab.sim.stage import Stage, change, settings
from tests.sampled_cases import sampled

from holdfast.actions.set_state import SetState
from holdfast.config import MapSettings
from holdfast.core.events import ActionRequested
from holdfast.core.member import Member
from holdfast.core.messages import RepairWanted, Summary
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op
from holdfast.core.model.sync_request import How
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.model.views import ClusterState
from holdfast.core.store.replica import MapReplica
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process

INTERVAL_MS = 1000
PARTITION = 3
ENTRIES = 300
SIZE = 50


def compared(hosts: int, *, backups: int = 1, interval_ms: int = INTERVAL_MS, **more: int) -> Stage:
    """A cluster in which replicas are compared so often."""
    chosen = settings(backups, replication={"anti_entropy_ms": interval_ms, **more})
    return Stage(hosts, settings=chosen)


def keys_in(partition: int, count: int) -> list[str]:
    found: list[str] = []
    n = 0
    while len(found) < count:
        if partition_of(wire_key(f"k{n}"), 0, 7) == partition:
            found.append(f"k{n}")
        n += 1
    return found


KEYS = keys_in(PARTITION, ENTRIES)


def put_all(stage: Stage, keys: list[str], value: str = "v" * SIZE) -> None:
    """Write them through the first process, all at once."""
    process = stage.owner_of(keys[0])
    for key in keys:
        stage.ask(process, Op.SET, key, value)
    stage.wait(1)


def filled(stage: Stage) -> tuple[Member, Member, MapReplica]:
    """Write to one partition; answers its primary, its backup, and what the backup holds of the map."""
    put_all(stage, KEYS)
    stage.wait(2 * INTERVAL_MS / 1000)
    primary = stage.owner_of(KEYS[0]).driver.member
    backup = stage.backups_of(KEYS[0])[0].driver.member
    return primary, backup, backup.copies.held[PARTITION].maps[MAP]


def equal(primary: Member, backup: Member) -> bool:
    mine, other = (member.copies.held[PARTITION].maps[MAP] for member in (primary, backup))
    return (mine.state.entries, mine.updates, mine.proven_lineage()) == (
        other.state.entries,
        other.updates,
        other.proven_lineage(),
    )


def unjudged(stage: Stage) -> None:
    """These copies are wrong on purpose: do not look at every acknowledgement whether they are equal."""
    for process in stage.processes:
        lane = process.driver.member.lane
        assert isinstance(lane.batches.drained, partial)
        lane.batches.drained = lane.batches.drained.args[1]


def wrong_value(held: MapReplica) -> None:
    """A record that nobody sent is applied: its update is not counted."""
    held.state.store(wire_key(KEYS[7]), b"wrong", 0, 0, 0, 0)


def rotten_value(held: MapReplica) -> None:
    """Memory has changed; nothing has noticed."""
    held.state.entries[wire_key(KEYS[7])] = b"rotten"


def lost_entry(held: MapReplica) -> None:
    held.state.drop(wire_key(KEYS[7]))


def entry_too_many(held: MapReplica) -> None:
    held.state.store(b"stray", b"x", 0, 0, 0, 0)


@pytest.mark.rule("state_transfer/R-2")
@pytest.mark.parametrize("damage", [wrong_value, rotten_value, lost_entry, entry_too_many])
def test_wrong_content_is_found_and_only_its_key_range_is_sent(
    damage: Callable[[MapReplica], None],
) -> None:
    stage = compared(3)
    primary, backup, held = filled(stage)
    before = primary.source.flow.bytes_sent
    damage(held)
    assert not equal(primary, backup)
    stage.wait(30 * INTERVAL_MS / 1000)
    assert equal(primary, backup)
    assert primary.source.selection.fills[How.RANGES] == 1
    sent = primary.source.flow.bytes_sent - before
    assert 0 < sent < ENTRIES * SIZE / 10, "one of 64 key ranges"
    assert sent == primary.source.flow.bytes_ranges
    assert (primary.repair.repaired, backup.repair.asked) == (1, 1)
    stage.rest()


@pytest.mark.rule("state_transfer/R-1")
def test_an_update_that_was_lost_is_sent_again_and_nothing_else() -> None:
    """The backup stands before the last three updates; what comes after waits, and so do its writers."""
    stage = compared(3)
    primary, backup, held = filled(stage)
    unjudged(stage)
    before = primary.source.flow.bytes_sent
    for key in KEYS[-3:]:
        held.state.drop(wire_key(key))
    held.updates = UpdateCounter(held.counter - 3)
    later = stage.ask(stage.owner_of(KEYS[0]), Op.SET, KEYS[0], "later")
    stage.wait(4 * INTERVAL_MS / 1000)
    assert [answer.status.name for answer in later] == ["OK"]
    assert equal(primary, backup)
    assert primary.source.flow.bytes_sent - before == primary.source.flow.bytes_history < 10 * SIZE
    stage.rest()


def test_another_history_of_the_same_length_is_replaced_as_a_whole() -> None:
    stage = compared(3)
    primary, backup, held = filled(stage)
    held.lineage = [(1 << 40, 0)]
    stage.wait(3 * INTERVAL_MS / 1000)
    assert equal(primary, backup)
    assert primary.source.selection.fills[How.FULL] >= 1
    assert primary.repair.repaired == 1


@ablated("term")
def test_without_that_rule_another_history_of_the_same_length_counts_as_equal() -> None:
    stage = compared(3)
    primary, backup, held = filled(stage)
    held.lineage = [(1 << 40, 0)]
    stage.wait(3 * INTERVAL_MS / 1000)
    assert primary.repair.repaired == 0
    assert not equal(primary, backup)


@pytest.mark.rule("state_transfer/R-1")
@pytest.mark.parametrize("written", [0, 3])
def test_a_replica_that_counts_updates_that_there_never_were_is_mended(written: int) -> None:
    """It would take the next updates for known: acknowledge, and not apply them."""
    stage = compared(3)
    primary, backup, held = filled(stage)
    unjudged(stage)
    held.updates = UpdateCounter(held.counter + 5)
    if written:
        put_all(stage, KEYS[:written], "new")
    assert not equal(primary, backup)
    stage.wait(5 * INTERVAL_MS / 1000)
    assert equal(primary, backup)
    assert primary.repair.repaired == 1


@pytest.mark.rule("state_transfer/R-2")
def test_what_is_written_while_a_replica_is_mended_is_not_lost() -> None:
    stage = compared(3)
    primary, backup, _ = filled(stage)
    unjudged(stage)
    draw = random.Random(5)
    process = stage.owner_of(KEYS[0])
    answers = []
    for round_ in range(400):
        if round_ in (50, 180, 300):
            copy = backup.copies.held[PARTITION].maps[MAP]
            copy.state.store(wire_key(draw.choice(KEYS)), b"wrong", 0, 0, 0, 0)
            copy.state.drop(wire_key(draw.choice(KEYS)))
        key = draw.choice(KEYS)
        if draw.random() < 0.3:
            answers.append(stage.ask(process, Op.DELETE, key))
        else:
            answers.append(stage.ask(process, Op.SET, key, f"{round_}" * 10))
        stage.wait(0.02)
    stage.wait(4 * INTERVAL_MS / 1000)
    assert all([answer.status.name for answer in one] == ["OK"] for one in answers)
    assert primary.repair.repaired >= 1
    assert primary.source.flow.bytes_full == 0
    assert equal(primary, backup)
    stage.rest()


def test_when_replicas_are_not_compared_nothing_is_said_and_nothing_mended() -> None:
    stage = compared(3, interval_ms=0)
    primary, backup, held = filled(stage)
    wrong_value(held)
    stage.wait(60)
    assert not equal(primary, backup)
    assert [process.driver.member.repair.summaries_sent for process in stage.processes] == [0, 0, 0]
    assert held.state.touched is None, "and nothing is kept for it"


def test_replicas_that_are_equal_are_left_alone() -> None:
    stage = compared(4, backups=2)
    put_all(stage, KEYS)
    stage.wait(20)
    members = [process.driver.member for process in stage.processes]
    assert sum(member.repair.summaries_sent for member in members) >= 19 * 7 * 2
    assert [(member.repair.asked, member.repair.repaired) for member in members] == [(0, 0)] * 4


@pytest.mark.rule("state_transfer/R-5")
def test_a_primary_whose_memory_has_changed_is_told_of() -> None:
    stage = compared(3)
    told: list[str] = []
    stage.world.story = told.append
    primary, backup, _ = filled(stage)
    primary.copies.held[PARTITION].maps[MAP].state.entries[wire_key(KEYS[7])] = b"rotten"
    stage.wait(30 * INTERVAL_MS / 1000)
    assert any("replica content is damaged" in line and "primary=True" in line for line in told)
    assert backup.copies.held[PARTITION].maps[MAP].state.entries[wire_key(KEYS[7])] == b"v" * SIZE
    assert backup.repair.asked == 0, "what is wrong at the primary is not spread"


def test_the_reason_is_told() -> None:
    stage = compared(3, tail_bytes=4000)
    primary, backup, held = filled(stage)
    told: list[str] = []
    stage.world.story = told.append
    held.updates = UpdateCounter(120)
    stage.wait(3 * INTERVAL_MS / 1000)
    assert equal(primary, backup)
    starts = primary.copies.held[PARTITION].maps[MAP].tail
    assert starts is not None
    (line,) = [line for line in told if "replica synchronised" in line]
    assert f"reason=history starts at {starts.start} and 120 was asked" in line
    assert "how=full" in line


# -- who comes back


def away(stage: Stage, *, forgets: bool) -> tuple[int, int]:
    """A member is removed though alive; some of what it held changes, and it comes back. Answers how many bytes were
    sent to it of partitions that it had held, and how many such partitions there are.
    """
    for partition in range(7):
        put_all(stage, keys_in(partition, 100))
    stage.rest()
    one = stage.processes[-1]
    stage.isolate(one)
    stage.wait(12)
    others = stage.processes[:-1]
    assert len(others[0].driver.member.membership.members()) == len(others)
    for partition in range(7):
        put_all(stage, keys_in(partition, 3), "w" * SIZE)
    copies = one.driver.member.copies
    before = set(copies.held)
    if forgets:
        copies.base = lambda partition: None  # type: ignore[method-assign]
    told: list[str] = []
    stage.world.story = told.append
    stage.heal()
    stage.rest()
    sent = [line.split("bytes=")[1] for line in told if _to(line, one) and _partition(line) in before]
    return sum(map(int, sent)), len(sent)


def _to(line: str, process: Process) -> bool:
    return "replica synchronised" in line and f"to={process.driver.member.me}" in line


def _partition(line: str) -> int:
    return int(line.split("partition=")[1].split(maxsplit=1)[0])


def test_who_was_removed_though_alive_gets_only_what_it_missed() -> None:
    full, of_full = away(Stage(3), forgets=True)
    historical, of_historical = away(Stage(3), forgets=False)
    assert of_full == of_historical > 0
    assert 0 < historical <= 0.1 * full, (historical, full)


@pytest.mark.parametrize(("backups", "async_backups"), [(1, 0), (0, 1), (1, 1)])
def test_a_member_that_stood_still_so_long_that_it_was_removed_ends_equal(
    backups: int, async_backups: int
) -> None:
    chosen = msgspec.structs.replace(
        settings(1, replication={"anti_entropy_ms": INTERVAL_MS}),
        maps={"default": MapSettings(backups=backups, async_backups=async_backups)},
    )
    stage = Stage(4, settings=chosen)
    put_all(stage, KEYS[:100])
    sleeper = stage.backups_of(KEYS[0])[0]
    life = sleeper.driver.member.membership.info.life
    sleeper.awake_at_ns = stage.world.now_ns + 15 * SECOND
    stage.wait(12)
    writer = next(process for process in stage.processes if process is not sleeper)
    for key in KEYS[:3]:
        stage.ask(writer, Op.DELETE, key)
    stage.ask(writer, Op.SET, KEYS[3], "w")
    stage.wait(5)
    stage.rest()
    assert sleeper.driver.member.membership.info.life > life
    stage.wait(3)
    assert sum(process.driver.member.repair.asked for process in stage.processes) == 0
    assert [stage.get(sleeper, key) for key in KEYS[:4]] == [None, None, None, "w"]


def test_a_backup_that_was_missing_while_the_table_was_frozen_gets_what_it_missed() -> None:
    stage = Stage(3, settings=settings(1))
    for partition in range(7):
        put_all(stage, keys_in(partition, 100))
    one = stage.backups_of(KEYS[0])[0]
    change(stage, ClusterState.FROZEN)
    stage.isolate(one)
    stage.wait(12)
    held = {
        partition
        for partition, row in enumerate(one.driver.member.table.rows)
        if row.index_of(one.driver.member.me) > 0
    }
    owner = stage.owner_of(KEYS[0])
    for key in KEYS[:3]:
        stage.ask(owner, Op.SET, key, "w" * SIZE)
    stage.wait(1)
    told: list[str] = []
    stage.world.story = told.append
    stage.heal()
    stage.wait(10)
    others = next(process for process in stage.processes if process is not one)
    others.step(lambda: others.driver.handle(ActionRequested(SetState(ClusterState.ACTIVE))))
    stage.rest()
    lines = [line for line in told if _to(line, one) and _partition(line) in held]
    assert any(_partition(line) == PARTITION for line in lines)
    assert {line.split("how=")[1].split()[0] for line in lines} <= {"same", "history"}


def test_what_was_kept_for_a_return_can_be_dropped() -> None:
    stage = Stage(3)
    away(stage, forgets=False)
    copies = stage.processes[-1].driver.member.copies
    assert not copies.stale.keys() & copies.held.keys(), "what came back is not kept twice"
    copies.drop_stale()
    assert copies.stale == {}


# -- scenarios of others, group 9


@pytest.mark.parametrize(("hosts", "backups"), sampled([(2, 1), (4, 1), (7, 2), (3, 2), (5, 3)], 4))
def test_with_most_packets_lost_all_is_well_in_the_end_and_permits_are_back(hosts: int, backups: int) -> None:
    stage = compared(hosts, backups=backups)
    draw = random.Random(9)

    def lose(source: Process, target: object, data: bytes, linked: bool) -> tuple[int, ...]:
        return () if linked and draw.random() < 0.65 else (0,)

    stage.world.tap = lose  # type: ignore[assignment]
    for n in range(200):
        stage.ask(stage.processes[n % hosts], Op.SET, f"k{n}", "v")
        stage.wait(0.02)
    stage.wait(20)
    stage.world.tap = None
    stage.wait(30)
    stage.rest()
    for process in stage.processes:
        assert process.driver.member.picture.under_way() == {}


@pytest.mark.parametrize("interval_ms", [0, INTERVAL_MS])
def test_delayed_and_reordered_packets_do_no_harm(interval_ms: int) -> None:
    stage = compared(3, interval_ms=interval_ms)
    stage.world.weather.delay_ns = (100 * MILLISECOND, 1000 * MILLISECOND)
    for n in range(200):
        stage.ask(stage.processes[n % 3], Op.SET, f"k{n % 20}", f"v{n}")
        stage.wait(0.05)
    stage.wait(20)
    stage.world.weather.delay_ns = (200_000, 2 * MILLISECOND)
    stage.rest()
    assert [process.driver.member.repair.asked for process in stage.processes] == [0, 0, 0]


@pytest.mark.rule("state_transfer/R-4")
@pytest.mark.parametrize("hosts", [1, 2])
def test_a_map_that_is_gone_disappears_on_the_backups(hosts: int) -> None:
    stage = compared(hosts)
    put_all(stage, KEYS[:5])
    del stage.owner_of(KEYS[0]).driver.member.copies.held[PARTITION].maps[MAP]
    stage.wait(3 * INTERVAL_MS / 1000)
    for process in stage.processes:
        assert MAP not in process.driver.member.copies.held[PARTITION].maps
    stage.put(stage.processes[0], KEYS[0], "anew")
    stage.rest()


def receive(process: Process, sender: Member, message: Summary | RepairWanted) -> None:
    member = process.driver.member

    def told() -> None:
        if isinstance(message, Summary):
            member.repair.on_summary(sender.me, message)
        else:
            member.repair.on_wanted(sender.me, message)
        process.driver.leave_lane()

    process.step(told)


@pytest.mark.parametrize("partition", [-1, 7, 99])
def test_what_is_said_of_a_partition_that_there_is_not_has_no_effect(partition: int) -> None:
    stage = compared(3, interval_ms=0)
    one, other = stage.processes[:2]
    receive(one, other.driver.member, Summary(partition, 1, []))
    receive(one, other.driver.member, RepairWanted(partition, 1, "nonsense"))
    stage.wait(3)
    assert one.driver.member.repair.leftovers == {
        "repairs": 0,
        "summaries that wait": 0,
        "maps to be forgotten": 0,
    }


def test_who_is_no_backup_or_speaks_of_an_old_row_is_not_mended() -> None:
    stage = compared(3, interval_ms=0)
    primary, backup, held = filled(stage)
    wrong_value(held)
    version = primary.table.rows[PARTITION].version
    process = stage.owner_of(KEYS[0])
    stranger = next(p.driver.member for p in stage.processes if p.driver.member not in (primary, backup))
    receive(process, stranger, RepairWanted(PARTITION, version, "no backup"))
    receive(process, backup, RepairWanted(PARTITION, version - 1, "an old row"))
    receive(process, primary, RepairWanted(PARTITION, version, "the primary itself"))
    stage.wait(3)
    assert primary.repair.repaired == 0
    receive(process, backup, RepairWanted(PARTITION, version, "really"))
    stage.wait(3)
    assert primary.repair.repaired == 1
    assert equal(primary, backup)


@pytest.mark.rule("state_transfer/R-3")
def test_nothing_is_mended_while_migrations_are_paused() -> None:
    stage = compared(3)
    primary, backup, held = filled(stage)
    change(stage, ClusterState.NO_MIGRATION)
    wrong_value(held)
    version = primary.table.rows[PARTITION].version
    receive(stage.owner_of(KEYS[0]), backup, RepairWanted(PARTITION, version, "wrong"))
    stage.wait(10 * INTERVAL_MS / 1000)
    assert not equal(primary, backup)
    change(stage, ClusterState.ACTIVE)
    stage.wait(3 * INTERVAL_MS / 1000)
    assert equal(primary, backup)


@pytest.mark.rule("state_transfer/R-3")
def test_permits_come_back_when_the_backup_dies_meanwhile() -> None:
    stage = compared(4, parallel_repairs=1)
    for partition in range(7):
        put_all(stage, keys_in(partition, 50))
    stage.wait(3)
    victim = stage.processes[-1]
    for partition, copy in victim.driver.member.copies.held.items():
        if victim.driver.member.table.rows[partition].owner != victim.driver.member.me:
            copy.maps[MAP].state.store(b"stray", b"x", 0, 0, 0, 0)
    for other in stage.processes[:-1]:
        stage.cut(victim, other)
        member = other.driver.member
        for partition, row in enumerate(member.table.rows):
            if row.owner == member.me and victim.driver.member.me in row.replicas:
                receive(other, victim.driver.member, RepairWanted(partition, row.version, "stray"))
    stage.wait(0.1)
    assert any(process.driver.member.repair.leftovers["repairs"] for process in stage.processes)
    victim.crash()
    stage.processes.remove(victim)
    stage.heal()
    stage.rest()
    for process in stage.processes:
        assert process.driver.member.picture.under_way() == {}
