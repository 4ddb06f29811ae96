"""Near cache: entries of a map that the client keeps, so that it need not ask a member again.

- client_core/C-1: A read reserves its key before it asks. A change, or a possible change, removes the reservation, and
  the answer is then not kept: it may be older than the change.
- client_core/C-2: A write of this client removes the entry and all reservations of its key before it is sent and again
  when it is done. After it is acknowledged, no older value is read here.
- client_core/C-3: Entries of a partition are kept only while its owner sends invalidations. When the owner changes, its
  connection ends or an invalidation was lost, all entries of the partition are forgotten.

The owner of a partition numbers its invalidations 1, 2, 3, ... and names that series (its *history*). Example:
the cache knows history h, sequence 17, of partition 5.

- Invalidation 18 arrives: only its key is forgotten.
- Invalidation 20 arrives: 19 was lost with an unknown key, so every entry of partition 5 is forgotten; 20 is known.
- Invalidation 18 is the last one, and it is lost. No later one reveals the gap, so the client asks every member for
  history and sequence of its partitions (`repair`, every 60 s). The answer `h, 18` is ahead of 17: forget partition 5.
- The owner restarts, or the partition moves: the history differs and numbers cannot be compared. Forget partition 5.

All methods may be called from several threads if the cache has a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from holdfast.errors import ConfigError

SAMPLED = 16


@dataclass(frozen=True, slots=True)
class NearCacheOptions:
    in_memory_format: Literal["binary", "object"] = "binary"
    """`binary`: each read makes a new value. `object`: all reads return the same object, which must not be
    changed.
    """
    max_size: int = 10_000
    eviction: Literal["LRU", "LFU"] = "LRU"
    ttl_s: float = 0.0
    """How long an entry is kept; 0: until it changes."""
    max_idle_s: float = 0.0
    """How long an entry that is not read is kept; 0: until it changes."""
    invalidate_on_change: bool = True
    """Whether members send invalidations for changes of others. If not, `ttl_s` bounds the age of a value."""

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
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    expirations: int = 0
    invalidations: int = 0
    """Entries that were forgotten because they changed, or may have."""
    missed: int = 0
    """Lost invalidations; each one cleared a partition."""


class _Entry:
    __slots__ = ("ends_s", "hits", "partition", "used_s", "value")

    def __init__(self, value: object, partition: int, now_s: float, ends_s: float) -> None:
        self.value = value
        self.partition = partition
        self.used_s = now_s
        self.ends_s = ends_s
        self.hits = 0


class _Absent:
    """Marks a key without an entry."""


ABSENT = _Absent()


class NearCache:
    def __init__(
        self,
        options: NearCacheOptions,
        clock: Callable[[], float],
        lock: AbstractContextManager[object] = nullcontext(),  # noqa: B008
    ) -> None:
        """`clock`: in seconds. `lock`: taken for each call, if several threads use the cache. Raises ConfigError."""
        options.check()
        self.options = options
        self.statistics = NearCacheStatistics()
        self._clock = clock
        self._lock = lock
        self._entries: dict[bytes, _Entry] = {}
        """With `LRU` ordered by last use, the oldest first."""
        self._reserved: dict[bytes, tuple[object, int]] = {}
        """Keys that are being read: token of the latest reservation, and the partition."""
        self._fed: list[bool] = []
        """By partition: whether its owner sends invalidations. Empty before the owners are known."""
        self._known: dict[int, tuple[bytes, int]] = {}
        """By partition: history and sequence of the last known invalidation."""

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> list[object]:
        with self._lock:
            return [entry.value for entry in self._entries.values()]

    # -- reading

    def get(self, key: bytes) -> object:
        """Stored or as an object according to `in_memory_format`; `ABSENT` if there is none."""
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
        """Call before the key is asked for. Returns the token for `keep`."""
        with self._lock:
            if self.options.invalidate_on_change and not (
                0 <= partition < len(self._fed) and self._fed[partition]
            ):
                return None
            token = object()
            self._reserved[key] = (token, partition)
            return token

    def keep(self, key: bytes, token: object, value: object) -> None:
        """Keep the answer, unless the key may have changed since `reserve`. None is not kept."""
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
                # Move the rest of the sample to the end, so that the next eviction samples other entries.
                del entries[key]
                if key != least:
                    entry.hits //= 2
                    entries[key] = entry
        self.statistics.evictions += 1

    # -- changes

    def forget(self, keys: Iterable[bytes]) -> None:
        with self._lock:
            for key in keys:
                self._reserved.pop(key, None)
                if self._entries.pop(key, None) is not None:
                    self.statistics.invalidations += 1

    def clear(self) -> None:
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

    # -- invalidations

    def feed(self, fed: list[bool], changed: Callable[[int], bool]) -> None:
        """Set which partitions have an owner that sends invalidations. `changed`: partitions with another
        owner, or another connection to it, than before: their entries are forgotten.
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
        """A key has changed. If invalidations before this one were lost, the whole partition is forgotten."""
        with self._lock:
            self._reserved.pop(key, None)
            if self._entries.pop(key, None) is not None:
                self.statistics.invalidations += 1
            self._step(partition, history, sequence, sequence - 1)

    def repair(self, stands: dict[int, tuple[bytes, int]]) -> None:
        """Compare with history and sequence of the owners; forget partitions with lost invalidations."""
        with self._lock:
            for partition, (history, sequence) in stands.items():
                self._step(partition, history, sequence, sequence)

    def _step(self, partition: int, history: bytes, sequence: int, needed: int) -> None:
        """The cache must know all invalidations up to `needed` to keep the partition."""
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
