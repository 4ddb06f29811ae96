"""What plain Python has noted of entries that end."""

from __future__ import annotations

from holdfast.core.store.heaped_endings import HeapedEndings
from holdfast.core.store.map_state import MapState


def deadlines(state: MapState) -> list[tuple[int, bytes]]:
    """The heap of deadlines of a map whose entries are in a dictionary."""
    assert isinstance(state.endings, HeapedEndings)
    return state.endings.deadlines
