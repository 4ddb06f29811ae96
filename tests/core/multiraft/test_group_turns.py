"""However many groups a member has, it does the work of a few of them between two turns of anything else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.core.multiraft.group_cluster import Cluster, Process

from holdfast.core.model.ids import GROUPS_FROM
from holdfast.core.multiraft.group_host import GROUPS_AT_ONCE
from holdfast.core.raft.group import Group

PER_GROUP = 6
"""A group that has its turn may be ticked or stepped, be ready, and be ready again by what it told itself."""


class Meter:
    """What groups do in each step of a member: ticks, messages, and looks at what they want."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.steps = 0
        for name in ("tick", "step", "ready", "written", "campaign"):
            monkeypatch.setattr(Group, name, self._counted(name, getattr(Group, name)))
        end_step = Process.end_step

        def ended(process: Process) -> None:
            end_step(process)
            self.most |= self.now
            self.most["together"] = max(self.most["together"], self.now.total())
            self.steps += bool(self.now)
            self.now.clear()

        monkeypatch.setattr(Process, "end_step", ended)

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            self.now[name] += 1
            return real(*given, **named)

        return call

    def take(self) -> Counter[str]:
        """The most of each in one step since this was asked last."""
        most, self.most = self.most, Counter()
        return most


def begun(members: int, groups: int, *, files: bool) -> Cluster:
    """Groups with leaders: they begin a few at a time, as a zone's do."""
    cluster = Cluster(members, files=files)
    for number in range(GROUPS_FROM, GROUPS_FROM + groups):
        cluster.start(number, *range(1, members + 1))
        if number % GROUPS_AT_ONCE == 0:
            cluster.go(1)
    cluster.go(60)
    return cluster


def leaders(cluster: Cluster, groups: int) -> set[int]:
    """Groups that have a leader that is here."""
    up = [process for process in cluster.processes.values() if process.up]
    every = range(GROUPS_FROM, GROUPS_FROM + groups)
    return {number for number in every if any(process.groups.term(number) is not None for process in up)}


@pytest.mark.rule("multiraft/H-7")
@pytest.mark.parametrize("files", [True, False])
def test_ticks_elections_and_messages_of_many_groups_are_done_a_few_at_a_time(
    files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = 150
    assert GROUPS_AT_ONCE <= 32
    meter = Meter(monkeypatch)
    cluster = begun(3, groups, files=files)
    assert len(leaders(cluster, groups)) == groups
    meter.take()
    # All wake up, and elect other leaders: one that leads a part of them goes.
    gone = next(
        process for process in cluster.processes.values() if process.groups.term(GROUPS_FROM) is not None
    )
    gone.crash()
    cluster.install(uuid for uuid in cluster.processes if uuid != gone.info.uuid)
    cluster.go(60)
    assert len(leaders(cluster, groups)) == groups
    most = meter.take()
    for what in ("tick", "campaign"):
        assert 0 < most[what] <= GROUPS_AT_ONCE, most
    assert most["together"] <= PER_GROUP * GROUPS_AT_ONCE < groups * PER_GROUP / 4, most


@pytest.mark.rule("multiraft/H-7")
def test_every_group_has_its_turn_at_every_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = 3 * GROUPS_AT_ONCE + 5
    cluster = Cluster(1)
    for number in range(GROUPS_FROM, GROUPS_FROM + groups):
        cluster.start(number, 1)
    (process,) = cluster.processes.values()
    numbers = {hosted.group: number for number, hosted in process.groups.hosted.items()}
    ticked: list[int] = []
    tick = Group.tick

    def noted(group: Group) -> None:
        ticked.append(numbers[group])
        tick(group)

    monkeypatch.setattr(Group, "tick", noted)
    process.groups.on_timer()
    process.end_step()
    assert ticked == list(range(GROUPS_FROM, GROUPS_FROM + GROUPS_AT_ONCE))
    process.groups.stop(GROUPS_FROM + GROUPS_AT_ONCE)
    turns = 0
    while process.more:
        process.take_more()
        turns += 1
    every = [*range(GROUPS_FROM, GROUPS_FROM + groups)]
    every.remove(GROUPS_FROM + GROUPS_AT_ONCE)
    assert (ticked, turns) == (every, 3)
    assert process.timer, "and they tick again"


@pytest.mark.rule("multiraft/H-7")
def test_what_is_durable_at_once_is_told_a_few_groups_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = 3 * GROUPS_AT_ONCE
    cluster = begun(1, groups, files=True)
    (process,) = cluster.processes.values()
    for number in range(GROUPS_FROM, GROUPS_FROM + groups):
        process.groups.propose(number, [b"x"])
        process.end_step()
    meter = Meter(monkeypatch)
    last = process.disk.pop()
    process.disk.clear()
    process.durable = process.numbers[last.number]  # type: ignore[union-attr]
    process.log.on_durable(last.number)  # type: ignore[union-attr]
    process.end_step()
    assert sum(client.applied == [b"x"] for client in process.clients.values()) == GROUPS_AT_ONCE
    while process.more:
        process.take_more()
    assert all(client.applied == [b"x"] for client in process.clients.values())
    assert meter.take()["written"] <= GROUPS_AT_ONCE
