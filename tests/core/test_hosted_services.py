"""Services are told of migrations: when, how often, and what they drop; one row after another, without a cluster."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from holdfast.config import Settings
from holdfast.core.hosted_services import Endpoint, HostedServices, MigrationEvent, with_services
from holdfast.core.model.ids import MemberId
from holdfast.core.model.object_names import is_service, part_name
from holdfast.core.model.partition_table import Assignment
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.errors import ConfigError, InvariantBroken

ME, B, C = MemberId("me"), MemberId("b"), MemberId("c")
SOURCE, DESTINATION = Endpoint.SOURCE, Endpoint.DESTINATION
COUNTS = part_name("counts")


class Shared:
    """A share of which it only matters that it is there."""

    def apply(self, call: bytes) -> bytes:
        return b""

    def ask(self, question: bytes) -> bytes:
        return b""

    def supply(self) -> Iterable[bytes]:
        return []

    def receive(self, piece: bytes) -> None:
        pass

    def digest(self) -> int:
        return 0


class Counts:
    """A service with one backup, and what it was told."""

    def __init__(self, name: str = "counts", backups: int = 1) -> None:
        self.name, self.backups = name, backups
        self.told: list[tuple[str, Endpoint, int, int]] = []

    def open(self, partition: int) -> Shared:
        return Shared()

    def before(self, event: MigrationEvent) -> None:
        self.told.append(("before", event.endpoint, event.current, event.new))

    def commit(self, event: MigrationEvent) -> None:
        self.told.append(("commit", event.endpoint, event.current, event.new))

    def rollback(self, event: MigrationEvent) -> None:
        self.told.append(("rollback", event.endpoint, event.current, event.new))


class Host:
    """A member with one partition and one service."""

    def __init__(self, *row: MemberId | None) -> None:
        self.service, self.maps = Counts(), Counts("maps")
        self.held: dict[int, PartitionCopy] = {}
        self.services = HostedServices(ME, self.held, self.maps, [self.service])
        self.row = Assignment(5, row)
        index = self.row.index_of(ME)
        if index >= 0:
            self.held[0] = self.copy(index)

    def copy(self, index: int, epoch: int = 0) -> PartitionCopy:
        copy = PartitionCopy(0, epoch)
        self.services.furnish(copy, index)
        return copy

    def begin(self, endpoint: Endpoint, current: int, new: int) -> None:
        self.services.begin(MigrationEvent(0, endpoint, current, new))

    def becomes(
        self, *replicas: MemberId | None, arrived: PartitionCopy | None = None, epoch: int = 0
    ) -> None:
        old, self.row = self.row, Assignment(self.row.version + 1, replicas, epoch)
        self.services.assignment_changed(0, old, self.row, arrived)

    def told(self) -> list[tuple[str, Endpoint, int, int]]:
        assert self.service.told == self.maps.told, "the maps hear what every service does"
        told, self.service.told, self.maps.told = self.service.told, [], []
        return told

    @property
    def shares(self) -> bool:
        return 0 in self.held and COUNTS in self.held[0].services


@pytest.mark.rule("core/W-1", "core/W-4")
def test_a_source_is_told_before_and_that_it_has_come_true_and_drops_its_share() -> None:
    host = Host(ME, B)
    host.begin(SOURCE, 0, -1)
    assert host.told() == [("before", SOURCE, 0, -1)]
    assert host.shares, "nothing goes before the row says so"
    host.becomes(C, B)
    assert host.told() == [("commit", SOURCE, 0, -1)]
    assert not host.shares


@pytest.mark.rule("core/W-4")
def test_a_source_that_stays_within_the_backups_keeps_its_share() -> None:
    host = Host(ME, None)
    host.begin(SOURCE, 0, 1)
    host.becomes(C, ME)
    assert host.told()[1:] == [("commit", SOURCE, 0, 1)]
    assert host.shares


@pytest.mark.rule("core/W-4")
def test_a_source_that_moves_beyond_the_backups_drops_its_share() -> None:
    host = Host(ME, B, None)
    host.begin(SOURCE, 0, 2)
    host.becomes(C, B, ME)
    assert not host.shares


@pytest.mark.rule("core/W-1")
def test_a_destination_gets_what_has_arrived_when_the_row_says_so() -> None:
    host = Host(B, None)
    host.begin(DESTINATION, -1, 0)
    arrived = host.copy(0)
    host.becomes(ME, None, arrived=arrived)
    assert host.told() == [("before", DESTINATION, -1, 0), ("commit", DESTINATION, -1, 0)]
    assert host.held[0] is arrived


@pytest.mark.rule("core/W-1", "core/W-4")
@pytest.mark.parametrize("given_up", [True, False])
def test_a_destination_rolls_back_when_nothing_comes_of_it(*, given_up: bool) -> None:
    host = Host(B, ME)
    host.begin(DESTINATION, 1, 0)
    host.services.give_up(0) if given_up else host.becomes(B, ME)
    assert host.told() == [("before", DESTINATION, 1, 0), ("rollback", DESTINATION, 1, 0)]
    assert host.shares, "it holds what it held before"
    host.services.give_up(0)
    assert host.told() == [], "once"


@pytest.mark.rule("core/W-4")
def test_a_destination_that_held_nothing_holds_nothing_after_a_rollback() -> None:
    host = Host(B, C, ME)
    host.held[0].services.clear()
    host.begin(DESTINATION, 2, 1)
    host.services.furnish(host.held[0], 1)
    assert host.shares
    host.services.give_up(0)
    assert not host.shares


def test_a_row_that_names_it_without_the_content_is_no_commit() -> None:
    host = Host(B, None)
    host.begin(DESTINATION, -1, 0)
    host.becomes(C, None)
    assert host.told()[1:] == [("rollback", DESTINATION, -1, 0)]


@pytest.mark.rule("core/W-2")
def test_who_takes_no_part_in_the_copying_is_told_both_at_once() -> None:
    host = Host(B, ME)
    host.becomes(B, C)
    assert host.told() == [("before", SOURCE, 1, -1), ("commit", SOURCE, 1, -1)]
    assert not host.shares
    host = Host(B, ME)
    host.becomes(ME, None)
    assert host.told() == [("before", DESTINATION, 1, 0), ("commit", DESTINATION, 1, 0)]
    assert host.shares
    host.becomes(ME, B)
    assert host.told() == [], "what others hold is no concern of it"


@pytest.mark.rule("core/W-3")
def test_who_is_removed_though_alive_rolls_back_and_hears_anew_what_became_of_it() -> None:
    host = Host(ME, B)
    host.begin(SOURCE, 0, -1)
    host.services.removed()
    assert host.told()[1:] == [("rollback", SOURCE, 0, -1)]
    host.becomes(C, B)
    assert host.told() == [("before", SOURCE, 0, -1), ("commit", SOURCE, 0, -1)]


@pytest.mark.rule("core/W-5")
def test_nobody_is_told_of_a_beginning() -> None:
    host = Host()
    host.row = Assignment()
    host.becomes(ME, B)
    assert host.told() == []
    host.held[0] = host.copy(0)
    host.becomes(ME, B, epoch=1)
    assert host.told() == [("before", SOURCE, 0, -1), ("commit", SOURCE, 0, -1)], "what was lost goes"
    assert not host.shares


def test_content_of_an_epoch_that_is_over_is_not_taken() -> None:
    host = Host(B, None)
    host.begin(DESTINATION, -1, 0)
    host.becomes(ME, None, arrived=host.copy(0), epoch=1)
    assert host.told()[1:] == [("rollback", DESTINATION, -1, 0)]
    assert 0 not in host.held


def test_two_migrations_of_one_partition_at_a_time_are_a_fault() -> None:
    host = Host(ME, B)
    host.begin(SOURCE, 0, -1)
    with pytest.raises(InvariantBroken, match="has not ended"):
        host.begin(SOURCE, 0, 1)


def test_a_service_is_a_setting_that_all_members_share() -> None:
    settings = with_services(Settings(), [Counts(), Counts("other.one", 3)])
    assert [settings.object(part_name(name)).backups for name in ("counts", "other.one")] == [1, 3]
    assert is_service(part_name("counts"))
    assert not is_service("counts")
    for wrong, why in (
        ([Counts("a/b")], "cannot be called"),
        ([Counts(""), Counts()], "cannot be called"),
        ([Counts(), Counts()], "two services"),
        ([Counts(backups=7)], "use 0 to 6"),
        ([Counts(backups=-1)], "use 0 to 6"),
    ):
        with pytest.raises(ConfigError, match=why):
            with_services(Settings(), wrong)
