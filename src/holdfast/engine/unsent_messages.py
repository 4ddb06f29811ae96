"""Frequent messages of one step to one member leave as one `MessageBatch`.

Example: a transaction commits in three partitions whose primary is another member. Its three steps leave in one batch.
That member replicates all three in one `Replicate`. When its backup has acknowledged it, the three answers return in
one batch, with the records that other requests of the step have caused.

- engine/M-1: Each message is handled as if it had come alone, in the order in which all messages to that member were
  sent. A batch is lost, delayed and repeated as a whole, and has at most `BATCH_BYTES`, unless one message is larger.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.messages import Answer, Forward, Message, Replicate, Replicated
from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import MESSAGE_BATCHES
from holdfast.core.outbox import Outbox
from holdfast.wire.codec import encode, encode_batch

BATCH_BYTES = 256 * 1024
BATCHED = frozenset({Answer, Forward, Replicate, Replicated})


class _Batch:
    __slots__ = ("messages", "size")

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.size = 0


class UnsentMessages:
    def __init__(self, out: Outbox, transmit: Callable[[MemberId, bytes], None]) -> None:
        """`transmit`: send an encoded message to a member."""
        self._out = out
        self._transmit = transmit
        self._batches: dict[MemberId, _Batch] = {}

    def add(self, to: MemberId, message: Message) -> int:
        """Returns the bytes that wait for the end of the step now."""
        data = encode(message)
        if type(message) not in BATCHED or self._out.level < MESSAGE_BATCHES:
            self.send_to(to)
            self._transmit(to, data)
            return 0
        batch = self._batches.get(to)
        if batch is not None and batch.size + len(data) > BATCH_BYTES:
            self.send_to(to)
            batch = None
        if batch is None:
            batch = self._batches[to] = _Batch()
        batch.messages.append(data)
        batch.size += len(data)
        return batch.size

    def send_to(self, to: MemberId) -> None:
        batch = self._batches.pop(to, None)
        if batch is not None:
            messages = batch.messages
            self._transmit(to, messages[0] if len(messages) == 1 else encode_batch(messages))

    def send_all(self) -> None:
        for to in list(self._batches):
            self.send_to(to)
