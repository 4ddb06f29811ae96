"""What a member keeps of a partition, takes back, begins anew or forgets, when rows change (primary_backup/B-3)."""

from __future__ import annotations

import pytest
from tests.core.store.noted import deadlines
from tests.core.telling import removed

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Append
from holdfast.core.hosted_services import Endpoint, MigrationEvent, Share, part_name
from holdfast.core.journal.log import Log
from holdfast.core.messages import Replicate, Section
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.journal_entries import Began, Dropped
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.errors import InvariantBroken

ME, OWNER, OTHER = MemberId("me"), MemberId("owner"), MemberId("other")
HERE, GONE, AWAY = Assignment(5, (OWNER, ME)), Assignment(6, (OWNER, OTHER)), Assignment(7, (OWNER, None))


class Kept:
    """The copies of one member, and what it writes down."""

    def __init__(self, row: Assignment = HERE, *, held: bool = True) -> None:
        self.out = Outbox()
        self.log = Log(self.out, on=True)
        self.rows = [row]
        maps = {
            "m": MapSettings(backups=1, journal="lazy"),
            "deep": MapSettings(backups=1, async_backups=1, changes_bytes=1000),
        }
        settings = Settings(partitions=PartitionSettings(count=1), maps=maps)
        self.copies = LocalReplicas(ME, settings, self.out, self.rows, self.log)
        if held:
            copy = self.copies.held[0] = PartitionCopy(0, row.epoch)
            for name in ("m", "deep"):
                self.copies.open(copy, name).apply(Record(name, 1, Change.SET, b"key", b"value"), 0)

    def becomes(self, row: Assignment, arrived: PartitionCopy | None = None) -> PartitionCopy | None:
        old, self.rows[0] = self.rows[0], row
        return self.copies.assignment_changed(0, old, row, arrived)

    def written(self) -> list[object]:
        self.log.flush()
        return [entry for one in self.out.take() if isinstance(one, Append) for entry in one.entries]


def test_a_copy_stays_as_long_as_the_row_names_this_member() -> None:
    kept = Kept()
    copy = kept.copies.held[0]
    assert kept.becomes(Assignment(6, (ME, OWNER))) is copy
    assert kept.copies.held == {0: copy}
    assert kept.written() == []


@pytest.mark.rule("primary_backup/B-3")
def test_a_copy_is_dropped_when_a_committed_row_names_this_member_no_more() -> None:
    kept = Kept()
    assert kept.becomes(GONE) is None
    assert (kept.copies.held, kept.copies.stale) == ({}, {})
    assert kept.written() == [Dropped(0, "m"), Dropped(0, "deep"), Dropped(0)]
    assert kept.becomes(AWAY) is None
    assert kept.written() == [], "there was nothing to drop"


def test_a_first_row_begins_an_empty_copy() -> None:
    kept = Kept(Assignment(), held=False)
    copy = kept.becomes(HERE)
    assert copy is kept.copies.held[0]
    assert (copy.partition, copy.epoch, list(copy)) == (0, 0, [])
    assert copy.requests is not None
    assert kept.written() == [Began(0, 0)]


def test_a_partition_that_begins_anew_is_empty() -> None:
    kept = Kept()
    copy = kept.becomes(Assignment(9, (OWNER, ME), 1))
    assert copy is not None
    assert (copy.epoch, list(copy)) == (1, [])
    assert kept.written() == [Dropped(0, "m"), Dropped(0, "deep"), Began(0, 1)]


def test_to_be_named_without_a_copy_is_a_broken_promise() -> None:
    kept = Kept(Assignment(5, (OWNER, OTHER)), held=False)
    with pytest.raises(InvariantBroken, match="holds no copy"):
        kept.becomes(HERE.changed((OWNER, ME, None)))
    anew = Kept(Assignment(5, (OWNER, OTHER)), held=False)
    assert anew.becomes(Assignment(9, (ME, None), 1)) is not None, "unless it begins anew"


# -- who was away


@pytest.mark.rule("primary_backup/B-3")
def test_what_rows_have_taken_from_a_member_that_was_removed_is_kept_to_begin_with() -> None:
    kept = Kept()
    copy = kept.copies.held[0]
    kept.copies.on_view(removed())
    assert kept.copies.held == {0: copy}
    kept.becomes(GONE)
    assert (kept.copies.held, kept.copies.stale) == ({}, {0: copy})
    assert kept.written() == [Dropped(0)]
    assert kept.copies.base(0) is copy


def test_once_it_knows_the_newest_rows_what_is_taken_is_dropped() -> None:
    kept = Kept()
    kept.copies.on_view(removed())
    kept.copies.returned()
    kept.becomes(GONE)
    assert kept.copies.stale == {}


def test_what_is_taken_from_who_was_behind_is_kept_too() -> None:
    kept = Kept(Assignment(5, (OWNER, ME), behind=(ME,)))
    copy = kept.copies.held[0]
    kept.becomes(GONE)
    assert kept.copies.stale == {0: copy}
    other = Kept(Assignment(5, (OWNER, ME), behind=(OTHER,)))
    other.becomes(GONE)
    assert other.copies.stale == {}


def test_it_is_kept_once() -> None:
    """When the partition has come back and is taken again in order, nothing is left of it."""
    kept = Kept()
    kept.copies.on_view(removed())
    kept.becomes(GONE)
    kept.becomes(Assignment(7, (OWNER, ME)))
    kept.becomes(Assignment(8, (OWNER, OTHER)))
    assert kept.copies.stale == {}


def test_a_copy_of_before_is_taken_back_when_the_row_gives_it_to_this_member() -> None:
    kept = Kept(Assignment(), held=False)
    stale = kept.copies.stale[0] = PartitionCopy(0, 2)
    for name in ("m", "deep", "wide"):
        stale.open(name).apply(Record(name, 1, Change.SET, b"key", b"value"), 0)
    copy = kept.becomes(Assignment(9, (OWNER, OTHER, ME), 2))
    assert copy is stale
    assert kept.copies.held == {0: stale}
    assert kept.copies.stale == {}
    assert stale.maps.keys() == {"deep"}, "what its index does not hold goes"
    assert (stale.maps["deep"].changes, stale.maps["deep"].journal) == (1000, "off")
    assert kept.written() == [Dropped(0, "m"), Dropped(0, "wide")]


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_copy_of_another_epoch_is_not_taken_back(epoch: int) -> None:
    kept = Kept(Assignment(), held=False)
    kept.copies.stale[0] = PartitionCopy(0, epoch)
    copy = kept.becomes(Assignment(9, (OWNER, ME), 2))
    assert copy is not None
    assert copy.epoch == 2
    assert kept.copies.stale == {}


def test_a_copy_of_before_is_of_no_use_once_the_partition_has_begun_anew() -> None:
    for epoch, left in ((0, {0}), (1, set())):
        kept = Kept(Assignment(5, (OWNER, OTHER)), held=False)
        kept.copies.stale[0] = PartitionCopy(0, 0)
        kept.becomes(Assignment(9, (OTHER, None), epoch))
        assert kept.copies.stale.keys() == left


@pytest.mark.rule("state_transfer/D-2")
def test_the_copy_that_is_held_is_the_base_before_one_of_before() -> None:
    kept = Kept()
    assert kept.copies.base(1) is None
    older, newer = kept.copies.stale[0], kept.copies.held[0] = PartitionCopy(0, 0), PartitionCopy(0, 0)
    assert kept.copies.base(0) is newer
    del kept.copies.held[0]
    assert kept.copies.base(0) is older


def test_when_all_is_where_it_belongs_what_is_left_of_before_is_dropped() -> None:
    kept = Kept()
    for partition in (0, 1, 2):
        kept.copies.stale[partition] = PartitionCopy(partition, 0)
    kept.copies.staging[2] = object()  # type: ignore[assignment]
    kept.copies.on_view(removed())
    kept.copies.drop_stale()
    assert kept.copies.stale == {}
    assert kept.written() == [Dropped(1)]
    kept.becomes(GONE)
    assert kept.copies.stale == {}, "nor is what is taken from now on kept"


def test_who_is_removed_hears_nothing_more_of_what_came_too_early() -> None:
    kept = Kept()
    kept.copies.on_replicate(OWNER, Replicate([1], [Section(0, 6, [])]))
    assert kept.copies.leftovers["early messages"] == 1
    kept.copies.on_view(removed())
    assert kept.copies.leftovers["early messages"] == 0


def test_another_copy_takes_the_place_of_one_that_was_brought_up_to_date() -> None:
    kept = Kept()
    other = PartitionCopy(0, 0)
    kept.copies.replace(0, other)
    assert kept.copies.held == {0: other}


# -- maps that an index holds


@pytest.mark.parametrize(("name", "indices"), [("m", {0, 1}), ("deep", {0, 1, 2}), ("any other", {0, 1})])
def test_a_replica_holds_the_maps_with_so_many_backups(name: str, indices: set[int]) -> None:
    kept = Kept()
    assert {index for index in range(-1, 4) if kept.copies.wanted(name, index)} == indices


def event(endpoint: Endpoint, current: int, new: int) -> MigrationEvent:
    return MigrationEvent(0, endpoint, current, new)


@pytest.mark.parametrize(
    ("what", "left"),
    [
        (("commit", event(Endpoint.SOURCE, 0, 2)), {"deep"}),
        (("commit", event(Endpoint.SOURCE, 0, 1)), {"m", "deep"}),
        (("commit", event(Endpoint.SOURCE, 0, -1)), set()),
        (("commit", event(Endpoint.DESTINATION, 1, 2)), {"m", "deep"}),
        (("rollback", event(Endpoint.DESTINATION, 2, 0)), {"deep"}),
        (("rollback", event(Endpoint.DESTINATION, -1, 0)), set()),
        (("rollback", event(Endpoint.SOURCE, 2, 0)), {"m", "deep"}),
        (("before", event(Endpoint.SOURCE, 0, -1)), {"m", "deep"}),
    ],
)
def test_a_source_keeps_the_maps_of_its_new_index_and_a_destination_of_its_old_one(
    what: tuple[str, MigrationEvent], left: set[str]
) -> None:
    kept = Kept()
    getattr(kept.copies, what[0])(what[1])
    assert kept.copies.held[0].maps.keys() == left
    assert kept.written() == [Dropped(0, name) for name in ("m", "deep") if name not in left]


def test_who_was_away_keeps_all_maps_of_what_is_taken_from_it() -> None:
    kept = Kept()
    kept.copies.on_view(removed())
    kept.copies.commit(event(Endpoint.SOURCE, 0, -1))
    assert kept.copies.held[0].maps.keys() == {"m", "deep"}
    kept.copies.commit(event(Endpoint.SOURCE, 0, 2))
    assert kept.copies.held[0].maps.keys() == {"deep"}


def test_nothing_is_dropped_of_what_is_not_held() -> None:
    kept = Kept(held=False)
    kept.copies.commit(event(Endpoint.SOURCE, 0, -1))
    assert kept.written() == []


def test_deadlines_that_are_over_are_forgotten() -> None:
    kept = Kept()
    held = kept.copies.held[0].maps["m"]
    held.state.store(b"a", b"1", 1, 0, 0, 0)
    held.state.drop(b"a")
    kept.copies.sweep()
    assert len(deadlines(held.state)) == 1
    kept.out.now_ns = 2 * MILLISECOND
    kept.copies.sweep()
    assert deadlines(held.state) == []


# -- services


class Counting:
    """A service that says nothing."""

    name = "counting"
    backups = 1

    def open(self, partition: int) -> Share:
        return Nothing()

    def before(self, event: MigrationEvent) -> None:
        """Nothing is to be prepared."""

    commit = rollback = before


class Nothing:
    """A share of it."""

    def apply(self, update: bytes) -> bytes:
        return b""

    ask = apply

    def supply(self) -> list[bytes]:
        return []

    def receive(self, piece: bytes) -> None:
        """There is nothing to take."""


def test_a_copy_has_a_share_of_each_service_that_its_index_holds() -> None:
    for row, shares in (
        (Assignment(5, (OWNER, ME)), {part_name("counting")}),
        (Assignment(5, (OWNER, OTHER, ME)), set()),
    ):
        out = Outbox()
        settings = Settings(partitions=PartitionSettings(count=1))
        copies = LocalReplicas(ME, settings, out, [row], Log(out, on=False), services=[Counting()])
        copy = copies.assignment_changed(0, Assignment(), row, None)
        assert copy is not None
        assert copy.services.keys() == shares
