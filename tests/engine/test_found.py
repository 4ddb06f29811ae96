"""What a restart makes of a directory that was laid out by hand, block by block: what it reads, what it holds, and what
it hands over to the writer.
"""

from __future__ import annotations

import msgspec
import pytest
from tests.engine.lives import SMALL, TERM, Life
from tests.engine.memory_disk import MemoryDisk, Platter

from holdfast.core.events import CheckpointWanted
from holdfast.core.journal.recovery import Recovered
from holdfast.core.model.journal_entries import (
    Began,
    Checkpointed,
    Dropped,
    Entry,
    MapSnapshot,
    Snapshot,
    Wrote,
)
from holdfast.core.model.records import Change, Record
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.engine.checkpoints import PartitionFiles
from holdfast.engine.ports import DiskFailed
from holdfast.engine.restore import FORMAT, IDENTITY, Found, IdentityFile, restore
from holdfast.wire.checkpoint import encode_checkpoint
from holdfast.wire.journal_blocks import Chain, seed_of, segment_name

STORE = "store-1"
SEGMENT_BYTES = 8192 + 100
"""Not a multiple of a piece."""


class Worn(MemoryDisk):
    """Some places of some files cannot be read."""

    def __init__(self, platter: Platter) -> None:
        super().__init__(platter)
        self.worn: list[tuple[str, int]] = []

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        data = super().read(name, offset, size)
        if any(file == name and offset <= place < offset + len(data) for file, place in self.worn):
            raise DiskFailed("worn out")
        return data


class Directory:
    """Lays files out as a writer would have."""

    def __init__(self, whole: bool = True) -> None:
        self.platter = Platter()
        self.worn: list[tuple[str, int]] = []
        self.chain = Chain(STORE)
        self.places: dict[int, tuple[str, int, int]] = {}
        """By block: its file, where it begins, and its bytes."""
        self.put(IDENTITY, msgspec.json.encode(IdentityFile(FORMAT, STORE, 1, "one", whole=whole)))

    def put(self, name: str, data: bytes) -> None:
        self.platter.files[name] = bytearray(data)
        self.platter.seen[name] = bytearray(data)

    def begin(self, *entries: Entry, chain: Chain | None = None) -> str:
        """Begin a segment with a block of these."""
        name = self.header(chain)
        self.write(*entries, chain=chain)
        return name

    def header(self, chain: Chain | None = None) -> str:
        """Begin a segment without any block."""
        chain = chain or self.chain
        chain.durable(chain.lsn - 1)
        header = chain.begin(chain.lsn * 1000)
        self.put(chain.segment, header + bytes(SEGMENT_BYTES - len(header)))
        return chain.segment

    def write(self, *entries: Entry, chain: Chain | None = None) -> int:
        """Write a block of these, which proves those before it. Answers its lsn."""
        chain = chain or self.chain
        chain.durable(chain.lsn - 1)
        lsn, offset = chain.lsn, chain.offset
        data = chain.block(entries)
        self.places[lsn] = (chain.segment, offset, len(data))
        for files in (self.platter.files, self.platter.seen):
            files[chain.segment][offset : offset + len(data)] = data
        return lsn

    def checkpoint(self, partition: int, lsn: int, **entries: bytes) -> str:
        """A checkpoint of a partition after this block: of one map, with one update for each of these entries."""
        data = self.snapshot(partition, **entries)
        name, file = encode_checkpoint(data, lsn, STORE)
        self.put(name, file)
        return name

    @staticmethod
    def snapshot(partition: int, **entries: bytes) -> Snapshot:
        counter = UpdateCounter(len(entries))
        keys = [key.encode() for key in entries]
        taken = MapSnapshot("m", [(TERM, 0)], counter.encode(), keys, list(entries.values()))
        return Snapshot(partition, 0, [taken])

    def damage(self, name: str, at: int) -> None:
        for files in (self.platter.files, self.platter.seen):
            files[name][at] ^= 1

    def damage_block(self, lsn: int) -> None:
        name, offset, size = self.places[lsn]
        self.damage(name, offset + size - 1)

    def remove(self, name: str) -> None:
        for files in (self.platter.files, self.platter.seen):
            del files[name]

    def bytes_of(self, *lsns: int) -> int:
        return sum(self.places[lsn][2] for lsn in lsns)

    def open(self) -> tuple[Found, Recovered]:
        disk = Worn(self.platter)
        disk.worn = self.worn
        return restore(
            disk,
            SMALL,
            name="one",
            uuid="member",
            new_id=lambda: "new",
            now_ns=5_000_000_000,
            wall_ms=1_700_000_000_000,
        )


def wrote(partition: int, number: int, key: str, value: bytes = b"v") -> Wrote:
    return Wrote(partition, TERM, [Record("m", number, Change.SET, key.encode(), value)])


def held(recovered: Recovered) -> dict[int, dict[bytes, bytes]]:
    return {
        partition: {key: value for each in copy.maps.values() for key, value in each.state.entries.items()}
        for partition, copy in recovered.copies.items()
    }


def read(found: Found) -> list[str]:
    """The segments that the restart has read."""
    return [segment.name for segment in found.segments.all if segment.indexed]


# -- where reading begins


def three_segments() -> Directory:
    """What a restart needs of the first two of three segments is in a checkpoint, of which the third one tells."""
    made = Directory()
    made.begin(Began(0, 0), wrote(0, 1, "a"))
    made.write()
    made.begin()
    made.write()
    file = made.checkpoint(0, 1, a=b"v")
    made.begin(Checkpointed(0, 4, file))
    made.write(wrote(0, 2, "b"))
    return made


def test_damage_of_what_a_checkpoint_holds_costs_nothing() -> None:
    made = three_segments()
    made.damage_block(1)
    made.damage_block(2)
    made.damage_block(3)
    found, recovered = made.open()
    assert held(recovered) == {0: {b"a": b"v", b"b": b"v"}}
    assert (recovered.damage, recovered.uncertain, recovered.whole) == ([], {}, True)
    assert (found.lsn, found.start_lsn, found.last) == (7, 5, segment_name(5))
    assert read(found) == [segment_name(5)]
    assert found.journal_bytes == made.bytes_of(5, 6)
    assert found.void == []
    old = found.segments.all[0]
    assert (old.first_lsn, old.size, old.wall_ms) == (1, SEGMENT_BYTES, 1000)
    assert old.seed == seed_of(STORE, 1, bytes(16))


def test_what_is_needed_of_an_older_segment_is_read_from_there_on() -> None:
    made = Directory()
    made.begin(Began(0, 0))
    made.write(wrote(0, 1, "a"))
    made.begin(Began(1, 0))
    made.write()
    made.begin(Checkpointed(0, 2, made.checkpoint(0, 2, a=b"v")), Checkpointed(1, 2, ""))
    made.write(wrote(1, 1, "b"))
    made.damage_block(1)
    found, recovered = made.open()
    assert held(recovered) == {0: {b"a": b"v"}, 1: {b"b": b"v"}}
    assert recovered.whole
    assert (read(found), found.start_lsn) == ([segment_name(3), segment_name(5)], 5)
    assert found.checkpoints.kept[1].clean_lsn == 2
    assert found.checkpoints.kept[1].dirty is not None
    assert found.checkpoints.kept[1].dirty[0] == 3


def test_a_segment_with_a_damaged_header_is_read_with_the_one_before_it() -> None:
    made = three_segments()
    made.damage(segment_name(5), 3)
    found, recovered = made.open()
    assert held(recovered) == {0: {b"a": b"v", b"b": b"v"}}
    assert len(recovered.damage) == 1
    assert recovered.whole, "no block is lost"
    assert found.segments.all[-1].leans
    assert [segment.first_lsn for segment in found.segments.all] == [1, 3, 5]


def test_a_segment_of_another_store_says_nothing_of_ours() -> None:
    made = three_segments()
    other = Chain("another", 9, bytes(16))
    made.begin(Checkpointed(0, 8, ""), chain=other)
    found, recovered = made.open()
    assert found.start_lsn == 5
    assert held(recovered) == {0: {b"a": b"v", b"b": b"v"}}
    assert "another" in recovered.damage[0]
    assert not recovered.whole


def test_what_another_store_left_as_history_is_not_ours() -> None:
    made = three_segments()
    made.header(Chain("another"))
    found, recovered = made.open()
    assert found.segments.all[0].seed == b""
    assert held(recovered) == {0: {b"a": b"v", b"b": b"v"}}
    assert recovered.whole


def test_segments_stay_in_their_order_though_one_cannot_be_read() -> None:
    made = Directory()
    made.begin(Began(0, 0))
    made.write(wrote(0, 1, "a"))
    unreadable = made.begin()
    made.write()
    made.begin(Checkpointed(0, 0, ""))
    made.write()
    made.damage(unreadable, 3)
    made.damage_block(3)
    made.damage_block(4)
    found, recovered = made.open()
    assert [segment.first_lsn for segment in found.segments.all] == [1, 3, 5]
    assert [segment.wall_ms for segment in found.segments.all] == [1000, 0, 5000]
    assert held(recovered) == {0: {b"a": b"v"}}
    assert list(recovered.uncertain) == [0]
    assert found.void == []


def test_a_segment_that_was_begun_and_has_no_block_is_begun_anew() -> None:
    made = Directory()
    made.begin(Began(0, 0), wrote(0, 1, "a"))
    assert made.open()[0].last == segment_name(1)
    empty = made.header()
    found, recovered = made.open()
    assert (found.lsn, found.void, found.last) == (2, [empty], "")
    assert (held(recovered), recovered.damage) == ({0: {b"a": b"v"}}, [])
    life = Life(made.platter).settle()
    life.durably(life.put(0, "b", b"v"))
    assert empty in life.disk.names()
    assert life.broken == []


# -- checkpoints


@pytest.mark.parametrize("there", [[0, 1], [1], []], ids=["both there", "one there", "gone"])
def test_the_checkpoints_of_what_is_held_no_more_are_neither_used_nor_missed(there: list[int]) -> None:
    made = Directory()
    made.begin(Began(0, 0), wrote(0, 1, "a"))
    made.write(Dropped(0))
    files = [made.checkpoint(0, 1, a=b"v"), made.checkpoint(0, 2, a=b"v", b=b"v")]
    kept = made.checkpoint(1, 2, c=b"v")
    made.begin(Checkpointed(0, 2, ""), Checkpointed(1, 2, kept))
    # It was under way when the partition was dropped.
    made.write(Checkpointed(0, 1, files[0]))
    for number in {0, 1}.difference(there):
        made.remove(files[number])
    found, recovered = made.open()
    assert sorted(found.void) == [files[number] for number in there]
    assert held(recovered) == {1: {b"c": b"v"}}
    assert (recovered.uncertain, recovered.whole) == ({}, True)
    assert found.start_lsn == 3


def test_what_is_held_again_after_it_was_dropped_is_used() -> None:
    made = Directory()
    made.begin(Began(0, 0), wrote(0, 1, "a"))
    made.write(Dropped(0))
    old = made.checkpoint(0, 1, a=b"v")
    made.begin(Checkpointed(0, 2, ""))
    made.write()
    again = made.checkpoint(0, 3, z=b"v")
    found, recovered = made.open()
    assert found.void == [old]
    assert held(recovered) == {0: {b"z": b"v"}}
    assert found.checkpoints.kept[0].files == [(3, again)]


def test_a_checkpoint_of_which_the_newest_segment_does_not_tell_yet_is_used() -> None:
    made = Directory()
    made.begin(Began(0, 0), wrote(0, 1, "a"))
    made.begin(Checkpointed(0, 0, ""))
    made.checkpoint(1, 2, b=b"v")
    found, recovered = made.open()
    assert held(recovered) == {0: {b"a": b"v"}, 1: {b"b": b"v"}}
    assert found.void == []


def test_a_checkpoint_that_is_gone_is_missed() -> None:
    made = three_segments()
    (file,) = [name for name in made.platter.files if name.endswith(".parquet")]
    made.remove(file)
    _, recovered = made.open()
    assert recovered.uncertain == {0: "its checkpoint is missing"}
    assert not recovered.whole


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "filled"])
def test_a_first_checkpoint_that_is_gone_is_missed(*, begun: bool) -> None:
    """What is filled from elsewhere has nothing in the journal but the word that there is a checkpoint."""
    made = Directory()
    made.begin(*([Began(0, 0)] if begun else []))
    file = made.checkpoint(0, 1, a=b"v")
    made.write(Checkpointed(0, 1, file))
    assert made.open()[1].uncertain == {}
    made.remove(file)
    assert made.open()[1].uncertain == {0: "its newest checkpoint is missing"}


def test_the_only_checkpoint_that_is_damaged_is_told_and_goes_with_its_partition() -> None:
    made = three_segments()
    (file,) = [name for name in made.platter.files if name.endswith(".parquet")]
    made.damage(file, 50)
    for name in (segment_name(1), segment_name(3)):
        made.remove(name)
    found, recovered = made.open()
    assert recovered.uncertain == {0: "its checkpoint is damaged"}
    assert not recovered.whole
    assert found.checkpoints.kept[0] == PartitionFiles([(1, file)], dirty=(1, 0))
    life = Life(made.platter).settle()
    life.append(Dropped(0))
    life.settle()
    assert file not in life.disk.names()


def test_of_the_only_checkpoint_that_is_damaged_the_journal_makes_up_for_what_it_can() -> None:
    made = three_segments()
    (file,) = [name for name in made.platter.files if name.endswith(".parquet")]
    made.damage(file, 50)
    found, recovered = made.open()
    assert read(found) == [segment_name(first) for first in (1, 3, 5)]
    assert held(recovered) == {0: {b"a": b"v", b"b": b"v"}}
    assert recovered.uncertain == {0: "its checkpoint is damaged"}


def test_what_a_damaged_checkpoint_was_said_to_hold_is_not_said_of_the_one_before() -> None:
    made = Directory()
    made.begin(Began(0, 0), wrote(0, 1, "a"))
    made.checkpoint(0, 1, a=b"v")
    made.write(wrote(0, 2, "b"))
    newest = made.checkpoint(0, 2, a=b"v", b=b"v")
    made.begin(Checkpointed(0, 2, newest))
    made.damage(newest, 50)
    _, recovered = made.open()
    assert held(recovered) == {0: {b"a": b"v", b"b": b"v"}}
    assert recovered.uncertain == {0: "its newest checkpoint is damaged"}


def test_a_copy_that_began_before_the_damaged_checkpoint_may_lack_what_that_held() -> None:
    made = Directory()
    made.begin(Began(0, 0), wrote(0, 1, "a"))
    made.checkpoint(0, 1, a=b"v")
    made.write(Began(0, 0))
    made.write(wrote(0, 1, "b"))
    newest = made.checkpoint(0, 3, filled=b"v")
    made.write()
    made.damage(newest, 50)
    _, recovered = made.open()
    assert held(recovered) == {0: {b"b": b"v"}}
    assert recovered.uncertain == {0: "its newest checkpoint is damaged"}


def test_of_three_checkpoints_the_oldest_goes() -> None:
    made = Directory()
    made.begin(Began(0, 0), wrote(0, 1, "a"))
    oldest = made.checkpoint(0, 1, a=b"v")
    made.write(wrote(0, 2, "b"))
    files = [(2, made.checkpoint(0, 2, a=b"v", b=b"v"))]
    made.write(wrote(0, 3, "c"))
    files.insert(0, (3, made.checkpoint(0, 3, a=b"v", b=b"v", c=b"v")))
    found, recovered = made.open()
    assert found.void == [oldest]
    assert found.checkpoints.kept[0].files == files
    assert held(recovered) == {0: {b"a": b"v", b"b": b"v", b"c": b"v"}}


@pytest.mark.parametrize("known", [3, 4, 9])
def test_a_journal_that_ends_before_its_checkpoints_lacks_something(known: int) -> None:
    made = Directory()
    made.begin(Began(0, 0), wrote(0, 1, "a"))
    made.write(Began(1, 0), wrote(1, 1, "b"))
    made.write(Began(2, 0))
    made.checkpoint(0, known, a=b"v", z=b"v")
    made.checkpoint(2, 3, c=b"v")
    found, recovered = made.open()
    assert held(recovered) == {0: {b"a": b"v", b"z": b"v"}, 1: {b"b": b"v"}, 2: {b"c": b"v"}}
    assert found.lsn == known + 1, "no number is used twice"
    if known == 3:
        assert (recovered.uncertain, recovered.damage, recovered.whole) == ({}, [], True)
    else:
        why = f"the journal ends before block 4, and a checkpoint knows of block {known}"
        assert recovered.damage == [why]
        assert recovered.uncertain == {1: why, 2: why}
        assert not recovered.whole


def test_checkpoints_without_a_journal_are_what_is_left() -> None:
    made = Directory()
    made.checkpoint(0, 5, a=b"v")
    made.checkpoint(1, 2, b=b"v")
    made.checkpoint(2, 0, c=b"v")
    found, recovered = made.open()
    assert found.lsn == 6
    assert held(recovered) == {0: {b"a": b"v"}, 1: {b"b": b"v"}, 2: {b"c": b"v"}}
    assert list(recovered.uncertain) == [0, 1, 2], "blocks after the newest of them may be gone"
    assert not recovered.whole


# -- damage


@pytest.mark.rule("wire/B-4")
def test_of_a_worn_segment_all_is_read_but_the_worn_block() -> None:
    made = Directory()
    name = made.begin(Began(0, 0), wrote(0, 1, "a"))
    made.write(wrote(0, 2, "b", b"v" * 2000))
    made.write(Began(1, 0), wrote(1, 1, "c"))
    made.write(Began(0, 0))
    number = made.write(wrote(0, 1, "d"))
    made.write(wrote(2, 1, "e"))
    made.worn = [(name, made.places[2][1] + 1000)]
    found, recovered = made.open()
    assert held(recovered) == {0: {b"d": b"v"}, 1: {b"c": b"v"}}
    assert recovered.uncertain == {2: "what it held before its records in the journal is missing"}
    (why,) = recovered.damage
    assert "blocks 2 to 2 are lost" in why
    assert not recovered.whole
    assert found.segments.all[0].place(number - 1) == made.places[number][1:]
    assert found.segments.all[0].next_lsn == found.lsn


def test_where_nothing_can_be_read_at_the_end_of_a_file_it_keeps_its_size() -> None:
    made = Directory()
    name = made.begin(Began(0, 0), wrote(0, 1, "a"))
    made.write()
    made.worn = [(name, SEGMENT_BYTES - 1)]
    found, recovered = made.open()
    assert held(recovered) == {0: {b"a": b"v"}}
    assert found.segments.all[0].size == SEGMENT_BYTES


def test_blocks_that_are_lost_at_the_end_are_lost_to_everything_that_was_held() -> None:
    made = Directory()
    made.begin(Began(0, 0), wrote(0, 1, "a"))
    made.write(wrote(0, 2, "b"))
    made.header()
    made.damage_block(2)
    found, recovered = made.open()
    assert held(recovered) == {0: {b"a": b"v"}}
    assert recovered.uncertain == {0: recovered.damage[0]}
    assert found.lsn == 3
    assert not recovered.whole


# -- the rest


def test_what_was_not_whole_is_not_whole_until_somebody_says_so() -> None:
    made = Directory(whole=False)
    made.begin(Began(0, 0))
    found, recovered = made.open()
    assert not recovered.whole
    assert not found.identity.whole


def test_a_time_to_live_goes_on_from_when_it_was_written() -> None:
    made = Directory()
    record = Record("m", 1, Change.SET, b"a", b"v", ttl_ms=10_000)
    made.begin(Began(0, 0), Wrote(0, TERM, [record], wall_ms=1_700_000_000_000 - 700))
    _, recovered = made.open()
    assert recovered.copies[0].maps["m"].state.expiries[b"a"].stored_ns == 5_000_000_000 - 700_000_000


def test_after_a_restart_what_is_in_the_journal_is_history_at_once() -> None:
    made = Directory()
    made.begin(Began(0, 0))
    for number in range(1, 9):
        made.write(wrote(0, number, f"k{number}"))
    life = Life(made.platter)
    read = life.history(0, 0, 8)
    assert [record.counter for _, record in read.records or []] == list(range(1, 9))


@pytest.mark.parametrize("damaged", [True, False])
def test_only_after_damage_everything_is_to_be_written_anew(*, damaged: bool) -> None:
    made = Directory()
    made.begin(Began(0, 0), wrote(0, 1, "a"))
    made.write(Began(1, 0))
    made.write(wrote(1, 1, "b"))
    if damaged:
        made.damage_block(2)
    life = Life(made.platter).settle()
    assert any(isinstance(event, CheckpointWanted) for event in life.events) == damaged
