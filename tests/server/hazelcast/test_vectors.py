"""Bytes captured between official clients and servers, and what must come back for them, to the byte."""

from __future__ import annotations

from tests.server.hazelcast.one_member import OneMemberGrid, int_data, text_data

from holdfast.core.model.operations import EntryEvent, EventKind
from holdfast.server.grid import ClusterCard
from holdfast.server.hazelcast.hazelcast_session import HazelcastSession

MEMBER = "01020304-0506-0708-090a-0b0c0d0e0f10"
AUTHENTICATION = bytes.fromhex(
    "2800000000c1 000100000100000000000000ffffffff 00084aa675eca97be83d6008e2d47e0c8b 01"
    "090000000000 646576 060000000004 060000000004 090000000000 505948 0b0000000000 352e372e30"
    "080000000000 6331 060000000010 070000000000 78 060000000028"
)
ADD_VIEW = bytes.fromhex("1600000000e1 000300000200000000000000ffffffff")
PUT = bytes.fromhex(
    "2600000000c1 000101000500000000000000 02000000 805baa9fe17f0000 ffffffffffffffff 070000000000 6d"
    "130000000000 00000000fffffff5000000016b 120000000020 00000000fffffff900000001"
)
GET = bytes.fromhex(
    "1e00000000c1 000201000600000000000000 02000000 805baa9fe17f0000 070000000000 6d"
    "130000000020 00000000fffffff5000000016b"
)
PUT_ANSWER_NULL = bytes.fromhex("1300000000c0 010101000500000000000000 00 060000000024")
GET_ANSWER = bytes.fromhex("1300000000c0 010201000600000000000000 00 120000000020 00000000fffffff900000001")
ADD_LISTENER = bytes.fromhex("1c00000000c1 001901000700000000000000ffffffff 01 5f000000 00 070000000020 6d")
ENTRY_EVENT = bytes.fromhex(
    "2f00000000c2 02190100070000000000000002000000 01000000 00 0807060504030201100f0e0d0c0b0a09 01000000"
    "140000000000 00000000fffffff5000000026b32 140000000000 00000000fffffff5000000027632"
    "060000000004 060000000024"
)


def connect(grid: OneMemberGrid) -> tuple[HazelcastSession, list[bytes]]:
    sent: list[bytes] = []
    session = HazelcastSession(grid, sent.append, lambda why: None)
    session.receive(AUTHENTICATION)
    sent.clear()
    return session, sent


def test_captured_authentication_is_admitted() -> None:
    grid = OneMemberGrid(3)
    sent: list[bytes] = []
    HazelcastSession(grid, sent.append, lambda why: None).receive(AUTHENTICATION)
    assert grid.logins == [(None, None, None)]
    assert sent[0][4:20] == bytes.fromhex("00c0 010100000100000000000000 00 00")


def test_put_and_get_answers() -> None:
    grid = OneMemberGrid(3)
    session, sent = connect(grid)
    session.receive(PUT)
    session.receive(GET)
    assert sent == [PUT_ANSWER_NULL, GET_ANSWER]
    assert grid.copies[2].maps["m"].state.entries == {text_data("k"): int_data(1)}


def test_put_and_get_answers_of_the_data_lane() -> None:
    grid = OneMemberGrid(3)
    session, sent = connect(grid)
    session.receive(
        GET
    )  # the first message that names the map goes the general way, and lets the lane know the map
    sent.clear()
    grid.requests.clear()
    session.receive(PUT + GET)
    assert grid.requests == []
    assert sent == [GET_ANSWER + PUT_ANSWER_NULL] or sent == [PUT_ANSWER_NULL + GET_ANSWER]


def test_view_events() -> None:
    grid = OneMemberGrid(3)
    grid.card = ClusterCard(1, grid.card.members, 1, {MEMBER: [0, 1, 2]})
    session, sent = connect(grid)
    session.receive(ADD_VIEW)
    (whole,) = sent
    answer = bytes.fromhex("1300000000e0 010300000200000000000000 00")
    members = bytes.fromhex("1a00000000c2 02030000020000000000000000000000 01000000")
    partitions = bytes.fromhex(
        "1a00000000c2 03030000020000000000000000000000 01000000"
        "060000000010 1200000000000000000001000000 02000000 060000000008"
        "170000000020 00 0807060504030201 100f0e0d0c0b0a09"
    )
    assert whole.startswith(answer + members)
    assert whole.endswith(partitions)


def test_entry_event() -> None:
    grid = OneMemberGrid(3)
    session, sent = connect(grid)
    session.receive(ADD_LISTENER)
    sent.clear()
    (_, _, heard) = grid.listeners[0]
    heard(EntryEvent(EventKind.ADDED, "m", MEMBER, text_data("k2"), text_data("v2")))
    assert sent == [ENTRY_EVENT]


def test_error() -> None:
    session, sent = connect(OneMemberGrid(3))
    shut_down = bytes.fromhex("1600000000e1 000108000c00000000000000ffffffff")
    session.receive(shut_down)
    name = b"java.lang.UnsupportedOperationException"
    words = b"ExecutorService.shutdown is not supported by Holdfast (docs/compatibility.md lists what is)"
    assert sent == [
        bytes.fromhex("1300000000c0 000000000c00000000000000 00 060000000010 060000000010 0a0000000000 3d000000")
        + (6 + len(name)).to_bytes(4, "little") + b"\0\0" + name
        + (6 + len(words)).to_bytes(4, "little") + b"\0\0" + words
        + bytes.fromhex("060000000010 060000000008 060000000008 060000000028")
    ]  # fmt: skip
