"""The judge of time: an entry is there until its time is over, and gone after it.

The first half is a matter of the register that clients see: an entry that ends is a removal that nobody has asked for.
`endings` says when each value may end, as calls for the judge of linearizability: at no other time may it disappear.
The second half is `outlived`: who sees a value long after its time sees what should be gone. An entry view also says
how long an entry still has, so `misdated` needs not wait for the end.

Restarts have no allowance. An entry of 60 s that was written at 10 s ends at 70 s, whether its members started again
once or ten times. Members may be late by `OUTLIVES` in all, so a view at 50 s that still gives it 40 s is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast_lab.check.linearizability import FOREVER, Call, Outcome

OUTLIVES = 15_000_000_000
"""How long after its time to live an entry may still be found, however often its members have started again. Each
change of its primary lengthens the time a little, by what the record or the chunk was under way: as long as it may take
until a backup that nobody reaches is left out."""
ROUNDED = 10_000_000
"""An entry view counts whole milliseconds, and so does each record or chunk that hands an entry on to another member: a
few of them."""
WRITES = frozenset({"set", "put", "put_if_absent", "replace", "replace_if_same"})


@dataclass(frozen=True, slots=True)
class Clocks:
    """What the clocks of the members were like."""

    fastest: float = 1.0
    """How many seconds the fastest of them counts in one."""
    slowest: float = 1.0
    early_ns: int = 0
    """How much sooner a time may be over because a clock jumped ahead, or a calendar was set."""
    late_ns: int = 0
    """How much later, because a clock stood still."""
    settled_ns: int = 0
    """Since when no primary has changed: each new one takes all entries for just used."""

    def least(self, span: int) -> int:
        """How long a time of so many nanoseconds takes at the least."""
        return max(0, int((span - self.early_ns) / self.fastest))

    def most(self, span: int) -> int:
        """And at the most."""
        return int(span / self.slowest) + self.late_ns + OUTLIVES


EXACT = Clocks()


@dataclass(frozen=True, slots=True)
class Remaining:
    """How long an entry still has, as a read of it was told."""

    call: Call
    """The read, with the value as its result."""
    left: int | None
    """Nanoseconds of the answering member's clock, less than `ROUNDED` too few; None: it never ends."""

    def __str__(self) -> str:
        left = "for ever" if self.left is None else f"for {self.left / 1e9:.3f} s more"
        return f"{self.call}, {left}"


@dataclass(frozen=True, slots=True)
class _Renewal:
    """Something that gave a value its time, or may have done so."""

    start: int
    end: int
    span: int
    certain: bool


def endings(calls: Iterable[Call], clocks: Clocks = EXACT) -> list[Call]:
    """When values may end, as calls of unknown outcome: `remove_if_same` of each value that has a time, within each
    span in which that time can be over.
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
    """Who saw a value long after its time, in words. A time without use counts from the last call on the key."""
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
    """Entries that end earlier or later, as a read of them was told, than their writes allow. Entries without a maximum
    idle time are judged, whose writes were all answered.
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
    """Whether the call stores its value, or may have done so."""
    if call.operation not in WRITES or call.outcome is Outcome.REFUSED:
        return False
    if call.outcome is Outcome.UNKNOWN or call.operation in ("set", "put"):
        return True
    return call.result is None if call.operation == "put_if_absent" else bool(call.result)


def _by_key(calls: Iterable[Call]) -> dict[str, list[Call]]:
    """The calls on each key some of whose values have a time."""
    by_key: dict[str, list[Call]] = defaultdict(list)
    timed: set[str] = set()
    for call in calls:
        by_key[call.key].append(call)
        if call.ttl < FOREVER or call.idle < FOREVER:
            timed.add(call.key)
    return {key: history for key, history in by_key.items() if key in timed}


def _times(write: Call, history: list[Call]) -> tuple[list[_Renewal], list[_Renewal]]:
    """What gave the value a time to live, and what used it."""
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
    """The spans in which one of these times can be over: each until the next one has begun for certain."""
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
    """When the value had ended for sure, for who saw it; FOREVER when nobody can say."""
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
