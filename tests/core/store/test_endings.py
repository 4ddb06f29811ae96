"""Entries that end: what a table keeps of them in its blocks does what a dictionary does with objects and a heap."""

from __future__ import annotations

import gc
import random
import tracemalloc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.records import Puts
from holdfast.core.store.map_state import MapState
from holdfast.runtime.data_lane import data_lane

if data_lane().kind == "python":
    pytest.skip(f"there is no compiled table: {data_lane().why}", allow_module_level=True)

from holdfast.core.store.entry_table import EntryTable

KEYS = st.one_of(st.integers(0, 30).map(b"key-%d".__mod__), st.sampled_from([0, 65535, 70_000]).map(bytes))
VALUES = st.builds(bytes, st.sampled_from([0, 1, 20, 100, 101, 470, 500, 4095, 4096, 9000]))
TIMES = st.sampled_from([0, 0, 1, 2, 3, 5, 10, 60_000, 1 << 41, (1 << 62) - 1])


def told(state: MapState) -> object:
    """All that is there, and when it ends."""
    return (
        dict(state.entries.items()),
        {
            key: (one.ttl_ms, one.max_idle_ms, one.stored_ns, one.max_idle_ms and one.accessed_ns)
            for key, one in state.expiries.items()
        },
    )


class BothWays(RuleBasedStateMachine):
    """A map in a dictionary, and one in a table."""

    @initialize(mask=st.sampled_from([0xFFFF_FFFF, 0, 0xFFFF]))
    def begin(self, mask: int) -> None:
        self.now_ns = 0
        self.mask = mask
        self.one = MapState("m")
        self.other = MapState("m", lambda: EntryTable(hash_mask=mask))

    @rule(key=KEYS, value=VALUES, ttl_ms=TIMES, max_idle_ms=TIMES)
    def store(self, key: bytes, value: bytes, ttl_ms: int, max_idle_ms: int) -> None:
        for state in (self.one, self.other):
            state.store(key, value, ttl_ms, max_idle_ms, 0, self.now_ns)

    @rule(key=KEYS, value=VALUES)
    def replace(self, key: bytes, value: bytes) -> None:
        """As a value is replaced whose ending stays."""
        for state in (self.one, self.other):
            state.entries[key] = value

    @rule(keys=st.lists(KEYS, max_size=4), value=VALUES)
    def store_all(self, keys: list[bytes], value: bytes) -> None:
        sizes = b"".join(len(k).to_bytes(4, "little") + len(value).to_bytes(4, "little") for k in keys)
        puts = Puts("m", 0, sizes, b"".join(key + value for key in keys))
        for state in (self.one, self.other):
            state.store_all(puts, self.now_ns)

    @rule(key=KEYS, ttl_ms=TIMES, max_idle_ms=TIMES)
    def schedule(self, key: bytes, ttl_ms: int, max_idle_ms: int) -> None:
        for state in (self.one, self.other):
            if key in state.entries:
                state.schedule(key, ttl_ms, max_idle_ms, self.now_ns)

    @rule(key=KEYS)
    def drop(self, key: bytes) -> None:
        assert self.one.drop(key) == self.other.drop(key)

    @rule(keys=st.lists(KEYS, max_size=4))
    def use(self, keys: list[bytes]) -> None:
        for state in (self.one, self.other):
            state.use(keys, self.now_ns)

    @rule(key=KEYS, touch=st.booleans())
    def expired(self, key: bytes, touch: bool) -> None:
        first, second = (state.expired(key, self.now_ns, touch=touch) for state in (self.one, self.other))
        assert first == second

    @rule(count=st.sampled_from([1, 2, 1000]))
    def sweep(self, count: int) -> None:
        """What has ended is found in the same order, whatever is noted of others."""
        found = []
        for state in (self.one, self.other):
            ended: list[bytes] = []
            while state.may_end(self.now_ns) and len(ended) < count:
                for key in state.due(self.now_ns, 1):
                    state.drop(key)
                    ended.append(key)
            found.append(ended)
        assert found[0] == found[1]

    @rule(ms=st.sampled_from([1, 1, 2, 5, 70_000]))
    def go_on(self, ms: int) -> None:
        self.now_ns += ms * MILLISECOND

    @rule()
    def all_used(self) -> None:
        for state in (self.one, self.other):
            state.all_used(self.now_ns)

    @rule()
    def another_copy(self) -> None:
        """Some of both kinds, each from the other one's kind or its own."""
        one, other = MapState("m"), MapState("m", lambda: EntryTable(hash_mask=self.mask))
        one.start_from(self.other)
        other.start_from(self.one)
        self.one, self.other = one, other

    @rule()
    def wipe(self) -> None:
        for state in (self.one, self.other):
            state.wipe()

    @invariant()
    def same(self) -> None:
        assert told(self.one) == told(self.other)
        assert len(self.one.expiries) == len(self.other.expiries)
        assert bool(self.one.expiries) == bool(self.other.expiries)
        assert self.one.expiries.keys() == self.other.expiries.keys()


class TestBothWays(BothWays.TestCase):
    settings = settings(max_examples=settings.default.max_examples, stateful_step_count=40)


@pytest.mark.rule("store/E-7")
def test_what_ends_takes_little_more_than_what_does_not() -> None:
    taken = []
    for ttl_ms, max_idle_ms in ((0, 0), (60_000, 0), (60_000, 60_000)):
        gc.collect()
        tracemalloc.start()
        state = MapState("m", EntryTable)
        for number in range(20_000):
            state.store(b"%016d" % number, bytes(100), ttl_ms, max_idle_ms, 0, number)
        taken.append(tracemalloc.get_traced_memory()[0] / 20_000)
        tracemalloc.stop()
        state.wipe()
    assert taken[1] - taken[0] < 28
    assert taken[2] - taken[0] < 60


@pytest.mark.rule("store/E-7")
def test_churn_of_what_ends_leaves_nothing() -> None:
    chance = random.Random(7)
    state = MapState("m", EntryTable)
    for turn in range(200):
        for _ in range(50):
            key = b"%d" % chance.randrange(300)
            ttl_ms, idle_ms = chance.randrange(20), chance.randrange(20)
            state.store(key, bytes(chance.randrange(300)), ttl_ms, idle_ms, 0, turn * MILLISECOND)
        for key in state.due(turn * MILLISECOND, 1000):
            state.drop(key)
    assert len(state.expiries) == sum(1 for _ in state.expiries.items()) > 0
    for key in state.due(1 << 61, 10_000):
        state.drop(key)
    assert (len(state.expiries), state.endings.first_ns) == (0, None)
    for key in list(state.entries):
        state.drop(key)
    assert state.entries.__sizeof__() < 200


def test_of_several_that_end_at_once_the_lowest_key_comes_first() -> None:
    for entries in (dict, EntryTable):
        state = MapState("m", entries)
        for key in (b"b", b"a", b"aa", b"c"):
            state.store(key, b"v", 5, 0, 0, 0)
        state.store(b"z", b"v", 4, 0, 0, 0)
        assert state.due(10 * MILLISECOND, 10) == [b"z", b"a", b"aa", b"b", b"c"]


def test_an_ending_is_only_of_what_is_there() -> None:
    state = MapState("m", EntryTable)
    with pytest.raises(KeyError):
        state.schedule(b"k", 5, 0, 0)
    assert state.expiries.get(b"k") is None
    with pytest.raises(KeyError):
        state.expiries[b"k"]
