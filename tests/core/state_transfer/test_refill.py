"""An operator has a backup filled anew while its primary serves: what is refused, and how it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.state_transfer.test_source import MASTER, ME, NEW, OTHER, Side, copying, deciding, request
from tests.core.telling import assigned, gone, removed

from holdfast.config import PartitionSettings
from holdfast.core.messages import FillRefused, MigrationRefused
from holdfast.core.model.partition_table import Assignment
from holdfast.core.store.partition_copy import PartitionCopy


def side() -> Side:
    made = Side(ME, OTHER, NEW)
    made.write(b"a")
    made.sent()
    return made


def test_the_backup_is_sent_everything_and_writes_go_on() -> None:
    one, heard = side(), list[str]()
    one.source.refill(0, OTHER, heard.append)
    fills = one.fills()
    while fills:
        assert heard == []
        assert one.lane.serving[0] is not None
        (fill,) = fills
        assert not fill.joining
        one.hold(fill, OTHER)
        fills = one.fills()
    assert (fill.last, heard) == (True, [""])
    assert one.source.leftovers["supplies"] == 0


def not_the_primary(one: Side) -> None:
    one.rows[0] = Assignment(5, (NEW, OTHER, ME))


def no_backup(one: Side) -> None:
    one.rows[0] = Assignment(5, (ME, None, NEW))


def taking_office(one: Side) -> None:
    one.around.active.clear()


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (not_the_primary, "the primary is new"),
        (no_backup, "no backup of partition 0"),
        (taking_office, "taking office"),
        (copying, "the partition is moving"),
        (deciding, "decision on version 6 is outstanding"),
    ],
)
def test_what_stands_in_its_way_is_said(state: Callable[[Side], None], why: str) -> None:
    one, heard = side(), list[str]()
    state(one)
    one.sent()
    one.source.refill(0, OTHER, heard.append)
    assert len(heard) == 1
    assert why in heard[0]
    assert one.fills() == []


def assignment_changes(one: Side) -> None:
    one.rows[0] = Assignment(6, (ME, None, OTHER))
    one.source.on_assignment(assigned(0, one.rows[0]))


def backup_goes(one: Side) -> None:
    one.source.on_view(gone(OTHER))


def this_member_goes(one: Side) -> None:
    one.source.on_view(removed())


def backup_refuses(one: Side) -> None:
    (fill,) = one.fills()
    one.source.on_fill_refused(OTHER, FillRefused(0, 5, fill.ticket, "not now"))


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (assignment_changes, "the row has changed"),
        (backup_goes, "other is gone"),
        (this_member_goes, "removed from the cluster"),
        (backup_refuses, "not now"),
    ],
)
def test_what_ends_it_early_is_told_once(what: Callable[[Side], None], why: str) -> None:
    one, heard = side(), list[str]()
    one.source.refill(0, OTHER, heard.append)
    what(one)
    assert len(heard) == 1
    assert why in heard[0]


def test_two_who_want_the_same_share_one_supply() -> None:
    one, heard = side(), list[str]()
    one.source.refill(0, OTHER, heard.append)
    one.source.refill(0, OTHER, heard.append)
    assert one.source.leftovers["supplies"] == 1
    while fills := one.fills():
        one.hold(fills[0], OTHER)
    assert heard == ["", ""]


def test_it_gives_way_to_a_migration() -> None:
    one, heard = side(), list[str]()
    one.source.refill(0, OTHER, heard.append)
    one.source.on_request(MASTER, request())
    assert [message for message in one.sent() if isinstance(message, MigrationRefused)] == []
    assert len(heard) == 1
    assert heard[0]


def test_what_has_waited_in_the_queue_does_not_begin_in_the_middle_of_a_migration() -> None:
    two = Side(ME, OTHER, settings=PartitionSettings(count=2, parallel_migrations=2))
    two.rows.append(Assignment(5, (ME, OTHER, NEW)))
    two.copies.held[1] = PartitionCopy(1, 0)
    heard: list[str] = []
    for member in (OTHER, NEW):
        two.source.refill(1, member, lambda why: None)
    two.source.refill(0, OTHER, heard.append)
    two.source.on_request(MASTER, request())
    for member, fill in zip((OTHER, NEW), two.fills()[:2], strict=True):
        assert heard == []
        two.source.on_fill_refused(member, FillRefused(1, 5, fill.ticket, "not now"))
    assert heard == ["the partition is moving"]
    assert two.fills() == []
