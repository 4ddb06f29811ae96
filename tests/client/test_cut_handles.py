"""Cuts from outside: taken at the owners, read from whoever keeps them, lost when nobody does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy

import pytest
from tests.server.memory_cluster import MemoryCluster, MemoryMember

from holdfast.client import cut_handles as under_test
from holdfast.client.ahead import Wanted, read_ahead
from holdfast.client.blocking import Client
from holdfast.client.cut_handles import Cut, end_cut, hold_cut, scan_cut, take_cut
from holdfast.client_core.routing import RoutingTable
from holdfast.core.model.ids import SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.primary_backup.cuts import LOOKED_AT_MAX
from holdfast.errors import ConfigError, CutLost, NotReady
from holdfast.server import cut_questions as server_cuts
from holdfast.server.grid import Grid
from holdfast.wire import own
from holdfast.wire.values import to_stored

KEYS = [to_stored(f"k{number}") for number in range(300)]


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    with MemoryCluster(3, 31) as found:
        yield found


@pytest.fixture
def client(cluster: MemoryCluster) -> Iterator[Client]:
    with Client(cluster.addresses(), timeout_s=5) as found:
        found.put_columns("m", KEYS, [to_stored(1)] * len(KEYS))
        yield found


@contextmanager
def noted(cluster: MemoryCluster, note: Callable[[own.Cut], None]) -> Iterator[None]:
    """Every question for a cut is told to `note`, on the members' thread, before it is answered."""
    make = server_cuts.make

    def told(grid: Grid, question: own.Cut, say: Callable[[own.Answer], None]) -> None:
        note(question)
        make(grid, question, say)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_cuts, "make", told)
        yield


def read(client: Client, cut: Cut, name: str = "m", **more: bool) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for partition in range(client.partition_count):
        for page in scan_cut(client, cut, name, partition, **more):
            keys, values = page.columns.split()
            found.update(zip(keys, values, strict=True))
    return found


BEFORE = dict.fromkeys(KEYS, to_stored(1))


def test_a_cut_shows_what_was_there_whatever_comes_after(cluster: MemoryCluster, client: Client) -> None:
    cut = take_cut(client, ["m", "never"])
    client.put_columns("m", KEYS[:100], [to_stored(2)] * 100)
    client.put_columns("m", [to_stored("new")], [to_stored(3)])
    assert read(client, cut) == BEFORE
    assert read(client, cut, spread=True) == BEFORE, "backups keep it, too"
    assert read(client, cut, "never") == {}
    client.clear("m")
    assert read(client, cut) == read(client, cut, spread=True) == BEFORE
    assert cut.entries("m") == len(KEYS)
    assert cut.maps == ["m", "never"]
    counters = cut.counters("m")
    assert counters.keys() == set(range(31))
    for partition in range(31):
        there = sum(1 for key in KEYS if partition_of(key, 0, 31) == partition)
        assert counters[partition] == (there + 1 if there else 0)
    assert len(cut.holders) == 3
    assert deepcopy(cut) == cut


def test_reading_is_spread_over_those_who_keep_it(cluster: MemoryCluster, client: Client) -> None:
    cut = take_cut(client, ["m"])
    mark = cut.marks["m", 0]
    first, second = mark.holders
    assert under_test._ordered(mark, (), spread=False) == [first, second]
    assert under_test._ordered(mark, (second,), spread=False) == [second, first]
    odd = cut.marks["m", 1]
    assert under_test._ordered(odd, (), spread=True) == odd.holders[::-1]
    for member in cluster.members:
        if member.member_uuid == first:
            cluster.do(lambda member=member: member.cuts.hold(cut.id, 0))
    keys = [key for key in KEYS if partition_of(key, 0, 31) == 0]
    (page,) = scan_cut(client, cut, "m", 0, prefer=[first], keys=keys[:2])
    assert set(page.columns.split()[0]) == set(keys[:2]), "the other one is asked"


def test_partitions_that_move_meanwhile_are_asked_for_where_they_are(
    cluster: MemoryCluster, client: Client
) -> None:
    client.table()
    cluster.do(lambda: [cluster.move(partition) for partition in range(0, 31, 3)])
    cut = take_cut(client, ["m"])
    assert len(cut.marks) == 31
    client.put_columns("m", KEYS, [to_stored(2)] * len(KEYS))
    assert read(client, cut) == BEFORE


def test_a_cut_survives_moves_and_crashes(cluster: MemoryCluster, client: Client) -> None:
    cut = take_cut(client, ["m"])
    cluster.do(lambda: [cluster.move(partition) for partition in range(0, 31, 2)])
    client.put_columns("m", KEYS, [to_stored(2)] * len(KEYS))
    cluster.do(lambda: cluster.kill(cluster.members[0]))
    client.put_columns("m", KEYS[:50], [to_stored(3)] * 50)
    assert read(client, cut) == BEFORE
    assert hold_cut(client, cut, 10) == sum(1 for mark in cut.marks.values() if mark.counter)
    cluster.do(lambda: cluster.members[1].cuts.hold(cut.id, 0))
    with pytest.raises(CutLost, match="no member keeps the cut any more"):
        hold_cut(client, cut, 10)
    with pytest.raises(CutLost, match=r"map 'm' in partition .* no member keeps it any more"):
        read(client, cut)


def test_leases_end_and_are_renewed(cluster: MemoryCluster, client: Client) -> None:
    def later(seconds: int) -> None:
        for member in cluster.members:
            member.now += seconds * SECOND
            member.cuts.sweep()

    cut = take_cut(client, ["m"], lease_s=60)
    cluster.do(lambda: later(59))
    hold_cut(client, cut, 100)
    cluster.do(lambda: later(99))
    assert read(client, cut) == BEFORE
    cluster.do(lambda: later(101))
    with pytest.raises(CutLost):
        next(scan_cut(client, cut, "m", 0))
    assert cluster.do(lambda: [member.cuts.pins for member in cluster.members]) == [0, 0, 0]
    other = take_cut(client, ["m"])
    end_cut(client, other)
    assert cluster.do(lambda: [len(member.cuts) for member in cluster.members]) == [0, 0, 0]


def test_members_are_asked_for_few_marks_at_a_time(cluster: MemoryCluster, client: Client) -> None:
    asked: list[int] = []

    def note(question: own.Cut) -> None:
        asked.append(len(question.maps) * len(question.partitions))

    with noted(cluster, note):
        cut = take_cut(client, ["m", *(f"n{number}" for number in range(150)), "m"])
    assert len(cut.marks) == 151 * 31
    assert max(asked) <= own.CUT_MARKS_MAX < sum(asked)
    assert read(client, cut) == BEFORE
    with pytest.raises(ConfigError, match="at most 1024 maps"):
        take_cut(client, [f"n{number}" for number in range(own.CUT_MAPS_MAX + 1)])
    assert take_cut(client, []).marks == {}


def test_as_many_maps_as_there_may_be_are_cut_one_partition_at_a_time(
    cluster: MemoryCluster, client: Client
) -> None:
    maps = ["m", *(f"n{number}" for number in range(own.CUT_MAPS_MAX - 1))]
    raw = [to_stored("x")]

    def fill() -> None:
        for name in maps[1:]:
            cluster.owner(0).lane.set(cluster.owner(0).held[0], name, raw[0], raw[0], 0, 0, 0)

    cluster.do(fill)
    cut = take_cut(client, maps, partitions=[0, 1])
    assert len(cut.marks) == 2 * len(maps)
    assert hold_cut(client, cut, 60) == len([mark for mark in cut.marks.values() if mark.counter]) > 1000


def test_what_was_too_much_for_one_question_is_asked_for_again(
    cluster: MemoryCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill() -> None:
        for partition in range(31):
            held = cluster.owner(partition).held[partition].open("m")
            for number in range(LOOKED_AT_MAX // 4):
                held.state.store(b"k%d" % number, b"", 60_000, 0, 0, 0)

    cluster.do(fill)
    monkeypatch.setattr(under_test.BlockingRetries, "sleep", None)  # At once, without a pause.
    cut = take_cut(client, ["m"])
    assert len(cut.marks) == 31
    assert cut.entries("m") == len(KEYS) + 31 * (LOOKED_AT_MAX // 4)


def test_what_was_cut_first_is_still_kept_when_the_last_is(cluster: MemoryCluster, client: Client) -> None:
    asked: list[int] = []
    owner = cluster.owner(3)
    serving = owner.lane.serving[3]
    owner.lane.serving[3] = None

    def note(question: own.Cut) -> None:
        if 3 not in question.partitions:
            return
        asked.append(3)
        if len(asked) == 2:
            # Everybody has been busy for longer than the lease.
            for member in cluster.members:
                member.now += SECOND
                member.cuts.sweep()
                assert member.cuts.pins == 0
            owner.lane.serving[3] = serving

    with noted(cluster, note):
        cut = take_cut(client, ["m"], lease_s=0.02)
    client.put_columns("m", KEYS, [to_stored(2)] * len(KEYS))
    assert read(client, cut) == BEFORE
    assert len(asked) >= 2


def test_all_marks_are_held_and_looked_after_few_at_a_time(cluster: MemoryCluster, client: Client) -> None:
    maps = [f"n{number}" for number in range(15)]

    def fill() -> None:
        for partition in range(31):
            owner = cluster.owner(partition)
            for name in maps:
                owner.lane.set(owner.held[partition], name, b"k" * 12, b"v" * 12, 0, 0, 0)

    cluster.do(fill)
    cut = take_cut(client, maps)
    assert hold_cut(client, cut, 60) == 31 * len(maps)
    assert min(
        len({mark.partition for mark in cut.marks.values() if holder in mark.holders})
        for holder in cut.holders
    ) > own.CUT_MARKS_MAX // len(maps), "more than one question for each of them"


def test_a_cut_that_nobody_can_look_after_is_looked_after_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = client.known_table
    asked: list[int] = []

    def known_table() -> RoutingTable:
        asked.append(1)
        if len(asked) in {2, 3}:
            time.sleep(0.3)  # longer than a quarter of the lease
            raise NotReady("nobody says who owns what")
        return tables()

    monkeypatch.setattr(client, "known_table", known_table)
    asked_owners = under_test._Taking._ask_each

    def slow(taking: under_test._Taking, waiting: dict[str, list[int]]) -> str:
        why = asked_owners(taking, waiting)
        time.sleep(0.3)
        return why

    monkeypatch.setattr(under_test._Taking, "_ask_each", slow)
    cut = take_cut(client, ["m"], lease_s=1)
    assert len(asked) > 3
    assert read(client, cut) == BEFORE


def test_what_a_holder_keeps_of_other_moments_does_not_count(cluster: MemoryCluster, client: Client) -> None:
    cut = take_cut(client, ["m"])
    partition = next(mark.partition for mark in cut.marks.values() if mark.counter)
    client.put_columns("m", KEYS, [to_stored(2)] * len(KEYS))

    def spoil(members: list[MemoryMember]) -> None:
        for member in members:
            if partition in member.held:
                member.cuts.keep(cut.id, partition, member.held[partition].maps["m"], 60_000)

    owner = cluster.owner(partition)
    cluster.do(lambda: spoil([owner]))
    assert hold_cut(client, cut, 60) == sum(1 for mark in cut.marks.values() if mark.counter)
    cluster.do(lambda: spoil(cluster.members))
    with pytest.raises(CutLost, match=f"of 1 of .* marks, first map 'm' in partition {partition}, no member"):
        hold_cut(client, cut, 60)


def test_what_cannot_be_had_in_time_is_said_and_nothing_is_left(
    cluster: MemoryCluster, client: Client
) -> None:
    def refuse() -> None:
        cluster.owner(3).lane.serving[3] = None

    cluster.do(refuse)
    with pytest.raises(
        NotReady, match=r"1 partitions, first 3, could not be cut for 0.3 s: partition 3 moved"
    ):
        take_cut(client, ["m"], timeout=0.3)
    assert cluster.do(lambda: [len(member.cuts) for member in cluster.members]) == [0, 0, 0]


def test_an_unknown_outcome_is_asked_for_again(cluster: MemoryCluster, client: Client) -> None:
    cluster.unknown_seals = {cluster.seals + 1, cluster.seals + 2}
    cut = take_cut(client, ["m"])
    assert read(client, cut) == BEFORE


def test_a_holder_with_another_cut_of_the_same_name_is_not_believed(
    cluster: MemoryCluster, client: Client
) -> None:
    cut = take_cut(client, ["m"])
    key = next(key for key in KEYS if partition_of(key, 0, 31) == 0)
    owner = cluster.owner(0)

    def spoil() -> None:
        owner.held[0].maps["m"].state.store(key, b"x", 0, 0, 0, 0)
        owner.held[0].maps["m"].updates.next()
        owner.cuts.keep(cut.id, 0, owner.held[0].maps["m"], 1000)

    cluster.do(spoil)
    (page,) = scan_cut(client, cut, "m", 0)
    assert page.counter == cut.marks["m", 0].counter
    assert dict(zip(*page.columns.split(), strict=True))[key] == to_stored(1)


def test_a_holder_of_another_history_is_not_believed_though_its_counter_is_the_same(
    cluster: MemoryCluster, client: Client
) -> None:
    cut = take_cut(client, ["m"])
    key = next(key for key in KEYS if partition_of(key, 0, 31) == 0)
    owner = cluster.owner(0)

    def spoil() -> None:
        held = owner.held[0].maps["m"]
        held.state.store(key, b"x", 0, 0, 0, 0)
        held.lineage = [(9, 0)]
        owner.cuts.keep(cut.id, 0, held, 1000)

    cluster.do(spoil)
    ((_, pages),) = read_ahead(client, Wanted("m", cut=cut), [0])
    found = dict(pair for page in pages for pair in zip(*page.split(), strict=True))
    assert found[key] == to_stored(1)


def test_only_what_was_cut_can_be_read(client: Client) -> None:
    cut = take_cut(client, ["m"], partitions=[1, 2])
    assert cut.marks.keys() == {("m", 1), ("m", 2)}
    with pytest.raises(KeyError):
        scan_cut(client, cut, "m", 0)


def test_questions_that_make_no_sense_are_refused(cluster: MemoryCluster, client: Client) -> None:
    connection = client.to(cluster.members[0].member_uuid)
    for question in (
        own.Cut(connection.next_number(), b"short", ["m"], [0], 1000),
        own.Cut(connection.next_number(), b"x" * 16, ["m"], [0], 0),
        own.Cut(connection.next_number(), b"x" * 16, ["m"], [31], 1000),
        own.HoldCut(connection.next_number(), b"x" * 16, -1),
    ):
        connection.post(question)
        fault = connection._answers.get(question.id)
        while fault is None:
            connection._read_answer()
            fault = connection._answers.get(question.id)
        assert isinstance(fault, own.Fault)
        assert fault.kind is own.FaultKind.MALFORMED, fault
