"""Portions of answers to operators, byte by byte, and what is answered without any leader."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.metastore.test_keyspace import Store

from holdfast.actions.metastore_keys import KeyChanges, KeyHistory, PutKey, ReadKey, RemoveKey, ScanKeys
from holdfast.actions.operator_action import OperatorAction
from holdfast.core.metastore.invoke import Branch, MetastoreEntry
from holdfast.core.metastore.keyspace import Keyspace
from holdfast.core.metastore.operator_questions import OperatorQuestions
from holdfast.core.model import metastore_answers
from holdfast.core.model.metastore_answers import KeyAnswer, KeysFound, MetastoreRevision
from holdfast.core.outbox import Reply
from holdfast.errors import NotReady, Refused, RequestError

ANSWER_BYTES = "holdfast.core.metastore.operator_questions.ANSWER_BYTES"


class Desk:
    """A metastore of one replica, which answers when it is told to, and an operator who asks it."""

    def __init__(self) -> None:
        self.store = Store()
        self.tickets: list[Branch | None] = []
        self.answers: list[Any] = []
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

    def begin(self, question: OperatorAction) -> None:
        host: Any = SimpleNamespace(questions=self.questions, advised=lambda reply: reply)
        member: Any = SimpleNamespace(agreed=host)
        question.apply(member, Reply(self, 3))  # type: ignore[arg-type]

    def complete(self, token: int, answer: object) -> None:
        assert token == 3
        self.answers.append(answer)

    def confirm(self, error: RequestError | None = None) -> Any:
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

    def ask(self, question: OperatorAction) -> Any:
        self.begin(question)
        return self.confirm()

    def changes(self, prefix: str, after: int) -> Any:
        """Answered at once."""
        self.begin(KeyChanges(prefix, after))
        assert self.questions.leftovers == {"questions of operators": 0}
        return self.answers.pop()


def put(key: str, value: str, revision: int) -> KeyAnswer:
    """As a change of a test tells it: the clocks stand still, so times rise by one."""
    return KeyAnswer(key, value, revision, revision)


def test_changes_are_told_without_a_leader_and_all_else_waits_for_one() -> None:
    """Who watches asks again and again: that must work where most voters are gone, too."""
    desk = Desk()
    desk.store.put(b"k", b"1")
    assert desk.changes("", 0) == KeysFound([put("k", "1", 1)], 1)
    for question in (ReadKey("k"), ScanKeys(""), KeyHistory("k"), PutKey("k", "2")):
        desk.begin(question)
        assert desk.answers == []
        failed = desk.confirm(NotReady("no leader"))
        assert (type(failed), str(failed)) == (NotReady, "no leader")
    assert desk.keyspace.revision == 1


def test_changes_are_told_to_the_last_revision_and_of_the_prefix_alone() -> None:
    desk = Desk()
    for key in (b"a/1", b"b", b"a/2"):
        desk.store.put(key, b"")
    assert desk.changes("a/", 0) == KeysFound([put("a/1", "", 1), put("a/2", "", 3)], 3)
    assert desk.changes("a/", 1) == KeysFound([put("a/2", "", 3)], 3)
    assert desk.changes("a/", 3) == KeysFound([], 3)
    assert type(desk.changes("a/", 4)) is NotReady
    desk.store.compact(2)
    assert type(desk.changes("a/", 1)) is Refused
    assert desk.changes("a/", 2) == KeysFound([put("a/2", "", 3)], 3)


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
    answer = desk.changes("k", 0)
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
    answer = desk.ask(ScanKeys(""))
    assert [one.key for one in answer.keys] == [key.decode() for key, _ in sizes[:keys]]
    assert answer.more is (keys < 4)
    rest = desk.ask(ScanKeys("", answer.keys[-1].key, answer.revision))
    assert (
        rest.keys[:1]
        == [KeyAnswer(key.decode(), value.decode(), at + 1) for at, (key, value) in enumerate(sizes)][
            keys : keys + 1
        ]
    )


@given(
    st.lists(st.tuples(st.sampled_from([b"a", b"a/b", b"b"]), st.none() | st.text(max_size=9)), max_size=12),
    st.integers(1, 30),
    st.sampled_from(["", "a", "a/"]),
)
def test_whoever_asks_until_there_is_no_more_is_told_everything_once(
    changes: list[tuple[bytes, str | None]], limit: int, prefix: str
) -> None:
    desk = Desk()
    for key, value in changes:
        if value is None:
            desk.store.remove(key)
        else:
            desk.store.put(key, value.encode())
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
            KeyAnswer(*_fields(new)[:2], revision, state.changes(revision).time_ms)
            for revision in range(1, state.revision + 1)
            for _, new in state.changes(revision).changes
            if new.key.startswith(prefix.encode())
        ]
        assert told == every
        listed: list[KeyAnswer] = []
        first = answer = desk.ask(ScanKeys(prefix))
        listed += answer.keys
        while answer.more:
            answer = desk.ask(ScanKeys(prefix, listed[-1].key, first.revision))
            listed += answer.keys
        assert listed == [KeyAnswer(*one) for one in map(_fields, state.scan(prefix.encode()))]
        history: list[KeyAnswer] = []
        answer = desk.ask(KeyHistory("a"))
        history += answer.keys
        while answer.more:
            answer = desk.ask(KeyHistory("a", history[-1].revision))
            history += answer.keys
        assert history == [one for one in every if one.key == "a"] or not "a".startswith(prefix)


def _fields(entry: MetastoreEntry) -> tuple[str, str | None, int]:
    return entry.key.decode(), None if entry.value is None else entry.value.decode(), entry.revision


def test_conditions_of_puts_and_removals() -> None:
    desk = Desk()

    def rejection(change: PutKey | RemoveKey) -> str:
        answer = desk.ask(change)
        assert type(answer) is Refused
        return str(answer)

    assert rejection(PutKey("k", "1", 1)) == "key k is absent; nothing was changed"
    assert desk.ask(RemoveKey("k", 0)) == MetastoreRevision(0), "as it is to be, and nothing to remove"
    assert desk.ask(PutKey("k", "1", 0)) == MetastoreRevision(1)
    assert rejection(PutKey("k", "2", 0)) == "key k is at revision 1; nothing was changed"
    assert desk.ask(PutKey("k", "2")) == MetastoreRevision(2)
    assert "at revision 2" in rejection(RemoveKey("k", 1))
    assert desk.ask(RemoveKey("k", 2)) == MetastoreRevision(3)
    assert "absent" in rejection(PutKey("k", "3", 3)), "the revision of its removal is none that it has"
    assert desk.ask(ReadKey("k", 2)) == KeysFound([KeyAnswer("k", "2", 2)], 2)
    assert desk.ask(ReadKey("k")) == KeysFound([KeyAnswer("k", None, 3)], 3)


def test_bytes_that_are_no_text_are_shown_escaped() -> None:
    desk = Desk()
    desk.store.put(b"\xff", b"1\x80")
    assert desk.ask(ScanKeys("")).keys == [KeyAnswer("\\xff", "1\\x80", 1)]


def test_a_watch_begins_at_the_present_revision() -> None:
    desk = Desk()
    desk.store.put(b"k", b"1")
    assert desk.ask(KeyChanges("")) == KeysFound([], 1)


def test_an_answer_has_about_a_mebibyte() -> None:
    assert metastore_answers.ANSWER_BYTES == 1 << 20
