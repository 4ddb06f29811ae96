"""Walking through a map page by page. The official Python client has no such call: messages are written out here."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hazelcast.protocol.client_message import OutboundMessage, create_initial_buffer
from tests.server.hazelcast.one_member import OneMemberGrid, int_data
from tests.server.hazelcast.wire import AnsweredError, Wire, error_of

from holdfast.server.flow import SLICE_ITEMS
from holdfast.server.hazelcast import iteration
from holdfast.wire.hazelcast.hazelcast_frames import data, frame, message, text

KEYS, ENTRIES = iteration.FETCH_KEYS, iteration.FETCH_ENTRIES
START = [(0x7FFF_FFFF, -1)]
Pointers = list[tuple[int, int]]


def fetch(
    wire: Wire, kind: int, pointers: Pointers, batch: int, partition: int = 3
) -> tuple[Pointers, list[bytes]]:
    """One page."""
    buffer = create_initial_buffer(26, kind)
    struct.pack_into("<i", buffer, 22, batch)
    first = OutboundMessage(buffer, True)
    packed = b"".join(struct.pack("<ii", *one) for one in pointers)
    correlation, head = wire.number(first, partition)
    wire.session.receive(message([head, text("m"), frame(packed)]))
    wire.resume()
    (answer,) = wire.take()
    assert answer.get_correlation_id() == correlation
    refused = error_of(answer)
    if refused is not None:
        raise refused
    assert answer.get_message_type() == kind + 1
    answer.next_frame()
    pointed = list(struct.iter_unpack("<ii", answer.next_frame().buf))
    assert answer.next_frame().flags & 0x1000
    found = []
    while not (one := answer.next_frame()).flags & 0x0800:
        found.append(bytes(one.buf[4:]))
    return pointed, found


def walk(wire: Wire, kind: int, batch: int) -> list[list[bytes]]:
    pointers, pages = START, []
    while pointers[-1][0] >= 0:
        pointers, page = fetch(wire, kind, pointers, batch)
        pages.append(page)
    return pages


def fill(grid: OneMemberGrid, count: int, partition: int = 3) -> dict[bytes, bytes]:
    entries = {int_data(number): int_data(-number) for number in range(count)}
    for key, value in entries.items():
        grid.lane.set(grid.copies[partition], "m", key, value, 0, 0, 0)
    return entries


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 100, 2 * SLICE_ITEMS + 1])
def test_each_entry_comes_once(wire: Wire, grid: OneMemberGrid, count: int) -> None:
    entries = fill(grid, count)
    batch = 10 if count < SLICE_ITEMS else 1500
    pages = walk(wire, KEYS, batch)
    assert all(len(page) == batch for page in pages[:-1])
    keys = [key for page in pages for key in page]
    assert len(keys) == count
    assert set(keys) == set(entries)
    flat = [part for page in walk(wire, ENTRIES, batch) for part in page]
    assert flat[::2] == keys
    assert dict(zip(flat[::2], flat[1::2], strict=True)) == entries


def test_what_stays_comes_once_whatever_comes_and_goes(wire: Wire, grid: OneMemberGrid) -> None:
    entries = fill(grid, 60)
    seen: list[bytes] = []
    pointers, number = START, 1000
    while pointers[-1][0] >= 0:
        pointers, page = fetch(wire, KEYS, pointers, 7)
        seen += page
        for _ in range(5):
            number += 1
            grid.lane.set(grid.copies[3], "m", int_data(number), b"new", 0, 0, 0)
        grid.lane.remove(grid.copies[3], "m", int_data(len(seen) % 60))
    left = set(grid.copies[3].maps["m"].state.entries) & set(entries)
    assert left <= set(seen)
    assert len(seen) == len(set(seen))


def test_keys_of_one_checksum_stay_together(
    wire: Wire, grid: OneMemberGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iteration, "crc32", lambda key: key[-1] // 4)
    entries = fill(grid, 40)
    pages = walk(wire, KEYS, 3)
    assert [len(page) for page in pages] == [4] * 10
    assert sorted(key for page in pages for key in page) == sorted(entries)


def test_all_checksums_are_places(wire: Wire, grid: OneMemberGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those whose halves look like other numbers: the last of all, and the first."""
    places = [0, 1, 2, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE, 0xFFFF_FFFF]
    monkeypatch.setattr(iteration, "crc32", lambda key: places[key[-1]])
    fill(grid, len(places))
    pages = walk(wire, KEYS, 1)
    assert [page[0][-1] for page in pages] == list(range(len(places)))
    assert all(before != after for before, after in pairwise(pages))


def test_an_entry_that_goes_meanwhile_is_left_out(wire: Wire, grid: OneMemberGrid) -> None:
    fill(grid, 5, partition=2)
    assert fetch(wire, ENTRIES, START, 10) == ([(-1, -1)], []), "another partition"
    assert fetch(wire, KEYS, [], 10, partition=2)[0] == [(-1, -1)], "without a pointer it begins"


@pytest.mark.parametrize(("batch", "partition"), [(0, 3), (-1, 3), (10, -1), (10, 7)])
def test_what_cannot_be_walked_is_refused(wire: Wire, batch: int, partition: int) -> None:
    with pytest.raises(AnsweredError, match=r"Map\.fetchKeys (for|names no partition)"):
        fetch(wire, KEYS, START, batch, partition)


def test_pointers_that_are_none_end_the_connection(wire: Wire) -> None:
    head = struct.pack("<iHiqii", 26, 0xC000, KEYS, 1, 3, 10)
    wire.session.receive(message([head, text("m"), frame(b"seven b")]))
    assert wire.closed
    assert data(b"") not in wire.sent
