"""States that are read in pieces while they change."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.raft_partition.test_state_machine import (
    STEPS,
    TERMS,
    contents,
    machine,
    plain_table,
    points,
    write,
)

from holdfast.config import Settings
from holdfast.core.model.map_moves import FillMap, encode_move
from holdfast.core.model.operations import Op, Request
from holdfast.core.raft_partition import state_capture
from holdfast.core.raft_partition.partition_snapshot import MapPiece
from holdfast.core.raft_partition.state_capture import StateCapture
from holdfast.core.raft_partition.state_machine import StateMachine
from holdfast.core.store.entry_mapping import NewEntries
from holdfast.errors import ProtocolError

KINDS = [dict, plain_table()]


def entries_of(pieces: list[bytes]) -> list[tuple[bytes, bytes]]:
    found = [msgspec.msgpack.decode(piece, type=MapPiece) for piece in pieces]
    return [row for piece in found for row in zip(piece.keys, piece.values, strict=True)]


def restored(pieces: list[bytes], entries: NewEntries = dict) -> StateMachine:
    other = machine(Settings(), entries)
    other.restore(pieces)
    return other


def filled(entries: NewEntries, count: int, value: bytes = b"v" * 20) -> StateMachine:
    one = machine(Settings(), entries)
    write(one, *[("m", b"k%05d" % number, value, 0, 0) for number in range(count)])
    return one


@pytest.mark.rule("raft_partition/Z-12")
@given(STEPS, TERMS, st.sampled_from(KINDS), st.data())
def test_a_state_is_that_of_its_index_however_late_its_pieces_are_read(
    steps: list[tuple[int, Request, bool]], later_terms: list[int], entries: NewEntries, data: st.DataObject
) -> None:
    one = machine(Settings(), entries)
    captured = data.draw(st.integers(0, len(steps)), label="steps before the capture")
    capture, pieces, before = None, [], None
    term = 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_capture, "PIECE_BYTES", 12)
        for at, (later_ms, each, sweep) in enumerate([*steps, (0, Request(Op.SIZE, "m", [3]), False)]):
            if at == captured:
                before = (
                    points(one),
                    {name: (dict(e), x, dict(h)) for name, (e, x, h) in contents(one).items()},
                )
                capture = one.pieces()
            elif capture is not None and data.draw(st.booleans(), label="read"):
                pieces += [piece for piece in [next(capture, None)] if piece is not None]
            term += later_terms[min(at, len(later_terms) - 1)]
            one.time_ms += later_ms
            one.carry_out(each, term, None)
            if sweep:
                one.sweep(term, None)
        assert capture is not None and not capture.is_void
        pieces += capture
    other = restored(pieces, entries)
    whole = contents(other)
    # Without a maximum idle time nothing depends on when an entry was used.
    assert (points(other), whole) == before
    assert one._captures == []


@pytest.mark.rule("raft_partition/Z-12")
@pytest.mark.parametrize("entries", KINDS)
def test_a_piece_has_few_bytes_and_at_least_one_entry(entries: NewEntries) -> None:
    for size, count in ((20, 20_000), (30_000, 40), (200_000, 5)):
        one = filled(entries, count, b"v" * size)
        _, *pieces = one.pieces()
        most = state_capture.PIECE_BYTES + size + 2_000
        assert max(map(len, pieces)) < 1.3 * most
        assert len(pieces) < 3 + 2 * count * (size + 16) // state_capture.PIECE_BYTES + count // 3
        assert sorted(entries_of(pieces)) == [(b"k%05d" % number, b"v" * size) for number in range(count)]


class CountedReads(dict[bytes, bytes]):
    """Counts the values that are read."""

    reads = 0

    def __getitem__(self, key: bytes) -> bytes:
        type(self).reads += 1
        return super().__getitem__(key)

    def get(self, key: bytes, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        type(self).reads += 1
        return super().get(key, default)

    def values(self) -> None:  # type: ignore[override]
        raise AssertionError("all values at once")

    items = values  # type: ignore[assignment]


@pytest.mark.rule("raft_partition/Z-12")
def test_values_are_read_with_their_piece_and_not_before() -> None:
    one = filled(CountedReads, 5_000, b"v" * 100)
    CountedReads.reads = 0
    capture = one.pieces()
    assert (next(capture) != b"", CountedReads.reads) == (True, 0)
    for _ in range(3):
        CountedReads.reads = 0
        assert 0 < len(entries_of([next(capture)])) == CountedReads.reads < 700
    capture.close()
    assert one._captures == []


@pytest.mark.rule("raft_partition/Z-12")
@pytest.mark.parametrize("entries", KINDS)
def test_entries_that_change_meanwhile_are_kept_and_no_others(entries: NewEntries) -> None:
    one = filled(entries, 10_000)
    capture = one.pieces()
    pieces = [next(capture), next(capture)]
    write(one, *[("m", b"k%05d" % number, b"new", 0, 0) for number in range(0, 10_000, 100)])
    write(one, *[("m", b"added%d" % number, b"new", 0, 0) for number in range(50)])
    write(one, *[("m", b"k%05d" % number, None, 0, 0) for number in range(50, 10_000, 100)])
    assert capture.kept == 250
    other = restored(pieces + list(capture), entries)
    assert contents(other) == contents(filled(entries, 10_000))
    assert capture.kept == 0


@pytest.mark.rule("raft_partition/Z-12")
@pytest.mark.parametrize("entries", KINDS)
@pytest.mark.parametrize("op", [Op.CLEAR, Op.DESTROY])
def test_a_small_map_that_is_cleared_is_kept_and_a_large_one_makes_the_capture_void(
    op: Op, entries: NewEntries
) -> None:
    for count, void in ((1000, False), (state_capture.CLEARED_MAX + 1, True)):
        one = filled(entries, count)
        capture = one.pieces()
        pieces = [next(capture)]
        one.carry_out(Request(op, "m", [3]), 2, None)
        assert capture.is_void is void
        if void:
            with pytest.raises(AssertionError, match="void"):
                next(capture)
            capture.close()
        else:
            assert contents(restored(pieces + list(capture))) == contents(filled(dict, count))
        assert one._captures == []


@pytest.mark.rule("raft_partition/Z-12")
@pytest.mark.parametrize("by", ["a read", "the last fill of a move"])
@pytest.mark.parametrize("entries", KINDS)
def test_a_state_has_the_uses_of_its_index(entries: NewEntries, by: str) -> None:
    """Uses change when entries with a maximum idle time end, but not the entries themselves."""
    one = machine(Settings(), entries)
    for place in range(2):
        keys = [b"k%d%d" % (place, number) for number in range(3)]
        fill = FillMap(1, 1, place, keys, [b"v"] * 3, [0] * 3, [60_000] * 3)
        one.carry_out(Request(Op.FILL, "m", [3], value=encode_move(fill)), 1, None)
    if by == "a read":
        one.carry_out(Request(Op.SET, "n", [3], b"k00", b"v", max_idle_ms=60_000), 1, None)
        later = Request(Op.GET, "n", [3], b"k00")
    else:
        later = Request(Op.FILL, "m", [3], value=encode_move(FillMap(1, 1, 2, [], [], round=1)))
    expected = contents(restored(list(one.pieces())))
    capture = one.pieces()
    one.time_ms += 30_000
    one.carry_out(later, 1, None)
    used = contents(restored(list(one.pieces())))
    assert contents(restored(list(capture))) == expected != used


def test_a_map_that_is_read_to_its_end_makes_no_capture_void() -> None:
    one = filled(dict, state_capture.CLEARED_MAX + 1)
    write(one, *[("n", b"k%05d" % number, b"v" * 20, 0, 0) for number in range(9000)])
    capture = one.pieces()
    pieces: list[bytes] = []
    while not pieces or msgspec.msgpack.decode(pieces[-1])[0] != "n":
        pieces.append(next(capture))
    one.carry_out(Request(Op.CLEAR, "m", [3]), 2, None)
    assert not capture.is_void
    assert len(entries_of(pieces[1:] + list(capture))) == state_capture.CLEARED_MAX + 9001


def test_the_capture_of_an_earlier_state_goes_on_after_another_was_installed() -> None:
    one = filled(dict, 9000)
    capture: StateCapture = one.pieces()
    one.restore([])
    write(one, ("m", b"k00001", b"new", 0, 0))
    assert contents(restored(list(capture))) == contents(filled(dict, 9000))


@pytest.mark.parametrize("entries", KINDS)
def test_hash_words_are_part_of_a_state(entries: NewEntries) -> None:
    """Of some entries, as clients choose them by the keys that they send."""
    one = filled(entries, 6000)
    write(one, *[("m", b"k%05d" % number, b"w", 0, 7 + number) for number in range(0, 6000, 3)])
    assert contents(restored(list(one.pieces()), entries)) == contents(one)


@pytest.mark.parametrize("entries", KINDS)
def test_a_state_of_several_partitions_names_each(entries: NewEntries) -> None:
    one = StateMachine([2, 3], Settings(), entries)
    for partition in (2, 3):
        one.write([("m", b"of %d" % partition, b"v", 0, 0)], one.copies[partition], 1, None)
    other = StateMachine([2, 3], Settings(), entries)
    other.restore(list(one.pieces()))
    assert [dict(other.copies[partition].maps["m"].state.entries) for partition in (2, 3)] == [
        {b"of 2": b"v"},
        {b"of 3": b"v"},
    ]


@pytest.mark.parametrize("entries", KINDS)
def test_the_largest_map_that_is_kept_when_it_is_cleared(
    entries: NewEntries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_capture, "CLEARED_MAX", 3)
    for count in (3, 4):
        one = filled(entries, count)
        capture = one.pieces()
        one.carry_out(Request(Op.CLEAR, "m", [3]), 2, None)
        assert capture.is_void is (count == 4)


@pytest.mark.parametrize("entries", KINDS)
def test_nothing_is_kept_of_a_map_that_is_read_or_began_later(entries: NewEntries) -> None:
    one = filled(entries, 10)
    idle = FillMap(1, 1, 0, [b"idle", b"timed"], [b"v"] * 2, [0, 60_000], [60_000, 0])
    one.carry_out(Request(Op.FILL, "m", [3], value=encode_move(idle)), 1, None)
    write(one, *[("n", b"k%05d" % number, b"v" * 20, 0, 0) for number in range(9000)])
    capture, maps = one.pieces(), one.copies[3].maps
    capture.keep_idle(maps["m"].state)
    assert capture.kept == 1, "of the entries that end, one counts as used"
    while msgspec.msgpack.decode(next(capture))[0] != "n":
        pass
    assert capture.kept == 0
    write(one, ("later", b"k", b"v", 0, 0))
    capture.keep(maps["m"].state, b"k00001")
    for name in ("m", "later"):
        capture.keep_idle(maps[name].state)
    for name in ("m", "later"):
        one.carry_out(Request(Op.CLEAR, name, [3]), 2, None)
    assert (capture.kept, capture.is_void) == (0, False)


def test_a_closed_capture_keeps_nothing_and_has_no_further_pieces() -> None:
    one = filled(dict, 9000)
    capture = one.pieces()
    next(capture)
    write(one, ("m", b"k00001", b"new", 0, 0))
    capture.close()
    assert (capture.kept, list(capture), one._captures) == (0, [], [])


@pytest.mark.parametrize("entries", KINDS)
@given(
    damage=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
    which=st.integers(0, 1),
)
def test_damaged_pieces_end_in_no_other_error(
    entries: NewEntries, damage: list[tuple[int, int]], which: int
) -> None:
    source = machine(Settings(), entries)
    for number in range(3):
        put = Request(Op.PUT, "m", [3], b"k%d" % number, b"v" * 20, ttl_ms=1000)
        source.carry_out(put, 1, None)
    pieces = [bytearray(piece) for piece in source.pieces()]
    for at, byte in damage:
        pieces[which][at % len(pieces[which])] = byte
    staged = machine(Settings(), entries).staged()
    with suppress(ProtocolError):
        for piece in pieces:
            staged.add(bytes(piece))
