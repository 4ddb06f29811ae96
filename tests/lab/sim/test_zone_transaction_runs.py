"""Runs of applications whose transactions use both engines, while the groups of the zone change leaders again and again
without storing locks, and a member crashes.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.lab.sim.zone_stage import ZoneStage, zoned_settings

from holdfast.core.model.ids import group_of
from holdfast.core.model.operations import Op
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.zones.descriptors import ZoneSettings
from holdfast_lab.check import leftovers
from holdfast_lab.check.serializability import TransactionOutcome
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.transacting import Applications, with_lists_in_zone, with_transactions
from holdfast_lab.sim.workload import MAP

TURNS = 60


class Run:
    def __init__(self, seed: int) -> None:
        """Every third zone has fewer groups than the cluster has partitions."""
        self._draw = random.Random(seed)
        settings = with_lists_in_zone(with_transactions(zoned_settings(), seed), "z")
        self.groups = 3 if seed % 3 == 0 else settings.partitions.count
        zone = ZoneSettings("z", partitions=self.groups, replicas=3)
        self.stage = ZoneStage(4, settings=settings, zone=zone)
        self.stage.world.seed = seed
        self.applications = Applications(self.stage.world, self.stage.cluster, ["k1"], MAP)
        self.deposed = 0

    def _depose(self) -> None:
        group = self._draw.randrange(self.groups)
        replicas = self.stage.replicas(group)
        leading = [process for process, replica in replicas.items() if replica.leads]
        others = [process for process, replica in replicas.items() if not replica.leads]
        if not leading or not others:
            return
        groups = leading[0].driver.member.agreed.groups
        to = self._draw.choice(others).driver.member.agreed.groups.me

        def transfer() -> None:
            try:
                groups.running(group_of(1, group)).transfer(to)
            except ProposalRefused:
                return
            self.deposed += 1

        leading[0].step(transfer)

    def _write(self) -> None:
        """Outside of transactions, into the same groups."""
        op = self._draw.choice([Op.PUT, Op.SET, Op.REMOVE, Op.GET])
        self.stage.request(self._draw.choice(self.stage.living()), op, f"z{self._draw.randrange(20)}", "v")

    def _crash(self) -> None:
        victim = self._draw.choice(self.stage.living())
        victim.crash()
        self.stage.processes.remove(victim)

    def problems(self) -> list[str]:
        """Reads that no order of the transactions explains."""
        self.applications.start()
        crash = self._draw.randrange(TURNS)
        for turn in range(TURNS):
            self.stage.wait(self._draw.choice([0.05, 0.1, 0.3, 0.7]))
            self._write()
            self._depose()
            if turn == crash:
                self._crash()
        self.applications.pause()
        self.stage.wait(60)
        self.applications.look()
        return self.applications.problems(set())

    def outcomes(self) -> Counter[TransactionOutcome]:
        return Counter(each.outcome for each in self.applications.history)

    def left(self) -> list[str]:
        """Much later, in a cluster at rest."""
        self.stage.wait(300)
        found = leftovers.judge([process.picture for process in self.stage.living()])
        return [problem for problem in found if "zone 1" in problem]

    def differing(self) -> list[int]:
        """Groups whose replicas are not the same."""
        found = []
        for group in range(self.groups):
            states = [list(client.state.pieces()) for client in self.stage.replicas(group).values()]
            if len(states) < 2 or any(state != states[0] for state in states):
                found.append(group)
        return found


def checked(seed: int) -> None:
    run = Run(seed)
    assert run.problems() == []
    assert run.deposed > TURNS // 4
    assert run.outcomes()[TransactionOutcome.COMMITTED] > 5
    assert run.left() == []
    assert run.differing() == []


@pytest.mark.parametrize("seed", [3, 4])
def test_transactions_have_an_order_while_leaders_change(seed: int) -> None:
    checked(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5, 45))
def test_transactions_have_an_order_while_leaders_change_often(seed: int) -> None:
    checked(seed)


@pytest.mark.slow
def test_some_run_has_no_order_if_locks_outlive_the_term_of_their_leader() -> None:
    with ablated("zone-lock-term"):
        assert any(Run(seed).problems() for seed in range(5, 35))
