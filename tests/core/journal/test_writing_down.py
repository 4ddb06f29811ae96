"""What a step writes down leaves as one group, and who waits for it is told in order."""

from __future__ import annotations

import pytest
from tests.core.telling import assigned

from holdfast.core.effects import Append, Checkpoint, Note
from holdfast.core.journal.log import Log
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.journal_entries import Began, Dropped, Entry, Snapshot, TableAssignments, Wrote
from holdfast.core.model.notices import CheckpointEnded, Notice
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.outbox import Outbox

RECORD = Record("m", 1, Change.SET, b"key", b"value")
SNAPSHOT = Snapshot(0, 4, [])


class Writing:
    def __init__(self, *, on: bool = True) -> None:
        self.out = Outbox(self)
        self.log = Log(self.out, on=on)
        self.told: list[object] = []

    def on_notice(self, notice: Notice) -> None:
        assert isinstance(notice, CheckpointEnded)
        self.told.append((notice.ticket, notice.well))

    def wrote(self, *, urgent: bool = False) -> None:
        self.log.wrote(0, 7, [RECORD], urgent=urgent)

    def wait(self, name: object) -> None:
        self.log.when_durable(lambda: self.told.append(name))

    def groups(self) -> list[tuple[int, bool]]:
        """Number, and whether it is urgent, of each group that leaves with this step."""
        self.log.flush()
        return [(one.number, one.urgent) for one in self.out.take() if isinstance(one, Append)]

    def entries(self) -> list[Entry]:
        self.log.flush()
        return [entry for one in self.out.take() if isinstance(one, Append) for entry in one.entries]


def test_a_group_is_urgent_when_somebody_waits_for_anything_in_it() -> None:
    writing = Writing()
    assert writing.groups() == []
    writing.wrote()
    assert writing.groups() == [(1, False)]
    writing.wrote(urgent=True)
    writing.wrote()
    assert writing.groups() == [(2, True)]
    writing.wrote()
    writing.wrote(urgent=True)
    assert writing.groups() == [(3, True)]
    writing.wrote()
    assert writing.groups() == [(4, False)], "the next one is not"
    writing.wrote()
    writing.wait("one")
    assert writing.groups() == [(5, True)]


def test_a_record_is_written_with_its_term_and_the_time() -> None:
    writing = Writing()
    writing.out.epoch_ms, writing.out.now_ns = 1000, 5 * MILLISECOND
    writing.wrote()
    assert writing.entries() == [Wrote(0, 7, [RECORD], 1005)]


def test_rows_of_one_step_are_one_entry_unless_something_else_is_between() -> None:
    writing = Writing()
    row = Assignment(1)
    writing.log.on_assignment(assigned(0, row))
    writing.log.on_assignment(assigned(1, row))
    writing.log.note(Dropped(3))
    writing.log.on_assignment(assigned(2, row))
    assert writing.entries() == [
        TableAssignments([(0, row), (1, row)]),
        Dropped(3),
        TableAssignments([(2, row)]),
    ]
    writing.log.on_assignment(assigned(0, row))
    assert writing.entries() == [TableAssignments([(0, row)])]


@pytest.mark.rule("journal/J-3")
def test_without_a_journal_nothing_is_written_and_nobody_waits() -> None:
    writing = Writing(on=False)
    writing.log.on_assignment(assigned(0, Assignment(1)))
    writing.log.note(Began(0, 1))
    writing.wait("one")
    assert (writing.entries(), writing.told) == ([], ["one"])


@pytest.mark.rule("journal/J-2")
def test_who_waits_is_told_when_all_that_was_written_until_then_is_durable() -> None:
    writing = Writing()
    writing.wait("before anything")
    assert writing.told == ["before anything"]
    writing.told.clear()
    writing.wrote()
    writing.wait("first")
    writing.log.flush()
    writing.wait("first, too")
    writing.wrote()
    writing.wait("second")
    writing.log.flush()
    assert (writing.told, writing.log.leftovers["waits for the disk"]) == ([], 3)
    writing.log.on_durable(1)
    assert writing.told == ["first", "first, too"]
    writing.log.on_durable(1)
    assert len(writing.told) == 2
    writing.log.on_durable(2)
    assert writing.told == ["first", "first, too", "second"]
    writing.log.on_durable(1)
    writing.wait("late")
    assert writing.told[-1] == "late", "what is durable stays durable"
    assert sum(writing.log.leftovers.values()) == 0


@pytest.mark.rule("journal/J-1")
def test_what_was_written_before_a_checkpoint_leaves_before_it() -> None:
    writing = Writing()
    writing.wrote()
    writing.log.checkpoint(SNAPSHOT)
    writing.wrote()
    writing.log.checkpoint(SNAPSHOT)
    kinds = [
        (type(one), one.number if isinstance(one, Append) else one.ticket) for one in writing.out.effects
    ]  # type: ignore[union-attr]
    assert kinds == [(Append, 1), (Checkpoint, 1), (Append, 2), (Checkpoint, 2)]
    checkpoints = [one for one in writing.out.take() if isinstance(one, Checkpoint)]
    assert [(one.snapshot, one.after) for one in checkpoints] == [(SNAPSHOT, 1), (SNAPSHOT, 2)]
    assert writing.log.leftovers["checkpoints"] == 2
    writing.log.on_checkpoint(2, well=True)
    assert (writing.told, writing.out.take()) == ([(2, True)], [])
    writing.log.on_checkpoint(1, well=False)
    assert writing.told == [(2, True), (1, False)]
    assert writing.out.take() == [Note("no disk space for a checkpoint", {}, "warning")]
    writing.log.on_checkpoint(1, well=True)
    assert writing.told == [(2, True), (1, False)], "nobody waits for it any more"
    assert sum(writing.log.leftovers.values()) == 0


def test_what_is_left_to_write_is_told() -> None:
    writing = Writing()
    writing.wrote()
    assert writing.log.leftovers == {"entries not written": 1, "waits for the disk": 0, "checkpoints": 0}
