"""A backup follows its primary: right sender, right version, right order."""

from __future__ import annotations

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.journal.log import Log
from holdfast.core.machine import MemberId, Outbox, Send
from holdfast.core.messages import Replicate, Replicated, Section
from holdfast.core.placement.table import Row
from holdfast.core.replication.copies import Copies
from holdfast.core.rules import Rules
from holdfast.core.store.partition import Change, PartitionCopy, Record

ME, OWNER, OTHER = MemberId("me"), MemberId("owner"), MemberId("other")
SETTINGS = Settings(partitions=PartitionSettings(count=1), maps={"deep": MapSettings(backups=2)})


def backup(without: str = "", row: tuple[MemberId, ...] = (OWNER, ME)) -> tuple[Copies, Outbox, list[Row]]:
    out = Outbox()
    rows = [Row(5, row)]
    copies = Copies(
        ME, SETTINGS, out, Rules(frozenset({without} if without else ())), rows, Log(out, on=False)
    )
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
    copies.row_changed(0, old, rows[0], None)
    copies.retry(0)
    assert (value_of(copies), acknowledged(out)) == (b"new", [1])


def test_what_comes_back_from_files_holds_only_the_maps_of_its_new_place() -> None:
    """That a colder index took maps away need not be on the disk yet when the power fails."""
    copies, out, _ = backup()
    for name in ("m", "deep"):
        copies.open(copies.held[0], name).apply(put(1, b"value", name=name), 0)
    copies.stale[0] = copies.held.pop(0)
    out.take()
    held = copies.row_changed(0, Row(5, (OWNER, ME)), Row(9, (OWNER, OTHER, ME)), None)
    assert held is not None
    assert held.maps.keys() == {"deep"}
