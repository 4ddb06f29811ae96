"""Converts requests to members into calls for the judges: one or several, each on one key.

Values are unique names. On the wire, padding may follow, whose length the name contains.
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
FILL = b"."
PROBE = "probe"
"""Prefix of keys that only test whether writes are possible; their calls are not recorded."""


def wire_key(key: str) -> bytes:
    text = key.encode()
    return b"\xff\xff\xff\xf5" + len(text).to_bytes(4, "big") + text


def key_of(raw: bytes) -> str:
    return raw[8:].decode()


def wire_value(name: str) -> bytes:
    """The value, with as many bytes of padding as the name says after `~`."""
    _, _, size = name.partition("~")
    return name.encode() if not size else name.encode() + b" " + FILL * int(size)


def name_of(value: Value) -> str | None:
    if isinstance(value, list):
        value = value[0]
    return value.split(b" ", 1)[0].decode() if isinstance(value, bytes) else None


SHOWING = frozenset({"get", "put", "put_if_absent", "replace", "remove"})
WHOLE = core.CLEARING


@dataclass(slots=True)
class Knowledge:
    calls: list[Call] = field(default_factory=list)
    unseen: dict[str, None] = field(default_factory=dict)
    believed: dict[str, str | None] = field(default_factory=dict)
    """Values according to answers; None: absent."""
    locks: bool = False
    """Whether transactions lock entries, so that a try may have no effect."""

    def begun(self, calls: Iterable[Call]) -> None:
        for call in calls:
            self.calls.append(call)
            if call.operation not in STILL:
                self.unseen[call.key] = None

    def answered(self, call: Call) -> None:
        value = _after(call)
        if value is not UNTOLD:
            assert not isinstance(value, bool)
            self.believed[call.key] = value
        quiet = call.operation in STILL or changed_nothing(call)
        if quiet and call.operation in SHOWING:
            self.unseen.pop(call.key, None)


def _after(call: Call) -> str | bool | None | Untold:
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
    request: Request
    calls: list[Call]
    again: list[Call]
    knowledge: Knowledge

    def told(self, outcome: core.Outcome, now_ns: int) -> None:
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
                    # An earlier try's value may have been read before it was lost with its primary.
                    call.outcome, call.end, call.result = Outcome.UNKNOWN, FOREVER, None
                else:
                    self.knowledge.answered(call)

    def _found_locked(self, outcome: core.Outcome) -> bool:
        """Whether a try may have failed because a transaction had locked the entry."""
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
    """Record a request about to be sent. `names`: values to write, one per key."""
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
