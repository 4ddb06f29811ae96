"""The comparison of copies: over made-up copies, and over members that hold what a test has put there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.memory_cluster import MemoryCluster

from holdfast.client.blocking import Client
from holdfast.client.replica_questions import ask_digests, ask_ranges, read_ranges
from holdfast.client_core.routing import RoutingTable, TableRow
from holdfast.core.model.ids import MemberId
from holdfast.core.model.records import Change, Record
from holdfast.core.store.digest import range_of
from holdfast.core.store.replica_comparison import Finding, Looks
from holdfast.replica_comparison.live import (
    compare_partitions,
    compare_tables,
    compare_with_primary,
    different_rows,
    verify,
)
from holdfast.wire import own
from holdfast.wire.values import to_stored

PARTITIONS = 13
KEYS = [to_stored(number) for number in range(500)]


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    with MemoryCluster(4, PARTITIONS, copies=3) as running, Client(running.addresses()) as client:
        client.put_columns("m", KEYS, KEYS)
        client.put_columns("n", KEYS[:50], KEYS[:50])
        yield running


def look(cluster: MemoryCluster, *maps: str, pauses: list[float] | None = None) -> list[Finding]:
    with Client(cluster.addresses(), timeout_s=1) as client:
        return compare_partitions(
            client, range(PARTITIONS), maps, pause=(pauses if pauses is not None else []).append
        )


def unequal(findings: list[Finding]) -> list[tuple[int, str, int, str]]:
    return [(one.partition, one.map, one.replica, one.verdict) for one in findings if one.verdict != "equal"]


def backup(cluster: MemoryCluster, partition: int, replica: int = 1) -> dict[bytes, bytes]:
    return cluster.by_uuid[str(cluster.rows[partition][replica])].held[partition].maps["m"].state.entries


def test_equal_copies_are_seen_once_each(cluster: MemoryCluster) -> None:
    pauses: list[float] = []
    findings = look(cluster, pauses=pauses)
    assert unequal(findings) == []
    assert pauses == []
    assert len([one for one in findings if one.map == "m"]) == 2 * PARTITIONS
    assert sum(one.entries for one in findings if one.map == "m" and one.replica == 1) == len(KEYS)


def test_one_map_alone_can_be_looked_at(cluster: MemoryCluster) -> None:
    assert {one.map for one in look(cluster, "n")} == {"n"}
    assert {one.map for one in look(cluster, "n", "m")} == {"n", "m"}


def test_a_changed_a_missing_and_an_extra_entry_are_each_found(cluster: MemoryCluster) -> None:
    changed, missing, extra = backup(cluster, 3), backup(cluster, 4, 2), backup(cluster, 5)
    changed[next(iter(changed))] = b"else"
    missing.pop(next(iter(missing)))
    extra[b"extra"] = b"extra"
    pauses: list[float] = []
    findings = look(cluster, pauses=pauses)
    assert unequal(findings) == [(3, "m", 1, "differs"), (4, "m", 2, "differs"), (5, "m", 1, "differs")]
    assert len(pauses) == 2
    conflicts = [(one.counter_conflict, one.content_conflict) for one in findings if one.verdict == "differs"]
    assert conflicts == [(False, True)] * 3


def test_a_copy_that_is_not_there_at_all_is_found(cluster: MemoryCluster) -> None:
    member = cluster.by_uuid[str(cluster.rows[6][1])]
    cluster.do(lambda: member.held.pop(6))
    assert unequal(look(cluster, "m")) == [(6, "m", 1, "differs")]


def test_a_copy_of_another_history_is_found(cluster: MemoryCluster) -> None:
    cluster.by_uuid[str(cluster.rows[6][1])].held[6].epoch = 1
    findings = look(cluster, "m")
    assert unequal(findings) == [(6, "m", 1, "differs")]
    assert [one.counter_conflict for one in findings if one.verdict == "differs"] == [True]


def test_a_copy_that_was_only_late_is_equal_at_the_next_look(cluster: MemoryCluster) -> None:
    owner, late = (
        cluster.owner(7).held[7].maps["m"],
        cluster.by_uuid[str(cluster.rows[7][1])].held[7].maps["m"],
    )
    other = cluster.by_uuid[str(cluster.rows[7][2])].held[7].maps["m"]
    record = Record("m", owner.counter + 1, Change.SET, b"\0\0\0\1late", b"late")
    owner.apply(record, 0)
    other.apply(record, 0)
    with Client(cluster.addresses()) as client:
        findings = compare_partitions(client, range(PARTITIONS), pause=lambda _: late.apply(record, 0))
    assert unequal(findings) == []


def test_copies_of_a_partition_that_never_rests_are_busy_and_not_wrong(cluster: MemoryCluster) -> None:
    owner = cluster.owner(7).held[7].maps["m"]
    pauses: list[float] = []

    def write(seconds: float) -> None:
        pauses.append(seconds)
        owner.updates.next()

    owner.updates.next()
    with Client(cluster.addresses()) as client:
        findings = compare_partitions(client, range(PARTITIONS), pause=write)
    assert unequal(findings) == [(7, "m", 1, "busy"), (7, "m", 2, "busy")]
    assert len(pauses) > 5


def test_a_wrong_copy_is_not_hidden_by_another_map_that_never_rests(cluster: MemoryCluster) -> None:
    partition = next(one.partition for one in look(cluster, "n"))
    owner = cluster.owner(partition).held[partition].maps["n"]
    owner.updates.next()
    changed = backup(cluster, partition)
    changed[next(iter(changed))] = b"else"

    def write(seconds: float) -> None:
        owner.updates.next()

    with Client(cluster.addresses()) as client:
        findings = compare_partitions(client, range(PARTITIONS), pause=write)
    assert (partition, "m", 1, "differs") in unequal(findings)
    assert (partition, "n", 1, "busy") in unequal(findings)


def test_a_replica_that_a_map_does_not_need_holds_nothing_of_it(cluster: MemoryCluster) -> None:
    partition = 8
    owner = cluster.owner(partition).held[partition].maps["m"]
    second = cluster.by_uuid[str(cluster.rows[partition][2])].held[partition]
    owner.targets = owner.targets[:1]
    del second.maps["m"]
    findings = [one for one in look(cluster, "m") if one.partition == partition]
    assert [(one.replica, one.verdict, one.kept) for one in findings] == [
        (1, "equal", True),
        (2, "equal", False),
    ]
    second.open("m").state.entries[b"left"] = b"over"
    second.open("m").updates.next()
    assert unequal(look(cluster, "m")) == [(partition, "m", 2, "differs")]


def test_members_that_do_not_answer_or_serve_are_said_to_be_unreachable(cluster: MemoryCluster) -> None:
    owner = cluster.owner(9)
    cluster.do(lambda: owner.lane.serving.__setitem__(9, None))
    assert unequal(look(cluster)) == [(9, "", 0, "unreachable")]
    cluster.do(cluster.members[1].server.close)  # type: ignore[union-attr]
    findings = look(cluster)
    assert {
        one.verdict for one in findings if cluster.members[1].member_uuid in (one.member, one.reference)
    } == {"unreachable"}


# -- the comparison alone, over made-up copies

OWNER, FIRST, SECOND = "owner", "first", "second"
ROW = TableRow(3, (OWNER, FIRST, SECOND), 9)


def digest(counter: int, entries: int = 5, content: int = 77, term: int = 4) -> own.MapDigest:
    targets = [FIRST, SECOND]
    return own.MapDigest("m", counter, entries, content, targets, [(term, 0)] if counter else [])


def copy(
    *maps: own.MapDigest,
    serving: bool = False,
    version: int = 9,
    epoch: int = 0,
    behind: tuple[str, ...] = (),
) -> own.PartitionDigest:
    return own.PartitionDigest(3, epoch, 0 if serving else 1, serving, list(maps), version, list(behind))


def compared(
    owner: own.PartitionDigest,
    first: own.PartitionDigest | None,
    second: own.PartitionDigest | None = None,
    silent: tuple[str, ...] = (),
) -> list[tuple[str, bool, bool]]:
    second = second or copy(digest(7))
    findings = compare_with_primary(ROW, {OWNER: owner, FIRST: first, SECOND: second}, set(silent))
    return [
        (one.verdict, one.counter_conflict, one.content_conflict)
        for one in findings
        if one.member in (FIRST, OWNER)
    ]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (copy(digest(7)), ("equal", False, False)),
        (copy(digest(6)), ("differs", True, False)),
        (copy(digest(7, term=3)), ("differs", True, False)),
        (copy(digest(7, content=78)), ("differs", False, True)),
        (copy(digest(7, entries=4)), ("differs", False, True)),
        (copy(digest(6, content=78)), ("differs", True, True)),
        (copy(digest(7), epoch=1), ("differs", True, False)),
        (copy(), ("differs", True, True)),
        (None, ("differs", True, True)),
        (copy(digest(7), version=8), ("busy", False, False)),
    ],
)
def test_counters_and_contents_are_told_apart(
    first: own.PartitionDigest | None, expected: tuple[str, bool, bool]
) -> None:
    assert compared(copy(digest(7), serving=True), first) == [expected]


def test_what_cannot_be_compared_is_not_called_a_conflict() -> None:
    wrong = copy(digest(6, content=78))
    assert compared(copy(digest(7), serving=True, version=10), wrong) == [("busy", False, False)]
    assert compared(copy(digest(7), serving=True, behind=(FIRST,)), wrong) == [("busy", False, False)]
    assert compared(copy(digest(7)), wrong) == [("unreachable", False, False)]
    assert compared(copy(digest(7), serving=True), wrong, silent=(FIRST,)) == [("unreachable", False, False)]


def finding(counter: int, owner_counter: int = 7, content: str = "a") -> Finding:
    return Finding(
        partition=3,
        map="m",
        member=FIRST,
        verdict="differs",
        reference=OWNER,
        replica=1,
        term=4,
        counter=counter,
        entries=5,
        digest=content,
        reference_term=4,
        reference_counter=owner_counter,
        reference_entries=5,
        reference_digest="a",
    )


def test_a_difference_counts_when_looks_in_a_row_have_shown_it() -> None:
    looks = Looks()
    assert [looks.add([finding(6)], unfinished=False) for _ in range(3)] == [False, False, True]
    assert [one.verdict for one in looks.findings()] == ["differs"]
    looks.add([finding(7, 8)], unfinished=False)
    assert [one.verdict for one in looks.findings()] == ["busy"]


def test_a_backup_that_is_waited_for_is_given_more_time() -> None:
    looks = Looks()
    assert not any(looks.add([finding(6)], unfinished=True) for _ in range(5))
    assert [one.verdict for one in looks.findings()] == ["differs"], "it never caught up"
    assert looks.add([finding(6)], unfinished=False)


def test_other_entries_at_equal_counters_are_wrong_however_much_is_written() -> None:
    looks = Looks()
    heard = [looks.add([finding(at, at, "b")], unfinished=True) for at in (7, 8, 9)]
    assert heard == [False, False, True]
    assert looks.findings()[0].content_conflict


# -- tables


def table(stamp: int, *versions: int) -> RoutingTable:
    member = own.MemberRow(OWNER, "127.0.0.1", 1, lite=False)
    return RoutingTable(own.TableIs(1, sum(versions), [member], [[0]] * len(versions), list(versions), stamp))


def test_the_row_of_the_fewer_members_is_the_one_that_differs() -> None:
    same = {"a": table(1, 5, 5), "b": table(1, 5, 5)}
    assert different_rows(same) == []
    (found,) = different_rows({**same, "c": table(2, 5, 6)})
    assert (found.partition, found.member, found.version, found.expected_version) == (1, "c", 6, 5)
    (found,) = different_rows({**same, "c": table(2, 5, 5)})
    assert (found.partition, found.member) == (-1, "c"), "something else in the rows"
    (found,) = different_rows({"a": table(1, 5), "b": table(2, 6)})
    assert found.member == "a", "between as many, the newest counts"


def test_a_members_table_that_stays_different_is_found(cluster: MemoryCluster) -> None:
    other = cluster.members[2]
    other.row_versions[4] = 2
    with Client(cluster.addresses()) as client:
        found, silent = compare_tables(client, pause=lambda _: None)
        assert [(one.partition, one.member, one.version) for one in found] == [(4, other.member_uuid, 2)]
        assert silent == ()
        late = compare_tables(client, pause=lambda _: other.row_versions.clear())
        assert late == ([], ()), "a commit was on its way"
        report = verify(client, maps=["m"], partitions=[4], pause=lambda _: None)
        assert (report.partitions, report.tables) == (1, [])


# -- what the members are asked


def test_ranges_and_their_entries_are_those_of_the_copy_that_is_asked(cluster: MemoryCluster) -> None:
    first = backup(cluster, 3)
    key = next(iter(first))
    first[key] = b"else"
    members = [str(uuid) for uuid in cluster.rows[3]]
    with Client(cluster.addresses()) as client:
        told = ask_ranges(client, [*members, "nobody"], 3, "m")
        assert list(told) == members
        digests = [told[member].digests for member in members]
        differ = [at for at in range(64) if len({each[at] for each in digests}) > 1]
        assert differ == [range_of(key)]
        part = read_ranges(client, members[1], 3, "m", differ)
        assert part is not None
        assert {one for one in first if range_of(one) in differ} == part.entries.keys()
        assert part.entries[key].value == b"else"
        assert part.counter == told[members[1]].counter
        assert read_ranges(client, "nobody", 3, "m", differ) is None
        absent = next(one for one in cluster.members if one.member_uuid not in members)
        assert ask_ranges(client, [absent.member_uuid], 3, "m")[absent.member_uuid].digests == []
        held, silent = ask_digests(client, {members[0]: [3], absent.member_uuid: [3], "nobody": [3]})
        assert (set(held), silent) == ({(members[0], 3)}, {"nobody"})


def test_entries_come_with_their_expiry_also_when_their_time_is_over(cluster: MemoryCluster) -> None:
    holder = cluster.by_uuid[str(cluster.rows[3][1])]
    held = holder.held[3].maps["m"]
    key, other = list(held.state.entries)[:2]
    held.state.store(key, b"dies", 50, 70, 12345, 0)
    ranges = [range_of(key), range_of(other)]
    for now, ttl_ms in ((0, 50), (10**12, 1)):
        cluster.do(lambda now=now: setattr(holder, "now", now))  # type: ignore[misc]
        with Client(cluster.addresses()) as client:
            part = read_ranges(client, holder.member_uuid, 3, "m", ranges)
        assert part is not None
        seen = part.entries[key]
        assert (seen.value, seen.ttl_ms, seen.max_idle_ms, seen.key_hash) == (b"dies", ttl_ms, 70, 12345)
        assert (part.entries[other].ttl_ms, part.entries[other].key_hash) == (0, 0)


def test_a_backup_that_the_row_names_and_that_need_not_be_complete_is_busy(cluster: MemoryCluster) -> None:
    second = str(cluster.rows[3][2])
    cluster.owner(3).behind = [MemberId(second)]
    found = {one.verdict for one in look(cluster, "m") if (one.partition, one.member) == (3, second)}
    assert found == {"busy"}
