"""Portions of answers to operators, byte by byte, and what is answered without any leader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.metastore.test_keyspace import Store

from holdfast.core.metastore.invoke import Branch, MetastoreEntry
from holdfast.core.metastore.keyspace import Keyspace
from holdfast.core.metastore.operator_questions import OperatorQuestions
from holdfast.core.model import metastore_questions
from holdfast.core.model.metastore_questions import (
    KeyAnswer,
    KeyAsked,
    KeyChangesAsked,
    KeyHistoryAsked,
    MetastoreAnswer,
    MetastoreQuestion,
    PrefixAsked,
    PutAsked,
    RemoveAsked,
)
from holdfast.core.outbox import Reply
from holdfast.errors import NotReady, RequestError

ANSWER_BYTES = "holdfast.core.metastore.operator_questions.ANSWER_BYTES"


class Desk:
    """A metastore of one replica, which answers when it is told to, and an operator who asks it."""

    def __init__(self) -> None:
        self.store = Store()
        self.tickets: list[Branch | None] = []
        self.answers: list[MetastoreAnswer] = []
        self.questions = OperatorQuestions(self)  # type: ignore[arg-type]

    # as the metastore

    @property
    def keyspace(self) -> Keyspace:
        return self.store.state

    def get(self, key: bytes) -> MetastoreEntry:
        return self.store.state.get(key)

    def invoke(self, branch: Branch, asker: object) -> int:
        self.tickets.append(branch)
        return len(self.tickets)

    def read(self, keys: object, asker: object) -> int:
        assert keys == (), "that the leader confirms is all that is needed"
        self.tickets.append(None)
        return len(self.tickets)

    # as the operator

    def begin(self, question: MetastoreQuestion) -> None:
        self.questions.ask(question, Reply(self, 3))  # type: ignore[arg-type]

    def complete(self, token: int, answer: object) -> None:
        assert token == 3
        assert isinstance(answer, MetastoreAnswer)
        self.answers.append(answer)

    def confirm(self, error: RequestError | None = None) -> MetastoreAnswer:
        """The last question is answered by the leader."""
        ticket, branch = len(self.tickets), self.tickets[-1]
        assert self.questions.leftovers == {"questions of operators": 1}
        assert not self.answers
        if error is not None:
            self.questions.on_failed(ticket, error)
        elif branch is None:
            self.questions.on_read(ticket, [], self.keyspace.revision)
        else:
            answer = self.keyspace.apply(self.store.command(branch))
            assert answer is not None
            assert answer.invoked is not None
            self.questions.on_invoked(ticket, answer.invoked)
        assert self.questions.leftovers == {"questions of operators": 0}
        return self.answers.pop()

    def ask(self, question: MetastoreQuestion) -> MetastoreAnswer:
        self.begin(question)
        return self.confirm()

    def changes(self, prefix: bytes, after: int) -> MetastoreAnswer:
        """Answered at once."""
        self.begin(KeyChangesAsked(prefix, after))
        assert self.questions.leftovers == {"questions of operators": 0}
        return self.answers.pop()


def put(key: bytes, value: bytes, revision: int) -> KeyAnswer:
    """As a change of a test tells it: the clocks stand still, so times rise by one."""
    return KeyAnswer(key, value, revision, revision)


def test_changes_are_told_without_a_leader_and_all_else_waits_for_one() -> None:
    """Who watches asks again and again: that must work where most voters are gone, too."""
    desk = Desk()
    desk.store.put(b"k", b"1")
    assert desk.changes(b"", 0) == MetastoreAnswer([put(b"k", b"1", 1)], 1)
    for question in (KeyAsked(b"k"), PrefixAsked(b""), KeyHistoryAsked(b"k"), PutAsked(b"k", b"2")):
        desk.begin(question)
        assert desk.answers == []
        failed = desk.confirm(NotReady("no leader"))
        assert (failed.failed, failed.why) == ("NotReady", "no leader")
    assert desk.keyspace.revision == 1


def test_changes_are_told_to_the_last_revision_and_of_the_prefix_alone() -> None:
    desk = Desk()
    for key in (b"a/1", b"b", b"a/2"):
        desk.store.put(key, b"")
    assert desk.changes(b"a/", 0) == MetastoreAnswer([put(b"a/1", b"", 1), put(b"a/2", b"", 3)], 3)
    assert desk.changes(b"a/", 1) == MetastoreAnswer([put(b"a/2", b"", 3)], 3)
    assert desk.changes(b"a/", 3) == MetastoreAnswer([], 3)
    assert desk.changes(b"a/", 4).failed == "RevisionAhead"
    desk.store.compact(2)
    assert desk.changes(b"a/", 1).failed == "RevisionCompacted"
    assert desk.changes(b"a/", 2) == MetastoreAnswer([put(b"a/2", b"", 3)], 3)


@pytest.mark.parametrize(
    ("limit", "revision", "more"),
    [
        # The changes of `k` have 3, 4 and 4 bytes, and the ones between are of another key.
        (1, 2, True),
        (3, 2, True),
        (4, 4, True),
        (7, 4, True),
        (8, 6, False),
        (11, 6, False),
        (12, 6, False),
    ],
)
def test_changes_end_with_the_revision_that_fills_the_answer(
    monkeypatch: pytest.MonkeyPatch, limit: int, revision: int, more: bool
) -> None:
    desk = Desk()
    for at in range(3):
        desk.store.put(b"other", bytes(100))
        desk.store.put(b"k%d" % at, b"12"[: at + 1])
    monkeypatch.setattr(ANSWER_BYTES, limit)
    answer = desk.changes(b"k", 0)
    assert (answer.revision, answer.more) == (revision, more)
    assert [one.revision for one in answer.keys] == [at for at in (2, 4, 6) if at <= revision]


@pytest.mark.parametrize(
    ("limit", "keys"), [(1, 1), (5, 1), (6, 2), (8, 2), (9, 3), (11, 3), (12, 4), (99, 4)]
)
def test_a_portion_ends_with_the_key_that_fills_it(
    monkeypatch: pytest.MonkeyPatch, limit: int, keys: int
) -> None:
    """Sizes 5, 3, 3 and 4: of key and value together."""
    desk = Desk()
    sizes = [(b"a", b"1234"), (b"b", b"12"), (b"ccc", b""), (b"d", b"123")]
    for key, value in sizes:
        desk.store.put(key, value)
    monkeypatch.setattr(ANSWER_BYTES, limit)
    answer = desk.ask(PrefixAsked(b""))
    assert [one.key for one in answer.keys] == [key for key, _ in sizes[:keys]]
    assert answer.more is (keys < 4)
    rest = desk.ask(PrefixAsked(b"", answer.keys[-1].key, answer.revision))
    assert (
        rest.keys[:1]
        == [KeyAnswer(key, value, at + 1) for at, (key, value) in enumerate(sizes)][keys : keys + 1]
    )


@given(
    st.lists(
        st.tuples(st.sampled_from([b"a", b"a/b", b"b"]), st.none() | st.binary(max_size=9)), max_size=12
    ),
    st.integers(1, 30),
    st.sampled_from([b"", b"a", b"a/"]),
)
def test_whoever_asks_until_there_is_no_more_is_told_everything_once(
    changes: list[tuple[bytes, bytes | None]], limit: int, prefix: bytes
) -> None:
    desk = Desk()
    for key, value in changes:
        if value is None:
            desk.store.remove(key)
        else:
            desk.store.put(key, value)
    state = desk.keyspace
    told: list[KeyAnswer] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ANSWER_BYTES, limit)
        after, more = 0, True
        while more:
            answer = desk.changes(prefix, after)
            assert answer.revision > after or not answer.more
            told += answer.keys
            after, more = answer.revision, answer.more
        assert after == state.revision
        every = [
            KeyAnswer(new.key, new.value, revision, state.changes(revision).time_ms)
            for revision in range(1, state.revision + 1)
            for _, new in state.changes(revision).changes
            if new.key.startswith(prefix)
        ]
        assert told == every
        listed: list[KeyAnswer] = []
        first = answer = desk.ask(PrefixAsked(prefix))
        listed += answer.keys
        while answer.more:
            answer = desk.ask(PrefixAsked(prefix, listed[-1].key, first.revision))
            listed += answer.keys
        assert listed == [KeyAnswer(*one) for one in map(_fields, state.scan(prefix))]
        history: list[KeyAnswer] = []
        answer = desk.ask(KeyHistoryAsked(b"a"))
        history += answer.keys
        while answer.more:
            answer = desk.ask(KeyHistoryAsked(b"a", history[-1].revision))
            history += answer.keys
        assert history == [one for one in every if one.key == b"a"] or not b"a".startswith(prefix)


def _fields(entry: MetastoreEntry) -> tuple[bytes, bytes | None, int]:
    return entry.key, entry.value, entry.revision


def test_conditions_of_puts_and_removals() -> None:
    desk = Desk()
    assert not desk.ask(PutAsked(b"k", b"1", 1)).applied, "it is absent"
    assert desk.ask(RemoveAsked(b"k", 0)) == MetastoreAnswer([], 0), "as it is to be, and nothing to remove"
    assert desk.ask(PutAsked(b"k", b"1", -1)) == MetastoreAnswer([], 1)
    other = desk.ask(PutAsked(b"k", b"2", 0))
    assert other == MetastoreAnswer([KeyAnswer(b"k", b"1", 1)], 1, applied=False)
    assert desk.ask(PutAsked(b"k", b"2")) == MetastoreAnswer([], 2)
    assert not desk.ask(RemoveAsked(b"k", 1)).applied
    assert desk.ask(RemoveAsked(b"k", 2)) == MetastoreAnswer([], 3)
    assert desk.ask(PutAsked(b"k", b"3", 3)) == MetastoreAnswer(
        [KeyAnswer(b"k", None, 3)], 3, applied=False
    ), "the revision of its removal is none that it has"
    assert desk.ask(KeyAsked(b"k", 2)) == MetastoreAnswer([KeyAnswer(b"k", b"2", 2)], 2)
    assert desk.ask(KeyAsked(b"k")) == MetastoreAnswer([KeyAnswer(b"k", None, 3)], 3)


def test_an_answer_has_about_a_mebibyte() -> None:
    assert metastore_questions.ANSWER_BYTES == 1 << 20
