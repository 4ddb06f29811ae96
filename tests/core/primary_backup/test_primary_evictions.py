"""Entries that go because their map exceeds its limit: which ones, when, and who learns of it."""

from __future__ import annotations

import pytest

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Send
from holdfast.core.journal.log import Log
from holdfast.core.messages import Replicate
from holdfast.core.model.decisions import LockChanges
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.operations import DEFAULT_TTL, EntryEvent, EventKind
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.model.transactions import KeyLock, lock_key
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane, Swept
from holdfast.core.primary_backup.primary_evictions import MOST
from holdfast.core.store.entry_mapping import NewEntries
from holdfast.core.store.entry_table import EntryTable
from holdfast.core.store.partition_copy import PartitionCopy

ME, BEN = MemberId("me"), MemberId("ben")
WAYS = pytest.mark.parametrize("entries", [dict, EntryTable])


class Serving:
    """The primary of two partitions with one backup. Clients write to the first one."""

    def __init__(self, entries: NewEntries = dict, **maps: MapSettings) -> None:
        self.out = Outbox()
        self.settings = Settings(
            partitions=PartitionSettings(count=2), maps={"default": MapSettings(backups=1), **maps}
        )
        self.lane = Lane(ME, self.settings, self.out, Log(self.out, on=False))
        self.lane.attach([Assignment(1, (ME, BEN))] * 2)
        self.copies = [PartitionCopy(partition, 0, entries=entries) for partition in (0, 1)]
        self.lane.serving = list(self.copies)
        self.lane.leading = list(self.copies)
        self.lane.evictions.renew()
        self.heard: list[EntryEvent] = []
        self.lane.heard = self.heard.append

    def put(self, *keys: str, name: str = "m", value: bytes = b"value") -> None:
        """One read buffer, a second after what was before."""
        self.out.now_ns += SECOND
        for key in keys:
            self.lane.set(self.copies[0], name, key.encode(), value, DEFAULT_TTL, DEFAULT_TTL, 0)
        self.end_buffer()

    def read(self, key: str) -> bytes | None:
        return self.lane.read(self.copies[0], "m", key.encode())

    def end_buffer(self) -> None:
        if self.lane.end_buffer() is False:
            self.lane.close_batch(lambda known: None)

    def keys(self, name: str = "m") -> set[str]:
        return {key.decode() for key in self.copies[0].maps[name].state.entries}

    def sent(self) -> list[Record]:
        self.lane.flush()
        messages = [one.message for one in self.out.take() if isinstance(one, Send)]
        return [
            record
            for message in messages
            if isinstance(message, Replicate)
            for section in message.sections
            for record in section.all_records()
        ]


def numbered(count: int, start: int = 0) -> list[str]:
    return [f"k{number:05}" for number in range(start, start + count)]


@WAYS
@pytest.mark.rule("primary_backup/V-2")
def test_a_buffer_that_exceeds_the_share_evicts_in_the_same_batch(entries: NewEntries) -> None:
    serving = Serving(entries, m=MapSettings(eviction="random", max_size=20))
    serving.put(*numbered(10))
    assert len(serving.keys()) == 10, "two partitions share 20 entries"
    serving.sent()
    serving.put(*numbered(3, 10))
    assert len(serving.keys()) == 10
    records = serving.sent()
    assert [record.change for record in records] == [Change.SET] * 3 + [Change.REMOVE] * 3
    gone = {record.key.decode() for record in records[3:]}
    assert serving.keys() == set(numbered(13)) - gone
    assert serving.lane.evictions.removed.evicted.by_map == {"m": 3}


@WAYS
def test_lru_keeps_what_is_read(entries: NewEntries) -> None:
    serving = Serving(entries, m=MapSettings(eviction="lru", max_size=20))
    for key in numbered(10):
        serving.out.now_ns += SECOND
        serving.put(key)
    for key in numbered(5):
        serving.out.now_ns += SECOND
        assert serving.read(key) == b"value"
    serving.out.now_ns += SECOND
    serving.put(*numbered(5, 10))
    assert serving.keys() == {*numbered(5), *numbered(5, 10)}


@pytest.mark.rule("primary_backup/V-1")
def test_maps_without_eviction_lose_nothing() -> None:
    serving = Serving(n=MapSettings(eviction="random", max_size=2))
    serving.put(*numbered(300))
    serving.put(*numbered(300), name="__internal")
    serving.put(*numbered(300), name="n")
    serving.lane.sweep(1000, serving.lane.leading)
    assert serving.keys() == serving.keys("__internal") == set(numbered(300))
    assert len(serving.keys("n")) < 300


@WAYS
@pytest.mark.rule("primary_backup/V-1")
def test_locked_entries_stay(entries: NewEntries) -> None:
    serving = Serving(entries, m=MapSettings(eviction="lru", max_size=8))
    serving.put(*numbered(4))
    copy = serving.copies[0]
    lock = KeyLock(b"t" * 16, ME)
    copy.locks.change(LockChanges([(lock_key("m", key.encode()), lock) for key in numbered(3)]))
    serving.put("new")
    assert serving.keys() == {*numbered(3), "new"}
    copy.locks.change(LockChanges([(lock_key("m", b"new"), lock)]))
    serving.put("newer")
    assert serving.keys() == {*numbered(3), "new"}, "the only entry that is not locked goes"
    copy.locks.change(LockChanges([(lock_key("m", b"last"), lock)]))
    serving.put("last")
    assert serving.keys() == {*numbered(3), "new", "last"}, "nothing may go, so the limit is exceeded"
    assert serving.lane.sweep(1000, serving.lane.leading) is Swept.ALL, "and sweeps do not repeat at once"


@WAYS
@pytest.mark.rule("primary_backup/V-2")
def test_one_sweep_evicts_a_bounded_number(entries: NewEntries) -> None:
    serving = Serving(entries)
    serving.put(*numbered(500))
    serving.settings.maps["m"] = MapSettings(eviction="random", max_size=100)
    serving.lane.settings_changed()
    assert serving.lane.sweep(1000, serving.lane.leading) is Swept.SOME_ENTRIES
    assert len(serving.keys()) == 500 - MOST
    for _ in range(5):
        serving.lane.sweep(1000, serving.lane.leading)
    assert len(serving.keys()) == 50
    assert serving.lane.sweep(1000, serving.lane.leading) is Swept.ALL


@WAYS
def test_bytes_are_measured_from_a_sample(entries: NewEntries) -> None:
    serving = Serving(entries, m=MapSettings(eviction="random", max_bytes=20_000))
    serving.put(*numbered(10), value=bytes(994))
    serving.lane.sweep(1000, serving.lane.leading)
    serving.put(*numbered(30, 10), value=bytes(994))
    assert len(serving.keys()) == 10, "each partition may hold 10000 bytes"
    serving.put(*numbered(5), value=bytes(94))
    serving.lane.sweep(1000, serving.lane.leading)
    serving.put(*numbered(20, 50), value=bytes(94))
    assert 10 < len(serving.keys()) <= 30, "smaller entries leave room for more"


def test_one_entry_stays_in_each_partition_however_small_the_limit() -> None:
    serving = Serving(m=MapSettings(eviction="random", max_size=1))
    serving.put("a")
    assert serving.keys() == {"a"}


@WAYS
def test_listeners_learn_that_an_entry_was_evicted(entries: NewEntries) -> None:
    serving = Serving(entries, m=MapSettings(eviction="lru", max_size=2))
    serving.lane.listening["m"] = 1
    serving.put("a")
    serving.out.now_ns += SECOND
    serving.put("b")
    assert [(one.kind, one.key, one.old) for one in serving.heard] == [
        (EventKind.ADDED, b"a", None),
        (EventKind.ADDED, b"b", None),
        (EventKind.EVICTED, b"a", b"value"),
    ]


def test_a_change_stream_gets_the_removal() -> None:
    serving = Serving(m=MapSettings(eviction="lru", max_size=2, changes_bytes=1 << 16))
    serving.put("a")
    serving.out.now_ns += SECOND
    serving.put("b")
    records = serving.sent()
    assert [(record.change, record.key, record.old) for record in records][-1] == (
        Change.REMOVE,
        b"a",
        b"value",
    )


def test_entries_without_a_backup_are_evicted_too() -> None:
    serving = Serving(m=MapSettings(backups=0, eviction="random", max_size=4))
    serving.put(*numbered(5))
    assert len(serving.keys()) == 2
    assert serving.sent() == []
