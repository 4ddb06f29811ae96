"""What a checkpoint takes of a copy."""

from __future__ import annotations

from holdfast.core.journal.snapshot import snapshot_of
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.records import Change, Record
from holdfast.core.outbox import Outbox
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.request_ids import Remembered, mark_of


def copy_with(*modes: str) -> PartitionCopy:
    copy = PartitionCopy(3, 0)
    for number, mode in enumerate(modes):
        held = copy.open(f"map{number}")
        held.journal = mode  # type: ignore[assignment]
        held.apply(Record(held.name, 1, Change.SET, b"key", b"value"), 0)
    copy.requests.note(mark_of(b"client-1", None))
    return copy


def test_the_requests_of_journalled_maps_are_kept() -> None:
    taken = snapshot_of(copy_with("sync", "lazy"), Outbox())
    assert taken is not None
    kept = Remembered()
    kept.merge(taken.requests)
    assert kept.knows(b"client-1")
    assert [one.name for one in taken.maps] == ["map0", "map1"]


def test_a_request_is_not_known_when_what_it_did_may_be_gone() -> None:
    """It may have been of the map that is not written down: it would be answered as done, and nobody would hold it."""
    taken = snapshot_of(copy_with("sync", "off"), Outbox())
    assert taken is not None
    assert taken.requests == b""
    assert [one.name for one in taken.maps] == ["map0"]


def test_a_copy_without_journalled_maps_has_no_checkpoint() -> None:
    assert snapshot_of(copy_with("off"), Outbox()) is None


def test_times_to_live_are_taken_as_what_is_left_of_them() -> None:
    copy = PartitionCopy(3, 2)
    held = copy.open("m")
    held.journal = "sync"
    records = [
        Record("m", 1, Change.SET, b"a", b"1", 1000, 0),
        Record("m", 2, Change.SET, b"b", b"2"),
        Record("m", 3, Change.SET, b"c", b"3", 0, 700),
    ]
    for record in records:
        held.apply(record, 0)
    out = Outbox()
    out.epoch_ms, out.now_ns = 5000, 400 * MILLISECOND
    taken = snapshot_of(copy, out)
    assert taken is not None
    assert (taken.partition, taken.epoch, taken.wall_ms) == (3, 2, 5400)
    (one,) = taken.maps
    assert (one.keys, one.values) == ([b"a", b"b", b"c"], [b"1", b"2", b"3"])
    assert (one.ttls_ms, one.max_idles_ms, one.key_hashes) == ([600, 0, 0], [0, 0, 700], [])


def test_the_partition_hashes_of_keys_are_taken_where_there_are_any() -> None:
    copy = copy_with("sync")
    held = copy.maps["map0"]
    held.apply(Record("map0", 2, Change.SET, b"other", b"value", 0, 0, 77), 0)
    taken = snapshot_of(copy, Outbox())
    assert taken is not None
    assert taken.maps[0].key_hashes == [0, 77]
    assert (taken.maps[0].ttls_ms, taken.maps[0].max_idles_ms) == ([], [])


def test_a_map_that_was_never_written_is_not_taken() -> None:
    copy = copy_with("sync")
    copy.open("empty").journal = "sync"
    taken = snapshot_of(copy, Outbox())
    assert taken is not None
    assert [one.name for one in taken.maps] == ["map0"]
