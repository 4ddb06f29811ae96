"""Backend of dogpile.cache in a map.

region = make_region().configure("holdfast", expiration_time=60, arguments={"addresses": "127.0.0.1:5701"})

Values are not pickled: they are of the types that `holdfast.serialization` supports; others raise TypeError. A
region with its own `serializer` stores what that returns.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.adapters.cache_map import CacheMap
from holdfast.adapters.cached_values import CACHE_SERIALIZERS
from holdfast.adapters.process_clients import OPTIONS
from holdfast.errors import NotInstalled

try:
    from dogpile.cache.api import NO_VALUE, BytesBackend, CacheMutex
except ImportError as absent:
    raise NotInstalled.of("this is a backend of dogpile.cache", "dogpile.cache", "dogpile") from absent

MAP = "dogpile"
LOCK_S = 60.0
LOCK_PAUSE_S = 0.02
"""Interval at which a waiting process tries to lock again."""


class HoldfastBackend(BytesBackend):
    """Values of one region, or of several that share a map."""

    serializer = staticmethod(CACHE_SERIALIZERS.dump)
    deserializer = staticmethod(CACHE_SERIALIZERS.load)

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """`arguments`: `addresses`, `map`; `time_to_live_s`, after which members forget a value (0: never);
        `distributed_lock`: only one process at a time creates a value; `lock_s`: how long that may take; and
        the options of the client. Others are ignored, as dogpile.cache requires. Connects at the first use.
        Raises ConfigError.
        """
        given = dict(arguments)
        addresses = given.pop("addresses", "127.0.0.1:5701")
        name = str(given.pop("map", MAP))
        self._ttl_s = float(given.pop("time_to_live_s", 0.0))
        self._lock_s = float(given.pop("lock_s", LOCK_S))
        self._distributed = bool(given.pop("distributed_lock", False))
        options = {option: value for option, value in given.items() if option in OPTIONS}
        self._cache = CacheMap(addresses, name, options)
        self._locks = CacheMap(addresses, name + ".locks", options)

    def get_mutex(self, key: str) -> CacheMutex | None:
        """A lock for all processes, or None: then dogpile.cache uses a lock of this process."""
        return MapMutex(self._locks, key, self._lock_s) if self._distributed else None

    def get_serialized(self, key: str) -> Any:
        return self._cache.get(key, NO_VALUE)

    def get_serialized_multi(self, keys: Iterable[str]) -> list[Any]:
        wanted = list(keys)
        found = self._cache.get_many(wanted)
        return [found.get(key, NO_VALUE) for key in wanted]

    def set_serialized(self, key: str, value: bytes) -> None:
        self._cache.set(key, value, self._ttl_s)

    def set_serialized_multi(self, mapping: Mapping[str, bytes]) -> None:
        self._cache.set_many(mapping, self._ttl_s)

    def delete(self, key: str) -> None:
        self._cache.delete(key)

    def delete_multi(self, keys: Iterable[str]) -> None:
        self._cache.delete_many(keys)


class MapMutex(CacheMutex):
    """A lock: a key that only its holder removes, and that expires if its holder has died.

    It is no fence: a process that was paused for longer than the lock lasts runs on beside the next holder. The
    lock saves duplicate work; it does not prevent it in all cases.
    """

    def __init__(self, locks: CacheMap, key: str, lock_s: float) -> None:
        self._locks = locks
        self._key = key
        self._lock_s = lock_s
        self._token = ""

    def acquire(self, wait: bool = True) -> bool:
        """Lock; returns whether it was locked. Waits without limit if `wait` is set."""
        token = uuid.uuid4().hex
        while not self._locks.add(self._key, token, self._lock_s):
            if not wait:
                return False
            time.sleep(LOCK_PAUSE_S)
        self._token = token
        return True

    def release(self) -> None:
        """Unlock, if this object still holds the lock."""
        token, self._token = self._token, ""
        if token:
            self._locks.entries.remove_if_same(self._key, token)

    def locked(self) -> bool:
        return self._locks.has(self._key)
