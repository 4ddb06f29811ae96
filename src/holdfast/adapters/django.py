"""Django's cache in a map.

CACHES = {"default": {"BACKEND": "holdfast.adapters.django.HoldfastCache", "LOCATION": "127.0.0.1:5701"}}

Nothing is pickled, unlike in Django's own backends. Values of types that `holdfast.serialization` supports are
stored, and whole responses, as the cache middleware keeps them. Others raise TypeError, unless
`OPTIONS["serializer"]` names a class that handles them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http.cookies import Morsel
from typing import Any, Protocol

from holdfast.adapters.cache_map import ABSENT, FOR_EVER, CacheMap
from holdfast.adapters.cached_values import cache_serializers
from holdfast.config.client_tls import ClientTls
from holdfast.errors import ConfigError, NotInstalled
from holdfast.serialization.serializers import Codec, Serializers

try:
    from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
    from django.core.exceptions import ImproperlyConfigured
    from django.http import HttpResponse
    from django.utils.module_loading import import_string
except ImportError as absent:
    raise NotInstalled.of("this is a cache of Django", "django", "django") from absent

MAP = "django"
RESPONSE = 1_214_211_590
"""Type id of a response."""
OUR_OPTIONS = ("map", "serializer", "MAX_ENTRIES", "CULL_FREQUENCY")
"""Options that are not passed to the client. The last two are Django's and have no effect: members evict or reject.
"""


class ValueSerializer(Protocol):
    """Interface of `OPTIONS["serializer"]`: a class without parameters, or an instance."""

    def dumps(self, value: Any) -> object:
        """The object to store. Integers must stay integers, so that they can be counted."""

    def loads(self, stored: Any) -> Any: ...


class _Response:
    __slots__ = ("parts",)

    def __init__(self, parts: dict[str, Any]) -> None:
        self.parts = parts


_PARTS = Serializers()
_SERIALIZERS = cache_serializers(
    [
        Codec(
            _Response,
            RESPONSE,
            lambda response: _PARTS.dump(response.parts),
            lambda stored: _Response(_PARTS.load(stored)),
        )
    ]
)


class PlainSerializer:
    """Values unchanged, and responses as status, headers, cookies and content."""

    def dumps(self, value: Any) -> object:
        """Raises TypeError for a response that streams or is not rendered."""
        if not isinstance(value, HttpResponse):
            return value
        if not getattr(value, "is_rendered", True):
            raise TypeError("a response is stored when it is rendered, not before")
        return _Response(
            {
                "status": value.status_code,
                "reason": value.reason_phrase,
                "headers": [list(pair) for pair in value.headers.items()],
                "cookies": [
                    [morsel.key, morsel.value, morsel.coded_value, dict(morsel)]
                    for morsel in value.cookies.values()
                ],
                "content": bytes(value.content),
            }
        )

    def loads(self, stored: Any) -> Any:
        """Responses of any class come back as HttpResponse."""
        if not isinstance(stored, _Response):
            return stored
        parts = stored.parts
        response = HttpResponse(parts["content"], status=parts["status"], reason=parts["reason"])
        del response.headers["Content-Type"]
        for name, value in parts["headers"]:
            response.headers[name] = value
        for key, value, coded, attributes in parts["cookies"]:
            morsel: Morsel[str] = Morsel()
            morsel.set(key, value, coded)
            morsel.update(attributes)
            response.cookies[key] = morsel
        return response


class HoldfastCache(BaseCache):
    """One cache in one map. `LOCATION` names members; `OPTIONS` are `map`, `serializer` and those of the client."""

    def __init__(self, server: str | Iterable[str], params: dict[str, Any]) -> None:
        """Connects at the first use. Raises ImproperlyConfigured."""
        super().__init__(params)
        options = dict(params.get("OPTIONS") or {})
        serializer = options.get("serializer") or PlainSerializer
        if isinstance(serializer, str):
            serializer = import_string(serializer)
        self._serializer: ValueSerializer = serializer() if isinstance(serializer, type) else serializer
        name = options.get("map", MAP)
        client = {option: value for option, value in options.items() if option not in OUR_OPTIONS}
        if isinstance(client.get("tls"), Mapping):
            client["tls"] = ClientTls(**client["tls"])
        try:
            self._cache = CacheMap(server, name, {"serializers": _SERIALIZERS, **client})
        except (ConfigError, TypeError) as wrong:
            raise ImproperlyConfigured(f"CACHES: {wrong}") from wrong

    def get_backend_timeout(self, timeout: Any = DEFAULT_TIMEOUT) -> float:
        """Seconds to live in the form of `CacheMap`."""
        seconds = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        if seconds is None:
            return FOR_EVER
        return float(seconds) if seconds > 0 else -1.0

    def _key(self, key: Any, version: int | None) -> str:
        return str(self.make_and_validate_key(key, version=version))

    # -- methods of a Django backend

    def add(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        ttl_s = self.get_backend_timeout(timeout)
        return self._cache.add(self._key(key, version), self._serializer.dumps(value), ttl_s)

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        found = self._cache.get(self._key(key, version), ABSENT)
        return default if found is ABSENT else self._serializer.loads(found)

    def set(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        ttl_s = self.get_backend_timeout(timeout)
        self._cache.set(self._key(key, version), self._serializer.dumps(value), ttl_s)

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        return self._cache.touch(self._key(key, version), self.get_backend_timeout(timeout))

    def delete(self, key: Any, version: int | None = None) -> bool:
        return self._cache.delete(self._key(key, version))

    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        names = {self._key(key, version): key for key in keys}
        loads = self._serializer.loads
        return {names[name]: loads(stored) for name, stored in self._cache.get_many(names).items()}

    def has_key(self, key: Any, version: int | None = None) -> bool:
        return self._cache.has(self._key(key, version))

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """Raises ValueError if there is none. Keeps the time to live, and loses no sum."""
        name = self._key(key, version)
        added = self._cache.count(name, delta)
        if added is None:
            raise ValueError(f"Key {name!r} not found")
        return added

    def set_many(
        self, data: Mapping[Any, Any], timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[Any]:
        """Returns the keys that were not stored: always none, because errors are raised."""
        dumps = self._serializer.dumps
        values = {self._key(key, version): dumps(value) for key, value in data.items()}
        self._cache.set_many(values, self.get_backend_timeout(timeout))
        return []

    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> None:
        self._cache.delete_many([self._key(key, version) for key in keys])

    def clear(self) -> None:
        """Remove everything in the map, of every version and prefix."""
        self._cache.clear()
