"""What the data lane has served is counted, by kind and by how long it took: plain and compiled alike."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.hazelcast.one_member import OneMemberGrid
from tests.server.hazelcast.test_lane_ways import (
    CONTAINS_KEY,
    DELETE,
    EVICT,
    GET,
    KEYS,
    LONGEST,
    PUT,
    PUT_IF_ABSENT,
    REMOVE,
    REPLACE_IF_SAME,
    SET,
    VALUES,
    request,
)

from holdfast.core.model import map_counts
from holdfast.core.model.map_counts import OTHERS, MapCounts
from holdfast.observe.latency_histogram import LatencyHistogram
from holdfast.runtime.data_lane import DataLane, data_lane
from holdfast.server.hazelcast.keyed_requests import COUNTED
from holdfast.server.hazelcast.lane_tally import LaneTally
from holdfast.server.hazelcast.reference_lane import Served

WAYS = {"plain": data_lane("python"), data_lane().kind: data_lane()}
KINDS = {
    "get": GET,
    "contains-key": CONTAINS_KEY,
    "set": SET,
    "put": PUT,
    "remove": REMOVE,
    "delete": DELETE,
    "put-if-absent": PUT_IF_ABSENT,
    "replace-if-same": REPLACE_IF_SAME,
    "evict": EVICT,
}


def serve(way: DataLane, tally: LaneTally, *kinds: int) -> int:
    """Let the lane serve requests of these kinds; answers how far it came."""
    data = b"".join(
        request(kind, "m", KEYS[0], VALUES[0], partition=0, ttl_ms=-1, word=0, number=1) for kind in kinds
    )
    sink = way.code.PrimarySink(OneMemberGrid().lane, bytearray(), bytearray(), tally)
    return way.code.serve_entries(data, 0, sink, {b"m": "m"}, LONGEST, 1 << 30)


def counted(tally: LaneTally) -> dict[str, tuple[int, int]]:
    """By kind: how many, and how long all took."""
    return {name: (sum(counts), took_ns) for name, counts, took_ns in tally.figures()}


@pytest.mark.parametrize("way", WAYS)
@given(kinds=st.lists(st.sampled_from(sorted(KINDS)), max_size=20))
def test_each_operation_is_counted_once(way: str, kinds: list[str]) -> None:
    tally = WAYS[way].code.LaneTally()
    serve(WAYS[way], tally, *(KINDS[kind] for kind in kinds))
    tally.close(lambda: 7000, 2000)
    assert counted(tally) == {kind: (kinds.count(kind), 5000 * kinds.count(kind)) for kind in kinds}
    tally.close(lambda: 9000, 2000)
    assert sum(count for count, _ in counted(tally).values()) == len(kinds)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_left_to_the_general_way_is_not(way: str) -> None:
    tally = WAYS[way].code.LaneTally()
    keys_of_map = 0x012200
    assert serve(WAYS[way], tally, GET, keys_of_map, GET) > 0
    tally.close(lambda: 0, 0)
    assert counted(tally) == {"get": (1, 0)}


@pytest.mark.parametrize("way", WAYS)
@given(times=st.lists(st.integers(0, 2**40), max_size=20))
def test_in_the_buckets_of_a_histogram(way: str, times: list[int]) -> None:
    tally, kept = WAYS[way].code.LaneTally(), LatencyHistogram()
    for took_ns in times:
        serve(WAYS[way], tally, GET, GET)
        tally.close(lambda took_ns=took_ns: took_ns + 5, 5)  # type: ignore[misc]
        kept.add(took_ns, 2)
    assert tally.figures() == ([("get", kept.counts, kept.sum_ns)] if times else [])


@pytest.mark.parametrize("way", WAYS)
def test_each_bucket_begins_where_that_of_a_histogram_does(way: str) -> None:
    for bit in range(8, 38):
        for took_ns in ((1 << bit) - 1, 1 << bit, (1 << bit) + (1 << (bit - 2))):
            tally, kept = WAYS[way].code.LaneTally(), LatencyHistogram()
            serve(WAYS[way], tally, GET)
            tally.close(lambda took_ns=took_ns: took_ns, 0)  # type: ignore[misc]
            kept.add(took_ns, 1)
            assert tally.figures() == [("get", kept.counts, took_ns)]


@pytest.mark.parametrize("way", WAYS)
def test_writes_that_are_held_back_count_when_they_are_answered(way: str) -> None:
    tally = WAYS[way].code.LaneTally()
    serve(WAYS[way], tally, GET, GET, SET, SET, SET, DELETE)
    taken = tally.take_writes()
    tally.close(lambda: 2000, 0)
    assert counted(tally) == {"get": (2, 4000)}
    tally.settle(taken, 10_000_000, True)
    assert counted(tally) == {"get": (2, 4000), "set": (3, 30_000_000), "delete": (1, 10_000_000)}
    assert tally.unknown == 0
    serve(WAYS[way], tally, PUT, PUT)
    taken = tally.take_writes()
    serve(WAYS[way], tally, GET, PUT, SET)
    tally.add_writes(taken)
    tally.settle(taken, 5, False)
    assert tally.unknown == 4
    tally.settle(tally.take_writes(), 5, False)
    assert tally.unknown == 4, "each write counts once"
    tally.close(lambda: 7, 0)
    assert counted(tally)["get"] == (3, 4007)


@pytest.mark.parametrize("way", WAYS)
@given(
    asked=st.lists(
        st.tuples(st.sampled_from(["m", "n", "reads only"]), st.sampled_from(sorted(KINDS))), max_size=30
    ),
    buffers=st.integers(1, 3),
)
def test_reads_are_counted_by_their_map(way: str, asked: list[tuple[str, str]], buffers: int) -> None:
    """Whatever comes between them, and whoever may do nothing else."""
    tally, reads = WAYS[way].code.LaneTally(), MapCounts()
    tally.count_reads_in(reads)
    names: dict[bytes, Served] = {b"m": "m", b"n": "n", b"reads only": ("reads only",)}
    lane, expected = OneMemberGrid().lane, Counter[str]()
    for _ in range(buffers):
        data = b"".join(
            request(KINDS[kind], name, KEYS[0], VALUES[0], partition=0, ttl_ms=-1, word=0, number=1)
            for name, kind in asked
        )
        code = WAYS[way].code
        sink = code.PrimarySink(lane, bytearray(), bytearray(), tally)
        code.serve_entries(data, 0, sink, names, LONGEST, 1 << 30)
        for name, kind in asked:
            reading = kind in {"get", "contains-key"}
            if name == "reads only" and not reading:
                break  # this is not for the lane, nor is what is behind it
            expected[name] += reading
    tally.report_reads()
    assert reads.by_map == +expected


@pytest.mark.rule("model/N-1")
def test_so_many_names_are_counted_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_counts, "NAMES_COUNTED", 2)
    reads = MapCounts()
    for name in ("a", "b", "c", "d", "a", "c"):
        reads.add(name, 5)
    assert reads.by_map == {"a": 10, "b": 5, OTHERS: 15}


@pytest.mark.parametrize("way", WAYS)
def test_operations_that_another_member_has_carried_out_are_counted_here(way: str) -> None:
    """By their places in `COUNTED`; of one write the outcome will never be known."""
    tally = WAYS[way].code.LaneTally()
    places = {op.name.lower().replace("_", "-"): place for place, op in enumerate(COUNTED)}
    kinds = bytes(places[name] for name in ("get", "set", "set", "delete"))
    tally.settle_forwarded(kinds, 5000, 1)
    tally.settle_forwarded(bytes([places["set"]]), 1000, 0)
    assert counted(tally) == {"get": (1, 5000), "set": (3, 11_000), "delete": (1, 5000)}
    assert tally.unknown == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("kinds", "looks"), [([], 0), ([GET, SET, DELETE], 1)])
def test_the_clock_is_read_once_for_all_operations_and_never_for_none(
    way: str, kinds: list[int], looks: int
) -> None:
    tally = WAYS[way].code.LaneTally()
    times = iter(range(7000, 7010))
    serve(WAYS[way], tally, *kinds)
    tally.close(lambda: next(times), 2000)
    assert next(times) == 7000 + looks
    assert sum(count for count, _ in counted(tally).values()) == len(kinds)


@pytest.mark.parametrize("way", WAYS)
def test_reads_before_anybody_counts_them_are_no_error(way: str) -> None:
    tally = WAYS[way].code.LaneTally()
    serve(WAYS[way], tally, GET)
    tally.report_reads()
