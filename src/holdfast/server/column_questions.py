"""Questions of Holdfast's own protocol that carry columns: scans of a map, page by page, and bulk writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from holdfast.config import LimitSettings
from holdfast.core.model.operations import LIFETIME_MS_MAX, Op, Request, Status
from holdfast.core.model.zone_batches import ZoneBatch, ZoneBatchDone
from holdfast.errors import ProtocolError
from holdfast.server.change_questions import COUNTER_MAX
from holdfast.server.column_put import ColumnPut, as_request
from holdfast.server.flow import Work
from holdfast.server.question_checks import map_problem, size_rejection
from holdfast.server.reply_channel import ReplyChannel
from holdfast.server.reserved import is_reserved, reserved_rows_rejection
from holdfast.server.scanning import FIELDS_MAX, Scanned
from holdfast.server.zone_put import ZonePut, zone_put_rejection
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
    Status.FAILED: own.FaultKind.FAILED,
}
"""Reasons to reject a question, as faults of the own protocol; others are `NOT_READY`."""

ColumnQuestion = own.Scan | own.NextPage | own.PutColumns


class ColumnQuestions:
    """Answers these questions for one connection, which has one scan at most.

    Pages are made on demand. So a slow reader costs the member no more than the references of one scan.
    """

    __slots__ = ("_begun", "_grid", "_limits", "_replies", "_scan")

    def __init__(self, replies: ReplyChannel, limits: LimitSettings) -> None:
        self._replies = replies
        self._grid = replies.grid
        self._limits = limits
        self._scan: Scanned | None = None
        self._begun = 0

    def answer(self, question: ColumnQuestion) -> None:
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
        self._scan = None

    # -- scans

    def _begin_scan(self, question: own.Scan) -> None:
        answered = self._grid.timing(SCAN)
        self._scan = None
        self._begun = question.id
        if not self._replies.in_range(question.id, [question.partition]):
            return
        malformed = own.FaultKind.MALFORMED
        if not 0 <= question.limit <= COUNTER_MAX:
            self._replies.fault(question.id, malformed, f"a limit is 0 (none) to {COUNTER_MAX}")
            return
        if question.fields is not None and len(question.fields) > FIELDS_MAX:
            self._replies.fault(question.id, malformed, f"at most {FIELDS_MAX} fields are cut out")
            return
        scan = self._of_cut(question) if question.cut else self._of_copy(question)
        if scan is None:
            return
        if question.cut or question.any_copy or not self._must_confirm(question.map):
            self._send_first(scan)
            answered()
        elif self._replies.may_wait(question.id):
            self._confirm(question, scan, answered)

    def _send_first(self, scan: Scanned) -> None:
        if self._begun == scan.number:
            self._scan = scan
        self._send_page(scan.number, scan)

    def _must_confirm(self, name: str) -> bool:
        return bool(self._grid.zone_of(name)) and not self._grid.zone_map(name)[0]

    def _confirm(self, question: own.Scan, scan: Scanned, answered: Callable[[], None]) -> None:
        """Send the first page when it is confirmed that this member has led since the entries were read
        (raft_partition/Z-2). The other pages are of the same moment, and need no confirmation.
        """
        replies = self._replies
        entries = self._grid.zone_entries(question.map)
        assert entries is not None, "a zone that is led here is known here"

        def done(batch: ZoneBatchDone) -> None:
            replies.answered()
            answered()
            if batch.unconfirmed is None:
                self._send_first(scan)
            else:
                replies.fault(question.id, own.FaultKind.MOVED, batch.unconfirmed.detail)

        replies.handed_over = True
        batch = ZoneBatch(entries.zone, reads=[question.partition])
        self._grid.zone_batch(batch, replies.on_done("Scan", question.id, done))

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
        """The scan of the copy of the primary or leader, or of any; None: the question is answered."""
        partition, name = question.partition, question.map
        if not question.any_copy and self._is_rejected(question):
            return None
        found = self._grid.local_copies.led(name, partition)
        if found is None and question.any_copy:
            found = self._grid.local_copies.held(name, partition)
        if found is not None:
            return Scanned(question, found.copy.maps.get(name), found.now_ns)
        detail = f"partition {partition} is not served here"
        self._replies.fault(question.id, own.FaultKind.MOVED, detail)
        return None

    def _is_rejected(self, question: own.Scan) -> bool:
        """Whether the map cannot be read now, on any member; then the question is answered."""
        if not self._grid.zone_of(question.map):
            return self._replies.are_lost(question.id, [question.map], [question.partition])
        rejection = self._grid.rejection(Request(Op.ENTRIES, question.map, [question.partition]))
        if rejection is not None:
            kind = _FAULTS.get(rejection.status, own.FaultKind.NOT_READY)
            self._replies.fault(question.id, kind, rejection.detail)
        return rejection is not None

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
        in_zone = bool(self._grid.zone_of(put.map))
        rejection = rows.rejection(LIFETIME_MS_MAX) or size_rejection(rows.keys, rows.values, self._limits)
        if rejection is None and in_zone:
            rejection = zone_put_rejection(put, self._grid.level)
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
        on_done = replies.on_done("PutColumns", put.id, done)
        if in_zone:
            yield from ZonePut(self._grid, put, rows.keys, rows.values, on_done).storing()
        else:
            yield from rows.storing(self._grid, on_done)
