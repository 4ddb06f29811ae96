"""Cuts from outside: taken at the owners, read from whoever keeps them, lost when nobody does."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import pytest
from tests.server.memory_cluster import MemoryCluster

from holdfast.client import cuts as under_test
from holdfast.client.ahead import Wanted, read_ahead
from holdfast.client.blocking import Client
from holdfast.client.cuts import Cut, end_cut, hold_cut, scan_cut, take_cut
from holdfast.core.machine import SECOND
from holdfast.core.placement.key import partition_of
from holdfast.errors import CutLost, NotReady
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
    with pytest.raises(CutLost, match="nobody keeps the cut any more"):
        hold_cut(client, cut, 10)
    with pytest.raises(CutLost, match=r"map 'm' in partition .* nobody keeps it any more"):
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
        owner.held[0].maps["m"].store(key, b"x", 0, 0, 0, 0)
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
        held.store(key, b"x", 0, 0, 0, 0)
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
