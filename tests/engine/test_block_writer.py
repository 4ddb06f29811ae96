"""What the block writer does when there is no room, or no segment yet."""

from __future__ import annotations

from tests.engine.lives import TERM, Life
from tests.engine.memory_disk import Platter

from holdfast.core.model.journal_entries import Seen, Wrote
from holdfast.core.model.records import Change, Record
from holdfast.core.model.views import View


def test_there_is_nothing_to_seal_before_the_first_segment() -> None:
    assert Life(Platter()).journal._blocks.seal() == []


def test_a_block_that_finds_no_room_leaves_no_trace() -> None:
    """The view of the block that was not written must not be in the next segment's preamble."""
    life = Life(Platter()).settle()
    life.begin(0)
    life.durably(life.put(0, "k", b"v"))
    life.settle()
    journal = life.journal
    writer, identity = journal._blocks, journal.identity
    before = (writer.last_lsn, writer.at, writer._preamble.entries(identity), writer._checkpoints.table(99))
    spare_bytes = journal._disk.spare_bytes
    large = Record("m", 2, Change.SET, b"k", bytes(2 * spare_bytes))
    assert writer.write([Seen(View(7, "cluster", [])), Wrote(1, TERM, [large])]) is None
    assert writer.missing_bytes > 2 * spare_bytes
    after = (writer.last_lsn, writer.at, writer._preamble.entries(identity), writer._checkpoints.table(99))
    assert after == before
