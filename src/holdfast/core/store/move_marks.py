"""The marks of a copy: what it knows of moves of maps (model/M-2)."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.config import MOVES_MAP
from holdfast.core.model.map_moves import FillMap, MarkKind, MoveMark, MoveStep, decode_mark
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica


def marks_in(maps: Mapping[str, MapReplica]) -> dict[str, MoveMark]:
    """All marks of a copy with these maps, by map."""
    held = maps.get(MOVES_MAP)
    if held is None or not held.state.entries:
        return {}
    return {key.decode(): decode_mark(kept) for key, kept in held.state.entries.items()}


def mark_in(maps: Mapping[str, MapReplica], name: str) -> MoveMark | None:
    held = maps.get(MOVES_MAP)
    if held is None:
        return None
    kept = held.state.entries.get(name.encode())
    return decode_mark(kept) if kept is not None else None


def is_closed(maps: Mapping[str, MapReplica], name: str) -> bool:
    """Whether requests on the map must not be answered from this copy: it is paused, or not filled yet."""
    mark = mark_in(maps, name)
    return mark is not None and mark.kind is not MarkKind.FILLED


def number_above(copy: PartitionCopy, name: str, step: MoveStep) -> None:
    """Before a map is opened by the first fill: its updates are numbered above those of the source (model/M-3)."""
    if isinstance(step, FillMap) and name not in copy.maps:
        copy.forgotten_to = max(copy.forgotten_to, step.above)
