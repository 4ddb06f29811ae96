"""Cycles in the dependencies of transactions: strong components by Tarjan, and short cycles in them.

Nodes are transactions and *hubs*. An edge into a hub stands for edges of its kind to everything that the hub
reaches through hubs, so that dependencies of many transactions on many others need few edges. Example: if
1,000 transactions ended before 1,000 others began, one hub needs 2,000 edges instead of a million.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Element = str | int

WW = 1
"""The target overwrote a write of the source."""
WR = 2
"""The target read a write of the source."""
RW = 4
"""The source read a value that the target then overwrote."""
REAL_TIME = 8
"""The source had ended before the target began."""
THROUGH = 16
"""Out of a hub, with the kind by which the hub was entered. Every search follows these."""

STEPS = 500_000
"""About how many edges one search for a cycle examines before it returns the best one so far."""


class Edge(NamedTuple):
    source: int
    target: int
    kind: int
    key: str = ""
    before: Element | None = None
    """For `WW`: the source's write."""
    element: Element | None = None
    """The target's write, or for `WR` read; None for an edge into a hub."""


class DependencyGraph:
    """Edges between transactions, numbered from 0, and hubs."""

    def __init__(self, transactions: int, *, steps: int = STEPS) -> None:
        self._transactions = transactions
        self._edges: list[list[Edge]] = [[] for _ in range(transactions)]
        self._steps = steps

    def hub(self) -> int:
        self._edges.append([])
        return len(self._edges) - 1

    def add(self, edge: Edge) -> None:
        """An edge from a node to itself is part of no cycle."""
        self._edges[edge.source].append(edge)

    def components(self, along: int) -> list[list[int]]:
        """Strong components with more than one node, over edges of the kinds `along`; each in order."""
        along |= THROUGH
        edges = self._edges
        order = [0] * len(edges)
        low = [0] * len(edges)
        open_nodes: list[int] = []
        is_open = bytearray(len(edges))
        found: list[list[int]] = []
        count = 0
        for root in range(len(edges)):
            path: list[tuple[int, Iterator[Edge]]] = []
            entered: int | None = None if order[root] else root
            while entered is not None or path:
                if entered is not None:
                    count += 1
                    order[entered] = low[entered] = count
                    open_nodes.append(entered)
                    is_open[entered] = 1
                    path.append((entered, iter(edges[entered])))
                node, rest = path[-1]
                entered = None
                for edge in rest:
                    target = edge[1]
                    if edge[2] & along and not order[target]:
                        entered = target
                        break
                    if edge[2] & along and is_open[target]:
                        low[node] = min(low[node], order[target])
                if entered is not None:
                    continue
                path.pop()
                if path:
                    above = path[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == order[node]:
                    component = _closed(open_nodes, node, is_open)
                    if len(component) > 1:
                        found.append(component)
        return found

    def cycle(self, component: Sequence[int], through: int, along: int) -> list[Edge]:
        """A short cycle in a component: one edge of kind `through`, from a transaction, then edges of kinds
        `along`. It has the fewest transactions if the search ends within its steps. Empty: none was found.
        """
        inside = frozenset(component)
        steps = self._steps
        best: list[Edge] = []
        most = len(component) + 1
        for node in component:
            for edge in self._edges[node]:
                if not edge.kind & through or edge.target not in inside:
                    continue
                if steps <= 0:
                    return best
                path, looked = self._path(edge.target, node, inside, along | THROUGH, most)
                steps -= looked
                if path:
                    best = [edge, *path]
                    most = self._length(best)
        return best

    def _length(self, edges: Sequence[Edge]) -> int:
        return sum(edge.target < self._transactions for edge in edges)

    def _path(
        self, start: int, goal: int, inside: frozenset[int], along: int, most: int
    ) -> tuple[list[Edge], int]:
        """The path that enters the fewest transactions, if with `start` they are fewer than `most`; and the
        number of examined edges.
        """
        distance = {start: int(start < self._transactions)}
        came: dict[int, Edge] = {}
        queue = deque([start])
        looked = 0
        while queue:
            node = queue.popleft()
            if node == goal:
                break
            for edge in self._edges[node]:
                looked += 1
                _, target, kind, *_ = edge
                if not kind & along or target not in inside:
                    continue
                entered = int(target < self._transactions)
                length = distance[node] + entered
                if length >= distance.get(target, most):
                    continue
                distance[target], came[target] = length, edge
                if entered:
                    queue.append(target)
                else:
                    queue.appendleft(target)
        if goal not in came:
            return [], looked
        path = [came[goal]]
        while path[-1].source != start:
            path.append(came[path[-1].source])
        return path[::-1], looked


def _closed(open_nodes: list[int], root: int, is_open: bytearray) -> list[int]:
    component: list[int] = []
    while not component or component[-1] != root:
        component.append(open_nodes.pop())
        is_open[component[-1]] = 0
    return sorted(component)
