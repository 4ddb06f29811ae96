"""A link delivers every payload once and in order, whatever the network does to its packets."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.link import ACKNOWLEDGE_NS, RESEND_NS, Link

STEP_NS = 10_000_000


Got = list[bytes | memoryview]


def exchange(seed: int, count: int, loss: float, twice: float) -> tuple[Got, Got, Link, Link]:
    """Two links over a network of that kind; answers what each side received."""
    draw = random.Random(seed)
    here, there = Link(), Link()
    wire: list[tuple[int, Link, bytes]] = []
    got: dict[int, Got] = {id(here): [], id(there): []}
    now = 0

    def put(to: Link, packet: bytes) -> None:
        copies = 2 if draw.random() < twice else 1
        arriving = [now + draw.randint(1, 50) * STEP_NS for _ in range(copies) if draw.random() >= loss]
        wire.extend((time, to, packet) for time in arriving)

    sent = 0
    for _ in range(20_000):
        now += STEP_NS
        if sent < count and draw.random() < 0.3:
            put(there, here.send(b"a%d" % sent, now))
            put(here, there.send(b"b%d" % sent, now))
            sent += 1
        for item in [item for item in wire if item[0] <= now]:
            wire.remove(item)
            got[id(item[1])] += item[1].receive(item[2], now)
        for link, other in ((here, there), (there, here)):
            for packet in link.due(now):
                put(other, packet)
        if sent == count and not wire and not here.open and not there.open:
            break
    return got[id(here)], got[id(there)], here, there


@given(st.integers(0, 10_000), st.integers(1, 25), st.floats(0, 0.4), st.floats(0, 0.4))
def test_every_payload_arrives_once_and_in_order(seed: int, count: int, loss: float, twice: float) -> None:
    at_here, at_there, here, there = exchange(seed, count, loss, twice)
    assert at_there == [b"a%d" % n for n in range(count)]
    assert at_here == [b"b%d" % n for n in range(count)]
    assert not here.unacknowledged
    assert not there.unacknowledged


def test_an_acknowledgement_waits_for_a_packet_to_ride_on_but_not_for_ever() -> None:
    here, there = Link(), Link()
    there.receive(here.send(b"x", 0), 0)
    assert there.due(ACKNOWLEDGE_NS - 1) == []
    (packet,) = there.due(ACKNOWLEDGE_NS)
    here.receive(packet, ACKNOWLEDGE_NS)
    assert not here.open


def test_what_is_not_acknowledged_is_sent_again() -> None:
    link = Link()
    first = link.send(b"x", 0)
    assert link.due(RESEND_NS - 1) == []
    assert link.due(RESEND_NS) == [first]
