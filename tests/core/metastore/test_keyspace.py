"""What commands make of the keys."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.metastore.naive import KEYS, Naive, branches

from holdfast.core.metastore import keyspace
from holdfast.core.metastore.commands import (
    WINDOW,
    CompactCommand,
    InvokeCommand,
    Proposer,
    encode_command,
)
from holdfast.core.metastore.invoke import (
    Absent,
    AllOf,
    AnyOf,
    Branch,
    Compare,
    Comparison,
    Condition,
    Exists,
    If,
    Invoked,
    Leaf,
    MetastoreEntry,
    PutKey,
    Removed,
    RemoveKey,
    Subject,
    revision_bytes,
    unchanged,
)
from holdfast.core.metastore.keyspace import (
    CommandAnswer,
    Keyspace,
    RevisionAhead,
    RevisionChanges,
    RevisionCompacted,
)
from holdfast.errors import ProtocolError

ME = Proposer(b"me", 0)


class Store:
    """A keyspace, and somebody who proposes."""

    def __init__(self) -> None:
        self.state = Keyspace()
        self.number = 0

    def command(self, branch: Branch, time_ms: int = 0) -> bytes:
        self.number += 1
        return encode_command(InvokeCommand(ME, self.number, self.number - 1, time_ms, branch))

    def invoke(self, branch: Branch, time_ms: int = 0) -> tuple[int, int]:
        answer = self.state.apply(self.command(branch, time_ms))
        assert answer is not None
        assert answer.invoked is not None
        assert answer[:2] == (ME, self.number)
        return answer.invoked.answer, answer.invoked.revision

    def put(self, key: bytes, value: bytes) -> int:
        return self.invoke(Leaf((PutKey(key, value),)))[1]

    def remove(self, key: bytes) -> int:
        return self.invoke(Leaf((RemoveKey(key),)))[1]

    def compact(self, revision: int) -> None:
        self.state.apply(encode_command(CompactCommand(revision)))

    def holds(self, condition: Condition) -> bool:
        return bool(self.invoke(If(condition, Leaf((), 1), Leaf((), 0)))[0])


# -- against the naive one


@given(st.lists(st.one_of(branches, st.integers(0, 12)), max_size=25), st.data())
@settings(max_examples=200, deadline=None)
def test_a_keyspace_is_what_a_naive_one_is(steps: list[Branch | int], data: st.DataObject) -> None:
    store, naive = Store(), Naive()
    restarts = data.draw(st.integers(0, len(steps)))
    for at, step in enumerate(steps):
        if isinstance(step, int):
            store.compact(step)
            if step <= naive.revision:
                naive.compacted = max(naive.compacted, step)
        else:
            assert store.invoke(step, at % 7) == naive.invoke(step, at % 7)
        if at == restarts:
            store.state = Keyspace.from_pieces(store.state.pieces())
    state = store.state
    assert (state.revision, state.compacted, state.time_ms) == (
        naive.revision,
        naive.compacted,
        naive.times[-1],
    )
    for revision in range(naive.revision + 1):
        if revision < naive.compacted:
            with pytest.raises(RevisionCompacted):
                state.get(b"a", revision)
            continue
        entries = [naive.get(key, revision) for key in KEYS]
        assert [state.get(key, revision) for key in KEYS] == entries
        for prefix in (b"", b"a", b"a/", b"\xff", b"c"):
            found = [entry for entry in entries if entry.exists and entry.key.startswith(prefix)]
            assert state.scan(prefix, revision) == found
        if revision > naive.compacted:
            assert state.changes(revision) == changed(naive, revision)
    assert state.scan(b"") == state.scan(b"", state.revision)
    assert len(state) == len(state.scan(b""))


def changed(naive: Naive, revision: int) -> RevisionChanges:
    before, after = naive.past[revision - 1], naive.past[revision]
    return RevisionChanges(
        revision,
        naive.times[revision],
        tuple(
            (
                MetastoreEntry(key, *before[key])
                if before.get(key, (None, 0))[0] is not None
                else MetastoreEntry(key),
                MetastoreEntry(key, *after[key]),
            )
            for key in KEYS
            if before.get(key) != after.get(key)
        ),
    )


# -- invokes


@pytest.mark.rule("metastore/M-2")
def test_one_leaf_of_a_tree_is_carried_out_and_all_of_it_at_once() -> None:
    store = Store()
    store.put(b"k", b"1")
    tree = If(
        Absent(b"k"),
        Leaf((PutKey(b"wrong", b""),), 1),
        If(Exists(b"k"), Leaf((PutKey(b"a", b"x"), PutKey(b"b", b"y"), RemoveKey(b"k")), 2), Leaf((), 3)),
    )
    assert store.invoke(tree) == (2, 2)
    assert store.state.scan(b"") == [MetastoreEntry(b"a", b"x", 2), MetastoreEntry(b"b", b"y", 2)]
    assert store.state.changes(2).changes == (
        (MetastoreEntry(b"a"), MetastoreEntry(b"a", b"x", 2)),
        (MetastoreEntry(b"b"), MetastoreEntry(b"b", b"y", 2)),
        (MetastoreEntry(b"k", b"1", 1), MetastoreEntry(b"k", None, 2)),
    )


@pytest.mark.rule("metastore/M-2")
def test_what_changes_nothing_has_no_revision() -> None:
    store = Store()
    assert store.put(b"k", b"1") == 1
    assert store.invoke(Leaf((RemoveKey(b"never"),), 4)) == (4, 1)
    assert store.invoke(Leaf((RemoveKey(b"never"), PutKey(b"k", b"1")))) == (0, 2), "a put is a change"
    assert store.remove(b"k") == 3
    assert store.remove(b"k") == 3
    assert [len(store.state.changes(revision).changes) for revision in (1, 2, 3)] == [1, 1, 1]


@pytest.mark.rule("metastore/M-2")
def test_what_was_removed_is_absent_and_known_to_be_removed_until_it_is_compacted() -> None:
    store = Store()
    store.put(b"first", b"")
    store.remove(b"first")
    for removed in (False, True):
        assert store.holds(Absent(b"k"))
        assert not store.holds(Exists(b"k"))
        assert store.holds(Removed(b"k")) is removed
        store.put(b"k", b"1")
        assert store.holds(AllOf((Exists(b"k"), AnyOf((Absent(b"k"), Exists(b"k"))))))
        assert not store.holds(Removed(b"k"))
        store.remove(b"k")
    store.state.need_from(1)
    assert store.holds(Removed(b"k"))
    store.compact(6)
    assert not store.holds(Removed(b"k")), "whoever has it in memory still decides as all others do"
    assert store.holds(AllOf(()))
    assert not store.holds(AnyOf(()))


@pytest.mark.rule("metastore/M-2")
def test_values_are_compared_as_bytes_and_nothing_is_less_than_all() -> None:
    store = Store()
    store.put(b"k", b"\x7f")
    assert [how.name for how in Comparison if store.holds(Compare(b"k", Subject.VALUE, how, b"\x80"))] == [
        "NOT_EQUAL",
        "LESS",
        "LESS_OR_EQUAL",
    ]
    assert store.holds(Compare(b"k", Subject.VALUE, Comparison.GREATER, b"\x70\xff"))
    assert store.holds(Compare(b"k", Subject.VALUE, Comparison.EQUAL, b"\x7f"))
    store.put(b"empty", b"")
    assert store.holds(Compare(b"empty", Subject.VALUE, Comparison.EQUAL, b""))
    store.remove(b"k")
    for key in (b"k", b"never"):
        assert store.holds(Compare(key, Subject.VALUE, Comparison.LESS, b""))
        assert not store.holds(Compare(key, Subject.VALUE, Comparison.EQUAL, b""))
        assert store.holds(Compare(key, Subject.VALUE, Comparison.NOT_EQUAL, b""))


@pytest.mark.rule("metastore/M-2")
def test_revisions_are_compared_as_numbers_and_what_is_absent_has_none() -> None:
    store = Store()
    store.put(b"other", b"")
    store.put(b"k", b"1")

    def compare(how: Comparison, revision: int) -> bool:
        return store.holds(Compare(b"k", Subject.REVISION, how, revision_bytes(revision)))

    assert compare(Comparison.EQUAL, 2)
    assert compare(Comparison.LESS, 300)
    assert compare(Comparison.GREATER, 1)
    entry = store.state.get(b"k")
    assert store.holds(unchanged(entry))
    store.remove(b"k")
    assert not compare(Comparison.EQUAL, 3), "its revision is that of its removal, and it is not there"
    assert compare(Comparison.LESS, 1)
    assert not store.holds(unchanged(entry))
    assert store.holds(unchanged(store.state.get(b"k")))


@pytest.mark.rule("metastore/M-4")
def test_times_rise_whatever_the_clocks_say() -> None:
    store = Store()
    for time_ms in (100, 50, 50, 200):
        store.invoke(Leaf((PutKey(b"k", b""),)), time_ms)
    store.invoke(Leaf((RemoveKey(b"never"),)), 900)
    assert [store.state.changes(revision).time_ms for revision in (1, 2, 3, 4)] == [100, 101, 102, 200]
    assert store.state.time_ms == 200
    assert [time_ms for _, time_ms in store.state.history(b"k")] == [100, 101, 102, 200]


# -- once


def once(number: int, answered: int = 0, proposer: Proposer = ME) -> bytes:
    """Adds one to a key, as its history tells."""
    return encode_command(InvokeCommand(proposer, number, answered, 0, Leaf((PutKey(b"k", b""),), number)))


@pytest.mark.rule("metastore/M-3")
def test_an_invoke_that_comes_again_is_answered_what_it_was() -> None:
    state = Keyspace()
    first = state.apply(once(1))
    assert first == CommandAnswer(ME, 1, Invoked(1, 1))
    state.apply(once(2))
    assert state.apply(once(1)) == first
    assert state.answer_of(ME, 1) == Invoked(1, 1)
    state = Keyspace.from_pieces(state.pieces())
    assert state.apply(once(1)) == first
    assert state.revision == 2


@pytest.mark.rule("metastore/M-3")
def test_what_its_proposer_does_not_wait_for_is_never_applied_late() -> None:
    state = Keyspace()
    state.apply(once(3, answered=2))
    for number in (1, 2):
        assert state.apply(once(number)) is None
    assert state.revision == 1
    state.apply(once(3 + WINDOW, answered=3))
    assert state.answer_of(ME, 3) is None
    state = Keyspace.from_pieces(state.pieces())
    assert state.apply(once(3, answered=2)) is None, "what is answered stays so, whatever an old command says"
    assert state.revision == 2


@pytest.mark.rule("metastore/M-3")
def test_answers_that_are_kept_are_bounded() -> None:
    state = Keyspace()
    for number in range(1, 1000):
        state.apply(once(number, max(0, number - WINDOW)))
    (session,) = state._sessions.values()
    assert len(session.answers) == WINDOW


@pytest.mark.rule("metastore/M-3")
def test_who_is_forgotten_begins_with_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyspace, "PROPOSERS_MOST", 3)
    state = Keyspace()
    state.apply(once(1))
    for name in (b"b", b"c"):
        state.apply(once(1, proposer=Proposer(name, state.applied)))
    state.apply(once(2))  # ME was heard of: b is the one that was not for longest.
    state.apply(once(1, proposer=Proposer(b"d", state.applied)))
    assert state.revision == 5
    assert state.apply(once(1)) == CommandAnswer(ME, 1, Invoked(1, 1))
    assert state.apply(once(1, proposer=Proposer(b"b", 1))) == CommandAnswer(Proposer(b"b", 1), 1, None)
    late = Proposer(b"late", 1)
    assert state.apply(once(1, proposer=late)) == CommandAnswer(late, 1, None), (
        "it may have been known before"
    )
    assert state.revision == 5
    new = Proposer(b"b2", state.applied)
    assert state.apply(once(1, proposer=new)) == CommandAnswer(new, 1, Invoked(1, 6))
    ahead = Proposer(b"ahead", state.applied + 1)
    assert state.apply(once(1, proposer=ahead)) is None
    assert state.revision == 6


@pytest.mark.rule("metastore/M-3")
def test_who_was_forgotten_is_not_taken_for_somebody_who_began_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What counts is when it was heard of last, not when it was first."""
    monkeypatch.setattr(keyspace, "PROPOSERS_MOST", 2)
    state = Keyspace()
    state.apply(once(1))
    state.apply(once(2))
    state.apply(once(3))
    for name in (b"b", b"c"):
        state.apply(once(1, proposer=Proposer(name, state.applied)))
    late = Proposer(b"late", 2)
    assert state.apply(once(1, proposer=late)) == CommandAnswer(late, 1, None)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4), st.booleans()), max_size=60))
@settings(max_examples=100, deadline=None)
def test_nothing_is_applied_twice_whoever_is_forgotten(steps: list[tuple[int, int, bool]]) -> None:
    """Old commands come back at any time, of proposers that are forgotten, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyspace, "PROPOSERS_MOST", 2)
        state, seen, applied = Keyspace(), list[bytes](), list[tuple[Proposer, int]]()
        proposers: dict[int, Proposer] = {}
        for who, number, again in steps:
            if again and seen:
                data = seen[who % len(seen)]
            else:
                proposer = proposers.setdefault(who, Proposer(b"%d" % who, state.applied))
                data = once(number, 0, proposer)
            seen.append(data)
            before = state.revision
            answer = state.apply(data)
            if state.revision > before:
                assert answer is not None
                applied.append(answer[:2])
            state = Keyspace.from_pieces(state.pieces())
        assert len(set(applied)) == len(applied)


# -- revisions


def filled() -> Store:
    store = Store()
    store.put(b"k", b"1")
    store.put(b"gone", b"1")
    store.put(b"k", b"2")
    store.remove(b"gone")
    store.put(b"k", b"3")
    return store


@pytest.mark.rule("metastore/M-5")
def test_what_is_compacted_is_refused_by_name_and_the_rest_is_as_it_was() -> None:
    store = filled()
    before = {
        revision: (store.state.scan(b"", revision), store.state.get(b"k", revision)) for revision in (4, 5)
    }
    changes = store.state.changes(5)
    store.compact(4)
    state = store.state
    for look in (
        lambda: state.get(b"k", 3),
        lambda: state.scan(b"", 3),
        lambda: state.changes(4),
        lambda: state.get(b"never", 3),
    ):
        with pytest.raises(RevisionCompacted):
            look()
    assert before == {revision: (state.scan(b"", revision), state.get(b"k", revision)) for revision in (4, 5)}
    assert state.changes(5) == changes
    assert state.get(b"gone") == MetastoreEntry(b"gone")
    assert [entry.revision for entry, _ in state.history(b"k")] == [3, 5]
    assert state.history(b"gone") == []
    with pytest.raises(RevisionAhead):
        state.get(b"k", 6)
    with pytest.raises(RevisionAhead):
        state.changes(6)
    with pytest.raises(RevisionAhead):
        state.scan(b"none", 6)


@pytest.mark.rule("metastore/M-5")
def test_a_compaction_never_goes_back_nor_ahead() -> None:
    store = filled()
    store.compact(3)
    store.compact(2)
    assert store.state.compacted == 3
    store.compact(6)
    assert store.state.compacted == 3


@pytest.mark.rule("metastore/M-5")
def test_what_is_needed_here_stays_and_is_not_in_the_state() -> None:
    held, other = filled(), filled()
    held.state.need_from(4)
    assert held.state.get(b"k", 1) == MetastoreEntry(b"k", b"1", 1), "what is not compacted is there anyway"
    held.state.need_from(2)
    for store in (held, other):
        store.compact(4)
    state = held.state
    assert state.get(b"k", 2) == MetastoreEntry(b"k", b"1", 1)
    assert state.changes(3).changes == ((MetastoreEntry(b"k", b"1", 1), MetastoreEntry(b"k", b"2", 3)),)
    assert state.can_tell_after(2)
    assert not other.state.can_tell_after(2)
    assert state.can_tell_after(5)
    assert not state.can_tell_after(6)
    with pytest.raises(RevisionCompacted):
        state.get(b"k", 1)
    assert state.pieces() == other.state.pieces()
    assert state.history(b"k") == other.state.history(b"k")
    assert state.get(b"gone") == other.state.get(b"gone")
    state.need_from(None)
    with pytest.raises(RevisionCompacted):
        state.get(b"k", 3)
    assert (state._versions, state._keys, state._changed) == (
        other.state._versions,
        other.state._keys,
        other.state._changed,
    )
    assert state.history_bytes == other.state.history_bytes


def test_a_compaction_is_due_when_there_is_much_to_forget() -> None:
    store = Store()
    assert store.state.compaction_due(4, 1000) is None
    for _ in range(5):
        store.put(b"k", bytes(9))
    assert store.state.compaction_due(4, 1000) is None, "not for every revision"
    store.put(b"k", bytes(9))
    assert store.state.compaction_due(4, 1000) == 2
    assert store.state.history_bytes == 60
    assert store.state.compaction_due(100, 40) == 4, "half as much as there may be"
    store.compact(4)
    assert store.state.history_bytes == 20
    assert store.state.compaction_due(100, 40) is None
    store.put(b"k", bytes(900))
    assert store.state.compaction_due(100, 40) == 7
    store.compact(7)
    assert store.state.compaction_due(100, 40) is None


# -- as a whole


@pytest.mark.rule("metastore/M-5")
def test_replicas_that_have_applied_the_same_are_the_same_bytes() -> None:
    """Restarted, caught up by pieces, or there from the beginning."""
    one, other = Keyspace(), Keyspace()
    store = Store()
    for at in range(300):
        data = (
            encode_command(CompactCommand(at // 2))
            if at % 50 == 49
            else b"nonsense"
            if at % 50 == 48
            else store.command(
                Leaf((PutKey(b"%d" % (at % 17), bytes(3000)), RemoveKey(b"%d" % (at % 5 + 20))))
            )
        )
        one.apply(data)
        other.apply(data)
        if at % 40 == 0:
            other = Keyspace.from_pieces(other.pieces())
        assert len(one.pieces()) == len(other.pieces())
    assert one.pieces() == other.pieces()
    assert 2 < len(one.pieces()) < 8
    assert max(map(len, one.pieces())) < keyspace.PIECE_BYTES + 4000
    assert Keyspace.from_pieces([]).pieces() == Keyspace().pieces()


def test_pieces_that_contradict_themselves_are_refused() -> None:
    header, versions = (msgspec.msgpack.decode(piece) for piece in filled().state.pieces())
    gone, put, *rest = versions

    def state(changed: list[list[object]], compacted: int = 0) -> Keyspace:
        first = [*header[:2], compacted, *header[3:-1], len(changed)]
        return Keyspace.from_pieces([msgspec.msgpack.encode(first), msgspec.msgpack.encode(changed)])

    assert state(versions).revision == 5
    for wrong in (
        [gone, *versions],
        [[b"a", 6, 0, b""], *versions],
        [[b"a", 0, 0, b""], *versions],
        [put, *rest],
    ):
        with pytest.raises(ProtocolError):
            state(wrong)
    with pytest.raises(ProtocolError):
        state(versions, compacted=4)


def test_pieces_that_cannot_be_are_refused() -> None:
    pieces = filled().state.pieces()
    store = filled()
    store.compact(5)
    for wrong in (
        store.state.pieces()[:1],
        pieces[:1],
        [pieces[0], pieces[1], pieces[1]],
        pieces[1:],
        [b"", *pieces[1:]],
        [pieces[0][:-1], *pieces[1:]],
        [pieces[0], b"\x91" * 5000],
        [Keyspace().pieces()[0], *pieces[1:]],
        [pieces[0], keyspace._encoder.encode(msgspec.msgpack.decode(pieces[1])[::-1])],
        [msgspec.msgpack.encode([2, *msgspec.msgpack.decode(pieces[0])[1:]]), *pieces[1:]],
    ):
        with pytest.raises(ProtocolError):
            Keyspace.from_pieces(wrong)
