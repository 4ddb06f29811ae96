"""Maps whose partitions are Raft groups: the state that all replicas come to, and what callers are told."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
import pytest
from tests.core.multiraft.group_cluster import Cluster, Process

from holdfast.config import MapSettings, Settings
from holdfast.core.model.ids import MILLISECOND, GroupNumber, group_of, place_of
from holdfast.core.model.levels import ZONE_IDLE_TIMES
from holdfast.core.model.map_moves import CLOSED, NoMoves, PauseMap, encode_move
from holdfast.core.model.operations import EntryEvent, EventKind, Op, Outcome, Request, Status
from holdfast.core.model.records import Change
from holdfast.core.model.zone_batches import ZoneChanges, ZoneRequests, ZoneWrites
from holdfast.core.multiraft.hosted_group import ReplicaNotice
from holdfast.core.primary_backup.cuts import Cuts
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft_partition.consensus_replication import ConsensusReplication
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.core.raft_partition.zone_replicas import ZoneReplicas

NUMBER = group_of(1, 3)
SETTINGS = Settings(
    maps={
        "default": MapSettings(),
        "near": MapSettings(reads="local", raft_zone="z"),
        "told": MapSettings(changes_bytes=1 << 20),
        "ends": MapSettings(ttl_ms=60_000, max_idle_ms=30_000),
    }
)


def request(op: Op, key: str = "", value: str = "", name: str = "m", **more: object) -> Request:
    return Request(op, name, [3], key.encode(), value.encode(), **more)  # type: ignore[arg-type]


class Sink:
    """What listeners hear."""

    def __init__(self) -> None:
        self.listening = {"m": 1}
        self.heard: list[tuple[EventKind, bytes | None, bytes | None]] = []
        self.notices: list[ReplicaNotice] = []
        self.home: int | None = place_of(NUMBER)[0]
        self.marked: list[GroupNumber] = []

    def hear(self, event: EntryEvent) -> None:
        self.heard.append((event.kind, event.key, event.value))

    def zone_of(self, name: str) -> int | None:
        return self.home

    def on_marked(self, number: GroupNumber) -> None:
        self.marked.append(number)

    def on_replica(self, number: GroupNumber, notice: ReplicaNotice) -> None:
        self.notices.append(notice)


class Shared:
    """What both engines of a member have in common."""

    entries = dict
    moves = NoMoves()

    def __init__(self, process: Process) -> None:
        self.cuts = Cuts(process.info.uuid, SETTINGS, process.out, [])


class Maps:
    """A group cluster whose one group keeps maps."""

    def __init__(self, members: int = 3, seed: int = 0) -> None:
        self.cluster = Cluster(members, seed=seed)
        self.sinks: list[Sink] = []
        self.replications: list[ConsensusReplication] = []
        self.partitions: list[ZonePartition] = []
        self.cuts: list[Cuts] = []
        for number in range(1, members + 1):
            self._make(self.cluster[number])
        voters = Configuration(frozenset(self.cluster.node(each) for each in range(1, members + 1)))
        for number in range(1, members + 1):
            process = self.cluster[number]
            process.groups.start(NUMBER, voters, self.partitions[number - 1])
            process.end_step()
        self.cluster.go(40)

    def _make(self, process: Process) -> None:
        sink, shared = Sink(), Shared(process)
        zone = ZoneReplicas(SETTINGS, process.out, process.groups, sink, shared)
        replication = ConsensusReplication(zone)
        partition = replication.partitions[3] = ZonePartition(NUMBER, [3], zone)
        self.sinks.append(sink)
        self.cuts.append(shared.cuts)
        self.replications.append(replication)
        self.partitions.append(partition)

    @property
    def leader(self) -> int:
        found = [at for at, one in enumerate(self.replications) if self.cluster[at + 1].up and one.leads(3)]
        assert len(found) == 1
        return found[0]

    def ask(self, at: int, *requests: Request) -> list[Outcome]:
        told: list[Outcome] = []
        for each in requests:
            self.replications[at].submit(each, told.append)  # type: ignore[arg-type]
        self.end_step(at)
        return told

    def end_step(self, at: int) -> None:
        self.replications[at].flush()
        self.cluster[at + 1].end_step()

    def whole(self, at: int, asked: Request) -> list[tuple[Outcome, Sequence[int]]]:
        told: list[tuple[Outcome, Sequence[int]]] = []
        self.replications[at].submit_whole(
            asked, lambda outcome, left, missed: told.append((outcome, missed))
        )
        self.end_step(at)
        return told


def test_a_write_is_answered_when_a_majority_has_it_and_all_replicas_come_to_the_same() -> None:
    maps = Maps()
    at = maps.leader
    told = maps.ask(
        at, request(Op.SET, "a", "1"), request(Op.PUT, "a", "2"), request(Op.PUT_IF_ABSENT, "b", "3")
    )
    assert told == []
    maps.cluster.go(3)
    assert [(each.status, each.value) for each in told] == [
        (Status.OK, None),
        (Status.OK, b"1"),
        (Status.OK, None),
    ]
    states = [list(one.state.pieces()) for one in maps.partitions]
    assert states[0] == states[1] == states[2]
    assert [kind for kind, _, _ in maps.sinks[at].heard] == [
        EventKind.ADDED,
        EventKind.UPDATED,
        EventKind.ADDED,
    ]
    assert sum(bool(sink.heard) for sink in maps.sinks) == 1, "only the leader tells listeners"


@pytest.mark.rule("raft_partition/Z-8")
def test_each_step_of_a_move_lets_the_member_look_again_what_its_lane_may_serve() -> None:
    """Else the lane would go on reading a map that is paused here, while another member serves its new place."""
    maps = Maps()
    at = maps.leader
    maps.ask(at, request(Op.SET, "a", "1"))
    maps.cluster.go(3)
    for sink in maps.sinks:
        sink.marked.clear()
    pause = Request(Op.MOVE, "m", [3], value=encode_move(PauseMap(1, 1)))
    maps.replications[at].propose(pause, lambda outcome: None)  # type: ignore[arg-type]
    maps.end_step(at)
    maps.cluster.go(3)
    assert maps.partitions[at].state.is_paused()
    assert [sink.marked for sink in maps.sinks] == [[NUMBER]] * 3


@pytest.mark.rule("raft_partition/Z-8")
@pytest.mark.parametrize("closed", ["m", "n"])
def test_all_changes_of_a_batch_are_applied_or_none(closed: str) -> None:
    """Batches of two maps that share a log entry: only those of the closed one are rejected."""
    maps = Maps()
    at = maps.leader
    told: dict[str, Outcome] = {}
    pause = Request(Op.MOVE, closed, [3], value=encode_move(PauseMap(1, 1)))
    maps.replications[at].propose(pause, lambda outcome: None)
    maps.end_step(at)
    maps.cluster.go(3)
    index = maps.partitions[at].state.index
    for name in ("m", "n"):
        changes: list[ZoneChanges] = [
            ZoneWrites([(name, b"a", b"1", 0, 0)], 3),
            ZoneRequests([request(Op.REPLACE, "a", "2", name), request(Op.PUT_IF_ABSENT, "b", "3", name)]),
            ZoneWrites([(name, b"c", b"4", 0, 0)], 3),
        ]
        maps.replications[at].change(3, changes, partial(told.__setitem__, name))
    maps.end_step(at)
    maps.cluster.go(3)
    open_ = "n" if closed == "m" else "m"
    assert maps.partitions[at].state.index == index + 1, "they share an entry"
    assert told == {closed: CLOSED, open_: Outcome(Status.OK, [None, b"1", None, None])}
    for partition in maps.partitions:
        held = partition.state.copies[3].maps
        assert held[open_].state.entries == {b"a": b"2", b"b": b"3", b"c": b"4"}
        assert closed not in held


def test_requests_of_a_batch_get_the_lifetimes_of_their_map() -> None:
    maps = Maps()
    at = maps.leader
    for process in maps.cluster.processes.values():
        process.out.level = ZONE_IDLE_TIMES
    told: list[Outcome] = []
    given = [request(Op.PUT_IF_ABSENT, key, "1", "ends") for key in ("a", "b")]
    given[1] = msgspec.structs.replace(given[1], ttl_ms=7000, max_idle_ms=0)
    maps.replications[at].change(3, [ZoneRequests(given)], told.append)
    maps.end_step(at)
    maps.cluster.go(3)
    assert told == [Outcome(Status.OK, [None, None])]
    expiries = maps.partitions[at].state.copies[3].maps["ends"].state.expiries
    found = {key: (one.ttl_ms, one.max_idle_ms) for key, one in expiries.items()}
    assert found == {b"a": (60_000, 30_000), b"b": (7000, 0)}


@pytest.mark.rule("raft_partition/Z-10")
def test_listeners_are_not_notified_of_a_map_that_lives_elsewhere_by_now() -> None:
    """A new leader may apply the last entries from before a move when the map is served at its new place."""
    maps = Maps()
    at = maps.leader
    for sink in maps.sinks:
        sink.home = None
    told = maps.ask(at, request(Op.SET, "a", "1"))
    maps.cluster.go(3)
    assert [each.status for each in told] == [Status.OK]
    assert [sink.heard for sink in maps.sinks] == [[], [], []]


def test_what_came_in_one_step_is_one_entry_of_the_log() -> None:
    maps = Maps()
    at = maps.leader
    log = maps.cluster[at + 1].groups.hosted[NUMBER].group.log
    before = log.last
    maps.ask(at, *(request(Op.SET, f"k{each}", "v") for each in range(50)))
    assert log.last == before + 1


@pytest.mark.rule("raft_partition/Z-1")
def test_a_change_whose_place_another_has_taken_was_not_applied() -> None:
    maps = Maps()
    at = maps.leader
    cluster = maps.cluster
    cut = cluster[at + 1].info.uuid
    cluster.cut = {cut}
    told = maps.ask(at, request(Op.SET, "lost", "x"))
    cluster.go(5)
    assert told == []
    cluster.install([uuid for uuid in cluster.processes if uuid != cut])
    cluster.go(5)
    cluster.cut = set()
    cluster.install(cluster.processes)
    cluster.go(40)
    assert maps.leader != at
    new = maps.ask(maps.leader, request(Op.SET, "next", "y"))
    cluster.go(10)
    assert [each.status for each in new] == [Status.OK]
    assert [each.status for each in told] == [Status.MOVED]
    assert all(one.state.read(request(Op.GET, "lost"), 0).answer is None for one in maps.partitions)


@pytest.mark.rule("raft_partition/Z-1")
def test_a_change_of_which_nothing_is_heard_is_unknown() -> None:
    maps = Maps()
    at = maps.leader
    told = maps.ask(at, request(Op.SET, "a", "x"))
    maps.cluster.network.clear()
    maps.cluster[at + 1].out.now_ns += 10**12
    maps.replications[at].sweep()
    assert [each.status for each in told] == [Status.UNKNOWN]


@pytest.mark.rule("raft_partition/Z-2")
def test_a_leader_that_nobody_confirms_answers_no_read_but_a_local_one() -> None:
    maps = Maps()
    at = maps.leader
    maps.ask(at, request(Op.SET, "a", "1"), request(Op.SET, "a", "1", name="near"))
    maps.cluster.go(3)
    told = maps.ask(at, request(Op.GET, "a"))
    near = maps.ask(at, request(Op.GET, "a", name="near"))
    assert [each.value for each in near] == [b"1"]
    assert told == []
    maps.cluster.network.clear()
    maps.replications[at].sweep()
    assert told == []
    maps.cluster.go(8)
    maps.cluster[at + 1].out.now_ns += 600 * MILLISECOND
    maps.replications[at].sweep()
    maps.cluster[at + 1].end_step()
    maps.cluster.go(3)
    assert [each.value for each in told] == [b"1"]


@pytest.mark.rule("raft_partition/Z-3")
def test_a_request_that_comes_again_is_applied_once() -> None:
    maps = Maps()
    at = maps.leader
    first = maps.ask(at, request(Op.PUT_IF_ABSENT, "a", "1", id=b"me1"))
    maps.cluster.go(3)
    maps.ask(at, request(Op.SET, "a", "2"))
    maps.cluster.go(3)
    again = maps.ask(at, request(Op.PUT_IF_ABSENT, "a", "1", id=b"me1"))
    maps.cluster.go(3)
    assert first == again
    assert maps.partitions[0].state.read(request(Op.GET, "a"), 0).answer == b"2"


@pytest.mark.rule("raft_partition/Z-4")
def test_an_entry_ends_for_all_replicas_at_the_same_place_of_the_log() -> None:
    maps = Maps()
    at = maps.leader
    maps.ask(at, request(Op.SET, "a", "1", ttl_ms=5000))
    maps.cluster.go(3)
    before = [list(one.state.pieces()) for one in maps.partitions]
    assert before[0] == before[1] == before[2]
    process = maps.cluster[at + 1]
    process.out.epoch_ms += 6000
    told = maps.ask(at, request(Op.GET, "a"))
    maps.cluster.go(3)
    assert [each.value for each in told] == [None]
    maps.replications[at].sweep()
    maps.end_step(at)
    maps.cluster.go(3)
    assert [one.state.copies[3].maps["m"].state.entries for one in maps.partitions] == [{}, {}, {}]
    assert maps.sinks[at].heard[-1][0] is EventKind.EXPIRED
    # A leader whose clock is behind does not take time back.
    process.out.epoch_ms -= 6000
    maps.ask(at, request(Op.SET, "b", "1"))
    maps.cluster.go(3)
    assert {one.state.time_ms for one in maps.partitions} == {6000}


def test_operations_on_whole_partitions_say_what_is_not_led_here() -> None:
    maps = Maps()
    at = maps.leader
    maps.ask(at, *(request(Op.SET, f"k{each}", "v") for each in range(5)))
    maps.cluster.go(3)
    asked = Request(Op.SIZE, "m", [2, 3])
    told = maps.whole(at, asked)
    maps.cluster.go(3)
    assert [(outcome.value, missed) for outcome, missed in told] == [(5, [2])]
    cleared = maps.whole(at, Request(Op.CLEAR, "m", [3]))
    maps.cluster.go(3)
    assert [(outcome.value, missed) for outcome, missed in cleared] == [(5, [])]
    assert all(not one.state.copies[3].maps["m"].state.entries for one in maps.partitions)
    other = (at + 1) % 3
    assert maps.whole(other, asked)[0][1] == [2, 3]


CUT = b"c" * 16


def pin(*names: str, lease_ms: int = 60_000) -> Request:
    return Request(Op.PIN, names[0], [3], CUT, items=[name.encode() for name in names], ttl_ms=lease_ms)


@pytest.mark.rule("raft_partition/Z-7")
def test_all_replicas_keep_the_same_of_a_cut() -> None:
    maps = Maps()
    at = maps.leader
    maps.ask(at, request(Op.SET, "a", "1"), request(Op.SET, "b", "1", ttl_ms=5000), request(Op.SET, "c", "1"))
    maps.cluster.go(3)
    maps.cluster[at + 1].out.epoch_ms += 6000
    told = maps.ask(
        at, pin("m", "none"), request(Op.SET, "a", "2"), request(Op.REMOVE, "c"), request(Op.SET, "d", "2")
    )
    maps.cluster.go(3)
    members = [maps.cluster[number].info.uuid for number in (1, 2, 3)]
    [lead] = [members[at]]
    answer = told[0].value
    assert isinstance(answer, list)
    assert answer[:6] == [5, answer[1], 2, 0, 0, 0], "the expired entry is removed first; then comes the cut"
    assert answer[6:] == [member.encode() for member in (lead, *sorted({*members} - {lead}))]
    pins = [cuts.find(CUT, 3, "m") for cuts in maps.cuts]
    assert [(one.counter, one.term, dict(one.content())) for one in pins if one is not None] == [
        (5, answer[1], {b"a": b"1", b"c": b"1"})
    ] * 3
    states = [list(one.state.pieces()) for one in maps.partitions]
    assert states[0] == states[1] == states[2]
    assert [cuts.find(CUT, 3, "none") for cuts in maps.cuts] == [None] * 3


@pytest.mark.rule("raft_partition/Z-7")
def test_a_replica_from_a_later_snapshot_keeps_no_pin_and_one_from_its_log_does() -> None:
    maps = Maps()
    at = maps.leader
    maps.ask(at, request(Op.SET, "a", "1"), pin("m"))
    maps.cluster.go(3)
    other = (at + 1) % 3
    kept = maps.cuts[other].find(CUT, 3, "m")
    maps.cuts[other].hold(CUT, 0)
    maps.partitions[other].restore(list(maps.partitions[at].pieces()))
    assert kept is not None and maps.cuts[other].find(CUT, 3, "m") is None
    log = maps.cluster[at + 1].groups.hosted[NUMBER].group.log
    entries = [entry for entry in log.entries_from(log.first) if entry.data]
    maps.partitions[other].restore([])
    maps.partitions[other].apply(entries)
    again = maps.cuts[other].find(CUT, 3, "m")
    assert again is not None and (again.counter, again.content()) == (kept.counter, {b"a": b"1"})
    assert list(maps.partitions[other].pieces()) == list(maps.partitions[at].pieces())


def test_a_mark_in_the_log_of_an_older_build_changes_nothing() -> None:
    maps = Maps()
    at = maps.leader
    maps.ask(at, request(Op.SET, "a", "1"))
    maps.cluster.go(3)
    before = list(maps.partitions[at].pieces())
    command = msgspec.msgpack.encode((1, [(2,)], False))
    maps.cluster[at + 1].groups.propose(NUMBER, [command])
    maps.cluster[at + 1].end_step()
    maps.cluster.go(3)
    assert list(maps.partitions[at].pieces())[1:] == before[1:]
    assert maps.partitions[at].state.time_ms >= 1


def test_a_map_with_a_change_stream_is_cleared_entry_by_entry() -> None:
    maps = Maps()
    at = maps.leader
    keys = [f"k{number}" for number in range(2500)]
    maps.ask(at, *(request(Op.SET, key, "v", name="told") for key in keys))
    maps.cluster.go(5)
    told = maps.whole(at, Request(Op.DESTROY, "told", [3]))
    for _ in range(12):
        maps.end_step(at)
        maps.cluster.go(2)
    assert [(outcome.value, missed) for outcome, missed in told] == [(2500, [])]
    maps.ask(at, request(Op.SET, "again", "v", name="told"))
    maps.cluster.go(3)
    for one in maps.partitions:
        held = one.state.copies[3].maps["told"]
        assert held.counter == 5001, "each entry is stored and removed by an update of its own"
    told = maps.whole(at, Request(Op.CLEAR, "told", [3]))
    for _ in range(4):
        maps.end_step(at)
        maps.cluster.go(2)
    assert told[0][0].value == 1
    held = maps.partitions[at].state.copies[3].maps["told"]
    assert held.tail is not None
    kinds = [record.change for _, record in held.tail.some(held.tail.start, held.tail.end, 1 << 20)]
    assert kinds == [Change.SET, Change.REMOVE]


def test_a_clearing_is_missed_where_the_leader_has_gone() -> None:
    maps = Maps()
    at = maps.leader
    maps.ask(at, request(Op.SET, "a", "v", name="told"))
    maps.cluster.go(3)
    told: list[tuple[Outcome, Sequence[int]]] = []
    maps.replications[at].submit_whole(
        Request(Op.CLEAR, "told", [3]), lambda outcome, left, missed: told.append((outcome, missed))
    )
    maps.partitions[at].stop()
    maps.end_step(at)
    assert [missed for _, missed in told] == [[3]]
