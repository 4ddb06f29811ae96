"""Which transactions depend on each other in a circle? Strong components after Tarjan, and short cycles in them.

The first nodes are transactions. The others are *hubs*: who has an edge into a hub has, by it, an edge of that kind to
everything that the hub reaches through hubs. So what many have in common with many others takes few edges.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Element = str | int

WW = 1
"""The target wrote over what the source had written."""
WR = 2
"""The target read what the source had written."""
RW = 4
"""The source read what the target then wrote over."""
REAL_TIME = 8
"""The source had ended before the target began."""
THROUGH = 16
"""Out of a hub: of the kind by which the hub was entered. Every look goes along these."""

STEPS = 500_000
"""How many edges one search for a cycle looks at, about: after that it is content with what it has found."""


class Edge(NamedTuple):
    """One dependency."""

    source: int
    target: int
    kind: int
    key: str = ""
    before: Element | None = None
    """What the source wrote, for `WW`."""
    element: Element | None = None
    """What the target wrote, or read for `WR`; nothing for an edge into a hub."""


class DependencyGraph:
    """Edges of transactions, numbered from 0, and of hubs."""

    def __init__(self, transactions: int, *, steps: int = STEPS) -> None:
        self._transactions = transactions
        self._edges: list[list[Edge]] = [[] for _ in range(transactions)]
        self._steps = steps

    def hub(self) -> int:
        """A new one."""
        self._edges.append([])
        return len(self._edges) - 1

    def add(self, edge: Edge) -> None:
        """An edge from a node to itself may be added, and is part of no cycle."""
        self._edges[edge.source].append(edge)

    def components(self, along: int) -> list[list[int]]:
        """The strong components of more than one node, with edges of the kinds `along` only; each in order."""
        along |= THROUGH
        edges = self._edges
        order = [0] * len(edges)
        """When a node was come to, from 1; 0: not yet."""
        low = [0] * len(edges)
        """The earliest open node that is known to be reached."""
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
        """A short cycle in a component: one edge of the kind `through`, from a transaction, then edges `along`.

        Of fewest transactions, if the search for it ends within its steps. Empty: there is none, or none was found.
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
        """How many transactions are entered."""
        return sum(edge.target < self._transactions for edge in edges)

    def _path(
        self, start: int, goal: int, inside: frozenset[int], along: int, most: int
    ) -> tuple[list[Edge], int]:
        """The way that enters the fewest transactions, if with `start` these are fewer than `most`; and how many edges
        were looked at.
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
    """The component of which `root` was come to first, taken out of the open ones."""
    component: list[int] = []
    while not component or component[-1] != root:
        component.append(open_nodes.pop())
        is_open[component[-1]] = 0
    return sorted(component)
