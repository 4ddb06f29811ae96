"""Requests that leave a member as frames, and are served by another one: what the plain and the compiled lane do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server.hazelcast.test_lane_ways import (
    ALONE,
    BATCHES,
    ENTRY_VIEW,
    GET,
    GET_ALL,
    KEYS,
    KNOWN,
    LONGEST,
    PUT,
    PUT_ALL,
    REMOVE,
    REQUESTS,
    SET,
    VALUES,
    WAYS,
    Primary,
    Way,
    batch,
    buffers,
    frame,
    request,
)

from holdfast.config import LimitSettings, Settings
from holdfast.core.model.forwarded_frames import (
    ForwardedDone,
    ForwardedPart,
    OutgoingFrames,
    ServedPart,
    numbered,
)
from holdfast.core.model.ids import MemberId
from holdfast.core.model.records import Record
from holdfast.server.hazelcast import frame_serving, reference_lane
from holdfast.server.hazelcast.frame_serving import FrameServing
from holdfast.server.hazelcast.reference_lane import GENERAL, Served
from holdfast.wire.hazelcast.hazelcast_frames import RESPONSE, messages_in

ANN, BEN = MemberId("ann"), MemberId("ben")
PREFIX = b"p" * 16


def of(
    kind: int, key: int = 0, value: int = 0, *, partition: int = 0, name: str = "m", number: int = 1
) -> bytes:
    return request(
        kind, name, KEYS[key], VALUES[value], partition=partition, ttl_ms=-1, word=0, number=number
    )


# -- requests that leave


class Away:
    """Partition 2 belongs to Ann; requests for "alone" stay."""

    expected_bytes = 700

    def __init__(self) -> None:
        self.away: list[OutgoingFrames | None] = [None, OutgoingFrames(BEN), OutgoingFrames(ANN)]

    def stays(self, name: str) -> bool:
        return name == "alone"

    def forward(self, part: ForwardedPart, done: Callable[[ForwardedDone], None]) -> None:
        raise NotImplementedError


def leave(
    way: Way, primary: Primary, data: bytes, room: int = 1 << 30, names: dict[bytes, Served] = KNOWN
) -> tuple[int, list[tuple[MemberId, bytes, bytes, int]], bytes, bytes, list[int]]:
    forwards, out, unsealed = Away(), bytearray(), bytearray()
    sink = way.code.PrimarySink(primary.lane, out, unsealed, None, None, forwards)
    at = way.code.serve_entries(data, 0, sink, names, LONGEST, room)
    parts = [each.take() for each in sink.departing]
    told = [(each.owner, each.frames, each.kinds, each.expected) for each in parts]
    return at, told, bytes(out), bytes(unsealed), [sink.served]


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=settings.default.max_examples)
@given(
    buffers(), st.sampled_from([1 << 30, 1000, 0]), st.sampled_from([KNOWN, {b"m": ("m",), b"told": "told"}])
)
def test_both_lanes_forward_the_same(
    way: Way, arrived: list[bytes], room: int, names: dict[bytes, Served]
) -> None:
    one, other = (
        Primary(entries, observed=False, locks=True, listening=False) for entries in (dict, way.entries)
    )
    for data in arrived:
        expected = leave(Way(reference_lane), one, data, room, names)
        assert leave(way, other, data, room, names) == expected
        assert one.state() == other.state()


@pytest.mark.parametrize("way", ALONE)
def test_requests_of_another_member_leave_in_order(way: Way) -> None:
    primary = Primary(way.entries, observed=False, locks=False, listening=False)
    mine, first, second = of(GET), of(SET, 1, 1, partition=2), of(GET, 1, partition=2, number=9)
    third = batch(GET_ALL, "m", [(KEYS[1], b"", 0)], partition=2)
    at, told, out, unsealed, served = leave(way, primary, first + mine + second + third)
    assert at == len(first + mine + second + third)
    ((owner, frames, kinds, expected),) = told
    assert (owner, frames, len(kinds)) == (ANN, first + second + third, 3)
    assert expected == reference_lane.EXPECTED_BYTES + 2 * Away.expected_bytes
    assert len(list(messages_in(out))) == 1
    assert (unsealed, served) == (b"", [4])


@pytest.mark.parametrize("way", ALONE)
@pytest.mark.parametrize(
    ("asked", "names"),
    [
        pytest.param(of(SET, partition=2), {b"m": ("m",)}, id="a write with read permission"),
        pytest.param(of(GET, partition=2, name="alone"), KNOWN, id="a map that stays"),
        pytest.param(of(GET, partition=2), {}, id="a map that the client may not use"),
        pytest.param(of(SET, partition=1), KNOWN, id="a passive partition of this member"),
        pytest.param(of(SET, 1), KNOWN, id="a locked entry of this member"),
        pytest.param(of(GET, partition=3), KNOWN, id="no partition"),
    ],
)
def test_other_requests_stay(way: Way, asked: bytes, names: dict[bytes, Served]) -> None:
    primary = Primary(way.entries, observed=False, locks=True, listening=False)
    assert leave(way, primary, asked, names=names) == (0, [], b"", b"", [0])


@pytest.mark.parametrize("way", ALONE)
def test_a_client_that_may_read_forwards_reads(way: Way) -> None:
    primary = Primary(way.entries, observed=False, locks=True, listening=False)
    at, told, *_ = leave(way, primary, of(GET, partition=2), names={b"m": ("m",)})
    assert at
    assert len(told) == 1


@pytest.mark.parametrize("way", ALONE)
def test_value_that_is_received_apart_stays(way: Way) -> None:
    """Its bytes are not in the read buffer."""
    primary = Primary(way.entries, observed=False, locks=True, listening=False)
    whole = of(SET, 0, 2, partition=2)
    head, value = whole[: -len(VALUES[2]) + 4], VALUES[2]
    forwards, out, unsealed = Away(), bytearray(), bytearray()
    sink = way.code.PrimarySink(primary.lane, out, unsealed, None, None, forwards)
    assert way.code.serve_entries(head, 0, sink, KNOWN, LONGEST, 1 << 30, value) == 0
    assert sink.departing == []


@pytest.mark.parametrize("way", ALONE)
def test_forwarded_reads_are_counted_by_map(way: Way) -> None:
    primary = Primary(way.entries, observed=False, locks=True, listening=False)
    tally = way.code.LaneTally()
    counted: list[tuple[str, int]] = []
    tally.count_reads_in(SimpleNamespace(add=lambda name, count: counted.append((name, count))))
    sink = way.code.PrimarySink(primary.lane, bytearray(), bytearray(), tally, None, Away())
    entries = [(key, b"", 0) for key in KEYS[:3]]
    asked = of(GET, partition=2) + of(SET, partition=2) + batch(GET_ALL, "m", entries, partition=2)
    assert way.code.serve_entries(asked, 0, sink, KNOWN, LONGEST, 1 << 30) == len(asked)
    tally.report_reads()
    assert sum(count for _, count in counted) == 4
    (away,) = sink.departing
    tally.settle_forwarded(bytes(away.kinds), 1000, 1)
    assert {name: sum(counts) for name, counts, _ in tally.figures()} == {"get": 1, "set": 1, "get-all": 1}
    assert tally.unknown == 1


# -- requests that come


class Access:
    changes = 0
    closed: tuple[str, ...] = ()

    def is_closed(self, name: str) -> bool:
        return name in self.closed


class Owner:
    """Serves frames with a lane."""

    def __init__(self, way: Way, *, locks: bool = False, observed: bool = False) -> None:
        self.primary = Primary(way.entries, observed=observed, locks=locks, listening=False)
        limits = LimitSettings(key_bytes=LONGEST[0] - 10, value_bytes=LONGEST[1] - 10)
        self.access = Access()
        lane = self.primary.lane
        chosen = Settings(maps=lane._settings.maps, limits=limits)
        self.serving = FrameServing(way.code, lane, self.access, chosen)

    def serve(
        self, *parts: Sequence[bytes], first: int = 100, fenced: set[int] | None = None
    ) -> list[ServedPart]:
        told = [(len(part), b"".join(part)) for part in parts]
        return self.serving.serve(
            told, (PREFIX, first) if first else None, set() if fenced is None else fenced
        )

    def marks(self) -> list[dict[bytes, bytes]]:
        return [dict(copy.requests._marks) for copy in self.primary.copies]


MESSAGES = st.one_of(REQUESTS, REQUESTS, BATCHES)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=settings.default.max_examples)
@given(
    st.lists(st.lists(MESSAGES, max_size=6), max_size=4),
    st.booleans(),
    st.booleans(),
    st.sets(st.integers(0, 3), max_size=1),
)
def test_both_lanes_serve_the_same(
    way: Way, parts: list[list[bytes]], locks: bool, numbered_ids: bool, fenced: set[int]
) -> None:
    one, other = Owner(Way(reference_lane), locks=locks), Owner(way, locks=locks)
    first = 100 if numbered_ids else 0
    fences = set(fenced), set(fenced)
    assert one.serve(*parts, first=first, fenced=fences[0]) == other.serve(
        *parts, first=first, fenced=fences[1]
    )
    assert fences[0] == fences[1]
    assert one.primary.state() == other.primary.state()
    assert one.marks() == other.marks()


@pytest.mark.parametrize("way", ALONE)
@settings(max_examples=settings.default.max_examples)
@given(buffers(), st.integers(0, 10))
def test_broken_frames_harm_nothing(way: Way, arrived: list[bytes], count: int) -> None:
    owner = Owner(way)
    for data in arrived:
        (part,) = owner.serving.serve([(count, data)], (PREFIX, 1), set())
        assert part.skipped == sorted(set(part.skipped))
        owner.serving.places(data)


@pytest.mark.rule("routing/R-15")
@pytest.mark.parametrize("way", ALONE)
def test_a_write_leaves_the_mark_of_its_place(way: Way) -> None:
    """The reads before it have numbers, too; what changed nothing leaves no mark."""
    owner = Owner(way)
    part = [
        of(GET),
        of(SET, 1),
        of(REMOVE, 3),
        of(PUT, 1, 2),
        batch(PUT_ALL, "m", [(KEYS[2], VALUES[0], 0)], partition=0),
    ]
    before = len(owner.primary.lane.open_records)
    (served,) = owner.serve(part)
    requests = owner.primary.copies[0].requests
    assert list(owner.marks()[0]) == [numbered(PREFIX, number) for number in (101, 103, 104)]
    assert [requests.answer(numbered(PREFIX, number)) for number in (101, 103, 104)] == [
        False,
        VALUES[0],
        None,
    ]
    records = [one for _, _, one in owner.primary.lane.open_records[before:]]
    assert all(isinstance(record, Record) and record.request for record in records)
    assert len(records) == 3
    assert served.skipped == []


@pytest.mark.parametrize("way", ALONE)
def test_reads_do_not_wait_where_nothing_was_written(way: Way) -> None:
    owner = Owner(way)
    reads, writes = owner.serve(
        [of(GET, number=7), of(ENTRY_VIEW, number=8)], [of(SET, number=9), of(GET, number=10)]
    )
    assert correlations(reads.answers) == [7, 8]
    assert reads.withheld == b""
    assert (correlations(writes.answers), correlations(writes.withheld)) == ([10], [9])


def correlations(answers: bytes) -> list[int]:
    return [RESPONSE.unpack_from(answer)[3] for answer in messages_in(answers)]


@pytest.mark.rule("routing/R-14")
@pytest.mark.parametrize("way", ALONE)
@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(of(SET, 1), id="a locked entry"),
        pytest.param(of(SET, partition=1), id="a passive partition"),
        pytest.param(of(GET, partition=2), id="not the primary"),
        pytest.param(of(GET, name="__holdfast.x"), id="a reserved map"),
        pytest.param(
            of(GET, name="\udcff".encode("utf-8", "surrogateescape").decode("latin1")), id="a strange map"
        ),
        pytest.param(frame(b"\0" * 16, 0xE000), id="another request"),
    ],
)
def test_what_the_lane_does_not_serve_is_skipped(way: Way, asked: bytes) -> None:
    owner = Owner(way, locks=True)
    before = owner.primary.state()
    if asked == of(GET, name="ÿ"):
        owner.access.closed = ("ÿ",)
    (served,) = owner.serve([of(GET), asked])
    assert served.skipped == [1]
    assert len(correlations(served.answers)) == 1
    assert owner.primary.state() == before


@pytest.mark.rule("routing/R-16")
@pytest.mark.parametrize("way", ALONE)
def test_nothing_overtakes_a_skipped_request(way: Way) -> None:
    """Within the message by the same partition, in others by what is fenced."""
    owner = Owner(way, locks=True)
    fenced: set[int] = set()
    one, other = owner.serve(
        [of(SET, 1), of(SET, 0), of(GET, 0)], [of(GET, 2), of(GET, partition=1)], fenced=fenced
    )
    assert one.skipped == [0, 1, 2]
    assert other.skipped == [0]
    assert fenced == {0}
    (third,) = owner.serve([of(GET, partition=1), of(GET), of(SET, 1)], fenced=fenced)
    assert third.skipped == [1, 2]
    (fourth,) = owner.serve([of(GET)])
    assert fourth.skipped == []


@pytest.mark.parametrize("way", ALONE)
def test_a_closed_map_is_not_served_from_then_on(way: Way) -> None:
    owner = Owner(way)
    assert owner.serve([of(GET)])[0].skipped == []
    owner.access.closed, owner.access.changes = ("m",), 1
    assert owner.serve([of(GET), of(GET, name="told")])[0].skipped == [0, 1]
    owner.access.closed, owner.access.changes = (), 2
    assert owner.serve([of(GET)])[0].skipped == []


@pytest.mark.parametrize("way", ALONE)
def test_responses_to_one_message_are_bounded(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_serving, "ROOM_BYTES", 2000)
    owner = Owner(way)
    owner.serve([of(SET, 2, 2)])
    first, second = owner.serve([of(GET, 2)] * 5, [of(GET, 2)] * 2)
    assert first.skipped == [3, 4]
    assert second.skipped == [0, 1]


def test_places_name_maps_and_partitions() -> None:
    owner = Owner(Way(reference_lane))
    asked = of(GET) + of(SET, partition=2) + batch(GET_ALL, "told", [(KEYS[0], b"", 0)], partition=1)
    assert owner.serving.places(asked) == {"m": {0, 2}, "told": {1}}
    assert GENERAL < 0
