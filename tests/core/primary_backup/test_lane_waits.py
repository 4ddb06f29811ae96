"""Whom an answer of the lane waits for, how long, and what is left of it: acknowledgement in all its corners."""

from __future__ import annotations

import pytest
from tests.core.primary_backup.test_lane import BEN, CAL, DAN, ME, PARTITIONS, SMALL, Primary, rest

from holdfast.config import LimitSettings, MapSettings, PartitionSettings, ReplicationSettings, Settings
from holdfast.core.effects import SetTimer
from holdfast.core.journal.log import Log
from holdfast.core.messages import Replicate, Replicated
from holdfast.core.model.decisions import Update
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.journal_entries import Began
from holdfast.core.model.object_names import part_name
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import Replica
from holdfast.core.store.service_state import ServiceState


class Office(Primary):
    """The same with maps, limits and patience of one's choice, and perhaps a journal."""

    def __init__(
        self,
        *,
        journal: bool = False,
        limits: LimitSettings | None = None,
        patience_ms: int = 5000,
        tail_bytes: int = 1_000_000,
        **maps: MapSettings,
    ) -> None:
        super().__init__()
        self.out = Outbox()
        settings = Settings(
            partitions=PartitionSettings(count=PARTITIONS),
            maps={"default": MapSettings(backups=1), **maps},
            limits=limits or LimitSettings(),
            replication=ReplicationSettings(backup_timeout_ms=patience_ms, tail_bytes=tail_bytes),
        )
        self.log = Log(self.out, on=journal)
        self.lane = Lane(ME, settings, self.out, self.log)
        self.rows = [Assignment(1, (ME, CAL if partition % 2 else BEN)) for partition in range(PARTITIONS)]
        self.copies = [PartitionCopy(partition, 0) for partition in range(PARTITIONS)]
        self.lane.attach(self.rows)
        self.lane.serving = list(self.copies)

    def set(self, partition: int, name: str = "m", value: bytes = b"value") -> None:
        self.lane.set(self.copies[partition], name, b"key", value, 0, 0, 0)

    def find_nothing(self, *partitions: int, of: str = "m") -> None:
        for partition in partitions:
            assert self.lane.remove(self.copies[partition], of, b"nothing") is None

    def close_batch(self, name: str) -> None:
        self.lane.close_batch(lambda known: self.tell(name, known))

    @property
    def left(self) -> int:
        return sum(self.lane.leftovers.values()) + self.lane.backlog.bytes


@pytest.fixture
def office() -> Office:
    return Office()


def sections(messages: list[Replicate]) -> list[tuple[int, list[bytes]]]:
    """Partitions, and the keys of the records."""
    return [
        (section.partition, [record.key for record in section.all_records()])
        for message in messages
        for section in message.sections
    ]


# -- answers that rest on what others wrote


def test_an_answer_waits_for_a_write_that_has_joined_an_earlier_batch_of_the_turn(office: Office) -> None:
    """It may have seen that write, which nobody has acknowledged."""
    office.write("first", 2)
    rest(office, "before", 0)
    office.write("joins", 0)
    rest(office, "after", 0)
    (message,) = office.sent()[BEN]
    written, resting = message.batches
    office.lane.on_replicated(BEN, Replicated([resting], [0, 2]))
    assert office.told == {}
    office.lane.on_replicated(BEN, Replicated([written], [0, 2]))
    assert office.told == dict.fromkeys(("first", "joins", "before", "after"), True)


def test_answers_of_one_turn_that_rest_on_several_partitions_wait_for_each_others_backups(
    office: Office,
) -> None:
    rest(office, "even", 0)
    rest(office, "odd", 1)
    messages = office.sent()
    assert {to: sections(told) for to, told in messages.items()} == {BEN: [(0, [])], CAL: [(1, [])]}
    for to, (message,) in messages.items():
        assert office.told == {}
        office.acknowledge(to, message)
    assert office.told == {"even": True, "odd": True}


def test_what_is_answered_after_a_partition_was_lost_in_the_same_turn_waits_for_nothing_that_has_ended(
    office: Office,
) -> None:
    rest(office, "lost", 0)
    office.lane.abandon(0)
    assert office.told == {"lost": False}
    rest(office, "stays", 1)
    messages = office.sent()
    assert {to: sections(told) for to, told in messages.items()} == {CAL: [(1, [])]}
    for to, (message,) in messages.items():
        office.acknowledge(to, message)
    assert office.told == {"lost": False, "stays": True}
    assert office.left == 0


def test_what_one_partition_has_nobody_to_ask_about_another_one_is_asked_about_all_the_same(
    office: Office,
) -> None:
    office.row(1, ME)
    office.find_nothing(0, 1)
    office.close_batch("both")
    assert office.told == {}
    office.acknowledge(BEN, office.sent()[BEN][0])
    assert (office.told, office.left) == ({"both": True}, 0)


def test_a_write_that_waits_for_nobody_does_not_make_the_rest_of_its_buffer_unknown(office: Office) -> None:
    """Not even if its partition goes away in the same turn: alone, it would have been told at once."""
    office.row(1, ME)
    office.set(1)
    office.find_nothing(0)
    office.close_batch("both")
    office.rows[1] = Assignment(3, (DAN, None))
    office.lane.abandon(1)
    office.acknowledge(BEN, office.sent()[BEN][0])
    assert (office.told, office.left) == ({"both": True}, 0)


def test_what_an_answer_has_seen_is_unknown_and_so_is_the_answer(office: Office) -> None:
    """Its own backup has confirmed in time; but the write that it may have seen was not acknowledged."""
    office.write("write", 0)
    office.sent()
    office.pass_time(3)
    rest(office, "rest", 0)
    (asked,) = office.sent()[BEN]
    office.acknowledge(BEN, asked)
    assert office.told == {}
    office.pass_time(2.1)
    assert office.told == {"write": False, "rest": False}
    assert (
        office.why["rest"]
        == office.why["write"]
        == "not acknowledged within 5 s: backup ben (partitions [0])"
    )


def test_a_question_that_nobody_answers_in_time_is_over(office: Office) -> None:
    """There is nothing to be delivered later, unlike a write."""
    rest(office, "rest", 0)
    office.sent()
    office.pass_time(5)
    assert (office.told, office.left) == ({"rest": False}, 0)


def asynchronous() -> Office:
    """One backup is waited for, and one is not."""
    office = Office(m=MapSettings(backups=1, async_backups=1), new=MapSettings(backups=1, async_backups=1))
    office.row(0, ME, BEN, CAL)
    return office


@pytest.mark.parametrize("of", ["m", "new"])
@pytest.mark.parametrize("moved", [False, True])
def test_only_backups_that_are_waited_for_are_asked(of: str, moved: bool) -> None:
    office = asynchronous()
    office.set(0)
    office.close_batch("write")
    (message,) = office.sent()[BEN]
    office.acknowledge(BEN, message)
    rest(office, "rest", 0, of)
    asked = office.sent()
    if moved:
        office.row(0, ME, BEN, DAN)
        asked = office.sent()
        assert sections(asked[DAN]) == [(0, [b"key"])], "it misses the write"
    else:
        assert CAL not in asked
    office.acknowledge(BEN, asked[BEN][0])
    assert office.told == {"write": True, "rest": True}


def test_a_backup_that_is_missing_is_not_asked() -> None:
    office = Office(m=MapSettings(backups=2))
    office.row(0, ME, BEN, None)  # type: ignore[arg-type]
    rest(office, "rest", 0)
    office.acknowledge(BEN, office.sent()[BEN][0])
    assert (office.told, office.left) == ({"rest": True}, 0)


def test_an_answer_waits_for_the_disk_if_any_of_its_maps_does() -> None:
    office = Office(journal=True, a=MapSettings(backups=0, journal="sync"), b=MapSettings(backups=0))
    for name in ("a", "b"):
        office.lane.open(office.copies[0], name)
    office.log.note(Began(0, 0))
    office.log.flush()
    for name in ("a", "b"):
        office.find_nothing(0, of=name)
    office.close_batch("both")
    office.lane.flush()
    assert office.told == {}
    office.log.on_durable(1)
    assert office.told == {"both": True}


@pytest.mark.parametrize("backups", [0, 1])
def test_an_answer_of_a_map_that_is_not_written_down_waits_for_no_disk(backups: int) -> None:
    office = Office(journal=True, m=MapSettings(backups=backups))
    office.lane.open(office.copies[0], "m")
    office.log.note(Began(0, 0))
    office.log.flush()
    rest(office, "rest", 0)
    office.out.take()
    for to, (message,) in office.sent().items():
        office.acknowledge(to, message)
    assert office.told == {"rest": True}


def test_many_answers_that_have_seen_one_batch_wait_for_it_once(office: Office) -> None:
    office.write("write", 0, 2)
    (written,) = office.sent()[BEN]
    office.find_nothing(0, 2)
    office.close_batch("rest")
    (asked,) = office.sent()[BEN]
    office.acknowledge(BEN, asked)
    assert office.told == {}
    office.acknowledge(BEN, written)
    assert (office.told, office.left) == ({"write": True, "rest": True}, 0)


def test_a_row_without_backups_ends_a_write_and_what_rests_on_it(office: Office) -> None:
    office.write("write", 0)
    rest(office, "rest", 0)
    office.sent()
    office.row(0, ME)
    assert (office.told, office.left) == ({"write": True, "rest": True}, 0)


def test_who_loses_a_partition_answers_nothing_that_rests_on_it(office: Office) -> None:
    """The writes, the answers that have seen them, and what was written after these."""
    office.write("write", 0)
    office.sent()
    rest(office, "rest", 0)
    office.sent()
    office.write("later", 0)
    office.sent()
    office.lane.abandon(0)
    assert (office.told, office.left) == (dict.fromkeys(("write", "rest", "later"), False), 0)


def test_what_rests_on_a_partition_that_is_lost_is_forgotten_for_that_one_alone(office: Office) -> None:
    office.find_nothing(0, 2)
    office.close_batch("both")
    (asked,) = office.sent()[BEN]
    office.lane.abandon(0)
    assert office.told == {"both": False}
    assert office.lane.leftovers["batches"] == 3, "waiting, of one partition, and the youngest there"
    office.acknowledge(BEN, asked)
    assert office.left == 0


# -- async backups


def slow() -> Office:
    """Cal, an async backup of map `a` and of nothing that is waited for, is slow: it holds nothing."""
    office = Office(limits=SMALL, a=MapSettings(backups=0, async_backups=1))
    for partition in (0, 2):
        office.row(partition, ME, CAL)
    while CAL not in office.lane.backlog.slow:
        office.set(0, "a", b"v" * 1000)
        office.close_batch("fill")
        office.sent()
        assert office.told.pop("fill") is True
    return office


def test_who_waits_for_a_slow_async_backup_alone_waits() -> None:
    office = slow()
    office.set(0, "a")
    office.close_batch("write")
    rest(office, "rest", 0, "a")
    (message,) = office.sent()[CAL]
    assert office.told == {}
    office.acknowledge(CAL, message)
    assert office.told == {"write": True, "rest": True}


def test_who_asks_again_waits_for_a_slow_async_backup_too_and_for_others_not() -> None:
    office = Office(limits=SMALL, a=MapSettings(backups=0, async_backups=1))
    office.row(0, ME, CAL)

    def request(name: str) -> None:
        office.set(0, "a")
        office.lane.remember(office.copies[0], name.encode(), None, 0)
        office.close_batch(name)
        office.lane.when_held(0, name.encode(), lambda known: office.tell(f"{name} again", known))

    request("quick")
    assert office.told == {"quick": True, "quick again": True}
    office = slow()
    request("slow")
    (message,) = office.sent()[CAL]
    assert office.told == {}
    office.acknowledge(CAL, message)
    assert office.told == {"slow": True, "slow again": True}


def test_what_is_not_waited_for_any_more_is_still_to_be_delivered() -> None:
    office = slow()
    office.set(2, "a")
    office.close_batch("write")
    office.sent()
    office.pass_time(6)
    assert office.told == {"write": True}
    assert office.lane.unfinished(2), "or nobody would send it again"
    office.row(2, ME, DAN)
    (message,) = office.sent()[DAN]
    assert sections([message]) == [(2, [b"key"])]
    office.acknowledge(DAN, message)
    assert not office.lane.unfinished(2)


def behind(office: Office, *values: bytes) -> list[Replicate]:
    """Writes of map `a`, which waits for Ben and not for Cal; what goes to Cal."""
    messages = []
    for value in values:
        office.set(0, "a", value)
        office.close_batch("write")
        messages += office.sent()[CAL]
    return messages


def test_an_async_backup_is_slow_until_half_of_it_is_gone() -> None:
    """And what is not known to be held counts all the time, however often somebody looks."""
    office = Office(limits=SMALL, a=MapSettings(backups=1, async_backups=1))
    office.row(0, ME, BEN, CAL)
    one, two, three = behind(office, b"v" * 20_000, b"v" * 20_000, b"v" * 30_000)
    assert office.lane.backlog.slow == {CAL}
    office.acknowledge(CAL, one)
    office.lane.on_replicated(CAL, Replicated(three.batches, [3]))
    assert office.lane.backlog.slow == {CAL}, "50 kB of 64"
    office.acknowledge(CAL, two)
    assert office.lane.backlog.slow == set(), "though Ben holds nothing"


def test_what_an_async_backup_was_waited_for_in_vain_counts_as_what_it_does_not_hold() -> None:
    office = Office(limits=SMALL, a=MapSettings(backups=1, async_backups=1))
    office.row(0, ME, BEN, CAL)
    first = behind(office, b"v" * 40_000, b"v" * 30_000)
    assert office.lane.backlog.slow == {CAL}
    (last,) = behind(office, b"v" * 40_000)
    office.pass_time(6)
    for message in first:
        office.acknowledge(CAL, message)
    assert office.lane.backlog.slow == {CAL}
    office.acknowledge(CAL, last)
    assert office.lane.backlog.slow == set()


def test_of_a_write_whose_callers_were_told_nobody_waits_for_ever() -> None:
    """Its row changes, and it waits anew for a slow async backup: with nobody to tell."""
    office = Office(limits=SMALL, a=MapSettings(backups=1, async_backups=1))
    office.row(0, ME, BEN, CAL)
    behind(office, b"v" * 40_000, b"v" * 30_000)
    office.set(0, "a")
    office.lane.remember(office.copies[0], b"request", None, 0)
    office.close_batch("write")
    office.sent()
    office.pass_time(6)
    office.row(0, ME, DAN, CAL)
    for message in office.sent()[DAN]:
        office.acknowledge(DAN, message)
    office.pass_time(6)
    office.told.clear()
    office.lane.when_held(0, b"request", lambda known: office.tell("again", known))
    assert office.told == {"again": True}


# -- the disk


def test_who_asks_again_waits_for_the_disk_too() -> None:
    office = Office(journal=True, m=MapSettings(backups=0, journal="sync"))
    office.set(0)
    office.lane.remember(office.copies[0], b"request", None, 0)
    office.close_batch("write")
    office.lane.when_held(0, b"request", lambda known: office.tell("again", known))
    assert office.told == {}
    office.lane.flush()
    office.log.flush()
    office.log.on_durable(1)
    assert office.told == {"write": True, "again": True}


def test_one_buffer_of_a_turn_waits_for_the_disk_and_another_for_a_backup() -> None:
    office = Office(journal=True, disk=MapSettings(backups=0, journal="sync"))
    office.set(0, "disk")
    office.close_batch("disk")
    office.set(0)
    office.close_batch("backup")
    office.lane.flush()
    office.log.flush()
    office.log.on_durable(1)
    assert office.told == {"disk": True}
    office.lane.on_replicated(BEN, Replicated([2], [0]))
    assert office.told == {"disk": True, "backup": True}


# -- clients that wait for backups themselves


class Everybody:
    def reached(self, client: bytes, members: object) -> bool:
        return True


def collecting(office: Office, name: str, *, by: object = Everybody) -> None:
    office.lane.batches.ack_clients = Everybody() if by else None  # type: ignore[assignment]
    office.lane.close_batch_for(lambda known: office.tell(name, known), b"client", [1])


def test_without_such_clients_everybody_waits_here(office: Office) -> None:
    office.set(0)
    collecting(office, "write", by=None)
    (message,) = office.sent()[BEN]
    assert (office.told, message.acks) == ({}, [])
    office.acknowledge(BEN, message)
    assert office.told == {"write": True}


def test_what_no_backup_can_tell_the_client_is_waited_for_here(office: Office) -> None:
    """A backup tells of records that it holds: not that an answer that changed nothing still holds."""
    office.set(0)
    office.find_nothing(1)
    collecting(office, "both")
    messages = office.sent()
    assert [message.acks for told in messages.values() for message in told] == [[], []]
    for to, (message,) in messages.items():
        assert office.told == {}
        office.acknowledge(to, message)
    assert office.told == {"both": True}
    office = slow()
    office.set(0, "a")
    collecting(office, "slow")
    assert office.told == {}


def test_who_has_written_nothing_waits_for_nobody(office: Office) -> None:
    told: list[bool] = []
    office.lane.close_batch_for(told.append, b"client", [1])
    assert (told, office.sent(), office.left) == ([True], {}, 0)


def test_who_has_only_found_nothing_waits_here(office: Office) -> None:
    office.find_nothing(0)
    collecting(office, "rest")
    assert office.told == {}
    office.acknowledge(BEN, office.sent()[BEN][0])
    assert office.told == {"rest": True}


def test_the_first_answers_say_of_no_backup_that_it_will_tell(office: Office) -> None:
    """A client that was told so would wait for a word that nobody sends."""
    counts: list[int] = []
    office.set(0)
    office.lane.close_batch(lambda known: counts.append(office.lane.acks))
    office.acknowledge(BEN, office.sent()[BEN][0])
    office.lane.batches.ack_clients = Everybody()  # type: ignore[assignment]
    for _ in range(2):
        office.set(0)
        office.lane.close_batch_for(lambda known: counts.append(office.lane.acks), b"client", [1])
        office.lane.close_batch(lambda known: counts.append(office.lane.acks))
    assert counts == [0, 1, 0, 1, 0]


# -- what is left, and when it is looked at


@pytest.mark.parametrize(
    ("patience_ms", "timer_ns"),
    [(1, MILLISECOND), (4, MILLISECOND), (800, 100 * MILLISECOND), (60_000, 500 * MILLISECOND)],
)
def test_how_often_it_is_looked_whose_backups_are_late(patience_ms: int, timer_ns: int) -> None:
    office = Office(patience_ms=patience_ms)
    office.write("a", 0)
    office.lane.flush()
    assert [one for one in office.out.take() if isinstance(one, SetTimer)] == [SetTimer("backups", timer_ns)]


def test_a_caller_is_told_when_its_time_is_up(office: Office) -> None:
    office.write("a", 0)
    office.sent()
    office.pass_time(5)
    assert office.told == {"a": False}


def test_there_is_one_timer_while_somebody_waits_and_none_else(office: Office) -> None:
    office.row(0, ME)
    office.write("alone", 0)
    office.sent()
    assert office.timers == [], "nobody waits"
    office.write("a", 2)
    (message,) = office.sent()[BEN]
    office.pass_time(1)
    office.write("b", 2)
    more = office.sent()[BEN]
    assert office.timers == ["backups"] * 2, "that goes on"
    for one in (message, *more):
        office.acknowledge(BEN, one)
    office.pass_time(1)
    office.sent()
    assert office.timers == ["backups"] * 2
    office.write("c", 2)
    office.sent()
    assert office.timers == ["backups"] * 3, "it begins again"


def test_writes_are_not_refused_as_long_as_waiting_may_help() -> None:
    office = Office(limits=SMALL)
    while not office.lane.backlog.crowded:
        office.write("a", 0)
        office.sent()
    office.pass_time(1)
    assert not office.lane.backlog.refusing
    office.pass_time(5)
    assert office.lane.backlog.refusing


def test_what_nobody_waits_for_leaves_nothing(office: Office) -> None:
    office.row(0, ME)
    office.write("a", 0)
    office.sent()
    assert (office.told, office.left) == ({"a": True}, 0)


def test_a_batch_that_is_over_is_not_joined(office: Office) -> None:
    """Nobody would ever end it: a partition that is to be handed over would wait for that."""
    for partition in (0, 2):
        office.row(partition, ME)
    office.write("a", 0)
    office.lane.abandon(0)
    office.write("b", 2)
    office.sent()
    assert not office.lane.unfinished(2)
    assert office.left == 0


def test_a_caller_that_fails_does_not_silence_the_others(office: Office) -> None:
    def fails(known: bool) -> None:
        raise ZeroDivisionError

    office.set(0)
    office.lane.close_batch(fails)
    with pytest.raises(ZeroDivisionError):
        office.acknowledge(BEN, office.sent()[BEN][0])
    office.write("next", 0)
    office.acknowledge(BEN, office.sent()[BEN][0])
    assert office.told == {"next": True}


def test_it_says_since_when_the_oldest_waits(office: Office) -> None:
    assert office.lane.batches.oldest_ns is None
    messages = []
    for moment in (3, 5):
        office.out.now_ns = moment
        office.write("a", 0)
        messages += office.sent()[BEN]
    office.out.now_ns = 9
    assert (
        office.lane.batches.oldest_ns,
        office.lane.batches.waits_since(0),
        office.lane.batches.waits_since(1),
    ) == (
        3,
        3,
        9,
    )
    office.acknowledge(BEN, messages[0])
    assert (office.lane.batches.oldest_ns, office.lane.batches.waits_since(0)) == (5, 5)


def test_what_was_written_and_not_sent_is_told_in_its_order(office: Office) -> None:
    """Change streams tell nothing from the first of these on."""
    office.write("a", 0)
    office.set(0)
    assert [record.counter for _, _, record in office.lane.unsent] == [1, 2]


def test_it_says_what_is_under_way(office: Office) -> None:
    office.set(0)
    office.find_nothing(2)
    assert office.lane.leftovers["records of an open buffer"] == 2
    office.close_batch("both")
    left = office.lane.leftovers
    assert left["records of an open buffer"] == 0
    assert left["records not sent"] == 1 + 2 + 1, "a record, two batches, one of which may be joined"
    assert left["batches"] == 2 + 2 + 1, "each is of a partition, and one the youngest question of its own"


# -- who gets the records of a map


def test_records_say_with_which_row_their_primary_took_office(office: Office) -> None:
    """By that backups know whose history they hold: not by the row of the moment."""
    office.copies[0].term = 3
    office.row(0, ME, BEN)
    office.row(0, ME, DAN)
    office.write("a", 0)
    (section,) = office.sent()[DAN][0].sections
    assert (section.term, section.version) == (3, 3)
    office.row(0, ME, CAL)
    (section,) = office.sent()[CAL][0].sections
    assert (section.term, section.version) == (3, 4)


def queued(office: Office) -> int:
    """How many records two changes of map `m` in partition 0 leave for others."""
    office.set(0)
    office.lane.remove(office.copies[0], "m", b"key")
    return office.lane.opened


def test_what_nobody_will_ever_want_is_not_queued() -> None:
    alone = Office(m=MapSettings(backups=0))
    assert queued(alone) == 0
    alone.row(0, ME, BEN)
    assert queued(alone) == 0, "nor once the row has changed: the map has no backups"
    new = Office()
    new.rows[0] = Assignment(1, (ME, None))
    assert queued(new) == 0, "nobody has been missing yet"
    forgetful = Office(tail_bytes=0)
    forgetful.rows[0] = Assignment(2, (ME, None))
    assert queued(forgetful) == 0, "who is missing is to be filled anew anyway"


def test_what_a_backup_that_is_missing_will_want_is_queued(office: Office) -> None:
    office.rows[0] = Assignment(2, (ME, None))
    assert queued(office) == 2


def test_changes_that_are_told_are_remembered_though_there_are_no_backups() -> None:
    """And longer than for backups, if that was asked for."""
    office = Office(tail_bytes=1000, m=MapSettings(backups=0, changes_bytes=100_000))
    for _ in range(20):
        office.set(0, value=b"v" * 100)
        office.close_batch("write")
    office.sent()
    assert office.copies[0].maps["m"].remembered_from == 0


@pytest.mark.parametrize("journal", [True, False])
def test_only_a_member_with_a_journal_writes_down_and_of_services_nothing(*, journal: bool) -> None:
    office = Office(journal=journal, default=MapSettings(backups=1, journal="sync", changes_bytes=100_000))
    office.set(0)
    name = part_name("service")
    share = office.copies[0].services[name] = Replica(name, ServiceState(Silent()))
    office.lane.retarget(office.copies[0])
    held = office.copies[0].maps["m"]
    assert (held.journal, held.changes) == ("sync" if journal else "off", 100_000)
    assert (share.journal, share.changes) == ("off", 0)


class Silent:
    """A share that says nothing."""

    def apply(self, update: bytes) -> bytes:
        return b""

    ask = apply

    def supply(self) -> list[bytes]:
        return []

    def receive(self, piece: bytes) -> None:
        """There is nothing to take."""


def test_a_service_without_backups_queues_nothing() -> None:
    office = Office(default=MapSettings(backups=0))
    held = office.copies[0].services["service"] = Replica("service", ServiceState(Silent()))
    office.lane.retarget(office.copies[0])
    assert office.lane.carry_out(office.copies[0], held, Update(Change.CALL, value=b"update")) == b""
    assert office.lane.opened == 0


def test_digests_are_kept_up_to_date_where_somebody_may_compare_them(office: Office) -> None:
    office.set(0)
    held = office.copies[0].maps["m"]
    held.state.digests()
    office.row(0, ME, DAN)
    assert held.state.touched is not None
    alone = Office(m=MapSettings(backups=0))
    held = alone.lane.open(alone.copies[0], "m")
    held.state.digests()
    alone.row(0, ME, DAN)
    assert held.state.touched is None, "each change would cost more, for nobody"
