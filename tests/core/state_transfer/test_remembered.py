"""What a partition remembers of requests goes with its content, however they are mixed."""

from __future__ import annotations

import msgspec
from tests.core.state_transfer.test_destination import OTHER, OWNER, Side, chunk, message, put

from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Record
from holdfast.core.store.request_ids import Remembered, mark_of


def marked(record: Record, request_id: bytes) -> Record:
    return msgspec.structs.replace(record, request=mark_of(request_id, None))


def test_the_last_chunk_brings_what_was_and_records_what_comes() -> None:
    side = Side(OWNER, OTHER)
    supplier = Remembered()
    supplier.note(mark_of(b"long ago", b"old"))
    side.tell(chunk(0))
    side.tell(message(1, marked(put(1, b"1"), b"before")))
    side.tell(chunk(1, 1, (b"key", b"1")))
    side.tell(msgspec.structs.replace(chunk(2, 1, last=True), requests=supplier.encode()))
    side.tell(message(2, marked(put(2, b"2"), b"after")))
    requests = side.destination.staging[0].copy.requests
    assert requests.answer(b"long ago") == b"old"
    assert requests.knows(b"before")
    assert requests.knows(b"after")
    assert len(requests) == 3


def test_a_backup_remembers_what_it_applies_and_only_that() -> None:
    side = Side(OWNER, OTHER)
    side.rows[0] = Assignment(5, (OWNER, side.copies._me))
    side.copies.assignment_changed(0, Assignment(), side.rows[0], None)
    side.tell(message(1, put(1, b"1"), marked(put(2, b"2"), b"one")))
    side.tell(message(2, marked(put(4, b"4"), b"too early")))
    requests = side.copies.held[0].requests
    assert requests.knows(b"one")
    assert not requests.knows(b"too early")
    side.tell(message(3, put(3, b"3")))
    assert requests.knows(b"too early")
    side.tell(message(1, put(1, b"1"), marked(put(2, b"2"), b"one")))
    assert len(requests) == 2
