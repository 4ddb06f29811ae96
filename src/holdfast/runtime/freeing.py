"""Frees the memory of dropped tables in slices, so that the event loop keeps serving (store/E-9)."""

from __future__ import annotations

import asyncio

from holdfast.core.store.entry_mapping import FreesLater

LOOK_S = 0.02
NEXT_S = 0.001
SLICE = 1000
"""Entries per slice (large ones count several times), about 0.1 ms. A member does not drop more per second
than this can free.
"""


class Freeing:
    def __init__(self, loop: asyncio.AbstractEventLoop, frees: FreesLater) -> None:
        self._loop = loop
        self._frees = frees
        frees.begin_freeing()
        self._timer = loop.call_later(LOOK_S, self._free)

    def _free(self) -> None:
        more = self._frees.free_later(SLICE)
        self._timer = self._loop.call_later(NEXT_S if more else LOOK_S, self._free)

    def stop(self) -> None:
        """The rest is freed at once, unless another loop frees it."""
        self._timer.cancel()
        self._frees.end_freeing()
