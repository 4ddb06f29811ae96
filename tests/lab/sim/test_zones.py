"""Maps in zones on simulated members: created, written, read, moved; leaders die, members come and leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from tests.lab.sim.zone_stage import ZONED, ZoneStage, kept_settings, zoned_settings

from holdfast.actions.change_zone import AlterZone
from holdfast.actions.drain import Drain
from holdfast.config import MapSettings
from holdfast.core.events import ActionRequested, DiskRoom, MemoryRoom, Received
from holdfast.core.messages import ZoneForward
from holdfast.core.model.ids import SECOND, group_of
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.views import Room
from holdfast.core.model.zone_answers import ZoneChanged
from holdfast.core.model.zone_batches import ZoneBatch, ZoneBatchDone, ZoneChanges, ZoneWrites
from holdfast.core.multiraft.group_host import node_of
from holdfast.core.zones.descriptors import ZoneSettings
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.world import Process


@pytest.fixture
def stage() -> ZoneStage:
    return ZoneStage(4, spare=2)


def test_a_zone_is_created_and_its_maps_are_written_and_read_anywhere(stage: ZoneStage) -> None:
    for part in range(7):
        assert len(stage.replicas(part)) == 3
        stage.leader(part)
    for number, process in enumerate(stage.processes):
        stage.zput(process, f"k{number}", f"v{number}")
    for process in stage.processes:
        assert [stage.zget(process, f"k{number}") for number in range(4)] == [f"v{n}" for n in range(4)]
    stage.same()


def test_a_leader_that_dies_is_followed_by_another_with_all_that_was_answered(stage: ZoneStage) -> None:
    for number in range(20):
        stage.zput(stage.processes[0], f"k{number}", f"v{number}")
    first = stage.leader(0)
    first.crash()
    stage.wait(15)
    alive = stage.living()
    for number in range(20):
        assert stage.zget(alive[number % 3], f"k{number}") == f"v{number}"
    stage.zput(alive[0], "after", "x")
    stage.same()


def order(stage: ZoneStage, wanted: AlterZone) -> list[object]:
    """Give an order; the answer comes into the list."""
    told: list[object] = []
    process = stage.processes[0]
    process.step(partial(process.driver.act, wanted, told.append))
    return told


def test_nothing_is_unknown_when_replicas_move(stage: ZoneStage) -> None:
    key = {partition_of(wire_key(f"k{number}"), 0, 7): f"k{number}" for number in range(99)}
    answers: list[list[Outcome]] = []

    def load(seconds: int) -> None:
        for number in range(seconds * 200):
            asked = stage.processes[number % 4]
            answers.append(stage.request(asked, Op.SET, key[number % 7], f"{number}"))
            stage.wait(0.005)

    load(1)
    for without in range(2):
        there = "|".join(process.name for at, process in enumerate(stage.processes) if at != without)
        told = order(stage, AlterZone("z", filter=f"name={there}"))
        load(2)
        assert [type(answer) for answer in told] == [ZoneChanged]
        assert all(stage.processes[without] not in stage.replicas(part) for part in range(7))
    stage.wait(5)
    statuses = Counter(outcome.status for [outcome] in answers)
    assert statuses.keys() == {Status.OK}


@pytest.mark.rule("zones/Z-2")
def test_a_member_that_leaves_is_replaced_first(stage: ZoneStage) -> None:
    for number in range(20):
        stage.zput(stage.processes[0], f"k{number}", f"v{number}")
    first = stage.leader(0)
    first.step(partial(first.driver.handle, ActionRequested(Drain())))
    stage.wait(60)
    assert first.driver.stopped
    alive = stage.living()
    assert all(len(stage.replicas(part)) == 3 for part in range(7))
    for number in range(20):
        assert stage.zget(alive[number % 3], f"k{number}") == f"v{number}"
    stage.same()


def test_a_member_that_does_not_wait_takes_replicas_away() -> None:
    assert value_after_leaving() == "value"
    with ablated("zone-waits"):
        assert value_after_leaving() is None


def value_after_leaving() -> str | None:
    """What is read of a zone that may be on one member only, when that one wants to leave."""
    only = {"name": ("host3#4",)}
    stage = ZoneStage(4, zone=ZoneSettings("z", partitions=7, replicas=1, filter=only))
    first, key = _led(stage)
    assert first.name == "host3#4"
    stage.zput(stage.processes[0], key, "value")
    first.step(partial(first.driver.handle, ActionRequested(Drain())))
    stage.wait(30)
    answers = stage.request(stage.processes[0], Op.GET, key)
    stage.wait(2)
    return answers[0].value.decode() if answers and isinstance(answers[0].value, bytes) else None


def read_after_a_pause() -> str | None:
    """What a leader that was stopped for long answers, as the first thing that it does when it wakes up."""
    stage = ZoneStage(4)
    old = stage.leader(0)
    key = next(f"k{n}" for n in range(100) if partition_of(wire_key(f"k{n}"), 0, 7) == 0)
    stage.zput(old, key, "before")
    old.awake_at_ns = stage.world.now_ns + 20 * SECOND
    answers: list[Outcome] = []
    asked = Request(Op.GET, ZONED, [0], wire_key(key))
    old.whenever_awake(lambda: old.step(partial(old.driver.execute, asked, answers.append)))
    stage.wait(12)
    other = next(process for process in stage.processes if process is not old)
    stage.zput(other, key, "after")
    stage.wait(20)
    return answers[0].value.decode() if answers and isinstance(answers[0].value, bytes) else None


@pytest.mark.rule("raft_partition/Z-2")
def test_a_leader_that_was_stopped_does_not_answer_with_what_it_has() -> None:
    assert read_after_a_pause() in (None, "after")
    with ablated("read-index"):
        assert read_after_a_pause() == "before"


@pytest.mark.rule("zones/Z-1")
def test_a_member_that_joins_gets_its_share(stage: ZoneStage) -> None:
    for number in range(20):
        stage.zput(stage.processes[0], f"k{number}", f"v{number}")
    new = stage.cluster.start(4)
    stage.processes.append(new)
    stage.rest()
    stage.wait(20)
    held = sum(new in stage.replicas(part) for part in range(7))
    assert held
    assert all(len(stage.replicas(part)) == 3 for part in range(7))
    topology = {node_of(process.driver.member.membership.info) for process in stage.living()}
    assert len(topology) == 5
    for number in range(20):
        assert stage.zget(new, f"k{number}") == f"v{number}"
    stage.same()


@pytest.mark.rule("zones/Z-4")
def test_groups_are_led_by_the_owners_of_the_partitions_and_rest_there(stage: ZoneStage) -> None:
    stage.wait(10)
    for part in range(7):
        owner = stage.processes[0].driver.member.table.rows[part].owner
        here = {process.driver.member.me for process in stage.replicas(part)}
        assert stage.leader(part).driver.member.me == owner or owner not in here
    groups = [process.driver.member.agreed.groups for process in stage.processes]
    assert all(hosted.asleep for each in groups for hosted in each.hosted.values())
    stage.wait(20)
    assert all(hosted.asleep for each in groups for hosted in each.hosted.values())


def idle_stage() -> tuple[ZoneStage, Callable[[str], str | None]]:
    base = zoned_settings()
    idle = MapSettings(raft_zone="z", max_idle_ms=8000)
    stage = ZoneStage(3, settings=msgspec.structs.replace(base, maps={**base.maps, ZONED: idle}))

    def peek(key: str) -> str | None:
        """The value on every replica, without a use."""
        partition = partition_of(wire_key(key), 0, 7)
        found = set()
        for replica in stage.replicas(partition).values():
            held = replica.state.copies[partition].maps[ZONED]
            found.add(held.state.entries.get(wire_key(key)))
        assert len(found) == 1, "replicas are equal"
        [value] = found
        return value.decode() if value is not None else None

    return stage, peek


@pytest.mark.rule("raft_partition/Z-9")
def test_a_read_of_an_entry_of_a_zone_is_a_use() -> None:
    stage, peek = idle_stage()
    for key in ("used", "unused"):
        stage.zput(stage.processes[0], key, "v")
    for second in range(14):
        assert stage.zget(stage.processes[second % 3], "used") == "v"
        stage.wait(2)
    assert (peek("used"), peek("unused")) == ("v", None)
    stage.wait(5)
    assert peek("used") == "v"
    stage.wait(6)
    assert peek("used") is None
    assert stage.zget(stage.processes[1], "used") is None
    stage.same()


@pytest.mark.rule("raft_partition/Z-9")
def test_a_new_leader_knows_of_uses_and_no_idle_time_begins_again() -> None:
    stage, peek = idle_stage()
    for key in ("used", "unused"):
        stage.zput(stage.processes[0], key, "v")
    stage.wait(7)
    assert stage.zget(stage.processes[0], "used") == "v"
    for key in ("used", "unused"):
        partition = partition_of(wire_key(key), 0, 7)
        leader = stage.leader(partition)
        groups = leader.driver.member.agreed.groups
        other = next(node for node in sorted(stage.voters(partition)) if node != groups.me)
        leader.step(partial(groups.running(group_of(1, partition)).transfer, other))
        stage.until(lambda: not stage.replicas(partition)[leader].leads, what="no other leader")  # noqa: B023
    stage.wait(4)
    assert (peek("used"), peek("unused")) == ("v", None)
    stage.wait(7)
    assert peek("used") is None
    stage.same()


def test_uses_are_logged_four_times_in_an_idle_time() -> None:
    stage, _ = idle_stage()
    stage.zput(stage.processes[0], "k", "v")
    partition = partition_of(wire_key("k"), 0, 7)
    leader = stage.leader(partition)
    group = leader.driver.member.agreed.groups.hosted[group_of(1, partition)].group
    before = group.log.committed
    for _ in range(40):
        answers = stage.request(leader, Op.GET, "k")
        stage.wait(0.4)
        assert [answer.value for answer in answers] == [b"v"]
    logged = group.log.committed - before
    assert 6 <= logged <= 16, "16 s are two idle times; some sweeps look at entries that were used"


def test_operations_on_all_of_a_map_see_all_partitions(stage: ZoneStage) -> None:
    for number in range(30):
        stage.zput(stage.processes[0], f"k{number}", f"v{number}")
    answers: list[Outcome] = []
    whole = list(range(7))
    process = stage.processes[3]
    for op in (Op.SIZE, Op.CLEAR, Op.SIZE):
        process.step(partial(process.driver.execute, Request(op, ZONED, whole), answers.append))
        stage.wait(3)
    assert [answer.value for answer in answers] == [30, 30, 0]
    stage.same()


def test_an_entry_view_is_answered_like_any_read(stage: ZoneStage) -> None:
    stage.zput(stage.processes[0], "k", "value")
    for process in stage.processes:
        answers = stage.request(process, Op.ENTRY_VIEW, "k")
        stage.wait(2)
        assert isinstance(answers[0].value, list)
        assert answers[0].value[0] == b"value"


def _led(stage: ZoneStage) -> tuple[Process, str]:
    """A member, and a key that it leads."""
    key = next(f"k{number}" for number in range(99) if partition_of(wire_key(f"k{number}"), 0, 7) == 0)
    return stage.leader(0), key


def test_a_leader_without_room_in_its_memory_refuses_to_store_more(stage: ZoneStage) -> None:
    leader, key = _led(stage)
    stage.zput(leader, key, "x")
    entries = leader.driver.zone_entries(ZONED)
    assert entries is not None and entries.serving[0] is not None
    leader.step(partial(leader.driver.handle, MemoryRoom(Room.NONE)))
    stage.wait(2)
    assert entries.serving[0] is None, "the data lane leaves it to who can refuse"
    assert [each.status for each in stage.request(leader, Op.SET, key, "y")] == [Status.NO_MEMORY]
    assert stage.zget(leader, key) == "x"
    assert [each.status for each in stage.request(stage.living()[0], Op.REMOVE, "other")] != [
        Status.NO_MEMORY
    ]
    leader.step(partial(leader.driver.handle, MemoryRoom(Room.PLENTY)))
    stage.wait(2)
    stage.zput(leader, key, "z")
    assert entries.serving[0] is not None


def test_a_leader_whose_disk_is_full_refuses_to_change_anything() -> None:
    stage = ZoneStage(4, settings=kept_settings())
    leader, key = _led(stage)
    stage.zput(leader, key, "x")
    entries = leader.driver.zone_entries(ZONED)
    assert entries is not None and entries.serving[0] is not None
    leader.step(partial(leader.driver.handle, DiskRoom(full=True)))
    stage.wait(2)
    assert entries.serving[0] is None, "the data lane leaves it to who can refuse"
    for asked in (leader, next(process for process in stage.living() if process is not leader)):
        answers = [stage.request(asked, op, key, "y") for op in (Op.SET, Op.REMOVE)]
        stage.wait(2)
        assert [[each.status for each in told] for told in answers] == [[Status.NO_ROOM]] * 2
    assert stage.zget(leader, key) == "x"
    leader.step(partial(leader.driver.handle, DiskRoom(full=False)))
    stage.wait(2)
    stage.zput(leader, key, "z")
    assert entries.serving[0] is not None


def _batch(stage: ZoneStage, process: Process, batch: ZoneBatch) -> list[ZoneBatchDone]:
    done: list[ZoneBatchDone] = []
    process.step(partial(process.driver.zone_batch, batch, done.append))
    stage.wait(2)
    return done


def _writes(key: bytes, *values: bytes | None) -> tuple[int, list[ZoneChanges]]:
    """Of partition 0."""
    return 0, [ZoneWrites([(ZONED, key, value, 0, 0) for value in values], 0)]


@pytest.mark.rule("raft_partition/Z-2")
def test_a_batch_of_a_read_buffer_is_carried_out_at_once_and_confirmed(stage: ZoneStage) -> None:
    leader, key = _led(stage)
    raw = wire_key(key)
    [done] = _batch(
        stage,
        leader,
        ZoneBatch(1, [_writes(raw, b"1", b"2", None)], [0]),
    )
    assert done == ZoneBatchDone([(0, [None, b"1", b"2"])], [], None)
    other = next(process for process in stage.living() if process is not leader)
    [refused] = _batch(stage, other, ZoneBatch(1, [_writes(raw, b"3")], [0]))
    assert [(at, outcome.status) for at, outcome in refused.failed] == [(0, Status.MOVED)]
    assert refused.unconfirmed is not None and refused.unconfirmed.status is Status.MOVED
    [gone] = _batch(stage, leader, ZoneBatch(9, [_writes(raw, b"3")], []))
    assert [outcome.status for _, outcome in gone.failed] == [Status.MOVED]
    stage.same()


@pytest.mark.rule("raft_partition/Z-2", "multiraft/H-5")
def test_what_a_leader_without_a_majority_has_read_does_not_count(stage: ZoneStage) -> None:
    leader, key = _led(stage)
    stage.zput(leader, key, "old")
    stage.isolate(leader)
    done: list[ZoneBatchDone] = []
    leader.step(partial(leader.driver.zone_batch, ZoneBatch(1, [], [0]), done.append))
    stage.wait(1)
    assert done == [], "nobody has confirmed it"
    stage.wait(30)
    assert all(one.unconfirmed is not None for one in done)
    stage.heal()
    stage.wait(20)
    assert stage.zget(leader, key) == "old"


@pytest.mark.rule("multiraft/H-3")
def test_a_leader_that_stands_still_while_its_group_sleeps_is_followed_by_another() -> None:
    """Nobody but who asks can notice: the group says nothing, and the view is long in changing."""
    stage = ZoneStage(4, settings=zoned_settings(cluster={"suspect_after_ms": 60_000}))
    leader, key = _led(stage)
    stage.zput(leader, key, "x")
    stage.wait(10)
    follower = next(process for process in stage.replicas(0) if process is not leader)
    leader.awake_at_ns = stage.world.now_ns + 60 * SECOND
    passed_on = stage.request(follower, Op.PUT, key, "passed on")
    added = stage.request(follower, Op.PUT_IF_ABSENT, key, "never")
    read = stage.request(follower, Op.GET, key)
    whole = stage.request(follower, Op.SIZE, key)
    stage.wait(7)
    assert [outcome.status for outcome in (*passed_on, *added, *read, *whole)] == [Status.OK] * 4
    assert passed_on[0].value == b"x"
    assert added[0].value == b"passed on"
    stage.zput(follower, key, "y")
    assert stage.zget(follower, key) == "y"


@pytest.mark.rule("raft_partition/R-2")
def test_what_was_sent_to_a_leader_is_taken_in_no_other_term() -> None:
    """It may arrive when who sent it has had an answer from another leader, and the first leads again."""
    stage = ZoneStage(4)
    leader, key = _led(stage)
    follower = next(process for process in stage.replicas(0) if process is not leader)
    term = stage.replicas(0)[leader].term

    def arrives(of_term: int, value: bytes) -> str | None:
        asked = Request(Op.SET, ZONED, [0], wire_key(key), value)
        message = Received(follower.driver.member.me, ZoneForward(1 << 40, asked, of_term))
        leader.step(partial(leader.driver.handle, message))
        stage.wait(1)
        return stage.zget(follower, key)

    assert arrives(term - 1, b"of an earlier term") is None
    assert arrives(term + 1, b"of a later term") is None
    assert arrives(term, b"of this one") == "of this one"


@pytest.mark.rule("raft_partition/R-2")
def test_what_was_sent_to_a_leader_does_not_wait_there_until_it_leads_again() -> None:
    assert value_of_what_came_late() is None
    with ablated("forward-term"):
        assert value_of_what_came_late() == "late"


def value_of_what_came_late() -> str | None:
    """What is read when a request came to a leader that had just lost the lead, and was answered by the next one."""
    stage = ZoneStage(4)
    leader, key = _led(stage)
    follower = next(process for process in stage.replicas(0) if process is not leader)
    term = stage.replicas(0)[leader].term
    apart = _cut(stage, leader, [process for process in stage.processes if process is not leader])
    # A group that sleeps asks nobody whether it is still led.
    stage.request(leader, Op.REMOVE, key)
    stage.world.run_until(stage.world.now_ns + 10 * SECOND, stop=lambda: not stage.replicas(0)[leader].leads)
    assert not stage.replicas(0)[leader].leads
    asked = Request(Op.SET, ZONED, [0], wire_key(key), b"late")
    message = Received(follower.driver.member.me, ZoneForward(1 << 40, asked, term))
    leader.step(partial(leader.driver.handle, message))
    stage.world.run_until(stage.world.now_ns + SECOND // 10)
    for pair in apart:
        del stage.world.weather.cut[pair]
    stage.wait(20)
    return stage.zget(follower, key)


def _cut(stage: ZoneStage, one: Process, others: list[Process]) -> list[tuple[str, str]]:
    """Let nothing pass between one and others; answers the links that are cut."""
    apart = [pair for other in others for pair in ((other.host, one.host), (one.host, other.host))]
    for pair in apart:
        stage.world.weather.cut[pair] = True
    return apart


def test_copies_of_both_engines_are_found_by_map_and_partition(stage: ZoneStage) -> None:
    key = "k1"
    stage.zput(stage.processes[0], key, "v")
    stage.wait(2)
    partition = partition_of(wire_key(key), 0, 7)
    leader = stage.leader(partition)
    found = []
    for process in stage.living():
        copies = process.picture.copies
        led, held = copies.led(ZONED, partition), copies.held(ZONED, partition)
        assert (led is not None) is (process is leader)
        if held is not None:
            mine = held.copy.maps[ZONED]
            found.append((mine.counter, mine.term, mine.state.entries[wire_key(key)]))
            assert held.now_ns == stage.replicas(partition)[process].now_ns() > 10**18
        other = copies.held("m", partition)
        assert other is None or other.copy is process.picture.held[partition]
        assert (copies.led("m", partition) is None) is (process.picture.leading[partition] is None)
    assert len(found) == 3 and len(set(found)) == 1
