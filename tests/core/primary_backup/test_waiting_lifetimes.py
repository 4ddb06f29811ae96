"""An entry's time to live also passes while its update or chunk waits, at either end of a transfer."""

from __future__ import annotations

import pytest
from tests.core.primary_backup.test_local_replicas import ME, OWNER, backup
from tests.core.primary_backup.test_staging_replica import new_shadow
from tests.core.state_transfer.receiving import Side
from tests.core.streams.test_change_streams import Primary

from holdfast.core.messages import Fill, FillEntries, FillPlan, FillRecords, Replicate, Section
from holdfast.core.model.ids import SECOND
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record, after_wait
from holdfast.core.model.sync_request import How
from holdfast.core.state_transfer.content import Content, ContentPart
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import map_replica

TTL_MS = 60_000
WAIT_NS = 25 * SECOND
LEFT_MS = 35_000
KEY = b"key"


def lasting(counter: int, change: Change = Change.SET) -> Record:
    return Record("m", counter, change, KEY, b"v" * (change is Change.SET), TTL_MS)


def lived(copy: PartitionCopy, now_ns: int = WAIT_NS) -> int:
    return copy.maps["m"].state.expiries[KEY].remaining_ttl_ms(now_ns)


def chunk(sequence: int, version: int = 5, **parts: list[object]) -> Fill:
    return Fill(0, version, 1, sequence, False, 0, False, 1, parts.pop("maps", []), **parts)  # type: ignore[arg-type]


def test_the_rest_of_a_time_to_live_is_never_no_end_and_a_lease_does_not_shrink() -> None:
    assert after_wait(lasting(1), WAIT_NS).ttl_ms == LEFT_MS
    assert after_wait(lasting(1), 90 * SECOND).ttl_ms == 1
    endless = Record("m", 1, Change.SET, KEY, b"v")
    assert after_wait(endless, WAIT_NS) is endless
    lease = Record("m", 1, Change.PIN, b"cut", ttl_ms=TTL_MS)
    assert after_wait(lease, WAIT_NS) is lease


def test_a_backup_counts_the_wait_for_an_earlier_record() -> None:
    copies, out, _ = backup()
    copies.on_replicate(OWNER, Replicate([2], [Section(0, 5, [lasting(2)])]))
    out.now_ns = WAIT_NS
    copies.on_replicate(OWNER, Replicate([1], [Section(0, 5, [Record("m", 1, Change.SET, b"other")])]))
    assert lived(copies.held[0]) == LEFT_MS


def test_a_backup_counts_the_wait_for_its_assignment() -> None:
    copies, out, rows = backup()
    copies.on_replicate(OWNER, Replicate([1], [Section(0, 6, [lasting(1)])]))
    out.now_ns = WAIT_NS
    rows[0] = Assignment(6, (OWNER, ME))
    copies.retry(0)
    assert lived(copies.held[0]) == LEFT_MS


def test_a_staging_replica_counts_the_wait_for_an_earlier_record() -> None:
    base = PartitionCopy(0, 0)
    base.open("m").apply(Record("m", 1, Change.SET, b"other"), 0)
    staged = new_shadow(base)
    staged.pour(chunk(1, plans=[FillPlan("m", How.HISTORY, 1)]), 0)
    staged.take(lasting(3), 1, 0)
    staged.take(Record("m", 2, Change.SET, b"other"), 1, WAIT_NS)
    assert staged.copy.maps["m"].counter == 3
    assert lived(staged.copy) == LEFT_MS


def test_a_staging_replica_counts_the_wait_for_its_plan() -> None:
    staged = new_shadow(None)
    staged.take(lasting(1), 1, 0)
    staged.pour(chunk(1, plans=[FillPlan("m", How.FULL, 0)]), WAIT_NS)
    assert lived(staged.copy) == LEFT_MS


@pytest.mark.parametrize("chunked", [True, False])
def test_a_new_time_to_live_counts_from_its_arrival(*, chunked: bool) -> None:
    """It arrives before the value to which it applies."""
    staged = new_shadow(None)
    staged.pour(chunk(1, plans=[FillPlan("m", How.FULL, 0)]), 0)
    staged.take(lasting(9, Change.EXPIRY), 1, 0)
    if chunked:
        staged.pour(chunk(2, maps=[FillEntries("m", 5, [KEY], [b"v"])]), WAIT_NS)
    else:
        staged.take(Record("m", 8, Change.SET, KEY, b"v"), 1, WAIT_NS)
    assert lived(staged.copy) == LEFT_MS


def test_a_chunk_counts_the_wait_for_its_assignment() -> None:
    side = Side(OWNER, holds=True)
    for sequence in (0, 1, 2):
        entries = FillEntries("m", 5, [KEY], [b"v"], [TTL_MS])
        missed = FillRecords("n", [(1, 1)], [Record("n", 1, Change.SET, KEY, b"v", TTL_MS)])
        parts = {} if not sequence else {"maps": [entries]} if sequence == 2 else {"records": [missed]}
        side.tell(chunk(sequence, 6, **parts))  # type: ignore[arg-type]
    assert side.destination.leftovers == {"early chunks": 1}
    side.out.now_ns = WAIT_NS
    side.rows[0] = Assignment(6, (OWNER, ME))
    side.destination.retry(0)
    copy = side.destination.staging[0].copy
    assert lived(copy) == LEFT_MS
    assert copy.maps["n"].state.expiries[KEY].remaining_ttl_ms(WAIT_NS) == LEFT_MS


def test_a_source_counts_the_time_until_it_sends_missed_updates() -> None:
    content = Content([ContentPart(map_replica("m"), How.HISTORY, missed=[(1, lasting(1))])], 0)
    sent = content.chunk(1000, WAIT_NS)
    assert sent is not None
    assert [record.ttl_ms for part in sent.records for record in part.records] == [LEFT_MS]


def test_a_primary_counts_the_time_until_it_sends_records_again() -> None:
    primary = Primary()
    primary.lane.set(primary.copy, "m", KEY, b"v", TTL_MS, 0, 0)
    primary.lane.close_batch(lambda known: None)
    assert {record.ttl_ms for record in records_of(primary)} == {TTL_MS}
    primary.out.now_ns = WAIT_NS
    primary.lane.retarget(primary.copy)
    assert {record.ttl_ms for record in records_of(primary)} == {LEFT_MS}


def records_of(primary: Primary) -> list[Record]:
    """The records that it sends now."""
    return [
        record
        for message in primary.sent().values()
        for section in message.sections
        for record in section.records
    ]
