"""Cache of Flask-Caching in a map.

config = {"CACHE_TYPE": "holdfast.adapters.flask_caching.HoldfastCache", "CACHE_HOLDFAST_ADDRESSES": "127.0.0.1:5701"}

Values are not pickled: they are of the types that `holdfast.serialization` supports; others raise TypeError. Whole
responses are not supported: views must return text, bytes or JSON values.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.adapters.cache_map import FOR_EVER, CacheMap
from holdfast.errors import NotInstalled

try:
    from flask import Flask
    from flask_caching.backends.base import BaseCache
except ImportError as absent:
    raise NotInstalled.of("this is a cache of Flask-Caching", "flask-caching", "flask") from absent

MAP = "flask"


class HoldfastCache(BaseCache):
    """One cache in one map; its keys begin with `CACHE_KEY_PREFIX`."""

    def __init__(
        self,
        addresses: Any,
        map_name: str = MAP,
        key_prefix: str = "",
        default_timeout: int = 300,
        **options: Any,
    ) -> None:
        """`options`: those of the client. Connects at the first use. Raises ConfigError."""
        super().__init__(default_timeout)
        self.key_prefix = key_prefix
        self._cache = CacheMap(addresses, map_name, options)

    @classmethod
    def factory(
        cls,
        app: Flask,  # noqa: ARG003 - Flask-Caching calls all backends alike
        config: dict[str, Any],
        args: list[Any],  # noqa: ARG003
        kwargs: dict[str, Any],  # noqa: ARG003
    ) -> HoldfastCache:
        """Called by Flask-Caching. `CACHE_OPTIONS` are those of the client."""
        options = dict(config.get("CACHE_OPTIONS") or {})
        options.pop("default_timeout", None)
        return cls(
            config.get("CACHE_HOLDFAST_ADDRESSES", "127.0.0.1:5701"),
            config.get("CACHE_HOLDFAST_MAP", MAP),
            config.get("CACHE_KEY_PREFIX") or "",
            config["CACHE_DEFAULT_TIMEOUT"],
            **options,
        )

    def _ttl_s(self, timeout: float | timedelta | None) -> float:
        """Seconds in the form of Flask-Caching: None is its default, 0 for ever."""
        seconds = self.default_timeout if timeout is None else timeout
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        return float(seconds) if seconds else FOR_EVER

    def _key(self, key: str) -> str:
        return self.key_prefix + key

    def get(self, key: str) -> Any:
        return self._cache.get(self._key(key))

    def has(self, key: str) -> bool:
        return self._cache.has(self._key(key))

    def set(self, key: str, value: Any, timeout: float | timedelta | None = None) -> bool:
        self._cache.set(self._key(key), value, self._ttl_s(timeout))
        return True

    def add(self, key: str, value: Any, timeout: float | timedelta | None = None) -> bool:
        return self._cache.add(self._key(key), value, self._ttl_s(timeout))

    def delete(self, key: str) -> bool:
        return self._cache.delete(self._key(key))

    def get_many(self, *keys: str) -> list[Any]:
        found = self._cache.get_many(map(self._key, keys))
        return [found.get(self._key(key)) for key in keys]

    def get_dict(self, *keys: str) -> dict[str, Any]:
        return dict(zip(keys, self.get_many(*keys), strict=True))

    def set_many(self, mapping: dict[str, Any], timeout: float | timedelta | None = None) -> list[Any]:
        """Returns the given keys: all were stored, or an error was raised."""
        values = {self._key(key): value for key, value in mapping.items()}
        self._cache.set_many(values, self._ttl_s(timeout))
        return list(mapping)

    def delete_many(self, *keys: str) -> list[Any]:
        """Returns the keys that had values."""
        return [key for key in keys if self.delete(key)]

    def inc(self, key: str, delta: int = 1) -> int | None:
        """Add to a number; if there is none, store `delta`."""
        return self._cache.count(self._key(key), delta, first=delta, ttl_s=self._ttl_s(None))

    def dec(self, key: str, delta: int = 1) -> int | None:
        return self.inc(key, -delta)

    def clear(self) -> bool:
        """Remove everything in the map, of every prefix."""
        self._cache.clear()
        return True
