"""The bytes of a journal under every accident: nothing invented, nothing that was durable lost unseen."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.journals import STORE, Written, goes_on, judge, read, some_journal

from holdfast.core.model.journal_entries import Began, Dropped, Entry, Wrote
from holdfast.core.model.records import Change, Record
from holdfast.errors import JournalBroken, NewerFiles
from holdfast.wire import journal_blocks as journal
from holdfast.wire import journal_reader as reading
from holdfast.wire.journal_blocks import (
    HEAD_BYTES,
    HEADER_BYTES,
    ORIGIN,
    Chain,
    encode_block,
    read_block,
    segment_name,
)

TEXT = st.text(max_size=20)
RECORDS = st.builds(
    Record,
    map=TEXT,
    counter=st.integers(1, 2**62),
    change=st.sampled_from(Change),
    key=st.binary(max_size=40),
    value=st.binary(max_size=300),
    ttl_ms=st.integers(0, 2**40),
    key_hash=st.integers(-(2**31), 2**31 - 1),
)
ENTRIES = st.one_of(
    st.builds(
        Wrote,
        partition=st.integers(0, 270),
        term=st.integers(0, 2**40),
        records=st.lists(RECORDS, max_size=4),
    ),
    st.builds(Began, partition=st.integers(0, 270), epoch=st.integers(0, 9)),
    st.builds(Dropped, partition=st.integers(0, 270), map=TEXT),
)


# -- whole journals


@given(st.lists(st.lists(ENTRIES, max_size=4), max_size=12), st.sets(st.integers(1, 11)), st.integers(0, 200))
def test_what_was_written_is_read(groups: list[list[Entry]], ends: set[int], zeros: int) -> None:
    written = Written()
    written.begin()
    for number, group in enumerate(groups):
        if number in ends:
            written.begin()
        written.block(*group)
    written.fill(zeros)
    found, blocks = read(written.bytes)
    assert [(block.lsn, block.entries) for block in blocks] == list(enumerate(groups, 1))
    assert (found.damage, found.torn, found.void) == ([], None, [])
    assert (found.end.lsn, found.end.checksum) == (written.chain.lsn, written.chain.checksum)
    assert found.end.resumable
    assert found.store == STORE
    for block in blocks:
        segment, offset, end = written.places[block.lsn]
        assert (block.segment, block.offset, block.size) == (segment, offset, end - offset)
        seed = next(each.seed for each in found.segments if each.name == segment)
        assert read_block(written.files[segment][offset:end], seed, segment, offset) == block


def test_a_writer_goes_on_in_the_same_segment() -> None:
    written = some_journal(3)
    found, before = read(written.bytes)
    chain = Chain.resume(STORE, found.end)
    assert (chain.segment, chain.synced) == (found.end.segment, written.last)
    more = chain.block([Began(4, 4)]) + chain.block()
    file = written.files[chain.segment]
    file[found.end.offset : found.end.offset + len(more)] = more
    again, after = read(written.bytes)
    assert (again.damage, again.torn, len(after)) == ([], None, len(before) + 2)


def test_what_was_made_and_not_written_is_taken_back() -> None:
    written = Written()
    written.begin()
    written.block(Began(1, 1))
    before = written.chain.place
    written.chain.block([Began(1, 2)])
    written.chain.begin(7)
    written.chain.block([Began(1, 3)])
    written.chain.place = before
    written.block(Began(1, 4))
    found, blocks = read(written.bytes)
    assert ([block.entries for block in blocks], found.torn) == ([[Began(1, 1)], [Began(1, 4)]], None)


def test_nothing_is_the_beginning() -> None:
    found, blocks = read({}, None)
    assert (blocks, found.end.lsn, found.end.checksum, found.end.resumable) == ([], 1, ORIGIN, False)
    goes_on(found, {})


def test_names() -> None:
    assert segment_name(7) == "j000000000007.seg"
    assert journal.segments(
        ["j000000000010.seg", "x", "j000000000009.seg", "p1", "j9.seg", "j00000000000.seg"]
    ) == [
        "j000000000009.seg",
        "j000000000010.seg",
    ]
    assert journal.segments(["j1000000000000.seg", "j999999999999.seg", "j0100000000000.seg"]) == [
        "j999999999999.seg",
        "j1000000000000.seg",
    ]
    assert [
        journal.segment_lsn(name) for name in ("j00000000000\u0661.seg", "j000000000000.seg", "j.seg")
    ] == [None] * 3


# -- every cut, every flip


def cut_everywhere(written: Written, step: int = 1) -> int:
    """Each prefix of the journal: all whole blocks, nothing else, no damage."""
    files = written.bytes
    names = sorted(files)
    count = 0
    for index, name in enumerate(names):
        for size in range(0, len(files[name]), step):
            left = {each: files[each] for each in names[:index]} | {name: files[name][:size]}
            whole = {
                lsn
                for lsn, (at, _, end) in written.places.items()
                if at < name or (at == name and end <= size)
            }
            found = judge(written, left, whole)
            assert not found.damage
            assert found.end.lsn == max(whole, default=0) + 1
            ends = [end for at, _, end in written.places.values() if at == name]
            edge = size in {0, HEADER_BYTES, *ends} or size > max(ends)
            assert (found.torn is None) == edge, (name, size)
            if size % 61 == 0:
                goes_on(found, left)
            count += 1
    return count


def flip_everywhere(
    written: Written, bits: tuple[int, ...] | None, store: str | None = STORE, step: int = 1
) -> dict[str, int]:
    """Each flipped bit costs the block that it hits, at most, and is told if that was durable: if anything follows it.

    bits: which of each byte; None: one of them in turn. step: of the bytes after the first kilobyte, one in so many.
    """
    files = written.bytes
    durable = set(range(1, written.last))
    counts = {"damage": 0, "torn": 0}
    for name in sorted(files):
        data = bytearray(files[name])
        inside = [(start, end, lsn) for lsn, (at, start, end) in written.places.items() if at == name]
        for place in [*range(min(1024, len(data))), *range(1024, len(data), step)]:
            for bit in bits if bits is not None else (place % 8,):
                data[place] ^= 1 << bit
                files[name] = bytes(data)
                data[place] ^= 1 << bit
                found = judge(written, files, durable, store=store)
                hit = {lsn for start, end, lsn in inside if start <= place < end}
                lost = sum((each.next_lsn or written.last + 1) - each.lsn for each in found.damage)
                if hit <= durable and (hit or store is not None):
                    assert lost == len(hit), (name, place, bit, found.damage)
                assert bool(found.damage) != (found.torn is not None), (name, place, bit)
                counts["damage" if found.damage else "torn"] += 1
        files[name] = bytes(data)
    return counts


def test_a_journal_cut_at_every_byte() -> None:
    assert cut_everywhere(some_journal(1)) >= 16_384


@pytest.mark.rule("wire/B-1")
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_in_every_byte(step: int) -> None:
    """Seven has no factor in common with the eight bits, so each bit is flipped at every kind of place."""
    counts = flip_everywhere(some_journal(2), None, step=step)
    assert sum(counts.values()) >= 16_384 / step
    assert counts["torn"] < 1200, "only the seal, and the zeros after it"


def test_a_flipped_bit_when_the_store_is_not_known() -> None:
    assert flip_everywhere(some_journal(3, 4096, 2, zeros=100), None, store=None)["damage"] > 3000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_more_journals_cut_at_every_byte(seed: int) -> None:
    cut_everywhere(some_journal(100 + seed, segments=1 + seed % 4))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_every_bit_flipped(seed: int) -> None:
    counts = flip_everywhere(some_journal(200 + seed, segments=1 + 2 * seed), tuple(range(8)))
    assert sum(counts.values()) >= 131_072


@pytest.mark.rule("wire/R-3")
@given(st.integers(0, 2**32), st.data())
def test_any_bytes_anywhere(seed: int, data: st.DataObject) -> None:
    """Several accidents at once: overwritten, cut out, doubled, swapped. What is read was written, and reading ends."""
    written = some_journal(
        seed, 3000, data.draw(st.integers(1, 4)), zeros=data.draw(st.sampled_from([0, 80]))
    )
    files = written.bytes
    for _ in range(data.draw(st.integers(1, 4))):
        name = data.draw(st.sampled_from(sorted(files)))
        raw = files[name]
        start = data.draw(st.integers(0, len(raw)))
        end = data.draw(st.integers(start, len(raw)))
        match data.draw(st.sampled_from(["garbage", "zero", "cut", "double", "move", "swap", "gone"])):
            case "garbage":
                files[name] = raw[:start] + random.Random(seed).randbytes(end - start) + raw[end:]
            case "zero":
                files[name] = raw[:start] + bytes(end - start) + raw[end:]
            case "cut":
                files[name] = raw[:start] + raw[end:]
            case "double":
                files[name] = raw[:end] + raw[start:]
            case "move":
                files[name] = raw[end:] + raw[:end]
            case "swap":
                other = data.draw(st.sampled_from(sorted(files)))
                files[name], files[other] = files[other], files[name]
            case _ if len(files) > 1:
                del files[name]
    found = judge(written, files, set())
    goes_on(found, files)


@given(st.binary(max_size=400), st.booleans())
def test_no_file_at_all(garbage: bytes, known: bool) -> None:
    files = {"j000000000001.seg": garbage, "j000000000009.seg": garbage[::-1]}
    found, blocks = read(files, STORE if known else None)
    assert not blocks
    goes_on(found, files)


# -- versions, hostile lengths


def test_a_newer_format_is_refused() -> None:
    written = some_journal(17)
    name = min(written.files)
    header = bytearray(written.files[name][: HEADER_BYTES - 16])
    struct.pack_into("<H", header, 4, 99)
    written.files[name][:HEADER_BYTES] = header + journal.digest(bytes(header))
    with pytest.raises(NewerFiles, match="a segment of format 99"):
        read(written.bytes)


def test_a_sound_block_with_unknown_entries_is_refused() -> None:
    chain = Chain(STORE)
    header = chain.begin(0)
    for body in (
        [[99, 1, 2]],
        [["x"]],
        ["\ud800".encode("utf-8", "surrogatepass").decode("latin-1")],
        [[4, "no", 1]],
    ):
        data, _ = encode_block(chain.seed, HEADER_BYTES, 1, ORIGIN, 0, body)  # type: ignore[arg-type]
        with pytest.raises(JournalBroken, match="block 1 is whole, but not what this Holdfast writes"):
            read({segment_name(1): header + data})


def sealed(seed: bytes, offset: int, lsn: int, length: int, synced: int = 0) -> bytes:
    """A head that is sound but for its length."""
    head = journal._HEAD.pack(seed[:4], length, lsn, synced, ORIGIN, b"no such digest..")
    return head + journal.link_of(seed, offset, head)


def test_a_hostile_length_costs_nothing() -> None:
    chain = Chain(STORE)
    header = chain.begin(0)
    for length in (0, 1, 1000, 2**31, 2**32 - 1):
        tracemalloc.start()
        found, blocks = read(
            {segment_name(1): header + sealed(chain.seed, HEADER_BYTES, 1, length) + bytes(10_000)}
        )
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert not blocks
        assert found.torn is not None
        assert peak < 300_000


@pytest.mark.rule("wire/R-3")
def test_no_byte_is_looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file full of heads, each with a believable length over all that follows: the work is that of its size."""
    looked = 0

    def counted(data: memoryview, head: journal.Head) -> bool:
        nonlocal looked
        looked += min(head.end, len(data)) - head.offset
        return sound(data, head)

    sound = reading.is_sound
    monkeypatch.setattr(reading, "is_sound", counted)
    chain = Chain(STORE)
    data = chain.begin(0)
    size = 200_000
    while len(data) < size:
        data += sealed(chain.seed, len(data), len(data), max(0, size - len(data) - HEAD_BYTES), synced=3)
    _, blocks = read({segment_name(1): data, segment_name(10**9): data})
    assert not blocks
    assert looked < 4 * size


@pytest.mark.rule("wire/B-2")
def test_a_value_that_looks_like_blocks_is_never_read_as_some() -> None:
    """A client stores copies of the journal itself, and then the block with them is damaged anywhere."""
    written = some_journal(18, 3000, 1, zeros=0)
    inner = bytes(written.files["j000000000001.seg"])
    lsn = written.block(Wrote(1, 1, [Record("m", 1, Change.SET, b"k", inner)]))
    written.block()
    name, start, end = written.places[lsn]
    for place in range(start, end):
        files = written.bytes
        data = bytearray(files[name])
        data[place] ^= 255
        found = judge(written, {name: bytes(data)}, set(range(1, written.last)))
        assert [(each.lsn, each.next_lsn) for each in found.damage] == [(lsn, lsn + 1)]


def test_what_cannot_be_written() -> None:
    for store in ("", "x" * 41, "a\0b"):
        with pytest.raises(ValueError, match="cannot name a store"):
            Chain(store).begin(0)
    with pytest.raises(ValueError, match="is durable"):
        journal.segment_header(STORE, 5, ORIGIN, 5, 0)
    with pytest.raises(JournalBroken, match="offset 77: no block"):
        read_block(bytes(100), b"1" * 16, "j000000000001.seg", 77)
