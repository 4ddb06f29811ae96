"""Random lives of a zone: what the judge says after each step, and that it comes to rest where it should."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from random import Random

import msgspec
import pytest
from tests.core.zones.zone_cluster import Broken, Cluster
from tests.sampled_cases import sampled

from holdfast.core.raft import reconfiguration
from holdfast.core.raft.configuration import Configuration, PeerChange, enter_joint, leave_joint
from holdfast.core.raft.raft_messages import RaftEntry
from holdfast.core.raft.raft_state import LeaderElected
from holdfast.core.raft.reconfiguration import Reconfiguration
from holdfast.core.zones import (
    adjusting,
    leader_duties,
    replica_duties,
    transitions,
    zone_controller,
    zone_triggers,
)
from holdfast.core.zones.adjusting import LocalCopy, ReplicaDuty
from holdfast.core.zones.assignments import PartitionKeys
from holdfast.core.zones.descriptors import Adjustment, PlacementKind, ZoneSettings
from holdfast.core.zones.transitions import Consistency
from holdfast.core.zones.work_queue import ZoneWork
from holdfast.core.zones.zone_keys import KeysRead, part_key
from holdfast.core.zones.zone_ports import Part
from holdfast_lab.sim.ablations.switching import ablated

NAMES = "ABCDE"


def play(
    seed: int,
    rounds: int = 150,
    consistency: Consistency = Consistency.STRONG,
    *,
    damages: bool = False,
    adjusts: bool = False,
    repeats: bool = False,
) -> Cluster:
    """`damages`: crashes may cost a member the end of its files, one member at a time, where others have replicas.
    `adjusts`: the adjustment of the zone is altered, too. `repeats`: controllers are told things twice, and old ones
    again.
    """
    cluster = Cluster(seed, NAMES, bad=0.1 if seed % 3 else 0.02)
    cluster.repeating = Random(f"{seed}/repeating") if repeats else None
    random = cluster.random
    settings = ZoneSettings(
        "z",
        partitions=2,
        replicas=3 if damages else random.choice([1, 3, 3, 4]),
        scale_down_s=random.choice([0, 2]),
        scale_up_s=random.choice([0, 1]),
        adjustment=random.choice(list(Adjustment)),
        placement=random.choice(list(PlacementKind)),
        consistency=consistency,
    )
    cluster.begin(settings, random.choice(["ABC", "ABCD", NAMES]))
    altering = Random(f"{seed}/altering")
    for _ in range(rounds):
        _happens(cluster, damages=damages)
        if adjusts and altering.random() < 0.1:
            cluster.alter(adjustment=altering.choice(list(Adjustment)))
        cluster.go(random.choice([1, 1, 2, 5]))
    cluster.bad = 0.0
    cluster.cut = set()
    cluster.come("".join(name for name, one in cluster.members.items() if not one.alive))
    if damages:
        cluster.go(200)
        if any(_is_lost(cluster, partition) for partition in range(2)):
            cluster.ask_reset()
    cluster.settled(1500, parts=(0, 1))
    _at_rest(cluster, may_reset=damages or consistency is Consistency.HIGH_AVAILABILITY)
    return cluster


def _happens(cluster: Cluster, *, damages: bool = False) -> None:
    random = cluster.random
    down = [name for name, one in cluster.members.items() if not one.alive]
    what = random.random()
    if what < 0.30:
        cluster.put((1, random.randrange(2)))
    elif what < 0.38:
        cluster.alter(replicas=random.choice([3, 4, 5] if damages else [2, 3, 4, 5]), quorum=None)
    elif what < 0.46 and len(down) < 2:
        struck = random.choice([name for name in NAMES if name not in down])
        whole = not any(one.doubted for one in cluster.members.values()) and _has_three_voters(cluster)
        cluster.crash(struck, damaged=damages and whole and random.random() < 0.7)
    elif what < 0.60 and down:
        cluster.come(random.choice(down))
    elif what < 0.66:
        cluster.cut = set(random.sample(NAMES, random.choice([0, 1, 2])))
    elif what < 0.74:
        cluster.cut = set()
    elif what < 0.78:
        cluster.driver = random.choice([name for name in NAMES if name not in down])


def _has_three_voters(cluster: Cluster) -> bool:
    """And will have as many when what is under way is done: of two voters none may lose anything."""
    keys = [cluster.keys(partition) for partition in range(2)]
    return all(
        one.stable is not None and all(len(each.peers) >= 3 for each in (one.stable, *one.pending))
        for one in keys
    )


def _is_lost(cluster: Cluster, partition: int) -> bool:
    """Whether a majority is in doubt since the group has narrowed: only an operator can give that up."""
    stable = cluster.keys(partition).stable
    assert stable is not None
    doubted = [node for node in stable.peers if (1, partition) in cluster.members[node].doubted]
    return 2 * len(doubted) >= len(stable.peers)


def _at_rest(cluster: Cluster, *, may_reset: bool) -> None:
    """I5, I6, I8, I10 and that replicas agree."""
    cluster.go(40)
    for partition in range(2):
        keys = cluster.keys(partition)
        assert keys.stable is not None
        if keys.lock is not None:
            raise Broken(f"a lock is left over: {keys}")
        if cluster.holders(partition) != "".join(sorted(keys.stable.nodes)):
            raise Broken(f"I5: {cluster.holders(partition)} hold what {cluster.shown(partition)} says")
        wanted = cluster.wanted(partition)
        if not keys.stable.same_nodes(wanted):
            raise Broken(f"I8: stable is {keys.stable}, the placement {wanted}")
        contents = [cluster.members[name].kept[1, partition].data for name in sorted(keys.stable.nodes)]
        if any(one != contents[0] for one in contents):
            raise Broken("replicas differ")
        if keys.generation and not may_reset:
            raise Broken(f"I6: partition {partition} was reset, and nobody asked for that")
        _keeps_what_was_acknowledged(cluster, partition, contents[0])
    _hears_it_all_again(cluster)


def _keeps_what_was_acknowledged(cluster: Cluster, partition: int, content: dict[int, bytes]) -> None:
    """I6: what was committed is there; after a reset, what was committed since."""
    generation = cluster.keys(partition).generation
    for index, entry in cluster.committed[(1, partition), generation].items():
        if entry.data and content.get(index) != entry.data:
            raise Broken(f"I6: {entry} was acknowledged, and {content.get(index)!r} is there")


def _hears_it_all_again(cluster: Cluster) -> None:
    """I10: a watch, or a callback, that is replayed changes nothing."""
    revision, shown = cluster.store.revision, [cluster.shown(partition) for partition in range(2)]
    groups = cluster.groups()
    for member in cluster.members.values():
        member.hear_again()
    cluster.go(40)
    if cluster.store.revision != revision:
        changes = [after.key for _, _, batch in cluster.store.batches[revision:] for _, after in batch]
        raise Broken(f"I10: {changes} were written; {[cluster.shown(part) for part in range(2)]} was {shown}")
    if cluster.groups() != groups:
        raise Broken(f"I10: groups were {groups}, and are {cluster.groups()}")


@pytest.mark.parametrize("seed", sampled(range(0, 24, 6), 4))
def test_a_zone_keeps_its_promises(seed: int) -> None:
    for one in range(seed, seed + 6):
        try:
            play(one)
        except (Broken, AssertionError) as error:
            raise AssertionError(f"seed {one}: {error}") from error


@pytest.mark.rule("zones/A-12")
def test_a_zone_keeps_its_promises_while_its_adjustment_changes() -> None:
    """Seed 137 replaced a target that was being joined: what was begun without a lock knew of none."""
    for seed in (5, 137):
        play(seed, adjusts=True)


def test_a_zone_keeps_its_promises_when_controllers_are_told_things_twice() -> None:
    for seed in range(6):
        try:
            play(seed, repeats=True, adjusts=seed % 2 == 0)
        except (Broken, AssertionError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.rule("zones/A-23")
def test_what_a_reset_has_given_up_does_not_come_back() -> None:
    """These seeds ended with two groups without the rule."""
    for seed in (128, 143, 199, 490, 1076, 1189):
        play(seed, consistency=Consistency.HIGH_AVAILABILITY)


def _old_generations_go_on(patch: pytest.MonkeyPatch) -> None:
    real = leader_duties.partition_keys

    def keys(read: KeysRead, zone: int, partition: int) -> PartitionKeys:
        return msgspec.structs.replace(real(read, zone, partition), generation=0)

    for module in (leader_duties, replica_duties, zone_triggers):
        patch.setattr(module, "partition_keys", keys)


@pytest.mark.rule("zones/A-23")
def test_without_generations_there_are_two_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    _old_generations_go_on(monkeypatch)

    def play_some() -> None:
        """At least one of them breaks, whatever else changes the schedules."""
        for seed in (93, 101, 127, 247):
            play(seed, consistency=Consistency.HIGH_AVAILABILITY)

    with pytest.raises((Broken, AssertionError)):
        play_some()


def test_a_zone_replaces_replicas_whose_files_are_damaged() -> None:
    for seed in (9, 14, 22, 23, 30, 50, 51):
        try:
            play(seed, damages=True)
        except (Broken, AssertionError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("consistency", "damages", "repeats", "seeds"),
    [
        (Consistency.STRONG, False, False, range(24, 424)),
        (Consistency.STRONG, True, False, range(300)),
        (Consistency.STRONG, False, True, range(100)),
        (Consistency.HIGH_AVAILABILITY, False, False, range(300)),
        (Consistency.HIGH_AVAILABILITY, False, True, range(100)),
    ],
)
@pytest.mark.timeout(1800)
def test_a_thousand_zones_keep_their_promises(
    consistency: Consistency, damages: bool, repeats: bool, seeds: range
) -> None:
    """Scenario 60."""
    broken = {}
    for seed in seeds:
        try:
            play(seed, consistency=consistency, damages=damages, repeats=repeats)
        except (Broken, AssertionError) as error:
            broken[seed] = str(error)
    assert broken == {}


@pytest.mark.slow
def test_a_zone_of_high_availability_widens_again_after_every_reset() -> None:
    """These seeds did not."""
    for seed in (112, 114, 117, 127, 148, 158, 302, 303, 334, 34):
        play(seed, consistency=Consistency.HIGH_AVAILABILITY)


# -- what the judge sees


def test_a_loss_on_all_replicas_alike_is_seen() -> None:
    """They agree with each other: only what was acknowledged speaks against them (I6)."""
    cluster = play(1)
    stable = cluster.keys(0).stable
    assert stable is not None
    lost = max(cluster.members[stable.peers[0]].kept[1, 0].data)
    for node in stable.nodes:
        del cluster.members[node].kept[1, 0].data[lost]
    with pytest.raises(Broken, match="I6"):
        _at_rest(cluster, may_reset=False)


def test_a_reset_that_nobody_has_asked_for_is_seen() -> None:
    cluster = play(1)
    cluster.write(part_key(1, 0, "generation"), 7)
    with pytest.raises(Broken, match="I6"):
        _at_rest(cluster, may_reset=False)


def test_peers_that_change_without_a_joint_step_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """I2."""

    def at_once(now: Configuration, steps: Sequence[PeerChange], *, token: int, **_: bool) -> Configuration:
        return leave_joint(enter_joint(now, steps, token=token))

    monkeypatch.setattr(reconfiguration, "enter_joint", at_once)
    with pytest.raises(Broken, match="I2"):
        play(0)


def test_two_changes_in_flight_are_seen() -> None:
    """I1. No group does that: the second is put into the log past all checks."""
    cluster = play(2)
    leader = next(
        kept.group
        for one in cluster.members.values()
        for kept in one.kept.values()
        if kept.group and kept.group.leading
    )
    for _ in range(2):
        leader.log.append([RaftEntry(leader.term, leader.log.last + 1, configuration=leader.configuration)])
    with pytest.raises(Broken, match="I1"):
        cluster.judge()


def test_a_callback_that_is_believed_whenever_it_comes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """I10: an old configuration that was applied is told again, and becomes the stable one again."""

    def completed(
        self: leader_duties.LeaderDuties,
        work: ZoneWork,
        step: object,
        zone: object,
        before: PartitionKeys,
        revision: int,
        read: KeysRead,
    ) -> bool:
        notice = self._reports[work[1:]].applied
        if notice is None:
            return False
        applied = adjusting.assignments_of(notice.configuration)
        after = msgspec.structs.replace(before, stable=applied, pending=before.pending[1:], lock=None)
        self._reports[work[1:]].applied = None
        changes = leader_duties.changes_to(*work[1:], before, after)
        self._queue.write(work, step, read, changes, "completed")  # type: ignore[arg-type]
        return True

    monkeypatch.setattr(leader_duties.LeaderDuties, "_completed", completed)
    cluster = Cluster(1, NAMES)
    cluster.begin(ZoneSettings("z", partitions=2, replicas=3, scale_up_s=0), "ABC")
    cluster.come("DE")
    cluster.settled(parts=(0, 1))
    cluster.crash("A")
    cluster.settled(parts=(0, 1))
    with pytest.raises(Broken, match="I10"):
        _hears_it_all_again(cluster)


# -- without a rule

Patch = Callable[[pytest.MonkeyPatch], None]


def _destroys_whom_the_target_does_not_name(patch: pytest.MonkeyPatch) -> None:
    """Though the stable assignments do: the group still counts on it."""
    real = adjusting.replica_duty

    def duty(me: str, keys: PartitionKeys, copy: LocalCopy | None, **more: int) -> ReplicaDuty:
        named = keys.pending[:1] or (keys.stable,)
        if copy is not None and not any(one is not None and me in one.nodes for one in named):
            return ReplicaDuty.DESTROY
        return real(me, keys, copy, **more)

    patch.setattr(replica_duties, "replica_duty", duty)


def _joins_without_a_lock(patch: pytest.MonkeyPatch) -> None:
    """And destroys at once, which the lock is for."""
    _destroys_whom_the_target_does_not_name(patch)
    patch.setattr(Reconfiguration, "_join_if_agreed", Reconfiguration._join)


def _believes_every_report(patch: pytest.MonkeyPatch) -> None:
    def applied(keys: PartitionKeys, **more: object) -> transitions.Transition:
        head = keys.pending[0] if keys.pending else None
        if head is None:
            return transitions.Result.IGNORED_NOT_PENDING, keys
        return transitions.configuration_applied(keys, **{**more, "applied": head})  # type: ignore[arg-type]

    patch.setattr(leader_duties, "configuration_applied", applied)
    patch.setattr(leader_duties.LeaderDuties, "_completed", _completes_at_once)


def _completes_at_once(
    self: leader_duties.LeaderDuties,
    work: ZoneWork,
    step: object,
    zone: object,
    before: PartitionKeys,
    *rest: object,
) -> bool:
    if not before.pending:
        return False
    _, after = transitions.configuration_applied(
        before, applied=before.pending[0], calculated=before.pending[0], term=1, index=1
    )
    read = rest[-1]
    assert isinstance(read, KeysRead)
    changes = leader_duties.changes_to(work[1], work[2], before, after)
    self._queue.write(work, step, read, changes, "completed")  # type: ignore[arg-type]
    return True


def _elected_and_idle(patch: pytest.MonkeyPatch) -> None:
    real = zone_controller.ZoneController.on_notice

    def on_notice(self: zone_controller.ZoneController, now_ms: int, part: Part, notice: object) -> None:
        if not isinstance(notice, LeaderElected):
            real(self, now_ms, part, notice)  # type: ignore[arg-type]

    patch.setattr(zone_controller.ZoneController, "on_notice", on_notice)


def _keeps_locks(patch: pytest.MonkeyPatch) -> None:
    real = leader_duties.configuration_applied

    def applied(keys: PartitionKeys, **more: object) -> transitions.Transition:
        result, after = real(keys, **more)  # type: ignore[arg-type]
        return result, msgspec.structs.replace(after, lock=keys.lock)

    patch.setattr(leader_duties, "configuration_applied", applied)


@pytest.mark.parametrize(
    "without",
    [
        pytest.param(_destroys_whom_the_target_does_not_name, marks=pytest.mark.rule("zones/A-14")),
        pytest.param(_joins_without_a_lock, marks=pytest.mark.rule("zones/A-12")),
        pytest.param(_believes_every_report, marks=pytest.mark.rule("zones/A-3", "zones/A-4")),
        pytest.param(_elected_and_idle, marks=pytest.mark.rule("zones/A-16")),
        pytest.param(_keeps_locks, marks=pytest.mark.rule("zones/A-13")),
    ],
)
def test_without_a_rule_the_schedules_break(without: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    for seed in range(60):
        try:
            play(seed)
        except (Broken, AssertionError, KeyError):
            return
    pytest.fail("nobody has noticed")


@pytest.mark.parametrize(
    ("without", "first"),
    [
        pytest.param(lambda: ablated("keys-guarded"), 30, marks=pytest.mark.rule("zones/A-6")),
        pytest.param(lambda: ablated("clean-up"), 0, marks=pytest.mark.rule("zones/A-14")),
    ],
)
def test_without_a_rule_of_the_campaign_they_break(
    without: Callable[[], AbstractContextManager[None]], first: int
) -> None:
    with without():
        for seed in range(first, 60):
            try:
                play(seed)
            except (Broken, AssertionError, KeyError):
                return
    pytest.fail("nobody has noticed")
