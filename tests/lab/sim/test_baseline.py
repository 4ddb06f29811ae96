"""A baseline names who owns data: who is away keeps its places, who is not in it holds nothing, and two parts of a
cluster that have gone on without each other do not come together again.
"""

from __future__ import annotations

import random
from functools import partial
from typing import NamedTuple

import msgspec
import pytest
from tests.lab.sim.scenarios.keeping import ENDS, PARTITIONS, End, Keeping, kept, keys_in
from tests.lab.sim.stage import change, clean
from tests.lab.sim.zone_stage import ZoneStage
from tests.sampled_cases import sampled

from holdfast.actions.accept_loss import AcceptLoss
from holdfast.config import Settings
from holdfast.core.events import ActionRequested
from holdfast.core.member import Member
from holdfast.core.membership.baseline_orders import BaselineChange, Owners, owners_wanted
from holdfast.core.messages import Accept, Message, Promise
from holdfast.core.model.baseline import FIXED, Baseline
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.migration import ReplicaList
from holdfast.core.model.operations import Op, Status
from holdfast.core.model.views import ClusterState
from holdfast.errors import Refused
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.rig import Packet

SET, ADD, REMOVE, AUTO = BaselineChange


def baseline_of(member: Member) -> Baseline | None:
    return member.picture.view.baseline if member.picture.view is not None else None


class Exactly(NamedTuple):
    """An order about the baseline as a member sends it to the master, whatever the member knows."""

    after: str
    members: list[str]
    adjust_ms: int = FIXED

    def apply(self, member: Member, reply: object) -> None:
        member.membership.orders.set_baseline(self.after, self.members, self.adjust_ms)

    def withdraw(self, member: Member) -> None: ...

    def audit_line(self) -> str:
        return "baseline"


class Based(Keeping):
    """A cluster with files, and the orders of an operator about its baseline. Members are called as their hosts are."""

    def name(self, host: int) -> str:
        return self.cluster.addresses[host].host

    def order(self, change: BaselineChange, *hosts: int, adjust_ms: int = FIXED, through: int = -1) -> Owners:
        """Give the order once."""
        member = self.member(through) if through >= 0 else self.cluster.members()[0]
        view = member.picture.view
        assert view is not None
        owners = owners_wanted(view, change, [self.name(host) for host in hosts], adjust_ms)
        process = self.world.processes[self.cluster.addresses[self.at(member.me)]]
        process.step(
            partial(
                process.driver.handle,
                ActionRequested(Exactly(view.baseline_point, sorted(owners.members), owners.adjust_ms)),
            )
        )
        return owners

    def change(self, change: BaselineChange, *hosts: int, adjust_ms: int = FIXED) -> None:
        """Give it, again when something else was changed meanwhile, and wait until all know."""
        for _ in range(20):
            owners = self.order(change, *hosts, adjust_ms=adjust_ms)
            self.wait(3)
            views = [member.picture.view for member in self.cluster.members()]
            if all(view is not None and owners.are_in(view) for view in views):
                return
        raise AssertionError(f"it is not {owners}")

    def at(self, uuid: str) -> int:
        return next(self.host_of(one) for one in self.cluster.living() if one.driver.member.me == uuid)

    def baseline(self, host: int | None = None) -> Baseline:
        member = self.member(host) if host is not None else self.cluster.members()[0]
        found = baseline_of(member)
        assert found is not None
        return found

    def rows(self) -> list[ReplicaList]:
        """The rows, by host."""
        hosts = {one.driver.member.me: self.name(self.host_of(one)) for one in self.cluster.living()}
        rows = self.cluster.members()[0].table.rows
        return [tuple(hosts[one] if one is not None else None for one in row.replicas) for row in rows]

    def holds(self, host: int) -> set[int]:
        """The partitions that the rows give to this host."""
        return {partition for partition, row in enumerate(self.rows()) if self.name(host) in row}

    def still(self, seconds: float = 30) -> None:
        """Nothing is on its way: members may wait for one that is away."""
        self.wait(seconds)
        for member in self.cluster.members():
            moves = member.picture.migrations()
            assert (moves.active, moves.queued) == (0, 0)
        assert not self.world.failures, self.world.failures

    def crash(self, *hosts: int) -> None:
        self.end("kill", *hosts)
        self.still()


def based(
    hosts: int = 4, backups: int = 1, *, spare: int = 0, placement: str = "even", **files: int
) -> Based:
    settings = kept(backups, **files)  # type: ignore[arg-type]
    partitions = msgspec.structs.replace(settings.partitions, placement=placement)
    return Based(hosts, msgspec.structs.replace(settings, partitions=partitions), spare=spare, named=True)


def completed(stage: Based) -> int:
    return sum(member.picture.migrations().completed for member in stage.cluster.members())


PLACEMENTS = pytest.mark.parametrize("placement", ["even", "rendezvous"])


# -- outside


@pytest.mark.rule("membership/B-3")
@PLACEMENTS
def test_who_joins_and_is_not_in_it_holds_nothing_until_it_is_added(placement: str) -> None:
    stage = based(3, spare=1, placement=placement)
    keys = stage.everywhere()
    stage.change(SET)
    before, done = stage.rows(), completed(stage)
    stage.start(3)
    stage.rest()
    assert stage.rows() == before
    assert completed(stage) == done
    assert not stage.member(3).picture.held
    assert [info.name for info in stage.member(0).picture.outside()] == [stage.name(3)]
    assert stage.get(stage.process(3), keys[0]) is not None, "it serves clients"
    stage.write(keys, host=3)
    stage.change(ADD, 3)
    clean(stage, stage.writes, again=False)
    assert stage.holds(3)


@ablated("baseline-outside")
def test_without_the_rule_whoever_joins_gets_data() -> None:
    stage = based(3, spare=1)
    stage.everywhere()
    stage.change(SET)
    stage.start(3)
    stage.rest()
    assert stage.member(3).picture.held


@pytest.mark.rule("membership/B-3")
def test_what_somebody_brings_back_who_is_not_in_it_any_more_counts_for_nothing() -> None:
    """Its files hold a copy of a partition whose other copies are gone; but it was taken out."""
    stage = based(5)
    stage.everywhere()
    stage.change(SET)
    first, second = next(
        holders for holders in map(stage.holders, range(PARTITIONS)) if stage.master_host() not in holders
    )
    stage.crash(first)
    stage.change(REMOVE, first)
    stage.rest()
    stage.start(first)
    stage.rest()
    assert not stage.member(first).picture.held
    third = next(host for host in range(5) if host not in (first, second, stage.master_host()))
    stage.end("kill", second, third)
    stage.still()
    assert not stage.member(first).picture.held
    stage.start(second, third)
    stage.rest()
    assert not stage.member(first).picture.held
    clean(stage, stage.writes, again=False)


@pytest.mark.rule("membership/B-3")
def test_zones_take_nobody_who_is_not_in_it() -> None:
    stage = ZoneStage(4, spare=1)
    first = stage.processes[0].driver
    view = first.member.picture.view
    assert view is not None
    owners = owners_wanted(view, SET, [], FIXED)
    stage.processes[0].step(
        partial(stage.processes[0].driver.handle, ActionRequested(Exactly("", sorted(owners.members))))
    )
    stage.wait(5)
    stage.processes.append(stage.cluster.start(4))
    stage.rest()
    stage.wait(30)
    new = stage.processes[4]
    assert len(new.driver.member.picture.outside()) == 1
    assert not any(new in stage.replicas(partition) for partition in range(7))
    stage.zput(new, "k", "v")
    assert stage.zget(stage.processes[1], "k") == "v"


# -- away


@pytest.mark.rule("placement/K-1")
@PLACEMENTS
def test_who_is_away_keeps_its_places_and_gets_its_own_back_by_what_it_has_missed(placement: str) -> None:
    stage = based(4, placement=placement)
    keys = stage.everywhere(10)
    stage.change(SET)
    stage.rest()
    before, done = stage.rows(), completed(stage)
    gone = next(host for host in range(4) if host != stage.master_host())
    its = stage.holds(gone)
    stage.crash(gone)
    assert completed(stage) == done, "nothing is copied elsewhere"
    assert {partition for partition, row in enumerate(stage.rows()) if None in row} == its
    assert [one.consistent_id for one in stage.baseline().away] == [stage.name(gone)]
    assert "places are kept" in stage.member(stage.master_host()).picture.unsafe_reason()
    stage.write(keys[::3])
    stage.start(gone)
    stage.rest()
    assert stage.baseline().away == ()
    assert {frozenset(row) for row in stage.rows()} == {frozenset(row) for row in before}
    assert stage.holds(gone) == its
    ways = {how for partition in its for how, _ in stage.synchronised(gone, partition)}
    assert ways <= {"history", "nothing"}, ways
    assert "history" in ways
    clean(stage, stage.writes)


@pytest.mark.rule("placement/K-1")
@PLACEMENTS
def test_two_are_away_and_come_back_one_after_the_other(placement: str) -> None:
    stage = based(6, 2, placement=placement)
    keys = stage.everywhere(5)
    stage.change(SET)
    stage.rest()
    gone = [host for host in range(6) if host != stage.master_host()][:2]
    its = {host: stage.holds(host) for host in gone}
    stage.crash(*gone)
    stage.write(keys[::2])
    stage.start(gone[1])
    stage.still()
    assert stage.holds(gone[1]) >= its[gone[1]]
    assert [one.consistent_id for one in stage.baseline().away] == [stage.name(gone[0])]
    stage.write(keys[1::2])
    stage.start(gone[0])
    stage.rest()
    if placement == "rendezvous":
        assert {host: stage.holds(host) for host in gone} == its
    clean(stage, stage.writes)


@pytest.mark.rule("placement/K-2")
@PLACEMENTS
def test_a_member_drains_while_another_is_away(placement: str) -> None:
    stage = based(4, placement=placement)
    stage.everywhere(5)
    stage.change(SET)
    away, leaver = [host for host in range(4) if host != stage.master_host()][:2]
    stage.crash(away)
    copies = sum(one is not None for row in stage.rows() for one in row)
    stage.leave(leaver)
    stage.still()
    assert sum(one is not None for row in stage.rows() for one in row) >= copies
    away_now = {one.consistent_id for one in stage.baseline().away}
    assert away_now == {stage.name(away)}, "who has left in order keeps nothing"
    stage.start(away)
    stage.rest()
    clean(stage, stage.writes, again=False)


def test_without_files_who_comes_back_is_filled_anew() -> None:
    plain = msgspec.structs.replace(kept(1), persistence=Settings().persistence, maps=Settings().maps)
    stage = Based(4, plain, named=True)
    stage.everywhere(5)
    stage.change(SET)
    gone = next(host for host in range(4) if host != stage.master_host())
    its = stage.holds(gone)
    stage.crash(gone)
    assert sum(None in row for row in stage.rows()) == len(its)
    stage.start(gone)
    stage.rest()
    assert len(stage.holds(gone)) == len(its)
    clean(stage, stage.writes, again=False)


def test_a_cluster_that_was_stopped_keeps_the_places_of_who_does_not_come() -> None:
    stage = based(4, 2)
    keys = stage.everywhere()
    stage.change(SET)
    stage.rest()
    before = stage.holds(3)
    stage.end_all("power cut")
    stage.start(0, 1, 2)
    stage.wait(20)
    process = stage.process(0)
    process.step(partial(process.driver.handle, ActionRequested(AcceptLoss())))
    stage.still()
    assert [one.consistent_id for one in stage.baseline().away] == [stage.name(3)]
    assert {partition for partition, row in enumerate(stage.rows()) if None in row} == before
    stage.write(keys)
    stage.start(3)
    stage.rest()
    assert stage.holds(3) == before
    clean(stage, stage.writes)


def test_frozen_while_somebody_is_away_and_active_again() -> None:
    stage = based(4)
    keys = stage.everywhere(4)
    stage.change(SET)
    gone = next(host for host in range(4) if host != stage.master_host())
    its = stage.holds(gone)
    change(stage, ClusterState.FROZEN)
    stage.end("kill", gone)
    stage.still(20)
    change(stage, ClusterState.ACTIVE)
    stage.still(20)
    assert {partition for partition, row in enumerate(stage.rows()) if None in row} == its
    stage.write(keys[::2])
    stage.start(gone)
    stage.rest()
    assert stage.holds(gone) == its
    clean(stage, stage.writes)


# -- D10


@pytest.mark.parametrize("how", sampled(["kill", "power cut"], 2))
def test_d10_stopped_taken_out_back_and_added_again_under_load(how: str) -> None:
    """D10: a baseline node stops and is removed, its copies are evicted, it is added again, and rebalanced under load;
    then once more by history.
    """
    stage = based(4)
    stage.everywhere(5)
    stage.change(SET)
    gone = next(host for host in range(4) if host != stage.master_host())
    stop = stage.load()
    stage.end(how, gone)  # type: ignore[arg-type]
    stage.still(10)
    stage.change(REMOVE, gone)
    stage.wait(10)
    assert not any(None in row for row in stage.rows()), "what it held is with others"
    stage.start(gone)
    stage.wait(10)
    assert not stage.member(gone).picture.held
    assert not stage.member(gone).picture.stale, "and what it has brought is dropped when all is safe"
    stage.change(ADD, gone)
    stage.wait(10)
    assert stage.holds(gone)
    stage.end(how, gone)  # type: ignore[arg-type]
    stage.still(10)
    stage.start(gone)
    stage.wait(10)
    stop()
    ways = {how for p in stage.holds(gone) for how, _ in stage.synchronised(gone, p)}
    assert "full" not in ways, ways
    clean(stage, stage.writes)


# -- history


def halves_go_on_apart(stage: Based) -> list[str]:
    """G1: all write and stop; {0,1} go on by order, write some keys, and stop; {2,3} write others. Answers all keys."""
    keys = stage.everywhere()
    half = len(keys) // 2
    stage.change(SET)
    stage.end_all("kill")
    for pair in ((0, 1), (2, 3)):
        stage.start(*pair, by_order=True)
        stage.wait(20)
        process = stage.process(pair[0])
        process.step(partial(process.driver.handle, ActionRequested(AcceptLoss())))
        stage.still()
        stage.write(keys[:half] if pair == (0, 1) else keys[half:])
        if pair == (0, 1):
            stage.end_all("kill")
    return keys


@pytest.mark.rule("membership/B-1")
@pytest.mark.rule("membership/B-5")
def test_g1_two_halves_that_went_on_apart_do_not_come_together() -> None:
    """G1 (IGNITE-5854): who has the files of the other half is refused, and told what to do."""
    stage = based(4, 2)
    keys = halves_go_on_apart(stage)
    acknowledged = [stage.get(stage.process(2), key) for key in keys]
    stage.start(0, 1)
    stage.wait(30)
    for host in (0, 1):
        assert not stage.member(host).picture.admitted
        assert "another history of the baseline" in stage.member(host).picture.refusal
        assert "start this member with an empty persistence.directory" in stage.member(host).picture.refusal
    assert [stage.get(stage.process(2), key) for key in keys] == acknowledged
    # The way out: without its files each is a member like another one.
    for host in (0, 1):
        stage.process(host).crash()
        stage.cluster.disks[host].wipe()
    stage.start(0, 1)
    stage.rest()
    assert stage.member(0).picture.admitted


@ablated("baseline-history")
def test_without_the_rule_they_do_and_one_half_loses_what_it_has_acknowledged() -> None:
    stage = based(4, 2)
    keys = halves_go_on_apart(stage)
    stage.start(0, 1)
    stage.wait(30)
    assert stage.member(0).picture.admitted
    last = {write.key: write.value for write in stage.writes}
    found = {key: stage.get(stage.process(0), key) for key in keys}
    assert {key for key in keys if found[key] != last[key]} == {*keys[: len(keys) // 2]}


@pytest.mark.covering(1)
@pytest.mark.rule("primary_backup/O-5")
@pytest.mark.parametrize("partition", [0, 3])
@pytest.mark.parametrize("how", ENDS)
def test_a_half_that_stops_at_its_first_write_after_a_loss_is_apart(how: End, partition: int) -> None:
    """Clients wait while the operator accepts the loss, and all members end as soon as a write is acknowledged. Each
    that holds this write is refused by the other half. The members need some time to agree on a view.
    """
    stage = based(5, 3)
    keys = stage.everywhere()
    stage.change(SET)
    stage.end_all("kill")
    stage.start(0, 1, 2, by_order=True)
    stage.wait(20)
    stage.taps.append(lambda packet: (100 * MILLISECOND,) if isinstance(packet.message, Promise) else None)
    answers = {(key, host): stage.send(Op.SET, key, host=host) for key in keys for host in (0, 1, 2)}
    process = stage.process(0)
    process.step(partial(process.driver.handle, ActionRequested(AcceptLoss())))
    stage.until(lambda: any(answers[key, host] for key in keys_in(partition, 3) for host in (0, 1, 2)), 30)
    assert {one.status for each in answers.values() for one in each} == {Status.OK}
    holders = stage.holders(partition)
    stage.end_all(how)
    stage.start(3, 4, by_order=True)
    stage.wait(20)
    process = stage.process(3)
    process.step(partial(process.driver.handle, ActionRequested(AcceptLoss())))
    stage.still()
    stage.write(keys)
    for host in holders:
        stage.start(host)
        stage.wait(30)
        assert not stage.member(host).picture.admitted
        assert "another history of the baseline" in stage.member(host).picture.refusal
        stage.process(host).crash()


@pytest.mark.rule("membership/B-1")
def test_who_missed_changes_is_let_in_and_who_knows_more_tells_a_cluster_that_comes_back() -> None:
    stage = based(4, 2)
    stage.everywhere()
    stage.change(SET)
    stage.crash(0)
    stage.change(REMOVE, 0)
    stage.rest()
    point = stage.baseline().point
    stage.end_all("kill")
    # The first seed knows the older history, and forms the cluster again.
    stage.start(0, by_order=True)
    stage.wait(10)
    assert stage.baseline(0).point != point
    stage.start(1, 2, 3)
    stage.rest()
    assert {stage.baseline(host).point for host in range(4)} == {point}
    assert [info.name for info in stage.member(1).picture.outside()] == [stage.name(0)]
    assert {one.consistent_id for one in stage.baseline().away} == set()
    clean(stage, stage.writes, again=False)


# -- changes


@pytest.mark.rule("membership/B-2")
def test_only_who_is_not_here_can_be_taken_out() -> None:
    stage = based(4)
    stage.change(SET)
    with pytest.raises(Refused, match=r"is present and holds data.*holdfast member drain"):
        stage.order(REMOVE, 3)
    # An order of before it came back is not carried out either.
    stage.crash(3)
    view = stage.cluster.members()[0].picture.view
    assert view is not None
    stage.start(3)
    stage.rest()
    process = stage.process(0)
    names = sorted(view.baseline.ids - {stage.name(3)})  # type: ignore[union-attr]
    process.step(partial(process.driver.handle, ActionRequested(Exactly(view.baseline_point, names))))
    stage.wait(5)
    assert stage.name(3) in stage.baseline().ids
    # Nor later, when nobody says it any more.
    stage.crash(3)
    assert stage.name(3) in stage.baseline().ids
    # Nor one that does not know what has changed since.
    changes = stage.baseline().changes
    process.step(partial(process.driver.handle, ActionRequested(Exactly("of before", names))))
    stage.wait(5)
    assert stage.baseline().changes == changes


@pytest.mark.parametrize("after", range(3))
def test_the_master_dies_in_the_middle_of_a_change(after: int) -> None:
    """So many members have been asked to accept the view with the change; it is everywhere in the end, once."""
    stage = based(5, 2)
    stage.everywhere()
    stage.change(SET)
    stage.crash(4)
    master = stage.master_host()
    asked: list[Message] = []

    def dies(packet: Packet) -> bool:
        if (
            isinstance(packet.message, Accept)
            and packet.message.value.baseline
            and len(packet.message.value.baseline.members) == 4
        ):
            asked.append(packet.message)
            if len(asked) == after + 1:
                stage.end("kill", master)
            return len(asked) == after + 1
        return False

    unblock = stage.block(dies)
    other = next(host for host in range(4) if host != master)
    owners = stage.order(REMOVE, 4, through=other)
    stage.until(lambda: stage.process(master).dead)
    unblock()
    stage.wait(20)
    if not owners.are_in(stage.member(other).picture.view):  # type: ignore[arg-type]
        stage.order(REMOVE, 4, through=other)
        stage.wait(10)
    points = [baseline_of(member) for member in stage.cluster.members()]
    assert {point.point for point in points if point} == {stage.baseline().point}
    assert stage.name(4) not in stage.baseline().ids
    assert stage.baseline().changes == 2
    stage.start(master)
    stage.rest()
    clean(stage, stage.writes, again=False)


# -- by itself


@pytest.mark.rule("membership/B-4")
def test_it_is_adjusted_after_the_time_and_not_before() -> None:
    stage = based(4, spare=1)
    keys = stage.everywhere()
    stage.change(AUTO, adjust_ms=60_000)
    gone = next(host for host in range(4) if host != stage.master_host())
    stage.end("kill", gone)
    stage.until(lambda: bool(stage.baseline().away))
    began_ns = stage.world.now_ns
    stage.wait(50)
    assert stage.name(gone) in stage.baseline().ids
    left = stage.member(stage.master_host()).picture.adjusts_in_ms
    assert left is not None
    assert abs(left - (60_000 - (stage.world.now_ns - began_ns) // 1_000_000)) < 1_000
    stage.start(4)  # Somebody comes: the time begins anew.
    stage.wait(50)
    assert stage.name(gone) in stage.baseline().ids
    assert not stage.member(4).picture.held
    stage.wait(20)
    assert stage.baseline().ids == {stage.name(host) for host in range(5) if host != gone}
    assert stage.member(0).picture.adjusts_in_ms is None
    stage.write(keys)
    clean(stage, stage.writes, again=False)
    assert stage.holds(4)


@pytest.mark.rule("membership/B-4")
def test_it_is_not_adjusted_while_partitions_wait_for_their_copies() -> None:
    stage = based(5)
    stage.everywhere()
    stage.change(AUTO, adjust_ms=5_000)
    both = next(
        holders for holders in map(stage.holders, range(PARTITIONS)) if stage.master_host() not in holders
    )
    stage.end("kill", *both)
    stage.wait(60)
    assert stage.baseline().ids == {stage.name(host) for host in range(5)}
    stage.start(*both)
    stage.rest()
    clean(stage, stage.writes, again=False)


def test_adjusted_at_once_it_is_as_without_a_baseline() -> None:
    stage = based(3, spare=1)
    stage.everywhere()
    stage.change(AUTO, adjust_ms=0)
    stage.start(3)
    stage.rest()
    assert stage.holds(3)
    stage.end("kill", 1)
    stage.rest()
    assert stage.baseline().ids == {stage.name(host) for host in (0, 2, 3)}
    clean(stage, stage.writes, again=False)


def test_everybody_again_from_their_files() -> None:
    stage = based(4)
    stage.everywhere()
    stage.change(SET)
    clean(stage, stage.writes)
    assert stage.baseline().changes == 1


@pytest.mark.parametrize(("seed", "rounds"), sampled([(0, 3), *((seed, 8) for seed in range(4))], 5))
def test_under_load_members_crash_return_drain_and_are_taken_out_and_in(seed: int, rounds: int) -> None:
    """Some hosts are away, out or gone at any time, never more than there are backups; clients lose nothing."""
    draw = random.Random(seed)
    stage = based(5, 2, spare=1, placement=draw.choice(["even", "rendezvous"]))
    stage.everywhere(2)
    stage.change(SET)
    stop = stage.load()
    for _ in range(rounds):
        running = [
            host for host in range(6) if host in {stage.host_of(one) for one in stage.cluster.living()}
        ]
        down = [host for host in range(6) if host not in running]
        ids = stage.baseline().ids
        event = draw.choice(["crash", "return", "return", "drain", "remove", "add", "auto"])
        host = draw.choice(running if event in ("crash", "drain", "add") else down or running)
        if event in ("crash", "drain") and len(running) > 4:
            stage.end("kill", host) if event == "crash" else stage.leave(host)
        elif event == "return" and down:
            stage.start(host)
        elif event == "remove" and host in down and stage.name(host) in ids:
            stage.change(REMOVE, host)
        elif event == "add":
            stage.change(ADD, host)
        elif event == "auto":
            stage.change(AUTO, adjust_ms=draw.choice([FIXED, 3_000, 20_000]))
        stage.wait(draw.choice([8, 15]))
    running = [stage.host_of(one) for one in stage.cluster.living()]
    stage.start(*(host for host in range(6) if host not in running))
    stage.wait(10)
    stop()
    stage.change(SET)
    clean(stage, stage.writes)
