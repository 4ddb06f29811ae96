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
    decode_command,
    encode_command,
    why_refused,
)
from holdfast.core.metastore.invoke import (
    Absent,
    AllOf,
    AnyOf,
    Branch,
    Compare,
    Comparison,
    Condition,
    Exists,
    If,
    Invoked,
    Leaf,
    MetastoreEntry,
    PutKey,
    Removed,
    RemoveKey,
    Subject,
    revision_bytes,
    unchanged,
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


def conditions(*parts: Condition) -> InvokeCommand:
    return invoke(If(AllOf(parts), Leaf(), Leaf()))


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
    """Wherever in the tree: in the root, or in one of two branches."""
    for place in (
        lambda one: one,
        lambda one: If(Exists(K), one, Leaf()),
        lambda one: If(Exists(K), Leaf(), one),
    ):
        if place is not None and (allowed == place(allowed) or not _is_wide(allowed)):
            assert why_refused(invoke(place(allowed))) == ""
        assert why_refused(invoke(place(refused)))
    assert decode_command(encode_command(invoke(allowed))) == invoke(allowed)
    with pytest.raises(MalformedCommand):
        encode_command(invoke(refused))


def _is_wide(branch: Branch) -> bool:
    """Whether it is as large as it can be, so that nothing may be around it."""
    text = len(msgspec.msgpack.encode(branch))
    return text > 2 * VALUE_BYTES_MAX or _parts_or_depth(branch)


def _parts_or_depth(branch: Branch) -> bool:
    try:
        return why_refused(invoke(If(Exists(K), branch, Leaf()))) != ""
    except RecursionError:
        return True


@pytest.mark.rule("metastore/M-1")
def test_what_waits_to_be_looked_at_counts_as_a_part() -> None:
    """So that a wide tree is refused before all of it was walked through."""
    wide = AllOf((Exists(b""),) * PARTS_MAX)
    assert "branches, conditions and changes" in why_refused(invoke(If(wide, Leaf(), Leaf())))


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
    assert (why_refused(command) == "") is allowed


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


# -- the vocabulary


def test_numbers_of_comparisons_and_subjects_stay_what_they_are() -> None:
    """They stand in logs and on the wire."""
    assert [(one.name, int(one)) for one in Comparison] == [
        ("EQUAL", 0),
        ("NOT_EQUAL", 1),
        ("LESS", 2),
        ("LESS_OR_EQUAL", 3),
        ("GREATER", 4),
        ("GREATER_OR_EQUAL", 5),
    ]
    assert [(one.name, int(one)) for one in Subject] == [("VALUE", 0), ("REVISION", 1)]


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (Exists(K), "9200c4016b"),
        (Absent(K), "9201c4016b"),
        (Removed(K), "9202c4016b"),
        (Compare(K, REVISION, Comparison.LESS, b"1"), "9503c4016b0102c40131"),
        (AllOf((Exists(K),)), "9204919200c4016b"),
        (AnyOf((Exists(K),)), "9205919200c4016b"),
        (PutKey(K, b"v"), "9300c4016bc40176"),
        (RemoveKey(K), "9201c4016b"),
        (Leaf(), "93009000"),
        (Leaf((RemoveKey(K),), 5), "9300919201c4016b05"),
        (If(Exists(K), Leaf(), Leaf()), "94019200c4016b9300900093009000"),
        (Invoked(3, 4), "920304"),
        (MetastoreEntry(K), "93c4016bc000"),
        (MetastoreEntry(K, b"v", 7), "93c4016bc4017607"),
        (Proposer(b"a", 2), "92c4016102"),
        (InvokeCommand(Proposer(b"a", 2), 1, 0, 5, Leaf()), "960092c40161020100059300" + "9000"),
        (CompactCommand(7), "920107"),
    ],
)
def test_the_form_of_everything_is_what_other_releases_read(value: msgspec.Struct, form: str) -> None:
    data = msgspec.msgpack.encode(value)
    assert data.hex() == form
    assert msgspec.msgpack.decode(data, type=type(value)) == value
    for field in value.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(value, field, getattr(value, field))


def test_an_entry_exists_when_it_has_a_value_however_empty() -> None:
    assert MetastoreEntry(K, b"", 3).exists
    assert not MetastoreEntry(K, None, 3).exists
    assert MetastoreEntry(K) == MetastoreEntry(K, None, 0)


def test_a_revision_is_eight_bytes_the_big_end_first() -> None:
    assert revision_bytes(1) == bytes(7) + b"\x01"
    assert revision_bytes(258) == bytes(6) + b"\x01\x02"
    with pytest.raises(AssertionError):
        revision_bytes(0)


def test_unchanged_is_asked_by_the_revision_of_what_exists() -> None:
    assert unchanged(MetastoreEntry(K, b"", 3)) == Compare(K, REVISION, EQUAL, revision_bytes(3))
    for gone in (MetastoreEntry(K), MetastoreEntry(K, None, 9)):
        assert unchanged(gone) == Absent(K)
