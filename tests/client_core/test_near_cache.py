"""Near caches on a clock of the test, without members."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import pytest

from holdfast.aio import Client, NearCache, NearCacheOptions
from holdfast.client_core.near_cache import ABSENT
from holdfast.errors import ConfigError

H1, H2 = b"\0" + bytes(16), b"\0" + bytes(15) + b"\1"


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def cache_of(clock: Clock | None = None, **options: Any) -> NearCache:
    found = NearCache(NearCacheOptions(**options), clock or Clock())
    found.feed([True] * 4, lambda partition: True)
    return found


def keep(cache: NearCache, key: bytes, value: object, partition: int = 0) -> None:
    cache.keep(key, cache.reserve(key, partition), value)


# -- by itself


def test_the_one_that_was_not_used_for_longest_makes_room() -> None:
    cache = cache_of(max_size=3, eviction="LRU")
    for key in (b"a", b"b", b"c"):
        keep(cache, key, key)
    assert cache.get(b"a") == b"a"
    keep(cache, b"d", b"d")
    assert cache.get(b"b") is ABSENT
    assert [cache.get(key) for key in (b"a", b"c", b"d")] == [b"a", b"c", b"d"]
    assert (len(cache), cache.statistics.evictions) == (3, 1)


def test_the_one_that_was_used_least_makes_room() -> None:
    cache = cache_of(max_size=3, eviction="LFU")
    for key in (b"a", b"b", b"c"):
        keep(cache, key, key)
    for key in (b"a", b"a", b"b", b"c", b"c"):
        cache.get(key)
    keep(cache, b"d", b"d")
    assert cache.get(b"b") is ABSENT
    assert cache.get(b"a") == b"a"


def test_entries_end_by_age_and_by_idleness() -> None:
    clock = Clock()
    cache = cache_of(clock, ttl_s=10, max_idle_s=4)
    keep(cache, b"a", 1)
    for clock.now_s in (3.0, 6.0, 9.0):
        assert cache.get(b"a") == 1
    clock.now_s = 10.0
    assert cache.get(b"a") is ABSENT
    keep(cache, b"a", 2)
    clock.now_s = 14.0
    assert cache.get(b"a") is ABSENT
    assert cache.statistics.expirations == 2


@pytest.mark.parametrize(
    "wrong", [{"max_size": 0}, {"ttl_s": -1}, {"eviction": "FIFO"}, {"in_memory_format": "native"}]
)
def test_options_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        cache_of(**wrong)


@pytest.mark.rule("client_core/C-1")
def test_what_changed_while_it_was_read_is_not_kept() -> None:
    changes: list[Callable[[NearCache], None]] = [
        lambda cache: cache.forget((b"k",)),
        lambda cache: cache.clear(),
        lambda cache: cache.invalidated(b"k", 0, H1, 5),
        lambda cache: cache.invalidated(b"other", 0, H2, 1),
        lambda cache: cache.repair({0: (H1, 9)}),
        lambda cache: cache.feed([True] * 4, lambda partition: partition == 0),
    ]
    for change in changes:
        cache = cache_of()
        token = cache.reserve(b"k", 0)
        change(cache)
        cache.keep(b"k", token, "old")
        assert cache.get(b"k") is ABSENT
        again = cache.reserve(b"k", 0)
        cache.keep(b"k", token, "old")
        cache.keep(b"k", again, "new")
        assert cache.get(b"k") == "new"
        assert not cache._reserved


@pytest.mark.rule("client_core/C-3")
def test_a_gap_or_another_history_forgets_the_partition() -> None:
    cache = cache_of()
    cache.repair({0: (H1, 5), 1: (H1, 1)})

    def filled() -> None:
        keep(cache, b"a", 1, 0)
        keep(cache, b"b", 2, 1)

    filled()
    cache.invalidated(b"x", 0, H1, 6)
    assert cache.get(b"a") == 1
    cache.invalidated(b"x", 0, H1, 6)  # It comes twice.
    cache.invalidated(b"x", 0, H1, 4)  # It was overtaken.
    assert (cache.get(b"a"), cache.statistics.missed) == (1, 0)
    cache.invalidated(b"x", 0, H1, 8)
    assert (cache.get(b"a"), cache.get(b"b"), cache.statistics.missed) == (ABSENT, 2, 1)
    filled()
    cache.invalidated(b"x", 0, H2, 9)
    assert (cache.get(b"a"), cache.get(b"b")) == (ABSENT, 2)
    filled()
    cache.repair({0: (H2, 9), 1: (H1, 1)})
    assert (cache.get(b"a"), cache.get(b"b")) == (1, 2)
    cache.repair({0: (H2, 10), 1: (H1, 1)})
    assert (cache.get(b"a"), cache.get(b"b")) == (ABSENT, 2)


@pytest.mark.rule("client_core/C-3")
def test_only_what_somebody_tells_the_changes_of_is_kept() -> None:
    cache = cache_of()
    keep(cache, b"a", 1, 0)
    keep(cache, b"b", 2, 1)
    cache.feed([False, True, True, True], lambda partition: False)
    assert (cache.get(b"a"), cache.get(b"b")) == (ABSENT, 2)
    keep(cache, b"a", 1, 0)
    assert cache.get(b"a") is ABSENT
    cache.feed([True] * 4, lambda partition: partition == 1)
    assert cache.get(b"b") is ABSENT


# -- with real members


class CountingLock:
    def __init__(self) -> None:
        self.taken = 0

    def __enter__(self) -> None:
        self.taken += 1

    def __exit__(self, *_: object) -> None: ...


def test_every_call_takes_the_lock() -> None:
    lock = CountingLock()
    cache = NearCache(NearCacheOptions(), Clock(), lock)
    cache.feed([True], lambda partition: False)
    calls: list[Callable[[], object]] = [
        lambda: cache.get(b"k"),
        lambda: cache.reserve(b"k", 0),
        lambda: cache.keep(b"k", object(), "v"),
        lambda: cache.release(b"k", object()),
        lambda: cache.forget([b"k"]),
        cache.clear,
        cache.values,
        lambda: cache.invalidated(b"k", 0, b"h", 1),
        lambda: cache.repair({0: (b"h", 1)}),
    ]
    for number, call in enumerate(calls, 2):
        call()
        assert lock.taken == number


def test_caches_of_clients_have_a_real_lock() -> None:
    cache = Client(near_caches={"m": NearCacheOptions()}).map("m").near_cache
    assert cache is not None
    assert isinstance(cache._lock, type(Lock()))
