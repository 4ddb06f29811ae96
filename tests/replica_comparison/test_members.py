"""The comparison of listed members: what a task finds, and what looks at replicas without a primary show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.memory_cluster import MemoryCluster

from holdfast.client.blocking import Client
from holdfast.core.store.replica_comparison import (
    LOOKS,
    LOOKS_MAX,
    Finding,
    Looks,
    ReplicaDigest,
    compare_with_newest,
)
from holdfast.errors import ConfigError, NotReady, ProtocolError, Unsupported
from holdfast.replica_comparison.comparison_report import Notes
from holdfast.replica_comparison.sources import Access, ClusterSource, ListedSource, verify_source
from holdfast.server.digest_questions import DigestQuestions
from holdfast.server.own_session import OwnSession
from holdfast.wire import own
from holdfast.wire.values import to_stored


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    with MemoryCluster(3, 13, copies=3) as running:
        with Client(running.addresses()) as client:
            keys = [to_stored(number) for number in range(200)]
            client.put_columns("m", keys, keys, ttl_ms=0)
        yield running


def listed(
    cluster: MemoryCluster, *maps: str, timeout_s: float = 5, release: str | None = None
) -> ListedSource:
    addresses = tuple(f"127.0.0.1:{member.port}" for member in cluster.members)
    return ListedSource(Access(addresses, timeout_s=timeout_s, release=release), maps)


def task(cluster: MemoryCluster, release: str | None = None) -> tuple[list[Finding], list[str]]:
    """What a task finds that asks all members for all partitions, and what it could not read."""
    notes = Notes()
    found = listed(cluster, release=release).compare(0, 1, notes, pause=lambda seconds: None)
    return found, notes.damage


def verdicts(findings: list[Finding]) -> dict[str, int]:
    found = [finding.verdict for finding in findings]
    return {verdict: found.count(verdict) for verdict in sorted(set(found))}


# -- maps


def test_a_map_that_nobody_knows_is_refused(cluster: MemoryCluster) -> None:
    with pytest.raises(ConfigError, match="no map 'mm' with entries: did you mean 'm'"):
        ClusterSource(Access((cluster.addresses(),)), ("m", "mm")).check()
    with pytest.raises(ConfigError, match="no map 'mm' with entries: did you mean 'm'"):
        verify_source(listed(cluster, "mm"))


def test_a_map_that_only_a_silent_member_may_know_is_not_called_unknown(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = OwnSession._answer
    silent = cluster.members[2]

    def answer(session: OwnSession, question: own.Question) -> None:
        if isinstance(question, own.Act) and session._grid is silent:
            session._close("no")
        else:
            before(session, question)

    monkeypatch.setattr(OwnSession, "_answer", answer)
    with pytest.raises(NotReady, match="cannot tell whether there is a map 'other'"):
        ClusterSource(Access((cluster.addresses(),), timeout_s=2), ("other",)).check()


# -- a task


def test_equal_copies_of_members_are_equal_and_nobody_is_asked_again(cluster: MemoryCluster) -> None:
    assert [verdicts(task(cluster)[0]), task(cluster)[1]] == [{"equal": 26}, []]


def test_a_wrong_copy_that_is_also_behind_is_never_called_sound(cluster: MemoryCluster) -> None:
    held = cluster.by_uuid[str(cluster.rows[4][1])].held[4].maps["m"]
    held.state.entries[next(iter(held.state.entries))] = b"wrong"
    held.updates.lwm -= 1
    found, told = task(cluster)
    assert (verdicts(found), told) == ({"busy": 1, "equal": 25}, [])
    (behind,) = [finding for finding in found if finding.verdict == "busy"]
    assert (behind.partition, behind.reason) == (4, f"1 updates behind, at {LOOKS} looks")
    report = verify_source(listed(cluster))
    assert (report.sound, report.differs, report.count("busy")) == (False, False, 1)
    assert "25 equal, 0 differs, 0 older, 1 busy" in str(report)


def test_a_copy_that_was_behind_for_a_moment_is_compared_when_it_has_come_along(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = cluster.by_uuid[str(cluster.rows[4][1])]
    held = late.held[4].maps["m"]
    held.updates.lwm -= 1
    held.state.entries[next(iter(held.state.entries))] = b"wrong"
    before = DigestQuestions._digests
    asked: list[int] = []

    def digests(asked_of: DigestQuestions, question: own.AskDigests) -> None:
        if asked_of._grid is late and 4 in question.partitions:
            asked.append(len(question.partitions))
            if len(asked) == 2:
                held.updates.lwm += 1
        before(asked_of, question)

    monkeypatch.setattr(DigestQuestions, "_digests", digests)
    assert verdicts(task(cluster)[0]) == {"differs": 1, "equal": 25}
    assert asked == [13, 1, 1, 1], "other content counts when three looks have shown it"


def test_members_that_do_not_answer_are_told(cluster: MemoryCluster) -> None:
    cluster.do(lambda: cluster.kill(cluster.members[1]))
    found, told = task(cluster)
    assert verdicts(found) == {"equal": 13}
    assert len(told) == 1
    assert f"127.0.0.1:{cluster.members[1].port}: " in told[0]


def test_a_member_that_answers_for_no_partition_does_not_pass_for_one_that_holds_nothing(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(asked_of: DigestQuestions, question: own.AskDigests) -> None:
        asked_of._replies.send(own.Digests(question.id, 1, 0, []))

    monkeypatch.setattr(DigestQuestions, "_digests", nothing)
    with pytest.raises(ProtocolError, match="answered for no partition"):
        task(cluster)


def test_members_of_another_version_are_refused_by_name(cluster: MemoryCluster) -> None:
    with pytest.raises(Unsupported, match=r"127\.0\.0\.1:\d+ runs Holdfast .*, this client 9\.9"):
        task(cluster, release="9.9")


# -- looks


def look(**counters: int | tuple[int, int]) -> list[Finding]:
    """A look at replicas with these counters, and digests if they are not 1."""
    given = {where: one if isinstance(one, tuple) else (one, 1) for where, one in counters.items()}
    return compare_with_newest(
        [
            ReplicaDigest(where, 3, "m", counter, 5, digest, lineage=((1, 0),))
            for where, (counter, digest) in given.items()
        ]
    )


def test_looks_go_on_until_copies_have_stood_at_one_update() -> None:
    looks = Looks()
    assert not looks.add(look(a=9, b=8, c=9))
    assert not looks.add(look(a=11, b=10, c=10))
    assert looks.add(look(a=13, b=13, c=12))
    assert {(one.member, one.verdict) for one in looks.findings()} == {("b", "equal"), ("c", "equal")}


def test_copies_that_never_meet_are_busy_after_so_many_looks() -> None:
    looks = Looks()
    for number in range(1, LOOKS_MAX):
        assert not looks.add(look(a=10 + number, b=9 + number))
    assert looks.add(look(a=99, b=90))
    (finding,) = looks.findings()
    assert (finding.member, finding.verdict) == ("b", "busy")
    assert finding.reason == f"9 updates behind, at {LOOKS_MAX} looks"


def test_what_was_seen_to_differ_twice_stays_so_though_the_copies_part_again() -> None:
    looks = Looks()
    assert not looks.add(look(a=9, b=(9, 2)))
    assert not looks.add(look(a=10, b=(10, 2)))
    for _ in range(LOOKS_MAX - 2):
        looks.add(look(a=12, b=10))
    assert [one.verdict for one in looks.findings()] == ["differs"]


def test_a_copy_that_was_repaired_meanwhile_is_equal() -> None:
    looks = Looks()
    assert not looks.add(look(a=9, b=(9, 2)))
    assert not looks.add(look(a=10, b=(10, 2)))
    assert looks.add(look(a=12, b=12))
    assert [one.verdict for one in looks.findings()] == ["equal"]


def test_a_copy_that_was_equal_as_the_newest_one_needs_no_other_look() -> None:
    looks = Looks()
    assert not looks.add(look(a=9, b=9, c=8))
    assert looks.add(look(b=10, a=9, c=10)), "a was the reference of b"
    assert {(one.member, one.verdict) for one in looks.findings()} == {("b", "equal"), ("c", "equal")}
