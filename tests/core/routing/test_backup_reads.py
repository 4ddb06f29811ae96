"""Reads of backups: when a member answers by itself, and when it has to ask the primary (routing/R-5)."""

from __future__ import annotations

import pytest
from tests.core.routing.around import Around, Told

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Send
from holdfast.core.journal.log import Log
from holdfast.core.messages import Answer, Forward
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.map_moves import NoMoves
from holdfast.core.model.operations import Op, Outcome, Request, Status, Value
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.operations.map_operations import version_of
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.primary_copy import PrimaryCopy
from holdfast.core.routing.router import Router
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast_lab.sim.ablations.switching import ablated

ME, OWNER, OTHER = MemberId("me"), MemberId("owner"), MemberId("other")


class Backup(Told):
    """A member that holds a backup of the only partition: of "m", which is read from backups, and of "strict"."""

    def __init__(self) -> None:
        super().__init__()
        settings = Settings(
            partitions=PartitionSettings(count=1),
            maps={"m": MapSettings(backups=1, async_backups=1, read_backups=True), "strict": MapSettings()},
        )
        self.rows = [Assignment(3, (OWNER, ME))]
        self.lane = Lane(ME, settings, self.out, Log(self.out, on=False))
        self.lane.attach(self.rows)
        self.copy = PartitionCopy(0, 0)
        self.held = {0: self.copy}
        self.around = Around()
        self.router = Router(
            ME,
            settings,
            self.out,
            self.rows,
            PrimaryCopy(settings, self.out, self.lane, NoMoves()),
            held=self.held,
            neighbours=self.around,
            offers=self.around,
        )
        self.record(b"k", b"1")

    def record(self, key: bytes, value: bytes, *, term: int = 1, name: str = "m", **more: int) -> None:
        """The primary's next record."""
        held = self.copy.open(name)
        held.enter(term)
        held.apply(Record(name, held.counter + 1, Change.SET, key, value, **more), self.out.now_ns)

    def ask(self, op: Op = Op.GET, name: str = "m", key: bytes = b"k", **more: object) -> Value | Forward:
        """The answer, or what was sent to ask for it."""
        before = len(self.told)
        self.router.execute(Request(op, name, [0], key, **more), 1)  # type: ignore[arg-type]
        if len(self.told) > before:
            assert self.told[-1].status is Status.OK
            return self.told[-1].value
        (message,) = [effect.message for effect in self.taken() if isinstance(effect, Send)]
        assert isinstance(message, Forward)
        return message

    def answered(self, forward: Forward, position: tuple[int, int]) -> None:
        """The primary answers what was sent to it."""
        self.router.on_answer(OWNER, Answer(forward.ticket, Outcome(Status.OK, b"?", position=position), []))

    def asks(self, **more: object) -> bool:
        return isinstance(self.ask(**more), Forward)  # type: ignore[arg-type]


@pytest.fixture
def backup() -> Backup:
    return Backup()


def test_a_backup_answers_reads_of_keys_and_nothing_else(backup: Backup) -> None:
    assert backup.ask() == b"1"
    assert backup.ask(key=b"none") is None
    assert backup.ask(Op.CONTAINS_KEY) is True
    assert backup.ask(Op.CONTAINS_KEY, key=b"none") is False
    assert backup.ask(Op.GET_ALL, items=[b"k", b"none"]) == [b"k", b"1"]
    assert backup.ask(Op.ENTRY_VIEW) == [b"1", 0, 0, -1, version_of(b"1")]
    assert backup.ask(Op.ENTRY_VIEW, key=b"none") is None
    for op in (Op.PUT, Op.SET, Op.REMOVE, Op.SIZE, Op.ASK):
        assert backup.asks(op=op), op


@pytest.mark.rule("routing/R-5")
def test_it_asks_for_maps_that_do_not_want_it(backup: Backup) -> None:
    backup.record(b"k", b"1", name="strict")
    assert backup.asks(name="strict")


@pytest.mark.parametrize(
    "row",
    [
        Assignment(4, (OWNER, OTHER)),
        Assignment(4, (OWNER, ME), behind=(ME,)),
        Assignment(4, (OWNER, OTHER, OTHER, ME)),
    ],
    ids=["not named", "behind", "colder than the map's backups"],
)
def test_only_a_copy_that_is_in_sync_is_read(backup: Backup, row: Assignment) -> None:
    backup.rows[0] = row
    assert backup.asks()


def test_a_member_that_does_not_hear_of_the_primary_reads_nothing(backup: Backup) -> None:
    backup.around.hearing = False
    assert backup.asks()


def test_a_member_without_the_copy_asks(backup: Backup) -> None:
    backup.held.clear()
    assert backup.asks()


def test_what_has_ended_is_not_shown(backup: Backup) -> None:
    backup.record(b"short", b"1", ttl_ms=100)
    assert backup.ask(key=b"short") == b"1"
    backup.out.now_ns += 100 * MILLISECOND
    assert backup.ask(key=b"short") is None
    assert backup.ask(Op.CONTAINS_KEY, key=b"short") is False
    assert backup.ask(Op.ENTRY_VIEW, key=b"short") is None
    assert backup.ask(Op.GET_ALL, items=[b"short", b"k"]) == [b"k", b"1"]
    assert b"short" in backup.copy.maps["m"].state.entries, "the primary says when it is removed"


def test_what_ends_when_it_is_not_used_is_read_at_the_primary(backup: Backup) -> None:
    backup.record(b"idle", b"1", max_idle_ms=100)
    assert backup.asks(key=b"idle")
    assert backup.asks(op=Op.GET_ALL, items=[b"k", b"idle"])
    assert backup.ask() == b"1"


@pytest.mark.rule("routing/R-5")
@pytest.mark.parametrize("op", [Op.PUT, Op.DELETE, Op.GET_ALL])
def test_after_an_answer_of_the_primary_an_older_backup_is_not_read(backup: Backup, op: Op) -> None:
    """Also after the answer to a write: who has written sees it."""
    backup.rows[0] = Assignment(3, (OWNER, OTHER))
    sent = backup.ask(op, items=[b"k"])
    assert isinstance(sent, Forward)
    backup.answered(sent, (1, 2))
    backup.rows[0] = Assignment(4, (OWNER, ME))
    assert backup.asks()
    backup.record(b"k", b"2")
    assert backup.ask() == b"2"


@ablated("monotonic-reads")
def test_without_the_rule_it_is_read() -> None:
    backup = Backup()
    sent = backup.ask(Op.PUT)
    assert isinstance(sent, Forward)
    backup.answered(sent, (1, 2))
    assert backup.ask() == b"1"


def test_a_copy_of_an_older_history_is_not_newer_because_it_has_more_updates(backup: Backup) -> None:
    """Updates that nobody acknowledged, and that the next primary never had: this copy is still to be made equal."""
    for value in (b"2", b"3", b"4"):
        backup.record(b"k", value)
    sent = backup.ask(Op.PUT)
    assert isinstance(sent, Forward)
    backup.answered(sent, (2, 3))
    assert backup.asks()
    backup.copy.maps["m"] = PartitionCopy(0, 0).open("m")
    for number in range(3):
        backup.record(b"k", b"%d" % number, term=1 if number < 2 else 2)
    assert backup.ask() == b"2"


def test_a_copy_that_was_read_and_is_replaced_by_an_older_one_is_not_read(backup: Backup) -> None:
    backup.record(b"k", b"2")
    assert backup.ask() == b"2"
    backup.copy.maps["m"] = PartitionCopy(0, 0).open("m")
    backup.record(b"k", b"1")
    assert backup.asks()


def test_what_its_sessions_saw_as_primary_counts(backup: Backup) -> None:
    """They went by the data lane, which notes nothing."""
    seen = PartitionCopy(0, 0)
    held = seen.open("m")
    held.enter(1)
    for number in range(2):
        held.apply(Record("m", number + 1, Change.SET, b"k", b"x"), 0)
    backup.router.backup_reads.step_down(0, seen)
    assert backup.asks()
    backup.record(b"k", b"2")
    assert backup.ask() == b"2"


def test_a_read_that_another_member_sent_here_is_not_answered_from_a_backup(backup: Backup) -> None:
    """What that member has seen is not known here."""
    backup.rows[0] = Assignment(4, (ME, OTHER))
    read = Request(Op.GET, "m", [0], b"k")
    backup.router.on_forward(OTHER, Forward(7, read))
    assert backup.out.take() != [], "it waits until this member has taken office"
    backup.rows[0] = Assignment(5, (OWNER, ME))
    backup.router.served(0)
    (message,) = [effect.message for effect in backup.out.take() if isinstance(effect, Send)]
    assert isinstance(message, Forward)


def test_the_primary_says_where_the_map_stands_if_that_is_of_interest(backup: Backup) -> None:
    backup.rows[0] = Assignment(4, (ME,))
    backup.copy.term = 4
    backup.lane.leading[0] = backup.copy
    backup.lane.retarget(backup.copy)
    for name in ("m", "strict"):
        for op in (Op.GET, Op.SET):
            backup.router.execute(Request(op, name, [0], b"k", b"2"), 1)
    assert [outcome.position for outcome in backup.told] == [(1, 1), (1, 2), (0, 0), (0, 0)]
