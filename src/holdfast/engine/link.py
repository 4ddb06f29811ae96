"""A reliable, ordered road to one life of one member, over a network that may lose, double, delay and reorder packets.

Each packet carries its road, its number and the highest number received in order from the other side. What is not
acknowledged in time is sent again. Both ends begin at 1 with every new life of either member, and the road names both
lives: a packet of an earlier life, or for another member that lived at the same address, has no effect (DESIGN rule 9).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import mmh3

from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.errors import ProtocolError

HEADER = struct.Struct("<QQQ")
RESEND_NS = 1000 * MILLISECOND
ACKNOWLEDGE_NS = 40 * MILLISECOND
RESEND_PACKETS = 64
"""What is sent again at a time, at first; when that was acknowledged twice as many, up to what the other side keeps
early: a busy link must make up for what it lost faster than more comes.
"""
AHEAD_PACKETS = 1024
"""Packets that came too early and are kept; beyond these they are dropped, and will be sent again."""
ACKNOWLEDGE_BYTES = 256 * 1024

Read = TypeVar("Read")
"""What a payload is made into when it comes."""
Life = tuple[MemberId, int]
"""A member in one of its lives."""


def road_between(here: Life, there: Life) -> int:
    """64 bits that name the road between two lives of two members, the same at both ends."""
    ends = "|".join(f"{uuid}/{life}" for uuid, life in sorted((here, there)))
    return int(mmh3.hash64(ends, signed=False)[0])


class Link(Generic[Read]):
    """One direction's numbers and the other's acknowledgements."""

    __slots__ = (
        "_again",
        "_ahead",
        "_owed",
        "_owed_bytes",
        "_owed_since_ns",
        "_received",
        "_repeated",
        "_resend_at_ns",
        "_road",
        "_sent",
        "_unsure",
        "unacknowledged_bytes",
    )

    def __init__(self, road: int) -> None:
        self._road = road
        self._sent = 0
        self._unsure: deque[tuple[int, bytes]] = deque()
        self.unacknowledged_bytes = 0
        """Of what was sent, and the other side has not said to have."""
        self._received = 0
        self._ahead: dict[int, Read] = {}
        self._owed = False
        self._owed_bytes = 0
        self._owed_since_ns = 0
        self._resend_at_ns = 0
        self._repeated = 0
        """Number of the last packet that was sent again; 0 when its acknowledgement has come."""
        self._again = RESEND_PACKETS
        """How many packets are sent again at a time."""

    def send(self, payload: bytes, now_ns: int) -> bytes:
        """The packet for a new payload."""
        assert not self._unsure or self._unsure[-1][0] == self._sent, "packets are numbered one by one"
        self._sent += 1
        if not self._unsure:
            self._resend_at_ns = now_ns + RESEND_NS
        self._unsure.append((self._sent, payload))
        self.unacknowledged_bytes += len(payload)
        return self._packet(self._sent, payload)

    def _packet(self, number: int, payload: bytes) -> bytes:
        self._owed = False
        self._owed_bytes = 0
        return HEADER.pack(self._road, number, self._received) + payload

    def carries(self, packet: bytes | memoryview) -> bool:
        """Whether the packet is of this road: between these lives of both ends. One without header is not."""
        return packet[:8] == self._road.to_bytes(8, "little")

    def receive(
        self, packet: bytes | memoryview, now_ns: int, read: Callable[[bytes | memoryview], Read]
    ) -> list[Read]:
        """What `read` makes of the payloads that can be handed on now, in order. It is given a view of a packet that is
        one, and keeps nothing of it.

        Raises ProtocolError on a packet without header, or that acknowledges what was never sent; and what `read`
        raises. Then the packet has not come: it is not acknowledged, and what comes in its place counts.
        """
        if len(packet) < HEADER.size:
            raise ProtocolError(f"a packet of {len(packet)} bytes has no header")
        road, number, acknowledged = HEADER.unpack_from(packet)
        if road != self._road:
            return []
        if acknowledged > self._sent:
            raise ProtocolError(f"packet {acknowledged} is acknowledged, and {self._sent} were sent")
        again = number <= self._received
        early = number > self._received + 1
        if early and (len(self._ahead) >= AHEAD_PACKETS or number in self._ahead):
            wanted = False
        else:
            wanted = number > 0 and not again
        ready = [read(packet[HEADER.size :])] if wanted else []
        while self._unsure and self._unsure[0][0] <= acknowledged:
            self.unacknowledged_bytes -= len(self._unsure.popleft()[1])
            self._resend_at_ns = now_ns + RESEND_NS
        assert self._unsure or not self.unacknowledged_bytes, "what has arrived is not counted any more"
        if self._repeated and acknowledged >= self._repeated:
            # What was sent again has arrived: go on with the rest, at the pace of the acknowledgements.
            self._repeated, self._resend_at_ns = 0, now_ns
            self._again = min(2 * self._again, AHEAD_PACKETS) if self._unsure else RESEND_PACKETS
        if number == 0:
            return []
        if not self._owed:
            self._owed, self._owed_since_ns = True, now_ns
        self._owed_bytes += len(packet)
        if again or not ready:
            return ready
        if early:
            self._ahead[number] = ready[0]
            assert len(self._ahead) <= AHEAD_PACKETS, "no more is kept early than may be"
            return []
        self._received = number
        while self._received + 1 in self._ahead:
            self._received += 1
            ready.append(self._ahead.pop(self._received))
        assert not self._ahead or self._received + 1 not in self._ahead, "what can be handed on is"
        return ready

    def due(self, now_ns: int) -> list[bytes]:
        """Packets that should go out now by themselves: repeats, or an acknowledgement that found no other to
        ride on.
        """
        packets: list[bytes] = []
        if self._unsure and self._resend_at_ns <= now_ns:
            if self._repeated:
                # Also what was sent again has not arrived.
                self._again = RESEND_PACKETS
            packets = self.repeat(now_ns, self._again)
        late = now_ns - self._owed_since_ns >= ACKNOWLEDGE_NS or self._owed_bytes >= ACKNOWLEDGE_BYTES
        if self._owed and late and not packets:
            packets.append(self._packet(0, b""))
        return packets

    def repeat(self, now_ns: int, limit: int | None = None) -> list[bytes]:
        """What may have been lost, again: after silence, or when the network has made a new connection."""
        self._resend_at_ns = now_ns + RESEND_NS
        oldest = list(self._unsure)[:limit]
        assert not oldest or oldest[-1][0] <= self._sent, "only what was sent is sent again"
        self._repeated = oldest[-1][0] if limit is not None and oldest else 0
        return [self._packet(number, payload) for number, payload in oldest]

    @property
    def open(self) -> bool:
        """Whether something waits to be acknowledged, by the other side or by this one."""
        return self._owed or bool(self._unsure)

    @property
    def owes_bytes(self) -> bool:
        """Whether so much has come that it should be acknowledged at once."""
        return self._owed_bytes >= ACKNOWLEDGE_BYTES

    @property
    def early(self) -> int:
        """Packets that came before others which are still missing."""
        return len(self._ahead)

    @property
    def unacknowledged(self) -> int:
        """Packets that the other side has not confirmed."""
        return len(self._unsure)
