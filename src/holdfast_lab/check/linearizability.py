"""Judge of linearizability: all clients could have used one register for each key (Wing and Gong, with Lowe's memory).

A *call* is one operation on one key as its client saw it. A history is linearizable if each answered call takes effect
at one moment between its start and its end, each call of unknown outcome at one moment after its start or never, and
every answer is the one that the operation gives at its moment.

The search goes through the history in the order of time and keeps every possible *configuration*: the value of the key,
and which calls in progress have taken effect. When a call ends, only configurations in which it has taken effect, with
this answer, remain. If none does, the call is reported.

Example: set(a) is answered at 1 s. set(b) runs from 2 s to 4 s, and at 3 s a read starts. Two values are possible: a
(set(b) is not applied) and b. If the read returns b and a second read, started after it ended, returns a, no
configuration is left: the second read is reported.

A call of unknown outcome stays in progress until its end, if it has one, or for ever, so configurations could multiply
exponentially. Three rules keep them few:

- Of two configurations with the same value and the same answered calls, only the one that has used fewer unknown calls
  is kept: it can do all that the other can.
- Indistinguishable calls (two removals with the same answer; two writes of values that no answer names) are used in the
  order of their ends: if they can take effect in another order, they can in this one.
- A call whose answer says that it changed nothing takes effect as soon as the value allows this answer: waiting never
  helps.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum, unique
from itertools import chain

FOREVER = 1 << 62
COMPARED = 300
UNNAMED = "a value that no answer names"


@unique
class Outcome(Enum):
    DONE = "ok"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@unique
class Untold(Enum):
    """Answer of a client that does not pass on the result (`delete` in some languages)."""

    UNTOLD = "not told"


UNTOLD = Untold.UNTOLD


@dataclass(slots=True)
class Call:
    """One operation as its client saw it. Times are in nanoseconds of one clock for all clients."""

    operation: str
    key: str
    start: int
    end: int = FOREVER
    """When it was answered. With unknown outcome: until when it takes effect, if ever."""
    outcome: Outcome = Outcome.UNKNOWN
    argument: str | None = None
    expected: str | None = None
    result: str | bool | Untold | None = None
    """Only valid if `outcome` is `DONE` and the operation has one."""
    client: str = ""
    ttl: int = FOREVER
    """Longest life of the value after this call, unless another call changes it."""
    idle: int = FOREVER
    """Longest life of the value after its last use."""

    def __str__(self) -> str:
        words = [self.operation, self.key]
        if self.expected is not None:
            words.append(f"{self.expected} ->")
        if self.argument is not None:
            words.append(self.argument)
        end = f"{self.end / 1e9:.6f}" if self.end < FOREVER else "never answered"
        answer = f"answered {self.result!r}" if self.outcome is Outcome.DONE else self.outcome.value
        return f"{' '.join(words)} by {self.client or '?'}, {self.start / 1e9:.6f} to {end} s: {answer}"


Value = str | None
Step = tuple[Value, str | bool | None]


def _replace_if_same(value: Value, call: Call) -> Step:
    same = value is not None and value == call.expected
    return (call.argument, True) if same else (value, False)


def _remove_if_same(value: Value, call: Call) -> Step:
    same = value is not None and value == call.expected
    return (None, True) if same else (value, False)


OPERATIONS: dict[str, Callable[[Value, Call], Step]] = {
    "get": lambda value, call: (value, value),
    "contains": lambda value, call: (value, value is not None),
    "set": lambda value, call: (call.argument, None),
    "put": lambda value, call: (call.argument, value),
    "put_if_absent": lambda value, call: (call.argument if value is None else value, value),
    "replace": lambda value, call: (None if value is None else call.argument, value),
    "replace_if_same": _replace_if_same,
    "remove": lambda value, call: (None, value),
    "delete": lambda value, call: (None, value is not None),
    "remove_if_same": _remove_if_same,
    "set_ttl": lambda value, call: (value, value is not None),
}

SILENT = frozenset({"set"})
READS = frozenset({"get", "contains"})
STILL = READS | {"set_ttl"}


def changed_nothing(call: Call) -> bool:
    """Whether the answer says that the operation had nothing to do."""
    if call.outcome is not Outcome.DONE or call.operation in SILENT | READS or call.operation == "put":
        return False
    if call.operation == "put_if_absent":
        return call.result is not None
    return not call.result


@dataclass(slots=True, frozen=True)
class Broken:
    key: str
    call: Call
    """The first call, by its end, without a possible configuration."""
    possible: tuple[Value, ...]

    def __str__(self) -> str:
        values = ", ".join("absent" if value is None else value for value in self.possible)
        return f"key {self.key}: {self.call}; possible before: {values}"


def judge(
    calls: Iterable[Call], *, quiet: bool = True, reads: bool = True, most: int = 100_000
) -> list[Broken]:
    """Keys whose histories are not linearizable. Calls that changed something are always checked; with
    `quiet` also those whose answer says that they changed nothing; with `reads` also reads. Raises
    RuntimeError if a key needs more than `most` configurations at a time, or more than `COMPARED` comparisons
    for each of them: then nothing is known about it.
    """
    by_key: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if call.outcome is Outcome.REFUSED or (call.operation in STILL and call.outcome is Outcome.UNKNOWN):
            continue
        if (call.operation in READS and not reads) or (not quiet and changed_nothing(call)):
            continue
        by_key[call.key].append(call)
    found = (_Search(history, most).run() for _, history in sorted(by_key.items()))
    return [broken for broken in found if broken is not None]


Kind = tuple[str, str | None, str | None, str | bool | Untold | None]
"""Operation, value compared with, value written (`UNNAMED` if no answer names it), answer."""


_NOTHING: dict[Kind, list[tuple[int, Call]]] = {}


def _names(call: Call) -> list[str]:
    return [name for name in (call.result, call.expected) if isinstance(name, str)]


class _Search:
    def __init__(self, history: list[Call], most: int) -> None:
        self._calls = history
        self._most = most
        self._answered: dict[Kind, list[tuple[int, Call]]] = {}
        """Answered calls in progress, grouped if indistinguishable, in the order of their ends."""
        self._quiet: dict[int, Call] = {}
        """Answered calls in progress whose answer says that nothing was changed."""
        self._unknown: dict[Kind, list[tuple[int, Call]]] = {}
        """Calls in progress that are never answered, grouped if indistinguishable, in the order of their
        starts.
        """
        self._comparing: dict[str | None, dict[Kind, list[tuple[int, Call]]]] = {}
        """Unanswered calls that compare, by the value they look for."""
        self._named = Counter(name for call in history for name in _names(call))
        self._configurations: dict[tuple[Value, int], list[int]] = {(None, 0): [0]}
        """By value and used answered calls: the minimal sets of used unknown calls, as bits."""

    def run(self) -> Broken | None:
        events: list[tuple[int, int, int]] = []
        for number, call in enumerate(self._calls):
            events.append((call.start, 0, number))
            if call.end < FOREVER:
                events.append((call.end, 1, number))
        free: list[int] = []
        bits: dict[int, int] = {}
        width = 0
        for _, ends, number in sorted(events):
            call = self._calls[number]
            if not ends:
                if call.end < FOREVER and free:
                    bit = free.pop()
                else:
                    bit, width = 1 << width, width + 1
                bits[number] = bit
                self._begin(bit, call)
                continue
            bit = bits.pop(number)
            if call.outcome is Outcome.UNKNOWN:
                self._end_unknown(bit)
                free.append(bit)
                continue
            before = tuple(dict.fromkeys(value for value, _ in self._configurations))
            self._configurations = self._with(bit)
            if self._quiet.pop(bit, None) is None:
                for alike in self._answered.values():
                    alike[:] = [one for one in alike if one[0] != bit]
            self._forget(_names(call))
            free.append(bit)
            if not self._configurations:
                return Broken(call.key, call, before)
        return None

    def _kind(self, call: Call) -> Kind:
        argument = call.argument if call.argument is None or self._named[call.argument] else UNNAMED
        if call.outcome is Outcome.DONE:
            return (call.operation, call.expected, argument, call.result)
        operation = {"delete": "remove", "put": "set"}.get(call.operation, call.operation)
        compares = operation in ("replace_if_same", "remove_if_same")
        removes = operation in ("remove", "remove_if_same")
        return (operation, call.expected if compares else None, None if removes else argument, None)

    def _begin(self, bit: int, call: Call) -> None:
        if call.outcome is Outcome.DONE and (call.operation in STILL or changed_nothing(call)):
            self._quiet[bit] = call
            return
        kind = self._kind(call)
        if kind[2] == UNNAMED:
            call = replace(call, argument=UNNAMED)
        if call.outcome is Outcome.DONE:
            kinds = self._answered
        else:
            kinds = self._comparing.setdefault(call.expected, {}) if kind[1] is not None else self._unknown
        insort(kinds.setdefault(kind, []), (bit, call), key=lambda one: (one[1].end, one[1].start))

    def _forget(self, names: Iterable[str]) -> None:
        """A call that names these values has ended. Values without a name are indistinguishable from now on."""
        for name in names:
            self._named[name] -= 1
            if not self._named[name]:
                for kind in [kind for kind in self._unknown if kind[2] == name]:
                    for bit, call in self._unknown.pop(kind):
                        self._begin(bit, call)

    def _end_unknown(self, bit: int) -> None:
        """This call takes no effect after now; whether it did does not matter any more."""
        remain = self._with(bit, unknown_too=True)
        for (value, used), sets in self._configurations.items():
            for unknown in sets:
                _keep(remain, value, used, unknown & ~bit)
        self._configurations = remain
        for kinds in (self._unknown, *self._comparing.values()):
            for alike in kinds.values():
                alike[:] = [one for one in alike if one[0] != bit]

    def _with(self, bit: int, *, unknown_too: bool = False) -> dict[tuple[Value, int], list[int]]:
        """Configurations in which this call has taken effect by now, with its bit free again."""
        remain: dict[tuple[Value, int], list[int]] = {}
        seen: dict[tuple[Value, int], list[int]] = {}
        compared = 0
        fitting: dict[Value, int] = {}

        def settled(value: Value, used: int, unknown: int) -> tuple[Value, int, int]:
            if value not in fitting:
                fitting[value] = sum(
                    quiet
                    for quiet, call in self._quiet.items()
                    if OPERATIONS[call.operation](value, call) == (value, call.result)
                )
            return value, used | fitting[value], unknown

        begun = [
            settled(value, used, unknown)
            for (value, used), sets in self._configurations.items()
            for unknown in sets
        ]
        work = deque(one for one in begun if _keep(seen, *one))
        while work:
            value, used, unknown = work.popleft()  # Configurations that use little come first.
            if (unknown if unknown_too else used) & bit:
                _keep(remain, value, used if unknown_too else used & ~bit, unknown & ~bit)
                continue
            if unknown not in seen[value, used]:
                continue  # It was replaced by one that has used less.
            for step in self._steps(value, used, unknown):
                after = settled(*step)
                compared += len(seen.get(after[:2], ()))
                if _keep(seen, *after):
                    work.append(after)
            if len(seen) > self._most or compared > self._most * COMPARED:
                raise RuntimeError(
                    f"more than {self._most} configurations: too many calls under way at a time"
                )
        return remain

    def _steps(self, value: Value, used: int, unknown: int) -> Iterable[tuple[Value, int, int]]:
        for alike in self._answered.values():
            for bit, call in alike:
                if not used & bit:
                    after, answer = OPERATIONS[call.operation](value, call)
                    if call.operation in SILENT or call.result is UNTOLD or answer == call.result:
                        yield after, used | bit, unknown
                    break
        for alike in chain(self._unknown.values(), self._comparing.get(value, _NOTHING).values()):
            for bit, call in alike:
                if not unknown & bit:
                    after, _ = OPERATIONS[call.operation](value, call)
                    if after != value:
                        yield after, used, unknown | bit
                    break


def _keep(kept: dict[tuple[Value, int], list[int]], value: Value, used: int, unknown: int) -> bool:
    """Keep this configuration unless one that has used less is kept; drop those that have used more."""
    sets = kept.setdefault((value, used), [])
    if any(one & unknown == one for one in sets):
        return False
    sets[:] = [one for one in sets if one & unknown != unknown]
    sets.append(unknown)
    return True
