"""A backup follows its primary: right sender, right version, right order; and a shadow is not fooled by any order."""

from __future__ import annotations

from itertools import permutations

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.machine import MemberId, Outbox, Send
from holdfast.core.messages import Fill, FillEntries, Replicate, Replicated, Section
from holdfast.core.placement.table import Row
from holdfast.core.replication.copies import Copies
from holdfast.core.rules import Rules
from holdfast.core.store.partition import Change, PartitionCopy, Record

ME, OWNER, OTHER = MemberId("me"), MemberId("owner"), MemberId("other")
SETTINGS = Settings(partitions=PartitionSettings(count=1), maps={"deep": MapSettings(backups=2)})


def backup(without: str = "", row: tuple[MemberId, ...] = (OWNER, ME)) -> tuple[Copies, Outbox, list[Row]]:
    out = Outbox()
    rows = [Row(5, row)]
    copies = Copies(ME, SETTINGS, out, Rules(frozenset({without} if without else ())), rows)
    copies.held[0] = PartitionCopy(0, 0)
    return copies, out, rows


def put(counter: int, value: bytes, *, key: bytes = b"key", name: str = "m") -> Record:
    return Record(name, counter, Change.SET, key, value)


def message(batch: int, *records: Record, version: int = 5) -> Replicate:
    return Replicate([batch], [Section(0, version, list(records))])


def acknowledged(out: Outbox) -> list[int]:
    sent = [effect.message for effect in out.take() if isinstance(effect, Send)]
    return [number for reply in sent if isinstance(reply, Replicated) for number in reply.batches]


def value_of(copies: Copies, key: bytes = b"key", name: str = "m") -> bytes | None:
    held = copies.held[0].maps.get(name)
    return held.entries.get(key) if held else None


def late_then_early(without: str) -> tuple[bytes | None, list[int]]:
    copies, out, _ = backup(without)
    copies.on_replicate(OWNER, message(2, put(2, b"second")))
    copies.on_replicate(OWNER, message(1, put(1, b"first")))
    copies.on_replicate(OWNER, message(1, put(1, b"first")))
    return value_of(copies), acknowledged(out)


def test_records_are_applied_in_the_order_of_the_counter_and_once() -> None:
    value, numbers = late_then_early("")
    assert value == b"second"
    assert sorted(numbers) == [1, 1, 2], "a repeated record is acknowledged again, and does nothing"


def test_without_that_rule_an_older_value_overwrites_a_newer_one() -> None:
    assert late_then_early("record-order")[0] == b"first"


def test_an_early_record_is_not_acknowledged_before_its_turn() -> None:
    copies, out, _ = backup()
    copies.on_replicate(OWNER, message(2, put(2, b"second")))
    assert acknowledged(out) == []


def test_a_stranger_and_an_old_version_are_not_believed() -> None:
    copies, out, _ = backup()
    copies.on_replicate(OTHER, message(1, put(1, b"of a stranger")))
    copies.on_replicate(OWNER, message(1, put(1, b"of an old time"), version=4))
    assert (value_of(copies), acknowledged(out)) == (None, [])


def test_a_newer_version_waits_for_its_row() -> None:
    copies, out, rows = backup()
    copies.on_replicate(OWNER, message(1, put(1, b"new"), version=6))
    assert acknowledged(out) == []
    old, rows[0] = rows[0], Row(6, (OWNER, ME))
    copies.row_changed(0, old, rows[0])
    copies.retry(0)
    assert (value_of(copies), acknowledged(out)) == (b"new", [1])


def chunk(sequence: int, counter: int, *entries: tuple[bytes, bytes], last: bool = False) -> Fill:
    content = [FillEntries("m", counter, [(key, value, 0, 0, 0) for key, value in entries])]
    return Fill(0, 5, 1, sequence, last, 0, True, content)


def test_a_shadow_ends_the_same_in_whatever_order_it_is_told() -> None:
    """The last chunk says counter 3; the records up to it may come before or after it."""
    told = [
        message(1, put(2, b"two")),
        message(2, Record("m", 3, Change.REMOVE, b"other")),
        chunk(1, 1, (b"key", b"one"), (b"other", b"x")),
    ]
    for order in permutations(told):
        copies, _, _ = backup(row=(OWNER, OTHER))
        del copies.held[0]
        copies.on_fill(OWNER, chunk(0, 0))
        for item in order:
            if isinstance(item, Fill):
                copies.on_fill(OWNER, item)
            else:
                copies.on_replicate(OWNER, item)
        copies.on_fill(OWNER, chunk(2, 3, last=True))
        shadow = copies.shadows[0]
        assert shadow.complete
        assert shadow.copy.maps["m"].entries == {b"key": b"two"}
        assert shadow.copy.maps["m"].counter == 3


def test_what_was_written_before_the_content_was_taken_does_not_come_back() -> None:
    """The primary sends the write at counter 2 again, when its entry was removed at counter 3 and the content taken."""
    told = [message(1, put(2, b"two")), chunk(1, 3, (b"other", b"x")), message(2, put(4, b"y", key=b"later"))]
    for order in permutations(told):
        copies, _, _ = backup(row=(OWNER, OTHER))
        del copies.held[0]
        copies.on_fill(OWNER, chunk(0, 0))
        for item in order:
            if isinstance(item, Fill):
                copies.on_fill(OWNER, item)
            else:
                copies.on_replicate(OWNER, item)
        copies.on_fill(OWNER, chunk(2, 4, last=True))
        assert copies.shadows[0].copy.maps["m"].entries == {b"other": b"x", b"later": b"y"}


def test_a_record_that_comes_after_the_last_chunk_counted_it_is_still_taken() -> None:
    copies, out, _ = backup(row=(OWNER, OTHER))
    del copies.held[0]
    copies.on_fill(OWNER, chunk(0, 0))
    copies.on_fill(OWNER, chunk(1, 1, (b"key", b"one")))
    copies.on_fill(OWNER, chunk(2, 2, last=True))
    copies.on_replicate(OWNER, message(1, put(2, b"two")))
    assert copies.shadows[0].copy.maps["m"].entries == {b"key": b"two"}
    assert acknowledged(out) == [1]


def test_a_colder_replica_that_becomes_hotter_takes_maps_it_did_not_hold_into_its_shadow_alone() -> None:
    copies, out, _ = backup(row=(OWNER, OTHER, ME))
    copies.on_fill(OWNER, chunk(0, 0))
    copies.on_replicate(OWNER, message(1, put(7, b"seven"), put(1, b"d", name="deep")))
    assert acknowledged(out) == [1], "the map that index 2 does not hold has no gap there"
    assert value_of(copies) is None
    assert value_of(copies, name="deep") == b"d"
    assert copies.shadows[0].copy.maps["m"].entries == {b"key": b"seven"}
