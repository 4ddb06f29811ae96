"""The comparison of replicas, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.memory_cluster import MemoryCluster

pytest.importorskip("pyspark")

from holdfast.client.blocking import Client
from holdfast.core.store.partition import Change, Record
from holdfast.spark.audit import AuditResult, Finding, audit_partitions
from holdfast.spark.stored import long_data

PARTITIONS = 13
KEYS = [long_data(number) for number in range(500)]


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    with MemoryCluster(4, PARTITIONS, copies=3) as running, Client(running.addresses()) as client:
        client.put_columns("m", KEYS, KEYS)
        client.put_columns("n", KEYS[:50], KEYS[:50])
        yield running


def look(cluster: MemoryCluster, *maps: str, pauses: list[float] | None = None) -> list[Finding]:
    with Client(cluster.addresses(), timeout_s=1) as client:
        return audit_partitions(
            client, range(PARTITIONS), maps, pause=(pauses if pauses is not None else []).append
        )


def unequal(findings: list[Finding]) -> list[tuple[int, str, int, str]]:
    return [(one.partition, one.map, one.replica, one.verdict) for one in findings if one.verdict != "equal"]


def backup(cluster: MemoryCluster, partition: int, replica: int = 1) -> dict[bytes, bytes]:
    return cluster.by_uuid[str(cluster.rows[partition][replica])].held[partition].maps["m"].entries


def test_equal_copies_are_seen_once_each(cluster: MemoryCluster) -> None:
    pauses: list[float] = []
    findings = look(cluster, pauses=pauses)
    assert unequal(findings) == []
    assert pauses == []
    assert len([one for one in findings if one.map == "m"]) == 2 * PARTITIONS
    assert sum(one.entries for one in findings if one.map == "m" and one.replica == 1) == len(KEYS)
    result = AuditResult(findings, PARTITIONS, 0.0)
    assert result.sound
    assert result.copies == len(findings)
    assert result.entries == sum(one.owner_entries for one in findings)


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
    result = AuditResult(findings, PARTITIONS, 0.0)
    assert not result.sound
    assert result.count("differs") == 3
    assert "3 differs" in str(result)
    assert "partition=3" in str(result)


def test_a_copy_that_is_not_there_at_all_is_found(cluster: MemoryCluster) -> None:
    member = cluster.by_uuid[str(cluster.rows[6][1])]
    cluster.do(lambda: member.held.pop(6))
    assert unequal(look(cluster, "m")) == [(6, "m", 1, "differs")]


def test_a_copy_of_another_history_is_found(cluster: MemoryCluster) -> None:
    cluster.by_uuid[str(cluster.rows[6][1])].held[6].epoch = 1
    assert unequal(look(cluster, "m")) == [(6, "m", 1, "differs")]


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
        findings = audit_partitions(client, range(PARTITIONS), pause=lambda _: late.apply(record, 0))
    assert unequal(findings) == []


def test_copies_of_a_partition_that_never_rests_are_busy_and_not_wrong(cluster: MemoryCluster) -> None:
    owner = cluster.owner(7).held[7].maps["m"]
    pauses: list[float] = []

    def write(seconds: float) -> None:
        pauses.append(seconds)
        owner.updates.next()

    owner.updates.next()
    with Client(cluster.addresses()) as client:
        findings = audit_partitions(client, range(PARTITIONS), pause=write)
    assert unequal(findings) == [(7, "m", 1, "busy"), (7, "m", 2, "busy")]
    assert len(pauses) > 5
    assert not AuditResult(findings, PARTITIONS, 0.0).sound


def test_a_wrong_copy_is_not_hidden_by_another_map_that_never_rests(cluster: MemoryCluster) -> None:
    partition = next(one.partition for one in look(cluster, "n"))
    owner = cluster.owner(partition).held[partition].maps["n"]
    owner.updates.next()
    changed = backup(cluster, partition)
    changed[next(iter(changed))] = b"else"

    def write(seconds: float) -> None:
        owner.updates.next()

    with Client(cluster.addresses()) as client:
        findings = audit_partitions(client, range(PARTITIONS), pause=write)
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
    result = AuditResult(findings, PARTITIONS, 0.0)
    assert (result.copies, result.not_kept) == (1, 1)
    second.open("m").entries[b"left"] = b"over"
    second.open("m").updates.next()
    assert unequal(look(cluster, "m")) == [(partition, "m", 2, "differs")]


def test_members_that_do_not_answer_or_serve_are_said_to_be_unreachable(cluster: MemoryCluster) -> None:
    owner = cluster.owner(9)
    cluster.do(lambda: owner.lane.serving.__setitem__(9, None))
    assert unequal(look(cluster)) == [(9, "", 0, "unreachable")]
    cluster.do(cluster.members[1].server.close)  # type: ignore[union-attr]
    findings = look(cluster)
    assert {one.verdict for one in findings if cluster.members[1].member_uuid in (one.member, one.owner)} == {
        "unreachable"
    }
    assert not AuditResult(findings, PARTITIONS, 0.0).sound
