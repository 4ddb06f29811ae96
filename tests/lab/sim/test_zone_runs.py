"""Whole runs with a metastore and a zone: `make zones` has more of them."""

from __future__ import annotations

import pytest
from tests.sampled_cases import sampled

from holdfast.core.messages import GroupState
from holdfast.core.model.ids import MemberId
from holdfast.core.multiraft import group_journal, snapshot_transfer
from holdfast.core.multiraft.group_journal import GroupJournal
from holdfast.core.multiraft.hosted_group import HostedGroup
from holdfast.core.multiraft.snapshot_transfer import SnapshotTransfer
from holdfast.core.raft_partition import state_capture
from holdfast_lab.sim.run import simulate

FOUND = {
    158: "a clock that was set back stopped the timers of data nodes until it was as late again",
    20: "a metastore's state that was older than the zone destroyed replicas, which began anew without what they held",
}
"""Seeds that failed once, and what they found."""


@pytest.mark.parametrize("seed", sampled([153, *FOUND, 3], 4))
def test_maps_in_a_zone_are_linearizable_and_come_to_rest(seed: int) -> None:
    verdict = simulate(seed, journal="mixed", zones=True)
    assert verdict.ok, verdict.problems


@pytest.mark.parametrize(
    "seed", [3, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(20) if seed != 3)]
)
def test_maps_in_a_zone_lose_nothing_when_everybody_loses_power(seed: int) -> None:
    verdict = simulate(seed, journal="sync", power_cuts=True, zones=True)
    assert verdict.ok, verdict.problems
    assert verdict.figures["fault_power-cut-all"] >= 2
    assert verdict.figures["writes_acknowledged"] > 0


@pytest.mark.rule("multiraft/H-10")
@pytest.mark.rule("multiraft/H-11")
@pytest.mark.parametrize("seed", [1, pytest.param(72_200, marks=pytest.mark.campaign)])
def test_states_in_many_small_pieces_lose_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_capture, "PIECE_BYTES", 1)
    monkeypatch.setattr(snapshot_transfer, "STATE_BYTES", 100)
    monkeypatch.setattr(group_journal, "COLLECTED_BYTES", 100)
    later = {"parts": 0, "pieces": 0}
    receive, collect = SnapshotTransfer.receive, GroupJournal.collect_some

    def received(transfer: SnapshotTransfer, sender: MemberId, group: HostedGroup, part: GroupState) -> bool:
        later["parts"] += part.first > 0
        return receive(transfer, sender, group, part)

    def collected(journal: GroupJournal) -> None:
        later["pieces"] += journal.collecting
        collect(journal)

    monkeypatch.setattr(SnapshotTransfer, "receive", received)
    monkeypatch.setattr(GroupJournal, "collect_some", collected)
    verdict = simulate(seed, journal="sync", power_cuts=True, zones=True)
    assert verdict.ok, verdict.problems
    assert min(later.values()) > 0, later


FOUND_AT_NIGHT = {
    51_009: "a member of a zone of two died after the order and before its groups had begun: out of the budget",
    72_015: "the judge allowed a time to live one difference of calendars, and each move of the map adds one",
}
"""The same, for runs that take half a minute."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND_AT_NIGHT)
def test_long_seeds_that_once_failed(seed: int) -> None:
    verdict = simulate(seed, journal="mixed", zones=True)
    assert verdict.ok, verdict.problems
