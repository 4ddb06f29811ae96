"""How a journal ends: closed, or broken. Whatever is under way then, nothing is told or begun any more."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest
from tests.engine.lives import SMALL, Life, content, reopened
from tests.engine.memory_disk import Platter

from holdfast.core.effects import ReadHistory
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.journal_entries import Dropped
from holdfast.engine.journal import Journal
from holdfast.engine.ports import Create, Deed, DeedsDone, Put, Sync, Write
from holdfast.errors import JournalBroken
from holdfast.wire.journal_blocks import SEAL_BYTES


def refused(deeds: Sequence[Deed], done: DeedsDone, *, line: str = "journal") -> None:
    raise AssertionError(f"{deeds} are begun after the end")


def act(life: Life, draw: random.Random) -> None:
    """Anything that a member does, and some of what the disk does then."""
    partition = draw.randrange(3)
    if partition not in life.copies:
        life.begin(partition)
    match draw.randrange(14):
        case 0 | 1:
            life.checkpoint(partition)
        case 2:
            life.append(Dropped(partition), urgent=False)
            del life.copies[partition]
        case 3:
            upto = life.copies[partition].open("m").counter
            life.tickets += 1
            life.journal.carry_out(ReadHistory(life.tickets, partition, "m", 0, upto))
        case 4:
            life.disk.full = not life.disk.full
        case 5:
            life.put(partition, "large", b"v" * 70_000)
        case 6:
            life.journal.admitted(f"cluster {draw.randrange(3)}", behind=draw.random() < 0.5)
        case _:
            life.put(partition, f"k{draw.randrange(9)}", b"v" * 4000, urgent=draw.random() < 0.5)
    for _ in range(draw.choice([0, 1, 2, 5, 60])):
        life.disk.step()


def busy(draw: random.Random) -> Life:
    chosen = msgspec.structs.replace(SMALL, history_bytes=draw.choice([0, 200_000]))
    life = Life(Platter(), chosen, draw)
    for _ in range(draw.randrange(60)):
        act(life, draw)
    return life


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_told_or_begun_after_the_journal_is_closed(seed: int) -> None:
    draw = random.Random(seed)
    life = busy(draw)
    assert life.broken == []
    if draw.random() < 0.5:
        life.disk.fails = lambda deed: isinstance(deed, Write | Put)
    told = [*life.events]
    life.journal.close()
    # The disk tells afterwards what it has done before it was closed.
    life.disk.dead = False
    life.disk.submit = refused  # type: ignore[method-assign]
    left = life.journal.leftovers
    life.put(0, "late", b"v") if 0 in life.copies else None
    life.checkpoint(0)
    assert life.journal.leftovers == left
    life.disk.run(10 * SECOND)
    assert life.events == told
    assert life.broken == []


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_told_or_begun_after_the_journal_is_broken(seed: int) -> None:
    draw = random.Random(seed)
    life = busy(draw)
    if seed % 2:
        life.disk.full = False
        life.settle()
    life.disk.fails = lambda deed: isinstance(deed, Write | Sync)
    if 1 not in life.copies:
        life.begin(1)
    told = []

    def broken(error: JournalBroken) -> None:
        life.broken.append(error)
        told.extend(life.events)
        life.disk.fails = lambda deed: False
        life.disk.submit = refused  # type: ignore[method-assign]

    life.journal.connect(life.hear, broken)
    life.put(1, "k", b"v")
    while not life.broken:
        act(life, draw)
    left = life.journal.leftovers
    for _ in range(20):
        act(life, draw)
    life.disk.run(10 * SECOND)
    assert {**life.journal.leftovers, "checkpoints": left["checkpoints"]} == left
    assert life.events == told
    assert len(life.broken) == 1


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_is_there_after_the_end(seed: int) -> None:
    draw = random.Random(seed)
    life = Life(Platter(), SMALL, draw).settle()
    for partition in range(3):
        life.begin(partition)
    for _ in range(20):
        for _ in range(draw.randrange(4)):
            life.put(draw.randrange(3), f"k{draw.randrange(9)}", b"v" * 500, urgent=False)
        life.checkpoint(draw.randrange(3))
        life.disk.step()
    life.journal.close()
    life.disk.platter.crash(draw)
    found = reopened(life.disk.platter)
    assert {p: content(copy) for p, copy in found.copies.items()} == {
        p: content(copy) for p, copy in life.copies.items()
    }
    assert (found.damage, found.uncertain, found.proof.cut) == ([], {}, False)


@pytest.mark.parametrize("durable", [True, False])
def test_what_was_written_last_is_proved_by_the_end(*, durable: bool) -> None:
    life = Life(Platter()).settle()
    life.begin(0)
    life.settle()
    number = life.put(0, "k", b"last", urgent=durable)
    if durable:
        life.durably(number)
    life.journal.close()
    platter = life.disk.platter
    log = [*life.disk.log]
    life.journal.close()
    assert life.disk.log == log, "it is closed once"
    platter.crash(random.Random(0))
    (name,) = [name for name in platter.seen if b"last" in platter.seen[name]]
    platter.seen[name][platter.seen[name].index(b"last")] ^= 1
    found = reopened(platter)
    assert list(found.uncertain) == [0]
    assert not found.whole


def test_no_segment_goes_after_the_journal_is_closed() -> None:
    chosen = msgspec.structs.replace(SMALL, history_bytes=1 << 30, history_age_s=10)
    life = Life(Platter(), chosen).settle()
    life.begin(0)
    for _ in range(30):
        life.durably(life.put(0, "k", b"v" * 9000))
    life.checkpoint(0)
    life.disk.run(60 * SECOND)
    life.disk.held.add("checkpoint")
    names = [name for name in life.disk.names() if name.startswith("j")]
    while len([name for name in life.disk.names() if name.startswith("j")]) == len(names):
        life.durably(life.put(0, "k", b"v" * 9000))
    life.journal.close()
    life.disk.dead = False
    life.disk.submit = refused  # type: ignore[method-assign]
    life.disk.held.clear()
    life.settle()
    assert set(names) <= set(life.disk.names())


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "broken"])
def test_a_checkpoint_that_is_there_after_the_end_lets_nothing_go(*, closed: bool) -> None:
    life = Life(Platter()).settle()
    life.answers_wanted = False
    life.begin(0)
    for _ in range(30):
        life.durably(life.put(0, "k", b"v" * 9000))
    life.settle()
    life.disk.held.add("checkpoint")
    life.checkpoint(0)
    life.disk.run(SECOND)
    if closed:
        life.journal.close()
        life.disk.dead = False
    else:
        life.disk.fails = lambda deed: isinstance(deed, Write)
        life.put(0, "k", b"v")
        life.disk.until(lambda: bool(life.broken))
    groups = life.journal.leftovers["groups"]
    life.disk.submit = refused  # type: ignore[method-assign]
    life.disk.held.clear()
    life.settle()
    assert life.journal.leftovers["groups"] == groups
    assert len([name for name in life.disk.names() if name.endswith(".parquet")]) == 1


def busy_on_both_lines() -> Life:
    life = Life(Platter()).settle()
    life.begin(0)
    life.durably(life.put(0, "a", b"v"))
    life.settle()
    life.disk.held |= {"journal", "checkpoint"}
    life.checkpoint(0)
    life.put(0, "b", b"v")
    life.disk.run(SECOND)
    assert all(life.disk.lines.values())
    return life


@pytest.mark.parametrize("later", ["journal", "checkpoint"])
def test_what_fails_at_two_places_is_told_once(later: str) -> None:
    life = busy_on_both_lines()
    life.disk.fails = lambda deed: True
    life.disk.held = {later}
    life.disk.until(lambda: bool(life.broken))
    life.disk.held.clear()
    life.settle()
    assert len(life.broken) == 1


def test_what_fails_at_the_end_is_told_to_nobody() -> None:
    life = busy_on_both_lines()
    life.disk.fails = lambda deed: True
    life.journal.close()
    life.disk.dead = False
    life.disk.held.clear()
    life.settle()
    assert life.broken == []


def test_who_waits_for_a_journal_that_is_closed_before_it_is_ready_waits_for_ever() -> None:
    life = Life(Platter())
    told: list[int] = []
    life.journal.when_ready(lambda: told.append(1))
    life.journal.close()
    life.disk.dead = False
    life.settle()
    assert told == []


def test_who_waits_for_a_journal_that_breaks_before_it_is_ready_waits_for_ever() -> None:
    """The member would join a cluster, and hold copies that are written nowhere."""
    life = Life(Platter())
    told: list[int] = []
    life.journal.when_ready(lambda: told.append(1))
    life.disk.held.add("journal")
    life.disk.fails = lambda deed: isinstance(deed, Create)
    life.disk.until(lambda: bool(life.broken))
    life.disk.held.clear()
    life.settle()
    assert told == []


def test_a_broken_journal_looks_for_no_room() -> None:
    life = Life(Platter()).settle()
    life.begin(0)
    life.durably(life.put(0, "a", b"v"))
    life.settle()
    life.disk.full = True
    life.checkpoint(0)
    life.disk.run(100 * MILLISECOND)
    life.disk.fails = lambda deed: isinstance(deed, Write)
    life.put(0, "b", b"v")
    life.disk.until(lambda: bool(life.broken))
    life.disk.submit = refused  # type: ignore[method-assign]
    life.disk.run(5 * SECOND)
    assert len(life.broken) == 1


def test_no_checkpoint_is_begun_after_the_journal_is_broken() -> None:
    life = Life(Platter()).settle()
    for partition in (0, 1):
        life.begin(partition)
        life.put(partition, "k", b"v")
    life.checkpoint(1)
    life.settle()
    life.disk.held.add("checkpoint")
    life.append(Dropped(1))
    life.disk.run(SECOND)
    life.disk.held = {"timers"}
    life.checkpoint(0)
    life.disk.fails = lambda deed: True
    life.disk.until(lambda: bool(life.broken))
    life.disk.fails = lambda deed: False
    life.disk.held.clear()
    life.disk.log.clear()
    life.settle()
    assert life.disk.log == []


def test_what_waits_behind_a_failed_write_is_not_written_by_the_end() -> None:
    life = Life(Platter()).settle()
    life.begin(0)
    life.settle()
    life.disk.held.add("journal")
    life.put(0, "a", b"1")
    life.disk.run(MILLISECOND)
    life.put(0, "b", b"1")
    life.disk.run(MILLISECOND)
    life.disk.fails = lambda deed: True
    life.disk.held.clear()
    life.disk.until(lambda: bool(life.broken))
    life.disk.fails = lambda deed: False
    life.disk.log.clear()
    life.journal.close()
    assert life.disk.log == []


def test_the_end_does_not_wait_for_a_larger_segment() -> None:
    life = Life(Platter()).settle()
    life.begin(0)
    life.settle()
    life.put(0, "small", b"1")
    life.put(0, "large", b"v" * 300_000)
    life.disk.log.clear()
    life.journal.close()
    assert not any(isinstance(deed, Put) for deed in life.disk.log)
    names = [name for name in life.disk.names() if name.endswith(".seg")]
    assert {life.disk.size(name) for name in names} == {SMALL.segment_bytes}


@pytest.mark.parametrize("left", [0, 1])
def test_a_block_that_just_leaves_room_for_its_proof_begins_no_segment(left: int) -> None:
    life = Life(Platter()).settle()
    life.begin(0)
    sizes = []
    for _ in range(3):
        life.disk.log.clear()
        life.durably(life.put(0, "k", b"v" * 1000))
        (write,) = [deed for deed in life.disk.log if isinstance(deed, Write)]
        sizes.append((write.name, write.offset + len(write.data), len(write.data) - 1000))
    name, used, head_bytes = sizes[-1]
    value = b"v" * (SMALL.segment_bytes - used - head_bytes - SEAL_BYTES - left)
    life.disk.log.clear()
    life.durably(life.put(0, "k", value))
    assert [deed.name for deed in life.disk.log if isinstance(deed, Write)] == [name]
    life.disk.log.clear()
    life.journal.close()
    (seal,) = [deed for deed in life.disk.log if isinstance(deed, Write)]
    assert (seal.name, len(seal.data)) == (name, SEAL_BYTES)
    assert seal.offset + len(seal.data) == SMALL.segment_bytes - left


def test_who_does_not_listen_learns_of_a_failure_nevertheless() -> None:
    life = Life(Platter())
    deaf, _ = Journal.open(
        life.disk, SMALL, name="one", uuid="member", new_id=lambda: "new", now_ns=0, wall_ms=0
    )
    with pytest.raises(JournalBroken, match="worn out"):
        deaf._disk.on_failure(JournalBroken("worn out"))
    with pytest.raises(AssertionError, match="not connected"):
        deaf._disk.on_event(life.events)  # type: ignore[arg-type]
