"""Between what members are asked and what the judges are told: a request is one call, or several, on one key each.

Values are unique names. On the wire a name may be followed by padding, whose length it tells itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from holdfast.core.model import operations as core
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import Op, Request, Status, Value
from holdfast_lab.check.linearizability import FOREVER, STILL, UNTOLD, Call, Outcome, Untold, changed_nothing
from holdfast_lab.check.times import WRITES
from holdfast_lab.sim.clients.client import REPEATED

NAMES: dict[Op, str] = {
    Op.GET: "get",
    Op.ENTRY_VIEW: "get",
    Op.GET_ALL: "get",
    Op.CONTAINS_KEY: "contains",
    Op.SET: "set",
    Op.TRY_PUT: "set",
    Op.PUT_ALL: "set",
    Op.PUT: "put",
    Op.PUT_IF_ABSENT: "put_if_absent",
    Op.REPLACE: "replace",
    Op.REPLACE_IF_SAME: "replace_if_same",
    Op.REMOVE: "remove",
    Op.DELETE: "delete",
    Op.TRY_REMOVE: "delete",
    Op.EVICT: "delete",
    Op.REMOVE_IF_SAME: "remove_if_same",
    Op.SET_TTL: "set_ttl",
    Op.CLEAR: "remove",
    Op.EVICT_ALL: "remove",
    Op.DESTROY: "remove",
    Op.ENTRIES: "get",
}
"""What the judge calls an operation."""
FILL = b"."
PROBE = "probe"
"""Keys that begin with this are written to see whether anything can be written: no call of a client is noted."""


def wire_key(key: str) -> bytes:
    """The key as a client would send it: a serialised string."""
    text = key.encode()
    return b"\xff\xff\xff\xf5" + len(text).to_bytes(4, "big") + text


def key_of(raw: bytes) -> str:
    """The key that was sent as these bytes."""
    return raw[8:].decode()


def wire_value(name: str) -> bytes:
    """The value of this name: with so many bytes as the name says behind `~`."""
    _, _, size = name.partition("~")
    return name.encode() if not size else name.encode() + b" " + FILL * int(size)


def name_of(value: Value) -> str | None:
    """The name of a value that was answered; None: absent."""
    if isinstance(value, list):
        value = value[0]  # An entry view.
    return value.split(b" ", 1)[0].decode() if isinstance(value, bytes) else None


SHOWING = frozenset({"get", "put", "put_if_absent", "replace", "remove"})
"""Operations whose answers name the value that was there."""
WHOLE = core.CLEARING
"""Whoever carries these out on several members asks again where a share was not answered."""


@dataclass(slots=True)
class Knowledge:
    """What the clients of a run know together: every call, and which writes nobody has seen yet."""

    calls: list[Call] = field(default_factory=list)
    unseen: dict[str, None] = field(default_factory=dict)
    """Keys that may hold what no answer has shown, in the order in which they came to."""
    believed: dict[str, str | None] = field(default_factory=dict)
    """The value of each key as far as answers tell; None: absent."""
    locks: bool = False
    """Whether transactions lock entries: who tries to change one may be told that nothing was done."""

    def begun(self, calls: Iterable[Call]) -> None:
        """These are about to be sent."""
        for call in calls:
            self.calls.append(call)
            if call.operation not in STILL:
                self.unseen[call.key] = None

    def answered(self, call: Call) -> None:
        """This one was done: what its key holds now."""
        value = _after(call)
        if value is not UNTOLD:
            assert not isinstance(value, bool)
            self.believed[call.key] = value
        quiet = call.operation in STILL or changed_nothing(call)
        if quiet and call.operation in SHOWING:
            self.unseen.pop(call.key, None)


def _after(call: Call) -> str | bool | None | Untold:
    """The value that a call leaves, if its answer tells."""
    match call.operation:
        case "get":
            return call.result
        case "set" | "put":
            return call.argument
        case "put_if_absent":
            return call.argument if call.result is None else call.result
        case "replace" | "replace_if_same" if call.result:
            return call.argument
        case "remove" | "delete" | "replace":
            return None
        case "remove_if_same" if call.result:
            return None
        case _:
            return UNTOLD


@dataclass(slots=True)
class Asked:
    """A request on its way, with the calls that it is."""

    request: Request
    calls: list[Call]
    again: list[Call]
    """What may be done in its name once more until it is answered."""
    knowledge: Knowledge

    def told(self, outcome: core.Outcome, now_ns: int) -> None:
        """Note what was answered, once."""
        done = outcome.status is Status.OK and not self._found_locked(outcome)
        if outcome.status is Status.UNKNOWN or (not done and self.request.op in WHOLE):
            return
        for call in self.again:
            call.end = now_ns
        for call in self.calls:
            call.end, call.outcome = now_ns, Outcome.DONE if done else Outcome.REFUSED
        if done:
            self._results(outcome.value)
            for call in self.calls:
                if outcome.detail.startswith(REPEATED) and changed_nothing(call):
                    # What an earlier try has written may have been read before it was lost with its primary.
                    call.outcome, call.end, call.result = Outcome.UNKNOWN, FOREVER, None
                else:
                    self.knowledge.answered(call)

    def _found_locked(self, outcome: core.Outcome) -> bool:
        """Whether it was a try, and nothing was done since a transaction had locked the entry, or may have had."""
        tried = self.request.op in (Op.TRY_PUT, Op.TRY_REMOVE)
        return tried and self.knowledge.locks and outcome.value is False

    def _results(self, value: Value) -> None:
        op = self.request.op
        if op in (Op.GET_ALL, Op.ENTRIES):
            assert isinstance(value, list)
            found = dict(zip(value[::2], value[1::2], strict=True))
            for call in self.calls:
                call.result = name_of(found.get(wire_key(call.key)))
        elif op in WHOLE:
            for call in self.calls:
                call.result = UNTOLD
        elif op not in (Op.PUT_ALL, Op.SET, Op.TRY_PUT):
            self.calls[0].result = value if isinstance(value, bool) else name_of(value)


def asked(
    knowledge: Knowledge,
    request: Request,
    keys: Sequence[str],
    now_ns: int,
    client: str,
    names: Sequence[str] = (),
    expected: str | None = None,
) -> Asked:
    """Note a request that is about to be sent. `names` are the values that it writes, one for each of the keys."""
    operation = NAMES[request.op]
    timed = operation in WRITES or operation == "set_ttl"
    ttl, idle = (
        span * MILLISECOND if span > 0 and timed else FOREVER
        for span in (request.ttl_ms, request.max_idle_ms)
    )
    calls = [
        Call(
            operation,
            key,
            now_ns,
            argument=names[number] if names else None,
            expected=expected,
            client=client,
            ttl=ttl,
            idle=idle,
        )
        for number, key in enumerate(keys)
    ]
    again = [replace(call) for call in calls] if request.op in WHOLE else []
    knowledge.begun(calls + again)
    return Asked(request, calls, again, knowledge)
