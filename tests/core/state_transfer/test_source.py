"""The primary's side: what it starts, keeps or refuses by name, and what a refusal of the destination does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.state_transfer.supplying import (
    MASTER,
    ME,
    NEW,
    OLD_MASTER,
    OTHER,
    VIEW,
    Side,
    Told,
    locked,
    moving,
    near_its_end,
    request,
)
from tests.core.telling import assigned, removed

from holdfast.core.effects import Note, ReadHistory, Send
from holdfast.core.events import HistoryRead
from holdfast.core.messages import (
    Fill,
    Filled,
    FillEnded,
    FillPlan,
    FillRecords,
    FillRefused,
    MigrationReady,
    MigrationRefused,
    MigrationRequest,
    Replicate,
    Replicated,
)
from holdfast.core.model.decisions import LockChanges
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.model.sync_request import Base, Demand, How
from holdfast.core.model.timer_name import TimerName
from holdfast.core.state_transfer.source import BEHIND_NS, DRAIN_NS
from holdfast.core.state_transfer.supply import Supply, SupplyPhase
from holdfast.core.store.key_locks import LOCKS_AT_ONCE


@pytest.mark.rule("state_transfer/S-1", "state_transfer/S-2")
def test_a_partition_moves_chunk_by_chunk_and_its_writes_go_on_until_the_last() -> None:
    side = Side()
    side.write(b"a")
    side.sent()
    side.source.on_request(MASTER, request())
    (first,) = side.fills()
    side.hold(first)
    (content,) = side.fills()
    assert side.lane.serving[0] is not None
    side.write(b"b")
    side.sent()
    assert side.lane.unfinished(0), "the destination takes part in every acknowledgement"
    side.hold(content)
    assert side.lane.serving[0] is None, "for the last chunk writes stand still"
    assert side.fills() == [], "which waits for what was written before"


def idle(side: Side) -> None:
    """Nothing is under way."""


def taking_office(side: Side) -> None:
    side.around.active.clear()


def copying(side: Side) -> None:
    side.source.on_request(MASTER, request())


def deciding(side: Side) -> None:
    side.around.stored = Assignment(6, (NEW, None))


def not_the_primary(side: Side) -> None:
    side.rows[0] = Assignment(5, (OTHER, ME))


STATES = [idle, taking_office, copying, deciding, not_the_primary]
STARTS, WAITS = "starts", "waits"
REQUESTS: dict[str, tuple[MemberId, MigrationRequest, list[str]]] = {
    "of this version": (
        MASTER,
        request(),
        [STARTS, WAITS, "copied already", "decision on version 6 is outstanding", "primary is other"],
    ),
    "of somebody else": (
        OLD_MASTER,
        request(view=VIEW - 1),
        ["the master is master", WAITS, *["the master is master"] * 3],
    ),
    "of an older version": (MASTER, request(version=4), ["the row is at version 5"] * 5),
    "of a newer version": (MASTER, request(version=6), [WAITS] * 5),
    "of a newer view": (MASTER, request(view=VIEW + 1), [WAITS] * 5),
}


@pytest.mark.rule("state_transfer/S-4")
@pytest.mark.parametrize("what", REQUESTS)
@pytest.mark.parametrize("state", STATES)
def test_every_request_is_started_kept_or_refused_by_name(state: Callable[[Side], None], what: str) -> None:
    side = Side()
    state(side)
    side.sent()
    sender, asked, expectations = REQUESTS[what]
    expected = expectations[STATES.index(state)]
    side.source.on_request(sender, asked)
    effects = side.out.take()
    if expected == WAITS:
        assert effects == []
    elif expected == STARTS:
        (effect,) = effects
        assert isinstance(effect, Send)
        assert isinstance(effect.message, Fill)
    else:
        (effect,) = effects
        assert isinstance(effect, Send)
        assert effect.to == sender, "only who asked hears of it: it says nothing to a newer master"
        refused = effect.message
        assert isinstance(refused, MigrationRefused)
        assert (refused.partition, refused.version, refused.view) == (0, asked.version, asked.view)
        assert expected in refused.why


@pytest.mark.rule("state_transfer/S-3")
@pytest.mark.parametrize("until", ["first", "content", "last"])
def test_when_the_destination_refuses_all_is_as_before_and_the_master_knows(until: str) -> None:
    side = Side()
    fill = moving(side, until)
    side.write(b"b") if until == "content" else None
    side.sent()
    side.source.on_fill_refused(NEW, FillRefused(0, 5, fill.ticket, "the primary is another"))
    assert [message for message in side.sent() if not isinstance(message, Fill)] == [
        MigrationRefused(VIEW, 0, 5, "the primary is another")
    ]
    assert side.lane.serving[0] is not None, "writes go on"
    assert not side.lane.unfinished(0), "nobody waits for the destination any more"
    side.source.on_request(MASTER, request())
    assert len(side.fills()) == 1, "and it can be asked for again"


@pytest.mark.rule("state_transfer/S-9")
@pytest.mark.parametrize("until", ["before the last chunk", "while it drains"])
def test_when_a_backup_does_not_acknowledge_the_destination_hears_that_it_is_off(until: str) -> None:
    """No row changes then, so that nothing else would tell it."""
    side = Side(ME, OTHER)
    told = Told()
    side.copies.services._aware.append(told)
    fill = moving(side, "content")
    side.write(b"b")
    side.sent()
    if until == "while it drains":
        side.hold(fill)
        assert side.lane.serving[0] is None
    side.out.now_ns += DRAIN_NS + 1
    side.source.on_draining() if until == "while it drains" else side.hold(fill)
    assert [message for message in side.sent() if isinstance(message, FillEnded | MigrationRefused)] == [
        FillEnded(0, 5, fill.ticket, "a backup does not acknowledge what was written"),
        MigrationRefused(VIEW, 0, 5, "a backup does not acknowledge what was written"),
    ]
    assert side.lane.serving[0] is not None, "writes go on"
    assert [what for what, _ in told.heard] == ["before", "rollback"]
    assert set(side.source.leftovers.values()) == {0}


@pytest.mark.rule("state_transfer/S-10")
def test_many_locks_are_stored_in_slices_before_writes_stop() -> None:
    side = Side(ME, OTHER)
    near_its_end(side)
    assert side.near == [LOCKS_AT_ONCE]
    assert side.lane.serving[0] is not None
    assert TimerName.LOCKS in side.timers()
    side.source.on_locks()
    assert side.near == [LOCKS_AT_ONCE] * 2
    assert TimerName.LOCKS in side.timers()
    assert side.lane.serving[0] is not None
    side.source.on_locks()
    assert TimerName.LOCKS not in side.timers()
    assert side.lane.serving[0] is None, "the rest is stored at once"
    side.source.on_locks()
    assert side.near == [LOCKS_AT_ONCE] * 2, "nothing is stored any more"


@pytest.mark.rule("state_transfer/S-10")
def test_locks_that_are_taken_meanwhile_delay_the_handover_and_released_ones_do_not() -> None:
    side = Side(ME, OTHER)
    near_its_end(side)
    locked(side, 3 * LOCKS_AT_ONCE)
    side.source.on_locks()
    assert side.lane.serving[0] is not None
    side.copies.held[0].locks.change(LockChanges(released=b"1" * 16))
    side.source.on_locks()
    assert side.near == [LOCKS_AT_ONCE] * 2
    assert side.lane.serving[0] is None


@pytest.mark.rule("state_transfer/S-10")
@pytest.mark.parametrize("end", ["refused", "assignment", "member removed"])
def test_nothing_is_left_of_slices_when_the_migration_is_given_up(end: str) -> None:
    side = Side(ME, OTHER)
    near_its_end(side)
    locks = side.copies.held[0].locks
    match end:
        case "refused":
            side.source.on_fill_refused(NEW, FillRefused(0, 5, 1, "no room"))
        case "assignment":
            side.rows[0] = Assignment(6, (ME, OTHER))
            side.source.on_assignment(assigned(0, side.rows[0]))
        case _:
            side.source.on_view(removed())
            locks.clear()
            locked(side, 2 * LOCKS_AT_ONCE + 1)
    side.timers()
    side.source.on_locks()
    assert TimerName.LOCKS not in side.timers()
    assert side.near == [LOCKS_AT_ONCE]
    assert locks.unstored == len(locks.held) == 2 * LOCKS_AT_ONCE + 1, (
        "the next handover looks at all of them"
    )
    assert side.lane.serving[0] is not None


@pytest.mark.rule("state_transfer/S-9", "state_transfer/S-10")
def test_slices_wait_for_backups_that_are_behind() -> None:
    """Otherwise writes would stop until they have all slices."""
    side = Side(ME, OTHER)
    side.lane.leading[0] = side.copies.held[0]
    near_its_end(side)
    side.write(b"b")
    message, *_ = [one for one in side.sent() if isinstance(one, Replicate)]
    side.out.now_ns += BEHIND_NS + 1
    for _ in range(3):
        side.source.on_locks()
        assert side.near == [LOCKS_AT_ONCE]
        assert TimerName.LOCKS in side.timers()
    for member in (OTHER, NEW):
        side.lane.on_replicated(member, Replicated(message.batches, [0]))
    side.source.on_locks()
    assert side.near == [LOCKS_AT_ONCE] * 2
    side.write(b"c")
    side.sent()
    side.out.now_ns += DRAIN_NS + 1
    side.source.on_locks()
    assert [one for one in side.sent() if isinstance(one, MigrationRefused)], (
        "clients have waited long enough"
    )
    assert side.lane.serving[0] is not None
    assert side.source.supplies.storing() == []


def test_several_partitions_store_their_locks_one_after_the_other() -> None:
    side = Side(ME, OTHER)
    near_its_end(side)
    other = Supply(1, 5, NEW, 0, 99)
    other.phase = SupplyPhase.STORING
    side.source.supplies.running[1, NEW] = other
    for _ in range(2):
        side.source.on_locks()
        assert TimerName.LOCKS in side.timers(), "the other one continues"
    assert side.source.supplies.storing() == [other]


def test_primary_that_does_not_serve_stores_no_locks() -> None:
    """It compares counters with a replica that is back; the timer would come again and again."""
    side = Side(ME, OTHER)
    fill = moving(side, "content")
    locked(side, 2 * LOCKS_AT_ONCE + 1)
    side.lane.leading[0] = None
    side.hold(fill)
    assert side.near == []
    assert TimerName.LOCKS not in side.timers()


def test_last_chunk_says_how_long_writes_have_stopped() -> None:
    side = Side(ME, OTHER)
    fill = moving(side, "content")
    assert fill.paused_ns == 0
    side.write(b"b")
    batches = [message.batches for message in side.sent() if isinstance(message, Replicate)]
    side.out.now_ns += 50
    side.hold(fill)
    side.out.now_ns += 700
    for member in (OTHER, NEW):
        side.lane.on_replicated(member, Replicated([number for each in batches for number in each], [0]))
    [last] = side.fills()
    assert (last.last, last.paused_ns) == (True, 700)


@pytest.mark.rule("state_transfer/S-4")
def test_what_is_said_of_a_supply_that_has_ended_has_no_effect() -> None:
    side = Side()
    fill = moving(side, "content")
    side.source.on_fill_refused(NEW, FillRefused(0, 5, fill.ticket - 1, "old"))
    side.source.on_filled(NEW, Filled(0, 5, fill.ticket - 1, fill.sequence))
    side.source.on_filled(OTHER, Filled(0, 5, fill.ticket, fill.sequence))
    assert side.sent() == []
    side.rows[0] = Assignment(8, (ME, None))
    side.source.on_assignment(assigned(0, side.rows[0]))
    side.hold(fill)
    side.source.on_fill_refused(NEW, FillRefused(0, 5, fill.ticket, "late"))
    assert side.sent() == []


def test_the_master_hears_when_the_destination_holds_everything() -> None:
    side = Side()
    fill = moving(side, "last")
    side.hold(fill)
    assert side.sent() == [MigrationReady(VIEW, 0, 5)]


# -- what the receiver has to begin with


TERM = 4


def written(side: Side, count: int) -> None:
    """So many writes, of one term."""
    side.copies.held[0].term = TERM
    side.resume(0)
    for number in range(1, count + 1):
        side.write(b"k%d" % number)
    side.log.flush()
    side.log.on_durable(1)
    side.sent()


def has(lwm: int, term: int = TERM, start: int = 0, epoch: int = 0) -> Demand:
    return Demand(epoch, [Base("m", [(term, start)], lwm, lwm)])


def record(number: int) -> Record:
    return Record("m", number, Change.SET, b"k%d" % number, b"v")


def opened(side: Side, demand: Demand | None) -> list[object]:
    """The destination answers the empty chunk so; what comes of it."""
    side.source.on_request(MASTER, request())
    (first,) = side.fills()
    side.hold(first, demand=demand)
    return [effect.message if isinstance(effect, Send) else effect for effect in side.out.take()]


@pytest.mark.rule("state_transfer/S-7")
def test_who_has_missed_some_updates_gets_these() -> None:
    # An unrecorded map is told to nobody: no history of it is kept.
    side = Side(ME, OTHER, journal=True)
    written(side, 5)
    (chunk,) = (message for message in opened(side, has(3)) if isinstance(message, Fill))
    assert chunk.plans == [FillPlan("m", How.HISTORY, 5)]
    assert chunk.records == [FillRecords("m", [(TERM, 2)], [record(4), record(5)])]
    assert chunk.maps == []
    assert (side.source.flow.bytes_full, side.source.flow.bytes_history) == (0, side.source.flow.bytes_sent)


def test_who_has_missed_nothing_gets_nothing() -> None:
    side = Side(ME, OTHER, journal=True)
    written(side, 5)
    (chunk,) = (message for message in opened(side, has(5)) if isinstance(message, Fill))
    assert (chunk.plans, chunk.records, chunk.maps) == ([FillPlan("m", How.SAME, 5)], [], [])
    assert side.source.flow.bytes_sent == 0


@pytest.mark.parametrize("demand", [None, has(3, epoch=1), has(3, term=3), has(6)])
def test_who_has_something_else_gets_everything(demand: Demand | None) -> None:
    side = Side(ME, OTHER, journal=True)
    written(side, 5)
    (chunk,) = (message for message in opened(side, demand) if isinstance(message, Fill))
    assert chunk.plans == [FillPlan("m", How.FULL, 5)]
    assert len(chunk.maps[0].keys) == 5


def asked(side: Side, demand: Demand) -> ReadHistory:
    (read,) = (effect for effect in opened(side, demand) if isinstance(effect, ReadHistory))
    return read


@pytest.mark.rule("state_transfer/S-7")
def test_what_memory_does_not_hold_any_more_is_asked_of_the_journal() -> None:
    side = Side(ME, OTHER, journal=True, tail_bytes=0)
    written(side, 5)
    read = asked(side, has(2))
    assert (read.partition, read.map, read.after, read.upto) == (0, "m", 2, 5)
    side.write(b"later")
    assert side.fills() == [], "it waits for the answer"
    side.source.on_history(HistoryRead(read.ticket, [(TERM, record(n)) for n in (3, 4, 5)]))
    (chunk,) = side.fills()
    assert chunk.plans[0].how is How.HISTORY
    assert chunk.records == [FillRecords("m", [(TERM, 3)], [record(3), record(4), record(5)])]


@pytest.mark.parametrize(
    ("answer", "since", "why"),
    [
        (None, 4, "history starts at 4 and 2 was asked"),
        (None, -1, "history starts at 5 and 2 was asked"),
        ([(TERM, record(3)), (TERM, record(5))], -1, "history starts at 5 and 2 was asked"),
        ([], -1, "history starts at 5 and 2 was asked"),
    ],
)
def test_when_the_journal_does_not_hold_it_everything_is_sent_and_the_reason_told(
    answer: list[tuple[int, Record]] | None, since: int, why: str
) -> None:
    side = Side(ME, OTHER, journal=True, tail_bytes=0)
    written(side, 5)
    read = asked(side, has(2))
    side.source.on_history(HistoryRead(read.ticket, answer, since))
    (chunk,) = side.fills()
    assert chunk.plans == [FillPlan("m", How.FULL, 5)]
    side.hold(chunk)
    (last,) = side.fills()
    side.hold(last)
    (note,) = (effect for effect in side.out.take() if isinstance(effect, Note))
    assert (note.kind, note.fields["how"], note.fields["reason"]) == ("replica synchronised", "full", why)


def test_an_answer_of_the_journal_that_nobody_waits_for_has_no_effect() -> None:
    side = Side(ME, OTHER, journal=True, tail_bytes=0)
    written(side, 5)
    read = asked(side, has(2))
    side.rows[0] = Assignment(8, (ME, OTHER))
    side.source.on_assignment(assigned(0, side.rows[0]))
    side.out.take()
    side.source.on_history(HistoryRead(read.ticket, [(TERM, record(n)) for n in (3, 4, 5)]))
    assert side.out.take() == []
    assert set(side.source.leftovers.values()) == {0}


@pytest.mark.rule("state_transfer/S-8")
def test_a_repair_gives_way_to_a_migration() -> None:
    side = Side(ME, OTHER)
    side.write(b"a")
    told: list[str] = []
    side.source.refill(0, OTHER, told.append)
    (first,) = side.fills()
    assert first.compare
    side.source.on_request(MASTER, request())
    assert told == ["the partition is moving"]
    ended, fill = side.sent()
    assert ended == FillEnded(0, 5, first.ticket, "the partition is moving")
    assert isinstance(fill, Fill)
    assert fill.joining
    side.source.refill(0, OTHER, told.append)
    assert told[1:] == ["the partition is moving"]
    side.source.refill(0, NEW, told.append)
    assert told[2:] == ["new is no backup of partition 0"]
