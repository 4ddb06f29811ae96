"""What is on the wire and in files between versions, and what a replica without a role has."""

from __future__ import annotations

import gc

import msgspec
import pytest

from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.raft_log import RaftLog
from holdfast.core.raft.raft_messages import RaftEntry, RaftKind, RaftMessage, RaftSnapshot
from holdfast.core.raft.raft_state import HardState, RaftSettings, RaftState

NAMES = [
    "APPEND", "APPENDED", "VOTE", "VOTED", "PRE_VOTE", "PRE_VOTED", "HEARTBEAT", "HEARTBEAT_HEARD", "SNAPSHOT",
    "TIMEOUT_NOW", "TRANSFER", "PROPOSE", "READ", "READ_AT", "FORGET_LEADER",
]  # fmt: skip


def plain(what: object) -> object:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(what))


def test_what_other_versions_read_keeps_its_form() -> None:
    assert [kind.name for kind in sorted(RaftKind)] == NAMES
    assert [kind.value for kind in sorted(RaftKind)] == list(range(15))
    message = RaftMessage(kind=RaftKind.VOTE, to="b", sender="a")
    assert plain(message) == [2, "b", "a", 0, 0, 0, 0, 0, [], None, False, 0, b""]
    assert plain(RaftEntry(3, 7)) == [3, 7, b"", None]
    assert plain(RaftSnapshot(7, 3, Configuration())) == [7, 3, [[], [], [], [], False, 0], b""]
    assert plain(HardState()) == [0, None, 0, 0]


def test_messages_and_entries_are_values() -> None:
    snapshot = RaftSnapshot(1, 1, Configuration())
    values = [
        RaftMessage(kind=RaftKind.SNAPSHOT, to="b", sender="a", snapshot=snapshot),
        RaftEntry(1, 1),
        snapshot,
    ]
    assert len({*values, *values}) == 3
    with pytest.raises(TypeError):
        RaftMessage(RaftKind.VOTE, "b", "a")  # type: ignore[misc]
    assert not gc.is_tracked(RaftEntry(1, 1, configuration=Configuration())), (
        "a long log costs no time to collect"
    )
    assert (RaftEntry(1, 1).size, RaftEntry(1, 1, b"xyz").size) == (24, 27)


def test_what_groups_run_with_where_nothing_else_is_said() -> None:
    settings = RaftSettings()
    assert (settings.election_ticks, settings.heartbeat_ticks, settings.catch_up_ticks) == (10, 1, 50)
    assert (settings.pre_vote, settings.check_quorum, settings.lease_reads) == (True, True, False)
    assert (settings.starts_voted, settings.sends_commits) == (False, True)
    assert (settings.keeps_leading_when_removed, settings.transfers_when_removed) == (False, True)
    assert (settings.message_bytes, settings.uncommitted_bytes) == (1 << 20, 64 << 20)
    assert (settings.applying_bytes, settings.window, settings.window_bytes) == (0, 64, 0)
    assert settings.catch_up_margin == 1000


@pytest.mark.rule("raft/E-1", "raft/E-4")
def test_a_replica_without_a_role() -> None:
    old, new = Configuration(frozenset("abc")), Configuration(frozenset("bcd"))
    log = RaftLog(RaftSnapshot(1, 1, old), [RaftEntry(1, 2, configuration=new)], committed=1)

    settings = RaftSettings(election_ticks=7)

    def state(me: str) -> RaftState:
        return RaftState(me, settings, log, HardState(3, "b", 1, 2))

    one = state("a")
    assert one.settings is settings
    assert (one.term, one.vote, one.generation, one.lead, one.uncommitted) == (3, "b", 2, None, 0)
    assert (one.configuration, one.reads, one.notices) == (new, [], [])
    promotable = {name: state(name).promotable for name in "abdx"}
    assert promotable == {"a": True, "b": True, "d": True, "x": False}, "who is removed may still be needed"
    log.commit_to(2)
    assert {name: state(name).promotable for name in "abdx"} == {"a": False, "b": True, "d": True, "x": False}
    log.restore(RaftSnapshot(9, 1, old))
    assert not one.promotable
    late = {RaftKind.APPENDED, RaftKind.VOTED, RaftKind.PRE_VOTED}
    for kind in RaftKind:
        one.send(kind, "c", index=4)
        one.send(kind, "c", term=9)
    assert {each.kind for each in one.after} == late
    assert {each.kind for each in one.messages} == set(RaftKind) - late
    expected = [RaftMessage(kind=RaftKind.VOTED, to="c", sender="a", generation=2, term=3, index=4)]
    expected.append(RaftMessage(kind=RaftKind.VOTED, to="c", sender="a", generation=2, term=9))
    assert [each for each in one.after if each.kind is RaftKind.VOTED] == expected
    one.messages.clear()
    entries = (RaftEntry(0, 0, b"x"),)
    asked = RaftMessage(kind=RaftKind.PROPOSE, to="a", sender="z", term=1, entries=entries, context=b"c")
    one.forward(asked, "b")
    passed = RaftMessage(
        kind=RaftKind.PROPOSE, to="b", sender="z", generation=2, entries=entries, context=b"c"
    )
    assert one.messages == [passed]
