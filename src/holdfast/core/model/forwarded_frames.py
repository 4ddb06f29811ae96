"""Requests of clients that a member forwards as they came: frames of the client protocol, many in one message.

The core does not look into the frames. Example: a client on member 1 pipelines 32 gets; 20 belong to member 2. The data
lane of member 1 appends these 20 to the `OutgoingFrames` of member 2, they leave as one message, member 2 serves them
with its own data lane, and the bytes of the responses go to the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.model.ids import MemberId


class OutgoingFrames:
    """Requests of one read buffer for one member."""

    __slots__ = ("expected", "frames", "kinds", "owner")

    def __init__(self, owner: MemberId) -> None:
        self.owner = owner
        self.frames = bytearray()
        self.kinds = bytearray()
        """For each request its operation, by which sessions count it."""
        self.expected = 0
        """Estimated bytes of the responses."""

    def take(self) -> ForwardedPart:
        part = ForwardedPart(self.owner, bytes(self.frames), bytes(self.kinds), self.expected)
        self.expected = 0
        self.frames.clear()
        self.kinds.clear()
        return part


@dataclass(frozen=True, slots=True)
class ForwardedPart:
    """Requests of one read buffer for `owner`. The session gets one `ForwardedDone`."""

    owner: MemberId
    frames: bytes
    kinds: bytes
    expected: int

    @property
    def count(self) -> int:
        return len(self.kinds)


@dataclass(slots=True)
class ForwardedDone:
    """The end of a `ForwardedPart`."""

    answers: bytes = b""
    """Responses for the client."""
    withheld: bytes = b""
    """Responses to writes whose outcome is unknown, because of `why`."""
    again: Sequence[int] = ()
    """Requests, by their places, that the session must execute itself."""
    why: str = ""
    """The reason for an unknown outcome, `failed` or `doubtful`."""
    failed: bool = False
    """The owner did not answer: every request that may have changed something has an unknown outcome."""
    doubtful: bool = False
    """Those in `again` may have been applied already, because of `why`."""
    ids: tuple[bytes, int] | None = None
    """Ids of doubtful requests: prefix, and number of the first. None: the next primary cannot know them."""

    def id_of(self, place: int) -> bytes:
        if self.ids is None:
            return b""
        prefix, first = self.ids
        return numbered(prefix, first + place)


def numbered(prefix: bytes, number: int) -> bytes:
    """The id of a request."""
    return prefix + number.to_bytes(8, "big")


@dataclass(slots=True)
class ServedPart:
    answers: bytes
    withheld: bytes
    """Responses that wait until the lane's open batch is safe."""
    skipped: list[int]
    """Requests, by their places, that were not executed."""


class FrameServer(Protocol):
    """Serves forwarded requests with the data lane of this member, and looks into them."""

    def serve(
        self, parts: Sequence[tuple[int, bytes]], ids: tuple[bytes, int] | None, fenced: set[int]
    ) -> list[ServedPart]:
        """`parts`: number of requests, and their frames. The lane's batch stays open. `ids`: prefix, and number of the
        first request; None: the requests have no ids. Requests for `fenced` partitions are skipped, and the partitions
        of all skipped requests are added to it.
        """

    def places(self, frames: bytes) -> dict[str, set[int]]:
        """Maps and partitions of these requests."""


class MapAccess(Protocol):
    changes: int

    def is_closed(self, name: str) -> bool: ...
