from __future__ import annotations

import copy
import random
from itertools import pairwise

import msgspec
import pytest
from tests.engine.lives import SMALL, TERM, Life, content, reopened, taken_of
from tests.engine.memory_disk import Platter

from holdfast.config.schema import PersistenceSettings
from holdfast.core.effects import Append, Checkpoint, ReadHistory
from holdfast.core.events import CheckpointDone, CheckpointWanted, DiskRoom, Durable, Event, HistoryRead
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.journal_entries import Began, Dropped, Seen, TableAssignments, Wrote
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.model.views import View
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.engine.ports import Create, Deed, Put, Remove, Rename, Sync, Write
from holdfast.engine.room_probe import PROBE
from holdfast.errors import ConfigError
from holdfast.wire.checkpoint import parse_name
from holdfast.wire.journal_blocks import HEADER_BYTES
from holdfast_lab.sim.ablations.switching import ablated

# -- group commit


@pytest.mark.rule("engine/W-2")
def test_what_is_urgent_is_durable_when_it_is_told_and_not_before() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.begin(3)
    number = life.put(3, "k", b"v")
    life.durably(number)
    platter.crash(random.Random(1))
    found = reopened(platter)
    assert content(found.copies[3]) == content(life.copies[3])
    assert found.uncertain == {}
    assert found.whole


@pytest.mark.rule("engine/W-1")
def test_what_comes_while_a_write_is_under_way_is_one_group() -> None:
    life = Life(Platter()).settle()
    life.begin(0)
    life.put(0, "a", b"1")
    life.disk.until(lambda: life.durable > 0)
    before = sum(isinstance(deed, Sync) for deed in life.disk.log)
    for index in range(100):
        life.put(0, f"k{index}", b"v")
    life.durably(life.number)
    assert sum(isinstance(deed, Sync) for deed in life.disk.log) - before <= 2


@pytest.mark.rule("engine/W-2")
def test_what_is_not_urgent_is_written_soon_and_synced_later() -> None:
    life = Life(Platter()).settle()
    life.begin(0)
    number = life.put(0, "a", b"1", urgent=False)
    life.disk.until(
        lambda: any(isinstance(d, Write) for d in life.disk.log[-1:]) and b"a" in life.disk.log[-1].data
    )  # type: ignore[union-attr]
    written_ns = life.disk.now_ns
    assert life.durable < number
    life.durably(number)
    assert life.disk.now_ns - written_ns <= 50_000_000


def test_the_last_block_is_proved_when_nothing_more_comes() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.begin(0)
    life.settle()
    life.durably(life.put(0, "a", b"1"))
    life.settle()
    segment = max(name for name in platter.files if name.endswith(".seg") and name[0] == "j")
    data = platter.files[segment]
    data[data.index(b"\xa1m", 200)] ^= 1
    platter.crash(random.Random(0))
    found = reopened(platter)
    assert found.damage
    assert not found.whole
    assert 0 in found.uncertain


def test_close_leaves_nothing_behind() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.begin(0)
    for index in range(50):
        life.put(0, f"k{index}", b"v" * 100, urgent=False)
    life.disk.run(100_000)
    life.journal.close()
    platter.crash(random.Random(3))
    found = reopened(platter)
    assert content(found.copies[0]) == content(life.copies[0])


# -- segments


@pytest.mark.rule("engine/W-4")
def test_old_segments_go_and_a_restart_needs_none_of_them() -> None:
    platter = Platter()
    life = Life(platter).settle()
    view = View(4, "c", [])
    life.append(Seen(view), TableAssignments([(0, Assignment(5, (MemberId("x"),)))]))
    for partition in range(4):
        life.begin(partition)
    for index in range(2000):
        life.durably(life.put(index % 4, f"k{index % 37}", b"v" * 1000))
    life.settle()
    assert sum(isinstance(deed, Remove) and deed.name.startswith("j") for deed in life.disk.log) > 10
    segments = [name for name in platter.files if name.startswith("j")]
    assert len(segments) * SMALL.segment_bytes < 3 * SMALL.checkpoint_bytes
    platter.crash(random.Random(5))
    found = reopened(platter)
    assert found.whole
    assert found.damage == []
    assert found.view == view
    assert found.rows[0].version == 5
    for partition in range(4):
        assert content(found.copies[partition]) == content(life.copies[partition])
    checkpoints = [parse_name(name) for name in platter.files if name.endswith(".parquet")]
    assert len(checkpoints) <= 8


@pytest.mark.parametrize("damaged", [[0], [0, HEADER_BYTES]], ids=["header", "header and first block"])
def test_the_last_start_that_can_be_read_stays_until_there_is_another_one(damaged: list[int]) -> None:
    platter = Platter()
    keeping = msgspec.structs.replace(SMALL, history_bytes=1 << 20)
    life = Life(platter, keeping).settle()
    life.begin(0)
    while sum(name.startswith("j") for name in platter.files) < 2:
        life.durably(life.put(0, "k", b"v" * 1000))
    life.settle()
    life.checkpoint(0)
    life.settle()
    newest = max(name for name in platter.files if name.startswith("j"))
    for place in damaged:
        platter.files[newest][place] ^= 1
    removed = 0
    for seed in range(60):
        draw = random.Random(seed)
        again = copy.deepcopy(platter)
        again.crash(draw)
        second = Life(again, draw=draw)
        second.answers_wanted = bool(seed % 2)
        synced = [deed.name for deed in first_deeds(second) if isinstance(deed, Sync)]
        for _ in range(draw.randrange(100)):
            second.disk.step()
        gone = [deed for deed in second.disk.log if isinstance(deed, Remove) and deed.name.startswith("j")]
        removed += len(gone)
        begun = [deed for deed in second.disk.log if isinstance(deed, Rename)]
        assert begun or not gone, "no other segment has begun"
        assert all(Sync(name) in second.disk.log for name in synced) or not gone
        again.crash(draw)
        found = reopened(again)
        assert content(found.copies[0]) == content(life.copies[0])
        assert bool(found.uncertain) <= (len(damaged) > 1)
    assert removed


def first_deeds(life: Life) -> list[Deed]:
    """What the journal has submitted when it was opened."""
    deeds, _ = life.disk.lines["journal"][0]
    return list(deeds)


def test_a_group_larger_than_a_segment_gets_one_of_its_own() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.begin(0)
    life.put(0, "small", b"1")
    number = life.put(0, "large", b"x" * 300_000)
    life.put(0, "after", b"2")
    life.durably(life.number)
    assert life.durable >= number
    platter.crash(random.Random(5))
    assert content(reopened(platter).copies[0]) == content(life.copies[0])


def test_a_segment_that_is_not_begun_after_all_makes_no_other_one_superfluous() -> None:
    """What the next segment would say of the checkpoints at its start counts when it has begun."""
    platter = Platter()
    life = Life(platter).settle()
    life.answers_wanted = False
    life.begin(0)
    life.durably(life.put(0, "a", b"1"))
    life.settle()
    life.disk.held.add("checkpoint")
    life.checkpoint(0)
    life.begin(1)
    while platter_segments(platter) == 1:
        life.durably(life.put(1, "k", b"v" * 9000))
    life.disk.held.clear()
    life.settle()
    life.checkpoint(1)
    life.settle()
    assert platter_segments(platter) == 2, "the first one has blocks after the checkpoint of partition 0"
    spares = sum(isinstance(deed, Create) for deed in life.disk.log)
    life.put(1, "larger than a segment", b"v" * 300_000)
    life.disk.until(lambda: bool(life.disk.lines["checkpoint"]))
    life.disk.held.add("journal")
    life.disk.run(SECOND)
    assert sum(isinstance(deed, Create) for deed in life.disk.log) > spares
    platter.crash(random.Random(5))
    found = reopened(platter)
    assert (found.whole, found.uncertain, found.damage) == (True, {}, [])


@pytest.mark.parametrize("before", ["nothing", "dropped", "gone"])
@pytest.mark.parametrize("records", [0, 1], ids=["", "and written to"])
def test_a_copy_that_is_written_out_while_a_segment_begins_is_there_afterwards(
    before: str, records: int
) -> None:
    """What has come from another member is in no block: in its checkpoint alone."""
    platter = Platter()
    life = Life(platter).settle()
    life.answers_wanted = False
    life.begin(1)
    if before != "nothing":
        life.begin(0)
        life.put(0, "old", b"1")
        life.checkpoint(0)
        life.settle()
        life.append(Dropped(0))
        if before == "gone":
            life.settle()
        else:
            life.disk.run(MILLISECOND)
    life.durably(life.put(1, "k", b"v"))
    copied = PartitionCopy(0, 0)
    held = copied.open("m")
    held.state.entries[b"filled"] = b"1"
    held.updates = UpdateCounter(40)
    held.lineage = [(TERM, 0)]
    life.copies[0] = copied
    life.disk.held.add("checkpoint")
    ticket = life.checkpoint(0)
    assert ticket is not None
    life.disk.run(MILLISECOND)
    for index in range(records):
        life.durably(life.put(0, f"new{index}", b"2"))
    before_it = platter_segments(platter)
    while platter_segments(platter) == before_it:
        life.durably(life.put(1, "k", b"v" * 9000))
    life.disk.held.clear()
    life.disk.until(lambda: CheckpointDone(ticket) in life.events)
    for again in (False, True):
        platter.crash(random.Random(5))
        second = Life(platter)
        assert content(second.recovered.copies[0]) == content(copied), again
        assert (second.recovered.uncertain, second.recovered.whole) == ({}, True)
        second.settle()


def platter_segments(platter: Platter) -> int:
    return sum(name.startswith("j") for name in platter.files)


def test_a_partition_that_nobody_writes_needs_no_new_checkpoint() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.begin(0)
    life.begin(1)
    life.put(0, "quiet", b"1")
    life.checkpoint(0)
    life.settle()
    for index in range(1500):
        life.durably(life.put(1, f"k{index % 7}", b"v" * 1000))
    life.settle()
    assert not any(isinstance(e, CheckpointWanted) and e.partitions == (0,) for e in life.events)
    assert platter_segments(platter) < 10, "nor does it keep what others have written"
    platter.crash(random.Random(5))
    found = reopened(platter)
    assert found.whole
    assert found.uncertain == {}
    assert content(found.copies[0]) == content(life.copies[0])


def test_a_dropped_partition_does_not_come_back() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.begin(0)
    life.put(0, "a", b"1")
    life.checkpoint(0)
    life.settle()
    life.append(Dropped(0))
    del life.copies[0]
    life.settle()
    assert not [name for name in platter.files if name.startswith("p00000")]
    life.begin(1)
    for index in range(600):
        life.durably(life.put(1, f"k{index % 7}", b"v" * 1000))
    platter.crash(random.Random(5))
    found = reopened(platter)
    assert sorted(found.copies) == [1]
    assert found.uncertain == {}


# -- checkpoints


@pytest.mark.rule("engine/W-5")
def test_a_checkpoint_is_of_one_moment_whatever_the_order_of_the_effects() -> None:
    """What is applied in the same step after it is not in it; the engine hears of it before."""
    platter = Platter()
    life = Life(platter).settle()
    life.begin(0)
    life.put(0, "a", b"1")
    taken = taken_of(life.copies[0])
    assert taken is not None
    after = life.number
    held = life.copies[0].maps["m"]
    record = Record("m", 2, Change.SET, b"b", b"2")
    held.apply(record, 0)
    life.number += 2
    life.journal.carry_out(Append(life.number, [Dropped(0), Began(0, 1)], True))
    life.journal.carry_out(Checkpoint(1, taken, after))
    life.journal.carry_out(Append(life.number - 1, [Wrote(0, TERM, [record])], True))
    life.durably(life.number)
    life.settle()
    platter.crash(random.Random(5))
    found = reopened(platter)
    assert found.copies[0].epoch == 1
    assert found.copies[0].maps == {}
    assert CheckpointDone(1) in life.events


def test_of_two_checkpoints_of_the_same_moment_the_later_counts() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.begin(0)
    life.durably(life.put(0, "a", b"1"))
    life.checkpoint(0)
    filled = PartitionCopy(0, 0)
    held = filled.open("m")
    held.state.entries[b"z"] = b"9"
    held.updates = UpdateCounter(40)
    held.lineage = [(9, 0)]
    life.copies[0] = filled
    life.checkpoint(0)
    life.settle()
    platter.crash(random.Random(5))
    assert content(reopened(platter).copies[0]) == content(filled)


def test_a_damaged_checkpoint_is_replaced_by_the_one_before_and_the_journal() -> None:
    platter = Platter()
    chosen = PersistenceSettings(directory="x", segment_bytes=65_536, checkpoint_bytes=2**30)
    life = Life(platter, chosen).settle()
    life.begin(0)
    for index in range(3):
        life.durably(life.put(0, f"k{index}", b"v"))
        life.checkpoint(0)
        life.settle()
    files = sorted(name for name in platter.files if name.endswith(".parquet"))
    assert len(files) == 2
    platter.files[files[-1]][100] ^= 1
    platter.crash(random.Random(5))
    found = reopened(platter)
    assert content(found.copies[0]) == content(life.copies[0])
    # Nobody can say whether the damaged one held something that was never in the journal.
    assert found.uncertain == {0: "its newest checkpoint is damaged"}
    assert len(found.damage) == 1
    platter.seen[files[0]][100] ^= 1
    found = reopened(platter)
    assert content(found.copies[0]) == content(life.copies[0]), "the journal goes back to the beginning"
    assert len(found.damage) == 2


def test_a_missing_checkpoint_is_noticed_until_there_is_a_newer_one() -> None:
    platter = Platter()
    chosen = PersistenceSettings(directory="x", segment_bytes=65_536, checkpoint_bytes=2**30)
    life = Life(platter, chosen).settle()
    life.begin(0)
    for index in range(3):
        life.durably(life.put(0, f"k{index}", b"v"))
        life.checkpoint(0)
        life.settle()
    files = sorted(name for name in platter.files if name.endswith(".parquet"))
    del platter.files[files[-1]]
    for _ in range(3):
        platter.crash(random.Random(5))
        again = Life(platter, chosen).settle()
        assert again.recovered.uncertain == {0: "its newest checkpoint is missing"}
    again.copies[0] = life.copies[0]
    again.checkpoint(0)
    again.settle()
    platter.crash(random.Random(5))
    assert reopened(platter).uncertain == {}


def test_what_no_checkpoint_and_no_journal_holds_any_more_is_uncertain() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.begin(0)
    life.begin(1)
    for index in range(1500):
        life.durably(life.put(index % 2, f"k{index % 7}", b"v" * 1000))
    life.settle()
    for name in platter.files:
        if name.startswith("p00000"):
            platter.files[name][100] ^= 1
    platter.crash(random.Random(5))
    again = Life(platter).settle()
    assert list(again.recovered.uncertain) == [0]
    assert not again.recovered.whole
    assert content(again.recovered.copies[1]) == content(life.copies[1])
    assert (1,) in [event.partitions for event in again.events if isinstance(event, CheckpointWanted)]


def test_checkpoints_are_asked_for_one_at_a_time_and_spread() -> None:
    life = Life(
        Platter(), PersistenceSettings(directory="x", segment_bytes=65_536, checkpoint_bytes=2**18)
    ).settle()
    for partition in range(16):
        life.begin(partition)
    asked: list[tuple[int, int]] = []
    for index in range(1500):
        life.durably(life.put(index % 16, f"k{index % 37}", b"v" * 1000))
        seen = sum(isinstance(e, CheckpointWanted) for e in life.events)
        if seen > len(asked):
            asked.append((index, seen))
    partitions = [e.partitions for e in life.events if isinstance(e, CheckpointWanted)]
    assert all(len(each) == 1 for each in partitions)
    assert set(partitions) == {(p,) for p in range(16)}
    # 1.5 MB of journal, 256 KiB a checkpoint: about six rounds.
    assert 4 * 16 <= len(partitions) <= 12 * 16
    steps = [later[0] - earlier[0] for earlier, later in pairwise(asked[32:])]
    assert max(steps) < 6 * (sum(steps) / len(steps))


# -- history


def test_history_is_what_was_written_in_its_order() -> None:
    platter = Platter()
    chosen = PersistenceSettings(directory="x", segment_bytes=65_536, checkpoint_bytes=262_144)
    life = Life(platter, chosen).settle()
    for partition in range(3):
        life.begin(partition)
    for index in range(900):
        name = "m" if index % 2 else "n"
        life.put(index % 3, f"k{index % 11}", b"%d" % index + b"v" * 500, name, term=TERM + index // 300)
        if index % 50 == 0:
            life.durably(life.number)
    life.settle()
    held = life.copies[1].maps["m"]
    read = life.history(1, 20, held.counter)
    assert read.records is not None
    assert [record.counter for _, record in read.records] == list(range(21, held.counter + 1))
    replayed = {record.key: record.value for _, record in read.records}
    assert replayed == {key: value for key, value in held.state.entries.items() if key in replayed}
    assert [term for term, _ in read.records] == sorted(term for term, _ in read.records)
    assert life.history(1, held.counter, held.counter).records == []
    some = life.history(1, 20, held.counter, bytes_max=5000).records
    assert some == read.records[: len(some or [])], "the oldest of them"
    assert 2 < len(some or []) < 10
    assert len(life.history(1, 20, held.counter, bytes_max=1).records or []) == 1
    assert life.history(1, 0, held.counter + 5).records is None
    # After a restart, also of segments that the restart itself did not need.
    life.journal.close()
    again = Life(platter, chosen).settle()
    assert again.history(1, 20, held.counter).records == read.records


def test_history_that_a_checkpoint_has_replaced_is_not_given_out() -> None:
    chosen = PersistenceSettings(directory="x", segment_bytes=65_536, checkpoint_bytes=262_144)
    life = Life(Platter(), chosen).settle()
    life.begin(0)
    for index in range(10):
        life.put(0, f"k{index}", b"old", term=3)
    filled = PartitionCopy(0, 0)
    held = filled.open("m")
    held.updates = UpdateCounter(9)
    held.lineage = [(3, 0), (5, 7)]
    life.copies[0] = filled
    life.settle()
    life.checkpoint(0)
    life.settle()
    life.put(0, "new", b"new", term=5)
    read = life.history(0, 9, 10)
    assert read.records is not None
    assert [record.value for _, record in read.records] == [b"new"]
    read = life.history(0, 7, 10)
    assert read.records is None
    assert read.since == 9


def test_history_goes_by_age_and_size_and_never_under_a_reader() -> None:
    chosen = PersistenceSettings(
        directory="x", segment_bytes=65_536, checkpoint_bytes=131_072, history_bytes=2**30, history_age_s=10
    )
    platter = Platter()
    life = Life(platter, chosen).settle()
    life.begin(0)
    for index in range(1000):
        life.durably(life.put(0, f"k{index % 5}", b"v" * 1000))
    life.settle()
    assert life.history(0, 0, 1000).records is not None
    life.disk.run(60_000_000_000)
    for index in range(400):
        life.durably(life.put(0, f"k{index % 5}", b"v" * 1000))
    life.settle()
    gone = life.history(0, 0, 1400)
    assert gone.records is None
    assert 0 < gone.since < 1300
    assert life.history(0, gone.since, 1400).records is not None


def test_readers_that_are_patient_let_others_go_first() -> None:
    life = Life(Platter()).settle()
    life.begin(0)
    for index in range(100):
        life.put(0, f"k{index}", b"v" * 100)
    life.settle()
    for ticket in (-1, -2, -3):
        life.journal.carry_out(ReadHistory(ticket, 0, "m", 0, 100, patient=True))
    life.journal.carry_out(ReadHistory(7, 0, "m", 0, 100))
    life.settle()
    answers = [event for event in life.events if isinstance(event, HistoryRead)]
    assert [answer.ticket for answer in answers] == [7, -1, -2, -3]
    assert all(len(answer.records or []) == 100 for answer in answers)


class Curious(Life):
    """Whenever it has read a part of its history it asks for another one."""

    def ask(self) -> None:
        upto = self.copies[0].open("m").counter
        self.tickets += 1
        question = ReadHistory(-self.tickets, 0, "m", max(0, upto - 3), upto, 1000, patient=True)
        # Not with the next group: then there would be moments without a question.
        self.journal._histories.ask(question, 0)

    def hear(self, event: Event) -> None:
        super().hear(event)
        if isinstance(event, HistoryRead):
            self.ask()


def test_old_segments_go_between_two_searches_though_there_is_always_another_one() -> None:
    counts: list[int] = []
    for readers in (0, 10):
        life = Curious(Platter()).settle()
        life.begin(0)
        life.durably(life.put(0, "first", b""))
        for _ in range(readers):
            life.ask()
        most = 0
        for index in range(1000):
            life.durably(life.put(0, f"k{index % 5}", b"v" * 1000))
            figures = life.journal.figures()["segments"]
            assert isinstance(figures, int)
            most = max(most, figures)
        counts.append(most)
    assert counts[0] < 10
    assert counts[1] <= counts[0] + 2


# -- when the disk fails


@pytest.mark.rule("engine/W-3")
def test_without_room_for_the_next_segment_the_member_is_told_and_loses_nothing() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.begin(0)
    life.durably(life.put(0, "a", b"1"))
    life.settle()
    life.disk.full = True
    life.answers_wanted = False
    for index in range(100):
        life.put(0, f"k{index}", b"v" * 1000)
    life.disk.run(200_000_000)
    assert DiskRoom(full=True) in life.events
    last = life.put(0, "more", b"v" * 65_000)
    life.put(0, "evenmore", b"v" * 65_000)
    life.settle()
    assert life.durable < life.number
    life.disk.full = False
    life.durably(life.number)
    assert life.durable > last
    life.disk.until(lambda: DiskRoom(full=False) in life.events)
    assert [e for e in life.events if isinstance(e, DiskRoom)] == [DiskRoom(full=True), DiskRoom(full=False)]
    platter.crash(random.Random(5))
    assert content(reopened(platter).copies[0]) == content(life.copies[0])


def test_a_segment_that_waits_for_its_name_is_not_reserved_anew() -> None:
    """After a full disk there is more than one that tries again: the second may find the spare one taken already."""
    platter = Platter()
    life = Life(platter).settle()
    life.begin(0)
    life.durably(life.put(0, "a", b"1"))
    life.settle()
    life.answers_wanted = False
    life.disk.full = True
    while not any(isinstance(deed, Rename) for deed in life.disk.log[-9:]):
        life.durably(life.put(0, "k", b"v" * 9000))
    for _ in range(3):
        life.disk.run(100 * MILLISECOND)
        life.durably(life.put(0, "k", b"v" * 9000))
    life.put(0, "waits", b"v" * 40_000)
    life.disk.run(500 * MILLISECOND)
    assert life.durable < life.number
    life.disk.full = False
    life.disk.held.add("journal")
    before = len(life.disk.log)
    life.disk.run(3 * SECOND)
    made = [deed for deed in life.disk.log[before:] if getattr(deed, "name", "") != PROBE]
    assert [type(deed) for deed in made] == [Remove, Create]
    assert any(isinstance(deed, Rename) for deed in life.disk.lines["journal"][0][0]), "it waits"
    life.disk.held.clear()
    life.durably(life.number)
    assert life.broken == []
    while sum(isinstance(deed, Rename) for deed in life.disk.log[before:]) < 3:
        life.durably(life.put(0, "k", b"v" * 9000))
    platter.crash(random.Random(5))
    assert content(reopened(platter).copies[0]) == content(life.copies[0])


def test_a_checkpoint_without_room_is_said_to_be_none() -> None:
    life = Life(Platter()).settle()
    life.begin(0)
    life.durably(life.put(0, "a", b"1"))
    life.settle()
    life.disk.full = True
    ticket = life.checkpoint(0)
    life.settle()
    assert ticket is not None
    assert CheckpointDone(ticket, well=False) in life.events
    life.disk.full = False
    ticket = life.checkpoint(0)
    assert ticket is not None
    life.disk.until(lambda: CheckpointDone(ticket) in life.events)


@pytest.mark.rule("engine/W-6")
@pytest.mark.parametrize("kind", [Sync, Write, Create, Put])
def test_a_failed_deed_ends_the_journal_and_is_never_tried_again(kind: type[Deed]) -> None:
    life = Life(Platter()).settle()
    life.begin(0)
    life.durably(life.put(0, "a", b"1"))
    life.settle()
    failed: list[Deed] = []

    def fails(deed: Deed) -> bool:
        if isinstance(deed, kind):
            failed.append(deed)
            return True
        return False

    life.disk.fails = fails
    durable = life.durable
    for index in range(100):
        life.put(0, f"k{index}", b"v" * 1000)
    life.checkpoint(0)
    life.settle()
    life.put(0, "later", b"1")
    life.settle()
    assert len(life.broken) == 1
    assert len(failed) == 1
    if kind in {Sync, Write}:
        assert life.durable == durable


def synced_after_a_failure(*, broken: bool) -> tuple[bool, bool]:
    """A sync fails once, while one write was written and another is to be: whether the second is said to be durable,
    and whether it is there when the power has failed. `broken`: whether that is the end of the journal.
    """
    platter = Platter()
    life = Life(platter).settle()
    life.begin(0)
    life.durably(life.put(0, "a", b"1"))
    life.settle()
    life.put(0, "early", b"2", urgent=False)
    life.disk.until(lambda: isinstance(life.disk.log[-1], Write) and b"early" in life.disk.log[-1].data)
    failures = iter([True])
    life.disk.fails = lambda deed: isinstance(deed, Sync) and next(failures, False)
    number = life.put(0, "late", b"3")
    life.settle()
    assert bool(life.broken) is broken
    platter.crash(random.Random(1))
    return life.durable >= number, b"late" in reopened(platter).copies[0].maps["m"].state.entries


def test_nothing_is_durable_after_a_sync_that_failed() -> None:
    assert synced_after_a_failure(broken=True) == (False, False)


@ablated("failed-sync-stops")
def test_without_that_rule_what_is_said_to_be_durable_is_lost() -> None:
    told, there = synced_after_a_failure(broken=False)
    assert told
    assert not there


@pytest.mark.rule("engine/W-8")
@pytest.mark.parametrize("seed", range(5))
def test_what_was_read_after_a_failed_sync_is_there_whatever_the_disk_has_of_it(seed: int) -> None:
    """The system shows what it never brought to the disk, and a second sync finds nothing to do."""
    platter = Platter()
    life = Life(platter).settle()
    life.begin(0)
    life.durably(life.put(0, "a", b"1"))
    life.settle()
    life.disk.fails = lambda deed: isinstance(deed, Sync)
    life.put(0, "shown", b"2" * 2000)
    life.settle()
    assert life.broken
    platter.crash(random.Random(seed), power=False)
    again = Life(platter).settle()
    assert b"shown" in again.recovered.copies[0].maps["m"].state.entries
    again.durably(again.put(0, "after", b"3"))
    again.settle()
    platter.crash(random.Random(seed))
    found = reopened(platter)
    assert not found.damage
    assert {b"a", b"shown", b"after"} <= found.copies[0].maps["m"].state.entries.keys()


def test_files_are_opened_where_the_disk_has_no_room_for_that() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.begin(0)
    life.durably(life.put(0, "a", b"1"))
    platter.crash(random.Random(1), power=False)
    again = Life(platter)
    again.disk.fits = {"identity.json"}
    again.disk.full = True
    again.disk.run(1_000_000_000)
    assert again.journal.ready


# -- whose files these are


def test_files_of_another_member_are_refused() -> None:
    platter = Platter()
    Life(platter).settle().journal.close()
    with pytest.raises(ConfigError, match=r"'one'.*'two'"):
        Life(platter, name="two")


def test_an_unknown_format_is_refused() -> None:
    platter = Platter()
    Life(platter).settle().journal.close()
    platter.seen["identity.json"] = bytearray(
        platter.seen["identity.json"].replace(b'"format":1', b'"format":2')
    )
    with pytest.raises(ConfigError, match="format 2"):
        Life(platter)


def test_files_without_an_identity_are_refused() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.journal.close()
    del platter.seen["identity.json"]
    with pytest.raises(ConfigError, match=r"no identity\.json"):
        Life(platter)


@pytest.mark.rule("membership/F-1")
def test_the_token_of_a_life_is_durable_before_the_journal_is_ready_and_stays_until_that_life_is_admitted() -> (
    None
):
    platter = Platter()
    before = ""
    for incarnation in range(1, 5):
        proofs = []
        for _ in range(3):
            life = Life(platter)
            ready: list[int] = []
            life.journal.when_ready(lambda ready=ready: ready.append(1))
            assert not ready
            life.disk.until(lambda ready=ready: bool(ready))
            life.begin(0)
            life.settle()
            assert all(event.reached == 0 for event in life.events if isinstance(event, Durable))
            platter.crash(random.Random(incarnation))
            assert life.recovered.incarnation == incarnation
            proofs.append(life.recovered.proof)
        assert proofs[0] == proofs[1] == proofs[2]
        assert proofs[0].before == before
        life = Life(platter).settle()
        life.journal.admitted("c-1", behind=False)
        life.begin(0)
        life.settle()
        assert max(event.reached for event in life.events if isinstance(event, Durable)) > proofs[0].reached
        platter.crash(random.Random(incarnation))
        before = proofs[0].token


def test_files_that_a_cluster_has_found_behind_say_so_until_it_is_forgiven() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.journal.admitted("c-1", behind=True)
    life.settle()
    platter.crash(random.Random(1))
    life = Life(platter).settle()
    assert life.recovered.behind
    life.journal.admitted("c-1", behind=False)
    life.settle()
    platter.crash(random.Random(1))
    life = Life(platter).settle()
    assert life.recovered.behind
    life.journal.forgive()
    life.settle()
    platter.crash(random.Random(1))
    assert not reopened(platter).behind


def test_a_loss_is_told_until_it_is_forgiven() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.begin(0)
    life.durably(life.put(0, "a", b"1"))
    life.settle()
    data = platter.seen["j000000000001.seg"]
    data[data.index(b"\xa1m", 200)] ^= 1
    for _ in range(3):
        again = Life(platter).settle()
        assert not again.recovered.whole
        again.journal.close()
    again = Life(platter).settle()
    again.journal.forgive()
    again.journal.close()
    assert Life(platter).recovered.whole


def test_the_cluster_is_remembered() -> None:
    platter = Platter()
    life = Life(platter).settle()
    assert life.recovered.cluster_id == ""
    life.journal.admitted("c-1", behind=False)
    life.begin(0)
    life.durably(life.put(0, "a", b"1"))
    platter.crash(random.Random(1))
    assert reopened(platter).cluster_id == "c-1"
