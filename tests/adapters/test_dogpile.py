"""dogpile.cache in a map: its own tests of backends, and a lock that processes share."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import pytest

pytest.importorskip(
    "dogpile.cache",
    reason="dogpile.cache is not installed: pip install '.[dogpile]' in the source folder",
)
from dogpile.cache import make_region, register_backend
from dogpile.cache.api import NO_VALUE
from dogpile.testing.fixtures import (
    _GenericBackendTestSuite,
    _GenericMutexTestSuite,
    _GenericSerializerTestSuite,
)

from holdfast.adapters.cache_map import CacheMap
from holdfast.adapters.dogpile import HoldfastBackend, MapMutex

register_backend("holdfast.tested", "holdfast.adapters.dogpile", "HoldfastBackend")
ARGUMENTS: dict[str, Any] = {"addresses": ""}
LOCKED: dict[str, Any] = {"addresses": "", "distributed_lock": True}


@pytest.fixture(scope="module", autouse=True)
def known(addresses: str) -> None:
    ARGUMENTS["addresses"] = LOCKED["addresses"] = addresses


class TestBackend(_GenericBackendTestSuite):
    backend = "holdfast.tested"
    config_args = {"arguments": ARGUMENTS}  # noqa: RUF012
    test_threaded_get_multi = None  # it takes 5 s, and `test_threaded_dogpile` does the same with single keys


class TestSerializer(_GenericSerializerTestSuite, TestBackend):
    test_threaded_dogpile = test_region_expire = None


class TestMutex(_GenericMutexTestSuite):
    backend = "holdfast.tested"
    config_args = {"arguments": LOCKED}  # noqa: RUF012


def test_values_are_not_pickled(addresses: str) -> None:
    region = make_region().configure("holdfast.tested", arguments=ARGUMENTS)
    value = {"a": [1, None], "b": (2, b"c")}
    region.set("k", value)
    assert region.get("k") == value
    region.set("none", None)
    assert region.get("none") is None
    with pytest.raises(TypeError):
        region.set("k", object())


def test_members_forget_values_in_time(addresses: str) -> None:
    backend = HoldfastBackend({**ARGUMENTS, "time_to_live_s": 0.05})
    backend.set_serialized("short", b"v")
    backend.set_serialized_multi({"brief": b"w"})
    assert backend.get_serialized_multi(["short", "never", "brief"]) == [b"v", NO_VALUE, b"w"]
    while [one for one in backend.get_serialized_multi(["short", "brief"]) if one is not NO_VALUE]:
        time.sleep(0.02)


def test_one_process_alone_makes_a_value(addresses: str) -> None:
    """Four processes and four threads want the same value at the same time: one of them makes it."""
    region = make_region().configure("holdfast.tested", arguments=LOCKED)
    region.get("connects before it forks")
    reading, writing = os.pipe()

    def make() -> str:
        os.write(writing, b"x")
        time.sleep(0.2)
        return "made"

    def want() -> None:
        os.write(writing, b"." if region.get_or_create("dear", make) == "made" else b"?")

    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            try:
                want()
            finally:
                os._exit(0)
        children.append(child)
    threads = [threading.Thread(target=want) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for child in children:
        os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        assert sorted(told.read()) == sorted(b"x........")


def test_a_lock_outlives_nobody(addresses: str) -> None:
    locks = CacheMap(addresses, "locks", {})
    dead, next_one = MapMutex(locks, "k", 0.2), MapMutex(locks, "k", 5)
    assert dead.acquire()
    assert not next_one.acquire(wait=False)
    assert next_one.acquire()
    dead.release()
    assert next_one.locked()
    next_one.release()
    assert not next_one.locked()
