"""Whatever a member of the cluster sends, in bytes that can be read: no other one meets an error.

The values are near the truth (members, versions, views) or at the edges of their ranges. What passes `wire.bounds` is
handed to simulated members as if it had come over their links.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.lab.sim.test_map_moves import PLAIN, begun

from holdfast.core.events import Heard, Received
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.errors import ProtocolError
from holdfast.wire import codec
from holdfast_lab.fuzz.hostile import Facts, Liar, member_messages, pack
from holdfast_lab.sim.cluster import Cluster, simulated_settings
from holdfast_lab.sim.world import Process, World

PARTITIONS = 7
WHO = frozenset(
    {"uuid", "member", "source", "destination", "replicas", "behind", "members", "suspects", "left"}
)
INT64 = -(2**63), 2**64 - 1


class Traitor(Liar):
    """Knows who is here, and which numbers are of now."""

    def __init__(self, draw: random.Random, processes: list[Process]) -> None:
        members = [process.driver.member for process in processes]
        super().__init__(draw, Facts("sim", PARTITIONS, tuple(one.me for one in members)), rough=False)
        view = members[0].membership.view
        self._near = [view.number if view is not None else 1, *range(4)]
        self._near += [row.version for row in members[0].table.rows]

    def text(self, field: str = "") -> str:
        if field in WHO and self.chance(0.8):
            return self.draw.choice(self.facts.members)
        return super().text(field)

    def number(self, low: int | None = None, high: int | None = None) -> int:
        if self.chance(0.3):
            return super().number(low, high)
        return min(INT64[1], max(INT64[0], self.draw.choice(self._near) + self.draw.choice((0, 0, 1, -1))))


def a_cluster() -> tuple[World, list[Process]]:
    world = World(1, None)
    cluster = Cluster(world, simulated_settings(1, PARTITIONS), 3)
    processes = [cluster.start(0, bootstrap=True), cluster.start(1), cluster.start(2)]
    world.run_until(60 * SECOND, cluster.settled)
    return world, processes


def a_cluster_in_which_a_map_moves() -> tuple[World, list[Process]]:
    stage = begun()
    assert stage.settings.partitions.count == PARTITIONS
    stage.fill(PLAIN)
    stage.order(PLAIN, "z")
    return stage.world, stage.living()


def betray(seed: int, messages: int, begin: Callable[[], tuple[World, list[Process]]] = a_cluster) -> int:
    """Say so many; answers how many could be read."""
    read = 0
    world, processes = begin()
    for number in range(messages):
        if number % 80 == 79:
            world, processes = begin()
        draw = random.Random(f"{seed}/{number}")
        liar = Traitor(draw, processes)
        process, sender = draw.choice(processes), draw.choice(processes)
        try:
            message = codec.decode(pack(liar.of(draw.choice(member_messages()))), PARTITIONS)
        except ProtocolError:
            continue
        read += 1
        if draw.random() < 0.8:
            process.driver.handle(Received(sender.driver.member.me, message))
        else:
            process.driver.handle(Heard(sender.address, message))
        world.run_until(world.now_ns + 20 * MILLISECOND, lambda: False)
    return read


@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_can_be_read_meets_an_error(seed: int) -> None:
    assert betray(seed, 400) > 150


def test_nothing_that_can_be_read_meets_an_error_in_zones_while_a_map_moves() -> None:
    assert betray(0, 160, a_cluster_in_which_a_map_moves) > 60


def test_it_is_the_bounds_that_see_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "message_problem", lambda *_: "")
    with pytest.raises((IndexError, AssertionError, ValueError, MemoryError)):
        betray(0, 400)
