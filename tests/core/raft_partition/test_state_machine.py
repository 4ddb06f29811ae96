"""The state machine of a partition, and the pieces in which another replica gets its state."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.operations import Op, Request
from holdfast.core.raft_partition.state_machine import StateMachine

OPS = st.sampled_from(
    [Op.SET, Op.PUT, Op.PUT_IF_ABSENT, Op.REPLACE, Op.REMOVE, Op.DELETE, Op.SET_TTL, Op.CLEAR, Op.PUT_ALL]
)
REQUESTS = st.builds(
    lambda op, key, value, ttl, named, word: Request(
        op,
        "mn"[key % 2],
        [3],
        b"k%d" % key,
        value,
        items=[b"k%d" % key, value] if op is Op.PUT_ALL else [],
        ttl_ms=ttl,
        id=b"i%d" % named if named and op is not Op.CLEAR else b"",
        key_hash=word,
    ),
    OPS,
    st.integers(0, 5),
    st.binary(max_size=3),
    st.sampled_from([-1, 0, 3, 50]),
    st.integers(0, 4),
    st.sampled_from([0, 0, 7]),
)
STEPS = st.lists(st.tuples(st.integers(0, 30), REQUESTS, st.booleans()), max_size=40)


@given(STEPS, st.data())
def test_a_state_in_pieces_goes_on_as_the_one_that_it_was_made_of(
    steps: list[tuple[int, Request, bool]], data: st.DataObject
) -> None:
    one, other = StateMachine(3, 100), StateMachine(3, 100)
    moved = data.draw(st.integers(0, len(steps)), label="steps before the move")
    for at, (later_ms, each, sweep) in enumerate(steps):
        if at == moved:
            other.restore(list(one.pieces()))
        answers = []
        for state in (one, other):
            state.time_ms += later_ms
            answers.append(state.carry_out(each, None))
            if sweep:
                state.sweep(None)
        assert at < moved or answers[0] == answers[1]
    if moved < len(steps):
        assert list(one.pieces()) == list(other.pieces())


def test_pieces_keep_times_hashes_and_counters() -> None:
    one, other = StateMachine(3, 100), StateMachine(3, 100)
    one.time_ms = 1000
    one.write(("m", b"a", b"1", 50, 0), None)
    one.write(("m", b"b", b"2", 0, 7), None)
    one.write(("n", b"c", b"3", 0, 0), None)
    one.time_ms = 1020
    other.restore(list(one.pieces()))
    assert list(other.pieces()) == list(one.pieces())
    assert other.time_ms == 1020
    assert dict(other.maps["m"].state.hashes) == {b"b": 7}
    assert [(name, held.updates.lwm) for name, held in sorted(other.maps.items())] == [("m", 2), ("n", 1)]
    assert [state.look("m", b"a", 1049) for state in (one, other)] == [b"1", b"1"]
    assert [state.look("m", b"a", 1050) for state in (one, other)] == [None, None]
