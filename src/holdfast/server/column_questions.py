"""Questions of Holdfast's own protocol that carry columns: scans of a map, page by page, and bulk writes."""

from __future__ import annotations

from typing import assert_never

from holdfast.config import LimitSettings
from holdfast.core.model.operations import LIFETIME_MS_MAX, Status
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.errors import ProtocolError
from holdfast.server.change_questions import COUNTER_MAX
from holdfast.server.column_put import ColumnPut, as_request
from holdfast.server.flow import Work
from holdfast.server.question_checks import map_problem, size_rejection
from holdfast.server.reply_channel import ReplyChannel
from holdfast.server.reserved import is_reserved, reserved_rows_rejection
from holdfast.server.scanning import FIELDS_MAX, Scanned
from holdfast.wire import own

SCAN, PUT_COLUMNS = "scan", "put-columns"
"""Names of a page of a scan, and of a bulk write, in metrics."""

RESERVED_PER_SLICE = 256
"""Rows per slice for a reserved map: each row is decoded to be checked."""

_FAULTS = {
    Status.PASSIVE: own.FaultKind.PASSIVE,
    Status.NO_ROOM: own.FaultKind.NO_ROOM,
    Status.NO_MEMORY: own.FaultKind.NO_MEMORY,
    Status.LOST: own.FaultKind.LOST,
}
"""Reasons to reject a bulk write, as faults of the own protocol."""

ColumnQuestion = own.Scan | own.NextPage | own.PutColumns


class ColumnQuestions:
    """Answers these questions for one connection, which has one scan at most.

    Pages are made on demand. So a slow reader costs the member no more than the references of one scan.
    """

    __slots__ = ("_grid", "_limits", "_replies", "_scan")

    def __init__(self, replies: ReplyChannel, limits: LimitSettings) -> None:
        self._replies = replies
        self._grid = replies.grid
        self._limits = limits
        self._scan: Scanned | None = None

    def answer(self, question: ColumnQuestion) -> None:
        """Answer the question, now or later."""
        match question:
            case own.Scan():
                self._begin_scan(question)
            case own.NextPage():
                self._next_page(question)
            case own.PutColumns():
                self._put_columns(question)
            case _:
                assert_never(question)

    def close(self) -> None:
        """The connection is closed."""
        self._scan = None

    # -- scans

    def _begin_scan(self, question: own.Scan) -> None:
        answered = self._grid.timing(SCAN)
        self._scan = None
        if not self._replies.in_range(question.id, [question.partition]):
            return
        malformed = own.FaultKind.MALFORMED
        if not 0 <= question.limit <= COUNTER_MAX:
            self._replies.fault(question.id, malformed, f"a limit is 0 (none) to {COUNTER_MAX}")
            return
        if question.fields is not None and len(question.fields) > FIELDS_MAX:
            self._replies.fault(question.id, malformed, f"at most {FIELDS_MAX} fields are cut out")
            return
        self._scan = self._of_cut(question) if question.cut else self._of_copy(question)
        if self._scan is not None:
            self._send_page(question.id, self._scan)
            answered()

    def _of_cut(self, question: own.Scan) -> Scanned | None:
        """The scan of a cut; None: the question is answered."""
        partition = question.partition
        pin = self._grid.cuts.find(question.cut, partition, question.map)
        if pin is not None:
            return Scanned(question, None, pin.taken_ns, pin)
        detail = f"cut {question.cut.hex()} of {question.map} in partition {partition} is not kept here"
        self._replies.fault(question.id, own.FaultKind.MOVED, detail)
        return None

    def _of_copy(self, question: own.Scan) -> Scanned | None:
        """The scan of the primary's copy, or of any; None: the question is answered."""
        partition = question.partition
        if not question.any_copy and self._replies.are_lost(question.id, [question.map], [partition]):
            return None
        copy: PartitionCopy | None = self._grid.lane.leading[partition]
        if copy is None and question.any_copy:
            copy = self._grid.local_copies.outside_zones(partition)
        if copy is not None:
            return Scanned(question, copy.maps.get(question.map), self._grid.now_ns())
        detail = f"partition {partition} is not served here"
        self._replies.fault(question.id, own.FaultKind.MOVED, detail)
        return None

    def _next_page(self, question: own.NextPage) -> None:
        if self._scan is None or self._scan.number != question.scan:
            detail = f"scan {question.scan} has ended"
            self._replies.fault(question.id, own.FaultKind.MALFORMED, detail)
            return
        answered = self._grid.timing(SCAN)
        self._send_page(question.id, self._scan)
        answered()

    def _send_page(self, number: int, scan: Scanned) -> None:
        page = scan.take(number)
        if scan.ended:
            self._scan = None
        self._replies.send(page)

    # -- bulk writes

    def _put_columns(self, put: own.PutColumns) -> None:
        replies = self._replies
        if problem := map_problem(put.map, put.ttl_ms):
            replies.fault(put.id, own.FaultKind.MALFORMED, problem)
            return
        # A partition may be named more than once: a client may cut its rows into several groups.
        if not replies.in_range(put.id, put.partitions, once=False):
            return
        if not replies.may_wait(put.id, count=False):
            return
        rejection = self._grid.rejection(as_request(put), put.columns.size_bytes)
        if rejection is not None:
            kind = _FAULTS.get(rejection.status, own.FaultKind.NOT_READY)
            replies.fault(put.id, kind, rejection.detail)
            return
        replies.begin(put, self._store(put))

    def _store(self, put: own.PutColumns) -> Work:
        """Read, check and store the rows, slice by slice: nothing is stored before all rows are checked."""
        replies = self._replies
        try:
            rows = yield from ColumnPut.reading(put, self._grid.partition_count)
        except ProtocolError as broken:
            replies.end(own.FaultKind.MALFORMED, str(broken))
            return
        rejection = rows.rejection(LIFETIME_MS_MAX) or size_rejection(rows.keys, rows.values, self._limits)
        step = RESERVED_PER_SLICE if is_reserved(put.map) else own.ROWS_MAX
        for begin in range(0, len(rows.keys), step):
            if begin:
                yield
            some = slice(begin, begin + step)
            if reserved := reserved_rows_rejection(put, zip(rows.keys[some], rows.values[some], strict=True)):
                rejection = (own.FaultKind.DENIED, reserved)
                break
        if rejection is not None:
            replies.fault(put.id, *rejection)
            return
        replies.waiting += 1
        answered = self._grid.timing(PUT_COLUMNS)

        def done(answer: own.PutDone) -> None:
            answered()
            replies.answered()
            replies.send(answer)

        replies.handed_over = True
        yield from rows.storing(self._grid, replies.on_done("PutColumns", put.id, done))
