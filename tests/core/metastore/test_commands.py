"""Bytes from other members: which of them are commands."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.metastore import commands, keyspace
from holdfast.core.metastore.commands import (
    DEPTH_MAX,
    KEY_BYTES_MAX,
    PARTS_MAX,
    VALUE_BYTES_MAX,
    WINDOW,
    Command,
    CompactCommand,
    InvokeCommand,
    MalformedCommand,
    Proposer,
    decode_command,
    encode_command,
)
from holdfast.core.metastore.invoke import (
    AllOf,
    Branch,
    Compare,
    Comparison,
    Condition,
    Exists,
    If,
    Leaf,
    PutKey,
    RemoveKey,
    Subject,
)
from holdfast.core.metastore.keyspace import Keyspace

ME = Proposer(b"a", 0)


def invoke(branch: Branch, number: int = 1, answered: int = 0) -> InvokeCommand:
    return InvokeCommand(ME, number, answered, 5, branch)


def nested(depth: int) -> Condition:
    condition: Condition = Exists(b"k")
    for _ in range(depth - 1):
        condition = AllOf((condition,))
    return condition


def raw(command: object, version: int = 1) -> bytes:
    return msgspec.msgpack.encode((version, command))


def test_commands_are_what_they_were() -> None:
    tree = If(nested(DEPTH_MAX - 1), Leaf((PutKey(b"k", b""), RemoveKey(b"l")), -3), Leaf())
    for command in (invoke(tree), CompactCommand(7)):
        assert decode_command(encode_command(command)) == command


NOT_ALLOWED: dict[str, Command] = {
    "deep": invoke(If(nested(DEPTH_MAX), Leaf(), Leaf())),
    "many parts": invoke(If(AllOf((Exists(b"k"),) * PARTS_MAX), Leaf(), Leaf())),
    "many changes": invoke(Leaf(tuple(RemoveKey(b"%d" % at) for at in range(PARTS_MAX)))),
    "twice": invoke(Leaf((PutKey(b"k", b"1"), RemoveKey(b"k")))),
    "no key": invoke(Leaf((RemoveKey(b""),))),
    "long key": invoke(If(Exists(b"k" * (KEY_BYTES_MAX + 1)), Leaf(), Leaf())),
    "long value": invoke(Leaf((PutKey(b"k", bytes(VALUE_BYTES_MAX + 1)),))),
    "long operand": invoke(
        If(Compare(b"k", Subject.VALUE, Comparison.EQUAL, bytes(VALUE_BYTES_MAX + 1)), Leaf(), Leaf())
    ),
    "revision 0": invoke(If(Compare(b"k", Subject.REVISION, Comparison.EQUAL, bytes(8)), Leaf(), Leaf())),
    "half a revision": invoke(If(Compare(b"k", Subject.REVISION, Comparison.EQUAL, b"1"), Leaf(), Leaf())),
    "large answer": invoke(Leaf(answer=1 << 60)),
    "answered before": invoke(Leaf(), number=3, answered=3),
    "too many under way": invoke(Leaf(), number=WINDOW + 1),
    "no proposer": InvokeCommand(Proposer(b"", 0), 1, 0, 5, Leaf()),
    "time": InvokeCommand(ME, 1, 0, -1, Leaf()),
    "compaction": CompactCommand(-1),
}


@pytest.mark.rule("metastore/M-1")
@pytest.mark.parametrize("what", NOT_ALLOWED)
def test_what_is_not_allowed_is_refused_on_both_sides(what: str) -> None:
    with pytest.raises(MalformedCommand):
        encode_command(NOT_ALLOWED[what])
    with pytest.raises(MalformedCommand):
        decode_command(raw(NOT_ALLOWED[what]))
    state = Keyspace()
    assert state.apply(raw(NOT_ALLOWED[what])) is None
    assert (state.applied, state.malformed, state.revision) == (1, 1, 0)


def test_what_is_just_allowed_is_taken() -> None:
    changes = tuple(RemoveKey(b"%d" % at) for at in range(PARTS_MAX - 1))
    for command in (
        invoke(Leaf(changes)),
        invoke(Leaf((PutKey(b"k" * KEY_BYTES_MAX, bytes(VALUE_BYTES_MAX)),))),
        invoke(Leaf(), number=WINDOW),
    ):
        assert decode_command(encode_command(command)) == command


@pytest.mark.rule("metastore/M-1")
def test_the_bounds_and_the_form_are_part_of_the_version() -> None:
    """Who has others than the others carries out what they refuse, or reads what they do not."""
    bounds = (KEY_BYTES_MAX, VALUE_BYTES_MAX, commands.COMMAND_BYTES_MAX, DEPTH_MAX, PARTS_MAX, WINDOW)
    assert bounds == (1024, 1 << 20, 4 << 20, 32, 50_000, 64)
    assert (commands.NAME_BYTES_MAX, commands.NUMBER_MAX, keyspace.PROPOSERS_MOST) == (64, 1 << 53, 256)
    tree = If(Exists(b"k"), Leaf((PutKey(b"k", b"v"), RemoveKey(b"l")), 2), Leaf())
    form = "920196 00 92c4016100 01 00 05 940192 00c4016b 930092 9300c4016bc40176 9201c4016c 02 93009000"
    assert encode_command(invoke(tree)) == bytes.fromhex(form)
    assert encode_command(CompactCommand(7)) == bytes.fromhex("9201920107")


@pytest.mark.rule("metastore/M-1")
def test_numbers_are_taken_up_to_their_bounds() -> None:
    most = commands.NUMBER_MAX
    last = Proposer(bytes(64), most)
    for command in (
        InvokeCommand(last, most, most - 1, most, Leaf(answer=-most)),
        InvokeCommand(ME, 1, 0, 0, Leaf(answer=most)),
        CompactCommand(most),
        CompactCommand(0),
    ):
        assert decode_command(encode_command(command)) == command
    for wrong in (
        InvokeCommand(Proposer(bytes(65), 0), 1, 0, 5, Leaf()),
        InvokeCommand(Proposer(b"a", most + 1), 1, 0, 5, Leaf()),
        InvokeCommand(Proposer(b"a", -1), 1, 0, 5, Leaf()),
        InvokeCommand(ME, most + 1, most, 5, Leaf()),
        InvokeCommand(ME, 1, -1, 5, Leaf()),
        InvokeCommand(ME, 1, 0, most + 1, Leaf()),
        invoke(Leaf(answer=most + 1)),
        CompactCommand(most + 1),
    ):
        with pytest.raises(MalformedCommand):
            encode_command(wrong)


@pytest.mark.rule("metastore/M-1")
def test_bytes_that_are_nested_without_end_are_refused_by_name() -> None:
    for data in (
        b"\x92\x01\x96\x00\x92\xc4\x01a\x00\x01\x00\x05" + b"\x94\x01\x92\x04\x91" * 100_000,
        b"\x92\x01\x96\x00\x92\xc4\x01a\x00\x01\x00\x05" + b"\x94\x01\x92\x00\xc4\x01k" * 100_000,
        b"\x91" * 1_000_000,
        b"\x92\x01\x96\x00\xdd\xff\xff\xff\xff",
        bytes(commands.COMMAND_BYTES_MAX + 1),
        b"",
    ):
        with pytest.raises(MalformedCommand):
            decode_command(data)


@pytest.mark.rule("metastore/M-1")
def test_a_command_has_one_form_as_bytes() -> None:
    """What a decoder passes over would be refused by whoever has little stack left, and by nobody else."""
    good = raw(CompactCommand(7))
    assert decode_command(good) == CompactCommand(7)
    more = b"\x92\x01\x93\x01\x07" + b"\x91" * 300 + b"\x00"
    assert msgspec.msgpack.decode(more, type=tuple[int, Command]) == (1, CompactCommand(7))
    for data in (more, b"\x92\x01\x92\x01\xcc\x07", good + b"\x00", raw(CompactCommand(7), version=2)):
        with pytest.raises(MalformedCommand):
            decode_command(data)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_commands_are_commands_or_refused(data: st.DataObject) -> None:
    good = bytearray(encode_command(invoke(If(nested(4), Leaf((PutKey(b"key", b"value"),), 1), Leaf()))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(good) - 1))
        good[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    state = Keyspace()
    state.apply(bytes(good))
    assert state.applied == 1
    try:
        decode_command(bytes(good))
    except MalformedCommand:
        assert state.malformed == 1
