"""Which requests must not be taken now: what the cluster's state, disks and memories do not allow."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from holdfast.config import MapSettings, ServiceSettings, Settings
from holdfast.config.schema import INTERNAL
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import MemberInfo, Room
from holdfast.core.routing.request_refusals import CROWDED, NO_DATA_MEMBER, PASSIVE, RequestRefusals, changes

A, B, C = (MemberId(name) for name in "abc")
MEMBERS = [MemberInfo(uuid, 1, "host", 1, "host", 1, f"member {uuid}") for uuid in (A, B, C)]
ROWS = [Assignment(1, (A, B, C)), Assignment(1, (B, C, A)), Assignment(1, (B, C))]
READ, WRITE, DELETE = Op.GET, Op.SET, Op.DELETE


@dataclass
class Sending:
    """What a replication protocol tells of itself here."""

    refusing: bool = False
    moving_to: MemberId | None = None

    def joining(self, partition: int) -> MemberId | None:
        return self.moving_to


@pytest.fixture
def sending() -> Sending:
    return Sending()


@pytest.fixture
def refusals(sending: Sending) -> RequestRefusals:
    settings = Settings(
        maps={"default": MapSettings(backups=1), "kept": MapSettings(backups=1, journal="sync")},
        services={"queue": ServiceSettings(backups=1)},
    )
    return RequestRefusals(settings, ROWS, sending)  # type: ignore[arg-type]


def asks(op: Op, *partitions: int, of: str = "m") -> Request:
    return Request(op, of, list(partitions or (0,)), b"k", b"v")


def test_at_rest_nothing_is_refused(refusals: RequestRefusals) -> None:
    assert not refusals.any
    assert (refusals.full, refusals.short) == ({}, {})
    assert [refusals.rejection_here(asks(op)) for op in (READ, WRITE, DELETE)] == [None] * 3


def test_lite_members_alone_do_nothing(refusals: RequestRefusals) -> None:
    refusals.dataless = True
    assert refusals.any
    assert refusals.rejection(asks(READ)) == refusals.rejection(asks(WRITE)) == NO_DATA_MEMBER
    assert NO_DATA_MEMBER.status is Status.NO_DATA_MEMBER


def test_a_passive_cluster_is_read_and_may_keep_what_is_its_own(refusals: RequestRefusals) -> None:
    refusals.passive = True
    assert refusals.any
    assert refusals.rejection(asks(READ)) is None
    assert refusals.rejection(asks(WRITE)) == refusals.rejection(asks(DELETE)) == PASSIVE
    assert PASSIVE.status is Status.PASSIVE
    assert refusals.rejection(asks(WRITE, of=f"{INTERNAL}names")) is None


def test_a_primary_with_too_much_for_its_backups_takes_no_change(
    refusals: RequestRefusals, sending: Sending
) -> None:
    sending.refusing = True
    assert refusals.rejection_here(asks(WRITE)) == CROWDED
    assert CROWDED.status is Status.NOT_READY
    assert refusals.rejection_here(asks(READ)) is None
    assert refusals.rejection(asks(WRITE)) is None
    refusals.passive = True
    assert refusals.rejection_here(asks(WRITE)) == PASSIVE


def test_what_is_journalled_on_a_full_disk_is_not_written(refusals: RequestRefusals) -> None:
    refusals.know(MEMBERS, {A, C, MemberId("gone")}, {})
    assert refusals.full == {A: "member a", C: "member c"}
    assert refusals.any
    told = Outcome(Status.NO_ROOM, None, "the disk of member member a, member c is full; make room there")
    assert refusals.rejection(asks(WRITE, 0, of="kept")) == told
    assert refusals.rejection(asks(DELETE, 0, of="kept")) == told
    assert refusals.rejection(asks(READ, 0, of="kept")) is None
    assert refusals.rejection(asks(WRITE, 0)) is None, "this map is in no journal"
    refusals.know(MEMBERS, {A}, {})
    assert refusals.rejection(asks(WRITE, 2, of="kept")) is None, "nobody there is full"
    assert refusals.rejection(asks(WRITE, 2, 1, of="kept")) is not None


@pytest.mark.rule("routing/R-7")
def test_nothing_is_stored_where_memory_is_short(refusals: RequestRefusals) -> None:
    refusals.know(MEMBERS, set(), {B: Room.LITTLE})
    assert refusals.any
    why = refusals.rejection(asks(WRITE, 0))
    assert why is not None and why.status is Status.NO_MEMORY
    assert why.detail.startswith("the memory of member member b is nearly full;")
    assert refusals.rejection(asks(READ, 0)) is None
    assert refusals.rejection(asks(DELETE, 0)) is None
    refusals.know(MEMBERS, set(), {C: Room.NONE})
    assert refusals.rejection(asks(WRITE, 0)) is None, (
        "the third replica holds nothing of a map with one backup"
    )
    assert refusals.rejection(asks(WRITE, 0, 1)) is not None


@pytest.mark.rule("routing/R-7")
def test_nor_where_a_partition_moves_to(refusals: RequestRefusals, sending: Sending) -> None:
    refusals.know(MEMBERS, set(), {C: Room.LITTLE, MemberId("gone"): Room.NONE})
    assert refusals.rejection(asks(WRITE, 0)) is None
    sending.moving_to = C
    assert refusals.rejection(asks(WRITE, 0)) is not None
    sending.moving_to = MemberId("gone")
    why = refusals.rejection(asks(WRITE, 0))
    assert why is not None and "memory of member gone is" in why.detail


@pytest.mark.rule("routing/R-7")
def test_what_is_the_clusters_own_and_services_may_take_the_reserve(refusals: RequestRefusals) -> None:
    for room, refused in ((Room.LITTLE, False), (Room.NONE, True)):
        refusals.know(MEMBERS, set(), {A: room})
        for request in (asks(WRITE, of=f"{INTERNAL}names"), asks(Op.CALL, of="queue")):
            assert (refusals.rejection(request) is not None) == refused
        assert refusals.rejection(asks(WRITE)) is not None


def test_a_passive_cluster_rejects_transactions_and_reads_go_on() -> None:
    for op, changed in (
        (Op.TRANSACT, True),
        (Op.SETTLE, True),
        (Op.PIN, False),
        (READ, False),
        (WRITE, True),
        (DELETE, True),
    ):
        assert changes(asks(op)) is changed
    assert changes(asks(Op.TRANSACT, of=f"{INTERNAL}own")) is True
    assert changes(asks(WRITE, of=f"{INTERNAL}own")) is False


def test_a_full_disk_ends_no_transaction_and_counts_for_maps_of_zones(sending: Sending) -> None:
    settings = Settings(
        maps={
            "default": MapSettings(backups=1),
            "kept": MapSettings(backups=1, journal="sync"),
            "zoned": MapSettings(raft_zone="z"),
        },
        services={"queue": ServiceSettings(backups=1)},
    )
    refusals = RequestRefusals(settings, ROWS, sending)  # type: ignore[arg-type]
    refusals.know(MEMBERS, {A}, {})
    for of, refused in (("kept", True), ("zoned", True), ("m", False)):
        assert (refusals.rejection(asks(WRITE, of=of)) is not None) is refused
    assert refusals.rejection(Request(Op.CALL, "queue", [0])) is None
    assert refusals.rejection(asks(Op.SETTLE, of="kept")) is None, "it makes room"


def test_refusals_of_zones_follow_those_of_the_member(refusals: RequestRefusals, sending: Sending) -> None:
    other = RequestRefusals(Settings(), ROWS, sending)  # type: ignore[arg-type]
    refusals.know(MEMBERS, {A}, {B: Room.NONE})
    refusals.passive = refusals.dataless = True
    assert not other.any
    other.follow(refusals)
    assert (other.passive, other.dataless) == (True, True)
    assert (other.full, other.short) == ({A: "member a"}, {B: Room.NONE})
    other.passive = other.dataless = False
    rejected = other.rejection(asks(WRITE))
    assert rejected is not None
    assert "member b" in rejected.detail
