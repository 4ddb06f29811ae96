"""Requests of the in-process API, retried while their outcome is unknown, with errors as exceptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec

from holdfast.core.model.operations import READS, WHOLE, Outcome, Request, Status, Value
from holdfast.errors import (
    Closing,
    Moved,
    NoDataMember,
    NoMemory,
    NoRoom,
    NotReady,
    PartitionLost,
    Passive,
    ProcessorFailed,
    Refused,
    RequestError,
    TooLarge,
    Unknown,
)
from holdfast.runtime.node import Node

Heard = TypeVar("Heard")

RETRY_S = 0.05

REFUSALS: dict[Status, type[RequestError]] = {
    Status.UNKNOWN: Unknown,
    Status.MOVED: Moved,
    Status.NOT_READY: NotReady,
    Status.CLOSING: Closing,
    Status.TOO_LARGE: TooLarge,
    Status.PASSIVE: Passive,
    Status.NO_ROOM: NoRoom,
    Status.NO_DATA_MEMBER: NoDataMember,
    Status.FAILED: Refused,
    Status.NO_MEMORY: NoMemory,
    Status.LOST: PartitionLost,
    Status.PROCESSOR_FAILED: ProcessorFailed,
}


async def ask(node: Node, request: Request) -> Value:
    """Execute a request; raises the exception for its status (REFUSALS).

    Writes have an id, and are repeated while their outcome is unknown, up to the call timeout.
    """
    settings = node.settings
    repeats = settings.replication.unknown_writes == "retry" and settings.replication.request_ids > 0
    if request.op in READS or request.op in WHOLE or not repeats:
        outcome = await _ask_once(node, request)
    else:
        node.check()
        request = msgspec.structs.replace(request, id=node.new_request_id())
        outcome = await _ask_again(node, request, settings.limits.call_timeout_ms / 1000)
    if outcome.status is not Status.OK:
        raise REFUSALS[outcome.status](outcome.detail)
    return outcome.value


async def _ask_again(node: Node, request: Request, timeout_s: float) -> Outcome:
    """Repeat until the outcome is known. A rejection after an unknown outcome does not settle it: the first
    attempt may have been applied.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    doubt = ""
    while True:
        try:
            outcome = await _ask_once(node, request)
        except Closing as closing:
            if doubt:
                raise Unknown(doubt) from closing
            raise
        if outcome.status is Status.UNKNOWN:
            doubt = outcome.detail
        elif not doubt or outcome.status is Status.OK:
            return outcome
        if outcome.status is Status.PASSIVE or loop.time() + RETRY_S > deadline_s:
            return Outcome(Status.UNKNOWN, None, doubt)
        await asyncio.sleep(RETRY_S)


async def _ask_once(node: Node, request: Request) -> Outcome:
    node.check_here()
    future: asyncio.Future[Outcome] = node.loop.create_future()

    def done(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    node.calls.add(future)
    try:
        node.guard(lambda: node.execute(request, done))
        return await future
    finally:
        node.calls.discard(future)


def careful(node: Node, heard: Callable[[Heard], None]) -> Callable[[Heard], None]:
    """Errors of a listener go to the loop's exception handler and do not stop the member."""
    if not callable(heard):
        raise TypeError(f"a listener must be callable, not {heard!r}")

    def told(what: Heard) -> None:
        try:
            heard(what)
        except Exception as error:  # noqa: BLE001  (it is the program's, whatever it is)
            context = {"message": "a listener of a Holdfast member has failed", "exception": error}
            node.loop.call_exception_handler(context)

    return told
