"""What operators ask the metastore, wherever they ask it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.core.metastore.metastore_cluster import MetastoreCluster

from holdfast.actions.metastore_keys import KeyChanges, KeyHistory, PutKey, ReadKey, RemoveKey, ScanKeys
from holdfast.actions.operator_action import OperatorAction
from holdfast.actions.registry import read_action
from holdfast.core.metastore.commands import CompactCommand, encode_command
from holdfast.core.metastore.operator_questions import OperatorQuestions
from holdfast.core.model.ids import METASTORE_GROUP
from holdfast.core.model.metastore_answers import KeyAnswer, KeysFound, MetastoreRevision
from holdfast.core.outbox import Reply
from holdfast.errors import NotReady, Refused, RequestError, TooLarge, Unknown


class Operator:
    """Asks one member after another."""

    def __init__(self) -> None:
        self.cluster = MetastoreCluster(3, 3)
        self.cluster.go(30)
        self.questions = [OperatorQuestions(self.cluster[number].metastore) for number in (1, 2, 3)]
        self.asked = 0

    def ask(self, question: OperatorAction, ticks: int = 3) -> Any:
        number = self.asked % 3
        self.asked += 1
        process = self.cluster[1 + number]
        answers: list[object] = []

        class Out:
            def complete(self, token: int, answer: object) -> None:
                assert token == 7
                answers.append(answer)

        travelled = read_action(question.declared.name, msgspec.msgpack.encode(question))
        host: Any = SimpleNamespace(questions=self.questions[number], advised=lambda reply: reply)
        member: Any = SimpleNamespace(agreed=host)
        travelled.apply(member, Reply(Out(), 7))  # type: ignore[arg-type]
        process.end_step()
        self.cluster.go(ticks)
        (answer,) = answers
        assert self.questions[number].leftovers == {"questions of operators": 0}
        if isinstance(answer, RequestError):
            return answer
        assert question.result is not None
        return msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=question.result)


def why(answer: object) -> str:
    assert type(answer) is Refused
    return str(answer)


@pytest.fixture
def operator() -> Operator:
    return Operator()


def test_what_is_put_is_there_for_everybody(operator: Operator) -> None:
    assert operator.ask(ReadKey("k")) == KeysFound([KeyAnswer("k", None, 0)], 0)
    assert operator.ask(PutKey("k", "1")) == MetastoreRevision(1)
    assert operator.ask(ReadKey("k")) == KeysFound([KeyAnswer("k", "1", 1)], 1)
    assert operator.ask(PutKey("l", "2")) == MetastoreRevision(2)
    assert operator.ask(RemoveKey("k")) == MetastoreRevision(3)
    assert operator.ask(ReadKey("k")) == KeysFound([KeyAnswer("k", None, 3)], 3)
    assert operator.ask(ReadKey("k", 2)) == KeysFound([KeyAnswer("k", "1", 1)], 2)


def test_what_is_not_at_the_revision_asked_for_is_left_alone(operator: Operator) -> None:
    assert why(operator.ask(PutKey("k", "1", 5))) == "key k is absent; nothing was changed"
    assert operator.ask(PutKey("k", "1", 0)) == MetastoreRevision(1)
    assert why(operator.ask(PutKey("k", "2", 0))) == "key k is at revision 1; nothing was changed"
    assert operator.ask(PutKey("k", "2", 1)).revision == 2
    assert type(operator.ask(RemoveKey("k", 1))) is Refused
    assert operator.ask(RemoveKey("k", 2)).revision == 3


def test_keys_are_listed_in_portions_of_one_revision(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(5):
        operator.ask(PutKey(f"a/{at}", "x" * 10))
    operator.ask(PutKey("b", ""))
    assert [each.key for each in operator.ask(ScanKeys("a/")).keys] == [f"a/{at}" for at in range(5)]
    monkeypatch.setattr("holdfast.core.metastore.operator_questions.ANSWER_BYTES", 20)
    first = operator.ask(ScanKeys("a/"))
    assert ([each.key for each in first.keys], first.more, first.revision) == (["a/0", "a/1"], True, 6)
    operator.ask(RemoveKey("a/2"))
    rest = operator.ask(ScanKeys("a/", "a/1", first.revision))
    assert [each.key for each in rest.keys] == ["a/2", "a/3"]
    last = operator.ask(ScanKeys("a/", "a/3", first.revision))
    assert ([each.key for each in last.keys], last.more) == (["a/4"], False)


def test_a_history_and_changes_tell_when(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("1", "2"):
        operator.ask(PutKey("a/k", value))
    operator.ask(RemoveKey("a/k"))
    operator.ask(PutKey("b", ""))
    history = operator.ask(KeyHistory("a/k"))
    assert [(each.value, each.revision) for each in history.keys] == [("1", 1), ("2", 2), (None, 3)]
    times = [each.time_ms for each in history.keys]
    assert times == sorted(set(times))
    assert times[0] > 0
    assert operator.ask(KeyChanges("a/", 0)) == KeysFound(history.keys, 4)
    assert operator.ask(KeyChanges("a/", 4)) == KeysFound([], 4)
    monkeypatch.setattr("holdfast.core.metastore.operator_questions.ANSWER_BYTES", 1)
    part = operator.ask(KeyChanges("a/", 1))
    assert ([each.revision for each in part.keys], part.revision, part.more) == ([2], 2, True)
    part = operator.ask(KeyHistory("a/k", 1))
    assert ([each.revision for each in part.keys], part.more) == ([2], True)


def test_what_cannot_be_told_is_refused_by_name(operator: Operator) -> None:
    for value in ("1", "2", "3"):
        operator.ask(PutKey("k", value))
    assert type(operator.ask(ReadKey("k", 9))) is NotReady
    assert type(operator.ask(KeyChanges("k", 9))) is NotReady
    operator.cluster[1].groups.propose(METASTORE_GROUP, [encode_command(CompactCommand(2))])
    operator.cluster[1].end_step()
    operator.cluster.go(3)
    assert type(operator.ask(ReadKey("k", 1))) is Refused
    assert type(operator.ask(ScanKeys("", "", 1))) is Refused
    assert type(operator.ask(KeyChanges("", 1))) is Refused
    assert type(operator.ask(PutKey("", ""))) is TooLarge
    for number in (2, 3):
        operator.cluster.crash(number)
    operator.asked = 0
    answer = operator.ask(PutKey("k", "4"), 120)
    assert type(answer) in {Unknown, NotReady}
    assert str(answer)
