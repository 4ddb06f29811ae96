"""Scenarios C1 to C3: all owners of a partition stop in the middle of commits, and the old primary is not the first to
return.

The source stops nodes that hold numbers which nobody can prove, or goes on with copies that differ. Here the cluster
waits for everybody who was in it last. When its operator accepts that one is missing, the branches decide.
"""

from __future__ import annotations

from functools import partial

import pytest
from tests.lab.sim.scenarios.keeping import PARTITION, kept, keys_in
from tests.lab.sim.scenarios.test_8_restart import accept, assigned
from tests.lab.sim.transaction_scenarios.scenario_stage import ToldTransaction, TransactingStage

KEYS = keys_in(PARTITION, 15)
Reached = tuple[int, ...]
CASES: dict[str, tuple[int, Reached, Reached]] = {
    "C1": (2, (0,), ()),
    "C1, the other backup": (2, (), (0,)),
    "C2": (3, (1, 2), (1, 2)),
    "C3": (3, (1,), (1, 2)),
    "no commit on a backup": (3, (), ()),
}
"""How many transactions, and whose commits have reached the one backup, and the other, in this order."""


def applied_at(stage: TransactingStage, transaction: ToldTransaction, hosts: list[int]) -> bool:
    """Whether it is done on the copies of all these."""
    return all(stage.applied(transaction, host) for host in hosts)


def committed_in_part(stage: TransactingStage, case: str) -> list[ToldTransaction]:
    """Transactions of five entries are prepared on all three members. The primary commits all of them, its backups
    some, each of them a beginning of what the primary does.
    """
    count, *reached = CASES[case]
    one, *backups = stage.holders()
    others = stage.elsewhere(one, count)
    hosts = [one, *backups][:count]
    tx = [
        stage.begin(host, stage.values([*KEYS[at * 5 : at * 5 + 5], others[at]]))
        for at, host in enumerate(hosts)
    ]
    for host in hosts:
        stage.hold_commits(host)
    stage.commit(*tx)
    stage.soon(lambda: all(stage.prepared(each) for each in tx))
    stage.wait(0.05)
    first = sorted({each for some in reached for each in some}, key=lambda at: sum(at in r for r in reached))
    for at in [*reversed(first), *(at for at in range(count) if at not in first)]:
        for host, some in zip(backups, reached, strict=True):
            if at not in some:
                stage.cut_off(one, host)
        stage.resume_commits(hosts[at])
        told = [one, *(host for host, some in zip(backups, reached, strict=True) if at in some)]
        stage.soon(partial(applied_at, stage, tx[at], told))
    for host, some in zip(backups, reached, strict=True):
        assert [at for at in range(count) if stage.applied(tx[at], host)] == sorted(some)
    return tx


@pytest.mark.covering(1)
@pytest.mark.parametrize("turned", [False, True], ids=["", "the other first"])
@pytest.mark.parametrize("how", ["kill", "power cut"])
@pytest.mark.parametrize("case", CASES)
def test_c_all_owners_stop_and_the_backups_come_back_alone(case: str, how: str, turned: bool) -> None:
    stage = TransactingStage(3)
    tx = committed_in_part(stage, case)
    one, *backups = stage.holders()
    stage.end_all("kill" if how == "kill" else "power cut")
    stage.heal()
    if turned:
        backups.reverse()
    # Without the first seed somebody has to be told to form the cluster.
    stage.start(*backups, by_order=0 not in backups)
    stage.wait(20)
    assert not assigned(stage), "nobody else may know what was acknowledged last"
    accept(stage, backups[0])
    stage.rest()
    stage.wait(10)
    assert stage.there(*tx) == [True] * len(tx), "all were prepared everywhere"
    stage.start(one)
    stage.whole()


@pytest.mark.parametrize("case", CASES)
def test_c_all_owners_stop_and_all_come_back(case: str) -> None:
    stage = TransactingStage(3)
    tx = committed_in_part(stage, case)
    hosts = stage.end_all("power cut")
    stage.heal()
    stage.start(*hosts)
    stage.rest()
    stage.wait(10)
    assert stage.there(*tx) == [True] * len(tx)
    stage.whole()


@pytest.mark.covering(1)
@pytest.mark.parametrize("at_ms", [1, 2, 3, 5, 8, 20, 50])
@pytest.mark.parametrize("slowness", [1, 30])
@pytest.mark.parametrize("how", ["kill", "power cut"])
@pytest.mark.parametrize("backups", [1, 2])
def test_c_all_stop_at_any_moment_of_three_commits(at_ms: int, slowness: int, how: str, backups: int) -> None:
    """With disks that are slow more of it is under way. Everybody returns."""
    stage = TransactingStage(3, kept(backups))
    owners = sorted({stage.holders(partition)[0] for partition in range(7) if partition != PARTITION})
    others = [stage.elsewhere(host, 3) for host in owners]
    for disk in stage.cluster.disks:
        disk.slowness = slowness
    tx = [
        stage.begin(
            host,
            stage.values([*KEYS[host * 3 : host * 3 + 3], *(keys[host] for keys in others)]),
            optimistic=host == 1,
        )
        for host in range(3)
    ]
    stage.commit(*tx)
    stage.wait(at_ms / 1000)
    hosts = stage.end_all("kill" if how == "kill" else "power cut")
    for disk in stage.cluster.disks:
        disk.slowness = 1
    stage.start(*hosts)
    stage.rest()
    stage.wait(10)
    stage.there(*tx)
    stage.whole()
