"""Memory of the last requests that a partition has applied, so that a repeated request is applied once (H8).

A change may carry an id: the caller and a number of its own. The primary makes a *mark* of the id and the answer, which
travels with the last of the request's records to backups, staging replicas and the journal. A request without records
has changed nothing, and may be applied again.

- store/Q-1: If a request that takes items out of a collection were applied a second time, the items of its first answer
  would be lost. So when that answer is dropped for its size, the id stays, and the repeated request gets an unknown
  outcome. Other requests are forgotten as a whole. Example: a member forwards ten polls of 100 KB each, and the primary
  crashes before it answers. The next primary has the ids of all ten, and the answers of the last two.

In a map with a change stream the same field of a record also names the transaction that made the change, before the
mark.
"""

from __future__ import annotations

import msgspec

from holdfast.core.model.operations import REQUEST_ID_BYTES_MAX as ID_BYTES_MAX
from holdfast.core.model.operations import Outcome, Status, Value
from holdfast.core.model.transactions import TRANSACTION_ID_BYTES, TransactionId

ANSWER_DROPPED = Outcome(
    Status.UNKNOWN, None, "it was applied, and its answer was too large to be kept for a repeated request"
)
KEPT = 1000
"""Default of `replication.request_ids`."""
KEPT_BYTES = 262_144
"""Above it the oldest marks are forgotten sooner, because answers may be large."""

_encoder = msgspec.msgpack.Encoder()
_values: msgspec.msgpack.Decoder[Value] = msgspec.msgpack.Decoder(Value)
_lists: msgspec.msgpack.Decoder[list[bytes]] = msgspec.msgpack.Decoder(list[bytes])


_KEPT = 0x80
"""Added to the length of an id that stays when its answer is dropped (store/Q-1)."""
ID_LENGTH = _KEPT - 1
"""The bits of the first byte that are the length of the id."""


def mark_of(request_id: bytes, value: Value, *, kept: bool = False) -> bytes:
    """A byte with the length of the id, the id, the encoded answer. `kept`: the id stays when the answer is dropped."""
    assert 0 < len(request_id) <= ID_BYTES_MAX, len(request_id)
    return bytes((len(request_id) | _KEPT * kept,)) + request_id + _encoder.encode(value)


_IN_TRANSACTION = b"\0"
"""No request id has length 0."""
_NAMED = len(_IN_TRANSACTION) + TRANSACTION_ID_BYTES


def naming(transaction: TransactionId) -> bytes:
    """Prefix of the mark; b"" without a transaction."""
    return _IN_TRANSACTION + transaction if transaction else b""


def split_mark(told: bytes) -> tuple[TransactionId, bytes]:
    """Transaction and mark; b"" for what is missing."""
    return (told[1:_NAMED], told[_NAMED:]) if told.startswith(_IN_TRANSACTION) else (b"", told)


def id_of(told: bytes) -> bytes:
    """The request id in a record's mark; b"": none."""
    _, mark = split_mark(told)
    return mark[1 : 1 + (mark[0] & ID_LENGTH)] if mark else b""


class _DroppedAnswers:
    """Marks without answers, of the last requests whose answers were dropped (store/Q-1); oldest first."""

    __slots__ = ("_most", "marks")

    def __init__(self, most: int) -> None:
        self._most = most
        self.marks: dict[bytes, bytes] = {}

    def add(self, request_id: bytes, mark: bytes) -> None:
        self.marks.pop(request_id, None)
        self.marks[request_id] = mark
        while len(self.marks) > self._most:
            del self.marks[next(iter(self.marks))]


class Remembered:
    """Marks of the last requests that a copy has applied, oldest first."""

    __slots__ = ("_bytes", "_dropped", "_marks", "most")

    def __init__(self, most: int = KEPT) -> None:
        self.most = most
        self._marks: dict[bytes, bytes] = {}
        self._bytes = 0
        self._dropped = _DroppedAnswers(most)

    def __len__(self) -> int:
        return len(self._marks)

    def knows(self, request_id: bytes) -> bool:
        return request_id in self._marks or request_id in self._dropped.marks

    def has_dropped(self, request_id: bytes) -> bool:
        """Whether the answer to this request, which is known, was dropped."""
        return request_id not in self._marks

    def answer(self, request_id: bytes) -> Value:
        mark = self._marks[request_id]
        return _values.decode(mark[1 + (mark[0] & ID_LENGTH) :])

    def note(self, told: bytes) -> None:
        """`told`: the field of a record; b"": none."""
        if not told:
            return
        _, mark = split_mark(told)
        if not mark:
            return
        request_id = id_of(mark)
        before = self._marks.pop(request_id, b"")
        self._bytes -= len(before)
        if len(mark) == 1 + len(request_id):
            self._dropped.add(request_id, mark)
            return
        self._marks[request_id] = mark
        self._bytes += len(mark)
        while len(self._marks) > self.most or (self._bytes > KEPT_BYTES and len(self._marks) > 1):
            oldest = next(iter(self._marks))
            forgotten = self._marks.pop(oldest)
            self._bytes -= len(forgotten)
            if forgotten[0] & _KEPT:
                self._dropped.add(oldest, forgotten[: 1 + len(oldest)])
        assert len(self._marks) <= self.most, "the number of marks is bounded"
        assert (self._bytes > 0) is bool(self._marks), "bytes are counted for present marks only"

    def encode(self) -> bytes:
        marks = [*self._dropped.marks.values(), *self._marks.values()]
        return _encoder.encode(marks) if marks else b""

    def merge(self, encoded: bytes) -> None:
        """Requests of another copy (`encode`); those known here count as newer.

        Raises msgspec.MsgspecError.
        """
        if not encoded:
            return
        mine = [*self._dropped.marks.values(), *self._marks.values()]
        for mark in (*_lists.decode(encoded), *mine):
            self.note(mark)
