"""The vocabulary of the metastore, as it stands in logs, in files and on the wire."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.metastore.commands import CompactCommand, InvokeCommand, Proposer
from holdfast.core.metastore.invoke import (
    Absent,
    AllOf,
    AnyOf,
    Compare,
    Comparison,
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

K = b"k"
REVISION, EQUAL = Subject.REVISION, Comparison.EQUAL


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
