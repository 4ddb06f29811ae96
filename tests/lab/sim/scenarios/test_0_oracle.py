"""Group 0: the universal oracle. It is `holdfast_lab.check.convergence.judge`, after every scenario, every simulated
run and every case of the crash matrix. Here each of its promises is broken once, and the oracle must say so.

Without counterpart: the calls "before migration", commit and rollback of services are those of the record store here
(what is under way in `Member.unfinished`); there is no dirty mark, for there is no anti-entropy.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tests.lab.sim.scenarios.scene import Scene

from holdfast.core.member import Member
from holdfast.core.model.partition_table import Assignment
from holdfast.core.store.expiry import Expiry
from holdfast.core.store.heaped_endings import HeapedEndings
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast_lab.check.convergence import judge


@pytest.fixture(scope="module")
def quiet() -> Scene:
    scene = Scene(1, partitions=3)
    scene.start(0, 1, 2, 3)
    scene.rest()
    scene.fill(12)
    scene.judge()
    return scene


def holder(scene: Scene, index: int) -> Member:
    """Who holds this replica of partition 0."""
    row = scene.members()[0].table.rows[0]
    return next(member for member in scene.members() if row.index_of(member.me) == index)


Broken = Callable[[Scene], Callable[[], None]]
"""Breaks something; answers what mends it again."""


def _row(
    scene: Scene, change: Callable[[Assignment], Assignment], everywhere: bool = False
) -> Callable[[], None]:
    members = scene.members() if everywhere else scene.members()[1:2]
    old = members[0].table.rows[0]
    for member in members:
        member.table.rows[0] = change(old)

    def mend() -> None:
        for member in members:
            member.table.rows[0] = old

    return mend


def a_version_differs(scene: Scene) -> Callable[[], None]:
    return _row(scene, lambda row: Assignment(row.version + 1, row.replicas, row.epoch))


def the_replicas_differ(scene: Scene) -> Callable[[], None]:
    return _row(scene, lambda row: Assignment(row.version, (*row.replicas[:-1], None), row.epoch))


def a_slot_is_empty(scene: Scene) -> Callable[[], None]:
    return _row(
        scene, lambda row: Assignment(row.version, (*row.replicas[:-1], None), row.epoch), everywhere=True
    )


def a_slot_names_a_stranger(scene: Scene) -> Callable[[], None]:
    return _row(
        scene, lambda row: Assignment(row.version, (*row.replicas, "gone"), row.epoch), everywhere=True
    )  # type: ignore[arg-type]


def a_copy_is_missing(scene: Scene) -> Callable[[], None]:
    member = holder(scene, 1)
    copy = member.copies.held.pop(0)
    return lambda: member.copies.held.update({0: copy})


def the_primary_holds_nothing(scene: Scene) -> Callable[[], None]:
    member = holder(scene, 0)
    copy = member.copies.held.pop(0)
    return lambda: member.copies.held.update({0: copy})


def a_copy_leaked(scene: Scene) -> Callable[[], None]:
    member = holder(scene, -1)
    member.copies.held[0] = PartitionCopy(0, 0)
    return lambda: member.copies.held.pop(0) and None


def a_map_leaked(scene: Scene) -> Callable[[], None]:
    """The coldest replica holds nothing of the map with fewer backups."""
    copy = holder(scene, 2).copies.held[0]
    copy.open("ledger")
    return lambda: copy.maps.pop("ledger") and None


def a_counter_differs(scene: Scene) -> Callable[[], None]:
    held = holder(scene, 1).copies.held[0].maps["ledger"]
    before = held.updates.copy()
    held.updates.next()

    def mend() -> None:
        held.updates = before

    return mend


def a_value_differs(scene: Scene) -> Callable[[], None]:
    held = holder(scene, 1).copies.held[0].maps["ledger"]
    key, value = next(iter(held.state.entries.items()))
    held.state.entries[key] = b"other"
    return lambda: held.state.entries.update({key: value})


def an_expiry_differs(scene: Scene) -> Callable[[], None]:
    held = holder(scene, 1).copies.held[0].maps["ledger"]
    key = next(iter(held.state.entries))
    endings = held.state.endings
    assert isinstance(endings, HeapedEndings)
    endings.expiries[key] = Expiry(1, 0, 0, 0)
    return endings.expiries.clear


def a_copy_is_of_another_epoch(scene: Scene) -> Callable[[], None]:
    copy = holder(scene, 1).copies.held[0]
    copy.epoch += 1

    def mend() -> None:
        copy.epoch -= 1

    return mend


def the_owner_does_not_serve(scene: Scene) -> Callable[[], None]:
    member = holder(scene, 0)
    copy, member.lane.serving[0] = member.lane.serving[0], None

    def mend() -> None:
        member.lane.serving[0] = copy

    return mend


def a_destination_still_joins(scene: Scene) -> Callable[[], None]:
    member = holder(scene, 0)
    member.lane.joining[0] = (member.me, 1)
    return member.lane.joining.clear


def a_row_is_stored_and_not_applied(scene: Scene) -> Callable[[], None]:
    table_replication = scene.members()[1].table_replication
    table_replication._stored[0] = Assignment(99, ())
    return table_replication._stored.clear


def a_member_of_the_view_is_dead(scene: Scene) -> Callable[[], None]:
    process = scene.process(3)
    process.dead = True

    def mend() -> None:
        process.dead = False

    return mend


BROKEN: dict[Broken, str] = {
    a_version_differs: "rows differ",
    the_replicas_differ: "rows differ",
    a_slot_is_empty: "holds|keeps a copy|copies",
    a_slot_names_a_stranger: "who live no more",
    a_copy_is_missing: "holds no copy at index 1",
    the_primary_holds_nothing: "its owner holds no copy",
    a_copy_leaked: "keeps a copy that is not its own",
    a_map_leaked: "ledger does not belong at index 2",
    a_counter_differs: "counters and terms differ",
    a_value_differs: "entries of ledger differ at index 1",
    an_expiry_differs: "what belongs to the entries of ledger differs",
    a_copy_is_of_another_epoch: "epochs differ",
    the_owner_does_not_serve: "its owner does not serve",
    a_destination_still_joins: "unfinished: destinations of migrations",
    a_row_is_stored_and_not_applied: "unfinished: rows stored",
    a_member_of_the_view_is_dead: "which do not live",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_the_oracle_sees_that(broken: Broken, quiet: Scene) -> None:
    mend = broken(quiet)
    try:
        problems = judge(quiet.cluster.pictures())
    finally:
        mend()
    assert problems
    assert any(re.search(BROKEN[broken], problem) for problem in problems), problems
    assert judge(quiet.cluster.pictures()) == [], "mended"


def test_stamps_are_compared_too(quiet: Scene) -> None:
    stamps = {member.table.stamp for member in quiet.members()}
    assert len(stamps) == 1
    assert stamps != {0}


def test_every_partition_has_as_many_copies_as_it_should(quiet: Scene) -> None:
    """Stored copies: partitions x (backups + 1) of each map, no more and no less."""
    for name, backups in (("ledger", 1), ("deep", 2)):
        stored = sum(name in copy.maps for member in quiet.members() for copy in member.copies.held.values())
        assert stored == 3 * (backups + 1)
