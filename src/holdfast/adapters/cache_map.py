"""Common part of all caches: values with a time to live, None as a value, and counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.adapters.cached_values import CACHE_SERIALIZERS, Counted, unwrapped, wrapped
from holdfast.adapters.process_clients import ProcessClient, process_client
from holdfast.aio.blocking_client import BlockingMap

FOR_EVER = 0.0
ABSENT = object()
"""Returned for a key without a value, because None is a value."""


class CacheMap:
    """A map as a cache. Times to live are seconds; 0: for ever; negative: keep nothing.

    Every method raises Refused or Unknown if the cluster does not carry it out, TypeError for a value that
    cannot be stored.
    """

    def __init__(self, addresses: str | Iterable[str], name: str, options: Mapping[str, Any]) -> None:
        """Connects at the first use. `options`: see `process_client`. Raises ConfigError."""
        self.name = name
        self.client: ProcessClient = process_client(addresses, {"serializers": CACHE_SERIALIZERS, **options})

    @property
    def entries(self) -> BlockingMap[Any, Any]:
        return self.client.map(self.name)

    def get(self, key: str, absent: Any = None) -> Any:
        return unwrapped(self.entries.get(key), absent)

    def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        found = {key: unwrapped(stored, ABSENT) for key, stored in self.entries.get_all(keys).items()}
        return {key: value for key, value in found.items() if value is not ABSENT}

    def set(self, key: str, value: object, ttl_s: float = FOR_EVER) -> None:
        if ttl_s < 0:
            self.entries.delete(key)
        else:
            self.entries.set(key, wrapped(value, ttl_s), ttl_s=ttl_s)

    def set_many(self, values: Mapping[str, Any], ttl_s: float = FOR_EVER) -> None:
        if ttl_s < 0:
            self.entries.delete_all(values)
        else:
            self.entries.put_all({key: wrapped(value, ttl_s) for key, value in values.items()}, ttl_s=ttl_s)

    def add(self, key: str, value: object, ttl_s: float = FOR_EVER) -> bool:
        """Store a value if the key has none; returns whether it was stored."""
        if ttl_s < 0:
            return not self.has(key)
        entries, new = self.entries, wrapped(value, ttl_s)
        while (there := entries.put_if_absent(key, new, ttl_s=ttl_s)) is not None:
            if unwrapped(there, ABSENT) is not ABSENT:
                return False
            entries.remove_if_same(key, there)
        return True

    def touch(self, key: str, ttl_s: float = FOR_EVER) -> bool:
        """Set the remaining life of a value; returns whether there is one."""
        if ttl_s < 0:
            return self.delete(key)
        entries = self.entries
        while isinstance(there := entries.get(key), Counted) or type(there) is int:
            # A number has its own expiry inside (`cached_values`).
            number = unwrapped(there, ABSENT)
            if number is ABSENT:
                return False
            if entries.replace_if_same(key, there, wrapped(number, ttl_s)):
                break
        return there is not None and entries.set_ttl(key, ttl_s)

    def count(self, key: str, delta: int, *, first: int | None = None, ttl_s: float = FOR_EVER) -> int | None:
        """Add to a number, which keeps its time to live; returns the sum. If there is none, `first` is stored
        for `ttl_s` and returned; without `first`, None is returned.

        No sum is lost or counted twice, unless Unknown is raised. Raises TypeError if the value is not a number.
        """
        entries = self.entries
        while True:
            there = entries.get(key)
            number = unwrapped(there, ABSENT)
            if number is ABSENT:
                if first is None:
                    return None
                if self.add(key, first, ttl_s):
                    return first
            elif not isinstance(number, int):
                raise TypeError(f"{key!r} is {number!r}, which is no whole number")
            elif isinstance(there, Counted):
                if entries.replace_if_same(key, there, Counted(number + delta, there.until_ms)):
                    # The replaced entry lives as the map is configured; the expiry inside the number is unchanged.
                    entries.set_ttl(key, max(there.left_s(), 0.001))
                    return number + delta
            elif entries.replace_if_same(key, there, number + delta):
                return number + delta

    def delete(self, key: str) -> bool:
        """Remove a key; returns whether it had a value."""
        return unwrapped(self.entries.remove(key), ABSENT) is not ABSENT

    def delete_many(self, keys: Iterable[str]) -> None:
        self.entries.delete_all(keys)

    def has(self, key: str) -> bool:
        return unwrapped(self.entries.get(key), ABSENT) is not ABSENT

    def clear(self) -> None:
        self.entries.clear()
