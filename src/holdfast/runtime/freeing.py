"""What tables have let go is freed some at a time, while others have their turns (store/E-9)."""

from __future__ import annotations

import asyncio

from holdfast.core.store.entry_mapping import FreesLater

LOOK_S = 0.02
"""Between two looks whether there is something."""
NEXT_S = 0.001
"""Between two slices."""
SLICE = 1000
"""Entries in a slice, or large ones that count as so many: some 0.1 ms. As many as this makes in a second a member does
not hand over."""


class Freeing:
    """Frees on this loop, until it is stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop, frees: FreesLater) -> None:
        self._loop = loop
        self._frees = frees
        frees.begin_freeing()
        self._timer = loop.call_later(LOOK_S, self._free)

    def _free(self) -> None:
        more = self._frees.free_later(SLICE)
        self._timer = self._loop.call_later(NEXT_S if more else LOOK_S, self._free)

    def stop(self) -> None:
        """Free no more; what is left is freed at once if nobody else does."""
        self._timer.cancel()
        self._frees.end_freeing()
