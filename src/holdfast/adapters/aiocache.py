"""Cache of aiocache in a map, over the asyncio client.

cache = HoldfastCache(addresses=["127.0.0.1:5701"], namespace="pages")

Values are of the types that `holdfast.serialization` supports, unless the cache has a serializer of aiocache.
Each event loop has its own client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from holdfast.adapters.cached_values import CACHE_SERIALIZERS, Counted, unwrapped, wrapped
from holdfast.adapters.process_clients import PATIENCE_S
from holdfast.aio.asyncio_client import Client
from holdfast.aio.asyncio_map import Map
from holdfast.errors import NotInstalled

try:
    from aiocache.base import BaseCache
    from aiocache.serializers import NullSerializer
except ImportError as absent:
    raise NotInstalled.of("this is a cache of aiocache", "aiocache", "aiocache") from absent

MAP = "aiocache"


class HoldfastCache(BaseCache):
    NAME = "holdfast"

    def __init__(
        self,
        *,
        addresses: Sequence[str] = ("127.0.0.1:5701",),
        map_name: str = MAP,
        client: dict[str, Any] | None = None,
        serializer: Any = None,
        **kwargs: Any,
    ) -> None:
        """`client`: options of `holdfast.aio.Client`. Connects at the first use."""
        super().__init__(serializer=serializer or NullSerializer(), **kwargs)
        self._addresses = list(addresses)
        self._name = map_name
        self._options = {"serializers": CACHE_SERIALIZERS, "patience_s": PATIENCE_S, **(client or {})}
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Client]] = (
            WeakKeyDictionary()
        )

    async def _entries(self) -> Map[Any, Any]:
        """The map, over the client of this event loop. Raises ConfigError, Denied, NotReady."""
        loop = asyncio.get_running_loop()
        connecting = self._clients.get(loop)
        if connecting is None or (connecting.done() and connecting.exception() is not None):
            connecting = loop.create_task(Client(self._addresses, **self._options).connect())
            self._clients[loop] = connecting
        return (await asyncio.shield(connecting)).map(self._name)

    async def _get(self, key: str, encoding: str | None = "utf-8", _conn: Any = None) -> Any:
        return unwrapped(await (await self._entries()).get(key), None)

    _gets = _get

    async def _multi_get(
        self, keys: Sequence[str], encoding: str | None = "utf-8", _conn: Any = None
    ) -> list[Any]:
        found = await (await self._entries()).get_all(keys)
        return [unwrapped(found.get(key), None) for key in keys]

    async def _set(
        self, key: str, value: Any, ttl: float | None = None, _cas_token: Any = None, _conn: Any = None
    ) -> Any:
        entries, ttl_s = await self._entries(), float(ttl or 0)
        if _cas_token is None:
            await entries.set(key, wrapped(value, ttl_s), ttl_s=ttl_s)
            return True
        there = await entries.get(key)
        if unwrapped(there, None) != _cas_token:
            return 0
        stored = await entries.replace_if_same(key, there, wrapped(value, ttl_s))
        if stored and ttl_s:
            await entries.set_ttl(key, ttl_s)
        return int(stored)

    async def _multi_set(
        self, pairs: Sequence[tuple[str, Any]], ttl: float | None = None, _conn: Any = None
    ) -> bool:
        ttl_s = float(ttl or 0)
        entries = {key: wrapped(value, ttl_s) for key, value in pairs}
        await (await self._entries()).put_all(entries, ttl_s=ttl_s)
        return True

    async def _add(self, key: str, value: Any, ttl: float | None = None, _conn: Any = None) -> bool:
        entries, ttl_s = await self._entries(), float(ttl or 0)
        if await entries.put_if_absent(key, wrapped(value, ttl_s), ttl_s=ttl_s) is not None:
            raise ValueError(f"Key {key} already exists, use .set to update the value")
        return True

    async def _exists(self, key: str, _conn: Any = None) -> bool:
        return await (await self._entries()).contains_key(key)

    async def _increment(self, key: str, delta: int, _conn: Any = None) -> int:
        entries = await self._entries()
        while True:
            there = await entries.get(key)
            number = unwrapped(there, None)
            if there is None:
                if await entries.put_if_absent(key, delta) is None:
                    return delta
            elif number is not None and not isinstance(number, int):
                raise TypeError("Value is not an integer") from None
            elif isinstance(there, Counted) and number is not None:
                if await entries.replace_if_same(key, there, Counted(number + delta, there.until_ms)):
                    await entries.set_ttl(key, max(there.left_s(), 0.001))
                    return int(number + delta)
            elif await entries.replace_if_same(key, there, (number or 0) + delta):
                return int((number or 0) + delta)

    async def _expire(self, key: str, ttl: float, _conn: Any = None) -> bool:
        entries, ttl_s = await self._entries(), float(ttl)
        while isinstance(there := await entries.get(key), Counted) or type(there) is int:
            if await entries.replace_if_same(key, there, wrapped(unwrapped(there, None), ttl_s)):
                break
        return there is not None and await entries.set_ttl(key, ttl_s)

    async def _delete(self, key: str, _conn: Any = None) -> int:
        return int(await (await self._entries()).remove(key) is not None)

    async def _clear(self, namespace: str | None = None, _conn: Any = None) -> bool:
        entries = await self._entries()
        if namespace:
            await entries.delete_all([key for key in await entries.keys() if key.startswith(namespace)])
        else:
            await entries.clear()
        return True

    async def _raw(
        self, command: str, *args: Any, encoding: str | None = "utf-8", _conn: Any = None, **kwargs: Any
    ) -> Any:
        return await getattr(await self._entries(), command)(*args, **kwargs)

    async def _redlock_release(self, key: str, value: Any) -> int:
        return int(await (await self._entries()).remove_if_same(key, value))

    async def _close(self, *args: Any, _conn: Any = None, **kwargs: Any) -> None:
        connecting = self._clients.pop(asyncio.get_running_loop(), None)
        if connecting is not None:
            await (await connecting).close()
