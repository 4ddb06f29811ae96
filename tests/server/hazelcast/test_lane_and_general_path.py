"""The data lane answers and changes the same as the general path, for every request that both serve."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server.hazelcast.test_lane_ways import KEYS, KNOWN, LONGEST, Primary, batches, buffers, request

from holdfast.config import Settings
from holdfast.core.model.decisions import Wait
from holdfast.core.model.map_moves import NoMoves
from holdfast.core.model.operations import EntryEvent, Op, Outcome, Request, Status, Value
from holdfast.core.operations import conditions
from holdfast.core.operations.conditions import (
    ALWAYS,
    CONDITIONS,
    IF_ABSENT,
    IF_PRESENT,
    IF_SAME,
    takes_effect,
)
from holdfast.core.primary_backup.primary_copy import PrimaryCopy
from holdfast.server.hazelcast import reference_lane
from holdfast.server.hazelcast.conversation import Made
from holdfast.server.hazelcast.keyed_requests import LANE_ROWS, changed_nothing
from holdfast.server.hazelcast.maps import MESSAGES
from holdfast.wire.hazelcast.hazelcast_frames import Scan, messages_in
from holdfast.wire.hazelcast.layouts import Call


class GeneralPath:
    """The part of a `Conversation` that requests for entries use, over one primary."""

    def __init__(self, primary: Primary) -> None:
        self.primary = primary
        self.out = bytearray()
        # Records stay where `Primary.state` finds them.
        primary.lane.close_batch = lambda done: done(True)  # type: ignore[method-assign]
        self._protocol = PrimaryCopy(Settings(), primary.out, primary.lane, NoMoves())
        self.every_partition = [0]
        self.grid = self
        self.partition_count = 3
        self.client = bytes(17)

    def wall_ms(self) -> int:
        return self.primary.out.wall_ms()

    def partition_of(self, call: Call) -> int:
        return call.partition

    def require(self, request: Request, size: int = 0) -> None:
        pass

    def serve(self, data: bytes) -> None:
        scan, at = Scan(), 0
        while at < len(data):
            scan.begin(at)
            end = scan.look(data, 1 << 24)
            kind = MESSAGES[int.from_bytes(data[at + 6 : at + 10], "little")]
            kind.handler(self, kind.layout.decode(data, at, end))  # type: ignore[arg-type]
            at = end

    def _value(self, request: Request) -> Value:
        told: list[Outcome | Wait] = []
        self._protocol.submit(request, told.append)
        (outcome,) = told
        assert isinstance(outcome, Outcome)
        assert outcome.status is Status.OK
        return outcome.value

    def execute_all(
        self, call: Call, requests: Iterable[Request | None], answer: Callable[[list[Value]], Made]
    ) -> None:
        made = answer([self._value(request) for request in requests if request is not None])
        while not isinstance(made, bytes):
            try:
                next(made)
            except StopIteration as ended:
                made = ended.value
        self.out += made

    def send(self, answer: bytes) -> None:
        self.out += answer

    def execute(self, call: Call, request: Request, answer: Callable[[Value], bytes]) -> None:
        self.out += answer(self._value(request))


def entries_of(primary: Primary) -> object:
    """As `Primary.state`, without the barriers of reads: the lane may wait for more than it has to."""
    *maps, queued, _, heard = primary.state()  # type: ignore[misc]
    events = [
        (event.kind, event.map, event.key, event.value, event.old, event.key_hash, event.sequence)
        for event in heard
        if isinstance(event, EntryEvent)
    ]
    return maps, queued, events


def compare(data: bytes, lane: Primary, general: GeneralPath) -> None:
    at, out, unsealed = lane.serve(reference_lane, data, longest=LONGEST)
    if not at:
        return
    general.out.clear()
    general.serve(data[:at])
    assert sorted_messages(out[len(b"before") :] + unsealed) == sorted_messages(general.out)
    assert entries_of(lane) == entries_of(general.primary)
    lane.out.now_ns += 2_000_000
    general.primary.out.now_ns += 2_000_000


def sorted_messages(data: bytes | bytearray) -> list[bytes]:
    """Responses of reads may come before those of writes that were asked earlier."""
    return sorted(messages_in(bytes(data)))


@settings(max_examples=settings.default.max_examples)
@given(buffers(batches(0)), st.booleans())
def test_lane_and_general_path_do_the_same(arrived: list[bytes], listening: bool) -> None:
    """The keys of batches have no partition-hash words: the general path drops those of a putAll."""
    one, other = (Primary(observed=False, locks=False, listening=listening) for _ in range(2))
    general = GeneralPath(other)
    for data in arrived:
        compare(data, one, general)


@pytest.mark.parametrize(
    ("condition", "effects"),
    [
        # absent, another value, the expected value
        (ALWAYS, (True, True, True)),
        (IF_ABSENT, (True, False, False)),
        (IF_PRESENT, (False, True, True)),
        (IF_SAME, (False, False, True)),
    ],
)
def test_conditions(condition: int, effects: Iterable[bool]) -> None:
    states = [(False, False), (True, False), (True, True)]
    assert [takes_effect(condition, *state) for state in states] == list(effects)


def test_each_write_of_the_lane_has_a_condition() -> None:
    assert {row.condition for row in LANE_ROWS if row.looks} == {IF_ABSENT, IF_PRESENT, IF_SAME}
    assert conditions.CONDITIONS[Op.PUT_IF_ABSENT] == IF_ABSENT
    assert CONDITIONS.keys() >= {Op.REPLACE, Op.EVICT, Op.SET_TTL, Op.REMOVE_IF_SAME}


@pytest.mark.parametrize("kind", [0x010400, 0x010500, 0x010800, 0x010E00, 0x011E00, 0x014300])
@pytest.mark.parametrize("present", [False, True])
def test_response_says_whether_the_request_changed_anything(kind: int, present: bool) -> None:
    """A request whose outcome is unknown may be sent again if it changed nothing."""
    primary = Primary(observed=False, locks=False, listening=False)
    key = KEYS[0] if present else KEYS[2]
    value = primary.copies[0].maps["m"].state.entries[KEYS[0]]
    before = entries_of(primary)
    asked = request(kind, "m", key, value, partition=0, ttl_ms=5, word=0, number=1)
    at, _, unsealed = primary.serve(reference_lane, asked, names=KNOWN)
    assert at == len(asked)
    assert changed_nothing(bytes(unsealed)) is (entries_of(primary) == before)
