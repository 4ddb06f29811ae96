"""What the lane does at the edges of a map: locks, beginnings, lifetimes, sweeps."""

from __future__ import annotations

import pytest
from tests.core.primary_backup.test_primary_copy import BEN, ME, Primary

from holdfast.config import MOVES_MAP, MapSettings
from holdfast.core.model.decisions import LockChanges
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.map_moves import MarkKind, MoveMark, encode_move
from holdfast.core.model.operations import EntryEvent, EventKind
from holdfast.core.model.records import Change, Record
from holdfast.core.model.transactions import KeyLock, lock_key
from holdfast.core.primary_backup import lane as lane_module
from holdfast.core.primary_backup.lane import Swept


def observed(**chosen: object) -> tuple[Primary, list[EntryEvent]]:
    """A primary, and what listeners of its map hear."""
    primary = Primary(**chosen)  # type: ignore[arg-type]
    heard: list[EntryEvent] = []
    primary.lane.heard = heard.append
    primary.lane.listening["m"] = 1
    return primary, heard


def records(primary: Primary) -> list[Record]:
    primary.lane.close_batch(lambda known: None)
    sections = [section for message in primary.sent() for section in message.sections]
    return [
        record
        for section in sections
        for record in (*section.records, *(one for puts in section.puts for one in puts.records()))
    ]


# -- entries


def test_listeners_hear_in_which_term_an_entry_was_written() -> None:
    primary, heard = observed()
    held = primary.lane.open(primary.copies[0], "m")
    held.lineage = []
    primary.lane.set(primary.copies[0], "m", b"k", b"v", 0, 0, 0)
    held.lineage = [(2, 0), (3, 1)]
    primary.lane.set(primary.copies[0], "m", b"k", b"w", 0, 0, 0)
    assert [(event.kind, event.sequence, event.term) for event in heard] == [
        (EventKind.ADDED, 1, 0),
        (EventKind.UPDATED, 2, 3),
    ]


def test_an_entry_is_evicted_or_gets_a_new_time_to_live() -> None:
    primary, heard = observed()
    copy = primary.copies[0]
    primary.lane.set(copy, "m", b"k", b"v", 0, 0, 0)
    primary.lane.set_ttl(copy, "m", b"k", 70)
    assert copy.maps["m"].state.expiries[b"k"].ttl_ms == 70
    primary.lane.evict(copy, "m", b"k")
    assert [event.kind for event in heard] == [EventKind.ADDED, EventKind.UPDATED, EventKind.EVICTED]
    assert [record.change for record in records(primary)] == [Change.SET, Change.EXPIRY, Change.REMOVE]


# -- locks of transactions


def test_locked_entries_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "NAMES_KEPT", 2)
    primary = Primary()
    copy, lane = primary.copies[0], primary.lane
    assert lane.locked(copy, "m", b"k") is False
    lock = KeyLock(b"t" * 16, ME)
    copy.locks.change(LockChanges([(lock_key(name, b"k"), lock) for name in ("m", "n", "o")]))
    for _ in range(2):
        for name in ("m", "n", "o"):
            assert lane.locked(copy, name, b"k") is True
            assert lane.locked(copy, name, b"other") is False
    assert lane.locked(copy, "p", b"k") is False


# -- beginnings


@pytest.mark.rule("store/R-1")
def test_a_map_that_is_opened_after_others_were_forgotten_begins_above_them() -> None:
    primary = Primary()
    copy = primary.copies[0]
    copy.forgotten_to = 40
    primary.lane.set(copy, "m", b"k", b"v", 0, 0, 0)
    held = copy.maps["m"]
    assert (held.updates.lwm, held.lineage) == (42, [(3, 40)])
    assert primary.lane.open(copy, "m") is held
    assert held.updates.lwm == 42, "it is open"
    assert [(record.counter, record.change) for record in records(primary)] == [
        (41, Change.BEGIN),
        (42, Change.SET),
    ]
    fresh = primary.copies[1]
    primary.lane.set(fresh, "m", b"k", b"v", 0, 0, 0)
    assert fresh.maps["m"].updates.lwm == 1
    assert [record.change for record in records(primary)] == [Change.SET]


# -- lifetimes


def test_lifetimes_of_many_maps_are_those_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "NAMES_KEPT", 2)
    lane = Primary(ttl_ms=70, max_idle_ms=50).lane
    for _ in range(2):
        for name in ("m", "a", "b", "c"):
            assert lane.lifetimes(name) == ((70, 50) if name == "m" else (0, 0))


def test_changed_settings_hold_from_the_next_write_on() -> None:
    primary = Primary(backups=0)
    copy, lane = primary.copies[0], primary.lane
    lane.leading[1] = None
    lane.set(copy, "m", b"k", b"v", -1, -1, 0)
    assert copy.maps["m"].targets == ()
    assert lane.lifetimes("m") == (0, 0)
    primary.settings.maps["m"] = MapSettings(backups=1, ttl_ms=70)
    lane.settings_changed()
    assert lane.lifetimes("m") == (70, 0)
    assert copy.maps["m"].targets == (BEN,)


# -- sweeps


def expiring(primary: Primary, partition: int, name: str = "m", count: int = 1) -> None:
    for number in range(count):
        primary.lane.set(primary.copies[partition], name, b"%d" % number, b"v", 1, 0, 0)


def kept(primary: Primary) -> list[int]:
    return [sum(len(held.state.entries) for held in copy.maps.values()) for copy in primary.copies]


def test_a_sweep_looks_at_so_many_entries_and_goes_on_where_it_ended() -> None:
    primary = Primary()
    expiring(primary, 0, count=3)
    expiring(primary, 1, count=2)
    primary.out.now_ns += 5 * MILLISECOND
    assert primary.lane.sweep(2, primary.copies) is Swept.SOME_ENTRIES
    assert kept(primary) == [1, 2]
    assert primary.lane.sweep(2, primary.copies) is Swept.SOME_ENTRIES
    assert sum(kept(primary)) == 1
    assert primary.lane.sweep(2, primary.copies) is Swept.ALL
    assert kept(primary) == [0, 0]


def test_a_sweep_looks_at_so_many_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "SWEPT_MAPS", 2)
    primary = Primary()
    for name in ("m", "n"):
        expiring(primary, 0, name)
    expiring(primary, 1)
    primary.out.now_ns += 5 * MILLISECOND
    assert primary.lane.sweep(100, primary.copies) is Swept.SOME_MAPS
    assert kept(primary) == [0, 1]
    assert primary.lane.sweep(100, primary.copies) is Swept.ALL
    assert kept(primary) == [0, 0]


def test_a_map_that_moves_is_not_swept_and_others_are() -> None:
    primary = Primary()
    for name in ("m", "n"):
        expiring(primary, 0, name)
    mark = encode_move(MoveMark(7, MarkKind.PAUSED, 1))
    primary.copies[0].open(MOVES_MAP).state.store(b"m", mark, 0, 0, 0, 0)
    primary.out.now_ns += 5 * MILLISECOND
    primary.lane.sweep(100, primary.copies)
    assert primary.copies[0].maps["m"].state.entries == {b"0": b"v"}
    assert primary.copies[0].maps["n"].state.entries == {}


# -- what leaves a buffer


def test_what_is_open_is_counted() -> None:
    primary = Primary()
    copy = primary.copies[0]
    primary.lane.set(copy, "m", b"k", b"v", 0, 0, 0)
    primary.lane.rest_on(copy, "m")
    held = primary.copies[1].open("m")
    primary.lane.open_puts = [held]
    assert primary.lane.leftovers["records of an open buffer"] == 3


def test_writes_that_wait_for_long_are_shown_and_those_that_are_known_already_as_they_were() -> None:
    primary = Primary()
    copy, lane = primary.copies[0], primary.lane
    for number in range(9):
        primary.out.now_ns = 100 + number
        lane.set(copy, "m", b"%d" % number, b"v", 0, 0, 0)
        lane.close_batch(lambda known: None)
        lane.flush()
    shown = list(lane.batches.open_since(200, {}))
    assert [operation.since_ns for operation in shown] == [100, 101, 102, 103], "a few at a time"
    assert [operation.since_ns for operation in lane.batches.open_since(101, {})] == [100, 101]
    assert list(lane.batches.open_since(99, {})) == []
    followed = {(one.mark, one.since_ns): one for one in shown}
    again = list(lane.batches.open_since(200, followed))
    assert [operation.since_ns for operation in again] == list(range(100, 108))
    assert again[0] is shown[0]
    done: list[bool] = []
    waiting = Primary()
    waiting.lane.set(waiting.copies[0], "m", b"k", b"v", 0, 0, 0)
    waiting.lane.close_batch(done.append)
    assert len(list(waiting.lane.batches.open_since(0, {}))) == 1
    waiting.acknowledge()
    assert (done, list(waiting.lane.batches.open_since(0, {}))) == ([True], [])


def test_a_buffer_without_anything_is_done_at_once_also_for_a_client_that_collects_acknowledgements() -> None:
    done: list[bool] = []
    lane = Primary().lane
    lane.close_batch(done.append)
    lane.close_batch_for(done.append, b"client", [1])
    assert done == [True, True]
    assert lane.waiting == 0
