"""Deliberate losses and lies: the judges of the campaign must notice each."""

from __future__ import annotations

import statistics

import pytest

from holdfast.core.journal.recovery import Recovery
from holdfast.core.multiraft import group_journal
from holdfast.core.operations import map_operations
from holdfast.core.primary_backup import primary_copy
from holdfast.core.primary_backup.cuts import Pin
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.primary_backup.primary_activation import PrimaryActivation
from holdfast.core.primary_backup.staging_replica import StagingReplica
from holdfast.core.raft_partition.leader_routing import LeaderRouting
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.core.routing import backup_reads
from holdfast.core.routing.router import Router
from holdfast.core.store.map_state import MapState
from holdfast.core.store.replica import Replica
from holdfast.core.streams import change_streams as changes
from holdfast.core.streams.entry_listeners import EntryListeners
from holdfast.server.hazelcast import near_caches
from holdfast.server.hazelcast.near_caches import Invalidations
from holdfast_lab.cli.simulate import RUNS_MAX
from holdfast_lab.sim.lies import LIES, telling
from holdfast_lab.sim.run import Verdict, simulate
from holdfast_lab.sim.shape import Journalling

LIED_ABOUT = (
    PrimaryActivation,
    LocalReplicas,
    Lane,
    EntryListeners,
    MapState,
    Pin,
    Recovery,
    StagingReplica,
    changes,
    Invalidations,
    Replica,
    Router,
    ZonePartition,
    LeaderRouting,
    backup_reads,
    group_journal,
    map_operations,
    near_caches,
    primary_copy,
)
SOON = {"cas-twice": 181, "ttl-endless": 181}
"""Lies that a short run notices."""
STARTS = (0, 100, 200, 300, 400)


def one_run(seed: int, lie: str) -> Verdict:
    power_cuts = LIES[lie].power_cuts
    journal: Journalling = "sync" if power_cuts else "mixed"
    return simulate(
        seed, lies=frozenset({lie}), journal=journal, power_cuts=power_cuts, zones=LIES[lie].zones
    )


def truth() -> list[dict[str, object]]:
    return [dict(vars(owner)) for owner in LIED_ABOUT]


@pytest.mark.parametrize("lie", sorted(LIES))
def test_a_lie_is_told_and_then_no_more(lie: str) -> None:
    before = truth()
    with telling({lie}):
        told = truth()
    changed = [
        name for one, other in zip(before, told, strict=True) for name in one if one[name] is not other[name]
    ]
    assert set(changed) - {"__init__"}, "something is put in the place of something"
    assert truth() == before


def test_members_tell_the_truth_again_after_an_error() -> None:
    before = truth()
    with pytest.raises(RuntimeError, match="enough"), telling({"get-absent", "ttl-quarter"}):
        raise RuntimeError("enough")
    assert truth() == before


@pytest.mark.parametrize("seed", [1, 9])
def test_a_judge_notices_lies_and_not_a_liar_that_cannot_speak(seed: int) -> None:
    """A lie that no longer fits what it stands for ends every run at once, and would count as noticed."""
    problems = simulate(seed, lies=frozenset(LIES), journal="mixed").problems
    assert problems
    assert not [problem for problem in problems if "Error: " in problem]


@pytest.mark.parametrize("lie", sorted(SOON))
def test_lies_are_noticed(lie: str) -> None:
    assert not one_run(SOON[lie], lie).ok


def test_a_backup_that_goes_back_is_seen_by_who_reads_again_and_again() -> None:
    """The last look sees it, too: but that one is at rest, and most reads are not."""
    problems = one_run(202, "backup-goes-back").problems
    assert any("and before that" in problem for problem in problems), problems


@pytest.mark.slow
def test_the_same_lie_in_the_same_run_is_the_same() -> None:
    assert one_run(0, "cas-twice") == one_run(0, "cas-twice")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("lie", sorted(LIES))
def test_each_lie_is_noticed_within_fifty_runs_in_the_median(lie: str) -> None:
    needed = []
    for start in STARTS:
        seeds = range(start, start + RUNS_MAX + 1)
        found = next((seed for seed in seeds if not one_run(seed, lie).ok), seeds[-1])
        needed.append(found - start + 1)
        if sum(count <= RUNS_MAX for count in needed) > len(STARTS) / 2:
            break
    assert statistics.median([*needed, *[RUNS_MAX + 1] * (len(STARTS) - len(needed))]) <= RUNS_MAX, needed
