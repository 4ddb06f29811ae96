"""The compact table does what a dictionary does, in less memory, and gives all of it back."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, MutableMapping
from itertools import count, pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.core.store.digest import RangeDigests
from holdfast.runtime.data_lane import data_lane

if data_lane().kind == "python":
    pytest.skip(f"there is no compiled table: {data_lane().why}", allow_module_level=True)

from holdfast.core.store import entry_table
from holdfast.core.store.entry_table import LARGE, SLOTS_MAX, EntryTable

MASKS = [0xFFFF_FFFF, 0, 1, 0x8000_0001, 0xFFFF, 0xFFFF_0000, 0xC000_000F]
"""Bits of a hash that count: all, none (each key meets each other), some that place segments and some in them."""
KEYS = st.one_of(
    st.integers(0, 40).map(b"key-%d".__mod__),
    st.binary(max_size=3),
    st.sampled_from([b"", bytes(1), b"k" * 65534, b"k" * 65535, b"k" * 65536, b"l" * 65536, b"k" * 70_000]),
)
SIZES = [
    0,
    1,
    7,
    8,
    9,
    100,
    470,
    480,
    490,
    500,
    505,
    520,
    4087,
    4095,
    4096,
    4097,
    9000,
    65534,
    65535,
    65536,
    2 << 20,
]
VALUES = st.one_of(
    st.binary(max_size=20),
    st.builds(lambda size, byte: bytes([byte]) * size, st.sampled_from(SIZES), st.integers(0, 255)),
)


class Compared(RuleBasedStateMachine):
    """A table beside a dictionary, which is given the same."""

    @initialize(mask=st.sampled_from(MASKS))
    def begin(self, mask: int) -> None:
        self.table = EntryTable(hash_mask=mask)
        self.expected: dict[bytes, bytes] = {}
        self.mask = mask
        self.number = 0

    @rule(key=KEYS, value=VALUES)
    def store(self, key: bytes, value: bytes) -> None:
        self.table[key] = value
        self.expected[key] = value

    @rule(key=KEYS)
    def look(self, key: bytes) -> None:
        assert self.table.get(key) == self.expected.get(key)
        assert self.table.get(key, b"none") == self.expected.get(key, b"none")
        assert (key in self.table) is (key in self.expected)
        if key in self.expected:
            assert self.table[key] == self.expected[key]
        else:
            with pytest.raises(KeyError):
                self.table[key]

    @rule(key=KEYS)
    def remove(self, key: bytes) -> None:
        if key in self.expected:
            del self.table[key], self.expected[key]
        else:
            with pytest.raises(KeyError):
                del self.table[key]
            with pytest.raises(KeyError):
                self.table.pop(key)

    @rule(key=KEYS)
    def pop(self, key: bytes) -> None:
        assert self.table.pop(key, None) == self.expected.pop(key, None)

    @rule(entries=st.integers(1, 1500), size=st.sampled_from([0, 5, 30, 500]))
    def grow(self, entries: int, size: int) -> None:
        keys = [b"many-%d" % number for number in range(self.number, self.number + entries)]
        self.number += entries
        for each in (self.table, self.expected):
            each.update(zip(keys, [b"v" * size] * entries, strict=True))

    @rule(part=st.sampled_from([0.0, 0.1, 0.5, 0.9]), seed=st.integers(0, 99), newest_first=st.booleans())
    def shrink(self, part: float, seed: int, newest_first: bool) -> None:
        draw = random.Random(seed)
        keys = list(self.expected)
        for key in reversed(keys) if newest_first else keys:
            if draw.random() >= part:
                assert self.table.pop(key) == self.expected.pop(key)

    @rule()
    def clear(self) -> None:
        self.table.clear()
        self.expected.clear()

    @rule(of=st.booleans())
    def copy(self, of: bool) -> None:
        """The copy and what it was made of go their own ways."""
        other = self.table.copy()
        if of:
            self.table, other = other, self.table
        other[b"only there"] = b"x"
        for key in list(other)[::2]:
            del other[key]

    @invariant()
    def the_same(self) -> None:
        if hasattr(self, "table"):
            assert len(self.table) == len(self.expected)
            assert dict(self.table.items()) == self.expected
            assert dict(zip(self.table, self.table.values(), strict=True)) == self.expected
            segments, places = self.table.shape()
            assert sum(used for _, used in segments) == len(self.expected)
            assert all(used < slots for slots, used in segments), "a probe ends"
            assert len(segments) <= places <= 256
            assert self.table.digests() == RangeDigests.digests(self.expected)


Compared.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestCompared = Compared.TestCase


def test_digests_are_the_same_of_keys_and_values_of_any_length() -> None:
    """Whether they lie behind each other, as in a block, or apart, as what a value was before."""
    draw = random.Random(1)
    lengths = [*range(50), LARGE - 1, LARGE, 70_000]
    table, expected = EntryTable(), dict[bytes, bytes]()
    for size in lengths:
        for value_size in lengths[: 50 if size < 50 else 20]:
            key = draw.randbytes(size)
            expected[key] = table[key] = draw.randbytes(value_size)
    assert table.digests() == RangeDigests.digests(expected)
    table.keep_digests(table.digests())
    kept = RangeDigests(expected.copy())
    touched: dict[bytes, bytes | None] = {}
    for number, (key, old) in enumerate(list(expected.items())):
        other = draw.randbytes(draw.choice(lengths))
        for each in (key, other):
            touched.setdefault(each, expected.get(each))
        expected[other] = table[other] = old
        if number % 3:
            expected[key] = table[key] = draw.randbytes(draw.choice(lengths))
        else:
            expected.pop(key, None)
            table.pop(key, None)
    kept.absorb(touched, expected)
    table.absorb(touched)
    assert table.kept_digests() == kept.sums == RangeDigests.digests(expected) == table.digests()
    table.absorb(dict(expected))
    assert table.kept_digests() == kept.sums, "nothing has changed"


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("keys", [60, 3000])
def test_long_lives(mask: int, keys: int) -> None:
    """Many operations on few keys, in times in which more come than go and the other way round."""
    draw = random.Random(keys)
    table, expected = EntryTable(hash_mask=mask), dict[bytes, bytes]()
    for step in range(20_000 if keys < 100 or mask in (0xFFFF_FFFF, 0xFFFF) else 4000):
        key = b"%d" % draw.randrange(keys)
        if draw.random() < (0.7 if step // 1000 % 2 else 0.3):
            value = b"%d" % step * draw.choice([0, 1, 3, 30])
            table[key] = expected[key] = value
        else:
            assert table.pop(key, None) == expected.pop(key, None)
        if not step % 500:
            assert table == expected
            assert all(table[key] == value for key, value in expected.items())
    assert table == expected


# -- as a dictionary


def test_it_compares_and_is_told_like_a_dictionary() -> None:
    table, same = EntryTable(), {b"a": b"1", b"b": b"2"}
    assert table == {} and not table and len(table) == 0 and b"a" not in table and list(table) == []
    table.update(same)
    assert table == same and same == table and table == table.copy() and dict(table) == same
    assert table != {b"a": b"1"} and table != {b"a": b"1", b"b": b"3"} and table != {b"a": b"1", b"c": b"2"}
    assert table.keys() == same.keys() and same.keys() <= table.keys() and table.items() == same.items()
    assert sorted(table.values()) == [b"1", b"2"] and (b"a", b"1") in table.items()
    assert {**table, b"c": b"3"} == {**same, b"c": b"3"}
    assert isinstance(table, MutableMapping)
    assert (table != 1) is True
    other = EntryTable()
    other.update(table)
    assert other == same


@pytest.mark.parametrize("wrong", [None, "text", bytearray(b"k"), memoryview(b"k"), 1])
def test_only_bytes_are_taken(wrong: object) -> None:
    """What only behaves like bytes may change later, or have no end."""
    table: MutableMapping[object, object] = EntryTable()  # type: ignore[assignment]
    for use in (
        lambda: table.__setitem__(wrong, b"v"),
        lambda: table.__setitem__(b"k", wrong),
        lambda: table.get(wrong),
        lambda: table.pop(wrong, None),
        lambda: wrong in table,
        lambda: table[wrong],
        lambda: table.__delitem__(wrong),
    ):
        with pytest.raises(TypeError):
            use()
    assert len(table) == 0


@pytest.mark.rule("store/E-6")
def test_an_iteration_ends_when_keys_come_or_go() -> None:
    table = EntryTable()
    table.update((b"%d" % number, b"v") for number in range(5000))
    for view in (table, table.values(), table.items()):
        walk = iter(view)
        next(walk)  # type: ignore[call-overload]
        table[b"3"] = b"other"
        next(walk)  # type: ignore[call-overload]
        table[b"new"] = b"v"
        with pytest.raises(RuntimeError):
            next(walk)  # type: ignore[call-overload]
        assert list(walk) == []  # type: ignore[call-overload]
        del table[b"new"]
    walk = iter(table)
    next(walk)
    table.clear()
    with pytest.raises(RuntimeError):
        next(walk)


@pytest.mark.rule("store/E-6")
def test_an_iteration_goes_on_while_values_change() -> None:
    table = EntryTable()
    table.update((b"%d" % number, b"v") for number in range(3000))
    seen = 0
    for seen, (key, _) in enumerate(table.items(), 1):
        table[key] = b"w" * (seen % 600)
    assert seen == 3000


# -- memory


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def held() -> int:
    """Bytes of this file's tables and of what they hold; other threads of the process have memory, too."""
    ours = [tracemalloc.Filter(True, path) for path in (__file__, entry_table.__file__)]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(ours).traces)


@pytest.mark.rule("store/E-1", "store/E-2")
@pytest.mark.usefixtures("traced")
def test_an_entry_takes_little_more_than_its_bytes() -> None:
    keys = [b"key-%020d" % number for number in range(20_000)]
    value = b"v" * 108
    table = EntryTable()
    before = held()
    for key in keys:
        table[key] = value
    each = (held() - before) / len(keys)
    assert each < (8 + len(keys[0]) + len(value) + 15) // 16 * 16 + 13, f"{each:.1f} bytes"
    assert sys.getsizeof(table) == pytest.approx(held() - before, rel=0.01)
    table = EntryTable()
    assert held() - before < 50_000


def test_empty_tables_are_small() -> None:
    """There are as many as partitions and maps."""
    assert sys.getsizeof(EntryTable()) <= 96
    one = EntryTable()
    one[b"k"] = b"v"
    assert sys.getsizeof(one) <= 160


@pytest.mark.rule("store/E-4")
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("mask", [0xFFFF_FFFF, 0xFFFF, 1])
def test_churn_leaves_nothing(mask: int) -> None:
    """Overwritten with every size, removed and stored again: in the end there is what there was."""
    draw = random.Random(1)
    table = EntryTable(hash_mask=mask)
    table.clear()
    numbers = count()

    def live() -> None:
        keys = [b"%d" % next(numbers) for _ in range(2000 if mask != 1 else 300)]
        for _ in range(3):
            for key in keys:
                table[key] = bytes(draw.choice([0, 10, 100, 300, 600, 3000, 5000]))
            for key in keys[::3]:
                table.pop(key, None)
            table.copy()
            list(table.items())
        for key in keys:
            table.pop(key, None)

    live()
    after_one = held()
    for _ in range(5):
        live()
    assert len(table) == 0
    assert table.shape() == ([], 0)
    assert held() - after_one < 3000


@pytest.mark.usefixtures("traced")
def test_a_table_that_is_let_go_or_cleared_is_freed() -> None:
    before = held()
    for way in range(3):
        table = EntryTable()
        table.update((b"%d" % number, b"v" * (number % 5000)) for number in range(5000))
        assert held() - before > 5000 * 1000
        if way:
            table.clear()
            assert held() - before < 3000
        table = EntryTable()
    assert held() - before < 3000


@pytest.mark.rule("store/E-1")
def test_large_values_are_shared_and_let_go() -> None:
    value = b"v" * LARGE
    begun = sys.getrefcount(value)
    table = EntryTable()
    table[b"k"] = value
    assert sys.getrefcount(value) == begun + 1
    assert table[b"k"] is value
    other = table.copy()
    assert other[b"k"] is value
    assert sys.getrefcount(value) == begun + 2
    other[b"k"] = b"w" * LARGE
    assert sys.getrefcount(value) == begun + 1
    other[b"k"] = value
    other[b"k"] = b"small"
    other[b"k"] = value
    assert sys.getrefcount(value) == begun + 2
    assert other.pop(b"k") is value
    assert sys.getrefcount(value) == begun + 1
    assert list(table.values()) == [value]
    table.clear()
    assert sys.getrefcount(value) == begun


def test_without_memory_nothing_changes() -> None:
    """Wherever an allocation fails: the operation does, and the table is as it was."""
    testcapi = pytest.importorskip("_testcapi")
    table, expected = EntryTable(), dict[bytes, bytes]()
    draw = random.Random(2)
    refused = 0
    for number in range(3000):
        key, value = b"%d" % draw.randrange(2000), b"v" * draw.choice([10, 40, 600, 5000])
        removes = draw.random() < (0.1 if number < 2000 else 0.8)
        for allowed in (0, 1, 2, 3):
            try:
                testcapi.set_nomemory(allowed, allowed + 1)
                try:
                    if removes:
                        table.pop(key, None)
                    else:
                        table[key] = value
                finally:
                    testcapi.remove_mem_hooks()
            except MemoryError:
                refused += 1
                assert table.get(key) == expected.get(key)
            else:
                if removes:
                    expected.pop(key, None)
                else:
                    expected[key] = value
                break
    assert refused > 1000
    assert table == expected


LIFE = """
import random
from holdfast.core.store.entry_table import EntryTable
for mask in (0xFFFF_FFFF, 0xFFFF, 0):
    draw, table, expected = random.Random(mask), EntryTable(hash_mask=mask), {}
    for step in range(20_000 if mask else 4000):
        key = b"%d" % draw.randrange(2000 if mask else 60) * draw.choice([1, 1, 1, 20_000])
        if draw.random() < (0.7 if step // 1000 % 2 else 0.3):
            table[key] = expected[key] = bytes(draw.choice([draw.randrange(40), draw.randrange(600), 5000]))
        else:
            assert table.pop(key, None) == expected.pop(key, None)
    assert table == expected == table.copy()
print("lived")
"""


def test_it_stays_inside_its_blocks() -> None:
    """Python's allocator, told to, looks for whatever is written beside what was asked for."""
    told = subprocess.run(
        [sys.executable, "-c", LIFE],
        env={**os.environ, "PYTHONMALLOC": "debug"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stdout == "lived\n", told.stderr


# -- no operation takes long


@pytest.mark.rule("store/E-3")
def test_no_operation_moves_more_than_a_segment() -> None:
    """However many entries there are: what grows, is split, shrinks or is merged is bounded (store/E-3)."""
    table = EntryTable()
    for number in range(150_000):
        table[b"%d" % number] = b""
        if not number % 10_000:
            assert all(slots <= SLOTS_MAX for slots, _ in table.shape()[0])
    segments, places = table.shape()
    assert places < 150_000 / 64
    assert sum(slots for slots, _ in segments) < 150_000 * 1.5
    for number in range(149_000):
        del table[b"%d" % number]
    segments, places = table.shape()
    assert sum(slots for slots, _ in segments) < 6000, "it has shrunk"
    assert places <= 16


@pytest.mark.rule("store/E-5")
def test_keys_that_all_meet_take_no_directory() -> None:
    """Whoever knew the seed could make them: it is slow then, but right, and takes no more memory."""
    for mask in (0, 0x0000_FFFF, 0x7):
        table = EntryTable(hash_mask=mask)
        for number in range(4000):
            table[b"%d" % number] = b"v"
        segments, places = table.shape()
        assert places <= 64
        assert sum(slots for slots, _ in segments) < 8000 + 4 * 64
        for number in range(4000):
            assert table.pop(b"%d" % number) == b"v"
        assert table.shape() == ([], 0)


@pytest.mark.rule("store/E-5")
def test_the_order_is_another_one_in_every_process() -> None:
    """Else clients could choose keys that meet."""
    program = (
        "from holdfast.core.store.entry_table import EntryTable; table = EntryTable();"
        "table.update((b'%d' % n, b'') for n in range(50)); print(list(table))"
    )
    told = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout
        for _ in range(3)
    }
    assert len(told) == 3


@pytest.mark.rule("store/E-9")
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("size", [10, LARGE])
@pytest.mark.parametrize("mask", [0xFFFF_FFFF, 3])
def test_a_table_that_is_dropped_is_freed_some_at_a_time(mask: int, size: int) -> None:
    def filled() -> EntryTable:
        table = EntryTable(hash_mask=mask)
        table.update((b"%d" % number, b"v" * size) for number in range(1000))
        return table

    before = held()
    entry_table.begin_freeing()
    try:
        table, other = filled(), filled()
        table.clear()
        assert (len(table), table.shape()) == (0, ([], 0))
        del other
        whole = held() - before
        assert whole > 1400 * size, "some hundred of each are freed at once"
        steps = 1
        while entry_table.free_later(100):
            steps += 1
        assert 14 <= steps <= 20
        assert held() - before < 3000
        assert not entry_table.free_later(100)

        filled()
        table = filled()  # Each new entry frees some of what was before.
        assert held() - before < whole * 0.7
        table.clear()
        assert held() - before > 700 * size
    finally:
        entry_table.end_freeing()
    assert held() - before < 3000, "nobody frees any more, so nothing is left"
    filled()
    assert held() - before < 3000


@pytest.mark.rule("store/E-9")
@pytest.mark.usefixtures("traced")
def test_large_values_count_as_many_when_they_are_freed() -> None:
    """What the system takes back piece by piece: 500 of a megabyte in one turn would stop a member for 40 ms."""
    before = held()
    table = EntryTable()
    table.update((b"%d" % number, bytes(1 << 20)) for number in range(20))
    entry_table.begin_freeing()
    try:
        table.clear()
        left = [held() - before]
        while entry_table.free_later(1000):
            left.append(held() - before)
    finally:
        entry_table.end_freeing()
    assert left[0] > 19 << 20, "one is freed at once"
    assert len(left) >= 9
    assert max(one - other for one, other in pairwise(left)) < 3 << 20, "at most two at a time"
    assert held() - before < 3000


@pytest.mark.parametrize("mask", [0xFFFF_FFFF, 0, 0xFFFF, 0xFF00_000F])
@pytest.mark.parametrize("size", [0, 1, 14, 15, 16, 3000])
def test_a_sample_has_different_keys_of_the_table(mask: int, size: int) -> None:
    table = EntryTable(hash_mask=mask)
    size = min(size, 200) if not mask else size
    for number in range(size):
        table[b"%d" % number] = b"v"
    for begin in (
        0,
        1,
        0x8000_0000,
        0xFFFF_FFFF,
        *(number * 0x9E37_79B1 & 0xFFFF_FFFF for number in range(50)),
    ):
        sample = table.sample(begin, 15)
        assert len(sample) == len(set(sample)) == min(15, size)
        assert all(key in table for key in sample)


def test_samples_reach_all_entries() -> None:
    table = EntryTable()
    for number in range(2000):
        table[b"%d" % number] = b"v"
    seen = {key for number in range(4000) for key in table.sample(number * 0x9E37_79B1 & 0xFFFF_FFFF, 15)}
    assert len(seen) == 2000
