"""When the journal writes, syncs, proves and asks; what it says of itself; and that it ends once."""

from __future__ import annotations

import pytest
from tests.engine.lives import SMALL, Life
from tests.engine.memory_disk import Platter

from holdfast.core.machine import CheckpointDone, CheckpointWanted, DiskRoom, Durable
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.journal_entries import Dropped, Seen
from holdfast.core.model.views import View
from holdfast.engine.ports import Deed, Put, Remove, Sync, Write
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


def test_nothing_is_done_under_a_token_that_is_not_durable() -> None:
    life = Life(Platter())
    told: list[int] = []
    assert not life.journal.ready
    life.journal.when_ready(lambda: told.append(1))
    life.begin(0)
    life.put(0, "k", b"v")
    assert life.disk.log == []
    life.disk.until(lambda: life.journal.ready)
    assert len(deeds(life, Put)) == 1
    assert deeds(life, Write) == []
    assert told == [1]
    life.journal.when_ready(lambda: told.append(2))
    assert told == [1], "never before the call returns"
    life.settle()
    assert told == [1, 2]
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
    life.journal.admitted("another", behind=False)
    life.settle()
    assert len(deeds(life, Put)) == 3


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


def test_what_is_written_is_synced_within_its_interval_and_not_again() -> None:
    life = resting()
    begun_ns = life.disk.now_ns
    number = life.put(0, "a", b"1", urgent=False)
    life.durably(number)
    assert life.disk.now_ns - begun_ns == (2 + SMALL.sync_interval_ms) * MILLISECOND
    assert len(deeds(life, Sync)) == 1


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


def test_a_checkpoint_is_written_when_what_it_holds_is_durable() -> None:
    life = resting()
    life.put(0, "a", b"1", urgent=False)
    begun_ns = life.disk.now_ns
    ticket = life.checkpoint(0)
    assert ticket is not None
    life.disk.until(lambda: CheckpointDone(ticket) in life.events)
    kinds = [type(deed) for deed in life.disk.log]
    assert kinds.index(Write) < kinds.index(Sync) < kinds.index(Put)
    assert life.disk.now_ns - begun_ns < 2 * MILLISECOND + SMALL.sync_interval_ms * MILLISECOND
    figures = life.journal.figures()
    assert (figures["checkpoints"], figures["checkpoints_written"]) == (1, 1)
    assert figures["last_checkpoint_ms"] == life.disk.wall_ms()


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
        "doubts": [],
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
