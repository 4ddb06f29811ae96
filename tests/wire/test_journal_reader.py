"""Torn or damaged, ours or somebody else's: what a reader makes of a journal (`wire.journal_reader`)."""

from __future__ import annotations

import random
from itertools import product

import pytest
from tests.wire.journals import STORE, Written, goes_on, judge, read, some_entry, some_journal

from holdfast.core.model.journal_entries import Began, Dropped, Wrote
from holdfast.core.model.records import Change, Record
from holdfast.wire import journal_blocks as journal
from holdfast.wire.journal_blocks import HEADER_BYTES, Chain, encode_block, segment_name

# -- torn or damaged?


def torn_journal(sync: bool = True) -> tuple[Written, str, int, int]:
    """A durable journal with one block of several sectors under way; its segment, first and last byte."""
    written = some_journal(5, 9000, 2)
    name = written.chain.segment
    del written.files[name][written.places[written.last][2] :]
    dice = random.Random(5)
    value = dice.randbytes(13_000)
    lsn = written.block(Wrote(1, 1, [Record("m", 1, Change.SET, b"k", value)]), sync=False)
    return written, name, written.places[lsn][1], written.places[lsn][2]


@pytest.mark.parametrize("sector", [512, 4096])
@pytest.mark.parametrize("missing", [b"\0", b"\xa5"])
def test_any_sectors_of_the_last_block_may_be_missing(sector: int, missing: bytes) -> None:
    """Whatever reached the disk of a block that was never synced: it is cut, and called torn."""
    written, name, start, end = torn_journal()
    whole = bytes(written.files[name])
    sectors = range(start // sector, (end - 1) // sector + 1)
    masks = list(product([True, False], repeat=len(sectors))) if len(sectors) < 6 else None
    dice = random.Random(sector)
    chosen = masks or [tuple(dice.random() < 0.7 for _ in sectors) for _ in range(300)]
    for there in chosen:
        if all(there):
            continue
        data = bytearray(whole) + bytes(5000)
        for number, kept in zip(sectors, there, strict=True):
            first, last = max(start, number * sector), min(end, (number + 1) * sector)
            if not kept:
                data[first:last] = missing * (last - first)
        files = written.bytes | {name: bytes(data)}
        found = judge(written, files, set(range(1, written.last)))
        assert found.damage == []
        assert found.end.lsn == written.last
        if any(data[start:]):
            assert found.torn is not None
            assert (found.torn.segment, found.torn.offset, found.torn.lsn) == (name, start, written.last)
            assert not found.end.resumable
        goes_on(found, files)


@pytest.mark.rule("wire/B-3")
def test_blocks_that_were_never_durable_are_no_damage() -> None:
    """The disk kept the later one of two blocks that were not synced: both are cut."""
    written = some_journal(6, zeros=0)
    first = written.block(Began(1, 1), sync=False)
    written.block(Began(1, 2), sync=False)
    name, start, end = written.places[first]
    written.fill(1000)
    written.files[name][start:end] = bytes(end - start)
    found = judge(written, written.bytes, set(range(1, first)))
    assert found.damage == []
    assert found.torn is not None
    assert (found.torn.lsn, found.torn.offset) == (first, start)
    goes_on(found, written.bytes)


def test_a_segment_that_was_never_durable_is_void() -> None:
    """The same across two segments: the next one was begun before the end of this one was durable."""
    written = some_journal(6, zeros=0)
    first = written.block(Began(1, 1), sync=False)
    written.begin()
    written.block(Began(1, 2), sync=False)
    name, start, end = written.places[first]
    written.files[name][start:end] = bytes(end - start)
    found = judge(written, written.bytes, set(range(1, first)))
    assert (found.damage, found.void) == ([], [written.chain.segment])
    assert found.torn is not None
    assert found.torn.lsn == first
    goes_on(found, written.bytes)


@pytest.mark.rule("wire/B-3")
def test_a_seal_proves_what_is_before_it() -> None:
    written = some_journal(7)
    last = written.last - 1
    name, start, end = written.places[last]
    written.files[name][start:end] = bytes(end - start)
    found = judge(written, written.bytes, set(range(1, written.last)))
    assert [(each.segment, each.offset, each.lsn, each.next_lsn) for each in found.damage] == [
        (name, start, last, last + 1)
    ]


@pytest.mark.rule("wire/R-2")
def test_a_torn_tail_is_left_as_it_is() -> None:
    """A new segment goes on where the old one was cut, also when blocks in the rest of it are still sound."""
    written = some_journal(8, segments=1, zeros=0)
    first = written.block(Began(1, 1), sync=False)
    written.block(Began(1, 2), sync=False)
    name, start, _ = written.places[first]
    written.files[name][start] ^= 1
    found, blocks = read(written.bytes)
    assert found.end.lsn == first
    chain = Chain(STORE, found.end.lsn, found.end.checksum)
    files = written.bytes | {segment_name(first): chain.begin(9) + chain.block([Dropped(5)]) + chain.block()}
    again, after = read(files)
    assert (again.damage, again.torn) == ([], None)
    assert [block.entries for block in after[len(blocks) :]] == [[Dropped(5)], []]


@pytest.mark.rule("wire/R-2")
def test_a_segment_of_a_cut_end_that_was_left_behind_is_ignored() -> None:
    written = some_journal(9, segments=1, zeros=0)
    first = written.block(Began(1, 1), sync=False)
    name, start, _ = written.places[first]
    written.files[name][start] ^= 1
    written.block(Began(1, 2), sync=False)
    written.begin()
    written.block(Began(1, 3), sync=False)
    left = written.chain.segment
    found, blocks = read(written.bytes)
    assert found.void == [left]
    chain = Chain(STORE, found.end.lsn, found.end.checksum)
    data = chain.begin(9)
    for number in range(5):
        data += chain.block([Dropped(number)])
        chain.durable(chain.lsn - 1)
        again, after = read(written.bytes | {segment_name(first): data})
        assert again.damage == []
        assert [block.entries for block in after[len(blocks) :]] == [
            [Dropped(each)] for each in range(number + 1)
        ]
        assert again.void == [left]
        assert (again.torn is None) == (chain.lsn > (journal.segment_lsn(left) or 0))
    # And when the journal goes on in a segment after it.
    files = written.bytes | {segment_name(first): data}
    header = chain.begin(10)
    files[chain.segment] = header + chain.block([Dropped(9)])
    again, after = read(files)
    assert (again.damage, again.torn, again.void) == ([], None, [left])
    assert after[-1].entries == [Dropped(9)]


def test_a_segment_made_in_advance_is_nothing_yet() -> None:
    written = some_journal(10)
    found, blocks = read(written.bytes | {segment_name(written.chain.lsn): bytes(9000)})
    assert (found.damage, found.torn, found.void) == ([], None, [segment_name(written.chain.lsn)])
    assert len(blocks) == written.last
    assert found.end.resumable


# -- what does not belong here


def test_another_store_is_not_joined() -> None:
    mine, other = some_journal(11), Written("another")
    other.begin()
    other.block(Began(1, 1))
    other.block()
    name = segment_name(mine.chain.lsn)
    # Under a name that would fit, and as the bytes after the end.
    found = judge(mine, mine.bytes | {name: bytes(other.files["j000000000001.seg"])}, set(mine.entries))
    assert [each.segment for each in found.damage] == [name]
    assert found.end.lsn > mine.last
    for place in (0, HEADER_BYTES):
        files = mine.bytes
        files[mine.chain.segment] = files[mine.chain.segment].rstrip(b"\0") + bytes(
            other.files["j000000000001.seg"][place:]
        )
        found = judge(mine, files, set(range(1, mine.last)))
        assert found.torn is not None
    found, blocks = read(other.bytes, STORE)
    assert not blocks
    assert found.damage[0].why == "this is a segment of another store, another"


@pytest.mark.rule("wire/B-2")
def test_an_earlier_use_of_the_same_file_is_not_joined() -> None:
    """The same store and the same first lsn, but after another history."""
    dice = random.Random(12)
    before = Written()
    before.begin()
    for _ in range(9):
        before.block(some_entry(dice))
    written = Written()
    written.chain = Chain(STORE, 1, b"another origin..")
    written.begin()
    written.block(some_entry(dice))
    old = bytes(before.files["j000000000001.seg"])
    for start in sorted({place[1] for place in before.places.values()}):
        files = {"j000000000001.seg": bytes(written.files["j000000000001.seg"]) + old[start:]}
        found = judge(written, files, set())
        assert found.torn is not None
        assert found.torn.lsn == 2


def test_two_histories_of_one_segment_are_not_mixed() -> None:
    """Blocks of the same place, size and number, written after different ones: a disk that lost one write."""
    one, other = Written(), Written()
    for written, epochs in ((one, (1, 2, 3)), (other, (1, 8, 9))):
        written.begin()
        for epoch in epochs:
            written.block(Began(1, epoch))
        written.block()
    name, start, end = one.places[2]
    assert other.places == one.places
    raw = bytearray(one.files[name])
    raw[start:end] = other.files[name][start:end]
    found, blocks = read({name: bytes(raw)})
    assert [block.entries for block in blocks[:2]] == [[Began(1, 1)], [Began(1, 8)]]
    assert found.damage
    assert found.damage[0].lsn == 3


@pytest.mark.rule("wire/R-1")
def test_a_block_that_follows_nothing_is_not_joined() -> None:
    """Sound, at its place, after the right block, but of another number; or of another seed with the same mark."""
    written = some_journal(19, 3000, 1, zeros=0)
    (name,) = written.files
    place = written.chain.place
    seed = place.seed[:4] + bytes(12)
    for made_with, lsn in ((place.seed, place.lsn + 1), (place.seed, place.lsn - 1), (seed, place.lsn)):
        data, _ = encode_block(made_with, place.offset, lsn, place.checksum, lsn - 2, [Began(1, 1)])
        found = judge(written, {name: written.bytes[name] + data}, set(range(1, written.last)))
        assert found.torn is not None
        assert (found.torn.lsn, found.damage) == (place.lsn, [])
    data, _ = encode_block(place.seed, place.offset, place.lsn, place.checksum, place.lsn - 1, [Began(1, 1)])
    assert len(read({name: written.bytes[name] + data})[1]) == written.last + 1, "the right one is"


def test_blocks_out_of_place() -> None:
    """Blocks of the journal itself, written over others or swapped: none where it was not written."""
    written = some_journal(13, 6000, 1)
    (name,) = written.files
    raw = bytes(written.files[name])
    places = [written.places[lsn] for lsn in sorted(written.places)]
    for i, j in product(range(len(places) - 1), repeat=2):
        if i == j:
            continue
        _, start, end = places[i]
        _, start2, end2 = places[j]
        over = raw[:start2] + raw[start:end] + raw[start2 + end - start :]
        whole = [lsn for lsn, place in written.places.items() if place[1] >= start2 + end - start]
        found = judge(written, {name: over}, set(range(1, max(whole, default=1))))
        assert found.damage or not whole
        if i < j:
            swapped = raw[:start] + raw[start2:end2] + raw[end:start2] + raw[start:end] + raw[end2:]
            durable = set(range(1, written.last)) - ({written.last - 1} if j == len(places) - 2 else set())
            found = judge(written, {name: swapped}, durable)
            assert found.damage


@pytest.mark.parametrize("sector", [512, 4096])
def test_sectors_out_of_place(sector: int) -> None:
    """A sector that was written where another one belongs, was not written at all, or twice."""
    written = some_journal(14, 16_384, 1)
    (name,) = written.files
    raw = bytes(written.files[name])
    count = len(raw) // sector
    for i, j in product(range(count - 1), range(count)):
        if i != j:
            data = bytearray(raw)
            data[i * sector : (i + 1) * sector] = raw[j * sector : (j + 1) * sector]
            # What is durable is proved by a block that is whole: the last one that begins after the sector.
            whole = [lsn for lsn, (_, start, _) in written.places.items() if start >= (i + 1) * sector]
            durable = set(range(1, max(whole))) if whole else set()
            durable |= {lsn for lsn, (_, _, end) in written.places.items() if end <= i * sector}
            found = judge(written, {name: bytes(data)}, durable)
            assert found.damage or (found.torn is not None and not whole)
            goes_on(found, {name: bytes(data)})


def test_a_missing_segment_is_damage() -> None:
    written = some_journal(15, segments=4)
    names = sorted(written.files)
    for gone in names[1:-1]:
        files = written.bytes
        del files[gone]
        found = judge(written, files, set(range(1, written.last)))
        assert len(found.damage) == 1
        assert found.torn is None
        goes_on(found, files)
    # The first ones are removed when no checkpoint needs them any more.
    files = written.bytes
    del files[names[0]]
    found, blocks = read(files)
    assert found.damage == []
    assert blocks[0].lsn == journal.segment_lsn(names[1])


def test_a_segment_under_another_name_is_damage() -> None:
    written = some_journal(16, segments=3)
    files = written.bytes
    first, second, _ = sorted(files)
    files[first], files[second] = files[second], files[first]
    found = judge(written, files, set(range(1, written.last)))
    assert "under another name" in found.damage[0].why
