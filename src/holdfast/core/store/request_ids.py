"""Which requests has a partition applied not long ago, and what did they answer? So that one that comes again is
applied once (H8).

A request that changes something may carry an id: who asks, and a number of its own. The primary that applies it makes a
*mark* of the id and the answer. The mark travels with the last of the request's records, so that whoever holds the
records knows the request too: backups, the copy that is being filled, the journal. A request without any record has
changed nothing, and may be applied again.

In a map with a change stream the same field of a record says which transaction has made the change, before the mark if
there is one. So the name travels wherever the record does, and other records have no place for it that costs anything.
"""

from __future__ import annotations

import msgspec

from holdfast.core.model.operations import REQUEST_ID_BYTES_MAX as ID_BYTES_MAX
from holdfast.core.model.operations import Value
from holdfast.core.model.transactions import TRANSACTION_ID_BYTES, TransactionId

KEPT = 1000
"""How many requests a copy remembers, if nobody says otherwise (`replication.request_ids`)."""
KEPT_BYTES = 262_144
"""Answers may be large: above so many bytes of marks the oldest are forgotten sooner."""

_encoder = msgspec.msgpack.Encoder()
_values: msgspec.msgpack.Decoder[Value] = msgspec.msgpack.Decoder(Value)
_lists: msgspec.msgpack.Decoder[list[bytes]] = msgspec.msgpack.Decoder(list[bytes])


def mark_of(request_id: bytes, value: Value) -> bytes:
    """The mark of a request that has answered `value`: a byte for the length of the id, the id, the answer."""
    assert 0 < len(request_id) <= ID_BYTES_MAX, len(request_id)
    return bytes((len(request_id),)) + request_id + _encoder.encode(value)


_IN_TRANSACTION = b"\0"
"""Before the name of a transaction: no id of a request is so short."""
_NAMED = len(_IN_TRANSACTION) + TRANSACTION_ID_BYTES


def naming(transaction: TransactionId) -> bytes:
    """What comes before the mark of a record that this transaction has made; b"" of b""."""
    return _IN_TRANSACTION + transaction if transaction else b""


def split_mark(told: bytes) -> tuple[TransactionId, bytes]:
    """The transaction that a record names, and the mark that it carries; b"" for what is not there."""
    return (told[1:_NAMED], told[_NAMED:]) if told.startswith(_IN_TRANSACTION) else (b"", told)


def id_of(told: bytes) -> bytes:
    """Whose mark a record carries; b"" when it carries none."""
    _, mark = split_mark(told)
    return mark[1 : 1 + mark[0]] if mark else b""


class Remembered:
    """The marks of the last requests that a copy has applied, oldest first."""

    __slots__ = ("_bytes", "_marks", "most")

    def __init__(self, most: int = KEPT) -> None:
        self.most = most
        """How many at most."""
        self._marks: dict[bytes, bytes] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._marks)

    def knows(self, request_id: bytes) -> bool:
        """Whether this request has been applied, and is not forgotten."""
        return request_id in self._marks

    def answer(self, request_id: bytes) -> Value:
        """What it answered. Raises KeyError when it is not known."""
        mark = self._marks[request_id]
        return _values.decode(mark[1 + mark[0] :])

    def note(self, told: bytes) -> None:
        """Remember one more, as records carry it; b"" stands for none. The oldest are forgotten."""
        if not told:
            return
        _, mark = split_mark(told)
        if not mark:
            return
        request_id = id_of(mark)
        before = self._marks.pop(request_id, b"")
        self._marks[request_id] = mark
        self._bytes += len(mark) - len(before)
        while len(self._marks) > self.most or (self._bytes > KEPT_BYTES and len(self._marks) > 1):
            self._bytes -= len(self._marks.pop(next(iter(self._marks))))
        assert len(self._marks) <= self.most, "no more are remembered than may be"
        assert (self._bytes > 0) is bool(self._marks), "the bytes are those of the marks that are remembered"

    def encode(self) -> bytes:
        """All marks as bytes; b"" when there are none."""
        return _encoder.encode(list(self._marks.values())) if self._marks else b""

    def merge(self, encoded: bytes) -> None:
        """Take in what another copy remembered (`encode`); what is known here already counts as the newer.

        Raises msgspec.MsgspecError when these are not such bytes.
        """
        if not encoded:
            return
        mine = list(self._marks.values())
        for mark in (*_lists.decode(encoded), *mine):
            self.note(mark)
