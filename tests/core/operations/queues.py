"""A queue as a service: what is offered is taken once, in its order, and who finds nothing waits for it.

A share is asked with `+item`, which is answered with its number, or `-ms`, which is answered with the oldest item, or
with nothing when none has come within so many milliseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from holdfast.core.hosted_services import MigrationEvent
from holdfast.core.model.decisions import Wait

NAME = "queue"


class QueueShare:
    """The queue of one partition."""

    def __init__(self) -> None:
        self.items: deque[tuple[int, bytes]] = deque()
        """What waits to be taken, with its number."""
        self.offered = 0
        self.taken: list[bytes] = []
        """Everything that ever was, in the order of its going; a queue in earnest would not keep it."""

    def decide(self, update: bytes) -> tuple[bytes, bytes | None] | Wait:
        if update.startswith(b"+"):
            return b"%d" % (self.offered + 1), update
        if not self.items:
            return Wait(int(update[1:]), b"")
        number, item = self.items[0]
        return item, b"!%d" % number

    def apply(self, update: bytes) -> bytes:
        if update.startswith(b"+"):
            self.offered += 1
            self.items.append((self.offered, update[1:]))
        else:
            number, item = self.items.popleft()
            assert update == b"!%d" % number, "what is taken is the oldest, on every replica"
            self.taken.append(item)
        return b""

    def ask(self, question: bytes) -> bytes:
        return b"%d" % len(self.items)

    def supply(self) -> Iterable[bytes]:
        gone = [b"-" + item for item in self.taken]
        return [b"%d" % self.offered, *gone, *[b"%d %b" % one for one in self.items]]

    def receive(self, piece: bytes) -> None:
        if piece.startswith(b"-"):
            self.taken.append(piece[1:])
        elif b" " in piece:
            number, item = piece.split(b" ", 1)
            self.items.append((int(number), item))
        else:
            self.offered = int(piece)


class Queue:
    """The service of one member."""

    name = NAME

    def __init__(self, backups: int = 1, journal: str = "off") -> None:
        self.backups = backups
        self.journal = journal

    def open(self, partition: int) -> QueueShare:
        return QueueShare()

    def before(self, event: MigrationEvent) -> None:
        pass

    def commit(self, event: MigrationEvent) -> None:
        pass

    def rollback(self, event: MigrationEvent) -> None:
        pass
