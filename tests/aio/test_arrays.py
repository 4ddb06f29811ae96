"""Arrow arrays in and out: the same as one entry at a time."""

from __future__ import annotations

import asyncio
import datetime as dt
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from holdfast.aio import Client, Serializers
from holdfast.aio.arrays import from_stored_many, to_stored_many
from holdfast.errors import Refused, Unknown
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::ResourceWarning")]

ARRAYS: list[Any] = [
    pa.array([1, -2, 2**31 - 1, -(2**31)], pa.int64()),
    pa.array([1, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63)], pa.int64()),
    pa.array([1, -2], pa.int8()),
    pa.array([1, 2**32 - 1], pa.uint32()),
    pa.array([1, 2**64 - 1], pa.uint64()),
    pa.array([1.5, float("inf")], pa.float64()),
    pa.array([1.5, -2.0], pa.float32()),
    pa.array(["", "ünï", "x" * 300]),
    pa.array(["a", "b"], pa.large_string()),
    pa.array(["a", "b", "a"]).dictionary_encode(),
    pa.array([b"", b"\0\xff"]),
    pa.array([True, False]),
    pa.array([dt.date(2026, 1, 2)]),
    pa.array([[1, 2], [3]]),
    pa.array([{"a": 1}]),
    pa.chunked_array([[1, 2], [3]]),
    pa.array([], pa.string()),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.type}")
def test_elements_are_stored_as_one_at_a_time(array: Any) -> None:
    serializers = Serializers()
    assert to_stored_many(array, serializers) == [serializers.dump(each) for each in array.to_pylist()]


@pytest.mark.parametrize(
    ("values", "asked", "kind"),
    [
        ([1, None, 2**40, -1], None, pa.int64()),
        ([1, None], pa.int16(), pa.int16()),
        ([1.5, None], None, pa.float64()),
        (["ü", None, ""], None, pa.string()),
        ([b"", None], None, pa.binary()),
        ([True, None, False], None, pa.bool_()),
        ([{"a": 1}, None], pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int64())])),
        ([dt.date(2026, 1, 2), None], pa.date32(), pa.date32()),
        ([1, 1.5], pa.float64(), pa.float64()),
        ([None, None], None, pa.null()),
        ([None], pa.string(), pa.string()),
    ],
)
def test_values_are_read_in_bulk(values: list[Any], asked: Any, kind: Any) -> None:
    serializers = Serializers()
    stored = [None if value is None else serializers.dump(value) for value in values]
    if pa.types.is_struct(kind):
        with pytest.raises(TypeError):
            from_stored_many(stored, asked, serializers)
        return
    found = from_stored_many(stored, asked, serializers)
    assert found.type == kind
    assert found.to_pylist() == values


def test_arrays_need_no_numpy() -> None:
    """Which Holdfast alone does not bring along."""
    program = """
import sys
sys.modules["numpy"] = None
import pyarrow as pa
from holdfast.aio import Serializers
from holdfast.aio.arrays import from_stored_many, to_stored_many
plain = Serializers()
for array in (pa.array([1, -(2**40)]), pa.array([0.5]), pa.array(["a"]), pa.array([b"b"]), pa.array([True])):
    assert from_stored_many([*to_stored_many(array, plain), None], None, plain).slice(0, len(array)).equals(array)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_json_is_answered_as_text() -> None:
    serializers = Serializers()
    assert from_stored_many([serializers.dump({"a": 1})], None, serializers).to_pylist() == ['{"a":1}']


def test_what_does_not_fit_is_an_error_before_anything_is_sent() -> None:
    serializers = Serializers()
    with pytest.raises(ValueError, match="null"):
        to_stored_many(pa.array([1, None]), serializers)
    with pytest.raises(TypeError, match="value_type"):
        from_stored_many([serializers.dump(1), serializers.dump("a")], None, serializers)
    with pytest.raises(TypeError, match="do not fit"):
        from_stored_many([serializers.dump(2**40)], pa.int32(), serializers)


def test_many_entries_by_real_members(cluster: LocalCluster, official: Any) -> None:
    async def run() -> None:
        theirs = official.get_map("many").blocking()
        async with Client(cluster.client_addresses()) as client:
            ours = client.map("many")
            count = 50_000
            keys = pa.array([f"key {n}" for n in range(count)])
            await ours.put_many(keys, pa.array(range(count)))
            assert await ours.size() == count
            assert await asyncio.to_thread(theirs.get, "key 7") == 7
            asked = pa.concat_arrays([keys, pa.array(["none", "key 3", "key 3"])])
            found = await ours.get_many(asked)
            assert found.type == pa.int64()
            assert found.to_pylist() == [*range(count), None, 3, 3]
            await ours.put_many(pa.array([1, 2]), pa.array([b"x" * 700_000, b"y" * 700_000]))
            big = await ours.get_many(pa.array([2, 1]))
            assert [each[:1] for each in big.to_pylist()] == [b"y", b"x"]
            with pytest.raises(ValueError, match="2 keys"):
                await ours.put_many(pa.array([1, 2]), pa.array([1]))
            assert (await ours.get_many(pa.array([], pa.string()))).to_pylist() == []
            await ours.put_many(pa.array([], pa.string()), pa.array([], pa.string()))

    asyncio.run(run())


def test_a_member_dies_while_many_are_stored() -> None:
    """Either all is stored, or it is said that some may not be; what was acknowledged is there."""

    async def run(cluster: LocalCluster) -> None:
        async with Client(cluster.client_addresses()) as client:
            ours = client.map("many")
            while not all(client.route) or not client.route:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.02)
            keys = pa.array(range(20_000))
            failures = acknowledged = 0
            killing = asyncio.create_task(asyncio.to_thread(cluster.kill, cluster.members[0]))
            for attempt in range(40):
                try:
                    await ours.put_many(keys, pa.array([attempt] * len(keys)))
                    acknowledged = attempt
                    if killing.done() and failures:
                        break
                except (Unknown, Refused):
                    failures += 1
            await killing
            found = await ours.get_many(keys)
            assert found.null_count == 0
            assert min(found.to_pylist()) >= acknowledged

    with LocalCluster(members=3) as cluster:
        cluster.wait_settled()
        asyncio.run(run(cluster))
