"""The parser of the data lane reads a message as the general way does, or leaves it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server.hazelcast.one_member import int_data
from tests.server.hazelcast.test_lane_ways import (
    BATCHES,
    GET_ALL,
    KEYS,
    PUT_ALL,
    REQUESTS,
    SET,
    VALUES,
    batch,
    buffers,
    request,
)
from tests.server.hazelcast.test_lane_ways import GET as GETS
from tests.server.hazelcast.test_lane_ways import LONGEST as LIMITS

from holdfast.errors import ProtocolError, TooLarge
from holdfast.server.hazelcast.frame_parser import (
    APART_BYTES,
    CORRELATION_AT,
    DATA_AT,
    HASH_AT,
    LONGEST_MS,
    NAME_HEADER,
    NO_BATCH,
    NOTHING,
    SHORTEST_DATA,
    TYPE_BYTES,
    Parsed,
    parse,
    parse_batch,
    value_to_come,
)
from holdfast.server.hazelcast.keyed_requests import (
    BATCH_ROWS,
    BY_KIND,
    COUNTED,
    KEYED,
    LANE_ROWS,
    READS_COUNTED,
    VIEW,
    Form,
    LaneRow,
    row_of,
)
from holdfast.server.hazelcast.maps import MESSAGES
from holdfast.server.hazelcast.reference_lane import parts_of
from holdfast.wire.hazelcast.hazelcast_frames import Scan
from holdfast.wire.hazelcast.layouts import UNNAMED, Call
from holdfast.wire.hazelcast.refusals import CallRefused

LONGEST = 1 << 20


def parsed(data: bytes, at: int = 0, longest: tuple[int, int] = (LONGEST, LONGEST)) -> Parsed:
    return parse(data, at, len(data), len(data), *longest)


def generally(data: bytes, at: int) -> tuple[int, Call]:
    """Where the message ends, and how the general way reads it."""
    scan = Scan()
    scan.begin(at)
    end = scan.look(data, 1 << 24)
    kind = struct.unpack_from("<i", data, at + 6)[0]
    return end, MESSAGES[kind].layout.decode(data, at, end)


def agree(data: bytes, at: int, found: Parsed) -> None:
    end, row, partition, ttl_ms, max_idle_ms, name_at, key_at, key_end, value_at, expected_end = found
    assert row is not None
    also_end, call = generally(data, at)
    assert end == also_end <= len(data)
    name = data[name_at:key_at] or UNNAMED.encode()
    assert (row.kind, partition, name) == (call.kind, call.partition, call.name.encode())
    assert data[key_at + DATA_AT : key_end] == call.key
    assert int.from_bytes(data[key_at + HASH_AT : key_at + DATA_AT], "big", signed=True) == call.key_hash
    assert struct.unpack_from("<q", data, at + CORRELATION_AT)[0] == call.correlation
    if row.stores:
        assert data[value_at:end] == call.value
        assert (ttl_ms, max_idle_ms) == (call.ttl_ms, call.max_idle_ms)
    else:
        assert value_at == expected_end == end
    if row.ttl:
        assert ttl_ms == call.ttl_ms
    assert data[key_end + DATA_AT : expected_end] == call.expected
    assert row.expects or expected_end == key_end


@given(REQUESTS)
def test_each_message_of_the_table_is_read_as_on_the_general_way(message: bytes) -> None:
    kind = struct.unpack_from("<i", message, 6)[0]
    partition = struct.unpack_from("<i", message, 18)[0]
    row = row_of(kind)
    found = parsed(b"xyz" + message, 3)
    if row is None or partition < 0:
        assert found == NOTHING
    elif found[1] is not None or not (row.stores or row.ttl):
        agree(b"xyz" + message, 3, found)
    else:
        begin = 22 if row.ttl_first else 30
        times = struct.unpack_from(f"<{(row.head - begin) // 8}q", message, begin)
        assert any(not -1 <= one <= LONGEST_MS for one in times), "that is all that may be wrong with it"


@settings(max_examples=settings.default.max_examples)
@given(buffers(), st.integers(0, 300))
def test_hostile_bytes_are_left_or_read_as_on_the_general_way(arrived: list[bytes], begin: int) -> None:
    for data in arrived:
        for start in (0, min(begin, len(data))):
            at, found = start, parsed(data, start)
            while found[1] is not None:
                try:
                    agree(data, at, found)
                except (CallRefused, ProtocolError, TooLarge, UnicodeDecodeError):
                    # A name that is no text belongs to no map, so the lane goes no further.
                    with pytest.raises(UnicodeDecodeError):
                        data[found[5] : found[6]].decode()
                at, found = found[0], parsed(data, found[0])


@settings(max_examples=settings.default.max_examples)
@given(st.one_of(BATCHES.map(lambda whole: [whole]), buffers()))
def test_batches_are_read_as_on_the_general_path_or_left(arrived: list[bytes]) -> None:
    for data in arrived:
        end, row, partition, name_at, list_at, count = parse_batch(data, 0, len(data), LONGEST, LONGEST)
        if row is None:
            continue
        try:
            data[name_at:list_at].decode()
        except UnicodeDecodeError:
            continue  # Such a name belongs to no map.
        also_end, call = generally(data, 0)
        assert (end, row.kind, partition) == (also_end, call.kind, call.partition)
        assert (data[name_at:list_at] or UNNAMED.encode()) == call.name.encode()
        parts = parts_of(data, list_at + NAME_HEADER, count * (1 + row.stores))
        assert [key for key, _ in parts[:: 1 + row.stores]] == list(call.keys)
        assert [word for _, word in parts[:: 1 + row.stores]] == list(call.hashes)
        assert [value for value, _ in parts[1::2] if row.stores] == list(call.values)


@pytest.mark.parametrize("kind", [GET_ALL, PUT_ALL])
def test_batch_that_is_odd_is_left(kind: int) -> None:
    whole = batch(kind, "m", [(KEYS[0], VALUES[0], 0)] * 2, partition=0)
    end, row, _, name_at, list_at, count = parse_batch(whole, 0, len(whole), LONGEST, LONGEST)
    assert (end, row, count) == (len(whole), BY_KIND[kind], 2)
    for cut in range(len(whole)):
        assert parse_batch(whole[:cut], 0, cut, LONGEST, LONGEST) == NO_BATCH
    for at, form, value in (
        (0, "<i", 21), (0, "<i", 24), (4, "<H", 0x4000), (4, "<H", 0xE000), (6, "<i", 0x012200), (18, "<i", -1),
        (name_at - 2, "<H", 0x0400), (name_at - 6, "<i", 5), (list_at, "<i", 7), (list_at + 4, "<H", 0),
        (list_at + 6, "<i", 13), (list_at + 10, "<H", 0x2000), (list_at + 16, "<i", 0), (end - 6, "<i", 7),
        (end - 2, "<H", 0x0800), (end - 2, "<H", 0x2000),
    ):  # fmt: skip
        assert parse_batch(changed(whole, at, form, value), 0, end, LONGEST, LONGEST) == NO_BATCH
    empty = batch(kind, "m", [], partition=0)
    assert parse_batch(empty, 0, len(empty), LONGEST, LONGEST) == NO_BATCH
    key, value_bytes = len(KEYS[0]) + DATA_AT, len(VALUES[0]) + DATA_AT
    assert parse_batch(whole, 0, end, key, value_bytes)[1] is row
    for longest in ((key - 1, value_bytes), (key, value_bytes - 1)):
        assert (parse_batch(whole, 0, end, *longest)[1] is row) is (kind == GET_ALL)


@pytest.mark.parametrize("row", LANE_ROWS, ids=lambda row: hex(row.kind))
def test_a_message_that_is_cut_off_is_left(row: LaneRow) -> None:
    whole = request(
        row.kind, "m", KEYS[0], VALUES[0], partition=1, ttl_ms=LONGEST_MS, word=7, number=9, max_idle_ms=0
    )
    assert parsed(whole)[1] is row
    for end in range(len(whole)):
        assert parse(whole[:end], 0, end, end, LONGEST, LONGEST) == NOTHING


def changed(whole: bytes, at: int, form: str, value: int) -> bytes:
    told = bytearray(whole)
    struct.pack_into(form, told, at, value)
    return bytes(told)


PUT = request(0x010100, "m", KEYS[0], VALUES[0], partition=0, ttl_ms=5, word=0, number=1)
GET = request(0x010200, "m", KEYS[0], VALUES[0], partition=0, ttl_ms=5, word=0, number=1)
NAME_AT, KEY_AT = 38, 45


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [
        (0, "<i", 37), (0, "<i", 46), (4, "<H", 0x4000), (4, "<H", 0x8000), (4, "<H", 0xE000), (6, "<i", 0x010400),
        (6, "<i", 0x020100), (18, "<i", -1), (30, "<q", -2), (30, "<q", LONGEST_MS + 1), (NAME_AT, "<i", 5),
        (NAME_AT, "<i", -1), (NAME_AT + 4, "<H", 0x0400), (KEY_AT, "<i", SHORTEST_DATA - 1), (KEY_AT, "<i", -7),
        (KEY_AT + 4, "<H", 0x2000), (KEY_AT + 10, "<i", 0), (KEY_AT, "<i", 1 << 30), (NAME_AT, "<i", 0x7FFF_FFFF),
    ],
)  # fmt: skip
def test_whatever_is_odd_is_left(at: int, form: str, value: int) -> None:
    assert parsed(PUT)[1] is not None
    assert parsed(changed(PUT, at, form, value)) == NOTHING


def test_the_value_is_the_last_frame() -> None:
    value_at = parsed(PUT)[8] - DATA_AT
    for at, form, value in (
        (value_at, "<i", SHORTEST_DATA - 1),
        (value_at + 4, "<H", 0),
        (value_at + 10, "<i", 0),
        (value_at, "<i", 1 << 30),
        (value_at, "<i", -1),
    ):
        assert parsed(changed(PUT, at, form, value)) == NOTHING
    assert parsed(changed(GET, KEY_AT - 8 + 4, "<H", 0)) == NOTHING, "the key is, of a read"


def test_lengths_are_limited_for_what_is_stored() -> None:
    end, _, _, _, _, _, key_at, key_end, value_at, _ = parsed(PUT)
    key, value = key_end - key_at, end - value_at + DATA_AT
    assert parsed(PUT, longest=(key, value))[1] is not None
    assert parsed(PUT, longest=(key - 1, value)) == parsed(PUT, longest=(key, value - 1)) == NOTHING
    assert parsed(GET, longest=(0, 0))[1] is not None


def test_a_value_may_end_behind_the_buffer_and_nothing_else() -> None:
    end, value_at = parsed(PUT)[0], parsed(PUT)[8]
    head = PUT[: value_at + 4]
    assert parse(head, 0, len(head), end, LONGEST, LONGEST)[0] == end
    assert parse(head, 0, len(head), end - 1, LONGEST, LONGEST) == NOTHING
    short = PUT[: value_at + 3]
    assert parse(short, 0, len(short), end, LONGEST, LONGEST) == NOTHING


def test_one_table_has_every_keyed_request() -> None:
    assert {row.kind for row in KEYED} <= MESSAGES.keys()
    assert len({row.kind for row in KEYED}) == len(KEYED)
    rows = [*LANE_ROWS, *BATCH_ROWS]
    reads = {row.counter for row in rows if row.reads}
    assert reads == set(range(READS_COUNTED)) < {row.counter for row in rows} == set(range(len(COUNTED)))
    forms = {row.kind: row.form for row in (*KEYED, VIEW)}
    assert all(row.answers_value is (forms[row.kind] is Form.VALUE) for row in LANE_ROWS)


def test_only_large_writes_that_have_not_come_whole_may_have_their_value_apart() -> None:
    longest = (1 << 17, 1 << 17)

    def asked(kind: int, value: bytes, key: bytes = KEYS[0]) -> bytes:
        return request(kind, "m", key, value, partition=0, ttl_ms=-1, word=0, number=1)

    value = int_data(0)[:4] + bytes(APART_BYTES)
    whole = asked(SET, value)
    begin = len(whole) - len(value)
    for end in range(begin + TYPE_BYTES):
        assert value_to_come(whole[:end], 0, longest) == (0, 0)
    for end in range(begin + TYPE_BYTES, len(whole), 997):
        assert value_to_come(b"xyz" + whole[:end], 3, longest) == (begin + 3, len(value))
    assert value_to_come(whole, 0, longest) == (0, 0), "it is whole"
    assert value_to_come(asked(GETS, value), 0, longest) == (0, 0)
    small = asked(SET, value[: APART_BYTES - 1])
    assert value_to_come(small[:-1], 0, longest) == (0, 0)
    too_long = asked(SET, int_data(0)[:4] + bytes(1 << 17))
    assert value_to_come(too_long[:-1], 0, longest) == (0, 0), "it is refused by name, elsewhere"
    part = bytearray(whole[:-1])
    part[5] &= 0x7F
    assert value_to_come(bytes(part), 0, longest) == (0, 0), "a later part of a message in parts"
    part[5] ^= 0xC0
    assert value_to_come(bytes(part), 0, longest) == (0, 0), "the first part of one"
    wide = (1 << 30, 1 << 30)
    for size in (32 * 1024 - 1, 32 * 1024, 1 << 24, (1 << 24) + 1):
        said = bytearray(whole[: begin + 2000])
        struct.pack_into("<i", said, begin - DATA_AT, size + DATA_AT)
        apart = 32 * 1024 <= size <= 1 << 24
        assert value_to_come(bytes(said), 0, wide) == ((begin, size) if apart else (0, 0))
    long_key = asked(SET, value, int_data(0)[:4] + bytes(1 << 17))
    assert value_to_come(long_key[:-1], 0, longest) == (0, 0)


@settings(max_examples=2 * settings.default.max_examples)
@given(buffers(), st.integers(0, 200))
def test_what_is_said_of_a_value_to_come_is_so_whatever_came(arrived: list[bytes], at: int) -> None:
    for data in arrived:
        begin, size = value_to_come(data, at, LIMITS)
        assert (begin, size) == (0, 0) or at < begin <= len(data) - TYPE_BYTES < begin + size


def test_the_layout_is_that_of_the_protocol() -> None:
    assert (CORRELATION_AT, DATA_AT, HASH_AT, SHORTEST_DATA, LONGEST_MS) == (10, 10, 6, 14, 1 << 41)
    assert NOTHING == (0, None, 0, 0, 0, 0, 0, 0, 0, 0)


def test_keys_and_values_may_be_types_alone() -> None:
    """An empty payload, as of null-like objects of some serialisers: the shortest frames that there are."""
    alone = int_data(0)[:4]
    for kind in (GETS, SET):
        whole = request(kind, "m", alone, alone, partition=0, ttl_ms=0, word=0, number=1)
        agree(whole, 0, parsed(whole))


def test_a_first_frame_of_another_length_is_of_another_version() -> None:
    longer = request(
        0x014400, "m", KEYS[0], VALUES[0], partition=0, ttl_ms=5, word=0, number=1, max_idle_ms=LONGEST_MS
    )
    assert parsed(longer)[4] == LONGEST_MS
    assert parsed(changed(longer, 6, "<i", SET)) == NOTHING
    assert parsed(changed(PUT, 4, "<H", 0xC001))[1] is not None, (
        "flags that say nothing of fragments do not matter"
    )


def test_a_key_is_at_least_a_type() -> None:
    key_at = parsed(GET)[6]
    assert parsed(changed(GET, key_at, "<i", SHORTEST_DATA - 1)) == NOTHING


def test_what_is_for_the_session_says_nothing_else() -> None:
    assert NO_BATCH == (0, None, 0, 0, 0, 0)


def test_both_times_have_limits() -> None:
    longer = request(
        0x014400, "m", KEYS[0], VALUES[0], partition=0, ttl_ms=5, word=0, number=1, max_idle_ms=5
    )
    assert parsed(longer)[3:5] == (5, 5)
    for at in (30, 38):
        for wrong in (-2, LONGEST_MS + 1):
            assert parsed(changed(longer, at, "<q", wrong)) == NOTHING


def data_frame(size: int, flags: int) -> bytes:
    return struct.pack("<iHiI", size, flags, 0, 7) + bytes(size - SHORTEST_DATA)


def test_a_name_is_not_shorter_than_its_header() -> None:
    """Although a key seems to begin in the last byte of the header."""
    head = GET[:30] + struct.pack("<iH", NAME_HEADER - 1, 0)
    assert parsed(head + data_frame(256, 0x2000)[1:]) == NOTHING


@pytest.mark.parametrize("kind", [row.kind for row in LANE_ROWS if row.expects])
def test_no_frame_stands_for_a_key_that_is_odd(kind: int) -> None:
    """Not even what happens to begin the buffer."""
    row = row_of(kind)
    assert row is not None
    before = data_frame(20, row.expected_flags)
    whole = request(kind, "m", KEYS[0], VALUES[0], partition=0, ttl_ms=5, word=0, number=1)
    key_at = parsed(before + whole, len(before))[6]
    assert parsed(changed(before + whole, key_at, "<i", 1), len(before)) == NOTHING


@pytest.mark.parametrize("kind", [GET_ALL, PUT_ALL])
def test_a_batch_is_read_where_it_begins(kind: int) -> None:
    before = bytes(50)
    whole = before + batch(kind, "a name of some length", [(KEYS[0], VALUES[0], 0)], partition=0)
    at, size = len(before), len(whole)
    end, row, _, name_at, list_at, _ = parse_batch(whole, at, size, LONGEST, LONGEST)
    assert (end, row, whole[name_at:list_at]) == (size, BY_KIND[kind], b"a name of some length")
    for cut in range(at, size):
        assert parse_batch(whole[:cut], at, cut, LONGEST, LONGEST) == NO_BATCH
    assert (
        parse_batch(changed(whole, name_at - NAME_HEADER, "<i", LONGEST), at, size, LONGEST, LONGEST)
        == NO_BATCH
    )
    assert parse_batch(changed(whole, at + 4, "<H", 0xC001), at, size, LONGEST, LONGEST)[1] is row, (
        "flags that say nothing of fragments do not matter"
    )


def test_a_batch_may_have_an_empty_name() -> None:
    whole = batch(GET_ALL, "", [(KEYS[0], VALUES[0], 0)], partition=0)
    assert parse_batch(whole, 0, len(whole), LONGEST, LONGEST)[1] is BY_KIND[GET_ALL]


def test_the_first_frame_of_a_batch_has_a_byte_more_at_most() -> None:
    whole = batch(GET_ALL, "m", [(KEYS[0], VALUES[0], 0)], partition=0)
    for more in range(4):
        longer = changed(whole[:22] + bytes(more) + whole[22:], 0, "<i", 22 + more)
        found = parse_batch(longer, 0, len(longer), LONGEST, LONGEST)
        assert (found != NO_BATCH) is (more <= 1)


def test_the_list_of_a_batch_is_not_in_its_head() -> None:
    """Although the correlation id looks like the beginning of a list: the name's length is negative."""
    correlation = struct.pack("<iHH", NAME_HEADER, 0x1000, 256)
    (number,) = struct.unpack("<q", correlation)
    head = struct.pack("<iHiqi", 22, 0xC000, GET_ALL, number, 0) + struct.pack("<iHH", -12, 0, 7)
    whole = head.ljust(16 + 256, b"\0") + struct.pack("<iH", NAME_HEADER, 0x2800)
    assert parse_batch(whole, 0, len(whole), LONGEST, LONGEST) == NO_BATCH


def test_a_value_of_a_batch_that_is_odd_does_not_end_it_elsewhere() -> None:
    """Not even where the buffer begins with the end of a list."""
    before = struct.pack("<iH", NAME_HEADER, 0x2800)
    whole = before + batch(PUT_ALL, "m", [(KEYS[0], VALUES[0], 0)], partition=0)
    list_at = parse_batch(whole, len(before), len(whole), LONGEST, LONGEST)[4]
    value_at = list_at + NAME_HEADER + len(KEYS[0]) + DATA_AT
    broken = changed(whole, value_at, "<i", 1)
    assert parse_batch(broken, len(before), len(whole), LONGEST, LONGEST) == NO_BATCH


@pytest.mark.parametrize("keys", [1000, 1001])
def test_a_batch_of_many_keys_is_left(keys: int) -> None:
    whole = batch(GET_ALL, "m", [(int_data(0), b"", 0)] * keys, partition=0)
    assert parse_batch(whole, 0, len(whole), LONGEST, LONGEST)[5] == (keys if keys == 1000 else 0)
