"""A member frees what its tables have let go, while it runs, and leaves nothing when it ends."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.runtime import freeing
from holdfast.runtime.freeing import SLICE, Freeing


class Frees:
    """So many entries wait to be freed."""

    def __init__(self) -> None:
        self.left = 0
        self.begun = 0
        self.slices: list[int] = []
        self.over = asyncio.Event()

    def begin_freeing(self) -> None:
        self.begun += 1

    def end_freeing(self) -> None:
        self.begun -= 1

    def free_later(self, most: int) -> bool:
        self.slices.append(min(most, self.left))
        self.left -= self.slices[-1]
        if self.slices[-1] and not self.left:
            self.over.set()
        return self.left > 0


@pytest.mark.rule("store/E-9")
def test_slices_come_until_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        frees = Frees()
        monkeypatch.setattr(freeing, "LOOK_S", 0.001)
        one = Freeing(asyncio.get_running_loop(), frees)
        assert frees.begun == 1
        frees.left = 5 * SLICE + 1
        async with asyncio.timeout(120):
            await frees.over.wait()
        assert max(frees.slices) == SLICE
        one.stop()
        assert frees.begun == 0
        frees.left, looked = 1, len(frees.slices)
        await asyncio.sleep(0.01)
        assert len(frees.slices) == looked, "it frees no more"

    asyncio.run(scene())
