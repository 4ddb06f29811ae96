"""Judges of counters, locks, semaphores and queues: pure functions over what clients know.

A counter gives each number once, and numbers rise with time. A lock has one holder at a time, and each holder a fence
of its own, higher than those before. A semaphore has at most as many holders as permits. An item of a queue is taken
once, and none is lost but by a request to take one whose outcome is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.core.model.cp import CpKind
from holdfast.core.model.ids import SECOND


@dataclass(slots=True)
class Addition:
    began_ns: int
    ended_ns: int = 0
    former: int | None = None
    """None: the outcome is unknown."""
    rejected: bool = False


class ClientSession:
    """A session of the group, as its client knows it."""

    __slots__ = ("ended_ns", "heard_ns", "number", "sure_ns")

    def __init__(self, number: int, heard_ns: int, sure_ns: int) -> None:
        self.number = number
        self.heard_ns = heard_ns
        """When the client sent the last heartbeat that was answered."""
        self.sure_ns = sure_ns
        """The session lives at least so long after a heartbeat."""
        self.ended_ns = 0
        """When the client knew that it has ended; 0: it has not."""

    @property
    def safe_ns(self) -> int:
        """Until then no other client can have what it holds."""
        return self.heard_ns + self.sure_ns


@dataclass(slots=True)
class Holding:
    user: int
    since_ns: int
    """When the user knew that it holds the lock or a permit."""
    until_ns: int = 0
    """When it began to release it; 0: not yet."""
    fence: int = 0
    asked_ns: int = 0
    """When it sent the request that was answered."""
    session: ClientSession | None = None
    """None: it does not end."""

    @property
    def end_ns(self) -> int:
        """From then on others may hold it; 0: never."""
        if self.session is None:
            return self.until_ns
        return min(self.until_ns or self.session.safe_ns, self.session.safe_ns)


@dataclass(slots=True)
class QueueHistory:
    """Knowledge of the clients of a queue. Items are unique."""

    offered: set[str] = field(default_factory=set)
    """They were added for certain,"""
    perhaps: set[str] = field(default_factory=set)
    """and these with an unknown outcome."""
    taken: list[str] = field(default_factory=list)
    unknown: int = 0
    """Requests to take an item whose outcome is unknown: each may have taken one."""


def judge_queue(history: QueueHistory) -> list[str]:
    """Errors after the queue was emptied."""
    taken = Counter(history.taken)
    problems = [f"{item!r} was taken {count} times" for item, count in sorted(taken.items()) if count > 1]
    known = history.offered | history.perhaps
    problems += [f"{item!r} was never added" for item in sorted(taken) if item not in known]
    lost = sorted(history.offered - taken.keys())
    if len(lost) > history.unknown:
        problems.append(
            f"{len(lost)} items are lost by {history.unknown} requests of unknown outcome: {lost[:5]}"
        )
    return problems


def judge_counter(additions: Sequence[Addition], value: int) -> list[str]:
    known = [one for one in additions if one.former is not None]
    unknown = sum(one.former is None and not one.rejected for one in additions)
    problems = []
    if not len(known) <= value <= len(known) + unknown:
        problems.append(
            f"the counter is {value} after {len(known)} additions, and {unknown} of unknown outcome"
        )
    formers = [one.former for one in known]
    if len(set(formers)) < len(formers):
        problems.append("the counter has given a number twice")
    newest = -1
    for ends, begins in _in_time([(one.began_ns, one.ended_ns, one.former or 0) for one in known]):
        if ends is not None:
            newest = max(newest, ends)
        elif begins is not None and begins <= newest:
            problems.append(f"the counter was {newest}, and then {begins}")
    return problems


def judge_holders(kind: CpKind, holdings: Sequence[Holding], most: int) -> list[str]:
    problems = []
    events = sorted(
        [(one.since_ns, 1, one) for one in holdings if not 0 < one.end_ns <= one.since_ns]
        + [(one.end_ns, 0, one) for one in holdings if one.end_ns > one.since_ns],
        key=lambda event: event[:2],
    )
    holders = 0
    for at_ns, begins, _ in events:
        holders += 1 if begins else -1
        if holders > most:
            problems.append(f"a {kind} has {holders} holders at {at_ns / SECOND:.3f} s")
    return problems + (_judge_fences(holdings) if kind is CpKind.LOCK else [])


def _judge_fences(holdings: Sequence[Holding]) -> list[str]:
    """A request that is sent when a fence is known gets a higher one, except for the owner of that fence."""
    problems = []
    known = sorted(holdings, key=lambda one: one.since_ns)
    for one in known:
        before = [other for other in known if other is not one and other.since_ns <= one.asked_ns]
        newest = max(before, key=lambda other: other.fence, default=None)
        if newest is not None and one.fence <= newest.fence:
            problems.append(f"fence {one.fence} was given after {newest.fence}")
    return problems


def _in_time(calls: Sequence[tuple[int, int, int]]) -> list[tuple[int | None, int | None]]:
    """Numbers of calls that end, and that begin, in the order of time; of one moment those that begin first."""
    begins = [(began_ns, 0, None, number) for began_ns, _, number in calls]
    ends = [(ended_ns, 1, number, None) for _, ended_ns, number in calls]
    ordered = sorted([*begins, *ends], key=lambda event: event[:2])
    return [(ended, began) for _, _, ended, began in ordered]
