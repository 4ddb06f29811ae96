"""Frames and columns of Holdfast's own protocol."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.operations import Op, Request
from holdfast.errors import ProtocolError, TooLarge
from holdfast.wire import own

CELLS = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=20)


@given(CELLS)
def test_columns_hold_every_key_and_value(rows: list[tuple[bytes, bytes]]) -> None:
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    columns = own.ColumnBatch.of(keys, values)
    assert columns.rows == len(rows)
    assert columns.size_bytes == sum(map(len, keys + values))
    assert columns.split() == (keys, values)


def test_columns_are_laid_out_as_arrow_lays_out_binary() -> None:
    pa = pytest.importorskip("pyarrow")
    columns = own.ColumnBatch.of([b"a", b"", b"ccc"], [b"xx", b"y", b""])
    array = pa.Array.from_buffers(
        pa.binary(), columns.rows, [None, pa.py_buffer(columns.value_offsets), pa.py_buffer(columns.values)]
    )
    array.validate(full=True)
    assert array.to_pylist() == [b"xx", b"y", b""]


@pytest.mark.parametrize(
    "offsets",
    [(0, 1), (0, 1, 2, 3), (1, 1, 2), (0, 1, 3), (0, 2, 1), (0, -1, 2)],
    ids=["too few", "too many", "not from 0", "past the end", "backwards", "negative"],
)
def test_offsets_that_do_not_fit_the_column_break_the_protocol(offsets: tuple[int, ...]) -> None:
    packed = struct.pack(f"<{len(offsets)}i", *offsets)
    good = struct.pack("<3i", 0, 1, 2)
    with pytest.raises(ProtocolError):
        own.ColumnBatch(2, packed, b"ab", good, b"ab").split()
    with pytest.raises(ProtocolError):
        own.ColumnBatch(2, good, b"ab", packed, b"ab").split()


QUESTIONS: list[own.Question] = [
    own.Hello(1, own.VERSION, "dev", "u", "p", b"t"),
    own.AskTable(3),
    own.Execute(4, Request(Op.PUT_IF_ABSENT, "m", [7], b"key", b"value", ttl_ms=5)),
    own.Scan(5, "m", 7),
    own.NextPage(6, 5),
    own.PutColumns(7, "m", [7, 9], [1, 2], own.ColumnBatch.of([b"a", b"b", b"c"], [b"1", b"2", b"3"])),
    own.AskDigests(8, [1, 2, 3], "m"),
    own.Act(9, "state", msgspec.Raw(msgspec.msgpack.encode({"state": "frozen"})), 60_000),
    own.Watch(10, (3, 17)),
    own.AskDigests(18, [1, 2], "m", bytes(16)),
]


@given(st.lists(st.sampled_from(QUESTIONS), max_size=6), st.integers(1, 40))
def test_frames_are_put_together_however_they_are_cut(questions: list[own.Question], piece: int) -> None:
    sent = b"".join(map(own.frame, questions))
    frames = own.Frames(1000)
    found = []
    for at in range(0, len(sent), piece):
        frames.feed(sent[at : at + piece])
        while (body := frames.take()) is not None:
            found.append(own.read_question(body))
    assert found == questions


def test_a_frame_above_the_limit_is_refused_before_its_body_has_come() -> None:
    frames = own.Frames(10)
    frames.feed(struct.pack("<I", 10) + b"x" * 10 + struct.pack("<I", 11))
    assert frames.take() == b"x" * 10
    with pytest.raises(TooLarge, match="11 bytes; the most is 10"):
        frames.take()


@given(st.binary(max_size=60))
def test_whatever_is_no_question_is_told_as_broken_protocol(body: bytes) -> None:
    try:
        own.read_question(body)
    except ProtocolError:
        pass


def test_an_answer_is_no_question() -> None:
    with pytest.raises(ProtocolError):
        own.read_question(own.frame(own.Fault(1, own.FaultKind.DENIED, ""))[own.LENGTH_BYTES :])


def test_a_request_of_an_older_version_is_rejected_by_name() -> None:
    of_an_older_command = msgspec.msgpack.encode([17, 1, [5]])
    with pytest.raises(ProtocolError, match="OrderZone is a request of an older version of Holdfast: use"):
        own.read_question(of_an_older_command)


def test_a_deeply_nested_body_is_refused() -> None:
    deep = b"\x91" * 100_000 + b"\x01"
    with pytest.raises(ProtocolError):
        own.read_question(b"\x93\x02\x01" + deep)
    with pytest.raises(ProtocolError):
        own.read_answer(b"\x93\x42\x01\x81\xa1a" + deep)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(own.Hello(1, 1, "dev", "u", "secret", b"secret"))
