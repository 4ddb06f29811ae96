"""The session of a client whose requests were forwarded as frames: it answers each once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.server.hazelcast.one_member import OneMemberGrid, text_data
from tests.server.hazelcast.test_lane_ways import GET, PUT, PUT_ALL, SET, batch, request
from tests.server.hazelcast.wire import Wire

from holdfast.config import LimitSettings
from holdfast.core.model.forwarded_frames import ForwardedDone, ForwardedPart, OutgoingFrames, numbered
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import Op, Outcome, Status
from holdfast.server.hazelcast.keyed_requests import BY_KIND, respond
from holdfast.wire.hazelcast.hazelcast_frames import RESPONSE, messages_in

ANN = MemberId("ann")
KEY = text_data("k")
PREFIX = b"p" * 16


class Away:
    expected_bytes = 700

    def __init__(self, partitions: int) -> None:
        outgoing = OutgoingFrames(ANN)
        self.away: list[OutgoingFrames | None] = [outgoing] * partitions
        self.parts: list[tuple[ForwardedPart, Callable[[ForwardedDone], None]]] = []

    def stays(self, name: str) -> bool:
        return False

    def forward(self, part: ForwardedPart, done: Callable[[ForwardedDone], None]) -> None:
        self.parts.append((part, done))


class Forwarded:
    """A client that is logged in, with three requests that were forwarded."""

    def __init__(self) -> None:
        self.grid = OneMemberGrid()
        self.forwards = Away(self.grid.partition_count)
        self.wire = Wire(self.grid, forwards=self.forwards)
        self.wire.login()
        self.send(of(GET, 900))
        self.wire.sent.clear()
        for partition in range(self.grid.partition_count):
            self.grid.away(partition)
        self.grid.requests.clear()
        self.grid.doubts.clear()
        self.frames = [of(SET, 1), of(GET, 2), of(PUT, 3)]
        self.send(*self.frames)
        ((self.part, self.done),) = self.forwards.parts

    def send(self, *messages: bytes) -> None:
        self.wire.session.receive(b"".join(messages))
        self.wire.resume()

    def answers(self) -> list[tuple[int, int]]:
        """Kind and correlation id, by correlation id."""
        whole, self.wire.sent[:] = b"".join(self.wire.sent), []
        return sorted(
            (RESPONSE.unpack_from(each)[3], RESPONSE.unpack_from(each)[2]) for each in messages_in(whole)
        )


def of(kind: int, number: int) -> bytes:
    return request(kind, "m", KEY, text_data("v"), partition=0, ttl_ms=-1, word=0, number=number)


def answer_to(kind: int, number: int) -> bytes:
    return respond(BY_KIND[kind], number.to_bytes(8, "little"), None)


def test_bytes_of_the_owner_go_to_the_client() -> None:
    told = Forwarded()
    assert told.part == ForwardedPart(ANN, b"".join(told.frames), told.part.kinds, told.part.expected)
    assert told.wire.session._flow.expected == told.part.expected > 0
    assert told.wire.session.unanswered
    told.done(ForwardedDone(answer_to(SET, 1) + answer_to(GET, 2) + answer_to(PUT, 3)))
    assert told.answers() == [(1, SET + 1), (2, GET + 1), (3, PUT + 1)]
    assert told.wire.session._flow.expected == 0
    assert told.grid.requests == []


def test_frames_leave_before_a_request_of_the_session() -> None:
    told = Forwarded()
    told.forwards.parts.clear()
    order: list[str] = []
    real_forward, real_execute = told.forwards.forward, told.grid.execute
    told.forwards.forward = lambda *given: (order.append("frames"), real_forward(*given))[1]  # type: ignore[method-assign]
    told.grid.execute = lambda *given: (order.append("request"), real_execute(*given))[1]  # type: ignore[method-assign]
    late = request(SET, "m", KEY, text_data("v"), partition=0, ttl_ms=1 << 50, word=0, number=12)
    told.send(of(SET, 11), late, of(SET, 13), of(SET, 14))
    assert order == ["frames", "request", "frames"]
    assert [part.count for part, _ in told.forwards.parts] == [1, 2]


def test_skipped_requests_are_executed_like_others() -> None:
    told = Forwarded()
    told.done(ForwardedDone(answer_to(GET, 2), again=[0, 2]))
    assert [(each.op, each.id) for each in told.grid.requests] == [(Op.SET, b""), (Op.PUT, b"")]
    assert told.grid.doubts == ["", ""]


@pytest.mark.rule("routing/R-15")
def test_doubtful_writes_are_executed_with_their_ids() -> None:
    told = Forwarded()
    told.grid.answer_with = Outcome(Status.OK)
    done = ForwardedDone(again=range(3), why="ann left", doubtful=True, ids=(PREFIX, 40))
    told.done(done)
    assert [(each.op, each.id) for each in told.grid.requests] == [
        (Op.SET, numbered(PREFIX, 40)),
        (Op.GET, b""),
        (Op.PUT, numbered(PREFIX, 42)),
    ]
    assert told.grid.doubts == ["ann left", "", "ann left"]
    assert [number for number, _ in told.answers()] == [1, 2, 3]
    told.send(request(SET, "m", KEY, text_data("v"), partition=0, ttl_ms=1 << 50, word=0, number=12))
    assert told.grid.requests[-1].id == b""


@pytest.mark.rule("routing/R-15")
def test_doubtful_writes_without_ids_are_unknown() -> None:
    told = Forwarded()
    told.done(ForwardedDone(again=range(3), why="ann left", doubtful=True))
    assert [each.op for each in told.grid.requests] == [Op.GET]
    assert [number for number, kind in told.answers() if kind == 0] == [1, 3]


@pytest.mark.rule("routing/R-15")
def test_doubtful_batch_is_one_request() -> None:
    """Its id names all its entries."""
    told = Forwarded()
    told.forwards.parts.clear()
    entries = [(text_data(f"k{number}"), text_data("v"), 0) for number in range(1000)]
    told.send(batch(PUT_ALL, "m", entries, partition=0))
    ((part, done),) = told.forwards.parts
    assert part.count == 1
    done(ForwardedDone(again=[0], why="ann left", doubtful=True, ids=(PREFIX, 40)))
    told.wire.resume()
    assert [(each.op, each.id, len(each.items)) for each in told.grid.requests] == [
        (Op.PUT_ALL, numbered(PREFIX, 40), 2000)
    ]


@pytest.mark.rule("routing/R-4")
def test_doubtful_write_that_the_session_rejects_is_unknown() -> None:
    told = Forwarded()
    told.wire.session._talk._waiting = 1 << 30
    told.done(ForwardedDone(again=[0], why="ann left", doubtful=True, ids=(PREFIX, 40)))
    ((number, kind),) = told.answers()
    assert (number, kind) == (1, 0)


def test_unanswered_reads_may_be_repeated_and_writes_are_unknown() -> None:
    told = Forwarded()
    told.done(ForwardedDone(why="ann did not answer", failed=True))
    text = b"".join(told.wire.sent)
    assert text.count(b"IndeterminateOperationState") == 2
    assert text.count(b"RetryableHazelcast") == 1
    assert [number for number, _ in told.answers()] == [1, 2, 3]


def test_withheld_responses_become_unknown() -> None:
    told = Forwarded()
    withheld = answer_to(SET, 1) + answer_to(PUT, 3)
    told.done(ForwardedDone(answer_to(GET, 2), withheld, why="backups were silent"))
    assert told.answers() == [(1, 0), (2, GET + 1), (3, 0)]


def test_places_that_no_request_has_are_ignored() -> None:
    told = Forwarded()
    told.done(ForwardedDone(again=[7, -1, 99]))
    assert told.grid.requests == []


def test_nothing_is_done_for_a_client_that_has_left() -> None:
    told = Forwarded()
    told.wire.session.closed()
    told.done(ForwardedDone(answer_to(SET, 1), again=[1, 2]))
    assert told.grid.requests == []
    assert told.wire.sent == []


def test_expected_responses_stop_the_session() -> None:
    """A client does not get more forwarded than its connection has room for."""
    told = Forwarded()
    told.wire.session._flow.most = 3000
    told.wire.session.receive(b"".join(of(GET, number) for number in range(20, 40)))
    parts = told.forwards.parts
    assert sum(part.count for part, _ in parts) < 3 + 20
    limits = LimitSettings()
    assert limits.output_buffer_bytes > 3000
