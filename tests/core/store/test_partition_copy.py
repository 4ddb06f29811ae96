"""Entries that end: what is noted of them, and that no note outlives them."""

from __future__ import annotations

from tests.core.store.noted import deadlines

from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import map_replica


def test_an_entry_that_is_written_again_and_again_is_noted_once() -> None:
    held = map_replica("m")
    for second in range(1000):
        held.state.store(b"k", b"v", 10_000, 0, 0, second * SECOND)
        assert held.state.due(second * SECOND, 100) == []
        assert len(deadlines(held.state)) == 1
    assert held.state.due(1008 * SECOND, 100) == []
    assert held.state.due(1009 * SECOND, 100) == [b"k"]


def test_a_shorter_time_counts_at_once() -> None:
    held = map_replica("m")
    held.state.store(b"k", b"v", 60_000, 0, 0, 0)
    held.state.schedule(b"k", 1000, 0, 0)
    assert held.state.due(1 * SECOND, 100) == [b"k"]


def test_use_lengthens_the_time_of_an_entry_that_ends_when_idle() -> None:
    held = map_replica("m")
    held.state.store(b"k", b"v", 0, 1000, 0, 0)
    assert not held.state.expired(b"k", 900 * MILLISECOND)
    assert held.state.due(1 * SECOND, 100) == []
    assert held.state.due(1900 * MILLISECOND, 100) == [b"k"]


def test_an_entry_that_was_removed_and_came_back_ends_at_its_new_time() -> None:
    held = map_replica("m")
    held.state.store(b"k", b"v", 1000, 0, 0, 0)
    held.state.drop(b"k")
    held.state.store(b"k", b"w", 5000, 0, 0, 0)
    assert held.state.due(1 * SECOND, 100) == []
    assert held.state.due(5 * SECOND, 100) == [b"k"]
    held.state.drop(b"k")
    assert not deadlines(held.state)


def test_a_backup_forgets_what_is_over_and_leaves_what_its_primary_has_not_removed() -> None:
    held = map_replica("m")
    held.state.store(b"gone", b"v", 1000, 0, 0, 0)
    held.state.store(b"later", b"v", 1000, 0, 0, 0)
    held.state.store(b"ended", b"v", 2000, 0, 0, 0)
    held.state.drop(b"gone")
    held.state.schedule(b"later", 60_000, 0, 0)
    held.state.tidy(3 * SECOND)
    assert sorted(key for _, key in deadlines(held.state)) == [b"ended", b"later"]
    assert held.state.entries.keys() == {b"ended", b"later"}, (
        "an entry that has ended waits for its primary's word"
    )
    assert held.state.due(5 * SECOND, 100) == [b"ended"], (
        "and is found by this member if it becomes the primary"
    )


def test_an_entry_that_is_in_use_at_its_primary_hides_nothing_on_a_backup() -> None:
    """A backup does not know that it is used; what ended later and is gone must not be noted for ever."""
    held = map_replica("m")
    held.state.store(b"used", b"v", 0, 1000, 0, 0)
    for number in range(500):
        held.state.store(b"%d" % number, b"v", 2000, 0, 0, 0)
        held.state.drop(b"%d" % number)
    held.state.tidy(3 * SECOND)
    assert [key for _, key in deadlines(held.state)] == [b"used"]
    assert b"used" in held.state.entries


def test_what_ended_on_a_backup_is_found_at_once_when_it_becomes_the_primary() -> None:
    copy = PartitionCopy(0, 0)
    held = copy.open("m")
    held.state.store(b"ended", b"v", 2000, 0, 0, 0)
    held.state.store(b"idle", b"v", 0, 2000, 0, 0)
    held.state.tidy(3 * SECOND)
    copy.used(3 * SECOND)
    assert held.state.due(3 * SECOND, 100) == [b"ended"]
    assert held.state.due(6 * SECOND, 100) == [b"idle"]


def test_no_more_than_the_limit_are_removed_at_once() -> None:
    held = map_replica("m")
    for number in range(10):
        held.state.store(b"%d" % number, b"v", 1000, 0, 0, 0)
    assert len(held.state.due(2 * SECOND, 4)) == 4
    assert len(held.state.due(2 * SECOND, 100)) == 6
