"""Judge of time: an entry is there until its time is over, and gone after it.

For the register that clients see, an expiry is a removal that no client asked for. `endings` lists when each value may
end, as calls for the judge of linearizability; at no other time may it disappear. `outlived`: a value that is seen long
after its time should be gone. An entry view also shows the remaining time, so `misdated` need not wait for the end.

Restarts get no allowance: an entry of 60 s that was written at 10 s ends at 70 s, however often its members restarted.
Members may be late by `OUTLIVES` in all, so a view at 50 s that still shows 40 s is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast_lab.check.linearizability import FOREVER, Call, Outcome

OUTLIVES = 15_000_000_000
"""How long after its time an entry may still be found, however often its members restarted. Each change of primary adds
the travel time of the record or chunk: up to the time until an unreachable backup is removed.
"""
ROUNDED = 10_000_000
"""Entry views, records and chunks count whole milliseconds: the sum of a few roundings."""
WRITES = frozenset({"set", "put", "put_if_absent", "replace", "replace_if_same"})


@dataclass(frozen=True, slots=True)
class Clocks:
    fastest: float = 1.0
    """Seconds that the fastest clock counts in one second."""
    slowest: float = 1.0
    early_ns: int = 0
    """How much earlier a time may end because a clock jumped ahead."""
    late_ns: int = 0
    """How much later, because a clock stood still."""
    settled_ns: int = 0
    """When a primary changed last: each new one treats all entries as just used."""

    def least(self, span: int) -> int:
        return max(0, int((span - self.early_ns) / self.fastest))

    def most(self, span: int) -> int:
        return int(span / self.slowest) + self.late_ns + OUTLIVES


EXACT = Clocks()


@dataclass(frozen=True, slots=True)
class Remaining:
    call: Call
    left: int | None
    """Nanoseconds of the answering member's clock, less than `ROUNDED` too few; None: no end."""

    def __str__(self) -> str:
        left = "for ever" if self.left is None else f"for {self.left / 1e9:.3f} s more"
        return f"{self.call}, {left}"


@dataclass(frozen=True, slots=True)
class _Renewal:
    start: int
    end: int
    span: int
    certain: bool


def endings(calls: Iterable[Call], clocks: Clocks = EXACT) -> list[Call]:
    """When values may end, as calls of unknown outcome: a `remove_if_same` of each value with a time, for
    each span in which that time can be over.
    """
    found: list[Call] = []
    for history in _by_key(calls).values():
        for write in history:
            if not writes(write) or write.argument is None:
                continue
            for renewals in _times(write, history):
                found += _windows(write, renewals, clocks)
    return found


def outlived(calls: Iterable[Call], clocks: Clocks = EXACT) -> list[str]:
    """Reads of a value long after its time. Idle time counts from the last call on the key."""
    problems: list[str] = []
    for key, history in _by_key(calls).items():
        made = {call.argument: call for call in history if writes(call)}
        for call in history:
            write = made.get(call.result) if isinstance(call.result, str) else None
            if write is None or call.outcome is not Outcome.DONE:
                continue
            over = _over(write, history, call, clocks)
            if over < call.start:
                problems.append(f"key {key}: {call} should have ended at {over / 1e9:.6f} s, after {write}")
    return problems


def misdated(calls: Iterable[Call], seen: Iterable[Remaining], clocks: Clocks = EXACT) -> list[str]:
    """Entries whose reported end is earlier or later than their writes allow. Judges entries without a
    maximum idle time whose writes were all answered.
    """
    problems: list[str] = []
    histories = _by_key(calls)
    for one in seen:
        read = one.call
        before = [call for call in histories.get(read.key, ()) if call.start <= read.end and call is not read]
        write = next((call for call in before if writes(call) and call.argument == read.result), None)
        if write is None or write.idle < FOREVER or any(call.outcome is Outcome.UNKNOWN for call in before):
            continue
        lives, _ = _times(write, before)
        latest = max(FOREVER if life.span >= FOREVER else life.end + clocks.most(life.span) for life in lives)
        earliest = min(life.start + clocks.least(life.span) for life in lives)
        soonest = FOREVER if one.left is None else read.start + int(one.left / clocks.fastest)
        last = FOREVER if one.left is None else read.end + int((one.left + ROUNDED) / clocks.slowest)
        if soonest > latest:
            problems.append(f"key {read.key}: {one}: should end by {latest / 1e9:.6f} s, after {write}")
        if last < earliest:
            problems.append(
                f"key {read.key}: {one}: should not end before {earliest / 1e9:.6f} s, after {write}"
            )
    return problems


def writes(call: Call) -> bool:
    """Whether the call stored its value, or may have."""
    if call.operation not in WRITES or call.outcome is Outcome.REFUSED:
        return False
    if call.outcome is Outcome.UNKNOWN or call.operation in ("set", "put"):
        return True
    return call.result is None if call.operation == "put_if_absent" else bool(call.result)


def _by_key(calls: Iterable[Call]) -> dict[str, list[Call]]:
    by_key: dict[str, list[Call]] = defaultdict(list)
    timed: set[str] = set()
    for call in calls:
        by_key[call.key].append(call)
        if call.ttl < FOREVER or call.idle < FOREVER:
            timed.add(call.key)
    return {key: history for key, history in by_key.items() if key in timed}


def _times(write: Call, history: list[Call]) -> tuple[list[_Renewal], list[_Renewal]]:
    lives = [_renewal(write, write.ttl)]
    uses = [_renewal(write, write.idle)]
    for call in history:
        if call is write or call.end < write.start:
            continue
        if call.operation == "set_ttl" and call.result is not False:
            lives.append(_renewal(call, call.ttl))
        if call.result == write.argument and call.outcome is Outcome.DONE:
            uses.append(_renewal(call, write.idle))
    return lives, uses if write.idle < FOREVER else []


def _renewal(call: Call, span: int) -> _Renewal:
    done = call.outcome is Outcome.DONE
    return _Renewal(call.start, call.end if done else FOREVER, span, done)


def _windows(write: Call, renewals: list[_Renewal], clocks: Clocks) -> list[Call]:
    """Spans in which one of these times can be over: each until the next renewal has certainly begun."""
    found: list[Call] = []
    sure = [one for one in renewals[1:] if one.certain and one.start >= renewals[0].end] if renewals else []
    for renewal in renewals:
        if renewal.span >= FOREVER:
            continue
        opens = renewal.start + clocks.least(renewal.span)
        closes = min((one.end for one in sure if one.start > renewal.end), default=FOREVER)
        if opens < closes:
            found.append(
                Call("remove_if_same", write.key, opens, closes, expected=write.argument, client="time")
            )
    return found


def _over(write: Call, history: list[Call], seen: Call, clocks: Clocks) -> int:
    """When the value had certainly ended for the reader; FOREVER if unknown."""
    before = [call for call in history if call is not seen and call.start <= seen.start]
    if any(call.outcome is Outcome.UNKNOWN for call in before):
        return FOREVER
    over = FOREVER
    lives, _ = _times(write, before)
    if write.ttl < FOREVER or len(lives) > 1:
        over = max(FOREVER if one.span >= FOREVER else one.end + clocks.most(one.span) for one in lives)
    if write.idle < FOREVER:
        used = max([clocks.settled_ns, *(call.end for call in before)])
        over = min(over, used + clocks.most(write.idle))
    return over
