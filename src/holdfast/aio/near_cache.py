"""A near cache: what the client remembers of a map, so that it need not ask again.

- aio/C-1: Who reads reserves first. What has changed in between, or may have, takes the reservation away, and then the
  answer is not kept: it may be older than the change.
- aio/C-2: A write of this client takes the entry and all reservations of the key away before it is sent and again when
  it is over. So after it is acknowledged nothing older is read here.
- aio/C-3: Of a partition is kept only what its owner says the changes of. When it is another member's, or the
  connection ends, or an invalidation was missed, everything of the partition is forgotten.

It may be used by several threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Literal

from holdfast.errors import ConfigError

SAMPLED = 16
"""Of so many entries the least used one is evicted with `LFU`."""


@dataclass(frozen=True, slots=True)
class NearCacheOptions:
    """What a near cache holds, and for how long."""

    in_memory_format: Literal["binary", "object"] = "binary"
    """`binary`: each read makes a new value. `object`: all reads answer the same one, so nobody may change it."""
    max_size: int = 10_000
    """Entries that are kept at most."""
    eviction: Literal["LRU", "LFU"] = "LRU"
    """Which entry makes room: the one that was not used for longest, or one of those that were used least."""
    ttl_s: float = 0.0
    """How long an entry is kept; 0: until it changes."""
    max_idle_s: float = 0.0
    """How long an entry that nobody reads is kept; 0: until it changes."""
    invalidate_on_change: bool = True
    """Whether members tell what others have changed; if not, `ttl_s` says how old an answer may be."""

    def check(self) -> None:
        """Raises ConfigError."""
        if self.in_memory_format not in ("binary", "object"):
            raise ConfigError(f"in_memory_format: binary or object, not {self.in_memory_format!r}")
        if self.eviction not in ("LRU", "LFU"):
            raise ConfigError(f"eviction: LRU or LFU, not {self.eviction!r}")
        if self.max_size < 1:
            raise ConfigError("max_size: at least 1")
        if self.ttl_s < 0 or self.max_idle_s < 0:
            raise ConfigError("ttl_s and max_idle_s: 0 (no end) or more seconds")


@dataclass(slots=True)
class NearCacheStatistics:
    """What a near cache was good for."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    expirations: int = 0
    invalidations: int = 0
    """Entries that were forgotten because they had changed, or might have."""
    missed: int = 0
    """Partitions of which everything was forgotten because an invalidation was missed."""


class _Entry:
    __slots__ = ("ends_s", "hits", "partition", "used_s", "value")

    def __init__(self, value: object, partition: int, now_s: float, ends_s: float) -> None:
        self.value = value
        self.partition = partition
        self.used_s = now_s
        self.ends_s = ends_s
        self.hits = 0


class _Absent:
    """Nothing is remembered."""


ABSENT = _Absent()


class NearCache:
    """The entries of one map that one client remembers. Keys are given in their stored form."""

    def __init__(self, options: NearCacheOptions, clock: Callable[[], float] = time.monotonic) -> None:
        options.check()
        self.options = options
        self.statistics = NearCacheStatistics()
        self._clock = clock
        self._lock = Lock()
        self._entries: dict[bytes, _Entry] = {}
        """With `LRU` the entry that was not used for longest is the first."""
        self._reserved: dict[bytes, tuple[object, int]] = {}
        """Keys that are being read: who has reserved last, and the partition."""
        self._fed: list[bool] = []
        """By partition: whether its owner tells of changes. Empty before there are owners."""
        self._known: dict[int, tuple[bytes, int]] = {}
        """By partition: the history and the sequence of the last invalidation that is known."""

    def __len__(self) -> int:
        return len(self._entries)

    # -- reading

    def get(self, key: bytes) -> object:
        """The value, stored or as an object according to `in_memory_format`; `ABSENT` when none is remembered."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self.statistics.misses += 1
                return ABSENT
            options = self.options
            if options.ttl_s or options.max_idle_s:
                now_s = self._clock()
                if (options.ttl_s and now_s >= entry.ends_s) or (
                    options.max_idle_s and now_s >= entry.used_s + options.max_idle_s
                ):
                    del self._entries[key]
                    self.statistics.expirations += 1
                    self.statistics.misses += 1
                    return ABSENT
                entry.used_s = now_s
            self.statistics.hits += 1
            if options.eviction == "LRU":
                del self._entries[key]
                self._entries[key] = entry
            else:
                entry.hits += 1
            return entry.value

    def reserve(self, key: bytes, partition: int) -> object:
        """Before a key is asked for; answers what `keep` is to be given."""
        with self._lock:
            if self.options.invalidate_on_change and not (
                0 <= partition < len(self._fed) and self._fed[partition]
            ):
                return None
            token = object()
            self._reserved[key] = (token, partition)
            return token

    def keep(self, key: bytes, token: object, value: object) -> None:
        """Remember what was answered, if nothing has changed since `reserve`. None is not remembered."""
        with self._lock:
            found = self._reserved.get(key)
            if token is None or found is None or found[0] is not token:
                return
            del self._reserved[key]
            if value is None:
                return
            if len(self._entries) >= self.options.max_size and key not in self._entries:
                self._evict()
            now_s = self._clock()
            self._entries[key] = _Entry(value, found[1], now_s, now_s + self.options.ttl_s)

    def release(self, key: bytes, token: object) -> None:
        """The question has failed."""
        with self._lock:
            found = self._reserved.get(key)
            if found is not None and found[0] is token:
                del self._reserved[key]

    def _evict(self) -> None:
        entries = self._entries
        if self.options.eviction == "LRU":
            del entries[next(iter(entries))]
        else:
            sample = list(islice(entries.items(), SAMPLED))
            least = min(sample, key=lambda each: each[1].hits)[0]
            for key, entry in sample:
                # Others are looked at next time.
                del entries[key]
                if key != least:
                    entry.hits //= 2
                    entries[key] = entry
        self.statistics.evictions += 1

    # -- changes

    def forget(self, keys: Iterable[bytes]) -> None:
        """These keys have changed, or will."""
        with self._lock:
            for key in keys:
                self._reserved.pop(key, None)
                if self._entries.pop(key, None) is not None:
                    self.statistics.invalidations += 1

    def clear(self) -> None:
        """All keys have changed, or may have."""
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        self.statistics.invalidations += len(self._entries)
        self._entries.clear()
        self._reserved.clear()

    def _forget_partitions(self, gone: Callable[[int], bool]) -> None:
        entries = [key for key, entry in self._entries.items() if gone(entry.partition)]
        for key in entries:
            del self._entries[key]
        self.statistics.invalidations += len(entries)
        for key in [key for key, (_, partition) in self._reserved.items() if gone(partition)]:
            del self._reserved[key]

    # -- what members tell

    def feed(self, fed: list[bool], changed: Callable[[int], bool]) -> None:
        """From now on the owners of these partitions tell of changes. `changed`: whether a partition has another owner,
        or connection to it, than before: then what is remembered of it counts no more.
        """
        with self._lock:
            before, self._fed = self._fed, fed
            if len(before) != len(fed):
                self._clear()
                self._known.clear()
                return
            if self.options.invalidate_on_change:
                self._forget_partitions(lambda partition: not fed[partition] or changed(partition))
                self._known = {
                    partition: known
                    for partition, known in self._known.items()
                    if fed[partition] and not changed(partition)
                }

    def invalidated(self, key: bytes, partition: int, history: bytes, sequence: int) -> None:
        """A member tells that a key has changed; what was missed before that is forgotten, too."""
        with self._lock:
            self._reserved.pop(key, None)
            if self._entries.pop(key, None) is not None:
                self.statistics.invalidations += 1
            self._step(partition, history, sequence, sequence - 1)

    def repair(self, stands: dict[int, tuple[bytes, int]]) -> None:
        """What members say of history and sequence of partitions: what was missed is forgotten."""
        with self._lock:
            for partition, (history, sequence) in stands.items():
                self._step(partition, history, sequence, sequence)

    def _step(self, partition: int, history: bytes, sequence: int, needed: int) -> None:
        known = self._known.get(partition)
        if known is None or known[0] != history:
            missed = True
        elif sequence <= known[1]:
            return
        else:
            missed = known[1] < needed
        self._known[partition] = (history, sequence)
        if missed:
            if known is not None:
                self.statistics.missed += 1
            self._forget_partitions(lambda each: each == partition)
