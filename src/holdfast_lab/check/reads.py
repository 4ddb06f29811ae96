"""Judge of successive reads of one member: values never become older, and entry versions fit the values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast_lab.check.heard_events import REMOVING, STORING
from holdfast_lab.check.linearizability import FOREVER, Call, Outcome, changed_nothing


@dataclass(frozen=True, slots=True)
class Read:
    member: str
    key: str
    value: str | None
    start: int
    end: int
    version: int = 0
    """Version of an entry view; 0: only the value was read, or nothing was found."""

    def __str__(self) -> str:
        version = f", version {self.version}" if self.version else ""
        return f"{self.member} answered {self.value}{version} at {self.start / 1e9:.6f} to {self.end / 1e9:.6f} s"


def judge(calls: Sequence[Call], reads: Sequence[Read]) -> list[str]:
    """Reads of one member that went back in time, or saw values that were never written or were refused."""
    history: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if call.outcome is not Outcome.REFUSED:
            history[call.key].append(call)
    written = {call.argument: call for call in calls if call.operation in STORING}
    problems: list[str] = []
    for key, mine in _grouped(reads, lambda read: (read.member, read.key)):
        floors: list[tuple[int, int, Read]] = []
        for read in mine:
            write = written.get(read.value)
            if read.value is not None and (write is None or write.key != key):
                problems.append(f"key {key}: {read}, which was never written there")
                continue
            if write is not None and write.outcome is Outcome.REFUSED:
                problems.append(f"key {key}: {read}, whose write was refused: {write}")
                continue
            seen = max(
                ((start, before) for end, start, before in floors if end <= read.start),
                default=None,
                key=lambda one: one[0],
            )
            if seen is not None and _older(write, history[key], seen[0], read.end):
                problems.append(f"key {key}: {read}, and before that {seen[1]}")
            if write is not None and write.outcome is Outcome.DONE:
                # A value that was never acknowledged may have been seen and then lost.
                floors.append((read.end, write.start, read))
    return problems


def _older(write: Call | None, history: list[Call], floor: int, answered: int) -> bool:
    """Whether a read, `answered` at that time, that shows this write, or nothing, is older than a write begun
    at `floor`.
    """
    if write is not None:
        return write.outcome is Outcome.DONE and write.end < floor
    if any(call.ttl < FOREVER or call.idle < FOREVER for call in history):
        return False  # The value may have expired.
    return not any(
        call.operation in REMOVING
        and call.end >= floor
        and call.start <= answered
        and not changed_nothing(call)
        for call in history
    )


def judge_versions(reads: Sequence[Read]) -> list[str]:
    """Pairs of entry views of one key, from any members, with the same version of different values, or
    different versions of one value.
    """
    problems: list[str] = []
    for key, views in _grouped((read for read in reads if read.version), lambda read: (read.key,)):
        for before, later in pairwise(views):
            if later.version == before.version and later.value != before.value:
                problems.append(
                    f"key {key}: the version did not change with the value: {before}, then {later}"
                )
            elif later.version != before.version and later.value == before.value:
                problems.append(f"key {key}: the version changed without the value: {before}, then {later}")
    return problems


def _grouped(reads: Iterable[Read], by: Callable[[Read], tuple[str, ...]]) -> list[tuple[str, list[Read]]]:
    found: dict[tuple[str, ...], list[Read]] = defaultdict(list)
    for read in sorted(reads, key=lambda read: read.start):
        found[by(read)].append(read)
    return [(mine[0].key, mine) for mine in found.values()]
