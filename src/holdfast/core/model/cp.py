"""CP objects: names of the groups and of what is in them, the steps of their requests, and the answers."""

from __future__ import annotations

from enum import IntEnum, StrEnum, unique

import msgspec

from holdfast.config import CP_PREFIX
from holdfast.core.model.collections import FOREVER_MS, partition_of_name
from holdfast.core.model.decisions import Wait
from holdfast.core.model.operations import MAP_NAME_MAX, Op, Request

DEFAULT_GROUP = "default"
NAME_MAX = 256
"""Characters of the name of a group or object."""
NO_SESSION = -1
"""The session of a request that needs none, as Hazelcast writes it."""
NO_FENCE = 0
"""The fence of a lock that was not acquired."""
UID_BYTES = 16
CLIENT_MAX = 64
SESSIONS_MAX = 10_000
"""Sessions of a group,"""
HOLDERS_MAX = 1000
"""sessions that hold permits of one semaphore, whose entry each step reads and writes as a whole,"""
HELD_OBJECTS_MAX = 10_000
"""and objects that one session holds (cp/B-1)."""
SESSIONS_CLOSED = 100
"""So many sessions are closed in one step, at most."""


@unique
class CpKind(StrEnum):
    """Kinds of entries; the key of one begins with its kind."""

    ATOMIC_LONG = "long"
    ATOMIC_REFERENCE = "reference"
    LATCH = "latch"
    LOCK = "lock"
    SEMAPHORE = "semaphore"
    SESSION = "session"
    NUMBERS = "numbers"
    """One entry, without a name: the last numbers that were given out."""

    def key(self, name: str = "") -> bytes:
        return f"{self}:{name}".encode()


OBJECTS = (CpKind.ATOMIC_LONG, CpKind.ATOMIC_REFERENCE, CpKind.LATCH, CpKind.LOCK, CpKind.SEMAPHORE)
NUMBERS_KEY = CpKind.NUMBERS.key()


def kind_and_name(key: bytes) -> tuple[CpKind, str] | None:
    """Parts of the key of an entry; None: it is not valid."""
    kind, colon, name = key.decode(errors="replace").partition(":")
    try:
        return (CpKind(kind), name) if colon else None
    except ValueError:
        return None


def cp_name(name: str, group: str) -> str:
    """The name of an object with that of its group, as clients write it."""
    return name if group.lower() == DEFAULT_GROUP else f"{name}@{group}"


def session_key(session: int) -> bytes:
    return CpKind.SESSION.key(str(session))


def map_of_group(group: str) -> str:
    """The map with the objects and sessions of a group."""
    return CP_PREFIX + group


def group_of_map(name: str) -> str:
    """Empty: it is not the map of a group."""
    return name.removeprefix(CP_PREFIX) if name.startswith(CP_PREFIX) else ""


@unique
class CpStepKind(IntEnum):
    """Kinds of steps, in brackets the fields that they use. Steps on an object are on that of the request's key."""

    GET_LONG = 1
    GET_REFERENCE = 2
    CONTAINS = 3  # (value)
    GET_COUNT = 4  # of a latch
    GET_ROUND = 5  # how often the count of a latch was set
    OWNERSHIP = 6  # answers fence, holds, session and thread of a lock's owner
    AVAILABLE = 7  # permits of a semaphore
    HEARTBEAT = 8  # (session)

    GET_AND_ADD = 20  # (number)
    ADD_AND_GET = 21  # (number)
    COMPARE_AND_SET_LONG = 22  # (expected_number, number)
    GET_AND_SET_LONG = 23  # (number)
    SET_REFERENCE = 24  # (value) answers the former one
    COMPARE_AND_SET_REFERENCE = 25  # (expected, value)
    TRY_SET_COUNT = 26  # (number)
    AWAIT = 27  # (number: the round; wait_ms)
    COUNT_DOWN = 28  # (number: the round; uid)
    LOCK = 29  # (session, thread, uid, wait_ms) answers the fence
    UNLOCK = 30  # (session, thread, uid) answers whether it is still locked
    INIT_PERMITS = 31  # (number)
    ACQUIRE = 32  # (session, thread, uid, number, wait_ms)
    RELEASE = 33  # (session, thread, uid, number)
    DRAIN = 34  # (session, thread, uid) answers how many there were
    CHANGE_PERMITS = 35  # (session, thread, uid, number)
    DESTROY = 36
    CREATE_SESSION = 37  # (number: its time to live in ms; value: name of the client) answers the session
    CLOSE_SESSIONS = 38  # (sessions) answers how many there were
    NEW_THREAD = 39  # answers a number that no other thread of the group has

    @property
    def op(self) -> Op:
        if self < CpStepKind.GET_AND_ADD:
            return Op.READ_CP
        return Op.RELEASE_CP if self in _RELEASING else Op.CHANGE_CP


_RELEASING = frozenset(
    {
        CpStepKind.COUNT_DOWN,
        CpStepKind.UNLOCK,
        CpStepKind.RELEASE,
        CpStepKind.DESTROY,
        CpStepKind.CLOSE_SESSIONS,
    }
)
"""They are taken also while memory is short."""
_NAMED_CALLS = frozenset({CpStepKind.LOCK, CpStepKind.UNLOCK})
KIND_OF: dict[CpStepKind, CpKind] = {
    CpStepKind.GET_LONG: CpKind.ATOMIC_LONG,
    CpStepKind.GET_AND_ADD: CpKind.ATOMIC_LONG,
    CpStepKind.ADD_AND_GET: CpKind.ATOMIC_LONG,
    CpStepKind.COMPARE_AND_SET_LONG: CpKind.ATOMIC_LONG,
    CpStepKind.GET_AND_SET_LONG: CpKind.ATOMIC_LONG,
    CpStepKind.GET_REFERENCE: CpKind.ATOMIC_REFERENCE,
    CpStepKind.CONTAINS: CpKind.ATOMIC_REFERENCE,
    CpStepKind.SET_REFERENCE: CpKind.ATOMIC_REFERENCE,
    CpStepKind.COMPARE_AND_SET_REFERENCE: CpKind.ATOMIC_REFERENCE,
    CpStepKind.GET_COUNT: CpKind.LATCH,
    CpStepKind.GET_ROUND: CpKind.LATCH,
    CpStepKind.TRY_SET_COUNT: CpKind.LATCH,
    CpStepKind.AWAIT: CpKind.LATCH,
    CpStepKind.COUNT_DOWN: CpKind.LATCH,
    CpStepKind.OWNERSHIP: CpKind.LOCK,
    CpStepKind.LOCK: CpKind.LOCK,
    CpStepKind.UNLOCK: CpKind.LOCK,
    CpStepKind.AVAILABLE: CpKind.SEMAPHORE,
    CpStepKind.INIT_PERMITS: CpKind.SEMAPHORE,
    CpStepKind.ACQUIRE: CpKind.SEMAPHORE,
    CpStepKind.RELEASE: CpKind.SEMAPHORE,
    CpStepKind.DRAIN: CpKind.SEMAPHORE,
    CpStepKind.CHANGE_PERMITS: CpKind.SEMAPHORE,
}
"""Steps on one object, with its kind. DESTROY is on any; the others are on sessions and numbers."""


class CpStep(msgspec.Struct, frozen=True, array_like=True):
    kind: CpStepKind
    number: int = 0
    expected_number: int = 0
    value: bytes | None = None
    expected: bytes | None = None
    session: int = NO_SESSION
    thread: int = 0
    uid: bytes = b""
    """Names the call of the client, also when it repeats it."""
    wait_ms: int = 0
    sessions: list[int] = []
    client: bytes = b""
    """The client that asks; empty: a member does (cp/S-4)."""

    @property
    def owner(self) -> tuple[int, int]:
        return self.session, self.thread

    @property
    def call(self) -> bytes:
        """The id of the call in its session. A client whose session was closed repeats the call under the same id in
        its next session, and holds nothing there. Empty: the step is not named.
        """
        if not self.uid or self.session == NO_SESSION:
            return self.uid
        return self.uid + self.session.to_bytes(8, "big", signed=True)


@unique
class CpFate(IntEnum):
    DONE = 0
    DESTROYED = 1
    NO_SESSION = 2
    """It has been closed, or never was."""
    CANCELLED = 3
    """The call was done before, and what it has acquired is released again."""
    NOT_OWNER = 4
    LACKS_PERMITS = 5
    BAD_NUMBER = 6
    TOO_OFTEN = 7
    """The owner of a lock holds it as often as it may."""
    TOO_MANY = 8
    """There are as many sessions, holders or held objects as there may be (cp/B-1)."""


class CpAnswer(msgspec.Struct, frozen=True, array_like=True):
    fate: CpFate = CpFate.DONE
    number: int = 0
    value: bytes | None = None
    numbers: list[int] = []


_encode = msgspec.msgpack.Encoder().encode
_step = msgspec.msgpack.Decoder(CpStep).decode
_answer = msgspec.msgpack.Decoder(CpAnswer).decode


def encode_answer(answer: CpAnswer) -> bytes:
    return _encode(answer)


def decode_answer(encoded: bytes) -> CpAnswer:
    return _answer(encoded)


def decode_cp_step(encoded: bytes) -> CpStep:
    """Raises msgspec.MsgspecError."""
    return _step(encoded)


def cp_request(
    group: str, partition_count: int, step: CpStep, name: str = "", kind: CpKind | None = None
) -> Request:
    """`name`: of the object. `kind`: of the object to destroy."""
    of = kind or KIND_OF.get(step.kind)
    key = of.key(name) if of is not None else b""
    partition = partition_of_name(group, partition_count)
    # A client repeats a call under its id, so the partition knows it as it knows requests of members.
    request_id = step.call if step.kind.op is not Op.READ_CP else b""
    return Request(
        step.kind.op, map_of_group(group), [partition], key=key, value=_encode(step), id=request_id
    )


def with_wait(request: Request, ms: int) -> Request:
    """The same step, which waits so much longer."""
    step = msgspec.structs.replace(_step(request.value), wait_ms=ms)
    return msgspec.structs.replace(request, value=_encode(step))


def waiting(step: CpStep) -> Wait:
    """The wait of a step that cannot be done now. Its answer: no fence, no permits, the count is not zero."""
    return Wait(min(step.wait_ms, FOREVER_MS), encode_answer(CpAnswer()))


def cp_problem(request: Request) -> str:
    """Why a request with a step on a CP group is invalid; empty: it is valid."""
    group = group_of_map(request.map)
    if not 1 <= len(group) <= NAME_MAX or len(request.map) > MAP_NAME_MAX:
        return f"{request.map[:40]!a} is the map of no CP group"
    try:
        step = _step(request.value)
    except msgspec.MsgspecError as broken:
        return f"an unreadable step of a CP object: {broken}"
    if step.kind.op is not request.op:
        return f"{step.kind.name} is no step in {request.op.name}"
    named = kind_and_name(request.key)
    if step.kind in KIND_OF and (named is None or named[0] is not KIND_OF[step.kind]):
        return f"{step.kind.name} is no step on {request.key[:40]!r}"
    if step.kind is CpStepKind.DESTROY and (named is None or named[0] not in OBJECTS):
        return f"{request.key[:40]!r} is no object that can be destroyed"
    numbers = (step.number, step.expected_number, step.session, step.thread)
    if not all(-(2**63) <= number < 2**63 for number in numbers):
        return "numbers of CP objects have 64 bits"
    if step.kind in _NAMED_CALLS and not step.uid:
        return f"{step.kind.name} needs the id of its call"
    if len(step.client) > CLIENT_MAX:
        return "the name of a client of a CP step is too long"
    if step.wait_ms < 0 or len(step.uid) not in (0, UID_BYTES) or len(step.sessions) > SESSIONS_CLOSED:
        return "a wait, an id or a list of sessions of a CP step is out of bounds"
    return ""
