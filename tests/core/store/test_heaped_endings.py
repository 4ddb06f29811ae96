"""The reference for entries that end."""

from __future__ import annotations

import pytest

from holdfast.core.model.ids import MILLISECOND
from holdfast.core.store.map_state import MapState


@pytest.mark.parametrize("max_idle_ms", [0, 3])
def test_an_entry_that_was_removed_and_stored_again_at_one_time_ends_once(max_idle_ms: int) -> None:
    """Otherwise its removal would be numbered, logged and reported to listeners twice. Found by seed 80033 of
    `simulate --zones --transactions`.
    """
    state = MapState("m")
    for key in (b"a", b"b", b"a", b"a"):
        state.drop(key)
        state.store(key, b"v", 5, max_idle_ms, 0, 0)
    assert state.due(5 * MILLISECOND - 1, 10) == ([b"a", b"b"] if max_idle_ms else [])
    assert state.due(5 * MILLISECOND, 10) == ([] if max_idle_ms else [b"a", b"b"])
