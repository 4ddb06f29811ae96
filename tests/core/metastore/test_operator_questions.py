"""What operators ask the metastore, wherever they ask it."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.metastore.metastore_cluster import MetastoreCluster

from holdfast.core.metastore.commands import CompactCommand, encode_command
from holdfast.core.metastore.operator_questions import OperatorQuestions
from holdfast.core.model.ids import METASTORE_GROUP
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


class Operator:
    """Asks one member after another."""

    def __init__(self) -> None:
        self.cluster = MetastoreCluster(3, 3)
        self.cluster.go(30)
        self.questions = [OperatorQuestions(self.cluster[number].metastore) for number in (1, 2, 3)]
        self.asked = 0

    def ask(self, question: MetastoreQuestion, ticks: int = 3) -> MetastoreAnswer:
        number = self.asked % 3
        self.asked += 1
        process = self.cluster[1 + number]
        answers: list[object] = []

        class Out:
            def complete(self, token: int, answer: object) -> None:
                assert token == 7
                answers.append(answer)

        travelled = msgspec.msgpack.decode(msgspec.msgpack.encode(question), type=MetastoreQuestion)
        self.questions[number].ask(travelled, Reply(Out(), 7))  # type: ignore[arg-type]
        process.end_step()
        self.cluster.go(ticks)
        (answer,) = answers
        assert self.questions[number].leftovers == {"questions of operators": 0}
        return msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=MetastoreAnswer)


@pytest.fixture
def operator() -> Operator:
    return Operator()


def test_what_is_put_is_there_for_everybody(operator: Operator) -> None:
    assert operator.ask(KeyAsked(b"k")) == MetastoreAnswer([KeyAnswer(b"k", None, 0)], 0)
    assert operator.ask(PutAsked(b"k", b"1")) == MetastoreAnswer(revision=1)
    assert operator.ask(KeyAsked(b"k")) == MetastoreAnswer([KeyAnswer(b"k", b"1", 1)], 1)
    assert operator.ask(PutAsked(b"l", b"2")) == MetastoreAnswer(revision=2)
    assert operator.ask(RemoveAsked(b"k")) == MetastoreAnswer(revision=3)
    assert operator.ask(KeyAsked(b"k")) == MetastoreAnswer([KeyAnswer(b"k", None, 3)], 3)
    assert operator.ask(KeyAsked(b"k", 2)) == MetastoreAnswer([KeyAnswer(b"k", b"1", 1)], 2)


def test_what_is_not_at_the_revision_asked_for_is_left_alone(operator: Operator) -> None:
    assert operator.ask(PutAsked(b"k", b"1", 5)).applied is False
    assert operator.ask(PutAsked(b"k", b"1", 0)).applied
    again = operator.ask(PutAsked(b"k", b"2", 0))
    assert again == MetastoreAnswer([KeyAnswer(b"k", b"1", 1)], 1, applied=False)
    assert operator.ask(PutAsked(b"k", b"2", 1)).revision == 2
    assert operator.ask(RemoveAsked(b"k", 1)).applied is False
    assert operator.ask(RemoveAsked(b"k", 2)).revision == 3


def test_keys_are_listed_in_portions_of_one_revision(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(5):
        operator.ask(PutAsked(b"a/%d" % at, bytes(10)))
    operator.ask(PutAsked(b"b", b""))
    assert [each.key for each in operator.ask(PrefixAsked(b"a/")).keys] == [b"a/%d" % at for at in range(5)]
    monkeypatch.setattr("holdfast.core.metastore.operator_questions.ANSWER_BYTES", 20)
    first = operator.ask(PrefixAsked(b"a/"))
    assert ([each.key for each in first.keys], first.more, first.revision) == ([b"a/0", b"a/1"], True, 6)
    operator.ask(RemoveAsked(b"a/2"))
    rest = operator.ask(PrefixAsked(b"a/", b"a/1", first.revision))
    assert [each.key for each in rest.keys] == [b"a/2", b"a/3"]
    last = operator.ask(PrefixAsked(b"a/", b"a/3", first.revision))
    assert ([each.key for each in last.keys], last.more) == ([b"a/4"], False)


def test_a_history_and_changes_tell_when(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (b"1", b"2"):
        operator.ask(PutAsked(b"a/k", value))
    operator.ask(RemoveAsked(b"a/k"))
    operator.ask(PutAsked(b"b", b""))
    history = operator.ask(KeyHistoryAsked(b"a/k"))
    assert [(each.value, each.revision) for each in history.keys] == [(b"1", 1), (b"2", 2), (None, 3)]
    times = [each.time_ms for each in history.keys]
    assert times == sorted(set(times))
    assert times[0] > 0
    assert operator.ask(KeyChangesAsked(b"a/", 0)) == MetastoreAnswer(history.keys, 4)
    assert operator.ask(KeyChangesAsked(b"a/", 4)) == MetastoreAnswer([], 4)
    monkeypatch.setattr("holdfast.core.metastore.operator_questions.ANSWER_BYTES", 1)
    part = operator.ask(KeyChangesAsked(b"a/", 1))
    assert ([each.revision for each in part.keys], part.revision, part.more) == ([2], 2, True)
    part = operator.ask(KeyHistoryAsked(b"a/k", 1))
    assert ([each.revision for each in part.keys], part.more) == ([2], True)


def test_what_cannot_be_told_is_refused_by_name(operator: Operator) -> None:
    for value in (b"1", b"2", b"3"):
        operator.ask(PutAsked(b"k", value))
    assert operator.ask(KeyAsked(b"k", 9)).failed == "RevisionAhead"
    assert operator.ask(KeyChangesAsked(b"k", 9)).failed == "RevisionAhead"
    operator.cluster[1].groups.propose(METASTORE_GROUP, [encode_command(CompactCommand(2))])
    operator.cluster[1].end_step()
    operator.cluster.go(3)
    assert operator.ask(KeyAsked(b"k", 1)).failed == "RevisionCompacted"
    assert operator.ask(PrefixAsked(b"", b"", 1)).failed == "RevisionCompacted"
    assert operator.ask(KeyChangesAsked(b"", 1)).failed == "RevisionCompacted"
    assert operator.ask(PutAsked(b"", b"")).failed == "TooLarge"
    for number in (2, 3):
        operator.cluster.crash(number)
    operator.asked = 0
    answer = operator.ask(PutAsked(b"k", b"4"), 120)
    assert answer.failed in {"Unknown", "NotReady"}
    assert answer.why
