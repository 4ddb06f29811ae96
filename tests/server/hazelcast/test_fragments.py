"""Requests in fragments: they are answered as if they had come whole, and take no more room than those."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hazelcast.protocol.codec import map_get_codec, map_put_codec, map_set_codec
from tests.server.hazelcast.one_member import OneMemberGrid, int_data, text_data
from tests.server.hazelcast.wire import Wire, data, error_of

from holdfast.config import LimitSettings
from holdfast.server.hazelcast.fragments import OPEN_MAX

KEY, ONE = text_data("k"), int_data(1)
BEGIN, END, FINAL = 0x8000, 0x4000, 0x2000
LIMIT = 65_536


def frames(whole: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(whole):
        length, flags = struct.unpack_from("<iH", whole, at)
        yield flags, whole[at + 6 : at + length]
        at += length


def frame(flags: int, payload: bytes) -> bytes:
    return struct.pack("<iH", 6 + len(payload), flags) + payload


def fragment(number: int, part: list[tuple[int, bytes]], flags: int) -> bytes:
    """A fragment as Java clients make it: the last frame of each is final."""
    *before, (last, payload) = part
    head = frame(flags, struct.pack("<q", number))
    return head + b"".join(frame(*one) for one in before) + frame(last | FINAL, payload)


def cut(whole: bytes, number: int) -> list[bytes]:
    """The request with each of its frames in a fragment of its own."""
    parts = [(flags & ~(FINAL | BEGIN | END), payload) for flags, payload in frames(whole)]
    flags = [BEGIN, *[0] * (len(parts) - 2), END]
    return [fragment(number, [part], flag) for part, flag in zip(parts, flags, strict=True)]


def put(wire: Wire, value: bytes = ONE) -> tuple[int, bytes]:
    return wire.number(map_put_codec.encode_request("m", data(KEY), data(value), 7, -1), 1)


@pytest.mark.parametrize("step", [1, 7, 10_000], ids=["byte by byte", "in pieces", "at once"])
def test_a_request_in_fragments_is_answered(wire: Wire, grid: OneMemberGrid, step: int) -> None:
    correlation, whole = put(wire)
    sent = b"".join(cut(whole, 5)) + wire.number(map_get_codec.encode_request("m", data(KEY), 7), 1)[1]
    for at in range(0, len(sent), step):
        wire.session.receive(sent[at : at + step])
    answers = wire.take()
    assert [one.get_correlation_id() for one in answers] == [correlation, correlation + 1]
    assert answers[0].get_message_type() == 0x010101
    assert grid.copies[1].maps["m"].state.entries == {KEY: ONE}
    assert wire.session.coming == 0


def test_requests_in_fragments_may_come_between_each_other_and_others(
    wire: Wire, grid: OneMemberGrid
) -> None:
    first, second = put(wire), put(wire, int_data(2))
    one, two = cut(first[1], 1), cut(second[1], 2)
    between = wire.number(map_set_codec.encode_request("m", data(text_data("x")), data(ONE), 7, -1), 1)
    wire.session.receive(b"".join((one[0], two[0], between[1], two[1])) + one[1])
    assert [answer.get_correlation_id() for answer in wire.take()] == [between[0]]
    assert wire.session.coming == sum(len(part) - 14 for part in (one[0], two[0], two[1], one[1]))
    left = Wire(grid)
    left.login()
    left.session.receive(one[0])
    left.session.closed()
    assert left.session.coming == 0, "what a connection has left behind is forgotten"
    wire.session.receive(b"".join((*one[2:], *two[2:])))
    assert [answer.get_correlation_id() for answer in wire.take()] == [first[0], second[0]]
    assert wire.session.coming == 0
    assert grid.copies[1].maps["m"].state.entries[KEY] == int_data(2)


@pytest.mark.rule("server/N-4")
def test_a_request_whose_fragments_are_too_much_is_refused_once(grid: OneMemberGrid) -> None:
    wire = Wire(grid, limits=LimitSettings(frame_bytes=LIMIT))
    wire.login()
    correlation, whole = put(wire)
    head, *_, last = cut(whole, 9)
    piece = fragment(9, [(0, bytes(LIMIT // 4))], 0)
    for part in (head, *[piece] * 20, last):
        wire.session.receive(part)
        assert wire.session.coming <= LIMIT
    (answer,) = wire.take()
    assert answer.get_correlation_id() == correlation
    refused = error_of(answer)
    assert refused is not None
    assert refused.code == 23
    assert str(refused).startswith("Map.put was not applied: its fragments are larger than the limit")
    assert wire.session.coming == 0
    assert not wire.closed
    wire.session.receive(put(wire)[1])
    assert len(wire.take()) == 1


@pytest.mark.rule("server/N-4")
def test_many_requests_that_are_not_whole_take_no_more_than_one(grid: OneMemberGrid) -> None:
    wire = Wire(grid, limits=LimitSettings(frame_bytes=LIMIT))
    wire.login()
    for number in range(OPEN_MAX):
        wire.session.receive(cut(put(wire)[1], number)[0])
        wire.session.receive(fragment(number, [(0, bytes(LIMIT // 8))], 0))
        assert wire.session.coming <= LIMIT
    assert not wire.closed
    wire.session.receive(cut(put(wire)[1], OPEN_MAX)[0])
    assert wire.closed


def broken(wire: Wire) -> dict[str, bytes]:
    head, *_, last = cut(put(wire)[1], 1)
    return {
        "one that has not begun": last,
        "begun twice": head + head,
        "without a number": frame(BEGIN, b"seven b"),
        "with nothing in it": frame(BEGIN | FINAL, struct.pack("<q", 1)),
        "no first frame": fragment(1, [(0, b"")], BEGIN),
        "a short first frame": fragment(1, [(0, b""), (0, bytes(30))], BEGIN) + last,
    }


@pytest.mark.parametrize("what", broken(Wire(OneMemberGrid())))
def test_broken_fragments_end_their_own_connection(wire: Wire, what: str) -> None:
    wire.session.receive(broken(wire)[what])
    assert len(wire.closed) == 1
    assert wire.take() == []


def test_a_stranger_sends_no_fragments(grid: OneMemberGrid) -> None:
    wire = Wire(grid)
    wire.session.receive(cut(put(wire)[1], 1)[0])
    assert "a fragment before authentication" in wire.closed[0]
