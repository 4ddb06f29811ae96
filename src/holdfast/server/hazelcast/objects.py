"""Distributed objects: the list of maps and collections that clients have opened, and its listeners.

They are created by their first entry. Names that clients open are recorded in an internal map, so that every member
can list them. A collection is recorded by the name of the map that holds its items, which no map of a client can have.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import cast

from holdfast.config import INTERNAL, RELIABLE_TOPIC_PREFIX
from holdfast.config.permissions import Action, Kind
from holdfast.core.model.collections import CollectionKind, collection_of, partition_of_name
from holdfast.core.model.keys import partition_of
from holdfast.core.model.levels import STRUCTURES
from holdfast.core.model.map_locks import LOCKED_NAME_MAX, guarded_map, locks_of
from holdfast.core.model.operations import EntryEvent, EventKind, Op, Outcome, Request, Status, Value
from holdfast.server.access import SERVICES, permission_of
from holdfast.server.flow import REQUEST_UNITS, SLICE_ITEMS
from holdfast.server.hazelcast.collections.collection_requests import check_collection
from holdfast.server.hazelcast.conversation import Conversation, RequestKind
from holdfast.server.hazelcast.maps import nothing, reject_reserved, truth
from holdfast.wire.hazelcast.hazelcast_frames import BEGIN, END, event, message, response, text, uuid
from holdfast.wire.hazelcast.layouts import Call, RequestLayout
from holdfast.wire.hazelcast.refusals import UNSUPPORTED, CallRefused, refusal

OBJECTS_MAP = "__objects"
ADD_LISTENER, REMOVE_LISTENER = 0x000900, 0x000A00
_SERVICE_OF = {kind: service for service, kind in SERVICES.items()}
NAMES_PER_SLICE = SLICE_ITEMS // REQUEST_UNITS
SERVICE_SHOWN_MAX = 200
"""Characters of a service's name in an error."""

_STRING_TYPE = (-11).to_bytes(4, "big", signed=True)
_STRING_HEADER_BYTES = 8
"""Type id and length before a stored string."""


def stored_text(value: str) -> bytes:
    encoded = value.encode()
    return _STRING_TYPE + len(encoded).to_bytes(4, "big") + encoded


def _name_of(stored: bytes) -> str | None:
    """The map's name in a stored key, or None if the key is invalid: the internal map may have invalid entries."""
    encoded = stored[_STRING_HEADER_BYTES:]
    if stored[:_STRING_HEADER_BYTES] != _STRING_TYPE + len(encoded).to_bytes(4, "big"):
        return None
    try:
        return encoded.decode() or None
    except UnicodeDecodeError:
        return None


def _on(talk: Conversation, op: Op, name: str) -> Request:
    """`name`: of a map, perhaps of one that holds the items of a collection."""
    key = stored_text(name)
    partition = partition_of(key, 0, talk.grid.partition_count)
    value = stored_text(_listed(name)[0])
    return Request(op, OBJECTS_MAP, [partition], key=key, value=value, ttl_ms=0, max_idle_ms=0)


def _map_of(talk: Conversation, name: str, service: str) -> str:
    """The map of this name, or the one that holds the items of this collection. Raises CallRefused."""
    kind = SERVICES.get(service)
    if kind is None:
        service = service[:SERVICE_SHOWN_MAX]
        raise CallRefused(
            UNSUPPORTED,
            f"{_words(service)} ({service}) is not supported by Holdfast",
        )
    if kind is Kind.MAP:
        reject_reserved(name)
        return name
    collection = CollectionKind(kind)
    check_collection(talk, collection, name)
    return collection.map_of(name)


def _listed(name: str) -> tuple[str, Kind, str]:
    """Service, kind and name for clients of this map, which may hold the items of a collection."""
    collection = collection_of(name)
    kind = Kind(collection[0]) if collection is not None else Kind.MAP
    return _SERVICE_OF[kind], kind, name if collection is None else collection[1]


def _words(service: str) -> str:
    """`Queue` for `hz:impl:queueService`."""
    bare = service.rpartition(":")[2].removesuffix("Service")
    return bare[:1].upper() + bare[1:]


def _create(talk: Conversation, call: Call) -> None:
    _open(talk, call, [_map_of(talk, call.name, call.service)])


def _create_all(talk: Conversation, call: Call) -> None:
    def checking() -> Generator[None, None, None]:
        names: list[str] = []
        for place, (name, service) in enumerate(call.proxies):
            if place % SLICE_ITEMS == SLICE_ITEMS - 1:
                yield
            names.append(_map_of(talk, name, service))
        _open(talk, call, names)

    talk.answer(call, checking)


def _open(talk: Conversation, call: Call, names: list[str]) -> None:
    """Record the names, which matters only for lists. So failures are ignored: without room, or without a
    primary of the partition that records a name, clients must still be able to use the map. Without
    permission to store, nothing is recorded.
    """
    talk.execute_all(call, _noting(talk, names), lambda _: nothing(call, None), pardon=NO_ROOM_FOR_NAMES)


def _noting(talk: Conversation, names: list[str]) -> Iterator[Request | None]:
    """Requests to record these names; None ends a slice."""
    rights = talk.rights
    for place, name in enumerate(names):
        if place % NAMES_PER_SLICE == NAMES_PER_SLICE - 1:
            yield None
        _, kind, shown = _listed(name)
        if not rights.may(Action.PUT, *permission_of(kind, shown)):
            continue
        request = _on(talk, Op.PUT_IF_ABSENT, name)
        if _waits(talk, request.partitions[0]):
            talk.grid.execute(request, _unheard)
        else:
            yield request


def _waits(talk: Conversation, partition: int) -> bool:
    """Whether the partition was assigned and has no primary now."""
    return talk.grid.row(partition).version > 0 and talk.grid.owner(partition) is None


def _unheard(_: Outcome) -> None: ...


def _destroy(talk: Conversation, call: Call) -> None:
    name = _map_of(talk, call.name, call.service)
    if talk.grid.passive:
        raise CallRefused(*refusal(Outcome(Status.PASSIVE)))
    names = [name]
    if SERVICES[call.service] is Kind.RELIABLE_TOPIC:
        names.append(CollectionKind.RINGBUFFER.map_of(RELIABLE_TOPIC_PREFIX + call.name))
    if talk.grid.level >= STRUCTURES and _has_locks(name):
        names.append(locks_of(name))
    destroying = [Request(Op.DESTROY, one, _partitions_of(talk, one)) for one in names]
    for destroy in destroying:
        refused = talk.grid.rejection(destroy)
        if refused is not None and refused.status is Status.NO_DATA_MEMBER:
            talk.send(nothing(call, None))
            return
        talk.require(destroy)
    talk.flow.spent += REQUEST_UNITS * len(destroying)
    for one in names:
        # End listeners before entries are removed; they get no events of the destruction.
        talk.grid.end_listeners(one)
    forgetting = [_on(talk, Op.DELETE, one) for one in names if not guarded_map(one)]
    talk.execute_all(call, [*destroying, *forgetting], lambda _: nothing(call, None))


def _has_locks(name: str) -> bool:
    """Whether entries of this map can be locked."""
    named = collection_of(name)
    return len(name) <= LOCKED_NAME_MAX and (named is None or named[0] is CollectionKind.MULTIMAP)


def _partitions_of(talk: Conversation, name: str) -> list[int]:
    """The partitions with entries of a map, which may hold the items of a collection."""
    named = collection_of(name)
    if named is None or named[0].is_spread:
        return talk.every_partition
    return [partition_of_name(named[1], talk.grid.partition_count)]


def _list(talk: Conversation, call: Call) -> None:

    def answer(value: Value) -> bytes:
        opened = cast("list[bytes]", value or [])[::2]
        names = {name for key in opened if (name := _name_of(key)) is not None}.union(talk.grid.map_names())
        frames = [response(call.kind + 1, call.correlation), BEGIN]
        knows = talk.rights.knows
        for name in sorted(names):
            service, kind, shown = _listed(name)
            if not (kind is Kind.MAP and name.startswith(INTERNAL)) and knows(*permission_of(kind, shown)):
                frames += (BEGIN, text(service), text(shown), END)
        frames.append(END)
        return message(frames)

    talk.execute(call, Request(Op.ENTRIES, OBJECTS_MAP, talk.every_partition), answer)


NO_ROOM_FOR_NAMES = frozenset({Status.NO_ROOM, Status.NO_MEMORY, Status.NO_DATA_MEMBER})
_EVENT_TYPES = {EventKind.ADDED: "CREATED", EventKind.REMOVED: "DESTROYED"}


def _add_listener(talk: Conversation, call: Call) -> None:
    def on_event(change: EntryEvent) -> None:
        kind = _EVENT_TYPES.get(change.kind)
        name = _name_of(change.key) if change.key is not None else None
        if kind is None or name is None:
            return
        service, of, shown = _listed(name)
        if talk.rights.knows(*permission_of(of, shown)):
            talk.send(
                message(
                    [
                        event(call.kind + 2, call.correlation, uuid(change.member)),
                        text(shown),
                        text(service),
                        text(kind),
                    ]
                )
            )

    told = talk.callback("an opened map", on_event)
    registration = talk.register(
        lambda: talk.grid.listen(OBJECTS_MAP, key=None, local_only=call.local_only, on_event=told)
    )
    talk.send(message([response(call.kind + 1, call.correlation, registration)]))


def _remove_listener(talk: Conversation, call: Call) -> None:
    talk.send(truth(call, talk.unregister(call.registration)))


MESSAGES = {
    0x000400: RequestKind(RequestLayout("| name service"), _create),
    0x000500: RequestKind(RequestLayout("| name service"), _destroy),
    0x000800: RequestKind(RequestLayout("|"), _list),
    ADD_LISTENER: RequestKind(RequestLayout("local_only |"), _add_listener),
    REMOVE_LISTENER: RequestKind(RequestLayout("registration |"), _remove_listener),
    0x000E00: RequestKind(RequestLayout("| proxies"), _create_all),
}
