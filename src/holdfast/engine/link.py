"""Reliable, ordered delivery between one life of this member and one of another, over a lossy network.

Each packet carries the link's id, its number, and the highest number received in order from the other side;
unacknowledged packets are repeated. Example: the receiver has 1 to 4, then 6 and 7 arrive. It keeps 6 and 7 and
acknowledges 4; when 5 is repeated it delivers 5, 6, 7 and acknowledges 7.

The id is a hash of both lives, and numbers begin at 1 with every new life. So a packet of an earlier life, or for
another member that used the same address, has no effect (DESIGN rule 9).
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
"""Packets in the first repetition. Doubled after each acknowledged one, up to `AHEAD_PACKETS`: a busy link
must recover lost packets faster than new ones arrive.
"""
AHEAD_PACKETS = 1024
"""Early packets are kept up to so many numbers ahead of the last one in order; the sender repeats dropped ones. A mere
limit of their count would let packets that are far ahead keep out the next ones. Example: 1 to 4 have arrived, and
2,000 to 3,023 are kept. 6 arrives before 5: if it was dropped, a repetition that comes in another order would bring
the link forward by one packet at a time.
"""
ACKNOWLEDGE_BYTES = 256 * 1024

Read = TypeVar("Read")
Life = tuple[MemberId, int]


def road_between(here: Life, there: Life) -> int:
    ends = "|".join(f"{uuid}/{life}" for uuid, life in sorted((here, there)))
    return int(mmh3.hash64(ends, signed=False)[0])


class Link(Generic[Read]):
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
        self._received = 0
        self._ahead: dict[int, Read] = {}
        self._owed = False
        self._owed_bytes = 0
        self._owed_since_ns = 0
        self._resend_at_ns = 0
        self._repeated = 0
        """Last packet of the running repetition; 0 when that is acknowledged."""
        self._again = RESEND_PACKETS

    def send(self, payload: bytes, now_ns: int) -> bytes:
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
        return packet[:8] == self._road.to_bytes(8, "little")

    def receive(
        self, packet: bytes | memoryview, now_ns: int, read: Callable[[bytes | memoryview], Read]
    ) -> list[Read]:
        """Decode a packet with `read`, and return the payloads that are next in order. `read` may get a view
        of the packet and must not keep it.

        Raises ProtocolError for a packet without header or with an impossible acknowledgement, and errors of
        `read`. The packet then counts as lost: the sender will repeat it.
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
        if early and (number > self._received + AHEAD_PACKETS or number in self._ahead):
            wanted = False
        else:
            wanted = number > 0 and not again
        ready = [read(packet[HEADER.size :])] if wanted else []
        while self._unsure and self._unsure[0][0] <= acknowledged:
            self.unacknowledged_bytes -= len(self._unsure.popleft()[1])
            self._resend_at_ns = now_ns + RESEND_NS
        assert self._unsure or not self.unacknowledged_bytes, "what has arrived is not counted any more"
        if self._repeated and acknowledged >= self._repeated:
            # The repetition has arrived: repeat more, at the pace of the acknowledgements.
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
        """Packets to send now: a repetition, or an acknowledgement that no other packet has carried."""
        packets: list[bytes] = []
        if self._unsure and self._resend_at_ns <= now_ns:
            if self._repeated:
                self._again = RESEND_PACKETS
            packets = self.repeat(now_ns, self._again)
        late = now_ns - self._owed_since_ns >= ACKNOWLEDGE_NS or self._owed_bytes >= ACKNOWLEDGE_BYTES
        if self._owed and late and not packets:
            packets.append(self._packet(0, b""))
        return packets

    def repeat(self, now_ns: int, limit: int | None = None) -> list[bytes]:
        self._resend_at_ns = now_ns + RESEND_NS
        oldest = list(self._unsure)[:limit]
        assert not oldest or oldest[-1][0] <= self._sent, "only what was sent is sent again"
        self._repeated = oldest[-1][0] if limit is not None and oldest else 0
        return [self._packet(number, payload) for number, payload in oldest]

    @property
    def open(self) -> bool:
        return self._owed or bool(self._unsure)

    @property
    def owes_bytes(self) -> bool:
        return self._owed_bytes >= ACKNOWLEDGE_BYTES

    @property
    def early(self) -> int:
        return len(self._ahead)

    @property
    def unacknowledged(self) -> int:
        return len(self._unsure)
