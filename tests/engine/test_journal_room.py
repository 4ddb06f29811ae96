"""What the journal does on a full disk, and which of its segments may go."""

from __future__ import annotations

import random

import msgspec
import pytest
from tests.engine.lives import SMALL, Life, content, reopened
from tests.engine.memory_disk import Platter

from holdfast.core.effects import ReadHistory
from holdfast.core.events import CheckpointDone, DiskRoom, Event, HistoryRead
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.engine import journal_history as history
from holdfast.engine.ports import Create, Deed, Remove, Rename, Sync, Write
from holdfast.engine.restore import SPARE
from holdfast.engine.room_probe import PROBE

KEEPING = msgspec.structs.replace(SMALL, history_bytes=1 << 30)


def room(life: Life) -> list[bool]:
    """What the member was told of room on the disk: whether it is full."""
    return [event.full for event in life.events if isinstance(event, DiskRoom)]


def segments(life: Life) -> int:
    return sum(name.startswith("j") for name in life.disk.names())


def aged(settings: object = KEEPING, count: int = 4) -> Life:
    """A life with so many segments that are kept as history, and a little more."""
    life = Life(Platter(), settings).settle()  # type: ignore[arg-type]
    life.begin(0)
    while segments(life) <= count:
        life.durably(life.put(0, "k", b"v" * 9000))
        life.disk.run(MILLISECOND)
    life.checkpoint(0)
    life.settle()
    life.events.clear()
    life.disk.log.clear()
    return life


def begin_another(life: Life) -> None:
    """Write until the next segment has its name."""
    before = sum(isinstance(deed, Rename) for deed in life.disk.log)
    while sum(isinstance(deed, Rename) for deed in life.disk.log) == before:
        life.durably(life.put(0, "k", b"v" * 9000))


def full_until_a_segment_goes(life: Life) -> None:
    life.disk.full = True

    def seen(deed: Deed) -> bool:
        if isinstance(deed, Remove) and deed.name.startswith("j"):
            life.disk.full = False
        return False

    life.disk.fails = seen


# -- history makes room


@pytest.mark.rule("engine/W-3")
def test_history_makes_room_for_the_next_segment_before_anybody_is_told() -> None:
    life = aged()
    before = segments(life)
    full_until_a_segment_goes(life)
    begin_another(life)
    life.disk.run(100 * MILLISECOND)
    assert room(life) == []
    assert segments(life) < before
    assert SPARE in life.disk.names(), "it is tried again at once"


def test_history_makes_room_for_a_checkpoint_before_anybody_is_told() -> None:
    life = aged()
    before = segments(life)
    full_until_a_segment_goes(life)
    ticket = life.checkpoint(0)
    assert ticket is not None
    life.disk.run(100 * MILLISECOND)
    assert CheckpointDone(ticket, well=False) in life.events
    assert room(life) == []
    assert segments(life) < before
    assert life.journal.leftovers["checkpoints"] == 0


def test_while_there_is_room_history_stays() -> None:
    life = aged()
    before = segments(life)
    begin_another(life)
    life.settle()
    life.history(0, 0, 1)
    life.settle()
    assert segments(life) == before + 1


def test_history_stays_while_nobody_knows_whether_there_is_room() -> None:
    life = aged()
    before = segments(life)
    life.disk.held.add("checkpoint")
    begin_another(life)
    assert life.history(0, 0, 1).records is not None
    life.disk.held.clear()
    life.settle()
    assert segments(life) == before + 1


# -- full


def test_a_checkpoint_without_room_is_told_until_there_is_some() -> None:
    life = aged(SMALL, 1)
    life.disk.full = True
    life.checkpoint(0)
    life.disk.run(3 * SECOND)
    assert room(life) == [True]
    assert life.journal.leftovers["checkpoints"] == 0
    life.disk.full = False
    life.disk.run(2 * SECOND)
    assert room(life) == [True, False]
    assert PROBE not in life.disk.names()


def test_there_is_room_again_when_the_next_segment_has_it() -> None:
    life = aged(SMALL, 1)
    life.answers_wanted = False
    life.disk.full = True
    begin_another(life)
    life.checkpoint(0)
    life.disk.run(100 * MILLISECOND)
    assert room(life) == [True]
    life.disk.fits.add(PROBE)
    life.disk.run(5 * SECOND)
    assert room(life) == [True]
    life.disk.fits.add(SPARE)
    life.disk.run(2 * SECOND)
    assert room(life) == [True, False]
    assert SPARE in life.disk.names()


def test_room_for_one_segment_at_a_time_does_not_end_a_full_disk() -> None:
    """Journal that no restart needs goes, the next segment finds its place, and the one after that none."""
    life = aged(SMALL, 1)
    life.answers_wanted = False
    life.disk.full = True
    life.checkpoint(0)
    life.disk.run(100 * MILLISECOND)
    assert room(life) == [True]
    life.disk.fits.add(SPARE)
    for _ in range(5):
        begin_another(life)
        life.disk.run(2 * SECOND)
    assert room(life) == [True]
    life.disk.fits.add(PROBE)
    life.disk.run(2 * SECOND)
    assert room(life) == [True, False]


def test_an_identity_that_finds_room_says_nothing_while_the_next_segment_has_none() -> None:
    life = aged(SMALL, 1)
    life.answers_wanted = False
    life.disk.full = True
    begin_another(life)
    life.disk.run(100 * MILLISECOND)
    life.disk.fits.add("")
    life.journal.admitted("cluster", behind=False)
    life.disk.run(5 * SECOND)
    assert life.journal.identity.cluster_id == "cluster"
    assert room(life) == [True]


def test_a_disk_with_room_is_not_said_to_have_room_again() -> None:
    life = aged(SMALL, 1)
    begin_another(life)
    life.journal.admitted("cluster", behind=False)
    life.settle()
    assert room(life) == []


def test_a_full_disk_is_tried_once_a_second() -> None:
    life = aged(SMALL, 1)
    life.answers_wanted = False
    tries: list[int] = []

    def seen(deed: Deed) -> bool:
        if isinstance(deed, Create):
            tries.append(life.disk.now_ns)
        return False

    life.disk.full = True
    life.disk.fails = seen
    begin_another(life)
    life.put(0, "large", b"v" * 60_000)
    life.disk.run(SECOND // 2)
    tries.clear()
    for _ in range(100):
        life.put(0, "more", b"v")
        life.disk.run(10 * MILLISECOND)
    assert len(tries) <= 3
    life.disk.run(10 * SECOND)
    assert 9 <= len(tries) <= 36


def test_nothing_goes_for_room_while_a_segment_begins() -> None:
    life = aged()
    life.disk.full = True
    life.disk.held.add("journal")
    before = segments(life)
    life.put(0, "k", b"v" * 60_000)
    life.disk.run(MILLISECOND)
    assert any(isinstance(deed, Rename) for deed in life.disk.lines["journal"][0][0])
    ticket = life.checkpoint(0)
    life.disk.run(3 * SECOND)
    assert segments(life) == before
    life.disk.held.clear()
    life.disk.full = False
    life.durably(life.number)
    life.settle()
    assert room(life) in ([], [True, False])
    assert ticket is not None
    assert life.broken == []


def test_what_is_written_is_synced_in_its_interval_though_more_has_no_room() -> None:
    life = aged(SMALL, 1)
    life.answers_wanted = False
    life.disk.full = True
    begin_another(life)
    life.settle()
    begun_ns = life.disk.now_ns
    number = life.put(0, "a", b"1", urgent=False)
    life.disk.until(lambda: isinstance(life.disk.log[-1:] and life.disk.log[-1], Write))
    life.put(0, "large", b"v" * 60_000)
    life.put(0, "large", b"v" * 60_000)
    life.durably(number)
    assert life.disk.now_ns - begun_ns <= (2 + SMALL.sync_interval_ms) * MILLISECOND


# -- from one segment to the next


def test_many_groups_that_fit_into_no_segment_together_make_none_larger() -> None:
    life = aged(SMALL, 1)
    life.disk.held.add("journal")
    life.put(0, "first", b"v")
    life.disk.run(MILLISECOND)
    for index in range(60):
        life.put(0, f"k{index}", b"v" * 5000)
    life.disk.held.clear()
    life.durably(life.number)
    sizes = {life.disk.size(name) for name in life.disk.names() if name.endswith(".seg")}
    assert sizes == {SMALL.segment_bytes}
    life.disk.platter.crash(random.Random(1))
    assert content(reopened(life.disk.platter).copies[0]) == content(life.copies[0])


def test_a_segment_begins_when_the_one_before_is_synced_and_is_durable_with_its_first_block() -> None:
    life = aged(SMALL, 1)
    life.put(0, "tail", b"v" * 20_000, urgent=False)
    life.disk.until(lambda: isinstance(life.disk.log[-1:] and life.disk.log[-1], Write))
    old = life.disk.log[-1].name  # type: ignore[union-attr]
    life.disk.log.clear()
    life.disk.held.add("checkpoint")
    life.put(0, "next", b"v" * 50_000, urgent=False)
    life.disk.run(10 * MILLISECOND)
    assert [type(deed) for deed in life.disk.log] == [Sync, Rename, Write, Sync, Write, Sync]
    assert life.disk.log[0] == Sync(old)
    # What is before it was durable, says the new one: if it cannot be read, that is damage.
    platter = life.disk.platter
    platter.crash(random.Random(1))
    platter.seen[old][platter.seen[old].index(b"tail") + 100] ^= 1
    found = reopened(platter)
    assert not found.whole
    assert list(found.uncertain) == [0]


def test_nothing_older_goes_before_the_start_of_the_next_segment_is_durable() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.answers_wanted = False
    life.begin(0)
    life.durably(life.put(0, "a", b"1"))
    life.settle()
    life.disk.held.add("checkpoint")
    life.checkpoint(0)
    life.begin(1)
    while segments(life) == 1:
        life.durably(life.put(1, "k", b"v" * 9000))
    life.disk.held.clear()
    life.settle()
    life.checkpoint(1)
    life.settle()
    assert segments(life) == 2, "the first one has blocks after the checkpoint of partition 0"
    life.disk.held.add("checkpoint")
    ticket = life.checkpoint(1)
    life.disk.run(MILLISECOND)
    life.disk.held.add("journal")
    life.put(1, "k", b"v" * 60_000)
    life.disk.run(MILLISECOND)
    assert any(isinstance(deed, Rename) for deed in life.disk.lines["journal"][0][0])
    life.disk.held.discard("checkpoint")
    life.disk.until(lambda: CheckpointDone(ticket) in life.events)  # type: ignore[arg-type]
    life.disk.run(SECOND)
    platter.crash(random.Random(5))
    found = reopened(platter)
    assert (found.whole, found.uncertain, found.damage) == (True, {}, [])


# -- under a reader


class Curious(Life):
    """Whenever it has read a part of its history it asks for another one."""

    def ask(self) -> None:
        self.tickets += 1
        upto = self.copies[0].open("m").counter
        self.journal.carry_out(ReadHistory(self.tickets, 0, "m", max(0, upto - 3), upto, patient=True))

    def hear(self, event: Event) -> None:
        super().hear(event)
        if isinstance(event, HistoryRead):
            self.ask()


def reading(count: int = 5) -> tuple[Life, int]:
    """A life that reads all of its journal, a block in a turn; and how many updates there are."""
    life = Life(Platter()).settle()
    life.answers_wanted = False
    life.begin(0)
    while segments(life) < count:
        life.durably(life.put(0, "k", b"v" * 4000))
    life.settle()
    life.events.clear()
    upto = life.copies[0].maps["m"].counter
    life.journal.carry_out(ReadHistory(99, 0, "m", 0, upto))
    life.disk.step()
    return life, upto


def test_no_segment_goes_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SLICE_BYTES", 1)
    life, upto = reading()
    life.checkpoint(0)
    life.settle()
    assert [type(event) for event in life.events] == [CheckpointDone, HistoryRead]
    answer = life.events[-1]
    assert isinstance(answer, HistoryRead)
    assert [record.counter for _, record in answer.records or []] == list(range(1, upto + 1))
    assert life.journal.doubts == []
    assert segments(life) < 5, "afterwards it does"


def test_without_room_the_member_is_told_though_somebody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SLICE_BYTES", 1)
    life, _ = reading()
    life.disk.full = True
    life.checkpoint(0)
    life.disk.run(100 * MILLISECOND)
    assert room(life) == [True]


def test_what_had_to_wait_for_a_reader_goes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SLICE_BYTES", 1)
    life = Curious(Platter()).settle()
    life.begin(0)
    life.durably(life.put(0, "first", b""))
    for _ in range(5):
        life.ask()
    most = 0
    for index in range(500):
        life.durably(life.put(0, f"k{index % 5}", b"v" * 1000))
        most = max(most, segments(life))
    assert most <= 8


def test_without_room_history_goes_between_two_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SLICE_BYTES", 1)
    life = Curious(Platter(), KEEPING).settle()
    life.begin(0)
    life.answers_wanted = False
    while segments(life) < 5:
        life.durably(life.put(0, "k", b"v" * 9000))
    life.checkpoint(0)
    life.settle()
    for _ in range(5):
        life.ask()
    life.disk.run(0)
    full_until_a_segment_goes(life)
    begin_another(life)
    for _ in range(400):
        life.disk.step()
    assert segments(life) < 5


def test_a_reader_that_ends_after_the_journal_is_broken_lets_nothing_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "SLICE_BYTES", 1)
    life, _ = reading(12)
    ticket = life.checkpoint(0)
    assert ticket is not None
    life.disk.until(lambda: CheckpointDone(ticket) in life.events)
    life.disk.fails = lambda deed: isinstance(deed, Write)
    life.put(0, "k", b"v")
    life.disk.until(lambda: bool(life.broken))
    assert sum(life.journal.leftovers.values()) > 0, "it reads still"
    before = segments(life)
    life.settle()
    assert segments(life) == before
    assert not any(isinstance(event, HistoryRead) for event in life.events)
