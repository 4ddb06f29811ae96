"""Operations on a map: their answers and updates. The state is not changed.

An expired entry counts as absent. An operation that finds one also decides to remove it (`EXPIRED`); on a backup, and
in operations on whole partitions, it is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping

from mmh3 import hash64
from msgspec.structs import replace

from holdfast.config.schema import ENDLESS_IDLE_MS
from holdfast.core.model.collections import is_multimap
from holdfast.core.model.decisions import Decision, Update
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.multimap_values import count_values, decode_values
from holdfast.core.model.operations import CLEARING, DEFAULT_TTL, EventKind, Op, Request, Value
from holdfast.core.model.processors import EntryChange, finished_run
from holdfast.core.model.records import Change
from holdfast.core.operations.conditions import CONDITIONS, takes_effect
from holdfast.core.store.map_state import MapState

NEVER = -1
Lifetimes = tuple[int, int]
"""In ms; 0: for ever."""
ENDLESS: Lifetimes = (0, 0)
EntryView = tuple[bytes, int, int, int, int]
"""Value, ttl_ms, max_idle_ms, milliseconds until it expires (-1: never), and its version (`version_of`)."""


_STORING = frozenset({Op.PUT, Op.SET, Op.TRY_PUT, Op.PUT_IF_ABSENT, Op.REPLACE, Op.REPLACE_IF_SAME})
_COMMON = frozenset({Op.GET, Op.SET, Op.PUT})
_CHANGING = frozenset({Op.REMOVE, Op.DELETE, Op.TRY_REMOVE, Op.SET_TTL, Op.EVICT, Op.REMOVE_IF_SAME})
"""Operations that need a present entry."""


class _Look:
    __slots__ = ("_now_ns", "decided", "state", "updates", "used")

    def __init__(self, state: MapState | None, now_ns: int) -> None:
        self.state = state
        self._now_ns = now_ns
        self.decided: dict[bytes, bytes | None] = {}
        self.updates: list[Update] = []
        self.used: list[bytes] = []

    def read(self, key: bytes) -> bytes | None:
        """Remove the entry if it has expired; otherwise it counts as used."""
        if key in self.decided:
            return self.decided[key]
        state = self.state
        if state is None:
            return None
        if state.expiries and (expiry := state.expiries.get(key)) is not None:
            if expiry.deadline_ns() <= self._now_ns:
                self.take_out(key, EventKind.EXPIRED)
                return None
            self.used.append(key)
        return state.entries.get(key)

    def take_out(self, key: bytes, kind: EventKind) -> None:
        self.decided[key] = None
        self.updates.append(Update(Change.REMOVE, key, b"", 0, 0, 0, kind))

    def store(self, request: Request, key: bytes, value: bytes, lifetimes: Lifetimes) -> bytes | None:
        old = self.read(key)
        self.decided[key] = value
        self.updates.append(_storing(request, key, value, old, lifetimes))
        return old

    def decision(self, answer: Value) -> Decision:
        return Decision(answer, self.updates, self.used)


def _storing(request: Request, key: bytes, value: bytes, old: bytes | None, lifetimes: Lifetimes) -> Update:
    ttl_ms = lifetimes[0] if request.ttl_ms == DEFAULT_TTL else request.ttl_ms
    max_idle_ms = lifetimes[1] if request.max_idle_ms == DEFAULT_TTL else request.max_idle_ms
    kind = EventKind.ADDED if old is None else EventKind.UPDATED
    return Update(Change.SET, key, value, ttl_ms, max_idle_ms, request.key_hash, kind)


def decide(
    state: MapState | None,
    request: Request,
    now_ns: int,
    lifetimes: Lifetimes = ENDLESS,
) -> Decision:
    """`state`: None if nothing was ever written there. `lifetimes`: the map's own."""
    op, key = request.op, request.key
    if op in _COMMON and (state is None or key not in state.expiries):
        # Nothing can have expired, and nothing counts as used.
        old = state.entries.get(key) if state is not None else None
        if op is Op.GET:
            return Decision(old)
        update = _storing(request, key, request.value, old, lifetimes)
        return Decision(old if op is Op.PUT else None, (update,))
    look = _Look(state, now_ns)
    if op in _STORING:
        return look.decision(_put(look, request, lifetimes))
    if op is Op.GET:
        return look.decision(look.read(key))
    if op is Op.CONTAINS_KEY:
        return look.decision(look.read(key) is not None)
    if op is Op.ENTRY_VIEW:
        return look.decision(_entry_view(look, request, now_ns))
    if op is Op.GET_ALL:
        return look.decision(_get_all(look, request))
    if op is Op.PUT_ALL:
        for index in range(0, len(request.items), 2):
            look.store(request, request.items[index], request.items[index + 1], lifetimes)
        return look.decision(None)
    if op in _CHANGING:
        return look.decision(_change_present(look, request))
    if op is Op.PROCESS:
        return _processed(look, request, now_ns, lifetimes)
    raise ValueError(f"{op.name} is not an operation on one key")


def _put(look: _Look, request: Request, lifetimes: Lifetimes) -> Value:
    op, key = request.op, request.key
    if op in (Op.PUT, Op.SET, Op.TRY_PUT):
        old = look.store(request, key, request.value, lifetimes)
        return old if op is Op.PUT else (True if op is Op.TRY_PUT else None)
    present = look.read(key)
    applies = takes_effect(CONDITIONS[op], present is not None, present == request.expected)
    if applies:
        look.store(request, key, request.value, lifetimes)
    return applies if op is Op.REPLACE_IF_SAME else present


def _change_present(look: _Look, request: Request) -> Value:
    op, key = request.op, request.key
    present = look.read(key)
    applies = takes_effect(CONDITIONS[op], present is not None, present == request.expected)
    if applies and op is Op.SET_TTL:
        assert look.state is not None
        look.updates.append(new_ttl(look.state, key, request.ttl_ms))
    elif applies:
        look.take_out(key, EventKind.EVICTED if op is Op.EVICT else EventKind.REMOVED)
    return present if op is Op.REMOVE else applies


EXPIRED_MEANWHILE = "the entry expired while the entry processor ran; nothing was changed"


def _processed(look: _Look, request: Request, now_ns: int, lifetimes: Lifetimes) -> Decision:
    """The result of an entry processor. An entry that stays keeps its time to live."""
    run, key = finished_run(request), request.key
    present = look.read(key)
    if (present is not None) is not run.found:
        return Decision(refused=EXPIRED_MEANWHILE)
    if run.change is EntryChange.REMOVE and present is not None:
        look.take_out(key, EventKind.REMOVED)
    elif run.change is EntryChange.STORE:
        update = _storing(request, key, run.value, present, lifetimes)
        expiry = look.state.expiries.get(key) if look.state is not None and present is not None else None
        if present is not None:
            ttl_ms = expiry.remaining_ttl_ms(now_ns) if expiry is not None else 0
            max_idle_ms = expiry.max_idle_ms if expiry is not None else 0
            word = request.key_hash or (look.state.hash_word(key) if look.state is not None else 0)
            update = replace(update, ttl_ms=ttl_ms, max_idle_ms=max_idle_ms, key_hash=word)
        look.updates.append(update)
    return look.decision(run.answer)


def new_ttl(state: MapState, key: bytes, ttl_ms: int) -> Update:
    """A new time to live for a present entry, which keeps its maximum idle time."""
    expiry = state.expiries.get(key)
    max_idle_ms = expiry.max_idle_ms if expiry is not None else 0
    ttl_ms = 0 if ttl_ms == DEFAULT_TTL else ttl_ms
    return Update(Change.EXPIRY, key, b"", ttl_ms, max_idle_ms, kind=EventKind.UPDATED)


def _entry_view(look: _Look, request: Request, now_ns: int) -> Value:
    """As `EntryView`, in a list."""
    value = look.read(request.key)
    if value is None or look.state is None:
        return None
    # Reading counts as a use, so the whole idle time is left.
    return [*view_of(look.state, request.key, value, now_ns, used=True)]


def view_of(state: MapState, key: bytes, value: bytes, now_ns: int, *, used: bool) -> EntryView:
    expiry = state.expiries.get(key)
    if expiry is None or (expiry.max_idle_ms == ENDLESS_IDLE_MS and not expiry.ttl_ms):
        return value, 0, 0, NEVER, version_of(value)
    if used:
        expiry = expiry.copy()
        expiry.accessed_ns = now_ns
    left_ms = max(0, expiry.deadline_ns() - now_ns) // MILLISECOND
    max_idle_ms = expiry.max_idle_ms if expiry.max_idle_ms != ENDLESS_IDLE_MS else 0
    return value, expiry.ttl_ms, max_idle_ms, left_ms, version_of(value)


def version_of(value: bytes) -> int:
    """From 0 to 2^63 - 1; changes when the value of an entry changes.

    A hash of the value, so it needs no memory and is the same at all replicas. It is not a count: a value that is
    stored again keeps its version, as with `replace(key, old, new)`.
    """
    return hash64(value, signed=False)[0] >> 1


def _get_all(look: _Look, request: Request) -> Value:
    answer: list[None | int | bytes] = []
    for key in request.items:
        value = look.read(key)
        if value is not None:
            answer += (key, value)
    return answer


# -- reads from a backup

FROM_BACKUPS = frozenset({Op.GET, Op.CONTAINS_KEY, Op.ENTRY_VIEW, Op.GET_ALL})


def can_read(state: MapState | None, request: Request) -> bool:
    """Whether a backup can answer: not for entries with a maximum idle time, whose uses count at the primary."""
    if state is None or not state.expiries:
        return True
    keys = request.items if request.op is Op.GET_ALL else [request.key]
    return not any((expiry := state.expiries.get(key)) is not None and expiry.max_idle_ms for key in keys)


def read_backup(state: MapState | None, request: Request, now_ns: int) -> Value:
    """One of `FROM_BACKUPS`, skipping expired entries."""
    op, key = request.op, request.key
    if op is Op.GET_ALL:
        found = ((one, peek(state, one, now_ns)) for one in request.items)
        return [part for pair in found if pair[1] is not None for part in pair]
    value = peek(state, key, now_ns)
    if op is Op.CONTAINS_KEY:
        return value is not None
    if op is Op.ENTRY_VIEW and state is not None and value is not None:
        return [*view_of(state, key, value, now_ns, used=False)]
    return value


def peek(state: MapState | None, key: bytes, now_ns: int) -> bytes | None:
    """An expired entry is not removed."""
    if state is None or (state.expiries and state.expired(key, now_ns, touch=False)):
        return None
    return state.entries.get(key)


# -- whole partitions


def decide_whole(state: MapState | None, request: Request, now_ns: int) -> Decision:
    op = request.op
    if op in CLEARING:
        count = len(state.entries) if state is not None else 0
        return Decision(count, [Update(Change.CLEAR)] if count else ())
    if state is not None and is_multimap(state.name) and op in _OF_VALUES:
        return Decision(_collect_values(request, state.entries))
    if state is not None and op in (Op.SIZE, Op.IS_EMPTY) and not state.expiries:
        count = len(state.entries)
        return Decision(count if op is Op.SIZE else count == 0)
    return Decision(_collect(request, _living(state, now_ns) if state is not None else {}))


def _living(state: MapState, now_ns: int) -> Mapping[bytes, bytes]:
    if not state.expiries:
        return state.entries
    return {k: v for k, v in state.entries.items() if not state.expired(k, now_ns, touch=False)}


def _collect(request: Request, entries: Mapping[bytes, bytes]) -> Value:
    op = request.op
    if op is Op.SIZE:
        return len(entries)
    if op is Op.IS_EMPTY:
        return not entries
    if op is Op.CONTAINS_VALUE:
        return any(value == request.value for value in entries.values())
    answer: list[None | int | bytes] = []
    if op is Op.KEYS:
        answer.extend(entries)
    elif op is Op.VALUES:
        answer.extend(entries.values())
    else:
        for pair in entries.items():
            answer.extend(pair)
    return answer


_OF_VALUES = frozenset({Op.SIZE, Op.CONTAINS_VALUE, Op.VALUES, Op.ENTRIES})


def _collect_values(request: Request, entries: Mapping[bytes, bytes]) -> Value:
    """Each value of a key of a multimap counts."""
    op = request.op
    if op is Op.SIZE:
        return sum(map(count_values, entries.values()))
    if op is Op.CONTAINS_VALUE:
        return any(request.value in decode_values(values) for values in entries.values())
    answer: list[None | int | bytes] = []
    for key, values in entries.items():
        for value in decode_values(values):
            answer += (value,) if op is Op.VALUES else (key, value)
    return answer


def answers(op: Op, value: Value) -> bool:
    """Whether this value can be an answer of an operation on whole partitions; it comes from another member."""
    if value is None:
        return True
    if op is Op.SIZE or op in CLEARING:
        return isinstance(value, int) and value >= 0
    if op in (Op.CONTAINS_VALUE, Op.IS_EMPTY):
        return isinstance(value, bool)
    return isinstance(value, list) and all(isinstance(part, bytes) for part in value)


def merge(op: Op, so_far: Value, more: Value) -> Value:
    if so_far is None:
        return more
    if op is Op.SIZE or op in CLEARING:
        assert isinstance(so_far, int) and isinstance(more, int)
        return so_far + more
    if op is Op.CONTAINS_VALUE:
        return bool(so_far) or bool(more)
    if op is Op.IS_EMPTY:
        return bool(so_far) and bool(more)
    assert isinstance(so_far, list) and isinstance(more, list)
    so_far.extend(more)
    return so_far
