"""The state machine of a partition, and the pieces in which another replica gets its state."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import MapSettings, Settings
from holdfast.core.model.map_moves import COUNTERS, FillMap, decode_move_answer, encode_move
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.records import Change
from holdfast.core.model.zone_batches import ZoneWrite
from holdfast.core.operations.move_steps import NOT_FORGOTTEN
from holdfast.core.raft_partition.state_machine import StateMachine
from holdfast.core.store.entry_mapping import NewEntries

OPS = st.sampled_from(
    [
        Op.SET,
        Op.PUT,
        Op.PUT_IF_ABSENT,
        Op.REPLACE,
        Op.REMOVE,
        Op.DELETE,
        Op.SET_TTL,
        Op.CLEAR,
        Op.PUT_ALL,
        Op.GET,
        Op.GET_ALL,
    ]
)
REQUESTS = st.builds(
    lambda op, key, value, ttl, idle, named, word: Request(
        op,
        "mn"[key % 2],
        [3],
        b"k%d" % key,
        value,
        items=[b"k%d" % key, value] if op is Op.PUT_ALL else [b"k%d" % key] if op is Op.GET_ALL else [],
        ttl_ms=ttl,
        max_idle_ms=idle,
        id=b"i%d" % named if named and op is not Op.CLEAR else b"",
        key_hash=word,
    ),
    OPS,
    st.integers(0, 5),
    st.binary(max_size=3),
    st.sampled_from([-1, 0, 3, 50]),
    st.sampled_from([-1, 0, 4, 60]),
    st.integers(0, 4),
    st.sampled_from([0, 0, 7]),
)
STEPS = st.lists(st.tuples(st.integers(0, 30), REQUESTS, st.booleans()), max_size=40)


TERMS = st.lists(st.integers(0, 2), min_size=40, max_size=40)
SETTINGS = Settings(maps={"default": MapSettings(), "n": MapSettings(changes_bytes=4096)})


def machine(settings: Settings = SETTINGS, entries: NewEntries = dict) -> StateMachine:
    made = StateMachine([3], settings, entries)
    made.counted = True
    return made


def write(state: StateMachine, *writes: ZoneWrite, term: int = 1) -> list[bytes | None]:
    return state.write(list(writes), state.copies[3], term, None)


def points(state: StateMachine) -> list[tuple[str, int, list[tuple[int, int]]]]:
    """Counter and lineage of each map."""
    return sorted((held.name, held.counter, held.proven_lineage()) for held in state.copies[3])


def contents(
    state: StateMachine,
) -> dict[str, tuple[dict[bytes, bytes], dict[bytes, tuple[int, ...]], dict[bytes, int]]]:
    """Entries, their endings, and hash words of each map."""
    return {
        held.name: (
            dict(held.state.entries),
            {
                key: (one.ttl_ms, one.stored_ns, one.max_idle_ms, one.accessed_ns if one.max_idle_ms else 0)
                for key, one in held.state.expiries.items()
            },
            held.state.hashes,
        )
        for held in state.copies[3].maps.values()
    }


@pytest.mark.rule("raft_partition/Z-6")
@given(STEPS, TERMS, st.data())
def test_a_state_in_pieces_goes_on_as_the_one_that_it_was_made_of(
    steps: list[tuple[int, Request, bool]], later_terms: list[int], data: st.DataObject
) -> None:
    one, other = machine(), machine(Settings(), plain_table())
    moved = data.draw(st.integers(0, len(steps)), label="steps before the move")
    counted = data.draw(st.integers(0, len(steps)), label="steps before updates have terms")
    one.counted = other.counted = False
    term = 1
    for at, (later_ms, each, sweep) in enumerate(steps):
        if at == moved:
            other.restore(list(one.pieces()))
        term += later_terms[at]
        answers = []
        for state in (one, other):
            state.counted = state.counted or at >= counted
            state.time_ms += later_ms
            answers.append(state.carry_out(each, term, None))
            if sweep:
                state.sweep(term, None)
        assert at < moved or answers[0] == answers[1]
    if moved < len(steps):
        assert points(one) == points(other)
        assert next(iter(one.pieces())) == next(iter(other.pieces()))
        assert contents(one) == contents(other)


def plain_table() -> NewEntries:
    """The compact table, where there is compiled code."""
    try:
        from holdfast.core.store.entry_table import EntryTable
    except ImportError:
        return dict
    return EntryTable


def test_pieces_keep_times_hashes_and_counters() -> None:
    one, other = machine(), machine()
    one.time_ms = 1000
    write(one, ("m", b"a", b"1", 50, 0), ("m", b"b", b"2", 0, 7))
    write(one, ("n", b"c", b"3", 0, 0), term=4)
    write(one, ("m", b"b", b"4", 0, 7), term=6)
    one.time_ms = 1020
    other.restore(list(one.pieces()))
    assert list(other.pieces()) == list(one.pieces())
    assert other.time_ms == 1020
    assert dict(other.copies[3].maps["m"].state.hashes) == {b"b": 7}
    assert points(other) == [("m", 3, [(1, 0), (6, 2)]), ("n", 1, [(4, 0)])]
    assert [state.look(3, "m", b"a", 1049) for state in (one, other)] == [b"1", b"1"]
    assert [state.look(3, "m", b"a", 1050) for state in (one, other)] == [None, None]


@pytest.mark.rule("raft_partition/Z-9")
def test_a_logged_use_covers_a_fourth_of_the_idle_time() -> None:
    state = machine()
    get = Request(Op.GET, "m", [3], b"a")
    state.time_ms = 1000
    state.carry_out(Request(Op.SET, "m", [3], b"a", b"1", max_idle_ms=100), 1, None)
    assert [state.must_log(get, at) for at in (1000, 1025, 1026)] == [False, False, True]
    assert [state.look(3, "m", b"a", at) for at in (1124, 1125)] == [b"1", None]
    state.time_ms = 1100
    assert state.carry_out(get, 1, None) == b"1"
    assert [state.must_log(get, at) for at in (1125, 1126)] == [False, True]
    assert not state.must_log(Request(Op.SIZE, "m", [3]), 1126)
    assert state.must_log(Request(Op.GET_ALL, "m", [3], items=[b"x", b"a"]), 1126)
    state.carry_out(Request(Op.SET_TTL, "m", [3], b"a", ttl_ms=50_000), 1, None)
    assert [state.look(3, "m", b"a", at) for at in (1224, 1225)] == [b"1", None]
    state.time_ms = 1224
    state.sweep(1, None)
    assert state.copies[3].maps["m"].state.entries
    state.time_ms = 1225
    state.sweep(1, None)
    assert not state.copies[3].maps["m"].state.entries
    assert not state.must_log(get, 1300)


class OldHead(msgspec.Struct, frozen=True, array_like=True):
    """The first piece as builds before feature level 5 know it."""

    time_ms: int
    requests: bytes
    counters: list[tuple[str, int]]


@pytest.mark.rule("raft_partition/Z-6")
def test_an_older_build_and_this_one_read_each_others_pieces() -> None:
    one, other = StateMachine([3], SETTINGS), machine()
    write(one, ("m", b"a", b"1", 0, 0), term=7)
    head, *entries = one.pieces()
    old = msgspec.msgpack.decode(head, type=OldHead)
    assert old.counters == [("m", 1)]
    other.restore([msgspec.msgpack.encode(old), *entries])
    assert points(other) == [("m", 1, [])]
    assert not other.counted
    for state in (one, other):
        state.counted = True
        write(state, ("m", b"a", b"2", 0, 0), term=9)
    assert points(one) == points(other) == [("m", 2, [(9, 1)])]


@pytest.mark.rule("raft_partition/R-3")
def test_pieces_of_several_client_partitions_go_back_to_their_own() -> None:
    one, other = StateMachine([1, 4], SETTINGS), StateMachine([1, 4], SETTINGS)
    one.counted = True
    one.time_ms = 1000
    for partition, term in ((1, 7), (4, 9)):
        one.write([("m", b"k%d" % partition, b"v", 50, 0)], one.copies[partition], term, None)
    one.carry_out(Request(Op.SET, "n", [4], b"k", b"v", id=b"0123456789abcdef"), 9, None)
    other.restore(list(one.pieces()))
    assert (other.time_ms, other.counted) == (1000, True)
    for partition in (1, 4):
        mine, theirs = one.copies[partition], other.copies[partition]
        assert theirs.counters() == mine.counters()
        assert {n: dict(h.state.entries) for n, h in theirs.maps.items()} == {
            n: dict(h.state.entries) for n, h in mine.maps.items()
        }
        assert theirs.requests.encode() == mine.requests.encode()
    assert list(other.copies[4].maps) == ["m", "n"]
    other.restore([])
    assert not any(copy.maps for copy in other.copies.values())


@pytest.mark.rule("raft_partition/Z-6")
def test_a_destroyed_map_begins_again_above_its_last_update() -> None:
    state = machine()
    write(state, ("m", b"a", b"1", 0, 0), ("m", b"b", b"1", 0, 0))
    state.carry_out(Request(Op.DESTROY, "m", [3]), 2, None)
    assert points(state) == []
    other = machine()
    other.restore(list(state.pieces()))
    for each in (state, other):
        write(each, ("m", b"a", b"1", 0, 0), term=3)
    assert points(state) == points(other) == [("m", 4, [(3, 3)])]
    old = StateMachine([3], SETTINGS)
    write(old, ("m", b"a", b"1", 0, 0), ("m", b"b", b"1", 0, 0))
    old.carry_out(Request(Op.DESTROY, "m", [3]), 2, None)
    write(old, ("m", b"a", b"1", 0, 0))
    assert points(old) == [("m", 1, [])], "as older builds count it"


def test_a_map_with_a_change_stream_keeps_its_last_updates() -> None:
    state = machine()
    state.time_ms = 77
    write(state, ("n", b"a", b"1", 5, 0), ("n", b"a", b"2", 0, 0))
    state.time_ms = 99
    state.carry_out(Request(Op.REMOVE, "n", [3], b"a"), 4, None)
    held = state.copies[3].maps["n"]
    assert held.tail is not None
    told = [
        (term, record.counter, record.change, record.value, record.old, record.time_ms)
        for term, record in held.tail.since(0)
    ]
    assert told == [
        (1, 1, Change.SET, b"1", None, 77),
        (1, 2, Change.SET, b"2", b"1", 77),
        (4, 3, Change.REMOVE, b"", b"2", 99),
    ]
    write(state, ("m", b"a", b"1", 0, 0))
    assert state.copies[3].maps["m"].tail is None
    other = machine()
    other.restore(list(state.pieces()))
    write(other, ("n", b"b", b"1", 0, 0), term=4)
    tail = other.copies[3].maps["n"].tail
    assert tail is not None and (tail.start, tail.end) == (3, 4), "a snapshot has no earlier updates"


def test_observers_of_a_map_hear_of_writes_of_the_log() -> None:
    state = machine(entries=plain_table())
    write(state, ("m", b"a", b"1", 0, 0), ("m", b"b", b"1", 0, 0))
    held = state.copies[3].maps["m"]
    before = held.state.digests().copy()
    write(state, ("m", b"a", b"2", 0, 0), ("m", b"c", b"3", 0, 0), ("m", b"b", None, 0, 0))
    assert held.state.digests() == held.state.range_digests() != before


@pytest.mark.rule("model/M-3")
@pytest.mark.parametrize("emptied", [False, True])
def test_a_map_that_was_here_before_is_forgotten_before_it_moves_here_again(*, emptied: bool) -> None:
    state = machine()
    write(state, ("n", b"a", b"old", 0, 0))
    if emptied:
        write(state, ("n", b"a", None, 0, 0))
    fill = FillMap(1, 1, 0, [b"k"], [b"moved"], above=2 * COUNTERS, forgets=True)
    request = Request(Op.FILL, "n", [3], value=encode_move(fill))
    refused = decode_move_answer(state.carry_out(request, 1, None))  # type: ignore[arg-type]
    assert refused.refused == NOT_FORGOTTEN
    assert "n" not in state.copies[3].maps
    filled = decode_move_answer(state.carry_out(request, 1, None))  # type: ignore[arg-type]
    assert not filled.refused
    held = state.copies[3].maps["n"]
    assert held.state.entries == {b"k": b"moved"}
    assert held.counter > 2 * COUNTERS


@pytest.mark.rule("raft_partition/Z-11")
def test_a_fill_of_an_older_build_lets_no_replica_forget_what_was_here_before() -> None:
    """Replicas of that build do not forget it either: with the next fill, the others would have other entries."""
    state = machine()
    write(state, ("n", b"a", b"old", 0, 0))
    request = Request(
        Op.FILL, "n", [3], value=encode_move(FillMap(1, 1, 0, [b"k"], [b"moved"], above=2 * COUNTERS))
    )
    for _ in range(2):
        refused = decode_move_answer(state.carry_out(request, 1, None))  # type: ignore[arg-type]
        assert refused.refused == NOT_FORGOTTEN
    assert (state.copies[3].maps["n"].state.entries, state.copies[3].maps["n"].counter) == ({}, 2)
