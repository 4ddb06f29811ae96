"""Who leads which group, and where requests on maps in zones go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from tests.core.multiraft.group_cluster import Cluster

from holdfast.config import LimitSettings, MapSettings, MetastoreSettings, PartitionSettings, Settings
from holdfast.core.effects import Complete, Send
from holdfast.core.messages import Answer, ZoneForward, ZoneLeaders
from holdfast.core.model.ids import GroupNumber, MemberId, group_of
from holdfast.core.model.levels import SHARED_GROUPS, ZONE_IDLE_TIMES
from holdfast.core.model.map_moves import NoMoves
from holdfast.core.model.operations import EntryEvent, Op, Outcome, Request, Status
from holdfast.core.model.zone_batches import ZoneBatch, ZoneRequests, ZoneWrites
from holdfast.core.multiraft.hosted_group import ReplicaNotice
from holdfast.core.outbox import Outbox
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft_partition.consensus_replication import ConsensusReplication
from holdfast.core.raft_partition.leader_routing import LeaderRouting
from holdfast.core.routing.pending import Parked, Peer, Waiting
from holdfast.core.routing.processor_runs import ProcessorRuns
from holdfast.core.routing.request_refusals import RequestRefusals
from holdfast.wire.codec import decode

SETTINGS = Settings(
    partitions=PartitionSettings(count=4),
    metastore=MetastoreSettings(voters=3),
    maps={"default": MapSettings(), "m": MapSettings(raft_zone="z")},
)
NUMBER = group_of(7, 2)


class Around:
    """What is around the routing: other members, listeners, who watches replicas."""

    listening: dict[str, int] = {}  # noqa: RUF012 - nobody writes to it

    def is_member(self, member: MemberId) -> bool:
        return True

    def hears(self, member: MemberId) -> bool:
        return True

    def hear(self, event: EntryEvent) -> None: ...

    def on_replica(self, number: GroupNumber, notice: ReplicaNotice) -> None: ...


@dataclass
class Others:
    """The router of all other maps."""

    waiting: Waiting
    refusals: RequestRefusals
    gatherings: Any = None
    heartbeats: Any = None
    runs: Any = None
    adopted: list[Any] = field(default_factory=list)
    dropped: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.runs = ProcessorRuns(Outbox(), self.waiting, LimitSettings())

    def depart(self, names: frozenset[str], rehoming: object) -> None: ...

    def execute(self, request: object, asker: object) -> None: ...

    def pass_on(self) -> None: ...

    def adopt(self, parked: object) -> None:
        self.adopted.append(parked)

    def drop(self, parked: object, outcome: Outcome) -> None:
        self.dropped.append(outcome)


class Shared:
    """What both engines have in common: plain tables, and no cuts."""

    entries = dict
    cuts: Any = None
    moves = NoMoves()


class RoutingBench:
    """The routing of one member of a cluster of groups."""

    def __init__(self) -> None:
        self.cluster = Cluster(3)
        self.process = self.cluster[1]
        around = Around()
        out = self.process.out
        self.others = Others(
            Waiting(SETTINGS, out),
            RequestRefusals(SETTINGS, [], ConsensusReplication(self.process)),  # type: ignore[arg-type]
        )
        self.zones = LeaderRouting(
            self.process.info.uuid,
            SETTINGS,
            out,
            self.process.groups,
            around,
            around,
            self.others,
            Shared(),
            around,
        )

    def effects(self, kind: type[Any]) -> list[Any]:
        self.zones.flush(list(self.cluster.processes))
        return [effect for effect in self.process.out.take() if isinstance(effect, kind)]

    def ask(self, token: int = 1, **changed: Any) -> None:
        self.zones.execute(Request(Op.SET, "m", [2], b"k", b"v", **changed), token)


@pytest.fixture
def bench() -> RoutingBench:
    return RoutingBench()


def test_a_map_in_a_zone_that_there_is_not_is_refused(bench: RoutingBench) -> None:
    bench.ask()
    [told] = bench.effects(Complete)
    assert told.answer.status is Status.NOT_READY
    assert "holdfast zone create z" in told.answer.detail


def test_only_maps_of_zones_are_held_here(bench: RoutingBench) -> None:
    assert bench.zones.homes.holds(Request(Op.GET, "m", [0]))
    assert not bench.zones.homes.holds(Request(Op.GET, "other", [0]))
    assert not bench.zones.homes.holds(Request(Op.CALL, "m", [0]))


@pytest.mark.rule("raft_partition/R-1")
def test_a_request_goes_to_who_leads_in_the_highest_term(bench: RoutingBench) -> None:
    two, three = list(bench.cluster.processes)[1:]
    bench.zones.know(7, "z", 4)
    bench.ask()
    assert bench.effects(Send) == []
    bench.zones.on_leaders(two, ZoneLeaders([(NUMBER, 5)]))
    [sent] = bench.effects(Send)
    assert sent.to == two
    assert isinstance(sent.message, ZoneForward)
    assert sent.message.term == 5
    bench.zones.on_leaders(three, ZoneLeaders([(NUMBER, 4)]))
    refused = Answer(sent.message.ticket, Outcome(Status.MOVED, None, "not here"), [])
    assert bench.zones.on_answer(two, refused)
    assert bench.effects(Send) == [], "who leads in a lower term is not believed"
    bench.zones.on_leaders(three, ZoneLeaders([(NUMBER, 6)]))
    [sent] = bench.effects(Send)
    assert sent.to == three
    assert bench.zones.on_answer(three, Answer(sent.message.ticket, Outcome(Status.OK), []))
    [told] = bench.effects(Complete)
    assert (told.token, told.answer.status) == (1, Status.OK)
    assert not bench.zones.on_answer(three, Answer(999, Outcome(Status.OK), []))


@pytest.mark.rule("raft_partition/R-2")
def test_what_a_leader_has_not_answered_is_sent_to_the_next_one(bench: RoutingBench) -> None:
    two, three = list(bench.cluster.processes)[1:]
    bench.zones.know(7, "z", 4)
    bench.zones.on_leaders(two, ZoneLeaders([(NUMBER, 5)]))
    bench.ask()
    [first] = bench.effects(Send)
    bench.zones.on_leaders(three, ZoneLeaders([(NUMBER, 6)]))
    [second] = bench.effects(Send)
    assert isinstance(first.message, ZoneForward) and isinstance(second.message, ZoneForward)
    assert (second.to, second.message.term) == (three, 6)
    assert first.message.request == second.message.request and second.message.request.id
    late = Answer(first.message.ticket, Outcome(Status.OK, b"from before"), [])
    assert not bench.zones.on_answer(two, late), "what the former says does not count"
    assert bench.zones.on_answer(three, Answer(second.message.ticket, Outcome(Status.NOT_READY), []))
    assert bench.effects(Complete) == [], "it is asked again"
    bench.zones.forget(7)
    [told] = bench.effects(Complete)
    assert told.answer.status is Status.UNKNOWN, "the former may have applied it"


def test_leaders_that_were_heard_of_before_their_zone_count(bench: RoutingBench) -> None:
    two = list(bench.cluster.processes)[1]
    bench.zones.on_leaders(two, ZoneLeaders([(NUMBER, 5), (group_of(8, 9999), 1)]))
    bench.zones.know(7, "old", 4)
    bench.zones.know(7, "z", 4)
    bench.ask()
    assert [sent.to for sent in bench.effects(Send)] == [two]


@pytest.mark.rule("raft_partition/R-3")
def test_the_leader_of_a_shared_group_serves_all_its_client_partitions(bench: RoutingBench) -> None:
    """A zone of 2 partitions in a cluster of 4: group 1 serves the client partitions 1 and 3."""
    bench.process.out.level = SHARED_GROUPS
    bench.zones.know(7, "z", 2)
    number = group_of(7, 1)
    _elect(bench, number)
    client = bench.zones.partition(number)
    entries = bench.zones.entries("m")
    assert entries is not None
    assert entries.serving == [None, client, None, client]
    for partition in (1, 3):
        bench.zones.execute(Request(Op.SET, "m", [partition], b"k", b"%d" % partition), partition)
    _run(bench)
    held = {partition: copy.maps["m"] for partition, copy in client.state.copies.items()}
    assert {partition: one.state.entries for partition, one in held.items()} == {
        1: {b"k": b"1"},
        3: {b"k": b"3"},
    }
    assert [one.counter for one in held.values()] == [1, 1]
    absent = Request(Op.PUT_IF_ABSENT, "m", [1], b"k", b"no")
    batch = ZoneBatch(
        7,
        [
            (3, [ZoneWrites([("m", b"k", None, 0, 0)], 3)]),
            (1, [ZoneWrites([("m", b"l", b"2", 0, 0)], 1), ZoneRequests([absent])]),
        ],
        [1, 3],
    )
    bench.zones.take(9, batch)
    _run(bench)
    [done] = [each.answer for each in bench.process.told if isinstance(each, Complete) and each.token == 9]
    assert sorted(done.answers) == [(0, [b"3"]), (1, [None, b"1"])]
    assert done.unconfirmed is None
    assert held[1].state.entries == {b"k": b"1", b"l": b"2"}
    assert not held[3].state.entries
    assert bench.zones.replica("m", 3) is client
    bench.zones.end(number)
    assert entries.serving == [None] * 4
    assert bench.zones.replica("m", 3) is None


@pytest.mark.rule("raft_partition/R-3")
def test_requests_on_shared_groups_go_to_their_leader(bench: RoutingBench) -> None:
    bench.process.out.level = SHARED_GROUPS
    two = list(bench.cluster.processes)[1]
    bench.zones.know(7, "z", 2)
    bench.zones.on_leaders(two, ZoneLeaders([(group_of(7, 0), 5)]))
    bench.ask()
    [sent] = bench.effects(Send)
    assert (sent.to, sent.message.request.partitions) == (two, [2])


@pytest.mark.parametrize(
    ("partitions", "level", "says"),
    [
        (5, SHARED_GROUPS, "zone create NAME --partitions 4"),
        (2, SHARED_GROUPS - 1, "holdfast cluster upgrade"),
    ],
)
def test_a_map_in_a_zone_that_cannot_hold_maps_is_refused_with_a_way_out(
    bench: RoutingBench, partitions: int, level: int, says: str
) -> None:
    bench.process.out.level = level
    bench.zones.know(7, "z", partitions)
    bench.ask()
    [told] = bench.effects(Complete)
    assert told.answer.status is Status.FAILED
    assert says in told.answer.detail


def _elect(bench: RoutingBench, number: GroupNumber) -> None:
    begin = Configuration(frozenset({bench.cluster.node(1)}))
    bench.process.groups.start(number, begin, bench.zones.partition(number))
    for _ in range(60):
        bench.process.groups.on_timer()
        _run(bench)


def _run(bench: RoutingBench) -> None:
    for _ in range(3):
        bench.zones.flush(list(bench.cluster.processes))
        bench.process.end_step()
        while bench.process.disk:
            bench.process.disk_turn()


def test_who_is_elected_serves_and_says_so(bench: RoutingBench) -> None:
    bench.zones.know(7, "z", 4)
    bench.ask()
    _elect(bench, NUMBER)
    [told] = [effect for effect in bench.process.told if isinstance(effect, Complete)]
    assert told.answer.status is Status.OK
    sent = {to for _, to, data in bench.cluster.network if isinstance(decode(data), ZoneLeaders)}
    assert sent == set(list(bench.cluster.processes)[1:])
    refused = ProposalRefused("leadership is being handed over")
    with patch.object(bench.process.groups, "propose", side_effect=refused):
        bench.ask(2)
        bench.zones.flush(list(bench.cluster.processes))
    assert bench.effects(Complete) == [], "a client that is told to ask again rests first"
    bench.zones.on_timer()
    bench.zones.flush(list(bench.cluster.processes))
    assert bench.zones.leftovers["zones: requests at groups"] == 1, "it is taken as soon as it can be"
    bench.zones.end(NUMBER)
    bench.zones.forget(7)


def test_what_waits_for_a_zone_that_is_dropped_is_told(bench: RoutingBench) -> None:
    bench.zones.know(7, "z", 4)
    bench.ask()
    bench.zones.forget(7)
    told = bench.effects(Complete)
    assert [each.answer.status for each in told] == [Status.NOT_READY]


def test_an_idle_time_is_refused_at_an_old_feature_level(bench: RoutingBench) -> None:
    bench.zones.know(7, "z", 4)
    bench.process.out.level = ZONE_IDLE_TIMES - 1
    bench.ask(max_idle_ms=5)
    [told] = bench.effects(Complete)
    assert told.answer.status is Status.FAILED
    assert "cluster upgrade" in told.answer.detail


# -- maps that have moved out of zones


@pytest.mark.rule("routing/R-13")
def test_a_request_of_this_member_goes_to_the_router_of_other_maps(bench: RoutingBench) -> None:
    parked = Parked(Request(Op.SET, "other", [2], b"k", b"v"), 1, 0)
    bench.zones.homes.rehome(parked)
    assert bench.others.adopted == [parked]
    assert bench.others.dropped == []


@pytest.mark.rule("routing/R-13")
def test_ids_of_requests_differ_between_routers(bench: RoutingBench) -> None:
    """A request that is passed on keeps its id. If another one had it there, it would count as a repetition."""
    bench.zones.know(7, "z", 4)
    bench.zones.know(8, "y", 4)
    routers = [zone.router for zone in bench.zones.homes.zones.values()]
    ids = [router.new_id() for router in routers * 3]
    assert len(set(ids)) == 6


@pytest.mark.rule("routing/R-13")
@pytest.mark.parametrize(
    ("op", "asker", "doubt", "status"),
    [
        (Op.SET, Peer("another", 1), "", Status.MOVED),
        (Op.PIN, 1, "", Status.MOVED),
        (Op.SET, 1, "a member left", Status.UNKNOWN),
    ],
)
def test_some_requests_cannot_be_passed_on(
    bench: RoutingBench, op: Op, asker: Any, doubt: str, status: Status
) -> None:
    """A cut is asked for again, as is the request of another member; an outcome in doubt stays in doubt."""
    parked = Parked(Request(op, "other", [2], b"k"), asker, 0)
    parked.doubt = doubt
    bench.zones.homes.rehome(parked)
    assert [outcome.status for outcome in bench.others.dropped] == [status]
    assert bench.others.adopted == []
