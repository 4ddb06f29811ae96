"""Whatever bytes arrive, in whatever pieces: nothing is raised, and no other connection notices."""

from __future__ import annotations

import struct

from hazelcast.protocol.codec import (
    client_add_cluster_view_listener_codec,
    client_create_proxy_codec,
    client_send_schema_codec,
    map_add_entry_listener_codec,
    map_get_codec,
    map_put_all_codec,
    map_put_codec,
    map_remove_codec,
    map_set_codec,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server.hazelcast.one_member import OneMemberGrid, int_data, text_data
from tests.server.hazelcast.test_schema_requests import FLIGHT
from tests.server.hazelcast.test_vectors import AUTHENTICATION, GET, PUT
from tests.server.hazelcast.wire import Wire, data, split, stored

KEY, ONE = text_data("k"), int_data(1)
SAMPLES = [
    AUTHENTICATION,
    PUT,
    GET,
    *(
        bytes(request.buf)
        for request in (
            client_add_cluster_view_listener_codec.encode_request(),
            client_create_proxy_codec.encode_request("m", "hz:impl:mapService"),
            client_send_schema_codec.encode_request(FLIGHT),
            map_add_entry_listener_codec.encode_request("m", True, 255, False),
            map_put_all_codec.encode_request("m", [(data(KEY), data(ONE)), (data(ONE), data(KEY))], True),
            map_put_codec.encode_request("m", data(KEY), data(ONE), 1, 1),
            map_remove_codec.encode_request("m", data(KEY), 1),
            map_set_codec.encode_request("m", data(KEY, 3), data(ONE), 1, -1),
        )
    ),
]
EDGES = st.sampled_from(
    [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x06\0\0\0", b"\x05\0\0\0", b"\0\0\0\x80"]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Real messages with some bytes changed, cut or repeated."""
    whole = bytearray(b"".join(draw(st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=4))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(whole) - 1))
        edit = draw(st.integers(0, 4))
        if edit == 0:
            whole[at] = draw(st.integers(0, 255))
        elif edit == 1:
            whole[at : at + 4] = draw(EDGES)
        elif edit == 2:
            del whole[at : at + draw(st.integers(1, 30))]
        elif edit == 3:
            whole[at:at] = draw(st.binary(max_size=8))
        else:
            whole[at:at] = whole[at : at + 40]
        if not whole:
            break
    return bytes(whole)


def survive(content: bytes, pieces: list[int], *, known: bool) -> None:
    grid = OneMemberGrid(3)
    wire, other = Wire(grid), Wire(grid)
    other.login()
    other.ask(map_put_codec, "other", data(KEY), data(ONE), 1, -1)
    if known:
        wire.login()
        wire.ask(map_get_codec, "m", data(KEY), 1)
    at = 0
    for size in [*pieces, len(content)]:
        wire.session.receive(content[at : at + size])
        at += size
    split(b"".join(wire.sent))  # whatever was answered is well-formed
    assert len(wire.closed) <= 1
    if not known and AUTHENTICATION[:40] not in content:
        assert not grid.requests[1:]
    assert not other.closed
    assert stored(other.ask(map_get_codec, "other", data(KEY), 1)) == ONE
    wire.session.closed()
    assert (grid.watchers, grid.listeners) == ([], [])


PIECES = st.lists(st.integers(1, 60), max_size=6)


@settings(max_examples=400, deadline=None)
@given(damaged(), PIECES, st.booleans())
def test_damaged_messages(content: bytes, pieces: list[int], known: bool) -> None:
    survive(content, pieces, known=known)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), PIECES, st.booleans())
def test_noise(content: bytes, pieces: list[int], known: bool) -> None:
    survive(content, pieces, known=known)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 0x25).map(lambda service: service << 16),
    st.integers(0, 0x4A).map(lambda method: method << 8),
    st.lists(st.tuples(st.sampled_from([0, 0x0400, 0x1000, 0x0800]), st.binary(max_size=20)), max_size=8),
    st.binary(max_size=30),
)
def test_any_type_with_any_parameters(
    service: int, method: int, frames: list[tuple[int, bytes]], fixed: bytes
) -> None:
    parts = [struct.pack("<iHiqi", 22 + len(fixed), 0xC000, service | method, 1, -1) + fixed]
    parts += [struct.pack("<iH", 6 + len(payload), flags) + payload for flags, payload in frames]
    length, flags = struct.unpack_from("<iH", parts[-1])
    parts[-1] = struct.pack("<iH", length, flags | 0x2000) + parts[-1][6:]
    survive(b"".join(parts), [], known=True)
