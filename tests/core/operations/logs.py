"""A third kind of state, that no machine of core knows: a log, cut off at the front, with a state of its own making."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import mmh3

from holdfast.core.hosted_services import MigrationEvent
from holdfast.core.model.decisions import Decision, Update
from holdfast.core.model.journal_entries import MapSnapshot
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.records import Change, Record
from holdfast.core.store.piece_state import PieceState
from holdfast.core.store.service_state import Share
from holdfast.core.store.state import HostedState

NAME = "log"
SPAN = 4
"""Key ranges: a line is in that of its number."""


class LogState(PieceState):
    """Lines with numbers. `+line` appends one and answers its number, `-n` cuts off all before n."""

    def __init__(self) -> None:
        self.first = 0
        self.lines: dict[int, bytes] = {}

    def decide(self, request: Request) -> Decision:
        """A cut that cuts nothing changes nothing; a question is answered with the line of that number."""
        if request.op is Op.ASK:
            return Decision(self.lines.get(int(request.value), b""))
        if request.value.startswith(b"-") and int(request.value[1:]) <= self.first:
            return Decision(b"nothing to cut")
        return Decision(updates=[Update(Change.CALL, b"", request.value)], applied_answers=True)

    def apply(self, record: Record, now_ns: int) -> bytes:
        sign, text = record.value[:1], record.value[1:]
        if sign == b"+":
            number = self.first + len(self.lines)
            self.lines[number] = text
            return b"%d" % number
        upto = min(int(text), self.first + len(self.lines))
        for number in range(self.first, upto):
            del self.lines[number]
        self.first = max(self.first, upto)
        return b"cut"

    def start_from(self, base: LogState) -> None:
        self.first, self.lines = base.first, dict(base.lines)

    def size(self) -> int:
        return len(self.lines)

    def pieces(self, ranges: frozenset[int] | None) -> Iterable[bytes]:
        found = [
            b"%d %b" % (number, line)
            for number, line in sorted(self.lines.items())
            if ranges is None or number % SPAN in ranges
        ]
        return [b"%d" % self.first, *found]

    def begin_ranges(self, ranges: frozenset[int]) -> None:
        for number in [number for number in self.lines if number % SPAN in ranges]:
            del self.lines[number]

    def receive(self, piece: bytes) -> None:
        number, space, line = piece.partition(b" ")
        if space:
            self.lines[int(number)] = line
        else:
            self.first = int(number)

    def range_digests(self) -> Sequence[int]:
        sums = [self.first] * SPAN
        for number, line in self.lines.items():
            sums[number % SPAN] += int(mmh3.hash64(b"%d %b" % (number, line), signed=False)[0])
        return [one & 0xFFFF_FFFF_FFFF_FFFF for one in sums]

    def write_to(self, taken: MapSnapshot, now_ns: int) -> None:
        """In a form of its own, that `read_from` reads."""
        taken.keys.extend(b"%d" % number for number in (-1, *self.lines))
        taken.values.extend([b"%d" % self.first, *self.lines.values()])

    def read_from(self, taken: MapSnapshot, at_ns: int) -> None:
        for key, value in zip(taken.keys, taken.values, strict=True):
            if int(key) < 0:
                self.first = int(value)
            else:
                self.lines[int(key)] = value


class Logs:
    """What brings it into a cluster: one object, given to each member."""

    name = NAME
    journal = "off"

    def __init__(self, backups: int = 1, journal: str = "off") -> None:
        self.backups = backups
        self.journal = journal

    def state(self, partition: int) -> HostedState:
        return LogState()

    def open(self, partition: int) -> Share:
        raise AssertionError("it has a state of its own, and no shares")

    def before(self, event: MigrationEvent) -> None:
        pass

    def commit(self, event: MigrationEvent) -> None:
        pass

    def rollback(self, event: MigrationEvent) -> None:
        pass
