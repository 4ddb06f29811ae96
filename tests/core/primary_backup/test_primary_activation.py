"""How a new primary takes office: whom it asks, what it waits for, and what makes it begin again."""

from __future__ import annotations

from itertools import permutations

import pytest

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Send, SetTimer
from holdfast.core.journal.log import Log
from holdfast.core.messages import Enlist, Enlisted, Message
from holdfast.core.model import notices as n
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.transactions import KeyLock, encode, lock_key
from holdfast.core.model.views import View
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.primary_backup.primary_activation import LeadershipPhase, LeadershipStep, PrimaryActivation
from holdfast.core.store import key_locks
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.errors import InvariantBroken
from holdfast_lab.sim.ablations.switching import ablated

ME, B, C, D = MemberId("me"), MemberId("b"), MemberId("c"), MemberId("d")
SETTINGS = Settings(
    partitions=PartitionSettings(count=2),
    maps={"m": MapSettings(backups=2), "shallow": MapSettings(backups=1)},
)


class Office:
    """One member that is named the owner of partitions, and what it asks for."""

    def __init__(self, *rows: Assignment) -> None:
        self.rows = list(rows) or [Assignment(5, (ME, B, C))]
        self.out = Outbox(self)
        self.log = Log(self.out, on=False)
        self.copies = LocalReplicas(ME, SETTINGS, self.out, self.rows, Log(self.out, on=False))
        for partition in range(len(self.rows)):
            copy = self.copies.held[partition] = PartitionCopy(partition, 0)
            for name in ("m", "shallow"):
                copy.open(name).apply(Record(name, 1, Change.SET, b"key", b"value"), 0)
        self.fills: list[tuple[int, MemberId]] = []
        self.served: list[int] = []
        self.disk: list[n.Notice] = []
        self.log.notify_when_durable = self.disk.append  # type: ignore[method-assign]
        self.activation = PrimaryActivation(ME, self.out, self.rows, self.copies, self.log)

    def on_notice(self, notice: n.Notice) -> None:
        match notice:
            case n.ReplicaDiffers(partition, member):
                self.fills.append((partition, member))
            case n.LeadershipTaken(partition):
                self.served.append(partition)
            case n.CopyDurable():
                self.activation.on_durable(notice)

    def begin(self, *partitions: int) -> None:
        for partition in partitions or (0,):
            self.activation.begin(partition)
        self.activation.flush()

    def durable(self) -> None:
        told, self.disk[:] = list(self.disk), []
        for one in told:
            self.on_notice(one)

    def sent(self) -> list[tuple[MemberId, Message]]:
        return [(one.to, one.message) for one in self.out.take() if isinstance(one, Send)]

    def timers(self) -> set[str]:
        return {one.name for one in self.out.take() if isinstance(one, SetTimer)}

    def enlisted(self, *by: MemberId, partition: int = 0, version: int = 5, same: bool = True) -> None:
        for member in by:
            self.activation.on_enlisted(member, Enlisted([(partition, version, same)]))

    def leftovers(self) -> dict[str, int]:
        return {what: count for what, count in self.activation.leftovers.items() if count}


def test_a_new_primary_asks_its_replicas_whether_they_hold_what_it_holds() -> None:
    office = Office()
    office.begin()
    terms = {name: term for name, _, term in office.copies.held[0].counters()}
    m, shallow = ("m", 1, terms["m"]), ("shallow", 1, terms["shallow"])
    assert office.sent() == [(B, Enlist([(0, 5, [m, shallow])])), (C, Enlist([(0, 5, [m])]))]
    office.activation.flush()
    assert office.sent() == [], "once each"
    assert (office.served, office.activation.active, office.activation.pending) == ([], set(), 1)


@pytest.mark.rule("primary_backup/O-1")
def test_it_serves_when_all_have_said_so_and_its_own_copy_is_durable_in_whatever_order() -> None:
    for order in permutations([B, C, ME]):
        office = Office()
        office.begin()
        for one in order:
            assert office.served == []
            assert office.leftovers() == {"primaries taking office": 1}
            if one == ME:
                office.durable()
            else:
                office.enlisted(one)
        assert office.served == [0]
        assert office.activation.active == {0}
        assert (office.activation.pending, office.leftovers()) == (0, {})


@pytest.mark.rule("primary_backup/O-6")
@pytest.mark.parametrize("cancelled", [False, True])
def test_primary_serves_when_it_knows_the_locks_that_it_was_left(
    monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    monkeypatch.setattr(key_locks, "READ_AT_ONCE", 2)
    office = Office()
    locks = office.copies.held[0].locks
    locks.begin_restoring(
        {lock_key("m", b"%d" % number): encode(KeyLock(b"1" * 16, ME)) for number in range(5)}
    )
    office.begin()
    office.enlisted(B, C)
    office.sent()
    office.activation.on_locks()
    assert (office.served, len(locks.held)) == ([], 2), "its disk is waited for first"
    office.durable()
    assert office.served == []
    if cancelled:
        office.activation.cancel(0)
        office.timers()
        office.activation.on_locks()
        assert (office.served, office.timers()) == ([], set())
        office.begin()
        office.enlisted(B, C)
        office.durable()
    while office.served == []:
        assert TimerName.RESTORE in office.timers()
        assert not locks.restored
        office.activation.on_locks()
    assert (office.served, len(locks.held)) == ([0], 5)
    assert office.timers() == set()


def test_the_phase_of_an_office_is_told_and_what_leads_to_none_is_an_error_by_name() -> None:
    office = Office()
    told = [office.activation.phase(0)]
    office.begin()
    told.append(office.activation.phase(0))
    office.durable()
    office.enlisted(B, C)
    told.append(office.activation.phase(0))
    office.activation.cancel(0)
    told.append(office.activation.phase(0))
    phase = LeadershipPhase
    assert told == [phase.NONE, phase.ENLISTING, phase.SERVING, phase.NONE]
    with pytest.raises(InvariantBroken, match="the primary of a partition"):
        office.activation._step(0, LeadershipStep.EQUAL)


@ablated("activate")
def test_without_that_rule_it_serves_at_once() -> None:
    office = Office()
    office.begin()
    assert office.served == [0]
    assert office.activation.active == {0}
    assert (office.sent(), office.disk) == ([], [])


def test_alone_it_serves_when_its_copy_is_durable() -> None:
    office = Office(Assignment(5, (ME, None)))
    office.begin()
    assert (office.sent(), office.served) == ([], [])
    office.durable()
    assert office.served == [0]


def test_what_only_the_primary_before_saw_in_use_counts_as_used_when_another_one_takes_office() -> None:
    """Reads are not replicated: an entry that was read all the time would end with the primary that saw it."""
    office = Office(Assignment(5, (ME, None)))
    held = office.copies.held[0].maps["m"]
    held.apply(Record("m", 2, Change.SET, b"read often", b"value", max_idle_ms=1000), 0)
    office.out.now_ns = 10_000 * MILLISECOND
    office.begin()
    office.durable()
    assert not held.state.expired(b"read often", 10_999 * MILLISECOND, touch=False)
    assert held.state.expired(b"read often", 11_000 * MILLISECOND, touch=False)


def test_a_backup_that_is_behind_is_neither_asked_nor_waited_for() -> None:
    office = Office(Assignment(5, (ME, B, C), behind=(B,)))
    office.begin()
    assert [to for to, _ in office.sent()] == [C]
    office.durable()
    office.enlisted(C)
    assert office.served == [0]


@pytest.mark.rule("primary_backup/O-2")
def test_a_replica_that_holds_something_else_is_filled_first() -> None:
    office = Office()
    office.begin()
    office.durable()
    office.enlisted(C)
    office.enlisted(B, same=False)
    assert (office.fills, office.served) == ([(0, B)], [])
    office.activation.holds(0, B)
    assert office.served == [0]


@pytest.mark.parametrize(
    ("sender", "partition", "version"),
    [(B, 0, 4), (B, 0, 6), (B, 1, 5), (D, 0, 5), (ME, 1, 5)],
    ids=["earlier", "later", "another partition", "a stranger", "nobody waits"],
)
@pytest.mark.parametrize("same", [True, False])
def test_words_that_are_not_of_this_office_have_no_effect(
    sender: MemberId, partition: int, version: int, *, same: bool
) -> None:
    office = Office(Assignment(5, (ME, B)), Assignment(5, (ME, B)))
    office.begin()
    office.durable()
    office.enlisted(sender, partition=partition, version=version, same=same)
    assert (office.fills, office.served) == ([], [])
    office.enlisted(B)
    assert office.served == [0]


def test_who_has_been_filled_is_not_filled_again_by_a_late_word() -> None:
    office = Office()
    office.begin()
    office.enlisted(B)
    office.enlisted(B, same=False)
    office.enlisted(B)
    assert (office.fills, office.served, office.activation.pending) == ([], [], 1)


def test_words_about_several_partitions_count_each_for_itself() -> None:
    office = Office(Assignment(5, (ME, B)), Assignment(7, (ME, B)))
    office.begin(0, 1)
    ((to, message),) = office.sent()
    assert to == B
    assert isinstance(message, Enlist)
    assert [(partition, version) for partition, version, _ in message.partitions] == [(0, 5), (1, 7)]
    office.durable()
    office.activation.on_enlisted(B, Enlisted([(0, 4, True), (1, 7, True)]))
    assert (office.served, office.activation.active) == ([1], {1})
    assert office.activation.pending == 1
    office.activation.on_enlisted(B, Enlisted([(1, 7, True), (0, 5, True)]))
    assert (office.served, office.activation.active) == ([1, 0], {0, 1})


def test_a_copy_that_has_become_durable_for_an_earlier_row_does_not_count_for_the_new_one() -> None:
    office = Office(Assignment(5, (ME, None)))
    office.begin()
    office.rows[0] = Assignment(6, (ME, None))
    office.durable()
    assert office.served == []
    office.begin()
    office.durable()
    assert office.served == [0]


def test_what_is_not_awaited_any_more_makes_nobody_serve() -> None:
    office = Office(Assignment(5, (ME, B)))
    office.begin()
    office.activation.cancel(0)
    assert (office.activation.pending, office.leftovers()) == (0, {})
    office.durable()
    office.enlisted(B)
    office.activation.holds(0, B)
    assert (office.served, office.activation.active) == ([], set())


@pytest.mark.rule("primary_backup/O-3")
def test_when_a_replica_comes_back_the_primary_stops_and_begins_again() -> None:
    office = Office(Assignment(5, (ME, B)))
    office.begin()
    office.durable()
    office.enlisted(B)
    office.sent()
    office.begin()
    assert office.activation.active == set()
    assert [to for to, _ in office.sent()] == [B]
    office.enlisted(B)
    assert office.served == [0], "its own copy is to be durable again"
    office.durable()
    assert office.served == [0, 0]


def test_what_is_cancelled_before_it_was_sent_is_not_asked() -> None:
    office = Office(Assignment(5, (ME, B)), Assignment(5, (ME, B)))
    office.activation.begin(0)
    office.activation.begin(1)
    assert office.leftovers() == {"primaries taking office": 2, "enlistments not sent": 1}
    office.activation.cancel(0)
    office.activation.flush()
    ((_, message),) = office.sent()
    assert isinstance(message, Enlist)
    assert [partition for partition, _, _ in message.partitions] == [1]


def test_each_order_of_two_terms_of_office_ends_with_the_second_alone() -> None:
    """What was said for the row before may arrive at any time; nobody serves before all have spoken of the new one."""
    old = [("said", B, 5), ("said", C, 5)]
    new = [("said", B, 6), ("said", C, 6), ("durable", ME, 6)]
    for order in permutations([*old, *new]):
        office = Office(Assignment(6, (ME, B, C)))
        office.begin()
        left = set(new)
        for step in order:
            what, member, version = step
            if what == "durable":
                office.durable()
            else:
                office.enlisted(member, version=version)
            left.discard(step)
            assert office.served == ([] if left else [0])


def in_view(*, recovering: bool) -> n.ViewInstalled:
    view = View(7, "id", [], recovering=recovering)
    return n.ViewInstalled(None, view, True, frozenset(), frozenset())


@pytest.mark.rule("primary_backup/O-5")
def test_a_primary_waits_for_the_view_that_ends_the_recovery_and_for_its_disk() -> None:
    office = Office(Assignment(5, (ME, None)), Assignment(6, (ME, B)))
    office.activation.on_view(in_view(recovering=True))
    office.begin(0, 1)
    office.enlisted(B, partition=1, version=6)
    office.activation.on_view(in_view(recovering=True))
    assert (office.disk, office.served, office.activation.pending) == ([], [], 2)
    office.activation.on_view(in_view(recovering=False))
    assert office.served == [], "the view is not durable yet"
    office.durable()
    assert office.served == [0, 1]
    office.activation.on_view(in_view(recovering=False))
    assert office.disk == []


def test_another_view_begins_nothing_again() -> None:
    office = Office()
    office.activation.on_view(in_view(recovering=False))
    office.begin()
    office.activation.on_view(in_view(recovering=False))
    assert len(office.disk) == 1


@pytest.mark.rule("primary_backup/O-5")
def test_a_primary_without_files_serves_with_the_view_that_ends_the_recovery() -> None:
    office = Office(Assignment(5, (ME, None)), Assignment(6, (ME, None)))
    office.log.notify_when_durable = office.on_notice  # type: ignore[method-assign]
    office.activation.on_view(in_view(recovering=True))
    office.begin(0, 1)
    assert office.served == []
    office.activation.on_view(in_view(recovering=False))
    assert office.served == [0, 1]


@pytest.mark.rule("primary_backup/O-5")
def test_a_member_that_was_removed_from_a_recovering_cluster_serves_in_its_next_one() -> None:
    office = Office(Assignment(5, (ME, None)))
    office.activation.on_view(in_view(recovering=True))
    office.activation.on_view(n.ViewInstalled(None, None, False, frozenset(), frozenset()))
    office.activation.on_view(in_view(recovering=False))
    office.begin()
    office.durable()
    assert office.served == [0]


@pytest.mark.rule("primary_backup/O-4")
def test_to_a_new_primary_all_entries_were_used_just_now() -> None:
    office = Office()
    held = office.copies.held[0].maps["m"]
    office.out.now_ns = 7 * SECOND
    held.apply(Record("m", 2, Change.SET, b"idle", b"value", max_idle_ms=5000), 0)
    office.begin()
    office.durable()
    office.enlisted(B, C)
    assert office.served == [0]
    assert held.state.expiries[b"idle"].accessed_ns == 7 * SECOND
