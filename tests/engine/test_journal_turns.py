"""When the journal writes, syncs, proves and asks; what it says of itself; and that it ends once."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import msgspec
import pytest
from tests.engine.lives import SMALL, Life, content, reopened
from tests.engine.memory_disk import Platter

from holdfast.core.effects import ReadHistory
from holdfast.core.events import CheckpointDone, CheckpointWanted, DiskRoom, Durable, HistoryRead
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.journal_entries import Dropped, Seen
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.model.views import View
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.engine.ports import Create, Deed, Put, Remove, Rename, Sync, Write
from holdfast.wire.checkpoint import parse_name


def deeds(life: Life, kind: type[Deed]) -> list[Deed]:
    return [deed for deed in life.disk.log if isinstance(deed, kind)]


def resting(partition: int = 0) -> Life:
    """A life in which one partition has begun and everything is proved."""
    life = Life(Platter()).settle()
    life.begin(partition)
    life.durably(life.put(partition, "first", b"1"))
    life.settle()
    life.disk.log.clear()
    life.events.clear()
    return life


# -- ready


@pytest.mark.rule("membership/F-1")
def test_nothing_is_done_under_a_token_that_is_not_durable() -> None:
    life = Life(Platter())
    told: list[int] = []
    assert not life.journal.ready
    life.journal.when_ready(lambda: told.append(1))
    life.begin(0)
    life.put(0, "k", b"v")
    assert life.disk.log == []
    life.disk.held.add("journal")
    life.disk.run(MILLISECOND)
    assert told == []
    life.disk.held.clear()
    life.disk.until(lambda: life.journal.ready)
    assert len(deeds(life, Put)) == 1
    assert deeds(life, Write) == []
    assert told == [1]
    life.journal.when_ready(lambda: told.append(2))
    assert told == [1], "never before the call returns"
    begun_ns = life.disk.now_ns
    life.disk.until(lambda: told == [1, 2])
    assert life.disk.now_ns == begun_ns
    life.settle()
    assert life.durable == life.number


def test_how_far_it_is_counts_once_a_cluster_has_admitted_this_life() -> None:
    life = resting()
    life.durably(life.put(0, "a", b"1"))
    life.journal.admitted("cluster", behind=False)
    life.settle()
    assert {event.reached for event in life.events if isinstance(event, Durable)} == {0}
    life.events.clear()
    life.durably(life.put(0, "b", b"1"))
    (reached,) = [event.reached for event in life.events if isinstance(event, Durable)]
    assert reached > 0
    life.settle()
    life.events.clear()
    life.durably(life.append(Seen(View(1, "cluster", []))))
    assert [event.reached for event in life.events] == [reached], "that tells of no partition"
    life.durably(life.put(0, "c", b"1"))
    assert life.events[-1].reached > reached  # type: ignore[union-attr]


def test_an_admission_is_written_once() -> None:
    life = resting()
    for _ in range(2):
        life.journal.admitted("cluster", behind=True)
        life.settle()
    assert len(deeds(life, Put)) == 1
    identity = life.journal.identity
    assert (identity.cluster_id, identity.behind, identity.incarnation) == ("cluster", True, 1)
    life.journal.forgive()
    life.settle()
    assert len(deeds(life, Put)) == 2
    assert not life.journal.identity.behind
    life.journal.forgive()
    life.settle()
    assert len(deeds(life, Put)) == 2, "there is nothing to forgive"
    before = life.journal.identity.proof.before
    life.journal.admitted("another", behind=False)
    life.settle()
    assert len(deeds(life, Put)) == 3
    assert life.journal.identity.proof.before == before != ""


def test_nothing_that_was_written_tells_of_a_partition_before_the_first_does() -> None:
    life = Life(Platter()).settle()
    life.journal.admitted("cluster", behind=False)
    life.settle()
    life.durably(life.append(Seen(View(1, "cluster", []))))
    assert [event.reached for event in life.events if isinstance(event, Durable)] == [0]


def test_no_checkpoint_is_written_under_a_token_that_is_not_durable() -> None:
    life = resting()
    life.journal.close()
    again = Life(life.disk.platter)
    again.disk.held.add("journal")
    assert again.checkpoint(0) is not None
    again.disk.run(MILLISECOND)
    assert deeds(again, Put) == []
    again.disk.held.clear()
    again.settle()
    assert CheckpointDone(1) in again.events


def test_what_was_read_is_synced_before_anything_is_built_on_it() -> None:
    """A process may end while the host goes on: then what it has not synced is read all the same."""
    life = resting()
    life.put(0, "read", b"v" * 5000, urgent=False)
    life.disk.until(lambda: bool(deeds(life, Write)))
    platter = life.disk.platter
    for seed in range(6):
        lost = copy.deepcopy(platter)
        lost.crash(random.Random(seed), power=False)
        second = Life(lost)
        second.disk.until(lambda second=second: second.journal.ready)
        lost.crash(random.Random(seed))
        assert content(reopened(lost).copies[0]) == content(life.copies[0])


def test_the_first_block_is_written_at_once_and_proves_what_was_read() -> None:
    life = Life(Platter())
    assert life.journal.figures()["journal_bytes"] == 0
    life.disk.run(MILLISECOND)
    assert [type(deed) for deed in life.disk.log if not isinstance(deed, Remove | Create)] == [
        Put,
        Rename,
        Write,
        Sync,
        Write,
        Sync,
    ]


def test_what_is_asked_before_the_first_block_is_answered_after_it() -> None:
    life = Life(Platter())
    life.begin(0)
    for key in "abc":
        life.put(0, key, b"1")
    life.journal.carry_out(ReadHistory(1, 0, "m", 0, 3))
    life.disk.until(lambda: life.journal.ready)
    life.disk.held.add("journal")
    life.disk.run(SECOND)
    assert life.events == []
    life.disk.held.clear()
    life.settle()
    (answer,) = [event for event in life.events if isinstance(event, HistoryRead)]
    assert [record.key for _, record in answer.records or []] == [b"a", b"b", b"c"]
    assert life.journal.doubts == []


def test_a_checkpoint_of_what_is_written_first_waits_until_that_is_durable() -> None:
    life = Life(Platter())
    life.begin(0)
    life.put(0, "a", b"1")
    life.disk.until(lambda: life.journal.ready)
    life.disk.log.clear()
    life.disk.held.add("journal")
    life.disk.run(MILLISECOND)
    life.checkpoint(0)
    life.disk.run(SECOND)
    assert deeds(life, Put) == []
    life.disk.held.clear()
    life.settle()
    assert CheckpointDone(1) in life.events


def test_a_checkpoint_of_before_the_first_block_is_written() -> None:
    life = Life(Platter())
    copied = PartitionCopy(0, 0)
    held = copied.open("m")
    held.state.entries[b"filled"] = b"1"
    held.updates = UpdateCounter(3)
    held.lineage = [(5, 0)]
    life.copies[0] = copied
    ticket = life.checkpoint(0)
    assert ticket is not None
    life.settle()
    assert CheckpointDone(ticket) in life.events
    life.disk.platter.crash(random.Random(0))
    assert content(reopened(life.disk.platter).copies[0]) == content(copied)


def test_what_the_journal_says_itself_makes_nothing_durable_that_is_still_to_come() -> None:
    life = resting()
    life.journal.close()
    again = Life(life.disk.platter).settle()
    assert again.checkpoint(0) is not None
    again.settle()
    assert CheckpointDone(1) in again.events
    assert [event for event in again.events if isinstance(event, Durable)] == []


# -- when


def test_what_is_not_urgent_waits_two_milliseconds_for_more() -> None:
    life = resting()
    begun_ns = life.disk.now_ns
    for key in ("a", "b"):
        life.put(0, key, b"1", urgent=False)
    life.disk.until(lambda: bool(deeds(life, Write)))
    assert life.disk.now_ns - begun_ns == 2 * MILLISECOND
    assert len(deeds(life, Write)) == 1
    life.settle()
    life.disk.log.clear()
    begun_ns = life.disk.now_ns
    life.put(0, "c", b"1")
    life.disk.until(lambda: bool(deeds(life, Sync)))
    assert life.disk.now_ns == begun_ns, "what is urgent does not"


def test_what_comes_during_a_wait_or_a_write_asks_for_no_turn_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life = resting()
    turns = 0
    schedule = life.disk.after

    def after(delay_ns: int, deed: Callable[[], None]) -> None:
        nonlocal turns
        turns += not delay_ns
        schedule(delay_ns, deed)

    monkeypatch.setattr(life.disk, "after", after)
    life.put(0, "a", b"1", urgent=False)
    life.disk.run(MILLISECOND)
    assert turns == 1
    life.put(0, "b", b"1", urgent=False)
    assert turns == 1, "it is gathered with the first"
    life.disk.held.add("journal")
    life.put(0, "c", b"1")
    assert turns == 2, "an urgent group does not wait"
    life.disk.run(MILLISECOND // 2)
    life.put(0, "d", b"1")
    assert turns == 2, "the end of the write takes it along"
    life.disk.held.clear()
    life.durably(life.number)
    assert life.durable == life.number


def test_what_is_written_is_synced_within_its_interval_and_not_again() -> None:
    life = resting()
    for count in (1, 2):
        begun_ns = life.disk.now_ns
        number = life.put(0, "a", b"1", urgent=False)
        life.disk.until(lambda count=count: len(deeds(life, Write)) == count)
        assert life.disk.now_ns - begun_ns == 2 * MILLISECOND
        life.durably(number)
        assert life.disk.now_ns - begun_ns == (2 + SMALL.sync_interval_ms) * MILLISECOND
        assert len(deeds(life, Sync)) == count


def after(life: Life, begun_ns: int, milliseconds: int) -> None:
    """Let time pass until then."""
    life.disk.run(begun_ns + milliseconds * MILLISECOND - life.disk.now_ns)


def durable_ms(life: Life, number: int, begun_ns: int) -> float:
    life.durably(number)
    return (life.disk.now_ns - begun_ns) / MILLISECOND


def test_what_waits_to_be_written_waits_two_milliseconds_each_time() -> None:
    life = resting()
    begun_ns = life.disk.now_ns
    life.put(0, "a", b"1", urgent=False)
    after(life, begun_ns, 1)
    life.put(0, "b", b"1", urgent=False)
    after(life, begun_ns, 2)
    life.disk.run(MILLISECOND // 2)
    assert len(deeds(life, Write)) == 1
    life.put(0, "c", b"1", urgent=False)
    life.disk.until(lambda: len(deeds(life, Write)) == 2)
    assert life.disk.now_ns - begun_ns == 4.5 * MILLISECOND


def test_what_waits_goes_along_with_a_sync() -> None:
    life = resting()
    begun_ns = life.disk.now_ns
    life.put(0, "a", b"1", urgent=False)
    after(life, begun_ns, 51)
    number = life.put(0, "b", b"1", urgent=False)
    assert durable_ms(life, number, begun_ns) == 52
    assert len(deeds(life, Sync)) == 1


def test_there_is_one_sync_in_an_interval() -> None:
    life = resting()
    begun_ns = life.disk.now_ns
    life.put(0, "a", b"1", urgent=False)
    after(life, begun_ns, 30)
    number = life.put(0, "b", b"1", urgent=False)
    assert durable_ms(life, number, begun_ns) == 52
    after(life, begun_ns, 60)
    number = life.put(0, "c", b"1", urgent=False)
    assert durable_ms(life, number, begun_ns) == 62 + SMALL.sync_interval_ms


def test_what_is_durable_already_is_not_synced_again_and_hurries_nothing() -> None:
    life = resting()
    begun_ns = life.disk.now_ns
    life.put(0, "a", b"1", urgent=False)
    after(life, begun_ns, 20)
    life.durably(life.put(0, "b", b"1"))
    after(life, begun_ns, 51)
    number = life.put(0, "c", b"1", urgent=False)
    assert durable_ms(life, number, begun_ns) == 53 + SMALL.sync_interval_ms
    assert len(deeds(life, Sync)) == 2


def test_a_sync_that_comes_due_during_another_one_is_not_made() -> None:
    life = resting()
    begun_ns = life.disk.now_ns
    life.put(0, "a", b"1", urgent=False)
    after(life, begun_ns, 51)
    life.disk.held.add("journal")
    life.put(0, "b", b"1")
    after(life, begun_ns, 60)
    life.disk.held.clear()
    after(life, begun_ns, 100)
    assert len(deeds(life, Sync)) == 1


def test_what_comes_during_a_sync_is_one_group() -> None:
    life = resting()
    begun_ns = life.disk.now_ns
    life.put(0, "a", b"1", urgent=False)
    after(life, begun_ns, 51)
    life.disk.held.add("journal")
    after(life, begun_ns, 53)
    for key in ("b", "c"):
        life.put(0, key, b"1")
        life.disk.run(MILLISECOND)
    life.disk.held.clear()
    life.durably(life.number)
    assert len(deeds(life, Write)) == 2


def test_a_question_does_not_wait_for_more() -> None:
    life = resting()
    begun_ns = life.disk.now_ns
    for key in ("a", "b"):
        life.put(0, key, b"1", urgent=False)
    assert len(life.history(0, 1, 3).records or []) == 2
    assert life.disk.now_ns == begun_ns


def test_what_was_not_synced_is_not_proved_before_its_time() -> None:
    life = Life(Platter(), msgspec.structs.replace(SMALL, sync_interval_ms=1000)).settle()
    life.begin(0)
    life.durably(life.put(0, "first", b"1"))
    life.settle()
    life.disk.log.clear()
    begun_ns = life.disk.now_ns
    number = life.put(0, "a", b"1", urgent=False)
    assert durable_ms(life, number, begun_ns) == 1002


def test_what_is_written_meanwhile_is_not_proved_by_an_older_turn() -> None:
    life = resting()
    begun_ns = life.disk.now_ns
    life.durably(life.put(0, "a", b"1"))
    after(life, begun_ns, 190)
    number = life.put(0, "b", b"1", urgent=False)
    assert durable_ms(life, number, begun_ns) == 192 + SMALL.sync_interval_ms
    life = resting()
    begun_ns = life.disk.now_ns
    life.durably(life.put(0, "a", b"1"))
    after(life, begun_ns, 199)
    life.put(0, "b", b"1", urgent=False)
    life.disk.until(lambda: len(deeds(life, Write)) == 2)
    assert life.disk.now_ns - begun_ns == 201 * MILLISECOND


def test_the_first_that_is_not_urgent_is_durable_in_its_interval() -> None:
    life = Life(Platter())
    life.begin(0)
    life.durably(life.put(0, "a", b"1"))
    begun_ns = life.disk.now_ns
    number = life.put(0, "b", b"1", urgent=False)
    assert durable_ms(life, number, begun_ns) == 2 + SMALL.sync_interval_ms


def test_the_last_block_is_proved_once_after_a_while() -> None:
    life = resting()
    begun_ns = life.disk.now_ns
    life.durably(life.put(0, "a", b"1"))
    life.disk.until(lambda: len(deeds(life, Write)) == 2)
    assert life.disk.now_ns - begun_ns == 200 * MILLISECOND
    life.disk.run(5 * SECOND)
    assert len(deeds(life, Write)) == 2
    life.put(0, "b", b"1")
    life.disk.run(150 * MILLISECOND)
    life.put(0, "c", b"1")
    life.disk.run(150 * MILLISECOND)
    assert len(deeds(life, Write)) == 4, "the time begins again with what is written"


def test_nothing_is_written_while_nothing_happens() -> None:
    life = resting()
    life.disk.run(10 * SECOND)
    assert life.disk.log == []
    assert sum(life.journal.leftovers.values()) == 0


# -- checkpoints


@pytest.mark.rule("engine/W-5")
def test_a_checkpoint_is_written_when_what_it_holds_is_durable() -> None:
    life = resting()
    life.put(0, "a", b"1", urgent=False)
    begun_ns = life.disk.now_ns
    ticket = life.checkpoint(0)
    assert ticket is not None
    life.disk.until(lambda: CheckpointDone(ticket) in life.events)
    kinds = [type(deed) for deed in life.disk.log]
    assert kinds.index(Write) < kinds.index(Sync) < kinds.index(Put)
    assert life.disk.now_ns == begun_ns, "it does not wait for what comes later"
    figures = life.journal.figures()
    assert (figures["checkpoints"], figures["checkpoints_written"]) == (1, 1)
    assert figures["last_checkpoint_ms"] == life.disk.wall_ms()
    writes = len(deeds(life, Write))
    life.disk.run(MILLISECOND)
    assert len(deeds(life, Write)) == writes, "that it is there is not urgent"
    life.put(0, "b", b"1")
    life.settle()
    life.checkpoint(0)
    life.settle()
    assert life.journal.figures()["checkpoints_written"] == 2


def test_that_a_checkpoint_is_there_is_written_though_nothing_else_is() -> None:
    life = resting()
    life.checkpoint(0)
    life.settle()
    assert len(deeds(life, Put)) == 1
    assert any(b".parquet" in deed.data for deed in deeds(life, Write))  # type: ignore[attr-defined]
    assert sum(life.journal.leftovers.values()) == 0


def test_a_checkpoint_that_is_being_written_hurries_nothing() -> None:
    life = resting()
    life.disk.held.add("checkpoint")
    life.checkpoint(0)
    life.disk.run(MILLISECOND)
    begun_ns = life.disk.now_ns
    number = life.put(0, "a", b"1", urgent=False)
    assert durable_ms(life, number, begun_ns) == 2 + SMALL.sync_interval_ms


def test_a_checkpoint_that_cannot_be_removed_ends_the_journal() -> None:
    life = resting()
    life.checkpoint(0)
    life.settle()
    life.disk.fails = lambda deed: isinstance(deed, Remove)
    life.append(Dropped(0))
    life.settle()
    assert len(life.broken) == 1


def test_a_segment_that_cannot_be_removed_ends_the_journal() -> None:
    life = Life(Platter()).settle()
    life.begin(0)
    life.disk.fails = lambda deed: isinstance(deed, Remove) and deed.name.startswith("j")
    for index in range(300):
        life.put(0, f"k{index % 3}", b"v" * 3000)
        life.disk.run(MILLISECOND)
    assert len(life.broken) == 1


def test_when_history_cannot_be_read_everything_is_to_be_written_anew() -> None:
    life = resting()
    life.answers_wanted = False
    platter = life.disk.platter
    (name,) = [name for name in platter.seen if b"first" in platter.seen[name]]
    platter.seen[name][platter.seen[name].index(b"first")] ^= 1
    begun_ns = life.disk.now_ns
    assert life.history(0, 0, 1).records is None
    assert len(life.journal.doubts) == 1
    assert "reading history" in life.journal.doubts[0]
    life.disk.until(lambda: CheckpointWanted((0,)) in life.events)
    assert life.disk.now_ns == begun_ns


def test_the_checkpoints_of_what_is_dropped_are_removed() -> None:
    life = resting()
    ticket = life.checkpoint(0)
    assert ticket is not None
    life.disk.until(lambda: CheckpointDone(ticket) in life.events)
    (file,) = [name for name in life.disk.names() if parse_name(name) is not None]
    life.durably(life.append(Dropped(0)))
    life.settle()
    assert Remove(file) in life.disk.log
    assert life.journal.figures()["checkpoints"] == 0


def test_who_does_not_answer_is_asked_again() -> None:
    life = resting()
    life.answers_wanted = False
    for index in range(400):
        life.durably(life.put(0, f"k{index}", b"v" * 1000))
    asked = [event for event in life.events if isinstance(event, CheckpointWanted)]
    assert asked[:1] == [CheckpointWanted((0,))]


# -- what it says of itself


def test_its_figures_say_what_is_there() -> None:
    life = resting()
    figures = life.journal.figures()
    names = life.disk.names()
    segments = [name for name in names if name.endswith(".seg") and name.startswith("j")]
    assert figures == {
        "store": "store-1",
        "opened": 1,
        "segments": len(segments),
        "journal_bytes": (len(segments) + 1) * SMALL.segment_bytes,
        "checkpoints": 0,
        "checkpoints_written": 0,
        "last_checkpoint_ms": 0,
        "full": False,
        "problems": [],
    }
    life.put(0, "a", b"1", urgent=False)
    life.journal._intake.take_questions()
    assert life.journal.leftovers["groups"] == 1


# -- no room, and the end


def test_without_room_for_its_identity_it_says_so_and_tries_again() -> None:
    life = resting()
    life.disk.full = True
    life.journal.admitted("cluster", behind=False)
    life.disk.until(lambda: DiskRoom(full=True) in life.events)
    assert life.journal.figures()["full"]
    life.disk.full = False
    life.disk.until(lambda: DiskRoom(full=False) in life.events)
    assert len(deeds(life, Put)) == 1
    assert not life.journal.figures()["full"]
    assert life.broken == []


def test_a_closed_journal_takes_nothing_and_tells_nothing() -> None:
    life = resting()
    life.journal.close()
    assert life.disk.log == [], "everything was proved"
    assert life.disk.dead
    life.put(0, "a", b"1")
    life.disk.dead = False
    life.settle()
    life.journal.close()
    assert (life.disk.log, life.events, life.broken) == ([], [], [])


@pytest.mark.parametrize("urgent", [True, False])
def test_what_is_left_is_written_and_proved_when_it_is_closed(*, urgent: bool) -> None:
    life = resting()
    life.put(0, "a", b"1", urgent=urgent)
    life.journal.close()
    kinds = [type(deed) for deed in life.disk.log]
    assert kinds == [Write, Sync, Sync, Write, Sync]
    assert life.events == []


def test_what_was_written_last_is_proved_when_it_is_closed() -> None:
    life = resting()
    life.durably(life.put(0, "a", b"1"))
    life.disk.log.clear()
    life.journal.close()
    assert [type(deed) for deed in life.disk.log] == [Sync, Write, Sync]


def test_a_broken_journal_says_so_once_and_does_nothing_more() -> None:
    life = resting()
    life.disk.fails = lambda deed: True
    life.put(0, "a", b"1")
    life.settle()
    assert len(life.broken) == 1
    life.events.clear()
    life.put(0, "b", b"1")
    life.checkpoint(0)
    life.settle()
    life.journal.close()
    life.settle()
    assert (len(life.broken), life.events, life.disk.log) == (1, [], [])


def test_a_failure_after_the_end_is_nobodys_concern() -> None:
    life = resting()
    life.disk.fails = lambda deed: True
    life.put(0, "a", b"1")
    life.journal.close()
    life.disk.dead = False
    life.settle()
    assert life.broken == []
