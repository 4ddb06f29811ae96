"""A result backend for Celery, which keeps the results of tasks in a map.

    app = Celery(backend="holdfast://127.0.0.1:5701,127.0.0.1:5702/results")

Celery serializes results itself (`result_serializer`, JSON by default) before they are stored. To wait for a result,
it polls the map.
"""

from __future__ import annotations

from typing import Any

from holdfast.adapters.cache_map import FOR_EVER, CacheMap
from holdfast.errors import NotInstalled

try:
    from celery.backends.base import KeyValueStoreBackend
except ImportError as absent:
    raise NotInstalled.of("this keeps results of Celery", "celery", "celery") from absent

MAP = "celery"
SCHEME = "holdfast://"


class HoldfastBackend(KeyValueStoreBackend):
    """`holdfast://HOST:PORT,HOST:PORT/MAP`; the options of the client are `result_backend_transport_options`."""

    supports_native_join = True
    implements_incr = True

    def __init__(self, app: Any, url: str | None = None, **kwargs: Any) -> None:
        super().__init__(app=app, url=url, **kwargs)
        addresses, _, name = (url or SCHEME).removeprefix(SCHEME).partition("/")
        options = dict(self.app.conf.get("result_backend_transport_options") or {})
        self._results = CacheMap(addresses or "127.0.0.1:5701", name or MAP, options)

    def as_uri(self, include_password: bool = False) -> str:
        """As it was given: it has no password, and Kombu cannot read several addresses."""
        return self.url or SCHEME

    def _ttl_s(self) -> float:
        return float(self.expires) if self.expires else FOR_EVER

    def get(self, key: Any) -> Any:
        return self._results.get(_text(key))

    def mget(self, keys: Any) -> list[Any]:
        names = [_text(key) for key in keys]
        found = self._results.get_many(names)
        return [found.get(name) for name in names]

    def set(self, key: Any, value: Any) -> None:
        self._results.set(_text(key), value, self._ttl_s())

    def delete(self, key: Any) -> None:
        self._results.delete(_text(key))

    def incr(self, key: Any) -> int:
        """Count one more ended task of a chord; returns how many have ended."""
        added = self._results.count(_text(key), 1, first=1, ttl_s=self._ttl_s())
        assert added is not None, "where there is no number the first one is stored"
        return added

    def expire(self, key: Any, value: float) -> None:
        self._results.touch(_text(key), float(value))


def _text(key: Any) -> str:
    """Celery passes keys as bytes or as text."""
    return key.decode() if isinstance(key, bytes) else str(key)
