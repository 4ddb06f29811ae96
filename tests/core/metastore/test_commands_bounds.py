"""Bounds of commands: the last value that is taken, and the first that is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.metastore.naive import branches
from tests.core.metastore.test_commands import ME, invoke, nested, raw

from holdfast.core.metastore import commands
from holdfast.core.metastore.commands import (
    COMMAND_BYTES_MAX,
    DEPTH_MAX,
    KEY_BYTES_MAX,
    NUMBER_MAX,
    PARTS_MAX,
    VALUE_BYTES_MAX,
    WINDOW,
    CompactCommand,
    InvokeCommand,
    MalformedCommand,
    Proposer,
    command_problem,
    decode_command,
    encode_command,
)
from holdfast.core.metastore.invoke import (
    Absent,
    AllOf,
    AnyOf,
    Branch,
    Compare,
    Comparison,
    Exists,
    If,
    Leaf,
    PutKey,
    Removed,
    RemoveKey,
    Subject,
)


def sized(size: int) -> InvokeCommand:
    """A command of this many bytes."""
    puts = [PutKey(b"%d" % at, bytes(VALUE_BYTES_MAX)) for at in range(3)]
    empty = len(msgspec.msgpack.encode((1, invoke(Leaf((*puts, PutKey(b"z", bytes(70_000))))))))
    last = PutKey(b"z", bytes(70_000 + size - empty))
    return invoke(Leaf((*puts, last)))


@pytest.mark.rule("metastore/M-1")
def test_a_command_has_so_many_bytes_and_not_one_more() -> None:
    most = encode_command(sized(COMMAND_BYTES_MAX))
    assert len(most) == COMMAND_BYTES_MAX
    assert decode_command(most) == sized(COMMAND_BYTES_MAX)
    for attempt in (
        lambda: encode_command(sized(COMMAND_BYTES_MAX + 1)),
        lambda: decode_command(raw(sized(COMMAND_BYTES_MAX + 1))),
    ):
        with pytest.raises(MalformedCommand, match=f"{COMMAND_BYTES_MAX} bytes at most"):
            attempt()


def test_bytes_are_not_even_read_where_there_are_too_many() -> None:
    with pytest.raises(MalformedCommand, match="bytes at most"):
        decode_command(b"\xff" * (COMMAND_BYTES_MAX + 1))
    with pytest.raises(MalformedCommand, match="not a command"):
        decode_command(b"\xff" * COMMAND_BYTES_MAX)


@pytest.mark.rule("metastore/M-1")
@pytest.mark.parametrize("version", [0, 2, 3])
def test_another_version_is_refused_as_such(version: int) -> None:
    with pytest.raises(MalformedCommand, match=f"of version {version}"):
        decode_command(raw(CompactCommand(7), version=version))


K = b"k"
VALUE, REVISION, EQUAL = Subject.VALUE, Subject.REVISION, Comparison.EQUAL


@pytest.mark.rule("metastore/M-1")
@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        # depth
        (If(nested(DEPTH_MAX - 1), Leaf(), Leaf()), If(nested(DEPTH_MAX), Leaf(), Leaf())),
        (
            If(AnyOf((nested(DEPTH_MAX - 2),)), Leaf(), Leaf()),
            If(AnyOf((nested(DEPTH_MAX - 1),)), Leaf(), Leaf()),
        ),
        # parts: the If, AllOf, its conditions, and two leaves
        (
            If(AllOf((Exists(K),) * (PARTS_MAX - 4)), Leaf(), Leaf()),
            If(AllOf((Exists(K),) * (PARTS_MAX - 3)), Leaf(), Leaf()),
        ),
        (
            If(Exists(K), Leaf(tuple(RemoveKey(b"%d" % at) for at in range(PARTS_MAX - 4))), Leaf()),
            If(Exists(K), Leaf(tuple(RemoveKey(b"%d" % at) for at in range(PARTS_MAX - 3))), Leaf()),
        ),
        # keys
        (
            If(Absent(bytes(KEY_BYTES_MAX)), Leaf(), Leaf()),
            If(Absent(bytes(KEY_BYTES_MAX + 1)), Leaf(), Leaf()),
        ),
        (If(Removed(K), Leaf(), Leaf()), If(Removed(b""), Leaf(), Leaf())),
        (Leaf((RemoveKey(bytes(KEY_BYTES_MAX)),)), Leaf((RemoveKey(bytes(KEY_BYTES_MAX + 1)),))),
        (Leaf((PutKey(K, b""),)), Leaf((PutKey(b"", b""),))),
        (
            If(Compare(K, VALUE, EQUAL, b""), Leaf(), Leaf()),
            If(Compare(b"", VALUE, EQUAL, b""), Leaf(), Leaf()),
        ),
        # values
        (Leaf((PutKey(K, bytes(VALUE_BYTES_MAX)),)), Leaf((PutKey(K, bytes(VALUE_BYTES_MAX + 1)),))),
        (
            If(Compare(K, VALUE, EQUAL, bytes(VALUE_BYTES_MAX)), Leaf(), Leaf()),
            If(Compare(K, VALUE, EQUAL, bytes(VALUE_BYTES_MAX + 1)), Leaf(), Leaf()),
        ),
        (
            If(Compare(K, VALUE, EQUAL, bytes(8)), Leaf(), Leaf()),
            If(Compare(K, REVISION, EQUAL, bytes(8)), Leaf(), Leaf()),
        ),
        # revisions
        (
            If(Compare(K, REVISION, EQUAL, bytes(7) + b"\x01"), Leaf(), Leaf()),
            If(Compare(K, REVISION, EQUAL, bytes(6) + b"\x01"), Leaf(), Leaf()),
        ),
        (
            If(Compare(K, REVISION, EQUAL, b"\x01" + bytes(7)), Leaf(), Leaf()),
            If(Compare(K, REVISION, EQUAL, b"\x01" + bytes(8)), Leaf(), Leaf()),
        ),
        # one change of a key
        (Leaf((PutKey(b"a", b""), RemoveKey(b"b"))), Leaf((PutKey(b"a", b""), PutKey(b"a", b"")))),
        # answers
        (Leaf(answer=-NUMBER_MAX), Leaf(answer=-NUMBER_MAX - 1)),
        (Leaf(answer=NUMBER_MAX), Leaf(answer=NUMBER_MAX + 1)),
    ],
    ids=lambda branch: None,
)
def test_bounds_of_trees(allowed: Branch, refused: Branch) -> None:
    assert decode_command(encode_command(invoke(allowed))) == invoke(allowed)
    for branch in (refused, If(Exists(K), refused, Leaf()), If(Exists(K), Leaf(), refused)):
        with pytest.raises(MalformedCommand):
            encode_command(invoke(branch))


@pytest.mark.rule("metastore/M-1")
def test_what_waits_to_be_looked_at_counts_as_a_part() -> None:
    """So that a wide tree is refused before all of it was walked through."""
    wide = AllOf((Exists(b""),) * PARTS_MAX)
    assert "branches, conditions and changes" in command_problem(invoke(If(wide, Leaf(), Leaf())))


@pytest.mark.rule("metastore/M-1")
@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        (InvokeCommand(Proposer(b"", 0), 1, 0, 0, Leaf()), False),
        (InvokeCommand(Proposer(bytes(64), NUMBER_MAX), 1, 0, 0, Leaf()), True),
        (InvokeCommand(Proposer(bytes(65), 0), 1, 0, 0, Leaf()), False),
        (InvokeCommand(Proposer(b"a", NUMBER_MAX + 1), 1, 0, 0, Leaf()), False),
        (InvokeCommand(Proposer(b"a", -1), 1, 0, 0, Leaf()), False),
        (InvokeCommand(ME, 0, 0, 0, Leaf()), False),
        (InvokeCommand(ME, 1, 1, 0, Leaf()), False),
        (InvokeCommand(ME, 1, -1, 0, Leaf()), False),
        (InvokeCommand(ME, 5 + WINDOW, 5, 0, Leaf()), True),
        (InvokeCommand(ME, 6 + WINDOW, 5, 0, Leaf()), False),
        (InvokeCommand(ME, NUMBER_MAX, NUMBER_MAX - 1, NUMBER_MAX, Leaf()), True),
        (InvokeCommand(ME, NUMBER_MAX + 1, NUMBER_MAX, 0, Leaf()), False),
        (InvokeCommand(ME, 1, 0, -1, Leaf()), False),
        (InvokeCommand(ME, 1, 0, NUMBER_MAX + 1, Leaf()), False),
        (CompactCommand(-1), False),
        (CompactCommand(0), True),
        (CompactCommand(NUMBER_MAX), True),
        (CompactCommand(NUMBER_MAX + 1), False),
    ],
)
def test_bounds_of_numbers_and_names(command: commands.Command, allowed: bool) -> None:
    assert (command_problem(command) == "") is allowed


@pytest.mark.rule("metastore/M-1")
@given(branches, st.integers(1, 3))
def test_whatever_may_be_asked_travels_in_one_form(branch: Branch, number: int) -> None:
    command = invoke(branch, number)
    data = encode_command(command)
    assert decode_command(data) == command
    assert encode_command(decode_command(data)) == data
    with pytest.raises(MalformedCommand):
        decode_command(data + b"\xc0")
    with pytest.raises(MalformedCommand):
        decode_command(data[:-1])
