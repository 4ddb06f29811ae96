"""What a checkpoint takes of a copy."""

from __future__ import annotations

from holdfast.core.journal.snapshot import snapshot_of
from holdfast.core.machine import Outbox
from holdfast.core.replication.requests import Remembered, mark_of
from holdfast.core.store.partition import Change, PartitionCopy, Record


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
