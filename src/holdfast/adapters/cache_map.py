"""What every cache does with a map: values with a time to live, None among them, and numbers that are counted up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.adapters.cached_values import CACHE_SERIALIZERS, Counted, unwrapped, wrapped
from holdfast.adapters.process_clients import ProcessClient, process_client
from holdfast.aio.blocking_client import BlockingMap

FOR_EVER = 0.0
ABSENT = object()
"""What is answered for a key without a value: None may be one."""


class CacheMap:
    """A map as a cache. Times to live are seconds; 0 is for ever, less than 0 means that nothing is kept.

    Every method raises Refused or Unknown when the cluster does not do it, and TypeError for what cannot be stored.
    """

    def __init__(self, addresses: str | Iterable[str], name: str, options: Mapping[str, Any]) -> None:
        """Connects to nobody yet. `options`: see `process_client`. Raises ConfigError."""
        self.name = name
        self.client: ProcessClient = process_client(addresses, {"serializers": CACHE_SERIALIZERS, **options})

    @property
    def entries(self) -> BlockingMap[Any, Any]:
        """The map itself. Raises ConfigError, Denied, NotReady when no member can be reached."""
        return self.client.map(self.name)

    def get(self, key: str, absent: Any = None) -> Any:
        """The value, or `absent`."""
        return unwrapped(self.entries.get(key), absent)

    def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """The entries of those keys that have values."""
        found = {key: unwrapped(stored, ABSENT) for key, stored in self.entries.get_all(keys).items()}
        return {key: value for key, value in found.items() if value is not ABSENT}

    def set(self, key: str, value: object, ttl_s: float = FOR_EVER) -> None:
        """Store a value."""
        if ttl_s < 0:
            self.entries.delete(key)
        else:
            self.entries.set(key, wrapped(value, ttl_s), ttl_s=ttl_s)

    def set_many(self, values: Mapping[str, Any], ttl_s: float = FOR_EVER) -> None:
        """Store values, each by itself."""
        if ttl_s < 0:
            self.entries.delete_all(values)
        else:
            self.entries.put_all({key: wrapped(value, ttl_s) for key, value in values.items()}, ttl_s=ttl_s)

    def add(self, key: str, value: object, ttl_s: float = FOR_EVER) -> bool:
        """Store a value if the key has none; answers whether it was stored."""
        if ttl_s < 0:
            return not self.has(key)
        entries, new = self.entries, wrapped(value, ttl_s)
        while (there := entries.put_if_absent(key, new, ttl_s=ttl_s)) is not None:
            if unwrapped(there, ABSENT) is not ABSENT:
                return False
            entries.remove_if_same(key, there)
        return True

    def touch(self, key: str, ttl_s: float = FOR_EVER) -> bool:
        """Let a value live for so long from now; answers whether there is one."""
        if ttl_s < 0:
            return self.delete(key)
        entries = self.entries
        while isinstance(there := entries.get(key), Counted) or type(there) is int:
            # A number says itself when it ends.
            number = unwrapped(there, ABSENT)
            if number is ABSENT:
                return False
            if entries.replace_if_same(key, there, wrapped(number, ttl_s)):
                break
        return there is not None and entries.set_ttl(key, ttl_s)

    def count(self, key: str, delta: int, *, first: int | None = None, ttl_s: float = FOR_EVER) -> int | None:
        """Add to a number, which keeps its time to live; answers the sum. Where there is none, `first` is stored for
        `ttl_s` and answered; without `first` None is.

        No sum is lost or counted twice, unless it raises Unknown. Raises TypeError if the value is no number.
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
                    # The entry that was replaced ends when the map says; the number in it, when it did.
                    entries.set_ttl(key, max(there.left_s(), 0.001))
                    return number + delta
            elif entries.replace_if_same(key, there, number + delta):
                return number + delta

    def delete(self, key: str) -> bool:
        """Remove a key; answers whether it had a value."""
        return unwrapped(self.entries.remove(key), ABSENT) is not ABSENT

    def delete_many(self, keys: Iterable[str]) -> None:
        """Remove keys, each by itself."""
        self.entries.delete_all(keys)

    def has(self, key: str) -> bool:
        """Whether the key has a value."""
        return unwrapped(self.entries.get(key), ABSENT) is not ABSENT

    def clear(self) -> None:
        """Remove all that the map holds."""
        self.entries.clear()
