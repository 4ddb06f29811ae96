"""Group 4: control messages that are lost for a long time, and masters that change meanwhile.

Nothing is repeated by the protocols themselves: the link does that, and a commit that is not acknowledged is not tried
again but goes on. So "no migration appears twice" means here: each is asked for once, committed once, and raises the
version once. With `table fetch` the next master's `TableFetch` and `TableReport` are meant; beside these the agreement
on the view carries the newest rows too (rule membership/A-2), and a row that is not on every member it names does not
become the table at all (rule partition_table/L-2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from tests.lab.sim.scenarios.scene import Scene, row_history

from holdfast.core.events import Received
from holdfast.core.messages import (
    Enlisted,
    Fill,
    MigrationRequest,
    TableCommit,
    TableFetch,
    TableOffer,
    TableReport,
    TableStored,
    ViewDecided,
)
from holdfast.core.model.ids import SECOND
from holdfast.core.model.migration import NONE, Migration
from holdfast_lab.check import convergence
from holdfast_lab.check.durability import judge_final
from holdfast_lab.sim.matrix.forms import FORMS
from holdfast_lab.sim.matrix.stage import DEEP, LEDGER, LOOSE, Boundary, Stage
from holdfast_lab.sim.rig import Packet
from holdfast_lab.sim.world import STRAIGHT, Process


def from_to(kind: type, sender: Process | None, receiver: Process | None) -> Callable[[Packet], bool]:
    """Packets of this kind; None is anybody."""
    return lambda packet: (
        isinstance(packet.message, kind)
        and sender in (None, packet.sender)
        and receiver in (None, packet.receiver)
    )


class Behind:
    """Of five members the next master and one other never hear of the newest row; then the master dies.

    The report of one that knows it is held back.
    """

    def __init__(self, *, lite_master: bool = False) -> None:
        scene = self.scene = Scene(1, deep=False)
        scene.start(0, lite=lite_master)
        scene.start(1, 2, 3, 4)
        scene.rest()
        scene.fill()
        scene.judge()
        order = [info.uuid for info in scene.member(0).membership.members()]
        by_uuid = {process.driver.member.me: process for process in scene.cluster.living()}
        self.master, self.next, self.deaf, *self.knowing = (by_uuid[uuid] for uuid in order)
        self.partition = next(
            p
            for p, row in enumerate(self.master.driver.member.table.rows)
            if not {self.next.driver.member.me, self.deaf.driver.member.me} & set(row.replicas)
        )
        self.old_stamp = self.master.driver.member.table.stamp
        for silent in (self.next, self.deaf):
            scene.block(from_to(TableOffer, self.master, silent))
            scene.block(from_to(TableCommit, self.master, silent))
        self.master.step(self._raise)
        scene.wait(0.5)
        stamps = [p.driver.member.table.stamp for p in (self.next, self.deaf, *self.knowing)]
        assert stamps[:2] == [self.old_stamp] * 2
        assert self.old_stamp not in stamps[2:]
        self.new_stamp = stamps[2]
        self.late = self.knowing[0]
        self.unblock = scene.block(from_to(TableReport, self.late, None))
        self.master.crash()

    def _raise(self) -> None:
        driver = self.master.driver
        driver.enter()
        row = driver.member.table_replication.head[self.partition]
        driver.member.table_replication.propose({self.partition: row.changed(row.replicas)})
        driver.leave_lane()

    def nobody_is_safe_for(self, seconds: int) -> None:
        """The next master has come to lead, and looks for the newest table all this time."""
        member = self.next.driver.member
        self.scene.until(lambda: member.membership.is_master)
        for _ in range(seconds * 2):
            self.scene.wait(0.5)
            assert not member.table_replication.ready
            assert member.picture.unsafe_reason() != ""
            assert not self.scene.cluster.settled()


def test_the_next_master_waits_for_the_member_whose_table_comes_late() -> None:
    behind = Behind()
    behind.nobody_is_safe_for(10)
    behind.unblock()
    behind.scene.judge()
    row = behind.next.driver.member.table.rows[behind.partition]
    assert row.version > 0
    assert behind.next.driver.member.table.stamp not in (0, behind.old_stamp)


def test_the_newest_row_survives_though_the_next_master_never_got_it() -> None:
    """What the dead master had committed is in the history of every member."""
    behind = Behind()
    scene = behind.scene
    committed = behind.late.driver.member.table.rows[behind.partition]
    history = row_history(behind.deaf, behind.partition)
    behind.unblock()
    scene.judge()
    assert history[-1][0] >= committed.version


def test_if_the_late_one_dies_the_rest_agree() -> None:
    behind = Behind(lite_master=True)
    behind.nobody_is_safe_for(3)
    assert behind.scene.cluster.may_die(behind.late)
    behind.late.crash()
    behind.scene.judge()


@pytest.mark.parametrize("lite", [False, True], ids=["data master", "lite master"])
def test_nobody_is_safe_while_a_table_is_missing(lite: bool) -> None:
    behind = Behind(lite_master=lite)
    behind.nobody_is_safe_for(5)
    behind.unblock()
    behind.scene.judge()


class Commit:
    """A second data member joins a lite master and a data member with both partitions; its commit is answered late."""

    def __init__(self) -> None:
        scene = self.scene = Scene(0, partitions=2, deep=False)
        scene.start(0, 1, lite=True)
        scene.start(2)
        scene.rest()
        scene.fill(20)
        self.requests = scene.seen(MigrationRequest)
        (self.destination,) = scene.start(3)
        stored = scene.member(3).table_replication.stored_assignment

        def commits(packet: Packet) -> bool:
            """The answer to the offer of a row that names it, and whatever else it answers after that."""
            mine = any(row is not None and row.owner == scene.member(3).me for row in map(stored, (0, 1)))
            return isinstance(packet.message, TableStored) and packet.sender is self.destination and mine

        self.unblock = scene.block(commits)
        scene.until(
            lambda: any(stored(p) is not None and stored(p).owner == scene.member(3).me for p in (0, 1))
        )  # type: ignore[union-attr]


def test_the_answer_to_a_commit_is_lost_for_long() -> None:
    commit = Commit()
    scene = commit.scene
    history = row_history(scene.process(0)), row_history(scene.process(0), 1)
    scene.wait(10)
    assert [len(rows) for rows in history] == [1, 1], "not the table without its answer"
    commit.unblock()
    scene.judge()
    assert sorted(len(rows) for rows in history) == [1, 2]
    assert scene.member(0).migrations.completed == 1
    assert len(commit.requests) == 1
    assert sorted(scene.owners().values()) == ["host2", "host3"]


def test_the_answer_to_a_commit_is_lost_and_the_destination_dies() -> None:
    """Rolled back: with a higher version, though the offer was stored by the one that died."""
    commit = Commit()
    scene = commit.scene
    history = row_history(scene.process(0)), row_history(scene.process(0), 1)
    scene.wait(10)
    scene.terminate(3)
    scene.judge()
    assert scene.member(0).migrations.completed == 0
    assert set(scene.owners().values()) == {"host2"}
    (raised,) = [rows for rows in history if len(rows) > 1]
    assert raised[-1][0] > raised[0][0] + 1


class Promotion:
    """The owner of a partition dies; what its backup answers to the master is lost."""

    def __init__(self, kind: type) -> None:
        scene = self.scene = Scene(2)
        scene.start(0, lite=True)
        scene.start(1, 2, 3, 4, 5, 6)
        scene.rest()
        scene.fill()
        scene.judge()
        self.row = scene.member(0).table.rows[0]
        by_uuid = {process.driver.member.me: process for process in scene.cluster.living()}
        self.owner, self.heir, self.other = (
            by_uuid[uuid] for uuid in self.row.replicas[:3] if uuid is not None
        )
        self.blocked = 0
        self.kind = kind
        self.unblock = scene.block(self._lost)
        self.owner.crash()

    def _lost(self, packet: Packet) -> bool:
        if not isinstance(packet.message, self.kind):
            return False
        mine = packet.sender is self.heir if self.kind is TableStored else packet.receiver is self.heir
        self.blocked += mine
        return mine


@pytest.mark.parametrize("kind", [TableStored, Enlisted], ids=lambda kind: kind.__name__)
def test_the_answer_to_a_promotion_is_lost_for_long(kind: type) -> None:
    promotion = Promotion(kind)
    scene = promotion.scene
    history = row_history(scene.process(0))
    scene.wait(12)
    assert promotion.blocked
    assert not scene.cluster.settled()
    assert len(history) == (1 if kind is TableStored else 2), (
        "a row is the table when those it names have stored it"
    )
    promotion.unblock()
    scene.judge()
    promoted = [replicas[0] for _, replicas in history]
    assert promoted[:2] == [promotion.owner.driver.member.me, promotion.heir.driver.member.me]
    assert promoted.count(promotion.heir.driver.member.me) == len(promoted) - 1, "once, and for good"


@pytest.mark.parametrize("kind", [TableStored, Enlisted], ids=lambda kind: kind.__name__)
def test_the_answer_to_a_promotion_is_lost_and_the_heir_dies(kind: type) -> None:
    """Promotions are done again, elsewhere."""
    promotion = Promotion(kind)
    scene = promotion.scene
    scene.wait(12)
    assert promotion.blocked
    assert scene.cluster.may_die(promotion.heir)
    promotion.heir.crash()
    scene.judge()
    assert scene.member(0).table.rows[0].index_of(promotion.heir.driver.member.me) < 0


# -- messages that name another master


def told(scene: Scene, receiver: Process, sender: Process, message: object) -> list[Packet]:
    """Give a message to a member; the list has every packet that it sends within a second."""
    sent: list[Packet] = []

    def tap(packet: Packet) -> None:
        if packet.sender is receiver:
            sent.append(packet)

    scene.taps.append(tap)
    receiver.step(partial(receiver.driver.handle, Received(sender.driver.member.me, message)))  # type: ignore[arg-type]
    scene.wait(1)
    scene.taps.remove(tap)
    return sent


@pytest.fixture
def three() -> Scene:
    scene = Scene(1, partitions=3)
    scene.start(0, 1, 2, 3)
    scene.rest()
    scene.fill(10)
    return scene


def test_a_migration_that_another_than_the_master_asks_for_is_not_begun(three: Scene) -> None:
    master = three.master()
    partition, row = next(
        (p, row)
        for p, row in enumerate(master.driver.member.table.rows)
        if row.owner != master.driver.member.me
    )
    primary = next(p for p in three.cluster.living() if p.driver.member.me == row.owner)
    stranger = next(p for p in three.cluster.living() if p not in (primary, master))
    member = primary.driver.member
    away = next(m.me for m in three.members() if m.me not in row.replicas)
    view = member.membership.view
    assert view is not None
    migration = Migration(partition, member.me, 0, NONE, away, NONE, 0)
    request = MigrationRequest(view.number, migration, row.version)
    assert not any(isinstance(p.message, Fill) for p in told(three, primary, stranger, request))
    assert any(isinstance(p.message, Fill) for p in told(three, primary, master, request)), "the master may"


def test_a_table_that_another_than_the_master_offers_is_not_stored(three: Scene) -> None:
    master = three.master()
    receiver, stranger = [process for process in three.cluster.living() if process is not master][:2]
    member = receiver.driver.member
    view = member.membership.view
    assert view is not None
    row = member.table.rows[0]
    offer = TableOffer(view.number, 99, 99, [(0, row.changed((stranger.driver.member.me, None, None)))])
    assert not any(isinstance(p.message, TableStored) for p in told(three, receiver, stranger, offer))
    assert member.table_replication.stored_assignment(0) is None
    assert member.table.rows[0] == row
    assert told(three, receiver, stranger, TableCommit(view.number, 99)) is not None
    assert member.table.rows[0] == row
    three.judge()


def test_a_table_fetch_by_another_than_the_master_is_not_answered(three: Scene) -> None:
    master = three.master()
    receiver, stranger = [process for process in three.cluster.living() if process is not master][:2]
    view = receiver.driver.member.membership.view
    assert view is not None
    fetch = TableFetch(view.number)
    assert not any(isinstance(p.message, TableReport) for p in told(three, receiver, stranger, fetch))
    assert any(isinstance(p.message, TableReport) for p in told(three, receiver, master, fetch))


def test_content_from_another_than_the_primary_is_not_taken(three: Scene) -> None:
    member = three.master().driver.member
    row = member.table.rows[0]
    receiver = next(p for p in three.cluster.living() if row.index_of(p.driver.member.me) == 1)
    stranger = next(p for p in three.cluster.living() if row.index_of(p.driver.member.me) < 0)
    fill = Fill(0, row.version, 1, 0, True, 0, False, 1, [])
    assert told(three, receiver, stranger, fill) == [] or 0 not in receiver.driver.member.copies.staging
    three.judge()


# -- once each


def test_each_participant_sees_a_migration_begin_and_end_once() -> None:
    commit = Commit()
    scene = commit.scene
    commit.unblock()
    fills = scene.seen(Fill)
    histories = [[row_history(scene.process(host), p) for p in (0, 1)] for host in range(4)]
    scene.judge()
    for rows in histories:
        assert sorted(len(each) for each in rows) == [1, 2], "one row changed, once, at every member"
    assert len(commit.requests) == 1
    assert fills == []


# -- a view that only a removed member knows of


def test_a_master_dies_when_only_the_member_it_removed_knows_of_the_new_view() -> None:
    """Two others have agreed to the view, and are no majority of the old one: they learn it from the removed one."""
    scene = Scene(1, partitions=3)
    scene.start(0, lite=True)
    scene.start(1, 2, 3)
    scene.rest()
    scene.fill(10)
    view = scene.member(0).membership.view
    assert view is not None
    by_uuid = {process.driver.member.me: process for process in scene.cluster.living()}
    master, *others, removed = (by_uuid[info.uuid] for info in view.members)
    cut = scene.world.weather.cut
    for other in others:
        cut[removed.host, other.host] = cut[other.host, removed.host] = True

    def decided(packet: Packet) -> bool:
        message = packet.message
        return (
            packet.sender is master and isinstance(message, ViewDecided) and message.view.number > view.number
        )

    def tap(packet: Packet) -> Sequence[int] | None:
        if decided(packet) and packet.receiver is removed:
            master.crash()
            return None
        return () if decided(packet) else None

    scene.taps.append(tap)
    scene.until(lambda: master.dead, 30)
    scene.wait(0.1)
    assert removed.driver.member.membership.state == "exiled"
    assert [other.driver.member.membership.view for other in others] == [view, view]
    cut.clear()
    scene.judge()


# -- a commit that the next master never heard of


@pytest.mark.parametrize(("form", "role"), [("move-backup", "neither"), ("move-owner", "lite")])
def test_a_row_that_an_earlier_master_committed_is_not_taken_back(form: str, role: str) -> None:
    """The next master knows the row from the others only; the destination, which the row names, is removed by mistake.

    To take the row back would name again who has dropped its copy, and lose what the new owner has acknowledged.
    """
    seed = next(n for n in range(50) if _letters(form, role, n)[1] == "A")
    stage = Stage(FORMS[form], role, seed, story=None)
    world, old = stage.world, stage.letters[0]
    unaware = "A"
    cut: list[int] = []

    def strike(boundary: Boundary) -> Sequence[int]:
        sender = stage.letter(boundary.sender)
        if sender == old and boundary.message == "TableCommit":
            world.after(0, boundary.sender.crash)
            return () if boundary.receiver == unaware else STRAIGHT
        if sender == unaware and boundary.message == "TableOffer" and not cut:
            cut.append(boundary.number)
            pair = (boundary.sender.host, stage.living("C").host)  # type: ignore[union-attr]
            world.weather.cut[pair] = world.weather.cut[pair[::-1]] = True
            world.after(6 * SECOND, world.weather.cut.clear)
        return STRAIGHT

    stage.strike = strike
    stage.begin()
    world.run_until(world.now_ns + 30 * SECOND)
    stage.client.running = False
    world.run_until(world.now_ns + 60 * SECOND, stop=lambda: stage.at_rest() and not stage.client.waiting())
    assert not world.failures
    assert cut
    assert convergence.judge(stage.cluster.pictures()) == []
    final: dict[str, str | None] = {}
    for name in (LEDGER, DEEP):
        stage.client.look(stage.cluster.living()[0], name, final.update)
    world.run_until(world.now_ns + 5 * SECOND)
    writes = [write for write in stage.client.writes if not write.key.startswith(LOOSE)]
    assert judge_final(writes, final) == []


def _letters(form: str, role: str, seed: int) -> list[str]:
    return Stage(FORMS[form], role, seed, story=None).letters
