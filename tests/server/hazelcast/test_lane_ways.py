"""The compiled lane does what the reference does, each with a dictionary and with a table of entries.

Whatever the bytes are, both read as far, answer with the same bytes, leave the same entries, counters, expiries and
notes for observers, and queue the same records.
"""

from __future__ import annotations

import random
import struct
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server.hazelcast.one_member import OneMemberGrid, int_data, text_data

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.journal.log import Log
from holdfast.core.model.decisions import LockChanges
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import EntryEvent, EventKind, events_of
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record, one_by_one
from holdfast.core.model.transactions import KeyLock, lock_key
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.store.entry_mapping import Entries, NewEntries
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.runtime.data_lane import COMPILED, data_lane
from holdfast.runtime.data_lane import PUTS as PUTS_MODULE
from holdfast.runtime.data_lane import TABLE as TABLE_MODULE
from holdfast.server.hazelcast import frame_parser, reference_lane
from holdfast.server.hazelcast.frame_parser import BATCH_KEYS, value_to_come
from holdfast.server.hazelcast.frame_serving import PLAIN_WAYS
from holdfast.server.hazelcast.keyed_requests import LANE_ROWS
from holdfast.server.hazelcast.reference_lane import BULK_BYTES, Bulk, LaneCode, Served

PUT, GET, REMOVE, CONTAINS_KEY, DELETE, SET = 0x010100, 0x010200, 0x010300, 0x010600, 0x010900, 0x010F00
REPLACE, REPLACE_IF_SAME, REMOVE_IF_SAME = 0x010400, 0x010500, 0x010800
PUT_IF_ABSENT, EVICT, SET_TTL = 0x010E00, 0x011E00, 0x014300
GET_ALL, PUT_ALL, ENTRY_VIEW = 0x012300, 0x012C00, 0x011D00
ROWS = {row.kind: row for row in LANE_ROWS}

ME, BEN = MemberId("me"), MemberId("ben")
MAPS = {
    "default": MapSettings(backups=1),
    "alone": MapSettings(backups=0),
    "mortal": MapSettings(backups=1, ttl_ms=5000),
    "idle": MapSettings(backups=1, max_idle_ms=3),
    "told": MapSettings(backups=1, changes_bytes=1 << 16),
    "sure": MapSettings(backups=1, reads="confirmed"),
}
NAMES = ["m", "alone", "mortal", "told", "sure", "idle", "", "nobody's"]
KNOWN: dict[bytes, Served] = {name.encode(): name for name in NAMES[:6]}
KEYS = [text_data("k"), text_data("another"), int_data(1), int_data(2)]
VALUES = [int_data(3), text_data("v" * 30), text_data("w" * 700), int_data(4)]
LONGEST = (40, 760)


def frame(payload: bytes, flags: int = 0) -> bytes:
    return struct.pack("<iH", len(payload) + 6, flags) + payload


def request(
    kind: int,
    name: str,
    key: bytes,
    value: bytes,
    *,
    partition: int,
    ttl_ms: int,
    word: int,
    number: int,
    max_idle_ms: int = -1,
    expected: bytes | None = None,
) -> bytes:
    """As clients send it. `expected`: None: as `value`."""
    row = ROWS.get(kind)
    head = struct.pack("<iqi", kind, number, partition)
    if row is None or not row.ttl_first:
        head += struct.pack("<q", 1)
    head += struct.pack("<qq", ttl_ms, max_idle_ms)[: row.head - 6 - len(head) if row is not None else 0]
    parts = [word.to_bytes(4, "big", signed=True) + key]
    if row is not None and row.expects:
        parts.append(bytes(4) + (value if expected is None else expected))
    if row is not None and row.stores:
        parts.append(bytes(4) + value)
    flags = [0] * (len(parts) - 1) + [0x2000]
    return frame(head, 0xC000) + frame(name.encode()) + b"".join(map(frame, parts, flags))


def batch(
    kind: int,
    name: str,
    entries: list[tuple[bytes, bytes, int]],
    *,
    partition: int,
    number: int = 1,
    loads: bytes = b"\1",
) -> bytes:
    """A getAll or putAll as clients send it; each entry with its partition-hash word."""
    head = struct.pack("<iqi", kind, number, partition) + (loads if kind == PUT_ALL else b"")
    listed = frame(b"", 0x1000)
    for key, value, word in entries:
        listed += frame(word.to_bytes(4, "big", signed=True) + key)
        if kind == PUT_ALL:
            listed += frame(bytes(4) + value)
    return frame(head, 0xC000) + frame(name.encode()) + listed + frame(b"", 0x2800)


def batches(*words: int) -> st.SearchStrategy[bytes]:
    """Keys have one of these partition-hash words."""
    entries = st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES), st.sampled_from(words))
    return st.builds(
        batch,
        st.sampled_from([GET_ALL, PUT_ALL]),
        st.sampled_from(["m", "m", "told", *NAMES]),
        st.lists(entries, max_size=6),
        partition=st.sampled_from([0] * 12 + [1, 2, 3, -1]),
        number=st.integers(-(1 << 63), (1 << 63) - 1),
        loads=st.sampled_from([b"", b"\1"]),
    )


BATCHES = batches(0, 0, 0, 7)
REQUESTS = st.builds(
    request,
    st.sampled_from([GET, SET, SET, PUT, REMOVE, *ROWS, *ROWS, 0x012200]),
    st.sampled_from(["m", "m", "told", *NAMES]),
    st.sampled_from(KEYS),
    st.sampled_from(VALUES),
    partition=st.sampled_from([0] * 12 + [1, 2, 3, -1]),
    ttl_ms=st.sampled_from([-1] * 8 + [0, 1, 1, 3, 60_000, -2, 1 << 41, 1 << 50]),
    word=st.sampled_from([0, 0, 0, 0, 7, -7]),
    number=st.integers(-(1 << 63), (1 << 63) - 1),
    max_idle_ms=st.sampled_from([-1] * 6 + [0, 1, 3, 60_000, -2, 1 << 50]),
    expected=st.sampled_from(VALUES),
)
EDGES = st.sampled_from(
    [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x06\0\0\0", b"\x05\0\0\0", b"\0\0\0\x80"]
)


@st.composite
def buffers(draw: st.DrawFn, several: st.SearchStrategy[bytes] = BATCHES) -> list[bytes]:
    """Requests as they come, and some with bytes changed, cut or repeated."""
    found = []
    for _ in range(draw(st.integers(1, 5))):
        requests = st.one_of(REQUESTS, REQUESTS, several)
        whole = bytearray(b"".join(draw(st.lists(requests, min_size=1, max_size=6))))
        for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
            at = draw(st.integers(0, len(whole) - 1))
            match draw(st.integers(0, 3)):
                case 0:
                    whole[at] = draw(st.integers(0, 255))
                case 1:
                    whole[at : at + 4] = draw(EDGES)
                case 2:
                    del whole[at + 1 :]
                case _:
                    whole[at:at] = draw(st.binary(max_size=8))
        found.append(bytes(whole))
    return found


class Onlooker:
    """Wants to know of changes."""

    def absorb(self, touched: dict[bytes, bytes | None], entries: Entries) -> None:
        pass

    def complete(self, entries: Entries) -> bool:
        return False


class Primary:
    """Serves partition 0, 1 while it is passive, and not 2; observed or not, with locks or without."""

    def __init__(self, entries: NewEntries = dict, *, observed: bool, locks: bool, listening: bool) -> None:
        self.out = Outbox()
        self.out.now_ns = 1
        maps = {**MAPS, "m": MapSettings(backups=1, transactional=locks)}
        chosen = Settings(partitions=PartitionSettings(count=3), maps=maps)
        self.lane = Lane(ME, chosen, self.out, Log(self.out, on=False))
        self.lane.attach([Assignment(1, (ME, BEN))] * 3)
        self.copies = [PartitionCopy(partition, 0, entries=entries) for partition in range(3)]
        self.lane.serving[0] = self.copies[0]
        self.lane.leading[:2] = self.copies[:2]
        self.heard: list[object] = []
        self.lane.heard = self.heard.append  # type: ignore[method-assign]
        self.lane.report = lambda name, rows: self.heard.extend(events_of(name, ME, rows))  # type: ignore[method-assign]
        if listening:
            self.lane.listening["m"] = 1
        for name in ("m", "alone"):
            for copy in self.copies[:2]:
                held = self.lane.open(copy, name)
                self.lane.set(copy, name, KEYS[0], VALUES[0], 0, 0, 0)
                if observed:
                    held.state.digests()
                    if name == "alone":
                        held.state.observe(Onlooker())
        if locks:
            lock = KeyLock(b"t" * 16, ME)
            self.copies[0].locks.change(LockChanges([(lock_key("m", KEYS[1]), lock)]))

    def serve(
        self,
        code: LaneCode,
        data: bytes,
        room: int = 1 << 30,
        longest: tuple[int, int] = LONGEST,
        *,
        names: dict[bytes, Served] = KNOWN,
        bulk: list[Bulk] | None = None,
        apart: bytes | None = None,
    ) -> tuple[int, bytearray, bytearray]:
        """What a session sees of it."""
        out, unsealed = bytearray(b"before"), bytearray()
        sink = code.PrimarySink(self.lane, out, unsealed, None, bulk)
        at = code.serve_entries(data, 0, sink, names, longest, room, apart)
        return at, out, unsealed

    def state(self) -> object:
        """All that it may have changed."""
        return [
            (
                name,
                dict(held.state.entries.items()),
                held.state.hashes,
                {
                    key: (one.ttl_ms, one.max_idle_ms, one.stored_ns, one.deadline_ns())
                    for key, one in held.state.expiries.items()
                },
                # A table notes nothing for its own digests.
                held.state.touched if name == "alone" else None,
                held.state.touched is None or held.state.digests(),
                held.state.touched is None or held.state.digests() == held.state.range_digests(),
                (held.updates.lwm, held.updates.hwm),
                held.recorded,
            )
            for copy in self.copies
            for name, held in copy.maps.items()
        ] + [
            self.queued(),
            sorted(self.lane._reads),
            self.heard,
        ]

    def queued(self) -> dict[tuple[int, str], list[Record]]:
        """The records of each map and partition that its backup will get."""
        found: dict[tuple[int, str], list[Record]] = {}
        for partition, held, update in [*self.lane.batches.unsent, *self.lane.open_records]:
            found.setdefault((partition, held.name), []).extend(one_by_one((update,)))
        for opened in self.lane.open_puts:
            assert opened.unsent is not None
            assert opened.unsent.opened
        for copy in self.copies:
            for held in copy.maps.values():
                each = held.unsent
                if each is not None and each.sizes:
                    assert held in self.lane.open_puts
                    last = each.pending(held, held.counter)
                    found.setdefault((copy.partition, held.name), []).extend(last.records())
        return found


@dataclass(frozen=True)
class Way:
    """How it is served, and what entries are kept in."""

    code: LaneCode
    entries: NewEntries = dict


def agree(
    way: Way,
    arrived: list[bytes],
    room: int,
    *,
    observed: bool = False,
    locks: bool = False,
    listening: bool = False,
    longest: tuple[int, int] = LONGEST,
) -> None:
    one, other = (
        Primary(entries, observed=observed, locks=locks, listening=listening)
        for entries in (dict, way.entries)
    )
    for data in arrived:
        assert one.serve(reference_lane, data, room, longest) == other.serve(way.code, data, room, longest)
        assert one.state() == other.state()
        for primary in (one, other):
            primary.out.now_ns += 2_000_000


needs_compiler = pytest.mark.skipif(
    data_lane().kind == "python", reason=f"there is no compiled data lane: {data_lane().why}"
)
TABLE = data_lane().ways.entries
COMPILED_CODE = data_lane().code
WAYS = [
    pytest.param(Way(reference_lane, TABLE), id="plain-table", marks=needs_compiler),
    pytest.param(Way(COMPILED_CODE), id="compiled", marks=needs_compiler),
    pytest.param(Way(COMPILED_CODE, TABLE), id="compiled-table", marks=needs_compiler),
]
ALONE = [pytest.param(Way(reference_lane), id="plain"), *WAYS]


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=2 * settings.default.max_examples)
@given(buffers(), st.sampled_from([1 << 30, 1000, 0]), st.booleans(), st.booleans(), st.booleans())
def test_both_ways_do_the_same(
    way: Way, arrived: list[bytes], room: int, observed: bool, locks: bool, listening: bool
) -> None:
    agree(way, arrived, room, observed=observed, locks=locks, listening=listening)


@pytest.mark.covering(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES[:6])
@pytest.mark.parametrize("word", [0, 7])
@pytest.mark.parametrize("ttl_ms", [-1, 0, 60_000])
def test_each_kind_in_each_map(way: Way, name: str, word: int, ttl_ms: int) -> None:
    """What chance may leave out: an entry with and without expiry and hash word, written again, and removed."""
    arrived = [
        request(kind, name, key, value, partition=0, ttl_ms=ttl, word=one, number=1)
        for kind, value, one, ttl in (
            (SET, VALUES[0], word, ttl_ms),
            (SET, VALUES[1], 0, -1),
            (PUT, VALUES[2], 0, -1),
            (GET, b"", 0, 0),
            (REMOVE, b"", 0, 0),
            (REMOVE, b"", 0, 0),
            (PUT, VALUES[0], word, ttl_ms),
            (DELETE, b"", 0, 0),
            (CONTAINS_KEY, b"", 0, 0),
            (REPLACE, VALUES[0], word, ttl_ms),
            (PUT_IF_ABSENT, VALUES[1], word, ttl_ms),
            (PUT_IF_ABSENT, VALUES[0], word, ttl_ms),
            (REPLACE, VALUES[2], 0, 0),
            (REPLACE_IF_SAME, VALUES[0], word, ttl_ms),
            (REPLACE_IF_SAME, VALUES[2], word, ttl_ms),
            (SET_TTL, b"", 0, ttl_ms),
            (REMOVE_IF_SAME, VALUES[0], 0, 0),
            (REMOVE_IF_SAME, VALUES[2], 0, 0),
            (SET_TTL, b"", 0, ttl_ms),
            (SET, VALUES[2], 0, 3),
            (ENTRY_VIEW, b"", word, 0),
            (EVICT, b"", 0, 0),
            (EVICT, b"", 0, 0),
            (PUT, VALUES[0], word, ttl_ms),
            (ENTRY_VIEW, b"", 0, 0),
            (SET_TTL, b"", 0, 1),
            (ENTRY_VIEW, b"", 7, 0),
            (ENTRY_VIEW, b"", 0, 0),
        )
        for key in KEYS[2:]
    ]
    agree(way, arrived, 1 << 30, observed=True, locks=False, listening=False)


@pytest.mark.parametrize("way", ALONE)
@pytest.mark.parametrize("kind", [REPLACE_IF_SAME, REMOVE_IF_SAME])
@pytest.mark.parametrize(
    ("expected", "applies"),
    [(VALUES[0], True), (VALUES[3], False), (VALUES[0][:-1], False), (VALUES[0] + b"\0", False)],
    ids=["same", "other", "shorter", "longer"],
)
def test_expected_value_is_compared_as_a_whole(way: Way, kind: int, expected: bytes, applies: bool) -> None:
    primary = Primary(way.entries, observed=False, locks=False, listening=False)
    asked = request(
        kind, "m", KEYS[0], VALUES[1], partition=0, ttl_ms=-1, word=0, number=1, expected=expected
    )
    at, _, unsealed = primary.serve(way.code, asked)
    assert at == len(asked)
    assert unsealed[-1] == applies
    changed = VALUES[1] if kind == REPLACE_IF_SAME else None
    found = primary.copies[0].maps["m"].state.entries.get(KEYS[0])
    assert found == (changed if applies else VALUES[0])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES[:6])
@pytest.mark.parametrize("locks", [False, True])
def test_batches_in_each_map(way: Way, name: str, locks: bool) -> None:
    """Keys that are absent, present, repeated, locked, and such that have ended."""
    entries = [(key, value, 0) for key in KEYS for value in VALUES]
    arrived = [
        batch(GET_ALL, name, entries, partition=0),
        batch(PUT_ALL, name, entries[3:8], partition=0),
        batch(GET_ALL, name, entries, partition=0),
        request(SET, name, KEYS[2], VALUES[0], partition=0, ttl_ms=3, word=0, number=1),
        batch(GET_ALL, name, entries, partition=0),
        batch(GET_ALL, name, entries, partition=0),
        batch(GET_ALL, name, entries[6:7], partition=0),
        batch(PUT_ALL, name, entries[:1], partition=0) + batch(PUT_ALL, name, entries, partition=0),
        batch(GET_ALL, name, entries, partition=0) + batch(PUT_ALL, name, entries, partition=1),
        batch(GET_ALL, name, entries, partition=1),
    ]
    agree(way, arrived, 1 << 30, observed=True, locks=locks, listening=True)


@pytest.mark.parametrize("way", ALONE)
def test_batch_that_is_long_is_left_to_the_session(way: Way) -> None:
    primary = Primary(way.entries, observed=False, locks=False, listening=False)
    value = int_data(0)[:4] + bytes(1000)
    longest = (1 << 17, 1 << 17)
    many = [(int_data(number), value, 0) for number in range(BATCH_KEYS + 1)]
    for count, kind in ((BATCH_KEYS + 1, GET_ALL), (300, PUT_ALL)):
        whole = batch(kind, "alone", many[:count], partition=0)
        assert primary.serve(way.code, whole, longest=longest) == (0, b"before", b"")
    for begin in range(0, 200, 50):
        whole = batch(PUT_ALL, "alone", many[begin : begin + 50], partition=0)
        assert primary.serve(way.code, whole, longest=longest)[0] == len(whole)
    for count, begins in ((63, True), (64, False)):
        whole = batch(GET_ALL, "alone", many[:count], partition=0)
        at, out, unsealed = primary.serve(way.code, whole, longest=longest)
        assert at == (len(whole) if begins else 0)
        assert (len(out) > len(b"before")) is begins
        assert not unsealed


@pytest.mark.parametrize("way", ALONE)
def test_batch_counts_what_its_response_takes(way: Way) -> None:
    primary = Primary(way.entries, observed=False, locks=False, listening=False)
    entries = [(KEYS[0], VALUES[2], 0)]
    primary.serve(way.code, batch(PUT_ALL, "alone", entries, partition=0))
    asked = batch(GET_ALL, "alone", entries, partition=0)
    at, _, _ = primary.serve(way.code, asked * 5, 800)
    assert at == 2 * len(asked)


@pytest.mark.parametrize("way", ALONE)
def test_batch_with_a_locked_entry_stores_nothing(way: Way) -> None:
    primary = Primary(way.entries, observed=False, locks=True, listening=False)
    before = primary.state()
    whole = batch(PUT_ALL, "m", [(key, VALUES[1], 0) for key in KEYS], partition=0)
    assert primary.serve(way.code, whole) == (0, b"before", b"")
    assert primary.state() == before


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["m", "told"])
def test_observers_hear_the_same_of_many_writes_of_one_buffer(way: Way, name: str) -> None:
    """Each with its own number, in their order, also when one of them takes the lane's methods."""
    whole = b"".join(
        request(kind, name, key, VALUES[1], partition=0, ttl_ms=-1, word=word, number=1)
        for word in (0, 7, 0)
        for kind in (SET, PUT, REMOVE, SET)
        for key in KEYS[1:3]
    )
    agree(way, [whole, whole], 1 << 30, listening=True)


@pytest.mark.parametrize("way", WAYS)
def test_cut_anywhere(way: Way) -> None:
    """A message that has not come whole is left, whatever is missing: nothing is read behind the buffer's end."""
    whole = b"".join(
        request(kind, "m", KEYS[0], VALUES[1], partition=0, ttl_ms=-1, word=0, number=kind)
        for kind in (SET, GET, PUT, REMOVE, CONTAINS_KEY, DELETE)
    )
    for kind in (PUT_ALL, GET_ALL):
        whole += batch(kind, "m", [(KEYS[0], VALUES[1], 0), (KEYS[2], VALUES[0], 0)], partition=0)
    for end in range(len(whole) + 1):
        agree(way, [whole[:end]], 1 << 30, observed=True, locks=False, listening=False)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("observed", [False, True])
def test_values_of_every_size(way: Way, observed: bool) -> None:
    """Small ones are copied into the table, and large ones are shared with who has them: both are told as they are."""
    sizes = [0, 1, 480, 500, 4080, 4095, 4096, 4097, 70_000, 1 << 20, 5, 4096, 100]
    arrived = [
        request(
            kind, name, KEYS[0], int_data(0) + bytes([at]) * size, partition=0, ttl_ms=-1, word=0, number=at
        )
        for at, size in enumerate(sizes)
        for name in ("m", "alone")
        for kind in (SET, GET, PUT, GET, CONTAINS_KEY)
    ]
    agree(way, arrived, 1 << 30, observed=observed, longest=(1 << 21, 1 << 21))
    agree(way, [b"".join(arrived)], 1 << 30, observed=observed, longest=(1 << 21, 1 << 21))
    agree(way, [b"".join(arrived[:40])], 5000, observed=observed, longest=(1 << 21, 1 << 21))


@pytest.mark.parametrize("way", ALONE)
def test_large_values_are_handed_on_as_they_are(way: Way) -> None:
    """Put in their places among the answers they are what is answered without that; small ones are copied."""
    primary = Primary(way.entries, observed=False, locks=False, listening=False)
    sizes = [8, BULK_BYTES - 1, BULK_BYTES, 70_000, 1 << 20]
    names = {str(number): str(number) for number in range(len(sizes))}
    known: dict[bytes, Served] = {name.encode(): name for name in names}
    asked = b""
    for number, size in enumerate(sizes):
        for kind in (SET, GET, GET, CONTAINS_KEY):
            value = int_data(0)[:4] + random.Random(number).randbytes(size - 4)
            asked += request(
                kind, str(number), KEYS[0], value, partition=0, ttl_ms=-1, word=0, number=number - 2
            )
    answers = []
    for bulk in (None, []):
        end, out, _ = primary.serve(way.code, asked, 1 << 30, (1 << 21, 1 << 21), names=known, bulk=bulk)
        assert end == len(asked)
        joined, begin = bytearray(), 0
        for place, value in bulk or ():
            joined += out[begin:place] + value
            begin = place
        answers.append(joined + out[begin:])
    assert answers[0] == answers[1]
    assert [len(value) for _, value in bulk or ()] == [size for size in sizes[2:] for _ in range(2)]
    held = primary.copies[0].maps["4"].state.entries[KEYS[0]]
    assert bulk is not None
    assert bulk[-1][1] is held, "the value itself, not a copy of it"


@pytest.mark.covering(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES[:6])
@pytest.mark.parametrize("word", [0, 7])
@pytest.mark.parametrize("ttl_ms", [-1, 0, 60_000])
@pytest.mark.parametrize("observed", [False, True])
def test_a_value_that_came_apart_is_stored_like_one_in_its_message(
    way: Way, name: str, word: int, ttl_ms: int, observed: bool
) -> None:
    one, other = (
        Primary(each, observed=observed, locks=True, listening=False) for each in (dict, way.entries)
    )
    longest = (1 << 17, 1 << 17)
    for number, kind in enumerate((SET, PUT, SET, PUT)):
        for key in KEYS[:4]:
            value = int_data(number)[:4] + bytes([number + 1]) * (frame_parser.APART_BYTES + number)
            whole = request(kind, name, key, value, partition=0, ttl_ms=ttl_ms, word=word, number=number)
            begin, size = value_to_come(whole[:-1], 0, longest)
            assert (begin, size) == (len(whole) - len(value), len(value))
            told = one.serve(reference_lane, whole, 1 << 30, longest)
            head = whole[: begin + frame_parser.TYPE_BYTES]
            assert other.serve(way.code, head, 1 << 30, longest, apart=whole[begin:]) == told
            assert one.state() == other.state()


@pytest.mark.parametrize("way", ALONE)
@pytest.mark.parametrize("room", [0, 39_000, 41_000, 80_500, 200_000])
def test_large_values_that_are_not_copied_count_like_those_that_are(way: Way, room: int) -> None:
    """Else a client that does not read would have more of them waiting than it may."""
    primary = Primary(way.entries, observed=False, locks=False, listening=False)
    value = int_data(0)[:4] + bytes(40_000)
    stored = request(SET, "alone", KEYS[0], value, partition=0, ttl_ms=-1, word=0, number=1)
    longest = (1 << 17, 1 << 17)
    primary.serve(way.code, stored, 1 << 30, longest)
    asked = request(GET, "alone", KEYS[0], value, partition=0, ttl_ms=-1, word=0, number=2)
    many = asked * 20
    ends = []
    for bulk in (None, []):
        end, out, _ = primary.serve(way.code, many, room, longest, bulk=bulk)
        del out[: len("before")]
        ends.append(end // len(asked))
        assert len(out) + sum(len(found) for _, found in bulk or ()) == ends[-1] * (29 + len(value))
    assert ends == [1 + room // (len(value) + 10)] * 2


@needs_compiler
def test_a_value_that_came_apart_is_not_copied() -> None:
    primary = Primary(TABLE, observed=False, locks=False, listening=False)
    value = int_data(0)[:4] + bytes(frame_parser.APART_BYTES)
    for kind in (SET, SET):
        whole = request(kind, "alone", KEYS[0], value, partition=0, ttl_ms=-1, word=0, number=1)
        begin, _ = value_to_come(whole[:-1], 0, (1 << 17, 1 << 17))
        apart = whole[begin:]
        head = whole[: begin + frame_parser.TYPE_BYTES]
        primary.serve(COMPILED_CODE, head, 1 << 30, (1 << 17, 1 << 17), apart=apart)
        assert primary.copies[0].maps["alone"].state.entries[KEYS[0]] is apart


@needs_compiler
def test_ordinary_entries_do_not_take_the_lanes_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the comparison above would compare a thing with itself."""
    way = Way(COMPILED_CODE, TABLE)
    primary = Primary(way.entries, observed=False, locks=False, listening=False)
    for name in ("set", "remove", "evict", "read"):
        monkeypatch.setattr(primary.lane, name, None)
    kinds = (
        SET, PUT, REMOVE, SET, DELETE, PUT_IF_ABSENT, REPLACE, REPLACE_IF_SAME, REMOVE_IF_SAME, PUT_IF_ABSENT, EVICT,
    )  # fmt: skip
    whole = b"".join(
        request(kind, "m", KEYS[0], VALUES[1], partition=0, ttl_ms=-1, word=0, number=1) for kind in kinds
    )
    whole += batch(PUT_ALL, "m", [(key, VALUES[1], 0) for key in KEYS], partition=0)
    whole += batch(GET_ALL, "m", [(key, b"", 0) for key in KEYS], partition=0)
    before = sum(map(len, primary.queued().values()))
    assert primary.serve(way.code, whole)[0] == len(whole)
    assert sum(map(len, primary.queued().values())) == before + len(kinds) + len(KEYS)


@needs_compiler
def test_evicted_entry_is_reported_as_evicted() -> None:
    primary = Primary(TABLE, observed=False, locks=False, listening=True)
    whole = b"".join(
        request(kind, "m", KEYS[3], VALUES[1], partition=0, ttl_ms=-1, word=0, number=1)
        for kind in (SET, EVICT, SET, REMOVE_IF_SAME)
    )
    assert primary.serve(COMPILED_CODE, whole)[0] == len(whole)
    kinds = [event.kind for event in primary.heard[-4:] if isinstance(event, EntryEvent)]
    assert kinds == [EventKind.ADDED, EventKind.EVICTED, EventKind.ADDED, EventKind.REMOVED]


@needs_compiler
@pytest.mark.parametrize("name", ["m", "told"])
def test_observers_are_told_once_for_each_buffer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listeners of a map, or its change stream, do not take its writes, or those of other maps, off the lane. Updates
    of a change stream are packed.
    """
    primary = Primary(TABLE, observed=False, locks=False, listening=True)
    primary.lane.open(primary.copies[0], name)
    for method in ("set", "remove"):
        monkeypatch.setattr(primary.lane, method, None)
    reported: list[int] = []
    report = primary.lane.report
    monkeypatch.setattr(
        primary.lane, "report", lambda name, rows: (reported.append(len(rows)), report(name, rows))
    )
    kinds = (SET, PUT, REMOVE, SET, GET, SET)
    for each, count in ((name, [5] if name == "m" else []), ("alone", [])):
        whole = b"".join(
            request(kind, each, KEYS[0], VALUES[1], partition=0, ttl_ms=-1, word=0, number=1)
            for kind in kinds
        )
        heard = len(primary.heard)
        assert primary.serve(COMPILED_CODE, whole)[0] == len(whole)
        assert reported == count
        assert len(primary.heard) - heard == (5 if each == "m" else 0)
        reported.clear()
    records = primary.queued()[0, name][-5:]
    assert [record.change is Change.REMOVE for record in records] == [False, False, True, False, False]
    if name == "told":
        assert [record.old for record in records] == [None, VALUES[1], VALUES[1], None, VALUES[1]]


@needs_compiler
@pytest.mark.parametrize("name", ["m", "alone", "mortal", "idle"])
def test_entries_that_end_do_not_take_the_lanes_methods_either(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a table, as long as they live. What has ended is found there, and goes the general way."""
    primary = Primary(TABLE, observed=False, locks=False, listening=False)
    primary.lane.open(primary.copies[0], name)
    called: list[str] = []
    for method in ("set", "remove", "read"):
        monkeypatch.setattr(primary.lane, method, lambda *_, method=method: called.append(method))
    writes, reads = (
        b"".join(
            request(kind, name, KEYS[3], VALUES[1], partition=0, ttl_ms=ttl_ms, word=0, number=1)
            for kind, ttl_ms in kinds
        )
        for kinds in (
            ((SET, 2), (PUT, 4), (GET, 0), (CONTAINS_KEY, 0), (DELETE, 0), (SET, 2)),
            ((GET, 0), (CONTAINS_KEY, 0), (SET, 2), (REMOVE, 0)),
        )
    )
    assert primary.serve(COMPILED_CODE, writes)[0] == len(writes)
    primary.out.now_ns += 1_999_999
    assert primary.serve(COMPILED_CODE, reads[: len(reads) // 4])[0]
    assert called == []
    assert primary.copies[0].maps[name].state.expiries.keys() == {KEYS[3]}
    primary.out.now_ns += 60_000_000
    assert primary.serve(COMPILED_CODE, reads)[0] == len(reads)
    assert called == ["read", "read", "set", "remove"]


def test_a_lane_whose_calls_are_written_down_is_called() -> None:
    """Of a lane without open records every write is a call: the recorder's, that of the tests here."""
    grid = OneMemberGrid(3)
    whole = request(SET, "m", KEYS[0], VALUES[1], partition=0, ttl_ms=-1, word=0, number=1)
    code = data_lane().code
    sink = code.PrimarySink(grid.lane, bytearray(), bytearray())
    assert code.serve_entries(whole, 0, sink, KNOWN, LONGEST, 1 << 30) == len(whole)
    assert grid.copies[0].maps["m"].state.entries == {KEYS[0]: VALUES[1]}


def test_python_can_be_chosen() -> None:
    lane = data_lane("python")
    assert (lane.kind, lane.code) == ("python", reference_lane)
    assert "member.lane" in lane.why


def test_what_is_of_another_source_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that is older than the source would do what the source said then."""
    old = SimpleNamespace(SOURCE="0" * 64, EntryTable=None)
    for name in (COMPILED, TABLE_MODULE, PUTS_MODULE):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, old)
            lane = data_lane()
        assert (lane.kind, lane.code, lane.ways) == ("python", reference_lane, PLAIN_WAYS)
        assert "make install" in lane.why
