"""Listeners for migrations and lost partitions, byte by byte: neither of the official clients that are tested has any.

The layouts are those of the published protocol definitions, written down here a second time, as a client would.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

import pytest
from tests.server.hazelcast.one_member import ME, OneMemberGrid
from tests.server.hazelcast.wire import Wire, error_of, split

from holdfast.core.model.migration import NONE, Migration
from holdfast.core.model.partition_events import Kind, Loss, News

CLIENT_LOST, CLIENT_MIGRATION, MAP_LOST = 0x000600, 0x001100, 0x011B00
A, B = "00000000-0000-0001-0000-0000000000aa", "00000000-0000-0001-0000-0000000000bb"
MOVE = Migration(5, A, 1, NONE, B, NONE, 1)
COPY = Migration(6, None, NONE, NONE, B, NONE, 0)

IS_FINAL, UNFRAGMENTED, IS_EVENT, BEGIN, END = 0x2000, 0xC000, 0x0200, 0x1000, 0x0800


@dataclass
class Client:
    """The other end of a session, in plain bytes."""

    wire: Wire
    correlation: int = 100

    def request(self, kind: int, fixed: bytes, name: str | None = None) -> tuple[int, bytes]:
        """Send a request; its correlation id, and what came back."""
        self.correlation += 1
        flags = UNFRAGMENTED | (0 if name is not None else IS_FINAL)
        sent = struct.pack("<iHiqi", 22 + len(fixed), flags, kind, self.correlation, -1) + fixed
        if name is not None:
            sent += struct.pack("<iH", 6 + len(name), IS_FINAL) + name.encode()
        self.wire.session.receive(sent)
        return self.correlation, self.came()

    def came(self) -> bytes:
        """Everything that has come since the last look."""
        sent = b"".join(self.wire.sent)
        self.wire.sent.clear()
        return sent

    def register(self, kind: int, *, local_only: bool = False, name: str | None = None) -> tuple[int, bytes]:
        """Add a listener; the correlation id of its events, and the registration."""
        correlation, answer = self.request(kind, bytes((local_only,)), name)
        length, flags, told, to, acks = struct.unpack_from("<iHiqB", answer)
        assert (length, flags, told, to, acks) == (36, UNFRAGMENTED | IS_FINAL, kind + 1, correlation, 0)
        assert len(answer) == 36
        assert answer[19] == 0  # a registration is never null
        return correlation, answer[19:]

    def remove(self, kind: int, registration: bytes, name: str | None = None) -> bool:
        """Remove a listener; whether there was one."""
        correlation, answer = self.request(kind + 0x100, registration, name)
        assert struct.unpack("<iHiqB", answer[:-1]) == (
            20,
            UNFRAGMENTED | IS_FINAL,
            kind + 0x101,
            correlation,
            0,
        )
        return bool(answer[-1])


@pytest.fixture
def client(wire: Wire) -> Client:
    return Client(wire)


def uuid_of(field: bytes) -> str | None:
    null, most, least = struct.unpack("<?QQ", field)
    return None if null else str(UUID(int=most << 64 | least))


@dataclass
class Seen:
    """An event, taken apart."""

    kind: int
    correlation: int
    fixed: bytes
    state: tuple[int, ...] | None
    """Start, planned, completed, elapsed."""


def events(data: bytes) -> list[Seen]:
    """Every event in these bytes."""
    found = []
    while data:
        length, flags, kind, correlation, partition = struct.unpack_from("<iHiqi", data)
        assert flags & UNFRAGMENTED == UNFRAGMENTED
        assert flags & IS_EVENT
        assert partition == 0
        fixed, data = data[22:length], data[length:]
        state = None
        if not flags & IS_FINAL:
            assert struct.unpack_from("<iH", data) == (6, BEGIN)
            assert struct.unpack_from("<iH", data, 6) == (30, 0)
            state = struct.unpack_from("<qiiq", data, 12)
            assert struct.unpack_from("<iH", data, 36) == (6, END | IS_FINAL)
            data = data[42:]
        found.append(Seen(kind, correlation, fixed, state))
    return found


def lost(partition: int, backups: int, *maps: str, all_lost: bool = False) -> News:
    return News((2, partition + 1), Kind.LOST, loss=Loss(partition, backups, all_lost, list(maps)))


# -- losses


def test_a_lost_partition_is_told_with_its_backups_and_who_has_it_now(
    client: Client, grid: OneMemberGrid
) -> None:
    correlation, _ = client.register(CLIENT_LOST)
    grid.owners[3] = B
    grid.owners[4] = None  # nobody: the master speaks
    grid.tell_news(lost(3, 0))
    grid.tell_news(lost(4, 2, all_lost=True))
    one, two = events(client.came())
    assert (one.kind, one.correlation, one.state) == (0x000602, correlation, None)
    assert struct.unpack_from("<ii", one.fixed) == (3, 0)
    assert uuid_of(one.fixed[8:]) == B
    assert struct.unpack_from("<ii", two.fixed) == (4, 2)
    assert uuid_of(two.fixed[8:]) == ME


def test_migrations_are_not_told_to_who_asked_for_losses(client: Client, grid: OneMemberGrid) -> None:
    client.register(CLIENT_LOST)
    grid.tell_news(News((1, 1), Kind.STARTED, (1, 1), 3))
    assert client.came() == b""


def test_who_registers_at_every_member_hears_of_a_loss_from_one(client: Client, grid: OneMemberGrid) -> None:
    client.register(CLIENT_LOST, local_only=True)
    grid.master = A
    grid.owners[3], grid.owners[4] = B, None
    grid.tell_news(lost(3, 0))
    grid.tell_news(lost(4, 1, all_lost=True))
    assert client.came() == b"", "the new owner, or the master, tells it"
    grid.tell_news(lost(5, 0))
    assert len(events(client.came())) == 1


def test_a_map_hears_of_the_partitions_in_which_it_lost_entries(client: Client, grid: OneMemberGrid) -> None:
    grid.configured_maps = {"flights"}
    flights, _ = client.register(MAP_LOST, name="flights")
    other, _ = client.register(MAP_LOST, name="other")
    grid.tell_news(lost(1, 0))
    grid.tell_news(lost(2, 0, "default"))
    grid.tell_news(lost(3, 1, "default", "flights"))
    seen = [
        (event.correlation, event.kind, *struct.unpack_from("<i", event.fixed))
        for event in events(client.came())
    ]
    assert seen == [(other, 0x011B02, 2), (flights, 0x011B02, 3), (other, 0x011B02, 3)]


def test_the_event_of_a_map_names_the_member(client: Client, grid: OneMemberGrid) -> None:
    client.register(MAP_LOST, name="m")
    grid.tell_news(lost(1, 0, "default"))
    (event,) = events(client.came())
    assert len(event.fixed) == 21
    assert uuid_of(event.fixed[4:]) == ME


def test_maps_that_members_keep_for_themselves_have_no_listeners(client: Client) -> None:
    _, answer = client.request(MAP_LOST, b"\0", "__schemas")
    refused = error_of(split(answer)[0])
    assert refused is not None
    assert "reserved" in str(refused)


# -- migrations


def test_a_rebalance_is_told_from_its_start_to_its_end(client: Client, grid: OneMemberGrid) -> None:
    correlation, _ = client.register(CLIENT_MIGRATION)
    process = (7, 1)
    began_ms = grid.wall_ms()
    for news in (
        News((7, 1), Kind.STARTED, process, 2),
        News((7, 2), Kind.COMPLETED, process, 2, 1, 0, 30, MOVE, 4, took_ms=25),
        News((7, 3), Kind.FAILED, process, 2, 1, 1, 40, COPY, 9, took_ms=7),
        News((7, 4), Kind.FINISHED, process, 2, 1, 1, 50),
    ):
        grid.tell_news(news)
    began, moved, failed, ended = events(client.came())
    assert {event.correlation for event in (began, moved, failed, ended)} == {correlation}
    assert [event.kind for event in (began, moved, failed, ended)] == [0x001102, 0x001103, 0x001103, 0x001102]
    assert began.fixed == struct.pack("<i", 0)
    assert ended.fixed == struct.pack("<i", 1)
    assert [event.state for event in (began, moved, failed, ended)] == [
        (began_ms, 2, 0, 0),
        (began_ms, 2, 1, 30),
        (began_ms, 2, 1, 40),
        (began_ms, 2, 1, 50),
    ], "one start for the whole process"
    assert struct.unpack_from("<ii", moved.fixed) == (5, 1)
    assert (uuid_of(moved.fixed[8:25]), uuid_of(moved.fixed[25:42])) == (A, B)
    assert struct.unpack_from("<?q", moved.fixed, 42) == (True, 25)
    assert len(moved.fixed) == 51
    assert struct.unpack_from("<ii", failed.fixed) == (6, 0)
    assert (uuid_of(failed.fixed[8:25]), uuid_of(failed.fixed[25:42])) == (None, B)
    assert struct.unpack_from("<?q", failed.fixed, 42) == (False, 7)


def test_a_listener_that_comes_late_is_told_when_the_process_began(
    client: Client, grid: OneMemberGrid
) -> None:
    client.register(CLIENT_MIGRATION)
    grid.tell_news(News((7, 2), Kind.COMPLETED, (7, 1), 2, 1, 0, 300, MOVE, 4))
    (event,) = events(client.came())
    assert event.state == (grid.wall_ms() - 300, 2, 1, 300)


def test_who_registers_at_every_member_hears_of_migrations_from_the_master(
    client: Client, grid: OneMemberGrid
) -> None:
    client.register(CLIENT_MIGRATION, local_only=True)
    grid.master = A
    grid.tell_news(News((7, 1), Kind.STARTED, (7, 1), 2))
    assert client.came() == b""
    grid.master = ME
    grid.tell_news(News((7, 2), Kind.FINISHED, (7, 1), 2))
    assert len(events(client.came())) == 1


def test_losses_are_not_told_to_who_asked_for_migrations(client: Client, grid: OneMemberGrid) -> None:
    client.register(CLIENT_MIGRATION)
    grid.tell_news(lost(1, 0, "default"))
    assert client.came() == b""


# -- registrations


@pytest.mark.parametrize(("kind", "name"), [(CLIENT_LOST, None), (CLIENT_MIGRATION, None), (MAP_LOST, "m")])
def test_listeners_are_added_twice_and_removed_once(
    client: Client, grid: OneMemberGrid, kind: int, name: str | None
) -> None:
    _, first = client.register(kind, name=name)
    _, second = client.register(kind, name=name)
    assert first != second
    grid.tell_news(lost(1, 0, "default"))
    grid.tell_news(News((7, 1), Kind.STARTED, (7, 1), 2))
    assert len(events(client.came())) == 2
    assert client.remove(kind, first, name) is True
    assert client.remove(kind, first, name) is False
    assert client.remove(kind, bytes(17), name) is False
    grid.tell_news(lost(2, 0, "default"))
    grid.tell_news(News((7, 2), Kind.FINISHED, (7, 1), 2))
    assert len(events(client.came())) == 1
    client.remove(kind, second, name)
    grid.tell_news(lost(3, 0, "default"))
    grid.tell_news(News((8, 1), Kind.STARTED, (8, 1), 2))
    assert client.came() == b""
    assert grid.news_listeners == []


def test_the_end_of_a_connection_ends_its_listeners(client: Client, grid: OneMemberGrid) -> None:
    for kind, name in ((CLIENT_LOST, None), (CLIENT_MIGRATION, None), (MAP_LOST, "m")):
        client.register(kind, name=name)
    client.wire.session.closed()
    assert grid.news_listeners == []
