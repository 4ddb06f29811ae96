"""Who waits for the disk: nothing of a journalled map is acknowledged before it is durable."""

from __future__ import annotations

import pytest
from tests.core.telling import Around, assigned, gone

from holdfast.config import MapSettings, PartitionSettings, PersistenceSettings, Settings
from holdfast.core.effects import Append, Checkpoint, Effect, Send
from holdfast.core.journal.log import Log
from holdfast.core.messages import (
    Fill,
    Filled,
    FillEntries,
    FillPlan,
    FillRefused,
    Replicate,
    Replicated,
    Section,
)
from holdfast.core.model.ids import GROUPS_FROM, MemberId
from holdfast.core.model.journal_entries import (
    Began,
    Dropped,
    GroupWrote,
    TableAssignments,
    Wrote,
    WrotePuts,
    seen,
)
from holdfast.core.model.levels import HIGHEST, LOWEST
from holdfast.core.model.notices import CheckpointEnded, FilesHeardOf, Notice, ViewInstalled
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record, pack_puts
from holdfast.core.model.sync_request import How
from holdfast.core.model.views import View
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.state_transfer.destination import Destination
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast_lab.sim.ablations.switching import ablated

ME, BEN = MemberId("me"), MemberId("ben")
SETTINGS = Settings(
    partitions=PartitionSettings(count=1),
    persistence=PersistenceSettings(directory="somewhere"),
    maps={
        "sync": MapSettings(backups=1, journal="sync"),
        "alone": MapSettings(backups=0, journal="sync"),
        "lazy": MapSettings(backups=1, journal="lazy"),
        "off": MapSettings(backups=1),
    },
)


class Side:
    """One member with a journal, primary or backup of the only partition."""

    def __init__(self, row: tuple[MemberId, ...]) -> None:
        self.out = Outbox(self)
        self.log = Log(self.out, on=True)
        self.rows = [Assignment(5, row)]
        self.around = Around()
        self.lane = Lane(ME, SETTINGS, self.out, self.log)
        self.lane.attach(self.rows)
        self.copies = LocalReplicas(ME, SETTINGS, self.out, self.rows, self.log)
        self.copy = self.copies.held[0] = PartitionCopy(0, 0)
        self.copy.term = 5
        self.destination = Destination(
            ME,
            self.out,
            self.rows,
            self.copies,
            self.log,
            membership=self.around,  # type: ignore[arg-type]
            table_replication=self.around,  # type: ignore[arg-type]
        )
        self.told: list[bool] = []

    def on_notice(self, notice: Notice) -> None:
        if isinstance(notice, CheckpointEnded):
            self.destination.on_checkpoint(notice)

    def write(self, name: str) -> list[Effect]:
        self.lane.retarget(self.copy)
        self.lane.set(self.copy, name, b"key", b"value", 0, 0, 0)
        self.lane.close_batch(self.told.append)
        return self.end()

    def end(self) -> list[Effect]:
        self.lane.flush()
        self.log.flush()
        return self.out.take()

    def replicate(self, name: str, counter: int, batch: int) -> list[Effect]:
        record = Record(name, counter, Change.SET, b"key", b"value")
        self.copies.on_replicate(BEN, Replicate([batch], [Section(0, 5, [record], 5)]))
        return self.end()


def appends(effects: list[Effect]) -> list[Append]:
    return [effect for effect in effects if isinstance(effect, Append)]


def acknowledged(effects: list[Effect]) -> list[int]:
    sent = [effect.message for effect in effects if isinstance(effect, Send)]
    return [number for one in sent if isinstance(one, Replicated) for number in one.batches]


# -- the primary


@pytest.mark.rule("primary_backup/P-4")
@pytest.mark.parametrize("disk_first", [True, False])
def test_a_write_waits_for_its_backup_and_for_the_disk(disk_first: bool) -> None:
    side = Side((ME, BEN))
    (append,) = appends(side.write("sync"))
    assert append.urgent
    (wrote,) = append.entries
    assert isinstance(wrote, Wrote | WrotePuts)
    assert (wrote.partition, wrote.term, [record.counter for record in wrote.records]) == (0, 5, [1])
    deeds = [
        lambda: side.log.on_durable(append.number),
        lambda: side.lane.on_replicated(BEN, Replicated([1], [0])),
    ]
    for deed in deeds if disk_first else reversed(deeds):
        assert side.told == []
        deed()
    assert side.told == [True]
    assert side.lane.waiting == 0


@ablated("durable-ack")
def test_without_that_rule_it_is_acknowledged_while_the_disk_has_nothing() -> None:
    side = Side((ME,))
    side.write("alone")
    assert side.told == [True]


def test_without_a_backup_it_waits_for_the_disk_alone() -> None:
    side = Side((ME,))
    (append,) = appends(side.write("alone"))
    assert side.told == []
    side.log.on_durable(append.number)
    assert side.told == [True]
    assert side.lane.waiting == 0


def test_a_lazy_map_is_written_down_and_not_waited_for() -> None:
    side = Side((ME, BEN))
    (append,) = appends(side.write("lazy"))
    assert not append.urgent
    side.lane.on_replicated(BEN, Replicated([1], [0]))
    assert side.told == [True]


def test_a_map_without_a_journal_leaves_no_trace() -> None:
    side = Side((ME, BEN))
    assert appends(side.write("off")) == []


def test_what_the_disk_has_is_not_waited_for_again_when_the_row_changes() -> None:
    side = Side((ME, BEN))
    (append,) = appends(side.write("sync"))
    side.log.on_durable(append.number)
    side.rows[0] = Assignment(6, (ME, MemberId("cal")))
    side.lane.retarget(side.copy)
    assert side.told == []
    side.lane.on_replicated(MemberId("cal"), Replicated([1], [0]))
    assert side.told == [True]


def test_a_change_of_the_row_does_not_make_up_for_the_disk() -> None:
    side = Side((ME, BEN))
    (append,) = appends(side.write("sync"))
    side.rows[0] = Assignment(6, (ME, None))
    side.lane.retarget(side.copy)
    assert side.told == []
    side.log.on_durable(append.number)
    assert side.told == [True]


# -- the backup


def test_a_backup_acknowledges_when_the_record_is_durable() -> None:
    side = Side((BEN, ME))
    effects = side.replicate("sync", 1, 7)
    (append,) = appends(effects)
    assert acknowledged(effects) == []
    side.log.on_durable(append.number)
    assert acknowledged(side.end()) == [7]


def test_a_record_that_comes_again_before_it_is_durable_is_not_acknowledged_sooner() -> None:
    side = Side((BEN, ME))
    (append,) = appends(side.replicate("sync", 1, 7))
    effects = side.replicate("sync", 1, 8)
    assert acknowledged(effects) == []
    assert appends(effects) == []
    side.log.on_durable(append.number)
    assert acknowledged(side.end()) == [7, 8]


@ablated("durable-ack")
def test_without_that_rule_a_backup_says_it_has_what_it_may_lose() -> None:
    side = Side((BEN, ME))
    assert acknowledged(side.replicate("sync", 1, 7)) == [7]


def test_a_lazy_record_is_acknowledged_at_once() -> None:
    side = Side((BEN, ME))
    assert acknowledged(side.replicate("lazy", 1, 7)) == [7]


# -- rows, and copies that are filled


def test_rows_of_one_step_are_one_entry_before_what_comes_after_them() -> None:
    out = Outbox()
    log = Log(out, on=True)
    log.on_assignment(assigned(0, Assignment(1, (ME,))))
    log.on_assignment(assigned(1, Assignment(1, (ME,))))
    log.note(Dropped(3))
    log.on_assignment(assigned(2, Assignment(1, (ME,))))
    log.flush()
    (append,) = appends(out.take())
    assert [type(entry).__name__ for entry in append.entries] == [
        "TableAssignments",
        "Dropped",
        "TableAssignments",
    ]
    first = append.entries[0]
    assert isinstance(first, TableAssignments)
    assert [partition for partition, _ in first.rows] == [0, 1]


def fill(side: Side, sequence: int, *, last: bool, entries: int = 0) -> list[Effect]:
    keys = [b"%d" % number for number in range(entries)]
    part = FillEntries("sync", entries, keys if not last else [], keys if not last else [])
    if last:
        part.lineage.append((4, 0))
    plans = [FillPlan("sync", How.FULL, entries)] if sequence == 1 and entries else []
    chunk = Fill(0, 5, 1, sequence, last, 0, True, 1, [part] if sequence and entries else [], plans=plans)
    side.destination.on_fill(BEN, chunk)
    return side.end()


def filled(effects: list[Effect]) -> list[object]:
    sent = [effect.message for effect in effects if isinstance(effect, Send)]
    return [message for message in sent if isinstance(message, Filled | FillRefused)]


def filled_whole() -> tuple[Side, list[Effect]]:
    side = Side((BEN,))
    del side.copies.held[0]
    fill(side, 0, last=False)
    fill(side, 1, last=False, entries=3)
    return side, fill(side, 2, last=True, entries=3)


@pytest.mark.rule("state_transfer/D-4")
def test_a_filled_copy_counts_when_its_checkpoint_is_durable() -> None:
    side, effects = filled_whole()
    checkpoints = [effect for effect in effects if isinstance(effect, Checkpoint)]
    assert [len(taken.snapshot.maps[0].keys) for taken in checkpoints] == [3]
    assert filled(effects) == []
    side.log.on_checkpoint(checkpoints[0].ticket, well=True)
    assert [type(answer) for answer in filled(side.end())] == [Filled]


@ablated("fill-durable")
def test_without_that_rule_the_master_may_commit_a_copy_that_a_power_cut_takes_away() -> None:
    _, effects = filled_whole()
    assert [type(answer) for answer in filled(effects)] == [Filled]


def test_a_filled_copy_for_which_there_is_no_room_is_refused() -> None:
    side = Side((BEN,))
    del side.copies.held[0]
    fill(side, 0, last=False)
    fill(side, 1, last=False, entries=3)
    (checkpoint,) = [e for e in fill(side, 2, last=True, entries=3) if isinstance(e, Checkpoint)]
    side.log.on_checkpoint(checkpoint.ticket, well=False)
    effects = side.end()
    (answer,) = filled(effects)
    assert isinstance(answer, FillRefused)
    assert "full" in answer.why
    assert not side.copies.staging, "no row changes because of this: nothing else would end it"
    assert [entry for append in appends(effects) for entry in append.entries] == [Dropped(0)]


def test_a_whole_copy_that_is_not_durable_goes_with_its_primary() -> None:
    """The primary has not heard of it, so no row can name it."""
    side = Side((BEN,))
    del side.copies.held[0]
    fill(side, 0, last=False)
    fill(side, 1, last=False, entries=3)
    (checkpoint,) = [e for e in fill(side, 2, last=True, entries=3) if isinstance(e, Checkpoint)]
    side.destination.on_view(gone(BEN))
    assert not side.copies.staging
    side.log.on_checkpoint(checkpoint.ticket, well=True)
    effects = side.end()
    assert filled(effects) == []
    assert [entry for append in appends(effects) for entry in append.entries] == [Dropped(0)]
    assert set(side.copies.leftovers.values()) == {0}


def test_a_disk_that_becomes_full_meanwhile_ends_what_was_half_filled() -> None:
    side = Side((BEN,))
    del side.copies.held[0]
    fill(side, 0, last=False)
    assert 0 in side.copies.staging
    side.around.intents.full.add(ME)
    (answer,) = filled(fill(side, 1, last=False, entries=3))
    assert isinstance(answer, FillRefused)
    assert not side.copies.staging


def test_a_whole_copy_outlives_a_full_disk() -> None:
    """The master may have been told of it: whatever comes again is refused, and the copy stays."""
    side = Side((BEN,))
    del side.copies.held[0]
    fill(side, 0, last=False)
    fill(side, 1, last=True)
    side.around.intents.full.add(ME)
    (answer,) = filled(fill(side, 1, last=True))
    assert isinstance(answer, FillRefused)
    assert side.copies.staging[0].durable


def test_an_empty_copy_that_was_filled_begins_anew_on_the_disk_too() -> None:
    """What the disk holds of the partition from before must not come back."""
    side = Side((BEN,))
    del side.copies.held[0]
    fill(side, 0, last=False)
    effects = fill(side, 1, last=True)
    assert [type(answer) for answer in filled(effects)] == [Filled]
    assert [entry for append in appends(effects) for entry in append.entries] == [Began(0, 0)]


@pytest.mark.parametrize("level", [LOWEST, HIGHEST])
@pytest.mark.parametrize("urgent", [[False, False], [False, True], [True, False]])
def test_packed_puts_are_written_in_the_form_of_the_level(level: int, urgent: list[bool]) -> None:
    """A group is urgent if a part of it is."""
    out = Outbox()
    out.level, out.epoch_ms = level, 1_700_000_000_000
    log = Log(out, on=True)
    puts = [pack_puts("m", start, [b"k"], [b"v"]) for start in range(2)]
    for start in range(2):
        log.stored([(3, 7, puts[start])], urgent=urgent[start])
    log.group_wrote(GROUPS_FROM, b"write")
    log.flush()
    wall_ms = 1_700_000_000_000
    expected = [
        WrotePuts(3, 7, one, wall_ms) if level == HIGHEST else Wrote(3, 7, one.records(), wall_ms)
        for one in puts
    ]
    assert out.take() == [Append(1, [*expected, GroupWrote(GROUPS_FROM, b"write")], any(urgent))]


def test_views_are_written_and_the_removal_of_this_member_is_not() -> None:
    out = Outbox()
    log = Log(out, on=True)
    view = View(7, "id", [])
    nobody: frozenset[MemberId] = frozenset()
    log.on_view(ViewInstalled(None, view, True, nobody, nobody))
    log.on_view(ViewInstalled(view, None, True, nobody, nobody))
    log.on_files(FilesHeardOf(view))
    log.flush()
    assert out.take() == [Append(1, [seen(view), seen(view)], False)]
