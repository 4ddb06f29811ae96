"""Judge of change streams: every acknowledged change is delivered once, correctly, and nothing else is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from holdfast_lab.check.heard_events import REMOVING, STORING
from holdfast_lab.check.linearizability import Call, Outcome, changed_nothing


@dataclass(frozen=True, slots=True)
class Told:
    key: str
    value: str | None
    """None: removed or expired."""
    old: str | None
    update: tuple[int, int, int]
    """Partition, term and counter."""

    def __str__(self) -> str:
        partition, term, counter = self.update
        return f"{self.key}: {self.old} -> {self.value} (update {counter} of term {term} in partition {partition})"


def judge(
    calls: Sequence[Call], told: Iterable[Told], known_from: Callable[[str], int] = lambda key: 0
) -> list[str]:
    """Errors of a stream that was read to its end. `calls`: all calls on its map. `known_from`: from when on
    a key's changes were read without a gap, because older ones are gone.
    """
    written = {call.argument: call for call in calls if call.operation in STORING}
    stored: dict[str, list[Told]] = defaultdict(list)
    ended: dict[str, list[Told]] = defaultdict(list)
    for one in told:
        if one.value is not None:
            stored[one.value].append(one)
        if one.old is not None:
            ended[one.old].append(one)
    problems = _invented(written, stored) + _invented(written, ended)
    for what, found in (("stored", stored), ("ended", ended)):
        for name, changes in found.items():
            if len(changes) > 1:
                problems.append(f"{name} is {what} twice: {changes[0]} and {changes[1]}")
    for call in calls:
        if call.outcome is Outcome.DONE and not changed_nothing(call) and call.start >= known_from(call.key):
            problems += _missing(call, stored, ended)
    return problems


def _invented(written: dict[str | None, Call], found: dict[str, list[Told]]) -> list[str]:
    problems: list[str] = []
    for name, changes in found.items():
        write = written.get(name)
        if write is None or write.key != changes[0].key:
            problems.append(f"{changes[0]}: {name} was never written there")
        elif write.outcome is Outcome.REFUSED:
            problems.append(f"{changes[0]}: {name} was refused: {write}")
    return problems


def _missing(call: Call, stored: dict[str, list[Told]], ended: dict[str, list[Told]]) -> list[str]:
    """Whether an acknowledged change is delivered, with the old value that its caller knows."""
    if call.operation in STORING and call.argument is not None:
        changes = stored.get(call.argument, [])
        if not changes:
            return [f"{call}: is not told"]
        old = call.expected if call.operation == "replace_if_same" else call.result
        known = call.operation != "set" and (old is None or isinstance(old, str))
        if known and changes[0].old != old:
            return [f"{call}: is reported with another old value: {changes[0]}"]
    if call.operation in REMOVING:
        removed = call.expected if call.operation == "remove_if_same" else call.result
        if isinstance(removed, str) and not any(change.value is None for change in ended.get(removed, [])):
            return [f"{call}: is not told"]
    return []
