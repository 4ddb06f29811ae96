"""Requests of operators to this member's metastore: get, scan, put, remove, history, watch."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.metastore.invoke import (
    Absent,
    Branch,
    Compare,
    Comparison,
    If,
    Invoked,
    Leaf,
    MetastoreEntry,
    PutKey,
    RemoveKey,
    Subject,
    revision_bytes,
)
from holdfast.core.metastore.keyspace import RevisionAhead, RevisionCompacted
from holdfast.core.metastore.metastore import Metastore, Ticket
from holdfast.core.model.metastore_questions import (
    ANSWER_BYTES,
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
from holdfast.core.outbox import ReplyTarget
from holdfast.errors import RequestError, TooLarge


class OperatorQuestions:
    """Handles requests of operators. A read sees everything that was acknowledged before it."""

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore
        self._asked: dict[Ticket, tuple[MetastoreQuestion, ReplyTarget]] = {}

    def ask(self, question: MetastoreQuestion, reply: ReplyTarget) -> None:
        """Reply with a `MetastoreAnswer`, later. A watch is answered at once from this member's copy."""
        if isinstance(question, KeyChangesAsked):
            reply(self._found(question))
            return
        if isinstance(question, PutAsked | RemoveAsked):
            try:
                ticket = self._metastore.invoke(_branch(question), self)
            except TooLarge as error:
                reply(_failed(error))
                return
        else:
            ticket = self._metastore.read((), self)
        self._asked[ticket] = (question, reply)

    # -- callbacks of the metastore

    def on_invoked(self, ticket: Ticket, invoked: Invoked) -> None:
        question, reply = self._asked.pop(ticket)
        if invoked.answer:
            reply(MetastoreAnswer(revision=invoked.revision))
        else:
            assert isinstance(question, PutAsked | RemoveAsked), "only these have conditions"
            now = _key_answer(self._metastore.get(question.key))
            reply(MetastoreAnswer([now], invoked.revision, applied=False))

    def on_read(self, ticket: Ticket, entries: list[MetastoreEntry], revision: int) -> None:
        question, reply = self._asked.pop(ticket)
        reply(self._found(question))

    def on_failed(self, ticket: Ticket, error: RequestError) -> None:
        _, reply = self._asked.pop(ticket)
        reply(_failed(error))

    @property
    def leftovers(self) -> dict[str, int]:
        return {"questions of operators": len(self._asked)}

    # -- answers

    def _found(self, question: MetastoreQuestion) -> MetastoreAnswer:
        state = self._metastore.keyspace
        try:
            match question:
                case KeyAsked(key, revision):
                    at = revision or state.revision
                    return MetastoreAnswer([_key_answer(state.get(key, at))], at)
                case PrefixAsked(prefix, after, revision):
                    at = revision or state.revision
                    entries = (entry for entry in state.scan(prefix, at) if entry.key > after)
                    keys, more = _portion(map(_key_answer, entries))
                    return MetastoreAnswer(keys, at, more=more)
                case KeyHistoryAsked(key, after_revision):
                    history = (
                        _key_answer(entry, time_ms)
                        for entry, time_ms in state.history(key)
                        if entry.revision > after_revision
                    )
                    keys, more = _portion(history)
                    return MetastoreAnswer(keys, state.revision, more=more)
                case KeyChangesAsked(prefix, after):
                    return self._changes(prefix, after)
        except (RevisionCompacted, RevisionAhead) as error:
            return _failed(error)
        raise AssertionError(f"{question} changes something")

    def _changes(self, prefix: bytes, after: int) -> MetastoreAnswer:
        """All changes of whole revisions, as many as fit in one answer."""
        state = self._metastore.keyspace
        state.get(b"", after)  # Raises if the revision is unknown.
        found: list[KeyAnswer] = []
        size = 0
        for revision in range(after + 1, state.revision + 1):
            batch = state.changes(revision)
            for _, new in batch.changes:
                if new.key.startswith(prefix):
                    found.append(_key_answer(new, batch.time_ms))
                    size += _size(found[-1])
            if size >= ANSWER_BYTES:
                return MetastoreAnswer(found, revision, more=revision < state.revision)
        return MetastoreAnswer(found, state.revision)


def _branch(question: PutAsked | RemoveAsked) -> Branch:
    key, revision = question.key, question.if_revision
    change = PutKey(key, question.value) if isinstance(question, PutAsked) else RemoveKey(key)
    leaf = Leaf((change,), 1)
    if revision is None:
        return leaf
    if revision <= 0:
        return If(Absent(key), leaf, Leaf())
    return If(Compare(key, Subject.REVISION, Comparison.EQUAL, revision_bytes(revision)), leaf, Leaf())


def _key_answer(entry: MetastoreEntry, time_ms: int = 0) -> KeyAnswer:
    return KeyAnswer(entry.key, entry.value, entry.revision, time_ms)


def _size(answer: KeyAnswer) -> int:
    return len(answer.key) + len(answer.value or b"")


def _portion(answers: Iterable[KeyAnswer]) -> tuple[list[KeyAnswer], bool]:
    """At least one answer, and as many as fit; whether more remain."""
    found: list[KeyAnswer] = []
    size = 0
    for answer in answers:
        if size >= ANSWER_BYTES:
            return found, True
        found.append(answer)
        size += _size(answer)
    return found, False


def _failed(error: Exception) -> MetastoreAnswer:
    return MetastoreAnswer(failed=type(error).__name__, why=str(error))
