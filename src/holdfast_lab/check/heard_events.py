"""Judge of entry listeners: each change is reported once, correctly, and nothing else is.

The primary sends an event when it makes the change, before the change is acknowledged. So an event may report a change
that is lost with its primary, and again when the change is repeated, by another member or by the same one in a later
leadership. During one leadership each change is reported at most once. It is certainly reported if the member that made
it knew of the listener, and both lived on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field

from holdfast.core.model.operations import EventKind
from holdfast_lab.check.linearizability import READS, Call, Outcome, changed_nothing

STORED = frozenset({EventKind.ADDED, EventKind.UPDATED})
ENDED = frozenset({EventKind.REMOVED, EventKind.EVICTED, EventKind.EXPIRED})
WHOLE = frozenset({EventKind.CLEAR_ALL, EventKind.EVICT_ALL})
STORING = frozenset({"set", "put", "put_if_absent", "replace", "replace_if_same"})
REMOVING = frozenset({"remove", "delete", "remove_if_same"})
COUNTED = frozenset({"delete", "set_ttl"})
LATE_NS = 5_000_000_000
"""Longest delay of an event: as long as members that are cut off wait for each other."""


@dataclass(frozen=True, slots=True)
class Heard:
    kind: EventKind
    key: str | None
    value: str | None
    old: str | None
    member: str
    """The life of the member on which it happened."""
    at: int

    def __str__(self) -> str:
        what = f"{self.old} -> {self.value}"
        return f"{self.kind.name} {self.key}: {what}, on {self.member}, heard at {self.at / 1e9:.6f} s"


@dataclass(slots=True)
class Listening:
    name: str
    key: str | None = None
    """The only key of interest; None: all."""
    heard: list[Heard] = field(default_factory=list)
    must_hear: Callable[[Call], bool] = lambda call: True
    """Whether the change of a call was certain to be reported."""
    offices: Callable[[Heard], Sequence[int]] = lambda heard: ()
    """Times at which the event's member became primary of the key's partition: unacknowledged changes of
    earlier leaderships may have been lost.
    """


def judge(calls: Sequence[Call], listenings: Iterable[Listening]) -> list[str]:
    written = {call.argument: call for call in calls if call.operation in STORING}
    problems: list[str] = []
    for listening in listenings:
        found = _sound(listening, written) + _twice(listening, written) + _late(listening, written)
        found += _missed(listening, calls)
        problems += [f"listener {listening.name}: {problem}" for problem in found]
    return problems


def _sound(listening: Listening, written: dict[str | None, Call]) -> list[str]:
    problems: list[str] = []
    for heard in listening.heard:
        if heard.kind in WHOLE:
            fits = heard.key is None
        else:
            absent = (heard.old is None, heard.value is None)
            fits = heard.key is not None and listening.key in (None, heard.key)
            expected = {EventKind.ADDED: (True, False), EventKind.UPDATED: (False, False)}
            fits = fits and absent == expected.get(heard.kind, (False, True))
        if not fits:
            problems.append(f"{heard}: kind, key and values do not fit")
        for name in (heard.value, heard.old):
            if name is None:
                continue
            write = written.get(name)
            if write is None or write.key != heard.key:
                problems.append(f"{heard}: {name} was never written there")
            elif write.outcome is Outcome.REFUSED:
                problems.append(f"{heard}: {name} was refused: {write}")
            elif write.start > heard.at:
                problems.append(f"{heard}: before it was written: {write}")
    return problems


def _twice(listening: Listening, written: dict[str | None, Call]) -> list[str]:
    """Values are unique: during one leadership each is stored once, and ends once."""
    problems: list[str] = []
    stored: dict[tuple[str, str | None], Heard] = {}
    ended: dict[tuple[str, str | None], Heard] = {}
    for heard in listening.heard:
        if heard.kind in WHOLE or heard.value == heard.old:
            continue  # A new time to live changes no value.
        for before, name, write in (
            (stored, heard.value, written.get(heard.value)),
            (ended, heard.old, None),
        ):
            first = before.get((heard.member, name))
            if name is not None and first is not None and not _lost(listening, first, heard, write):
                problems.append(f"{heard}: heard before: {first}")
            before[heard.member, name] = heard
    return problems


def _lost(listening: Listening, first: Heard, again: Heard, write: Call | None) -> bool:
    """Whether a change that is reported again may have been lost after the first report: its member became
    primary again in between, before the write (if it is one) was acknowledged.
    """
    acknowledged_ns = write.end if write is not None and write.outcome is Outcome.DONE else again.at
    return any(
        first.at - LATE_NS <= began <= min(again.at, acknowledged_ns) for began in listening.offices(again)
    )


def _late(listening: Listening, written: dict[str | None, Call]) -> list[str]:
    """Reports of an older change of a key after a newer one, by the same member."""
    problems: list[str] = []
    newest: dict[tuple[str, str | None], tuple[int, Heard]] = {}
    for heard in listening.heard:
        write = written.get(heard.value)
        if heard.kind not in STORED or heard.value == heard.old or write is None:
            continue
        start, before = newest.get((heard.member, heard.key), (-1, heard))
        if write.outcome is Outcome.DONE and write.end < start:
            problems.append(f"{heard}: older than what was heard before: {before}")
        newest[heard.member, heard.key] = max((start, before), (write.start, heard), key=lambda one: one[0])
    return problems


def _missed(listening: Listening, calls: Sequence[Call]) -> list[str]:
    heard_of: dict[str | None, list[Heard]] = defaultdict(list)
    for heard in listening.heard:
        heard_of[heard.key].append(heard)
    certain: dict[str, list[Call]] = defaultdict(list)
    claimed: set[str | None] = set()
    for call in calls:
        if call.outcome is not Outcome.DONE or call.operation in READS or changed_nothing(call):
            continue
        claimed.add(_removed(call))
        if listening.key in (None, call.key) and listening.must_hear(call):
            certain[call.key].append(call)
    problems: list[str] = []
    for key, mine in certain.items():
        told = [*heard_of[key], *heard_of[None]]
        for call in mine:
            # A caller without the former value cannot distinguish its event from those of similar calls.
            alike = 1
            if call.operation in COUNTED:
                alike = sum(c.operation == call.operation and c.start >= call.start for c in mine)
            found = [heard for heard in told if heard.at >= call.start and _tells(heard, call, claimed)]
            if len(found) < alike:
                problems.append(
                    f"{call}: was not heard; of this key: {', '.join(map(str, told[:3])) or 'nothing'}"
                )
    return problems


def _removed(call: Call) -> str | None:
    removed = call.expected if call.operation == "remove_if_same" else call.result
    return removed if call.operation in REMOVING and isinstance(removed, str) else None


def _tells(heard: Heard, call: Call, claimed: Container[str | None]) -> bool:
    """Whether the event may belong to the call: with the old value in the caller's answer or comparison."""
    if call.operation in STORING:
        if heard.kind not in STORED or heard.value != call.argument:
            return False
        old = call.expected if call.operation == "replace_if_same" else call.result
        return call.operation == "set" or heard.old == old or not (old is None or isinstance(old, str))
    if call.operation == "set_ttl":
        return heard.kind is EventKind.UPDATED and heard.value == heard.old
    if call.operation == "delete":
        return heard.kind in (EventKind.REMOVED, EventKind.EVICTED) and heard.old not in claimed
    removed = _removed(call)
    if removed is None:
        return heard.kind in WHOLE  # A clear does not report its keys.
    return heard.kind is EventKind.REMOVED and heard.old == removed
