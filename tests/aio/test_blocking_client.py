"""The blocking façade: the same answers, from any number of threads, on connections of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from holdfast.aio import BlockingClient, ChangeKind, NearCacheOptions
from holdfast.aio.direct_line import DirectLine, DirectLines
from holdfast.aio.member_line import LineClosed
from holdfast.client_core.request_forms import RequestForm
from holdfast.errors import ConfigError, Denied, NotReady, Refused, Unknown
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.02)


def test_every_operation_answers_what_the_official_client_is_answered(
    cluster: LocalCluster, official: Any, steps: list[Any]
) -> None:
    theirs = official.get_map("their blocking").blocking()
    expected = [getattr(theirs, name)(*rest) for name, rest in steps]
    expected[[name for name, _ in steps].index("put_all")] = None
    before = threading.active_count()
    with BlockingClient(cluster.client_addresses()[:1]) as client:
        ours = client.map("our blocking")
        assert [getattr(ours, name)(*rest) for name, rest in steps] == expected
        ours.put_many(pa.array([1, 2]), pa.array(["a", "b"]))
        assert ours.get_many(pa.array([2, 3])).to_pylist() == ["b", None]
        assert sorted(ours.keys()) == [1, 2]
        assert sorted(ours.entries()) == [(1, "a"), (2, "b")]
        assert ours.remove_if_same(1, "b") is False
        assert ours.remove_if_same(1, "a") is True
        ours.delete(2)
        assert ours.values() == []
        with ours.listen() as listening:
            ours.set("k", 1)
            assert next(iter(listening)).kind is ChangeKind.ADDED
    assert threading.active_count() == before
    with pytest.raises(NotReady, match="closed"):
        ours.get("k")
    with pytest.raises(NotReady, match="closed"):
        ours.size()


def test_entries_live_as_long_as_is_said(cluster: LocalCluster) -> None:
    with BlockingClient(cluster.client_addresses()) as client:
        ours = client.map("lasting")
        ours.put_all(dict.fromkeys(range(100), "soon"), ttl_s=60)
        ours.put_all({"stays": 1})
        assert ours.set_ttl(0, 0)
        assert [ours.set_ttl(n, 0.05) for n in range(1, 100)] == [True] * 99
        assert not ours.set_ttl("none", 1)
        until(lambda: ours.size() == 2)
        assert ours.get_all([0, "stays"]) == {0: "soon", "stays": 1}
        ours.delete_all([0, "none"])
        assert ours.keys() == ["stays"]
        with pytest.raises(ValueError, match="ttl_s"):
            ours.set_ttl("stays", -1)
        with pytest.raises(ValueError, match="ttl_s"):
            ours.put_all({"k": 1}, ttl_s=-1)


def test_many_threads_share_it_and_a_member_dies() -> None:
    with LocalCluster(members=3) as cluster:
        cluster.wait_settled()
        with BlockingClient(cluster.client_addresses(), connections=4) as client:
            ours = client.map("shared")
            acknowledged: dict[int, int] = {}
            attempts: dict[int, int] = {}
            strange: list[BaseException] = []
            stop = threading.Event()

            def write(thread: int) -> None:
                count = 0
                while not stop.wait(0.005):
                    count += 1
                    attempts[thread] = count
                    try:
                        ours.set(thread, count)
                        acknowledged[thread] = count
                        assert ours.get(thread) >= count
                    except (Unknown, Refused):
                        pass
                    except BaseException as error:  # noqa: BLE001 - any other is the failure
                        strange.append(error)
                        return

            threads = [threading.Thread(target=write, args=(n,)) for n in range(12)]
            for thread in threads:
                thread.start()
            until(lambda: len(acknowledged) == 12)
            cluster.kill(cluster.members[1])
            before = dict(acknowledged)
            until(lambda: bool(strange) or all(acknowledged[n] > before[n] + 5 for n in before))
            stop.set()
            for thread in threads:
                thread.join()
            assert strange == []
            for n, count in acknowledged.items():
                assert count <= ours.get(n) <= attempts[n]
            for lines in client._direct._lines.values():
                assert lines._count <= 4
                assert not lines._used


def test_near_cache_from_threads(cluster: LocalCluster, official: Any) -> None:
    theirs = official.get_map("near blocking").blocking()
    options = {"near blocking": NearCacheOptions(in_memory_format="object", max_size=50)}
    with BlockingClient(cluster.client_addresses(), near_caches=options) as client:
        ours = client.map("near blocking")
        cache = ours.near_cache
        assert cache is not None
        until(lambda: bool(cache._fed) and all(cache._fed))
        strange: list[BaseException] = []

        def work(thread: int) -> None:
            try:
                for n in range(300):
                    ours.set((thread << 8) + n % 20, n)
                    assert ours.get((thread << 8) + n % 20) == n
            except BaseException as error:  # noqa: BLE001 - any is the failure
                strange.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert strange == []
        assert len(cache) <= 50
        ours.set("k", 1)
        time.sleep(0.1)
        assert ours.get("k") == 1
        theirs.put("k", 2)
        until(lambda: ours.get("k") == 2)


def test_who_waits_when_the_client_is_closed_comes_to_an_end(cluster: LocalCluster) -> None:
    client = BlockingClient(cluster.client_addresses())
    ours = client.map("closing")
    listening = ours.listen()
    ends: list[object] = []

    def iterate() -> None:
        ends.append(list(listening))

    def work() -> None:
        try:
            while True:
                ours.put_all({n: n for n in range(500)})
                ours.get(1)
        except (NotReady, Unknown) as error:
            ends.append(error)

    threads = [threading.Thread(target=each) for each in (iterate, work, work)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    client.close()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert len(ends) == 3
    client.close()


def test_strangers_and_wrong_options(cluster: LocalCluster) -> None:
    before = threading.active_count()
    with pytest.raises(Denied, match="cluster_name"):
        BlockingClient(cluster.client_addresses(), cluster_name="other")
    with pytest.raises(ConfigError):
        BlockingClient(["nowhere:"])
    with pytest.raises(ConfigError, match="connections"):
        BlockingClient(connections=0)
    with pytest.raises(NotReady):
        BlockingClient(["127.0.0.1:1"], connect_timeout_s=0.1)
    assert threading.active_count() == before


def test_a_connection_that_the_member_has_closed_is_not_used(cluster: LocalCluster) -> None:
    """So a write that was sent into nothing is not one that may have been applied."""
    with BlockingClient(cluster.client_addresses()) as client:
        ours = client.map("idle")
        ours.set("k", 1)
        time.sleep(0.05)
        for lines in client._direct._lines.values():
            for line in lines._idle:
                line.hang_up()
        ours.set("k", 2)
        assert ours.get("k") == 2
        client._direct.prune()
        assert sum(lines._count for lines in client._direct._lines.values()) == 0
        assert ours.get("k") == 2


def test_who_waits_for_a_connection_gets_one_or_hears_of_the_end() -> None:
    class Slow:
        alive = True

        def ask(self, *_: Any) -> object:
            time.sleep(0.01)
            return True

        def hang_up(self) -> None:
            pass

        close = hang_up

    made: list[Slow] = []

    def make() -> DirectLine:
        made.append(Slow())
        return made[-1]  # type: ignore[return-value]

    lines = DirectLines(make, 3)
    form = RequestForm(0, 1, b"", b"", reads=True)
    told: list[object] = []
    turns: list[int] = []

    def asking(thread: int) -> None:
        try:
            while len(told) < 200:
                told.append(lines.ask(form, 0, b""))
                turns.append(thread)
        except LineClosed as closed:
            told.append(closed)

    threads = [threading.Thread(target=asking, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert set(told) == {True}
    assert len(made) == 3
    assert min(turns.count(n) for n in range(20)) >= 5, "nobody is passed over"
    lines.end("the end")
    with pytest.raises(LineClosed, match="the end"):
        lines.ask(form, 0, b"")
    assert lines._count == 0
