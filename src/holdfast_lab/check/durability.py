"""Judge of durability: every acknowledged write is there, or was overwritten by a later one.

It is linear in the history, for clients that write their keys one after the other, and for histories that are
too long to search. An operation has a start, an end and an outcome: done, refused (certainly not applied), or
unknown (possibly applied, at any time after its start). Values are unique, so a final value names its write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

FOREVER = 1 << 62


@dataclass(slots=True)
class Write:
    """One write as its client saw it. `value` None is a removal. Times are of one clock for all clients."""

    key: str
    value: str | None
    start: int
    end: int = FOREVER
    outcome: str = "unknown"


def judge_final(writes: Iterable[Write], final: Mapping[str, str | None]) -> list[str]:
    """Errors in the final values. The write of the final value must not have ended before an acknowledged
    write of the same key began, and must not have been refused. An absent key counts as written before
    everything, or by any removal that allows it.
    """
    by_key: dict[str, list[Write]] = {}
    for write in writes:
        by_key.setdefault(write.key, []).append(write)
    problems: list[str] = []
    for key, history in by_key.items():
        problems += _judge_key(key, history, final.get(key))
    return problems


def _judge_key(key: str, history: list[Write], value: str | None) -> list[str]:
    acknowledged = [write for write in history if write.outcome == "ok"]
    newest_start = max((write.start for write in acknowledged), default=-1)
    makers = [write for write in history if write.value == value]
    if value is None and newest_start < 0:
        return []
    if value is not None and not makers:
        return [f"key {key}: final value {value} was never written"]
    if any(write.outcome != "refused" and _end(write) >= newest_start for write in makers):
        return []
    lost = max(acknowledged, key=lambda write: write.start) if acknowledged else makers[0]
    found = f"holds {value}" if value is not None else "is absent"
    return [
        f"key {key}: acknowledged {lost.value} (at {lost.start}..{lost.end}) is lost; the key {found}"
        + (f", written {makers[0].start}..{makers[0].end} {makers[0].outcome}" if makers else "")
    ]


def _end(write: Write) -> int:
    return FOREVER if write.outcome == "unknown" else write.end


@dataclass(slots=True)
class Read:
    key: str
    value: str | None
    start: int
    end: int


def judge_reads(writes: Iterable[Write], reads: Iterable[Read]) -> list[str]:
    """Reads of values that were never written, were refused, or were written only later."""
    made = {write.value: write for write in writes if write.value is not None}
    problems = []
    for read in reads:
        if read.value is None:
            continue
        write = made.get(read.value)
        if write is None or write.key != read.key:
            problems.append(f"key {read.key}: read {read.value}, which was never written there")
        elif write.outcome == "refused":
            problems.append(f"key {read.key}: read {read.value}, whose write was refused")
        elif write.start > read.end:
            problems.append(f"key {read.key}: read {read.value} before it was written")
    return problems
