"""What all caches do with a map: None, numbers that keep their time to live, and one client for each process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import aio
from holdfast.adapters.cache_map import ABSENT, CacheMap
from holdfast.adapters.cached_values import Counted
from holdfast.adapters.process_clients import close_all, process_client
from holdfast.errors import ConfigError


@pytest.fixture
def cache(addresses: str, request: pytest.FixtureRequest) -> Iterator[CacheMap]:
    yield CacheMap(addresses, request.node.name, {})
    close_all()


def until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.02)


def test_nothing_is_a_value(cache: CacheMap) -> None:
    cache.set("k", None)
    assert cache.get("k", ABSENT) is None
    assert cache.get("other", ABSENT) is ABSENT
    assert cache.get_many(["k", "other"]) == {"k": None}
    assert cache.has("k")
    assert not cache.add("k", 1)
    assert cache.delete("k")
    assert not cache.delete("k")


def test_a_number_that_is_counted_keeps_its_time_to_live(cache: CacheMap) -> None:
    cache.set("ends", 5, 0.6)
    cache.set("stays", 5)
    assert [cache.count("ends", 2), cache.count("stays", -6)] == [7, -1]
    assert cache.count("none", 1) is None
    assert cache.count("new", 1, first=10, ttl_s=60) == 10
    assert cache.count("new", 1, first=10, ttl_s=60) == 11
    assert cache.get("ends") == 7
    until(lambda: cache.get("ends") is None)
    assert cache.add("ends", "again", 60)
    assert cache.get("stays") == -1
    cache.set("text", "five")
    with pytest.raises(TypeError, match="no whole number"):
        cache.count("text", 1)


@pytest.mark.parametrize("ttl_s", [0, 60])
@pytest.mark.parametrize("edge", [2**63 - 1, -(2**63), 2**200])
def test_counting_does_not_end_at_64_bits(cache: CacheMap, edge: int, ttl_s: float) -> None:
    step = 1 if edge > 0 else -1
    cache.set("n", edge, ttl_s)
    assert [cache.count("n", step), cache.get("n")] == [edge + step] * 2
    assert cache.count("n", -step) == edge


@pytest.mark.parametrize("ttl_s", [0, 60])
@pytest.mark.parametrize("value", [frozenset(), frozenset({1, "two", (3, 4)}), {1, 2}])
def test_sets_keep_their_type(cache: CacheMap, value: object, ttl_s: float) -> None:
    cache.set("s", value, ttl_s)
    found = cache.get("s")
    assert (type(found), found) == (type(value), value)


def test_a_number_whose_entry_outlives_it_is_gone(cache: CacheMap) -> None:
    """As when who counted it died before the entry had its time to live again."""
    cache.entries.set("k", Counted(3, time.time_ns() // 1_000_000 - 1))
    assert cache.get("k") is None
    assert not cache.has("k")
    assert not cache.touch("k", 5)
    assert cache.get_many(["k"]) == {}
    assert cache.count("k", 1, first=1) == 1


def test_no_sum_is_lost_between_threads(cache: CacheMap) -> None:
    cache.set("k", 0, 60)

    def count() -> None:
        for _ in range(50):
            cache.count("k", 1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.get("k") == 200


def test_a_value_can_be_given_another_time_to_live(cache: CacheMap) -> None:
    for key, value in {"text": "v", "number": 1}.items():
        cache.set(key, value, 60)
        assert cache.touch(key, 0.05)
    cache.set("for ever", 1, 0.5)
    assert cache.touch("for ever")
    assert not cache.touch("none", 5)
    until(lambda: cache.get_many(["text", "number"]) == {})
    time.sleep(0.5)
    assert cache.get("for ever") == 1


def test_many_are_stored_for_a_time(cache: CacheMap) -> None:
    cache.set_many({str(n): n for n in range(100)}, 0.3)
    cache.set_many({"x": "for ever"})
    assert cache.get_many(str(n) for n in range(100)) == {str(n): n for n in range(100)}
    cache.delete_many(["0", "1"])
    assert not cache.has("0")
    until(lambda: not cache.has("99"))
    assert cache.get("x") == "for ever"
    cache.set_many({"x": 1}, -1)
    assert not cache.has("x")


def test_what_lives_for_less_than_no_time_is_not_kept(cache: CacheMap) -> None:
    cache.set("k", 1)
    assert not cache.add("k", 2, -1)
    cache.set("k", 2, -1)
    assert not cache.has("k")
    assert cache.add("k", 2, -1)
    assert not cache.has("k")


# -- processes


def test_a_client_is_shared_by_all_with_the_same_options(addresses: str) -> None:
    one = process_client(addresses, {"connections": 2})
    assert process_client(addresses.split(","), {"connections": 2}) is one
    assert process_client(addresses, {"connections": 3}) is not one
    with pytest.raises(ConfigError, match="MAX is not an option"):
        process_client(addresses, {"MAX": 1})
    with pytest.raises(ConfigError, match="host:port"):
        process_client(" , ", {})


def in_child(do: Callable[[], str]) -> str:
    """What a forked process says."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, do().encode())
        except BaseException as error:  # noqa: BLE001 - a child must not go on as the test
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        told = said.read()
    os.waitpid(child, 0)
    return told


def test_a_forked_process_has_connections_of_its_own(cache: CacheMap) -> None:
    """As servers do that load the application, and then fork; here while a thread of the parent is asking."""
    cache.set("k", "of the parent")
    parent = cache.entries
    stop, wrong = threading.Event(), []

    def ask() -> None:
        while not stop.wait(0.001):
            if cache.get("k") != "of the parent":
                wrong.append(1)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()

    def work() -> str:
        assert cache.entries is not parent
        for number in range(50):
            cache.set(f"child {number}", number)
        return f"{cache.get('k')} {len(cache.get_many(f'child {n}' for n in range(50)))}"

    told = [in_child(work) for _ in range(3)]
    stop.set()
    for thread in asking:
        thread.join()
    assert told == ["of the parent 50"] * 3
    assert not wrong
    assert cache.entries is parent
    assert cache.get("child 49") == 49


def sockets() -> int:
    """How many this process has."""
    names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    return sum(
        Path(name).readlink().as_posix().startswith("socket:") for name in names if Path(name).is_symlink()
    )


def test_a_child_does_not_keep_the_connections_of_its_parent(addresses: str) -> None:
    """Else a member would not see that the parent has hung up."""
    cache = CacheMap(addresses, "inherited", {"connections": 1})
    cache.set("k", 1)
    before = sockets()
    told = int(in_child(lambda: str(sockets())))
    close_all()
    assert told <= before - 2


def test_a_client_with_little_patience_does_not_connect_for_longer() -> None:
    def connects_for(**options: float) -> float:
        return aio.Client("127.0.0.1:1", **options).connect_timeout_s  # type: ignore[arg-type]

    assert connects_for() == 10
    assert connects_for(patience_s=2) == 2
    assert connects_for(patience_s=20) == 10
    assert connects_for(patience_s=2, connect_timeout_s=5) == 5
