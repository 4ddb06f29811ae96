"""What one member answers to reads, one after the other: never older values; and versions of entries that fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast_lab.check.heard_events import REMOVING, STORING
from holdfast_lab.check.linearizability import FOREVER, Call, Outcome, changed_nothing


@dataclass(frozen=True, slots=True)
class Read:
    """One answered read."""

    member: str
    """The life of the member that was asked."""
    key: str
    value: str | None
    start: int
    end: int
    version: int = 0
    """The version in an entry view; 0: the read was of the value alone, or found nothing."""

    def __str__(self) -> str:
        version = f", version {self.version}" if self.version else ""
        return f"{self.member} answered {self.value}{version} at {self.start / 1e9:.6f} to {self.end / 1e9:.6f} s"


def judge(calls: Sequence[Call], reads: Sequence[Read]) -> list[str]:
    """Reads of one member that went back in time, or that saw what nobody wrote or what was refused, in words."""
    history: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if call.outcome is not Outcome.REFUSED:
            history[call.key].append(call)
    written = {call.argument: call for call in calls if call.operation in STORING}
    problems: list[str] = []
    for key, mine in _grouped(reads, lambda read: (read.member, read.key)):
        floors: list[tuple[int, int, Read]] = []
        """End of a read, when the write that it saw began, and it itself."""
        for read in mine:
            write = written.get(read.value)
            if read.value is not None and (write is None or write.key != key):
                problems.append(f"key {key}: {read}, which nobody wrote there")
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
                # What was never acknowledged may have been seen, and be lost.
                floors.append((read.end, write.start, read))
    return problems


def _older(write: Call | None, history: list[Call], floor: int, answered: int) -> bool:
    """Whether a read that shows this write, or nothing, and was `answered` then, is of a time before what had begun at
    `floor`.
    """
    if write is not None:
        return write.outcome is Outcome.DONE and write.end < floor
    if any(call.ttl < FOREVER or call.idle < FOREVER for call in history):
        return False  # It may have ended.
    return not any(
        call.operation in REMOVING
        and call.end >= floor
        and call.start <= answered
        and not changed_nothing(call)
        for call in history
    )


def judge_versions(reads: Sequence[Read]) -> list[str]:
    """Pairs of entry views of one key in which the version does not tell whether the value is the same, whichever
    members answered: two values with one version, or two versions of one value.
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
    """In the order of their starts, by whatever they have in common: the key, and perhaps more."""
    found: dict[tuple[str, ...], list[Read]] = defaultdict(list)
    for read in sorted(reads, key=lambda read: read.start):
        found[by(read)].append(read)
    return [(mine[0].key, mine) for mine in found.values()]
