"""The audit of members that are listed, without Spark: what one task finds, and what looks at live copies show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.memory_cluster import MemoryCluster

from holdfast.cli.audit import _copies, _show_copies
from holdfast.cli.credentials import Credentials
from holdfast.client.blocking import Client
from holdfast.errors import ConfigError, NotReady, ProtocolError, Unsupported
from holdfast.server.digest_questions import DigestQuestions
from holdfast.server.own_session import OwnSession
from holdfast.wire import own
from holdfast.wire.values import to_stored

pytest.importorskip("pyspark")

from holdfast.spark.pipeline import audit_copies
from holdfast.spark.pipeline.audit import audit
from holdfast.spark.pipeline.audit_copies import CopiesAudit, audit_members
from holdfast.spark.pipeline.loose_copies import LOOKS_MAX, LOOKS_STILL, CopyFinding, Held, Looks
from holdfast.spark.source.options import Options

NO_SPARK: Any = None
"""What is refused is refused before Spark is asked for anything."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryCluster]:
    monkeypatch.setattr(audit_copies, "PAUSE_S", 0.001)
    with MemoryCluster(3, 13, copies=3) as running:
        with Client(running.addresses()) as client:
            keys = [to_stored(number) for number in range(200)]
            client.put_columns("m", keys, keys, ttl_ms=0)
        yield running


def task(cluster: MemoryCluster) -> tuple[list[CopyFinding], list[str]]:
    """What a task finds that asks all members for all partitions, and what it says is not as it should be."""
    addresses = tuple(f"127.0.0.1:{member.port}" for member in cluster.members)
    options = Options.parse({"address": addresses[0], "map": "any", "timeout": "5"})
    work = audit_copies._Members(options, addresses, ())
    told: list[str] = []
    found = [
        finding
        for _, findings in work.compared((0, 1), lambda kind, text: told.append(text))
        for finding in findings
    ]
    return found, told


def verdicts(findings: list[CopyFinding]) -> dict[str, int]:
    found = [finding.verdict for finding in findings]
    return {verdict: found.count(verdict) for verdict in sorted(set(found))}


# -- maps


def test_a_map_that_nobody_knows_is_refused(cluster: MemoryCluster) -> None:
    with pytest.raises(ConfigError, match="no map 'mm' with entries: did you mean 'm'"):
        audit(NO_SPARK, cluster.addresses(), maps=["m", "mm"])
    with pytest.raises(ConfigError, match="no map 'mm' with entries: did you mean 'm'"):
        audit_members(NO_SPARK, cluster.addresses().split(","), maps=["mm"])


def test_a_map_that_only_a_silent_member_may_know_is_not_called_unknown(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = OwnSession._answer
    silent = cluster.members[2]

    def answer(session: OwnSession, question: own.Question) -> None:
        if isinstance(question, own.AskStatus) and session._grid is silent:
            session._close("no")
        else:
            before(session, question)

    monkeypatch.setattr(OwnSession, "_answer", answer)
    with pytest.raises(NotReady, match="cannot tell whether there is a map 'other'"):
        audit(NO_SPARK, cluster.addresses(), maps=["other"], timeout="2")


def test_keys_are_looked_for_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    for name in ("audit_files", "audit_members"):
        monkeypatch.setattr(audit_copies, name, lambda *given, keys_max, **more: asked.append(keys_max))
    plain = Credentials(None, None, None)
    for members, folders in ((("a", "b"), ()), ((), (Path("a"), Path("b")))):
        for keys in (False, True):
            _copies(NO_SPARK, members, folders, (), None, plain, keys=keys)
    assert asked == [0, audit_copies.KEYS_MAX] * 2


# -- a task


def test_equal_copies_of_members_are_equal_and_nobody_is_asked_again(cluster: MemoryCluster) -> None:
    assert [verdicts(task(cluster)[0]), task(cluster)[1]] == [{"equal": 26}, []]


def test_a_wrong_copy_that_is_also_behind_is_never_called_sound(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    held = cluster.by_uuid[str(cluster.rows[4][1])].held[4].maps["m"]
    held.state.entries[next(iter(held.state.entries))] = b"wrong"
    held.updates.lwm -= 1
    found, told = task(cluster)
    assert (verdicts(found), told) == ({"behind": 1, "equal": 25}, [])
    (behind,) = [finding for finding in found if finding.verdict == "behind"]
    assert (behind.partition, behind.why) == (4, f"1 updates behind, at {LOOKS_STILL} looks")
    audited = CopiesAudit(found, {"equal": 25, "behind": 1}, 1, [], [], [], 0.1)
    assert (audited.sound, audited.differs) == (False, False)
    assert "1 behind" in str(audited)
    _show_copies(audited)
    assert "25 equal, 0 older, 0 differs, 1 behind, 0 uncertain" in capsys.readouterr().out


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
    assert asked == [13, 1, 1], "what differs is looked at once more"


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


def test_members_of_another_version_are_refused_by_name(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_copies, "__version__", "9.9")
    with pytest.raises(Unsupported, match=r"127\.0\.0\.1:\d+ runs Holdfast .*, this client 9\.9"):
        task(cluster)


# -- looks


def copy(where: str, counter: int, digest: int = 1) -> Held:
    return Held(where, 3, "m", 0, counter, ((1, 0),), 5, digest)


def test_looks_go_on_until_copies_have_stood_at_one_update() -> None:
    looks = Looks()
    assert not looks.hear([copy("a", 9), copy("b", 8), copy("c", 9)])
    assert not looks.hear([copy("a", 11), copy("b", 10), copy("c", 10)])
    assert looks.hear([copy("a", 13), copy("b", 13), copy("c", 12)])
    assert {(finding.where, finding.verdict) for finding in looks.findings()} == {
        ("b", "equal"),
        ("c", "equal"),
    }


def test_copies_that_never_meet_are_behind_after_so_many_looks() -> None:
    looks = Looks()
    for look in range(1, LOOKS_MAX):
        assert not looks.hear([copy("a", 10 + look), copy("b", 9 + look)])
    assert looks.hear([copy("a", 99), copy("b", 90)])
    (finding,) = looks.findings()
    assert (finding.where, finding.verdict, finding.why) == ("b", "behind", "9 updates behind, at 12 looks")


def test_what_was_seen_to_differ_stays_so_though_the_copies_part_again() -> None:
    looks = Looks()
    assert not looks.hear([copy("a", 9), copy("b", 9, digest=2)])
    for look in range(LOOKS_STILL):
        done = looks.hear([copy("a", 12), copy("b", 10)])
        assert done == (look == LOOKS_STILL - 1)
    assert [finding.verdict for finding in looks.findings()] == ["differs"]
