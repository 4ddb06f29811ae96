"""Judge of serializability: the transactions of a list-append history could have run one after the other.

Transactions append elements to lists and read whole lists. No element is appended twice to one list, so a read shows
which appends came before it, and in which order (Kingsbury and Alvaro, "Elle", VLDB 2020). This gives the dependencies
of Adya's thesis (1999, chapter 3): *ww*, after whose append a transaction appended; *wr*, whose append it read; *rw*,
whose append it did not see yet. A cycle of them is an anomaly:

- *G0*: of ww only. *G1c*: of ww and wr. *G-single*: with exactly one rw. *G2*: with more.

Example (G-single, a lost update): x is [1]. T1 and T2 both read [1]; T1 appends 2, T2 appends 3; x ends as [1, 2, 3].
T2 did not see the 2 (rw: T2 before T1), but appended after it (ww: T1 before T2).

Other anomalies show in one read: *G1a*, an append of a transaction that was rolled back; *G1b*, a list from the middle
of a transaction; *internal*, a list without the reader's own appends; an element that was never appended, or is there
twice; *torn*, an append without an earlier one of the same transaction to that list; two lists that are no prefix of
each other. An append is *lost* if the last read of its key began after the commit and does not show it, so a history
should end with a read of each key from the newest state.

Only committed transactions are judged. One with unknown outcome counts as committed if another one that counts has read
its appends; otherwise nothing is concluded about it.

A committed append that was never seen comes after all that were: a transaction that read the key without it came
before. So if nothing is found at `SERIALIZABLE`, some order explains every read, and at `STRICT_SERIALIZABLE` one that
fits the times; if something is found, there is none. Lost appends consider times at every level.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, unique
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from holdfast_lab.check.dependency_graph import REAL_TIME, RW, THROUGH, WR, WW, DependencyGraph, Edge, Element
from holdfast_lab.check.linearizability import FOREVER


@unique
class TransactionOutcome(Enum):
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNKNOWN = "unknown"
    """It may be committed, also later than its end; or not."""


@unique
class Isolation(Enum):
    READ_COMMITTED = "read-committed"
    REPEATABLE_READ = "repeatable-read"
    """Without reads by predicate this is the same as `SERIALIZABLE`."""
    SERIALIZABLE = "serializable"
    STRICT_SERIALIZABLE = "strict-serializable"
    """In addition: a transaction that ended before another began came before it."""


@unique
class Anomaly(Enum):
    G0 = "G0"
    G1A = "G1a"
    G1B = "G1b"
    G1C = "G1c"
    G_SINGLE = "G-single"
    G2 = "G2"
    INTERNAL = "internal"
    UNWRITTEN = "unwritten element"
    DUPLICATE = "duplicate element"
    INCOMPATIBLE = "incompatible orders"
    TORN = "torn transaction"
    LOST_APPEND = "lost append"


@dataclass(frozen=True, slots=True)
class ListAppend:
    key: str
    element: Element


@dataclass(frozen=True, slots=True)
class ListRead:
    """The whole list of `key`; empty if absent. None: not answered, which proves nothing."""

    key: str
    elements: Sequence[Element] | None


@dataclass(slots=True)
class ListTransaction:
    """One transaction as its client saw it. Times are in nanoseconds of one clock for all clients."""

    id: str
    outcome: TransactionOutcome
    start: int
    end: int | None
    """When its outcome was answered; None: never."""
    operations: Sequence[ListAppend | ListRead]


@dataclass(frozen=True, slots=True)
class AnomalyFound:
    anomaly: Anomaly
    transactions: tuple[str, ...]
    """The transactions involved; those of a cycle in its order."""
    words: str

    def __str__(self) -> str:
        return f"{self.anomaly.value}: {self.words}"


def judge(
    transactions: Iterable[ListTransaction], level: Isolation = Isolation.SERIALIZABLE
) -> list[AnomalyFound]:
    """Anomalies that `level` forbids. For each set of transactions in cycles, one short cycle of each kind is
    reported; in very large sets possibly a G2 where there is a G-single, too.

    Raises ValueError for a duplicate id, an element appended twice to a key, or an end before its start.
    """
    history = _History(transactions)
    inference = _Inference(history)
    for key in history.writers:
        inference.judge_key(key)
    inference.judge_cycles(level)
    return inference.found


class _Base(NamedTuple):
    """A transaction's read of others' appends: a list without its own."""

    reader: int
    elements: tuple[Element, ...]


class _Write(NamedTuple):
    writer: int
    element: Element


_Last = tuple[int, int, Element | None]


class _History:
    def __init__(self, transactions: Iterable[ListTransaction]) -> None:
        self.transactions = list(transactions)
        self.writers: dict[str, dict[Element, int]] = defaultdict(dict)
        self.previous: dict[str, dict[Element, Element]] = defaultdict(dict)
        """By key and element: what the same transaction had appended there just before."""
        self.appended: list[dict[str, list[Element]]] = []
        ids: set[str] = set()
        for number, transaction in enumerate(self.transactions):
            if transaction.id in ids:
                raise ValueError(f"two transactions have the id {transaction.id}: each needs one of its own")
            if transaction.end is not None and transaction.end < transaction.start:
                raise ValueError(f"{transaction.id} ends at {transaction.end}, before it begins")
            ids.add(transaction.id)
            self.appended.append(self._appends(number, transaction))
        self.settled = self._settle()
        """Transactions that count, and when they were committed at the latest."""

    def _appends(self, number: int, transaction: ListTransaction) -> dict[str, list[Element]]:
        found: dict[str, list[Element]] = defaultdict(list)
        for operation in transaction.operations:
            writers = self.writers[operation.key]
            if isinstance(operation, ListRead):
                continue
            if operation.element in writers:
                raise ValueError(
                    f"{operation.element} is appended to {operation.key} twice, by "
                    f"{self.transactions[writers[operation.element]].id} and {transaction.id}: "
                    "append no element twice"
                )
            writers[operation.element] = number
            if operation.key in found:
                self.previous[operation.key][operation.element] = found[operation.key][-1]
            found[operation.key].append(operation.element)
        return dict(found)

    def _settle(self) -> dict[int, int]:
        """Committed transactions count, and unknown ones that these, or each other, have read."""
        unknown = {
            number: one
            for number, one in enumerate(self.transactions)
            if one.outcome is TransactionOutcome.UNKNOWN
        }
        work = [
            (FOREVER if one.end is None else one.end, number)
            for number, one in enumerate(self.transactions)
            if one.outcome is TransactionOutcome.COMMITTED
        ]
        heapify(work)
        settled = {number: end for end, number in work}
        while work:
            end, reader = heappop(work)
            for operation in self.transactions[reader].operations:
                if isinstance(operation, ListAppend) or operation.elements is None:
                    continue
                writers = self.writers[operation.key]
                for element in operation.elements:
                    writer = writers.get(element, reader)
                    if writer in unknown and writer not in settled:
                        settled[writer] = end
                        heappush(work, (end, writer))
        return settled

    def is_rolled_back(self, number: int) -> bool:
        return self.transactions[number].outcome is TransactionOutcome.ROLLED_BACK


class _Inference:
    def __init__(self, history: _History) -> None:
        self.found: list[AnomalyFound] = []
        self._history = history
        self._graph = DependencyGraph(len(history.transactions))
        self._bases: dict[str, list[_Base]] = defaultdict(list)
        self._newest: dict[str, _Base] = {}
        """Last read by key, of the transaction that began last, including its own appends."""
        self._told: set[tuple[Anomaly, str, Element]] = set()
        for number in sorted(history.settled):
            self._read(number)

    def _tell(self, anomaly: Anomaly, numbers: Iterable[int], words: str) -> None:
        self.found.append(AnomalyFound(anomaly, tuple(self._id(number) for number in numbers), words))

    def _id(self, number: int) -> str:
        return self._history.transactions[number].id

    def _read(self, number: int) -> None:
        """Collect what a transaction read of others, and check that it saw its own appends."""
        transaction, appended = self._history.transactions[number], self._history.appended[number]
        so_far: dict[str, list[Element]] = defaultdict(list)
        for operation in transaction.operations:
            key = operation.key
            if isinstance(operation, ListAppend):
                so_far[key].append(operation.element)
                continue
            if operation.elements is None:
                continue
            elements, own = tuple(operation.elements), tuple(so_far[key])
            newest = self._newest.get(key)
            if newest is None or self._history.transactions[newest.reader].start <= transaction.start:
                self._newest[key] = _Base(number, elements)
            others = elements[: max(0, len(elements) - len(own))]
            if elements[len(others) :] != own or any(one in others for one in appended.get(key, ())):
                self._tell(
                    Anomaly.INTERNAL,
                    [number],
                    f"{transaction.id} had appended {_list(own)} to {key}, and read {_list(elements)}",
                )
            else:
                self._bases[key].append(_Base(number, others))

    # -- single keys

    def judge_key(self, key: str) -> None:
        """Find the order of the key's appends, the dependencies that follow, and errors of single reads."""
        bases = self._bases[key]
        longest = max(bases, default=_Base(-1, ()), key=lambda base: len(base.elements))
        self._judge_elements(key, longest)
        fitting = [base for base in bases if base.elements == longest.elements[: len(base.elements)]]
        strange = [base for base in bases if base.elements != longest.elements[: len(base.elements)]]
        if strange:
            self._tell_incompatible(key, strange, longest)
        for base in bases:
            self._judge_intermediate(key, base)
        for base in strange:
            self._judge_elements(key, base)
        self._judge_lost(key)
        seen = {element for base in [longest, *strange] for element in base.elements}
        self._depend(key, longest.elements, fitting, seen)

    def _judge_elements(self, key: str, base: _Base) -> None:
        """Each element must have been appended once, by a transaction that may be committed, in its order."""
        shown: set[Element] = set()
        for element in base.elements:
            writer = self._history.writers[key].get(element)
            read = f"{self._id(base.reader)} read {element} in {key}"
            if writer is None:
                self._tell_once(
                    Anomaly.UNWRITTEN, key, element, [base.reader], f"{read}, which was never appended there"
                )
            elif element in shown:
                self._tell_once(Anomaly.DUPLICATE, key, element, [base.reader, writer], f"{read} twice")
            elif self._history.is_rolled_back(writer):
                words = f"{read}, which {self._id(writer)} had appended, and was rolled back"
                self._tell_once(Anomaly.G1A, key, element, [writer, base.reader], words)
            elif (previous := self._history.previous[key].get(element)) is not None and previous not in shown:
                words = f"{read}, and not before it {previous}, which {self._id(writer)} had appended first"
                self._tell_once(Anomaly.TORN, key, element, [writer, base.reader], words)
            shown.add(element)

    def _tell_once(
        self, anomaly: Anomaly, key: str, element: Element, numbers: list[int], words: str
    ) -> None:
        if (anomaly, key, element) not in self._told:
            self._told.add((anomaly, key, element))
            self._tell(anomaly, numbers, words)

    def _judge_intermediate(self, key: str, base: _Base) -> None:
        """The last element of a list must be the last that its transaction appended there."""
        if not base.elements:
            return
        last = base.elements[-1]
        writer = self._history.writers[key].get(last)
        if writer is None or self._history.is_rolled_back(writer):
            return
        final = self._history.appended[writer][key][-1]
        if last != final:
            words = f"{self._id(base.reader)} read {key} up to {last}; {self._id(writer)} appended {final} after that"
            self._tell_once(Anomaly.G1B, key, last, [writer, base.reader], words)

    def _tell_incompatible(self, key: str, strange: list[_Base], longest: _Base) -> None:
        first = strange[0]
        pairs = enumerate(zip(first.elements, longest.elements, strict=False))
        place = next(place for place, (one, other) in pairs if one != other)
        more = f"; so did {len(strange) - 1} more" if len(strange) > 1 else ""
        self._tell(
            Anomaly.INCOMPATIBLE,
            [first.reader, longest.reader],
            f"{self._id(first.reader)} read {first.elements[place]} at place {place} of {key}, where "
            f"{self._id(longest.reader)} read {longest.elements[place]}{more}",
        )

    def _judge_lost(self, key: str) -> None:
        newest = self._newest.get(key)
        if newest is None:
            return
        shown = set(newest.elements)
        start = self._history.transactions[newest.reader].start
        missing: dict[int, list[Element]] = defaultdict(list)
        for element, writer in self._history.writers[key].items():
            if element not in shown and self._history.settled.get(writer, FOREVER) < start:
                missing[writer].append(element)
        for writer, elements in missing.items():
            self._tell(
                Anomaly.LOST_APPEND,
                [writer, newest.reader],
                f"{self._id(writer)} appended {_list(elements)} to {key}, and {self._id(newest.reader)}, "
                "which began later and is the last to have read it, did not see it",
            )

    # -- dependencies

    def _depend(
        self, key: str, longest: tuple[Element, ...], fitting: list[_Base], seen: set[Element]
    ) -> None:
        """Dependencies from the appends to one key; `longest` are in order, `seen` were read at all."""
        order: list[_Write] = []
        place = [0]
        shown: set[Element] = set()
        for element in longest:
            writer = self._history.writers[key].get(element)
            if writer is not None and writer in self._history.settled and element not in shown:
                order.append(_Write(writer, element))
            shown.add(element)
            place.append(len(order))
        add = self._graph.add
        for one, after in pairwise(order):
            add(Edge(one.writer, after.writer, WW, key, one.element, after.element))
        last: list[_Last] = [(order[-1].writer, WW, order[-1].element)] if order else []
        for reader, elements in fitting:
            at = place[len(elements)]
            if at:
                add(Edge(order[at - 1].writer, reader, WR, key, None, order[at - 1].element))
            if at < len(order):
                add(Edge(reader, order[at].writer, RW, key, None, order[at].element))
            else:
                last.append((reader, RW, None))
        unseen: dict[int, Element] = {}
        for element, writer in self._history.writers[key].items():
            if element not in seen:  # Nothing follows from those that do not count.
                unseen.setdefault(writer, element)
        if unseen:
            self._depend_unseen(key, last, unseen)

    def _depend_unseen(self, key: str, last: list[_Last], unseen: dict[int, Element]) -> None:
        """Unseen appends come after the last one that was seen, and after its readers. Such a transaction may
        itself be one of the unseen ones, so one row of hubs leads to each of these and those after it,
        another one to those before.
        """
        add = self._graph.add
        at = {writer: number for number, writer in enumerate(unseen)}
        onward = [self._graph.hub() for _ in unseen]
        backward = [self._graph.hub() for _ in unseen]
        for writer, number in at.items():
            for hub in (onward[number], backward[number]):
                add(Edge(hub, writer, THROUGH, key, None, unseen[writer]))
            if number:
                add(Edge(onward[number - 1], onward[number], THROUGH))
                add(Edge(backward[number], backward[number - 1], THROUGH))
        for source, kind, before in last:
            mine = at.get(source)
            if mine is None:
                add(Edge(source, onward[0], kind, key, before))
                continue
            if mine > 0:
                add(Edge(source, backward[mine - 1], kind, key, before))
            if mine + 1 < len(onward):
                add(Edge(source, onward[mine + 1], kind, key, before))

    def _depend_by_time(self) -> None:
        """Real-time order, through a hub for each end, in their order."""
        events: list[tuple[int, int, int]] = []
        for number in self._history.settled:
            one = self._history.transactions[number]
            events.append((one.start, 0, number))
            if one.outcome is TransactionOutcome.COMMITTED and one.end is not None:
                events.append((one.end, 1, number))
        newest: int | None = None
        for _, ends, number in sorted(events):
            if ends:
                before, newest = newest, self._graph.hub()
                self._graph.add(Edge(number, newest, REAL_TIME))
                if before is not None:
                    self._graph.add(Edge(before, newest, THROUGH))
            elif newest is not None:
                self._graph.add(Edge(newest, number, THROUGH))

    # -- cycles

    def judge_cycles(self, level: Isolation) -> None:
        graph = self._graph
        cycles = [graph.cycle(component, WW, WW) for component in graph.components(WW)]
        cycles += [graph.cycle(component, WR, WW | WR) for component in graph.components(WW | WR)]
        if level is not Isolation.READ_COMMITTED:
            for component in graph.components(WW | WR | RW):
                single = graph.cycle(component, RW, WW | WR)
                cycles.append(single or graph.cycle(component, RW, WW | WR | RW))
        if level is Isolation.STRICT_SERIALIZABLE:
            self._depend_by_time()
            told = {edge.source for cycle in cycles for edge in cycle}
            for component in graph.components(WW | WR | RW | REAL_TIME):
                if told.isdisjoint(component):
                    cycles.append(self._cycle_in_time(component))
        for cycle in cycles:
            if cycle:
                self._tell_cycle(cycle)

    def _cycle_in_time(self, component: list[int]) -> list[Edge]:
        """A cycle without rw if there is one, otherwise one with as few as can be found."""
        ways = (
            (REAL_TIME, WW | WR | REAL_TIME),
            (RW, WW | WR | REAL_TIME),
            (RW, WW | WR | RW | REAL_TIME),
        )
        found = (self._graph.cycle(component, through, along) for through, along in ways)
        return next(cycle for cycle in found if cycle)

    def _tell_cycle(self, cycle: list[Edge]) -> None:
        steps: list[Edge] = []
        entered = cycle[0]
        for edge in cycle:
            if edge.kind != THROUGH:
                entered = edge
            if edge.target < len(self._history.transactions):
                steps.append(entered._replace(target=edge.target, element=edge.element))
        kinds = [step.kind for step in steps]
        if RW in kinds:
            anomaly = Anomaly.G_SINGLE if kinds.count(RW) == 1 else Anomaly.G2
        else:
            anomaly = Anomaly.G1C if WR in kinds else Anomaly.G0
        words = "; ".join(self._words(step) for step in steps)
        self._tell(anomaly, [step.source for step in steps], words)

    def _words(self, step: Edge) -> str:
        source, target = self._id(step.source), self._id(step.target)
        if step.kind == WW:
            return (
                f"{source} appended {step.before} to {step.key} before {target} appended {step.element} (ww)"
            )
        if step.kind == WR:
            return f"{source} appended {step.element} to {step.key}, which {target} read (wr)"
        if step.kind == RW:
            return f"{source} read {step.key} without {step.element}, which {target} appended (rw)"
        return f"{source} had ended before {target} began (real time)"


def _list(elements: Sequence[Element]) -> str:
    shown = ", ".join(map(str, elements[-10:]))
    return f"[..., {shown}]" if len(elements) > 10 else f"[{shown}]"
