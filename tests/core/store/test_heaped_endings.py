"""The reference for entries that end."""

from __future__ import annotations

import pytest

from holdfast.config.schema import ENDLESS_IDLE_MS
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.store.heaped_endings import HeapedEndings
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


def test_idle_times_that_never_pass_are_not_in_the_heap() -> None:
    endings = HeapedEndings()
    endings.set(b"a", 0, ENDLESS_IDLE_MS, 5)
    endings.use([b"a"], 7)
    assert (endings.expiries[b"a"].accessed_ns, endings.first_ns) == (7, None)
    endings.all_used(9)
    other = HeapedEndings()
    other.start_from(endings.expiries)
    assert (other.expiries[b"a"].accessed_ns, other.first_ns) == (9, None)
    other.set(b"a", 1, ENDLESS_IDLE_MS, 10)
    assert other.due(10 + MILLISECOND, 10) == ([b"a"], 1)
    other.set(b"b", 0, 1, 10)
    other.set(b"b", 0, ENDLESS_IDLE_MS, 10)
    assert other.due(10 + MILLISECOND, 10)[0] == []
    assert other.first_ns is None
