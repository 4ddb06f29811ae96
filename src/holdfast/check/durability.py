"""The durability ledger: every acknowledged write is there, or was overwritten by a later one, or its time is over.
Linear in the history.

A client's operation on a key has a start, an end and an outcome: done, refused (certainly not applied), or
unknown (perhaps applied, at any time after its start). Values are unique, so the final value names the write
that made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

FOREVER = 1 << 62
OUTLIVES = 15_000_000_000
"""How long after its time to live an entry may still be found, however often its members have started again. Each
change of its primary lengthens the time a little, by what the record or the chunk was under way: as long as it may take
until a backup that nobody reaches is left out."""


@dataclass(slots=True)
class Write:
    """One write as its client saw it. `value` None is a removal. Times are of one clock for all clients."""

    key: str
    value: str | None
    start: int
    end: int = FOREVER
    outcome: str = "unknown"
    """`ok`, `refused` or `unknown`."""
    ttl: int = FOREVER
    """How long after it was applied the value is to be there."""


@dataclass(slots=True)
class Touch:
    """A new time to live for whatever value the key has, as its client saw it."""

    key: str
    ttl: int
    start: int
    end: int = FOREVER
    outcome: str = "unknown"


def judge_final(
    writes: Iterable[Write],
    final: Mapping[str, str | None],
    touches: Iterable[Touch] = (),
    now: int = 0,
    *,
    early: int = 0,
    late: int = 0,
) -> list[str]:
    """What is wrong with the final values, read at `now`, in words; empty when nothing acknowledged was lost. By clocks
    that err times may be over so much `early`, and so much `late`.

    The write behind the final value must not have ended before an acknowledged write of the same key began,
    and must not have been refused. An absent key counts as written before everything, or by any removal that
    allows it, or as ended: by a write, or a new time to live, that could be the last one and whose time is over.
    And a value whose time has been over for long must be gone.
    """
    by_key: dict[str, list[Write]] = {}
    for write in writes:
        by_key.setdefault(write.key, []).append(write)
    touched: dict[str, list[Touch]] = {}
    for touch in touches:
        if touch.outcome != "refused":
            touched.setdefault(touch.key, []).append(touch)
    problems: list[str] = []
    for key, history in by_key.items():
        problems += _judge_key(key, history, final.get(key), touched.get(key, []), now, early, late)
    return problems


def _judge_key(
    key: str, history: list[Write], value: str | None, touched: list[Touch], now: int, early: int, late: int
) -> list[str]:
    acknowledged = [write for write in history if write.outcome == "ok"]
    newest_start = max((write.start for write in acknowledged), default=-1)
    makers = [write for write in history if write.value == value]
    if value is None and newest_start < 0:
        return []
    if value is not None and not makers:
        return [f"key {key}: final value {value} was written by nobody"]
    allowed = [write for write in makers if write.outcome != "refused" and _end(write) >= newest_start]
    if not allowed and not (value is None and _may_be_over(history, touched, newest_start, now + early)):
        lost = max(acknowledged, key=lambda write: write.start) if acknowledged else makers[0]
        found = f"holds {value}" if value is not None else "is absent"
        return [
            f"key {key}: acknowledged {lost.value} (at {lost.start}..{lost.end}) is lost; the key {found}"
            + (f", written {makers[0].start}..{makers[0].end} {makers[0].outcome}" if makers else "")
        ]
    over = _over(makers[0], touched) if value is not None else FOREVER
    if over + OUTLIVES + late < now:
        return [f"key {key}: {value} should have ended at {over}, and is there at {now}"]
    return []


def _over(write: Write, touched: Iterable[Touch]) -> int:
    """When the value of this write has ended for sure; FOREVER when nobody can say."""
    if write.ttl >= FOREVER or write.outcome != "ok":
        return FOREVER
    later = [_end(touch) + touch.ttl for touch in touched if _end(touch) >= write.start]
    return min(FOREVER, max([write.end + write.ttl, *later]))


def _may_be_over(history: list[Write], touched: list[Touch], newest_start: int, now: int) -> bool:
    """Whether the last of what happened to the key may have been something that let it end before now."""
    last = [write for write in history if write.value is not None and write.outcome != "refused"]
    ending: list[Write | Touch] = [*last, *touched]
    return any(
        _end(each) >= newest_start and each.ttl < FOREVER and each.start + each.ttl <= now for each in ending
    )


def _end(operation: Write | Touch) -> int:
    return FOREVER if operation.outcome == "unknown" else operation.end


@dataclass(slots=True)
class Read:
    """One answered read."""

    key: str
    value: str | None
    start: int
    end: int


def judge_reads(
    writes: Iterable[Write], reads: Iterable[Read], touches: Iterable[Touch] = (), *, late: int = 0
) -> list[str]:
    """Reads that saw a value which nobody wrote, which was refused, which was written only later, or whose time was
    over long before.
    """
    touched: dict[str, list[Touch]] = {}
    for touch in touches:
        if touch.outcome != "refused":
            touched.setdefault(touch.key, []).append(touch)
    made = {write.value: write for write in writes if write.value is not None}
    problems = []
    for read in reads:
        if read.value is None:
            continue
        write = made.get(read.value)
        if write is None or write.key != read.key:
            problems.append(f"key {read.key}: read {read.value}, which nobody wrote there")
        elif write.outcome == "refused":
            problems.append(f"key {read.key}: read {read.value}, whose write was refused")
        elif write.start > read.end:
            problems.append(f"key {read.key}: read {read.value} before it was written")
        elif (over := _over(write, touched.get(read.key, []))) + OUTLIVES + late < read.start:
            problems.append(
                f"key {read.key}: read {read.value} at {read.start}; it should have ended at {over}"
            )
    return problems
