"""Requests for other members: the way from the data lane into the member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.core.model.forwarded_frames import ForwardedDone, ForwardedPart, OutgoingFrames


class FrameForwards(Protocol):
    away: list[OutgoingFrames | None]
    """By partition; None: the lane does not forward its requests."""
    expected_bytes: int

    def stays(self, name: str) -> bool:
        """Whether the lane does not forward requests for this map."""

    def forward(self, part: ForwardedPart, done: Callable[[ForwardedDone], None]) -> None:
        """Forward one read buffer's requests for another member at the end of the turn; `done` is called once."""
