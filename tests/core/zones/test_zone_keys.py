"""Which entries of a read guard the write that follows from it (zones/A-6)."""

from __future__ import annotations

import pytest

from holdfast.core.metastore.invoke import MetastoreEntry
from holdfast.core.zones.zone_keys import KeysRead


def read() -> KeysRead:
    return KeysRead([MetastoreEntry(key, b"value", 3) for key in (b"a", b"b", b"c")], 7)


@pytest.mark.rule("zones/A-6")
def test_looked_up_entries_are_used_in_their_order_also_missing_ones() -> None:
    looked = read()
    assert looked.used == []
    for key in (b"b", b"missing", b"a", b"b"):
        looked.entry(key)
    assert looked.used == [b"b", b"missing", b"a"]


def test_a_read_without_a_revision_has_an_unknown_one() -> None:
    assert (KeysRead(()).revision, read().revision) == (0, 7)


@pytest.mark.rule("zones/A-6")
def test_the_same_entries_can_be_read_again_and_used_together() -> None:
    whole = read()
    whole.entry(b"a")
    parts = [whole.again(), whole.again()]
    assert [(part.revision, part.used) for part in parts] == [(7, [])] * 2
    assert parts[0].entry(b"b") == MetastoreEntry(b"b", b"value", 3)
    parts[1].entry(b"c")
    assert whole.used == [b"a"]
    whole.use_all(parts)
    assert whole.used == [b"a", b"b", b"c"]
