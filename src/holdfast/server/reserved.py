"""Protects the maps whose names begin with `__`, which are reserved for members, from clients.

Clients of the Hazelcast protocol reach these maps only through dedicated requests: schemas, and the list of opened
maps. Clients of Holdfast's own protocol may read them, for audits and exports, and write valid entries to four:

    __schemas          schemas of compact classes: written by Spark and by restores
    __schemas.spark    columns of a map, as JSON; may also be removed
    __overwrites.spark  the cut through a map that a job overwrites, as JSON; may also be removed
    __streams.spark    progress of streaming queries, as JSON; may also be removed

Older files may contain invalid entries, so readers of these maps check them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from holdfast.config import INTERNAL
from holdfast.core.model.operations import BETWEEN_MEMBERS, READS, Op, Request
from holdfast.wire import own
from holdfast.wire.hazelcast.compact_schemas import SCHEMAS_MAP, schema_entry_problem
from holdfast.wire.values import JSON, STRING

_HEAD_BYTES = 8
"""Type id and length before a stored text."""


def is_reserved(name: str) -> bool:
    return name.startswith(INTERNAL)


def _text(stored: bytes, kind: int) -> bytes | None:
    length = int.from_bytes(stored[4:_HEAD_BYTES], "big")
    if stored[:4] != kind.to_bytes(4, "big", signed=True) or len(stored) != _HEAD_BYTES + length:
        return None
    return stored[_HEAD_BYTES:]


def _description_problem(key: bytes, value: bytes) -> str:
    name, content = _text(key, STRING), _text(value, JSON)
    if name is None or content is None:
        return "the key is a text, the value JSON"
    try:
        name.decode()
        msgspec.json.decode(content, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as broken:
        return f"it is no JSON object: {broken}"
    return ""


_WRITABLE: dict[str, tuple[frozenset[Op], Callable[[bytes, bytes], str]]] = {
    SCHEMAS_MAP: (frozenset({Op.SET}), schema_entry_problem),
    "__schemas.spark": (frozenset({Op.SET, Op.DELETE}), _description_problem),
    "__overwrites.spark": (frozenset({Op.SET, Op.DELETE}), _description_problem),
    "__streams.spark": (frozenset({Op.SET, Op.DELETE}), _description_problem),
}
_NOT_MAPS = frozenset({Op.CALL, Op.ASK})


def reserved_map_rejection(request: Request) -> str:
    name = request.map
    if request.op in BETWEEN_MEMBERS:
        return f"{request.op.name} is internal to members"
    if not is_reserved(name) or request.op in READS or request.op in _NOT_MAPS:
        return ""
    operations, entry_problem = _WRITABLE.get(name, (frozenset[Op](), _description_problem))
    if request.op not in operations:
        return f"the map name {name!r} is reserved: members keep that map for themselves"
    if request.op is Op.SET:
        why = entry_problem(request.key, request.value)
        return why and f"the map {name!r} takes no such entry: {why}"
    return ""


def reserved_rows_rejection(put: own.PutColumns, entries: Iterable[tuple[bytes, bytes]]) -> str:
    if not is_reserved(put.map):
        return ""
    if put.map not in _WRITABLE or put.kinds.strip(bytes((own.PutKind.SET,))):
        return f"the map name {put.map!r} is reserved: members keep that map for themselves"
    entry_problem = _WRITABLE[put.map][1]
    for key, value in entries:
        why = entry_problem(key, value)
        if why:
            return f"the map {put.map!r} takes no such entry: {why}"
    return ""
