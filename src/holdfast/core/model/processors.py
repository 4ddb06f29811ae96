"""Runs of entry processors: what a request asks for, and what a function of the member has answered.

A request of `Op.PROCESS` is decided twice. At first it has only a `ProcessorCall`: the member that leads the partition
locks the entry, and lets the function run outside of its step. Then it has the result, too: the entry is unlocked, and
the result is replicated like a put or remove.

- model/P-1: A request with a result was made by the member that decides it, and is never sent to another one. So all
  replicas change the same, though the function ran once.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import NamedTuple

import msgspec

from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.transactions import KeyLock

RUN_BYTES = 16


class ProcessorCall(msgspec.Struct, frozen=True, array_like=True):
    name: str
    argument: bytes = b""
    """A stored value; empty: none."""
    payload: bytes | None = None
    """Fields of an `IdentifiedDataSerializable`, as its client wrote them; None: the argument counts."""
    limit_ms: int = 1000
    only_present: bool = False
    """The processor does not run if there is no entry."""


@unique
class EntryChange(IntEnum):
    NONE = 0
    STORE = 1
    REMOVE = 2


class ProcessorResult(msgspec.Struct, frozen=True, array_like=True):
    change: EntryChange = EntryChange.NONE
    value: bytes = b""
    answer: bytes | None = None
    error: str = ""
    """Why nothing is changed; empty: the function has returned."""
    busy: bool = False
    """With an error: it has not run, because too many others wait."""


class FinishedRun(msgspec.Struct, frozen=True, array_like=True):
    """In `items` of a request: the result, and whether the function saw an entry."""

    found: bool
    change: EntryChange
    value: bytes
    answer: bytes | None


class RunBegun(NamedTuple):
    """The entry is locked for this run. Instead of an answer."""

    value: bytes | None


class ProcessorRun(NamedTuple):
    """One run of a function: its call, and the entry."""

    call: ProcessorCall
    map: str
    key: bytes
    value: bytes | None


_encode = msgspec.msgpack.Encoder().encode
_calls = msgspec.msgpack.Decoder(ProcessorCall)
_finished = msgspec.msgpack.Decoder(FinishedRun)


def encode_call(call: ProcessorCall) -> bytes:
    return _encode(call)


def decode_call(encoded: bytes) -> ProcessorCall:
    """Raises msgspec.MsgspecError."""
    return _calls.decode(encoded)


def is_finished(request: Request) -> bool:
    """Whether the request has a result."""
    return bool(request.items)


def finished_run(request: Request) -> FinishedRun:
    return _finished.decode(request.items[0])


def begin_run(request: Request, number: int) -> Request:
    """The request without a result, for a run with this number: it names the lock of the entry on this member."""
    return msgspec.structs.replace(request, expected=number.to_bytes(RUN_BYTES, "big"), items=[])


def finish_run(request: Request, result: ProcessorResult, *, found: bool) -> Request:
    finished = FinishedRun(found, result.change, result.value, result.answer)
    return msgspec.structs.replace(request, items=[_encode(finished)])


def without_run(request: Request) -> Request:
    """As it was asked, for another run, perhaps on another member."""
    return msgspec.structs.replace(request, expected=b"", items=[])


def run_lock(run: bytes) -> KeyLock:
    """The lock of a run: that of a transaction without a coordinator, so that everything waits for it that would
    wait for a transaction.
    """
    return KeyLock(run, MemberId(""))


def is_run_lock(lock: KeyLock) -> bool:
    return not lock.owner


def call_problem(request: Request) -> str:
    """Why a request of another member is invalid; empty: it is valid."""
    if request.op is not Op.PROCESS:
        return ""
    try:
        decode_call(request.value)
    except msgspec.MsgspecError as broken:
        return f"an unreadable call of an entry processor: {broken}"
    return "the result of an entry processor comes from the member itself" if request.items else ""
