"""Bounds of the keyspace: compactions, what is needed here, answers of proposers, and pieces of the state."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.metastore.naive import KEYS, Naive, branches
from tests.core.metastore.test_keyspace import ME, Store, changed, once

from holdfast.core.metastore import keyspace
from holdfast.core.metastore.commands import WINDOW, CompactCommand, Proposer, encode_command
from holdfast.core.metastore.invoke import Branch, Invoked, Leaf, MetastoreEntry, PutKey, RemoveKey
from holdfast.core.metastore.keyspace import (
    CommandAnswer,
    Keyspace,
    KeyVersion,
    RevisionAhead,
    RevisionChanges,
    RevisionCompacted,
)
from holdfast.errors import ProtocolError


def total(state: Keyspace, after: int) -> int:
    """Bytes of keys and values that changed after a revision."""
    return sum(
        len(new.key) + len(new.value or b"")
        for revision in range(after + 1, state.revision + 1)
        for _, new in state.changes(revision).changes
    )


# -- against a model, with compactions, watchers and restarts


@pytest.mark.rule("metastore/M-5", "metastore/W-1")
@given(
    st.lists(
        st.one_of(
            branches,
            st.tuples(st.just("compact"), st.integers(0, 8)),
            st.tuples(st.just("need"), st.integers(0, 8)),
            st.tuples(st.just("restart"), st.just(0)),
        ),
        max_size=18,
    )
)
def test_what_is_needed_is_read_as_it_was_whatever_others_forget(
    steps: list[Branch | tuple[str, int]],
) -> None:
    store, naive = Store(), Naive()
    needed, known = None, 0
    for step in steps:
        if not isinstance(step, tuple):
            assert store.invoke(step, 3) == naive.invoke(step, 3)
        elif step[0] == "compact":
            store.compact(step[1])
            if step[1] <= naive.revision:
                naive.compacted = max(naive.compacted, step[1])
        elif step[0] == "need":
            needed = max(min(step[1], naive.revision), known) or None
            store.state.need_from(needed)
        else:
            store.state, needed = Keyspace.from_pieces(store.state.pieces()), None
        known = max(known, naive.compacted if needed is None else min(naive.compacted, needed))
        state = store.state
        assert (state.revision, state.compacted) == (naive.revision, naive.compacted)
        assert state.history_bytes == total(state, known)
        for revision in range(naive.revision + 2):
            assert state.can_tell_after(revision) is (known <= revision <= naive.revision)
            if revision > naive.revision:
                _raises(RevisionAhead, state, revision)
            elif revision < known:
                _raises(RevisionCompacted, state, revision)
            else:
                assert [state.get(key, revision) for key in KEYS] == [
                    naive.get(key, revision) for key in KEYS
                ]
                assert state.scan(b"", revision) == [
                    entry for key in KEYS if (entry := naive.get(key, revision)).exists
                ]
                if revision > known:
                    assert state.changes(revision) == changed(naive, revision)
                elif revision > 0:
                    with pytest.raises(RevisionCompacted):
                        state.changes(revision)
    assert [state_of.key for state_of in store.state.scan(b"")] == [k for k in KEYS if naive.get(k).exists]


def _raises(kind: type[Exception], state: Keyspace, revision: int) -> None:
    for look in (lambda: state.get(b"a", revision), lambda: state.scan(b"", revision)):
        with pytest.raises(kind):
            look()


@pytest.mark.rule("metastore/M-5")
def test_a_history_is_told_from_the_compaction_on_also_where_more_is_in_memory() -> None:
    store = Store()
    store.put(b"k", b"1")
    store.put(b"k", b"2")
    store.remove(b"k")
    store.put(b"k", b"3")
    store.state.need_from(1)
    for compacted, revisions in ((0, [1, 2, 3, 4]), (1, [1, 2, 3, 4]), (2, [2, 3, 4]), (3, [4]), (4, [4])):
        store.compact(compacted)
        history = store.state.history(b"k")
        assert [entry.revision for entry, _ in history] == revisions
        assert [time_ms for _, time_ms in history] == revisions
        assert [store.state.changes(at).time_ms for at in (2, 3, 4)] == [2, 3, 4], "all of it is needed here"
    assert store.state.history(b"never") == []


# -- compactions


def test_a_compaction_is_up_to_a_revision_that_is_here() -> None:
    store = Store()
    for at in range(4):
        store.put(b"k", b"%d" % at)
    for wanted, compacted in ((5, 0), (2, 2), (1, 2), (2, 2), (9, 2), (4, 4)):
        store.compact(wanted)
        assert store.state.compacted == compacted
    assert store.state.get(b"k") == MetastoreEntry(b"k", b"3", 4)
    assert store.state.applied == 10
    assert store.state.history_bytes == 0


@given(
    st.lists(st.integers(0, 12), max_size=30),
    st.integers(0, 30),
    st.integers(1, 12),
    st.integers(0, 120),
)
def test_a_compaction_keeps_as_many_revisions_as_it_may(
    sizes: list[int], compacted: int, revisions: int, most: int
) -> None:
    """So many, or as few as it takes to come down to half of the bytes that there may be."""
    store = Store()
    for size in sizes:
        store.put(b"k", bytes(size))
    store.compact(min(compacted, len(sizes)))
    state = store.state
    due = state.compaction_due(revisions, most)
    count, large = state.revision - state.compacted, state.history_bytes > most
    if count <= revisions + revisions // 4 and not large:
        assert due is None
        return
    kept = min(count, revisions)
    if large:
        kept = next(
            (fewer for fewer in range(kept) if total(state, state.revision - fewer - 1) > most // 2), kept
        )
    upto = state.revision - kept
    assert due == (upto if upto > state.compacted else None)


def sized(*sizes: int) -> Store:
    """A store with one change of so many bytes for each revision."""
    store = Store()
    for size in sizes:
        store.put(b"k", bytes(size - 1))
    return store


@pytest.mark.parametrize(
    ("sizes", "compacted", "revisions", "most", "due"),
    [
        # A quarter more than are kept is not worth a compaction.
        ([1] * 10, 5, 4, 99, None),
        ([1] * 10, 4, 4, 99, 6),
        ([1] * 5, 0, 4, 5, None),
        ([1] * 5, 0, 4, 4, 3),
        # Bytes count only where there are too many of them.
        ([1] * 8 + [4, 4], 0, 4, 16, 6),
        ([1] * 8 + [4, 4], 0, 4, 15, 9),
        ([1] * 8 + [4, 4], 0, 1, 15, 9),
        ([1] * 8 + [3, 8], 0, 4, 15, 10),
        ([9], 0, 4, 8, 1),
    ],
)
def test_when_a_compaction_is_due(
    sizes: list[int], compacted: int, revisions: int, most: int, due: int | None
) -> None:
    store = sized(*sizes)
    store.compact(compacted)
    assert store.state.compaction_due(revisions, most) == due


def test_what_is_only_held_for_watchers_here_is_not_compacted_again() -> None:
    """All others have forgotten it: a compaction would change nothing."""
    store = sized(*[10] * 6)
    store.state.need_from(1)
    store.compact(6)
    assert store.state.history_bytes == 50
    assert store.state.compaction_due(100, 40) is None
    other = sized(*[10] * 6)
    other.state.need_from(1)
    other.compact(4)
    assert other.state.compaction_due(2, 40) is None
    assert other.state.compaction_due(1, 40) == 5


def test_a_compaction_of_many_keys_of_one_revision_counts_them_all() -> None:
    store = Store()
    store.put(b"k", bytes(9))
    store.invoke(Leaf(tuple(PutKey(b"%d" % at, bytes(9)) for at in range(4))))
    assert store.state.history_bytes == 50
    assert store.state.compaction_due(100, 50) is None
    assert store.state.compaction_due(100, 49) == 2
    store.put(b"k", b"")
    assert store.state.compaction_due(100, 50) == 2, "the newest one is small"
    store.compact(2)
    assert store.state.history_bytes == 1
    assert len(store.state) == 5


# -- proposers


@pytest.mark.rule("metastore/M-3")
def test_answers_are_kept_until_their_proposer_does_not_wait_any_more() -> None:
    state = Keyspace()
    for number in (1, 2, 3):
        state.apply(once(number))
    assert [state.answer_of(ME, number) for number in (1, 2, 3, 4)] == [
        Invoked(1, 1), Invoked(2, 2), Invoked(3, 3), None,
    ]  # fmt: skip
    state.apply(once(4, answered=2))
    assert [state.answer_of(ME, number) for number in (1, 2, 3, 4)] == [
        None, None, Invoked(3, 3), Invoked(4, 4),
    ]  # fmt: skip
    assert state.apply(once(3, answered=0)) == CommandAnswer(ME, 3, Invoked(3, 3))
    assert state.answer_of(ME, 3) == Invoked(3, 3)
    assert state.answer_of(Proposer(b"other", 0), 1) is None


@pytest.mark.rule("metastore/M-3")
def test_so_many_proposers_are_known_and_the_next_one_forgets_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyspace, "PROPOSERS_MOST", 2)
    state = Keyspace()
    names = [Proposer(name, 0) for name in (b"a", b"b")]
    for name in names:
        state.apply(once(1, proposer=name))
    assert [state.answer_of(name, 1) for name in names] == [Invoked(1, 1), Invoked(1, 2)]
    third = Proposer(b"c", 2)
    assert state.apply(once(1, proposer=third)) == CommandAnswer(third, 1, Invoked(1, 3))
    assert [state.answer_of(name, 1) for name in (*names, third)] == [None, Invoked(1, 2), Invoked(1, 3)]
    # `a` was heard of last by command 1: who began before that may be `a`, or somebody forgotten with it.
    unknown = Proposer(b"d", 0)
    assert state.apply(once(1, proposer=unknown)) == CommandAnswer(unknown, 1, None)
    began_then = Proposer(b"e", 1)
    assert state.apply(once(1, proposer=began_then)) == CommandAnswer(began_then, 1, Invoked(1, 4))


@pytest.mark.rule("metastore/M-3")
def test_a_proposer_of_a_future_state_is_answered_nothing() -> None:
    """It has begun in a state that was given up, or begins now."""
    state = Keyspace()
    for since, applied in ((1, False), (2, False), (1, True), (7, False)):
        proposer = Proposer(b"%d" % since, since)
        answer = state.apply(once(1, proposer=proposer))
        assert (answer is not None) is applied
    assert state.revision == 1


@pytest.mark.rule("metastore/M-3")
def test_what_is_known_of_proposers_travels_with_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyspace, "PROPOSERS_MOST", 3)
    state = Keyspace()
    for name in (b"a", b"b", b"c", b"d"):
        state.apply(once(2, answered=1, proposer=Proposer(name, state.applied)))
    state.apply(once(3, answered=1, proposer=Proposer(b"b", 1)))
    state.apply(b"nonsense")
    other = Keyspace.from_pieces(state.pieces())
    for one in (state, other):
        assert (one.applied, one.malformed, one.revision, one.time_ms) == (6, 1, 5, 5)
        assert one.answer_of(Proposer(b"b", 1), 2) == Invoked(2, 2)
        assert one.answer_of(Proposer(b"b", 1), 3) == Invoked(3, 5)
        assert one.apply(once(1, proposer=Proposer(b"c", 2))) is None, "it waits for that no more"
        one.apply(once(1, proposer=Proposer(b"e", one.applied)))
        assert one.answer_of(Proposer(b"d", 3), 2) is None, "c and b were heard of later"
        assert one.answer_of(Proposer(b"b", 1), 3) is not None
        late = Proposer(b"late", 3)
        assert one.apply(once(1, proposer=late)) == CommandAnswer(late, 1, None)
    assert other.pieces() == state.pieces()


def test_a_proposer_that_comes_again_and_again_is_one() -> None:
    state = Keyspace()
    for number in range(1, 3 * WINDOW):
        state.apply(once(number, number - 1))
    assert len(state._sessions) == 1
    assert len(state._sessions[ME].answers) == 1


# -- pieces


def test_pieces_are_as_large_as_it_says_and_no_larger_than_one_value_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyspace, "PIECE_BYTES", 20)
    for sizes, portions in (
        ([], []),
        ([19], [1]),
        ([20], [1]),
        ([10, 10], [2]),
        ([10, 9, 1], [3]),
        ([10, 9, 30, 1], [3, 1]),
        ([20, 20, 5], [1, 1, 1]),
        ([5] * 9, [4, 4, 1]),
    ):
        store = Store()
        for at, size in enumerate(sizes):
            store.put(b"%d" % at, bytes(size - 1))
        pieces = store.state.pieces()
        assert [len(msgspec.msgpack.decode(piece)) for piece in pieces[1:]] == portions
        assert Keyspace.from_pieces(pieces).pieces() == pieces


def parts_of(state: Keyspace) -> tuple[list[Any], list[Any]]:
    header, *portions = (msgspec.msgpack.decode(piece) for piece in state.pieces())
    return header, [version for portion in portions for version in portion]


def made(header: list[Any], versions: list[Any]) -> Keyspace:
    return Keyspace.from_pieces([msgspec.msgpack.encode(header), msgspec.msgpack.encode(versions)])


def test_pieces_that_contradict_themselves() -> None:
    store = Store()
    store.put(b"a", b"1")
    store.put(b"b", b"2")
    store.remove(b"b")
    store.put(b"a", b"3")
    header, versions = parts_of(store.state)
    assert versions == [[b"a", 1, 1, b"1"], [b"a", 4, 4, b"3"], [b"b", 2, 2, b"2"], [b"b", 3, 3, None]]
    assert made(header, versions).pieces() == store.state.pieces()
    a1, a4, b2, b3 = versions
    for wrong in (
        [a4, a1, b2, b3],
        [b2, b3, a1, a4],
        [a1, a1, b2, b3],
        [a1, a4, b2, [b"b", 5, 5, None]],
        [[b"a", 0, 0, b"1"], a4, b2, b3],
        [[b"", 1, 1, b""], [b"", 1, 1, b""], a4, b2],
        [a1, a4, b2, [b"b", 2, 3, None]],
        [a1, a4, b2, [b"b", 4, 3, None]],
    ):
        with pytest.raises(ProtocolError):
            made(header, wrong)
    for at, value in ((0, 2), (0, 0), (1, 5), (1, 3), (2, 3), (8, 3), (8, 5), (0, "x")):
        with pytest.raises(ProtocolError):
            made([*header[:at], value, *header[at + 1 :]], versions)
    with pytest.raises(ProtocolError):
        made(header, versions[:-1])


def test_a_removal_that_is_forgotten_is_in_no_state() -> None:
    store = Store()
    store.put(b"a", b"1")
    store.remove(b"a")
    store.put(b"b", b"2")
    store.put(b"b", b"3")
    for compacted in (1, 2, 3, 4):
        store.compact(compacted)
        header, versions = parts_of(store.state)
        assert header[2] == compacted
        assert [(key, at) for key, at, *_ in versions] == {
            1: [(b"a", 1), (b"a", 2), (b"b", 3), (b"b", 4)],
            2: [(b"b", 3), (b"b", 4)],
            3: [(b"b", 3), (b"b", 4)],
            4: [(b"b", 4)],
        }[compacted]
        state = made(header, versions)
        assert state.pieces() == store.state.pieces()
        assert state.history_bytes == store.state.history_bytes
        assert len(state) == len(store.state)
        with pytest.raises(ProtocolError):
            made([*header[:8], len(versions) + 1], [[b"a", compacted, compacted, None], *versions])


def test_a_state_of_nothing() -> None:
    for state in (Keyspace(), Keyspace.from_pieces([]), Keyspace.from_pieces(Keyspace().pieces())):
        assert (state.revision, state.time_ms, state.compacted, state.applied, state.malformed) == (0,) * 5
        assert (state.history_bytes, len(state), state.scan(b"")) == (0, 0, [])
        assert state.can_tell_after(0)
        assert not state.can_tell_after(1)
        assert state.compaction_due(1, 0) is None
        assert len(state.pieces()) == 1


def test_the_form_of_a_state_is_what_other_releases_read() -> None:
    """A new form needs a new version, and members that can do both."""
    assert (keyspace.PIECES_VERSION, keyspace.PIECE_BYTES, keyspace.PROPOSERS_MOST) == (1, 256 << 10, 256)
    state = Keyspace()
    state.apply(once(2, answered=1))
    state.apply(b"nonsense")
    header, versions = parts_of(state)
    assert header == [1, 1, 0, 1, 2, 1, 0, [[[b"me", 0], 1, 1, [[2, [2, 1]]]]], 1]
    assert versions == [[b"k", 1, 1, b""]]
    changes = RevisionChanges(1, 1, ((MetastoreEntry(b"k"), MetastoreEntry(b"k", b"", 1)),))
    assert state.changes(1) == changes
    assert msgspec.msgpack.encode(changes).hex() == "930101919293c4016bc00093c4016bc40001"
    with pytest.raises(AttributeError):
        changes.revision = 2  # type: ignore[misc]


# -- looking


def test_keys_are_found_by_their_prefix_alone() -> None:
    store = Store()
    for key in (b"b", b"a", b"ab", b"a\xff", b"aa", b"\xff", b"\xff\xff"):
        store.put(key, key)
    store.remove(b"aa")
    assert [entry.key for entry in store.state.scan(b"a")] == [b"a", b"ab", b"a\xff"]
    assert [entry.key for entry in store.state.scan(b"\xff")] == [b"\xff", b"\xff\xff"]
    assert [entry.key for entry in store.state.scan(b"c")] == []
    assert [entry.key for entry in store.state.scan(b"a", 3)] == [b"a", b"ab"]
    assert len(store.state) == 6


def test_a_change_of_several_keys_is_told_in_their_order_with_what_was_before() -> None:
    store = Store()
    store.invoke(Leaf((PutKey(b"b", b"1"), PutKey(b"a", b"1"))))
    store.invoke(Leaf((RemoveKey(b"b"), PutKey(b"c", b""), PutKey(b"a", b"2"), RemoveKey(b"x"))))
    assert store.state.changes(2).changes == (
        (MetastoreEntry(b"a", b"1", 1), MetastoreEntry(b"a", b"2", 2)),
        (MetastoreEntry(b"b", b"1", 1), MetastoreEntry(b"b", None, 2)),
        (MetastoreEntry(b"c"), MetastoreEntry(b"c", b"", 2)),
    )
    store.put(b"b", b"3")
    assert store.state.changes(3).changes == ((MetastoreEntry(b"b"), MetastoreEntry(b"b", b"3", 3)),)
    for revision in (0, 4):
        with pytest.raises((RevisionCompacted, RevisionAhead)):
            store.state.changes(revision)


def test_errors_say_what_is_known() -> None:
    store = Store()
    for _ in range(4):
        store.put(b"k", b"")
    store.compact(2)
    with pytest.raises(RevisionAhead, match=r"revision 5 .* 4"):
        store.state.get(b"k", 5)
    with pytest.raises(RevisionCompacted, match=r"revision 1 .* 2"):
        store.state.get(b"k", 1)
    assert KeyVersion(1, 2, None) == (1, 2, None)


@pytest.mark.rule("metastore/M-5")
def test_a_compaction_that_is_ahead_is_ignored_by_all_alike() -> None:
    state = Keyspace()
    assert state.apply(encode_command(CompactCommand(1))) is None
    assert (state.compacted, state.applied, state.malformed) == (0, 1, 0)
