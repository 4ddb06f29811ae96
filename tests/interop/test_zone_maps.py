"""Official clients with a map in a zone: it is a map like any other."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.interop.test_java_client import check_calls, check_times, finish, quiet, start

from holdfast.aio import BlockingClient
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = pytest.mark.interop

CONFIG = "[metastore]\nvoters = 3\n" + "".join(
    f'[maps.{name}]\nraft_zone = "z"\n' for name in ("zoned", "arrays")
)


@pytest.fixture(scope="module")
def zoned() -> Iterator[LocalCluster]:
    """Four members and three replicas, so that clients contact members that do not lead."""
    with LocalCluster(4, CONFIG) as cluster:
        cluster.wait_settled(60)
        cluster.create_zone("z", 3, 60)
        cluster.wait_settled(60)
        yield cluster


@pytest.mark.parametrize(
    "smart", ["true", pytest.param("false", marks=pytest.mark.slow)], ids=["smart", "unisocket"]
)
def test_the_java_client_calls_a_map_in_a_zone(zoned: LocalCluster, smart: str) -> None:
    """Not "destroyed": it destroys and creates the map again."""
    calls = "calls,timed,whole,walked,listeners"
    (seen,), log = finish(start("Scenarios", calls, zoned, smart=smart, map="zoned"))
    check_calls(seen)
    check_times(seen)
    quiet(log)


def test_arrow_arrays_are_stored_in_a_zone_and_read_into_pandas(zoned: LocalCluster) -> None:
    count = 20_000
    keys = pa.array([f"key {number}" for number in range(count)])
    with BlockingClient(zoned.client_addresses()) as client:
        arrays = client.map("arrays")
        arrays.put_many(keys, pa.array(range(count)))
        assert arrays.size() == count
        found = arrays.get_many(pa.concat_arrays([keys, pa.array(["none", "key 3"])]))
    assert found.to_pylist() == [*range(count), None, 3]
    frame = pa.table({"key": keys, "value": found[:count]}).to_pandas()
    assert int(frame["value"].sum()) == count * (count - 1) // 2
