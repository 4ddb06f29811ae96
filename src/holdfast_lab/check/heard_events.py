"""What listeners hear: each change once, as it was, and nothing else.

An event is told when the primary makes the change, before it is acknowledged. So one may be heard of a change that is
lost with its primary, and heard again when it is made once more: from another member, or from the same one, if that
has taken office anew since. In one office each change is heard once at most. And it is heard for certain, if the member
that made it knew of the listener, and both lived on.
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
"""An event arrives at most so long after it was made: as long as members who are cut off wait for each other."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One event, with the names of key and values. Times as in `Call`."""

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
    """One registration, on the changes of one map."""

    name: str
    """Whose it is, for people."""
    key: str | None = None
    """The only key of interest; None: all."""
    heard: list[Heard] = field(default_factory=list)
    must_hear: Callable[[Call], bool] = lambda call: True
    """Whether the change that a call has made was certain to be heard."""
    offices: Callable[[Heard], Sequence[int]] = lambda heard: ()
    """When the member that tells of an event has taken office in the partition of its key: what it had made in an
    earlier office, and nobody had acknowledged, may be lost since."""


def judge(calls: Sequence[Call], listenings: Iterable[Listening]) -> list[str]:
    """What is wrong with what was heard, in words. `calls` are those on the map that is listened to."""
    written = {call.argument: call for call in calls if call.operation in STORING}
    problems: list[str] = []
    for listening in listenings:
        found = _sound(listening, written) + _twice(listening, written) + _late(listening, written)
        found += _missed(listening, calls)
        problems += [f"listener {listening.name}: {problem}" for problem in found]
    return problems


def _sound(listening: Listening, written: dict[str | None, Call]) -> list[str]:
    """Events whose kind does not fit, or that tell of what nobody has done."""
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
                problems.append(f"{heard}: nobody wrote {name} there")
            elif write.outcome is Outcome.REFUSED:
                problems.append(f"{heard}: {name} was refused: {write}")
            elif write.start > heard.at:
                problems.append(f"{heard}: before it was written: {write}")
    return problems


def _twice(listening: Listening, written: dict[str | None, Call]) -> list[str]:
    """Values are unique: in one office each is stored once, and ends once."""
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
    """Whether a change that is heard again may have been lost after it was heard first: in between its member took
    office anew, and if it was a write, nobody had acknowledged it until then.
    """
    acknowledged_ns = write.end if write is not None and write.outcome is Outcome.DONE else again.at
    return any(
        first.at - LATE_NS <= began <= min(again.at, acknowledged_ns) for began in listening.offices(again)
    )


def _late(listening: Listening, written: dict[str | None, Call]) -> list[str]:
    """Of one key a member tells an older change after a newer one."""
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
    """Acknowledged changes that should have been heard, and were not, or otherwise."""
    heard_of: dict[str | None, list[Heard]] = defaultdict(list)
    for heard in listening.heard:
        heard_of[heard.key].append(heard)
    certain: dict[str, list[Call]] = defaultdict(list)
    claimed: set[str | None] = set()
    """Values of which somebody was told that he has removed them."""
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
            # Who is not told which value he has met cannot tell his event from those of others like him.
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
    """The value that its caller knows to have removed."""
    removed = call.expected if call.operation == "remove_if_same" else call.result
    return removed if call.operation in REMOVING and isinstance(removed, str) else None


def _tells(heard: Heard, call: Call, claimed: Container[str | None]) -> bool:
    """Whether the event may be that of the call: with the old value that its caller was told, or has compared with."""
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
        return heard.kind in WHOLE  # Who clears a map is told nothing of its keys.
    return heard.kind is EventKind.REMOVED and heard.old == removed
