"""Flow control of supplies: chunks in flight, and the queue of those that wait for room (state_transfer/S-5)."""

from __future__ import annotations

from collections import deque

from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.sync_request import How
from holdfast.core.state_transfer.supply import Supply
from holdfast.core.store.chunk import Chunk

TO_ONE_BYTES = 524_288
"""To one member, in addition to one chunk: enough to keep both sides busy. More would delay messages that clients wait
for and that share the link: records of moving partitions, forwarded requests.
"""


class SupplyFlow:
    def __init__(self, rows: list[Assignment], most: int) -> None:
        """`most`: bytes in flight of all supplies. One chunk may always be sent."""
        self._rows = rows
        self.most = most
        self._held_up: deque[Supply] = deque()
        self.flight = 0
        """Bytes."""
        self._to: dict[MemberId, int] = {}
        """Bytes by receiver."""
        self.bytes_sent = 0
        self.chunks_sent = 0
        self.bytes_history = self.bytes_ranges = self.bytes_full = 0
        """Bytes sent: missed updates, key ranges that differed, and the rest."""

    def hold(self, supply: Supply, chunk: Chunk) -> None:
        assert supply.ready is None, "one chunk at a time (state_transfer/S-5)"
        assert not supply.flight, (
            "what is on its way is acknowledged before the next is ready (state_transfer/S-5)"
        )
        supply.ready = chunk
        self._held_up.append(supply)

    def next(self) -> tuple[Supply, Chunk] | None:
        """Remove the first chunk that has room in flight and is still wanted."""
        later: list[Supply] = []
        found: tuple[Supply, Chunk] | None = None
        while self._held_up and found is None:
            supply = self._held_up[0]
            chunk = supply.ready
            if chunk is not None and supply.version == self._rows[supply.partition].version:
                if self.flight and self.flight + chunk.size > self.most:
                    break
                before = self._to.get(supply.to, 0)
                if before and before + chunk.size > TO_ONE_BYTES:
                    later.append(supply)
                else:
                    supply.ready = None
                    assert not self.flight or self.flight + chunk.size <= self.most, (
                        "there is room (state_transfer/S-5)"
                    )
                    found = supply, chunk
            self._held_up.popleft()
        self._held_up.extendleft(reversed(later))
        return found

    def leaves(self, supply: Supply, chunk: Chunk) -> None:
        assert not supply.flight, "one chunk at a time (state_transfer/S-5)"
        assert chunk.size == sum(chunk.sizes.values()), "each byte is of one kind"
        supply.flight = chunk.size
        supply.bytes += chunk.size
        self.flight += chunk.size
        self._to[supply.to] = self._to.get(supply.to, 0) + chunk.size
        self.bytes_sent += chunk.size
        self.bytes_history += chunk.sizes[How.HISTORY]
        self.bytes_ranges += chunk.sizes[How.RANGES]
        self.bytes_full += chunk.sizes[How.FULL]
        self.chunks_sent += 1
        assert self.flight <= self.bytes_sent, "what is on its way was sent"

    def lands(self, supply: Supply) -> None:
        self.flight -= supply.flight
        if supply.flight:
            left = self._to.pop(supply.to) - supply.flight
            assert left >= 0, "no more lands than was sent there"
            if left:
                self._to[supply.to] = left
        supply.flight = 0
        assert self.flight >= 0, "no more lands than was sent"

    def reset(self) -> None:
        self._held_up.clear()
        self._to.clear()
        self.flight = 0
