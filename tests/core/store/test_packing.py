"""A table is packed chunk by chunk, in the order of its index, while entries come and go (store/E-8)."""

from __future__ import annotations

import random

import pytest

from holdfast.core.model.records import Puts, pack_puts
from holdfast.core.store.chunk import ENTRY_OVERHEAD
from holdfast.runtime.data_lane import data_lane

if data_lane().kind == "python":
    pytest.skip(f"there is no compiled table: {data_lane().why}", allow_module_level=True)

from holdfast.core.store.entry_table import LARGE, EntryTable

MASKS = [0xFFFF_FFFF, 0, 0xFFFF, 0xFF00_000F, 0xC000_00FF]
"""Bits of a hash that count: all; none, so that each key meets each other; and few, so that some do."""


def key_of(number: int) -> bytes:
    return b"key-%d" % number


def value_of(number: int, round_: int) -> bytes:
    size = LARGE if number % 97 == 0 else number % 300
    return bytes([round_ % 256]) * size


def entries_of(sizes: bytes, data: bytes) -> list[tuple[bytes, bytes]]:
    return list(zip(*Puts("m", 0, sizes, data).columns(), strict=True))


@pytest.mark.rule("store/E-8")
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("count", [1, 40, 900, 6000])
@pytest.mark.parametrize("churn", [0, 5, 400])
def test_each_entry_that_stays_is_packed_or_put_apart(mask: int, count: int, churn: int) -> None:
    """With churn the index grows and shrinks, and its segments split and merge, under the way."""
    if mask == 0:
        count = min(count, 900)
    told = random.Random(f"{mask} {count} {churn}")
    table, expected = EntryTable(hash_mask=mask), {}
    for number in range(count):
        expected[key_of(number)] = table[key_of(number)] = value_of(number, 0)
    stays, round_ = set(expected), 0
    found: list[bytes] = []
    packing, limit = table.packing(), 2000
    while not packing.ended:
        round_ += 1
        sizes, data, full = packing.pack(limit, some=True)
        part, apart = entries_of(sizes, data), packing.apart()
        size = len(data) + ENTRY_OVERHEAD * len(part)
        assert size <= limit or len(part) == 1, "a chunk has its size, or one entry"
        assert part or apart or packing.ended, "it goes on"
        for key, value in part:
            assert expected[key] == value, "as it is now"
            assert len(value) < LARGE
        found += [key for key, _ in part] + apart
        for _ in range(churn):
            # In waves, so that many go one after the other, and many come.
            number = told.randrange(2 * count)
            if number < count * (1 + round_ // 3 % 2):
                expected[key_of(number)] = table[key_of(number)] = value_of(number, round_)
            elif expected.pop(key_of(number - count), None) is not None:
                del table[key_of(number - count)]
                stays.discard(key_of(number - count))
        if round_ == 12 and churn:
            churn = 1
        del full
    missed = stays - set(found)
    assert not missed, f"{len(missed)} of {len(stays)} entries were left out"
    if not churn:
        assert len(found) == count, "each comes once"
        assert packing.rest() == []


@pytest.mark.parametrize("mask", MASKS)
def test_the_rest_is_what_was_not_packed(mask: int) -> None:
    table = EntryTable(hash_mask=mask)
    table.update((key_of(number), bytes(100)) for number in range(900))
    packing = table.packing()
    sizes, data, _ = packing.pack(20_000, some=True)
    packed = [key for key, _ in entries_of(sizes, data)]
    rest = packing.rest()
    assert sorted(packed + rest) == sorted(table)
    assert packing.ended
    assert packing.pack(20_000, some=True) == (b"", b"", False)


def test_a_table_that_is_cleared_on_the_way_has_nothing_more() -> None:
    table = EntryTable()
    table.update((key_of(number), bytes(100)) for number in range(5000))
    packing = table.packing()
    packing.pack(2000, some=True)
    table.clear()
    assert packing.pack(2000, some=True) == (b"", b"", False)
    assert packing.ended
    assert EntryTable().packing().rest() == []


def test_what_ends_is_put_apart() -> None:
    table = EntryTable()
    table[b"stays"], table[b"ends"] = b"1", b"2"
    table.endings()[1].set(b"ends", 1000, 0, 0)
    packing = table.packing()
    sizes, data, full = packing.pack(20_000, some=True)
    assert (entries_of(sizes, data), packing.apart(), full) == ([(b"stays", b"1")], [b"ends"], False)


@pytest.mark.parametrize("keys", [[], [b""], [b"", b"a", b"ab", b"b"], [bytes(70_000), b"x"]])
def test_packed_keys_are_as_in_a_list(keys: list[bytes]) -> None:
    puts = pack_puts("m", 0, keys, [b"value" for _ in keys])
    packed = EntryTable().keys_in(puts.sizes, puts.data)
    assert list(packed) == keys == puts.keys()
    assert len(packed) == len(keys)
    for key in (b"", b"a", b"ab", b"b", b"ba", b"value", b"x", bytes(70_000)):
        assert (key in packed) is (key in keys)


def test_keys_that_are_longer_than_what_there_is_are_none() -> None:
    with pytest.raises(ValueError, match="longer than"):
        EntryTable().keys_in(b"\1\0\0\0\1\0\0\0", b"k")
