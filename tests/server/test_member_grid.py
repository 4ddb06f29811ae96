"""How often clients are told of changes, and of what."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace

import pytest
from tests.runtime.in_process.test_embedded import cluster, run

from holdfast.config import Settings
from holdfast.core.effects import ClusterChanged
from holdfast.core.migration.migration_master import PARTING_NS
from holdfast.core.model.ids import SECOND
from holdfast.core.model.partition_table import Assignment
from holdfast.engine.callers import Callers
from holdfast.server.hazelcast.cluster_views import members_of, owners_of
from holdfast.server.member_grid import FULL_RATE_WATCHERS, NOTIFY_MAX_S, NOTIFY_S, Debouncer, MemberGrid

LONG_S, SHORT_S = 3600.0, 0.001


async def turn() -> None:
    """Let the loop do what is due now."""
    for _ in range(3):
        await asyncio.sleep(0)


async def soon_and_not_again() -> list[int]:
    calls: list[int] = []
    debouncer = Debouncer(lambda: calls.append(1), lambda: LONG_S, asyncio.get_running_loop())
    counts = [len(calls)]
    debouncer.request()
    debouncer.request()
    await turn()
    counts.append(len(calls))
    debouncer.request()
    await turn()
    counts.append(len(calls))
    debouncer.now()
    debouncer.now()
    counts.append(len(calls))
    debouncer.request()
    debouncer.end()
    debouncer.now()
    counts.append(len(calls))
    return counts


def test_several_wishes_make_one_call_at_once_and_then_none_for_a_while() -> None:
    counts = asyncio.run(soon_and_not_again())
    assert counts[:3] == [0, 1, 1]
    assert counts[3] == 2, "unless it must be now, once"
    assert counts[4] == 2, "or nobody wants it any more"


async def every_time() -> None:
    called = asyncio.Event()
    debouncer = Debouncer(called.set, lambda: SHORT_S, asyncio.get_running_loop())
    for _ in range(3):
        called.clear()
        debouncer.request()
        await asyncio.wait_for(called.wait(), 20)


def test_no_wish_is_forgotten() -> None:
    asyncio.run(every_time())


class Clock:
    """A loop whose time is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._number = count()
        self._due: list[tuple[float, int, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, deed: Callable[[], object]) -> Clock:
        heapq.heappush(self._due, (when, next(self._number), deed))
        return self

    def cancel(self) -> None:
        """What is called all the same does nothing (`Debouncer.now`)."""

    def until(self, when: float) -> None:
        while self._due and self._due[0][0] <= when:
            self.now_s, _, deed = heapq.heappop(self._due)
            deed()
        self.now_s = when


class Told(MemberGrid):
    """A grid of nobody, with clients that note when they were told."""

    def __init__(self, clients: int) -> None:
        super().__init__(Settings(), "aa")
        self.clock = Clock()
        self.callers = Callers(lambda event: None, lambda event: None)
        self.driver = self  # type: ignore[assignment]
        self.member = SimpleNamespace(picture=SimpleNamespace(has_left=False))  # type: ignore[assignment]
        self.times_s: list[list[float]] = [[] for _ in range(clients)]
        for times_s in self.times_s:
            self.watch(lambda times_s=times_s: times_s.append(self.clock.now_s))  # type: ignore[misc]

    @property
    def clients_loop(self) -> Clock:  # type: ignore[override]
        return self.clock

    def change(self, seconds: float, every_s: float = 0.005) -> None:
        """Partitions move for so long."""
        for _ in range(round(seconds / every_s)):
            self.callers.deliver(ClusterChanged())
            self.clock.until(self.clock.now_s + every_s)


@pytest.mark.parametrize("clients", [1, FULL_RATE_WATCHERS])
def test_a_few_clients_are_told_at_once(clients: int) -> None:
    grid = Told(clients)
    grid.change(0.005)
    assert all(times_s == [100.0] for times_s in grid.times_s)
    grid.change(1.0)
    assert all(abs(len(times_s) - 1.0 / NOTIFY_S) < 4 for times_s in grid.times_s)


def test_a_thousand_clients_are_told_less_often_and_not_all_at_once() -> None:
    """A member with a thousand clients did nothing else while partitions moved."""
    grid = Told(1_000)
    grid.change(2.0)
    told = sum(map(len, grid.times_s))
    assert told <= 1_000 * (2.0 / NOTIFY_MAX_S + 2)
    at = Counter(round(when, 3) for times_s in grid.times_s for when in times_s)
    assert max(at.values()) <= 5 * 1_000 * 0.005 / NOTIFY_MAX_S, "no moment has many of them"
    last = grid.clock.now_s
    grid.callers.deliver(ClusterChanged())
    grid.clock.until(last + NOTIFY_MAX_S + 0.001)
    assert all(times_s[-1] >= last for times_s in grid.times_s), "and none of them waits for long"


def test_who_waits_already_costs_nothing_when_more_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    grid, asked = Told(1_000), list[Debouncer]()
    ask = Debouncer.request
    monkeypatch.setattr(Debouncer, "request", lambda self: (asked.append(self), ask(self)))
    for _ in range(100):
        grid.callers.deliver(ClusterChanged())
    assert len(asked) == 1_000


def test_who_is_gone_is_told_nothing() -> None:
    grid, told = Told(0), list[str]()
    ends = [grid.watch(lambda name=name: told.append(name)) for name in "abc"]  # type: ignore[misc]
    ends[0]()
    grid.callers.deliver(ClusterChanged())
    ends[1]()
    ends[1]()
    grid.clock.until(grid.clock.now_s + 1)
    grid.change(0.1)
    assert set(told) == {"c"}


@pytest.mark.rule("routing/R-17")
def test_a_member_that_has_left_reports_no_members_to_its_clients() -> None:
    """A client disconnects from a member that is not listed, and what it waits for has an unknown outcome."""
    grid = Told(1)
    grid.change(0.005)
    grid.member.picture.has_left = True  # type: ignore[misc]
    grid.change(1.0)
    grid.notify_watchers()
    assert grid.times_s == [[100.0]]


def test_clients_hear_of_a_member_that_leaves_before_it_is_gone() -> None:
    assert NOTIFY_MAX_S * SECOND < PARTING_NS


def test_all_clients_are_told_the_same_until_something_changes() -> None:
    """What costs 200 us to make is made once, and not for each of thousands."""

    async def story() -> None:
        async with cluster(2) as members:
            grid = members[0]._node
            card = grid.cluster()
            assert grid.cluster() is card
            assert members_of(card) is members_of(card)
            assert owners_of(card) is owners_of(card)
            assert len(card.members) == 2
            assert len(card.owners) == 2
            await members[1].leave()
            await members[0].wait_safe()
            later = grid.cluster()
            assert len(later.members) == 1
            assert len(later.owners) == 1
            assert later.owners_version > card.owners_version
            assert members_of(later) != members_of(card)
            assert owners_of(later) != owners_of(card)

    run(story())


@pytest.mark.parametrize("changed", [{"view": SimpleNamespace(number=1)}, {"table_version": 2}])
def test_another_view_and_another_table_make_another_card(changed: dict[str, object]) -> None:
    picture = SimpleNamespace(
        view=SimpleNamespace(number=1), table_version=1, members=tuple, assignments=[Assignment(1, (None,))]
    )
    grid = Told(0)
    grid.member = SimpleNamespace(picture=picture)  # type: ignore[assignment]
    card = grid.cluster()
    assert grid.cluster() is card
    vars(picture).update(changed)
    assert grid.cluster() is not card
