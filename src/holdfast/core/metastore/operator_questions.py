"""Requests of operators to this member's metastore."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Protocol

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
from holdfast.core.model.metastore_answers import ANSWER_BYTES, KeyAnswer, KeysFound, MetastoreRevision
from holdfast.core.outbox import ReplyTarget
from holdfast.errors import NotReady, Refused, RequestError, TooLarge


class Find(Protocol):
    def __call__(self) -> KeysFound:
        """This member's copy. Raises RevisionCompacted, RevisionAhead."""


class OperatorQuestions:
    """Handles requests of operators. A read sees everything that was acknowledged before it, and is answered by a
    `KeysFound`; a change is answered by a `MetastoreRevision`.
    """

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore
        self._reads: dict[Ticket, tuple[Find, ReplyTarget]] = {}
        self._writes: dict[Ticket, tuple[bytes, ReplyTarget]] = {}

    def get(self, key: bytes, revision: int, reply: ReplyTarget) -> None:
        """The key at a revision; 0: now."""
        self._read(partial(self._get, key, revision), reply)

    def scan(self, prefix: bytes, after: bytes, revision: int, reply: ReplyTarget) -> None:
        """Keys with a value, after `after`."""
        self._read(partial(self._scan, prefix, after, revision), reply)

    def history(self, key: bytes, after: int, reply: ReplyTarget) -> None:
        """The known changes of the key after the revision `after`."""
        self._read(partial(self._history, key, after), reply)

    def changes(self, prefix: bytes, after: int | None, reply: ReplyTarget) -> None:
        """Changes in this member's copy, answered at once. `after`: None: the present revision, and no changes."""
        if after is None:
            self._read(lambda: KeysFound([], self._metastore.keyspace.revision), reply)
        else:
            _answer(partial(self._changes, prefix, after), reply)

    def put(self, key: bytes, value: bytes, if_revision: int | None, reply: ReplyTarget) -> None:
        """`if_revision`: only if this is its revision; 0: only if it is absent; None: in any case."""
        self._write(PutKey(key, value), if_revision, reply)

    def remove(self, key: bytes, if_revision: int | None, reply: ReplyTarget) -> None:
        """Remove a key, with a condition as in `put`."""
        self._write(RemoveKey(key), if_revision, reply)

    def _read(self, find: Find, reply: ReplyTarget) -> None:
        self._reads[self._metastore.read((), self)] = find, reply

    def _write(self, change: PutKey | RemoveKey, if_revision: int | None, reply: ReplyTarget) -> None:
        try:
            ticket = self._metastore.invoke(_branch(change, if_revision), self)
        except TooLarge as error:
            reply(error)
        else:
            self._writes[ticket] = change.key, reply

    # -- callbacks of the metastore

    def on_invoked(self, ticket: Ticket, invoked: Invoked) -> None:
        key, reply = self._writes.pop(ticket)
        if invoked.answer:
            reply(MetastoreRevision(invoked.revision))
            return
        now = self._metastore.get(key)
        state = f"at revision {now.revision}" if now.exists else "absent"
        reply(Refused(f"key {_text(key)} is {state}; nothing was changed"))

    def on_read(self, ticket: Ticket, entries: list[MetastoreEntry], revision: int) -> None:
        _answer(*self._reads.pop(ticket))

    def on_failed(self, ticket: Ticket, error: RequestError) -> None:
        _, reply = self._reads.pop(ticket) if ticket in self._reads else self._writes.pop(ticket)
        reply(error)

    @property
    def leftovers(self) -> dict[str, int]:
        return {"questions of operators": len(self._reads) + len(self._writes)}

    # -- answers

    def _get(self, key: bytes, revision: int) -> KeysFound:
        state = self._metastore.keyspace
        at = revision or state.revision
        return KeysFound([_key_answer(state.get(key, at))], at)

    def _scan(self, prefix: bytes, after: bytes, revision: int) -> KeysFound:
        state = self._metastore.keyspace
        at = revision or state.revision
        keys, more = _portion(_key_answer(entry) for entry in state.scan(prefix, at) if entry.key > after)
        return KeysFound(keys, at, more)

    def _history(self, key: bytes, after: int) -> KeysFound:
        state = self._metastore.keyspace
        keys, more = _portion(
            _key_answer(entry, time_ms) for entry, time_ms in state.history(key) if entry.revision > after
        )
        return KeysFound(keys, state.revision, more)

    def _changes(self, prefix: bytes, after: int) -> KeysFound:
        """Whole revisions, as many as fit in one answer."""
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
                return KeysFound(found, revision, revision < state.revision)
        return KeysFound(found, state.revision)


def _answer(find: Find, reply: ReplyTarget) -> None:
    answer: object
    try:
        answer = find()
    except RevisionCompacted as error:
        answer = Refused(str(error))
    except RevisionAhead as error:
        answer = NotReady(str(error))
    reply(answer)


def _branch(change: PutKey | RemoveKey, revision: int | None) -> Branch:
    leaf = Leaf((change,), 1)
    if revision is None:
        return leaf
    if revision <= 0:
        return If(Absent(change.key), leaf, Leaf())
    return If(Compare(change.key, Subject.REVISION, Comparison.EQUAL, revision_bytes(revision)), leaf, Leaf())


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


def _key_answer(entry: MetastoreEntry, time_ms: int = 0) -> KeyAnswer:
    value = None if entry.value is None else _text(entry.value)
    return KeyAnswer(_text(entry.key), value, entry.revision, time_ms)


def _size(answer: KeyAnswer) -> int:
    return len(answer.key) + len(answer.value or b"")


def _portion(answers: Iterable[KeyAnswer]) -> tuple[list[KeyAnswer], bool]:
    """As many answers as fit, at least one; and whether more remain."""
    found: list[KeyAnswer] = []
    size = 0
    for answer in answers:
        if size >= ANSWER_BYTES:
            return found, True
        found.append(answer)
        size += _size(answer)
    return found, False
