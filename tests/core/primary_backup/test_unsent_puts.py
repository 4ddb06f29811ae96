"""What compiled code stores reaches the backups as what `Lane.set` stores: the same updates, waited for by the same
batches. Here plain Python does what the compiled code does, so that this is tried without a compiler, too.
"""

from __future__ import annotations

import gc
import random
import weakref
from operator import attrgetter, itemgetter
from struct import pack, unpack
from typing import Any

import pytest
from tests.core.primary_backup.test_lane import BEN, CAL, DAN, ME, PARTITIONS, JournalMode, Primary
from tests.sampled_cases import sampled

from holdfast.core.effects import Append, Send
from holdfast.core.messages import Replicate
from holdfast.core.model.journal_entries import Wrote, WrotePuts
from holdfast.core.model.levels import HIGHEST, LOWEST, FeatureLevels
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import (
    NO_FORMER,
    NOTE,
    PACKED_MOST,
    PAIR_BYTES,
    Change,
    Puts,
    Record,
    one_by_one,
)
from holdfast.core.primary_backup import packed_puts_cy
from holdfast.core.primary_backup.ack_batch import AckBatch
from holdfast.core.primary_backup.backlog import RECORD_BYTES
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.packed_puts_cy import PackedPuts
from holdfast.core.store.digest import RangeDigests
from holdfast.core.store.entry_mapping import Packing
from holdfast.core.store.expiry import Expiry
from holdfast.core.store.heaped_endings import HeapedEndings
from holdfast.core.store.map_state import FOLD_AT
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica, UnsentPuts
from holdfast.runtime.data_lane import data_lane
from holdfast_lab.check.readable import unreadable

WAYS = [
    pytest.param(packed_puts_cy, id="plain"),
    pytest.param(
        data_lane().ways.puts,
        id="compiled",
        marks=pytest.mark.skipif(data_lane().kind == "python", reason=data_lane().why or "compiled"),
    ),
]
"""From the end of a read buffer to the backup."""


class Packed(dict[bytes, bytes]):
    """A dictionary that takes packed entries, as a table does."""

    sums: list[int] | None = None

    def put_all(
        self, sizes: bytes, data: bytes, touched: dict[bytes, bytes | None] | None, counts: bool
    ) -> None:
        lengths = unpack(f"<{len(sizes) // 4}I", sizes)
        at = 0
        for key_size, value_size in zip(lengths[::2], lengths[1::2], strict=True):
            key, end = data[at : at + key_size], at + key_size + value_size
            if end > len(data):
                raise ValueError("packed entries that are longer than what there is")
            old, noted = self.get(key), touched is not None and key in touched
            self[key] = data[at + key_size : end]
            at = end
            if counts and not noted:
                self.absorb({key: old})
            elif touched is not None and not noted:
                touched[key] = old

    def pack(
        self, keys: list[bytes], begin: int, limit: int, *, some: bool
    ) -> tuple[bytes, bytes, int, bool]:
        raise NotImplementedError("nothing of it travels")

    def digests(self) -> list[int]:
        return RangeDigests.digests(dict(self))

    def keep_digests(self, sums: list[int] | None) -> None:
        self.sums = sums

    def kept_digests(self) -> list[int] | None:
        return self.sums

    def absorb(self, touched: dict[bytes, bytes | None]) -> None:
        if self.sums is not None:
            kept = RangeDigests({})
            kept.sums = self.sums
            kept.absorb(touched, dict(self))

    def packing(self) -> Packing:
        raise NotImplementedError("nothing of it travels")

    def sample(self, begin: int, count: int) -> list[bytes]:
        raise NotImplementedError("nothing of it is evicted")

    def keys_in(self, sizes: bytes, data: bytes) -> list[bytes]:
        raise NotImplementedError("nothing of it is filled")

    def endings(self) -> tuple[dict[bytes, Expiry], HeapedEndings]:
        heaped = HeapedEndings()
        return heaped.expiries, heaped


def put(lane: Lane, copy: PartitionCopy, name: str, key: bytes, value: bytes) -> None:
    """As `compiled_lane` stores an ordinary entry in a table."""
    held = copy.maps.get(name)
    unsent = held.unsent if held is not None else None
    if held is None or unsent is None or len(value) >= PACKED_MOST:
        lane.set(copy, name, key, value, 0, 0, 0)
        return
    pack_update(lane, held, unsent, key, value)
    held.state.entries[key] = value


def remove(lane: Lane, copy: PartitionCopy, name: str, key: bytes) -> None:
    """As `compiled_lane` removes an entry of a map with a change stream."""
    held = copy.maps.get(name)
    unsent = held.unsent if held is not None else None
    if held is None or unsent is None or not held.changes or key not in held.state.entries:
        lane.remove(copy, name, key)
        return
    pack_update(lane, held, unsent, key, None)
    held.state.entries.pop(key)


def pack_update(lane: Lane, held: MapReplica, unsent: UnsentPuts, key: bytes, value: bytes | None) -> None:
    old = held.state.entries.get(key)
    held.updates.next()
    unsent.sizes += pack("<2I", len(key), len(value or b""))
    unsent.data += key + (value or b"")
    if held.changes:
        change = Change.REMOVE if value is None else Change.SET
        unsent.notes += NOTE.pack(change, NO_FORMER if old is None else len(old), lane.wall_ms(), 0, 0)
        unsent.data += old or b""
    if not unsent.opened:
        unsent.opened = True
        lane.open_puts.append(held)


def said(message: Replicate) -> list[tuple[int, int, int, dict[str, list[Record]]]]:
    """What it says of each partition, of each map in the order in which it says it, once."""
    found = []
    for section in message.sections:
        of_maps: dict[str, list[Record]] = {}
        for record in section.all_records():
            records = of_maps.setdefault(record.map, [])
            if record not in records:
                records.append(record)
        found.append((section.partition, section.version, section.term, of_maps))
    return sorted(found, key=itemgetter(0))


def of_maps(written: Append) -> dict[tuple[int, int, str], list[Record]]:
    """What a group says of each partition, term and map, in order."""
    found: dict[tuple[int, int, str], list[Record]] = {}
    for entry in written.entries:
        assert isinstance(entry, Wrote | WrotePuts)
        for record in entry.records:
            found.setdefault((entry.partition, entry.term, record.map), []).append(record)
    return found


class Pair:
    """Two primaries to which the same happens; one of them stores packed, and settles what nobody waits for. So its
    batches have other numbers.
    """

    def __init__(
        self, level: int = HIGHEST, puts: PackedPuts = packed_puts_cy, journal: JournalMode = "off"
    ) -> None:
        """`puts`: the way of the one that stores packed."""
        self.level = level
        self.plain, self.packed = Primary(journal=journal), Primary(puts=puts, journal=journal)
        self.plain.out.level = self.packed.out.level = level
        self.packed.copies = [PartitionCopy(partition, 0, entries=Packed) for partition in range(PARTITIONS)]
        self.packed.lane.serving = list(self.packed.copies)
        for one in (self.plain, self.packed):
            one.out.epoch_ms = 1_700_000_000_000
        self.buffers = self.settled = 0
        self.on_their_way: list[tuple[Any, Replicate, Replicate]] = []

    def store(self, partition: int, name: str, key: bytes, value: bytes) -> None:
        self.plain.lane.set(self.plain.copies[partition], name, key, value, 0, 0, 0)
        put(self.packed.lane, self.packed.copies[partition], name, key, value)

    def remove(self, partition: int, name: str, key: bytes) -> None:
        self.plain.lane.remove(self.plain.copies[partition], name, key)
        remove(self.packed.lane, self.packed.copies[partition], name, key)

    def close(self) -> None:
        self.buffers += 1
        name = str(self.buffers)
        self.plain.lane.close_batch(lambda known: self.plain.tell(name, known))
        if self.packed.lane.settle():
            self.settled += 1
            self.packed.tell(name, known=True)
        else:
            self.packed.lane.close_batch(lambda known: self.packed.tell(name, known))

    def retarget(self, partition: int, *replicas: Any) -> None:
        """What was packed together is sent again together, also with what somebody has acknowledged already."""
        sent = []
        for one in (self.plain, self.packed):
            one.row(partition, *replicas)
            sent.append([effect for effect in one.out.take() if isinstance(effect, Send)])
        for first, second in zip(*sent, strict=True):
            assert isinstance(first.message, Replicate)
            assert isinstance(second.message, Replicate)
            assert first.to == second.to
            for less, more in zip(said(first.message), said(second.message), strict=True):
                assert less[:3] == more[:3]
                assert all(record in more[3][name] for name, records in less[3].items() for record in records)
                for records in (*less[3].values(), *more[3].values()):
                    assert records == sorted(records, key=attrgetter("counter")), "older ones come first"
            self.on_their_way.append((first.to, first.message, second.message))

    def flush(self) -> None:
        """What leaves is the same, but for its form."""
        plain, packed = self.plain.sent(), self.packed.sent()
        assert plain.keys() == packed.keys()
        for to in plain:
            (one,), (other,) = plain[to], packed[to]
            assert said(one) == said(other)
            assert unreadable(other, FeatureLevels(1, self.level)) == ""
            self.on_their_way.append((to, one, other))
        self.written()

    def written(self) -> None:
        """What is written down is the same, but for its form; it becomes durable with what comes after it."""
        (mine, theirs) = (one.appended for one in (self.plain, self.packed))
        assert [(one.number, one.urgent) for one in mine] == [(one.number, one.urgent) for one in theirs]
        assert list(map(of_maps, mine)) == list(map(of_maps, theirs))
        if mine:
            for one in (self.plain, self.packed):
                one.log.on_durable(one.appended[-1].number - len(one.appended) % 2)
            self.compare()

    def acknowledge(self, at: int) -> None:
        to, one, other = self.on_their_way.pop(at)
        self.plain.acknowledge(to, one)
        self.packed.acknowledge(to, other)
        self.compare()

    def compare(self) -> None:
        assert self.plain.told == self.packed.told
        for one, other in zip(self.plain.copies, self.packed.copies, strict=True):
            assert one.maps.keys() == other.maps.keys()
            for name in one.maps:
                mine, theirs = one.maps[name], other.maps[name]
                assert (mine.counter, mine.state.entries) == (theirs.counter, theirs.state.entries)
                if mine.tail is not None and theirs.tail is not None and theirs.tail.end == mine.tail.end:
                    assert theirs.tail.since(mine.tail.start) == mine.tail.since(mine.tail.start)


@pytest.mark.rule("store/U-1")
@pytest.mark.rule("store/U-2")
@pytest.mark.parametrize("puts", WAYS)
@pytest.mark.parametrize("seed", sampled(range(100), 3))
def test_the_same_leaves_and_the_same_is_waited_for(seed: int, puts: PackedPuts) -> None:
    draw = random.Random(seed)
    # In every fifth run somebody cannot read what is packed (membership/L-4).
    pair = Pair(LOWEST if seed % 5 == 4 else HIGHEST, puts, ("off", "lazy", "sync")[seed % 3])
    for _ in range(150):
        partition, name = draw.randrange(PARTITIONS), draw.choice("mnc")
        key = b"%d" % draw.randrange(5)
        match draw.choices(range(6), [12, 2, 6, 3, 1, 3])[0]:
            case 0:
                size = PACKED_MOST if draw.random() < 0.05 else draw.randrange(20)
                pair.store(partition, name, key, b"v" * size)
            case 1:
                pair.remove(partition, name, key)
            case 2:
                pair.close()
            case 3:
                pair.flush()  # also while a buffer is open
            case 4:
                pair.retarget(partition, ME, *draw.sample((BEN, CAL, DAN), draw.choice([0, 1, 1])))
            case _ if pair.on_their_way:
                pair.acknowledge(draw.randrange(len(pair.on_their_way)))
            case _:
                pass
        pair.compare()
    pair.close()
    pair.flush()
    while pair.on_their_way:
        pair.acknowledge(0)
    for one in (pair.plain, pair.packed):
        one.log.on_durable(len(one.appended))
    assert set(pair.packed.told.values()) == {True}, "whatever was written is known to be held"
    assert len(pair.packed.told) == pair.buffers
    assert not any(pair.packed.lane.leftovers.values())
    assert pair.settled


@pytest.mark.parametrize("puts", WAYS)
def test_the_stores_of_several_buffers_are_in_their_batch_once(puts: PackedPuts) -> None:
    pair = Pair(puts=puts)
    pair.store(0, "m", b"first", b"value")
    pair.close()
    pair.flush()
    for number in range(3):
        pair.store(0, "m", b"%d" % number, b"v")
        pair.close()
    pair.flush()
    _, last = pair.packed.lane.batches_of(0)
    assert [update.count for _, update in last.records[0] if isinstance(update, Puts)] == [3]


@pytest.mark.parametrize("puts", WAYS)
def test_observers_of_a_primary_are_told_now_and_then(puts: PackedPuts) -> None:
    """What they have not been told of keeps former values alive."""
    pair = Pair(puts=puts)
    pair.store(0, "m", b"first", b"value")
    pair.close()
    pair.flush()
    state = pair.packed.copies[0].maps["m"].state
    before = state.digests().copy()
    assert state.touched is not None
    for number in range(FOLD_AT):
        state.touched[b"%d" % number] = None
        pair.store(0, "m", b"%d" % number, b"v")
    pair.close()
    assert len(state.touched) == FOLD_AT
    pair.flush()
    assert not state.touched
    assert state.digests() != before
    assert state.digests() == state.range_digests()


def test_two_maps_of_a_partition_keep_what_is_their_own() -> None:
    primary = Primary(async_backups=1)
    primary.rows[0] = Assignment(1, (ME, BEN, CAL))
    for name in ("m", "n"):
        primary.lane.set(primary.copies[0], name, b"key", b"value", 1000, 0, 0)
    primary.lane.close_batch(lambda known: None)
    for messages in primary.sent().values():
        assert [record.map for section in messages[0].sections for record in section.all_records()] == [
            "m",
            "n",
        ]
    for name in ("m", "n"):
        tail = primary.copies[0].maps[name].tail
        assert tail is not None
        assert (tail.count, [record.map for _, record in tail.since(0)]) == (1, [name])


def waiting() -> tuple[MapReplica, UnsentPuts, list[Any]]:
    pair = Pair()
    pair.store(0, "m", b"first", b"value")
    pair.store(0, "m", b"key", b"v")
    held = pair.packed.copies[0].maps["m"]
    unsent = held.unsent
    assert unsent is not None
    part: list[Any] = []
    unsent.parts.append(part)
    return held, unsent, part


def closed(held: MapReplica) -> int:
    """A read buffer has ended: how many bytes it has brought."""
    return packed_puts_cy.close(AckBatch(1, 0), [held], {}, [], set())


@pytest.mark.rule("store/U-2")
def test_what_a_buffer_has_not_ended_with_stays() -> None:
    held, unsent, part = waiting()
    assert unsent.take_closed(held, 2) is None
    assert closed(held) == RECORD_BYTES * unsent.count + len(unsent.data)
    assert closed(held) == 0
    unsent.sizes += pack("<2I", 3, 5)
    unsent.data += b"oldvalue"
    unsent.opened = True
    taken = unsent.take_closed(held, 3)
    assert taken is not None
    assert [record.counter for record in taken.records()] == [2]
    assert [record for _, one in part for record in one_by_one((one,))] == taken.records()
    assert (unsent.count, len(unsent.sizes)) == (1, PAIR_BYTES)
    assert closed(held) == RECORD_BYTES + 8
    rest = unsent.take_closed(held, 3)
    assert rest is not None
    assert rest.records() == [Record("m", 3, Change.SET, b"old", b"value")]
    assert unsent.take_closed(held, 3) is None


@pytest.mark.skipif(data_lane().kind == "python", reason=f"there is no table: {data_lane().why}")
@pytest.mark.parametrize(("observed", "counts"), [(False, False), (True, False), (True, True)])
def test_a_table_takes_packed_entries_as_the_dictionary_does(*, observed: bool, counts: bool) -> None:
    draw = random.Random(1)
    table: Any = data_lane().ways.entries()
    reference = Packed()
    for one in (table, reference):
        one.keep_digests(one.digests())
    for _ in range(300):
        pairs = [
            (b"%d" % draw.randrange(50), b"v" * draw.choice([0, 1, 40, 700, 5000]))
            for _ in range(draw.randrange(6))
        ]
        sizes = b"".join(pack("<2I", len(key), len(value)) for key, value in pairs)
        data = b"".join(key + value for key, value in pairs)
        # Some keys were changed before in a way that is not counted.
        noted = {b"%d" % draw.randrange(50): b"" for _ in range(draw.choice([0, 0, 3]))} if observed else {}
        seen: list[dict[bytes, bytes | None] | None] = []
        for one in (table, reference):
            touched = {key: one.get(key) for key in noted} if observed else None
            for key, value in noted.items():
                one[key] = value
            one.put_all(sizes, data, touched, counts)
            seen.append(touched)
        assert seen[0] == seen[1]
        assert table == reference
        assert table.kept_digests() == reference.kept_digests()
        for one, touched in zip((table, reference), seen, strict=True):
            one.absorb(touched or {})
        assert table.kept_digests() == reference.kept_digests()
        assert not observed or table.kept_digests() == table.digests()
    for sizes, data in (
        (pack("<2I", 1, 2), b"kv"),
        (pack("<2I", 2**32 - 1, 2**32 - 1), b"kv"),
        (pack("<2I", 1, 1), b""),
    ):
        with pytest.raises(ValueError, match="longer"):
            table.put_all(sizes, data, None, counts)


def test_what_is_dropped_goes_without_the_collector() -> None:
    """Objects that hold each other would stay: a member's collector hardly looks at what is old."""
    pair = Pair()
    pair.store(0, "m", b"first", b"value")
    pair.store(0, "m", b"key", b"v")
    pair.close()
    pair.flush()
    while pair.on_their_way:
        pair.acknowledge(0)
    entries = weakref.ref(pair.packed.copies[0].maps["m"].state.entries)
    gc.disable()
    try:
        pair.packed.copies.clear()
        pair.packed.lane.serving.clear()
        assert entries() is None
    finally:
        gc.enable()
