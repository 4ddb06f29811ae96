"""The knowledge of a copy about moves of maps: marks (model/M-2), and switches of change streams (model/M-4)."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.config import MOVES_MAP, SWITCHES_MAP
from holdfast.core.model.map_moves import (
    FillMap,
    MarkKind,
    MoveMark,
    MoveStep,
    StreamSwitch,
    decode_mark,
    decode_switch,
)
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


def counter_when_opened(copy: PartitionCopy, step: MoveStep) -> int:
    """The counter from which a map that this step opens continues."""
    return max(copy.forgotten_to, step.above) if isinstance(step, FillMap) else copy.forgotten_to


# -- change streams


def kept_switch(maps: Mapping[str, MapReplica], name: str) -> StreamSwitch | None:
    """The switch that was written when the map moved here, whether or not it is still in force."""
    held = maps.get(SWITCHES_MAP)
    kept = held.state.entries.get(name.encode()) if held is not None else None
    return decode_switch(kept) if kept is not None else None


def switch_in(maps: Mapping[str, MapReplica], name: str) -> StreamSwitch | None:
    """The switch of the map, if the history here is still the one that the move began.

    Example: a map moves here, its first update is 1000, and it continues from update 1030. Then it is destroyed at
    update 1040, and begins again with update 1041. A reader at 1030 has missed something, so the switch is void.
    """
    held, switch = maps.get(name), kept_switch(maps, name)
    if held is None or switch is None or not held.lineage:
        return None
    return switch if held.lineage[0][1] < switch.start <= held.counter else None


def stream_lineage(maps: Mapping[str, MapReplica], name: str) -> list[tuple[int, int]]:
    """Terms of the updates that readers of the map's change stream can have read, also where it lived before.

    Example: the source ended with update 50 of term 3, and the target applied the last fill with update 1030 of term 2.
    Then this is [(3, 0), (0, 50), (2, 1029)]: updates 51 to 1029 are none, or fills.
    """
    held = maps.get(name)
    if held is None:
        return []
    own, switch = held.proven_lineage(), switch_in(maps, name)
    if switch is None:
        return own
    before = switch.start - 1
    ends = [start for _, start in own[1:]] + [held.counter]
    later = [(term, max(start, before)) for (term, start), end in zip(own, ends, strict=True) if end > before]
    return [*switch.lineage, (0, switch.end), *later]
