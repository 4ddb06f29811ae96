"""Steps of a member that requests of one turn share."""

from __future__ import annotations

from collections.abc import Callable


def _nothing() -> None:
    """No step of this member is shared."""


class SharedSteps:
    __slots__ = ("_end", "number")

    def __init__(self, end: Callable[[], None] = _nothing) -> None:
        self.number = 0
        """The number of the step in which a request would be handled now."""
        self._end = end

    def end(self, number: int) -> None:
        """Send what requests of this step have caused so far, apart from what follows; nothing if it has ended."""
        if number == self.number:
            self._end()
