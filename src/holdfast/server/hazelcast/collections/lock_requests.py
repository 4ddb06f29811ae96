"""Requests for locks on entries of maps."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.model.collections import FOREVER_MS, CollectionStep, StepKind, encode_step
from holdfast.core.model.levels import STRUCTURES
from holdfast.core.model.map_locks import LOCKED_NAME_MAX, locks_of, owner_of
from holdfast.core.model.operations import Request, Value
from holdfast.server.hazelcast.collections.waiting_requests import ask_until
from holdfast.server.hazelcast.conversation import Conversation, Handler, RequestKind
from holdfast.server.hazelcast.maps import nothing, reject_reserved, truth
from holdfast.wire.hazelcast.layouts import Call, RequestLayout
from holdfast.wire.hazelcast.refusals import BAD_ARGUMENT, BAD_STATE, NOT_OWNER, UNSUPPORTED, CallRefused

Guarded = Callable[[Conversation, str], str]
"""The map whose entries are locked, by the name of a client's structure. Raises CallRefused."""
NO_UUID = 1
"""First byte of a null UUID."""


def _map(talk: Conversation, name: str) -> str:
    reject_reserved(name)
    if zone := talk.grid.zone_of(name):
        raise CallRefused(
            UNSUPPORTED, f"map {name[:64]!r} lives in zone {zone!r}, and clients cannot lock entries there"
        )
    return name


def _check(talk: Conversation, name: str) -> None:
    if talk.grid.level < STRUCTURES:
        raise CallRefused(
            BAD_STATE,
            f"locks need feature level {STRUCTURES} of the cluster, which has {talk.grid.level}: when all members run "
            "a build that can do it, an operator raises it with `holdfast cluster upgrade`",
        )
    if len(name) > LOCKED_NAME_MAX:
        raise CallRefused(
            BAD_ARGUMENT, f"a map with locks has a name of at most {LOCKED_NAME_MAX} characters"
        )
    if talk.client[:1] == bytes((NO_UUID,)):
        raise CallRefused(BAD_ARGUMENT, "a client without a UUID cannot lock entries")


def _request(talk: Conversation, call: Call, name: str, kind: StepKind, wait_ms: int = 0) -> Request:
    step = CollectionStep(kind, index=call.reference, wait_ms=wait_ms)
    return Request(
        kind.op,
        locks_of(name),
        [talk.partition_of(call)],
        key=call.key,
        value=encode_step(step),
        ttl_ms=max(0, call.ttl_ms),
        max_idle_ms=0,
        key_hash=call.key_hash,
        holder=owner_of(talk.client, call.thread),
    )


def _locking(guarded: Guarded, *, tries: bool) -> Handler:
    def handle(talk: Conversation, call: Call) -> None:
        name = guarded(talk, call.name)
        _check(talk, name)
        timeout_ms = min(max(0, call.timeout_ms), FOREVER_MS) if tries else FOREVER_MS
        ask_until(
            talk,
            call,
            lambda wait_ms: _request(talk, call, name, StepKind.LOCK, wait_ms),
            timeout_ms,
            truth if tries else nothing,
        )

    return handle


def _unlocking(guarded: Guarded, kind: StepKind) -> Handler:
    def handle(talk: Conversation, call: Call) -> None:
        name = guarded(talk, call.name)
        _check(talk, name)

        def answer(value: Value) -> bytes:
            if not value and kind is StepKind.UNLOCK:
                raise CallRefused(NOT_OWNER, "this thread of this client has no lock on the entry")
            return nothing(call, None)

        talk.execute(call, _request(talk, call, name, kind), answer)

    return handle


def lock_messages(
    guarded: Guarded, lock: int, try_lock: int, unlock: int, force_unlock: int
) -> dict[int, RequestKind]:
    """The requests, by their message types."""
    kinds = {
        lock: ("thread ttl_ms reference | name key", _locking(guarded, tries=False)),
        try_lock: ("thread ttl_ms timeout_ms reference | name key", _locking(guarded, tries=True)),
        unlock: ("thread reference | name key", _unlocking(guarded, StepKind.UNLOCK)),
        force_unlock: ("reference | name key", _unlocking(guarded, StepKind.FORCE_UNLOCK)),
    }
    return {kind: RequestKind(RequestLayout(layout), handler) for kind, (layout, handler) in kinds.items()}


MESSAGES = lock_messages(_map, 0x011000, 0x011100, 0x011300, 0x013300)
