"""What a transaction sees of its own writes: against the same operations on a dictionary."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.operations import COLLECTION_STEPS, Op, Request, Value
from holdfast.core.model.transactions import TransactionalWrite
from holdfast.core.transactions.own_writes import KEYED, WHOLE_IN, change_in, whole_in

VALUES = st.sampled_from([b"", b"a", b"b"])
KEYS = st.sampled_from([b"k1", b"k2", b"k3", b"k4"])


def on_a_map(held: dict[bytes, bytes], request: Request) -> Value:
    """What Hazelcast's map answers, and does."""
    op, key, value = request.op, request.key, request.value
    old = held.get(key)
    match op:
        case Op.GET:
            return old
        case Op.CONTAINS_KEY:
            return key in held
        case Op.PUT:
            held[key] = value
            return old
        case Op.SET:
            held[key] = value
            return None
        case Op.TRY_PUT:
            held[key] = value
            return True
        case Op.PUT_IF_ABSENT:
            held.setdefault(key, value)
            return old
        case Op.REPLACE:
            if key in held:
                held[key] = value
            return old
        case Op.REPLACE_IF_SAME:
            if old != request.expected:
                return False
            held[key] = value
            return True
        case Op.REMOVE:
            return held.pop(key, None)
        case Op.DELETE | Op.TRY_REMOVE:
            return held.pop(key, None) is not None
        case _:
            assert op is Op.REMOVE_IF_SAME
            if old != request.expected:
                return False
            del held[key]
            return True


@pytest.mark.parametrize("op", sorted(KEYED))
def test_an_operation_answers_and_changes_what_it_does_on_a_map(op: Op) -> None:
    values = (b"", b"a", b"b")
    for present, value, expected in itertools.product((None, *values), values, values):
        compare(op, present, value, expected)


def compare(op: Op, present: bytes | None, value: bytes, expected: bytes) -> None:
    request = Request(op, "m", [0], b"k", value, expected, key_hash=7)
    held = {b"k": present} if present is not None else {}
    before = dict(held)
    wanted = on_a_map(held, request)
    answer, write = change_in(request, present, (11, 12))
    assert answer == wanted
    assert type(answer) is type(wanted)
    if write is None:
        assert held == before
    elif write.value is None:
        assert write == TransactionalWrite("m", b"k", None)
        assert (present is None, held) == (False, {})
    else:
        assert write == TransactionalWrite("m", b"k", value, 11, 12, 7)
        assert held == {b"k": value}


@pytest.mark.parametrize("op", [op for op in Op if op not in KEYED | COLLECTION_STEPS])
def test_what_is_no_operation_on_an_entry_is_refused(op: Op) -> None:
    with pytest.raises(ValueError, match=f"{op.name} is not done in a transaction"):
        change_in(Request(op, "m", [0], b"k"), None, (0, 0))


def test_all_keyed_and_whole_operations_are_there() -> None:
    assert {
        Op.GET, Op.CONTAINS_KEY, Op.PUT, Op.SET, Op.TRY_PUT, Op.PUT_IF_ABSENT, Op.REPLACE, Op.REPLACE_IF_SAME,
        Op.REMOVE, Op.DELETE, Op.TRY_REMOVE, Op.REMOVE_IF_SAME,
    } == KEYED  # fmt: skip
    assert {Op.SIZE, Op.IS_EMPTY, Op.CONTAINS_VALUE, Op.KEYS, Op.VALUES, Op.ENTRIES} == WHOLE_IN


@given(
    st.dictionaries(KEYS, VALUES, max_size=4),
    st.lists(st.tuples(KEYS, st.none() | VALUES), max_size=4),
    st.sampled_from(sorted(WHOLE_IN)),
    VALUES,
)
def test_a_whole_map_is_seen_with_the_writes_on_top(
    held: dict[bytes, bytes], writes: list[tuple[bytes, bytes | None]], op: Op, value: bytes
) -> None:
    seen = dict(held)
    for key, written in writes:
        if written is None:
            seen.pop(key, None)
        else:
            seen[key] = written
    pairs = op in (Op.VALUES, Op.ENTRIES, Op.CONTAINS_VALUE)
    found: list[bytes] = [part for pair in held.items() for part in pair] if pairs else list(held)
    own = [TransactionalWrite("m", key, written) for key, written in writes]
    answer = whole_in(Request(op, "m", [0], value=value), found, own)  # type: ignore[arg-type]
    if op is Op.SIZE:
        assert answer == len(seen)
    elif op is Op.IS_EMPTY:
        assert answer is (not seen)
    elif op is Op.CONTAINS_VALUE:
        assert answer is (value in seen.values())
    elif op is Op.KEYS:
        assert sorted(answer) == sorted(seen)  # type: ignore[arg-type]
    elif op is Op.VALUES:
        assert sorted(answer) == sorted(seen.values())  # type: ignore[arg-type]
    else:
        assert isinstance(answer, list)
        assert dict(zip(answer[::2], answer[1::2], strict=True)) == seen
        assert len(answer) == 2 * len(seen)


@pytest.mark.parametrize("op", sorted(WHOLE_IN))
def test_an_empty_map_may_answer_nothing_at_all(op: Op) -> None:
    own = [TransactionalWrite("m", b"k", b"v")]
    answers = {
        Op.SIZE: 1, Op.IS_EMPTY: False, Op.CONTAINS_VALUE: True,
        Op.KEYS: [b"k"], Op.VALUES: [b"v"], Op.ENTRIES: [b"k", b"v"],
    }  # fmt: skip
    assert whole_in(Request(op, "m", [0], value=b"v"), None, own) == answers[op]


def test_keys_without_values_are_no_entries() -> None:
    with pytest.raises(ValueError, match="shorter"):
        whole_in(Request(Op.ENTRIES, "m", [0]), [b"k"], [])
