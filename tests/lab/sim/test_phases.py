"""What follows the faults of a run: each phase works, and reports what it is there to find."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.lab.sim.stage import Stage, change, settings
from tests.lab.sim.zone_stage import zoned_settings

from holdfast.config import Settings
from holdfast.core.model.ids import SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op
from holdfast.core.model.views import ClusterState, Intent
from holdfast.core.partition_table.event_log import EventLog
from holdfast.core.state_transfer.anti_entropy import AntiEntropy
from holdfast.core.store.replica import MapReplica
from holdfast_lab.check import convergence
from holdfast_lab.check.linearizability import Call, Outcome
from holdfast_lab.sim import damage as damages
from holdfast_lab.sim import phases as phases_module
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import Cluster, simulated_settings
from holdfast_lab.sim.damage import KINDS
from holdfast_lab.sim.faults import Faults
from holdfast_lab.sim.judging import LAST, judge_calls
from holdfast_lab.sim.phases import Phases
from holdfast_lab.sim.shape import Loss
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import World

KEYS = [f"k{n}" for n in range(40)]


def phases(stage: Stage, **more: Any) -> Phases:
    faults = Faults(1, stage.world, stage.cluster, stage.world.now_ns, **more)
    faults.end()
    return Phases(stage.world, stage.cluster, faults)


def filled(hosts: int, chosen: Settings | None = None, **more: Any) -> Stage:
    stage = Stage(hosts, settings=chosen, **more)
    for n, key in enumerate([*KEYS, *KEYS]):
        stage.ask(stage.processes[n % hosts], Op.SET, key, f"v{n}")
    stage.wait(2)
    return stage


# -- a core that suffices


@pytest.mark.parametrize("seed", range(6))
def test_a_core_goes_on_alone_and_then_all_are_one_cluster_again(seed: int) -> None:
    stage = filled(5, backups=2)
    stage.world.seed = seed
    seen: list[int] = []
    judged = phases(stage)
    choose = judged._choose_core

    def noted() -> list[Any]:
        core = choose()
        seen.append(len(core))
        return core

    judged._choose_core = noted  # type: ignore[method-assign]
    judged.core()
    assert not stage.world.failures
    assert stage.world.marks["phase core alone"] == 1
    assert 3 <= seen[-1] < 5, "a majority, and not everybody"
    stage.processes = stage.cluster.living()
    assert not stage.world.weather.cut
    stage.rest(120)
    assert stage.get(stage.processes[0], "k7") == "v47"


def test_a_core_that_does_not_converge_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = filled(5)
    monkeypatch.setattr(phases_module, "LIVE_NS", 30 * SECOND)
    stage.world.weather.loss = 1.0
    judged = phases(stage)
    stage.world.weather.loss = 1.0
    judged.core()
    (problem,) = stage.world.failures
    assert "has not converged in 30 s" in problem
    assert "silent" in problem


def test_a_core_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """It becomes passive when it has been chosen."""
    stage = filled(5)
    monkeypatch.setattr(phases_module, "LIVE_NS", 30 * SECOND)
    judged = phases(stage)
    judged.faults._state_wanted = None
    break_others = judged._break_others

    def passive(core: set[str]) -> Any:
        change(stage, ClusterState.PASSIVE)
        return break_others(core)

    monkeypatch.setattr(judged, "_break_others", passive)
    monkeypatch.setattr(phases_module, "settled_among", lambda members: True)
    judged.core()
    (problem,) = stage.world.failures
    assert f"not answered: partitions {[(part, 'probes') for part in range(7)]}" in problem


def test_who_suffices() -> None:
    stage = filled(5)
    judged = phases(stage)
    everybody = stage.cluster.living()
    assert judged._suffices(everybody)
    assert not judged._suffices(everybody[:2]), "no majority"
    assert judged._suffices(everybody[1:]), "one copy of everything is left"
    pair = {stage.owner_of("k1"), *stage.backups_of("k1")}
    assert not judged._suffices([p for p in everybody if p not in pair]), "a partition is held by nobody"
    membership = stage.processes[0].driver.member.membership
    membership.agreement.propose()
    assert not judged._suffices(everybody), "nobody knows what the next view needs"


# -- more losses than promised


def losing(kind: Loss) -> Settings:
    base = simulated_settings(1, 7, journal="sync" if kind == "return" else "off")
    lost = "accept" if kind == "accept" else "wait"
    return msgspec.structs.replace(base, partitions=msgspec.structs.replace(base.partitions, lost=lost))


@pytest.mark.parametrize("kind", ["accept", "operator", "return"])
def test_the_loss_of_all_copies_is_told_and_the_cluster_goes_on(kind: Loss) -> None:
    stage = filled(5, losing(kind))
    stage.world.weather.refusal = 0.3
    phases(stage).lose(kind)
    assert not stage.world.failures
    assert stage.world.marks[f"phase loss: {kind}"] == 1
    stage.processes = stage.cluster.living()
    stage.wait(30)
    stage.processes = stage.cluster.living()
    stage.rest(120)
    lost = {partition for partition, _ in stage.cluster.lost}
    assert bool(lost) == (kind != "return")
    gone = {key for key in KEYS if stage.get(stage.cluster.living()[0], key) is None}
    assert {partition_of(wire_key(key), 0, 7) for key in gone} <= lost
    assert bool(gone) == bool(lost)


def test_a_loss_of_which_nobody_says_anything_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = filled(5, losing("accept"))
    monkeypatch.setattr(EventLog, "_deliver", lambda self, news: None)
    phases(stage).lose("accept")
    (problem,) = stage.world.failures
    assert "no member reported the loss of all copies of partitions" in problem


@pytest.mark.parametrize(
    ("announced", "problem"),
    [
        (True, "the operator has not accepted that partition"),
        (False, "are served though all their copies are lost"),
    ],
)
@ablated("wait-for-copies")
def test_what_is_lost_and_served_before_anybody_accepts_it_is_reported(announced: bool, problem: str) -> None:
    """Without the rule the partition is emptied; that shows, whether what is told of it is heeded or not."""
    stage = filled(5, losing("operator"))
    stage.cluster.accepted = not announced
    phases(stage).lose("operator")
    assert any(problem in found for found in stage.world.failures), stage.world.failures


def test_only_what_was_written_to_a_lost_partition_before_is_excused() -> None:
    seven = settings(1)
    at = partition_of(wire_key("k1"), 0, seven.partitions.count)
    other = next(key for key in KEYS if partition_of(wire_key(key), 0, seven.partitions.count) != at)

    def problems(key: str, start_s: int) -> list[str]:
        """The partition of k1 is lost after 50 s; this write is not there in the end."""
        done, after = Outcome.DONE, start_s * SECOND
        calls = [
            Call("set", key, after, after + 1, done, "v"),
            Call("get", key, 90 * SECOND, 90 * SECOND, done, client=LAST),
        ]
        return judge_calls(calls, seven, lost=[(at, 50 * SECOND)])

    assert problems("k1", 30) == []
    assert problems("k1", 45) == [], "a loss may be heard of late"
    assert problems("k1", 62), (
        "and somebody may still answer from what others have given up, but not for long"
    )
    assert problems(other, 30)


def test_what_a_zone_has_lost_excuses_maps_in_it_only() -> None:
    zoned = zoned_settings()
    count, done = zoned.partitions.count, Outcome.DONE
    for key in ("z1", "k1"):
        at = partition_of(wire_key(key), 0, count)
        calls = [
            Call("set", key, 30 * SECOND, 30 * SECOND + 1, done, "v"),
            Call("get", key, 90 * SECOND, 90 * SECOND, done, client=LAST),
        ]
        in_zone = judge_calls(calls, zoned, zone_lost=[(at, 50 * SECOND)])
        outside = judge_calls(calls, zoned, lost=[(at, 50 * SECOND)])
        assert (in_zone == [], outside == []) == (key == "z1", key == "k1")


# -- damaged copies


def compared(**changed: int) -> Settings:
    return settings(1, replication={"anti_entropy_ms": 1000, **changed})


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_damage_is_mended(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damages, "KINDS", (kind,))
    stage = filled(3, compared())
    phases(stage).damage()
    assert not stage.world.failures
    assert not stage.cluster.damages
    assert stage.world.marks[f"damage {kind}"] >= 1
    assert sum(p.driver.member.repair.repaired for p in stage.processes) >= 1
    stage.rest()


@pytest.mark.parametrize("kind", KINDS)
def test_damage_that_nobody_mends_is_reported(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damages, "KINDS", (kind,))
    monkeypatch.setattr(AntiEntropy, "on_wanted", lambda self, sender, message: None)
    stage = filled(3, compared())
    phases(stage).damage()
    (problem,) = stage.world.failures
    assert "not mended in" in problem
    assert kind in problem


def test_while_a_copy_is_damaged_nobody_may_die() -> None:
    stage = filled(4, compared())
    victim = stage.processes[1]
    assert stage.cluster.may_die(victim)
    assert damages.spoil(stage.cluster.living(), stage.cluster.damages, phases(stage).random) is not None
    assert not stage.cluster.may_die(victim)


def harm(held: MapReplica) -> None:
    held.state.store(b"\xff\xff\xff\xf5x", b"x", 0, 0, 0, 0)


def test_the_judge_at_each_acknowledgement_excuses_one_map_of_one_copy_and_nothing_else() -> None:
    chosen = simulated_settings(2, 7, mixed=True)
    stage = filled(4, chosen)
    owner, (first, second, *_) = stage.owner_of("k1"), stage.backups_of("k1")
    partition = partition_of(wire_key("k1"), 0, 7)
    harm(first.driver.member.copies.held[partition].maps[MAP])
    primary, others = owner.picture, [first.picture, second.picture]
    excused = {first.driver.member.me: MAP}
    assert convergence.unequal(primary, others, partition)
    assert not convergence.unequal(primary, others, partition, excused)
    harm(second.driver.member.copies.held[partition].maps[MAP])
    assert convergence.unequal(primary, others, partition, excused), "another copy"
    assert convergence.unequal(primary, others[:1], partition, {first.driver.member.me: "other"}), (
        "another map"
    )


# -- faults that need an operator, or groups


def test_an_operator_changes_the_state_and_changes_it_back() -> None:
    stage = filled(4)
    faults = Faults(3, stage.world, stage.cluster, stage.world.now_ns + 20 * SECOND, operator=True)
    assert "state" in faults.kinds
    faults._state()
    stage.wait(1)
    states = {p.driver.member.membership.cluster_state for p in stage.processes}
    assert states != {ClusterState.ACTIVE}
    stage.wait(15)
    faults.end()
    stage.wait(5)
    assert {p.driver.member.membership.cluster_state for p in stage.processes} == {ClusterState.ACTIVE}
    stage.rest()


def test_a_member_that_becomes_lite_is_no_copy_in_the_budget() -> None:
    stage = filled(3)
    stage.cluster._look()
    before = stage.cluster._spare()
    for process in stage.processes[1:]:
        process.driver.member.membership.intents.set_intent(Intent.LITE)
    assert before == 1
    assert stage.cluster._spare() == 0


def grouped(groups: tuple[str, ...]) -> Stage:
    stage = object.__new__(Stage)
    stage.world = World(4711, None)
    stage.settings = settings(2, partitions={"group_by": "zone"})
    stage.cluster = Cluster(stage.world, stage.settings, len(groups), groups=groups)
    stage.processes = [stage.cluster.start(0, bootstrap=True)]
    stage.processes += [stage.cluster.start(index) for index in range(1, len(groups))]
    stage.rest()
    return stage


def test_copies_are_counted_by_groups_and_a_whole_group_may_die() -> None:
    stage = grouped(("a", "a", "b", "b", "b"))
    cluster = stage.cluster
    cluster._look()
    assert cluster._spare() == 1, "two groups, so two copies, whatever the backups"
    faults = Faults(1, stage.world, cluster, stage.world.now_ns + 60 * SECOND)
    assert "group" in faults.kinds
    faults.random.choice = lambda names: names[0]  # type: ignore[method-assign,assignment]
    faults._group()
    assert [p.name for p in stage.processes if p.dead] == ["host0#1", "host1#2"]
    assert stage.world.marks["fault group"] == 2


def test_lite_hosts_hold_nothing() -> None:
    cluster = Cluster(World(1, None), settings(1), 3, lite=(0,))
    cluster.start(0, bootstrap=True)
    for index in (1, 2):
        cluster.start(index)
    cluster.world.run_until(30 * SECOND)
    assert cluster.settled()
    lite = cluster.members()[0]
    assert lite.membership.info.lite
    assert not lite.copies.held
