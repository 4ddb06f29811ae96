"""What comes from other members before this one is ready for it."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from holdfast.config import Settings
from holdfast.core.machine import Address, MemberId
from holdfast.engine.driver import Driver
from holdfast.runtime import peers
from holdfast.runtime.peers import PACKET, WHISPER, Greeting, Network

HERE = Address("127.0.0.1", 1)
THERE = Address("127.0.0.1", 2)
OTHER = MemberId("other")
GREETING = Greeting(OTHER, THERE.host, THERE.port, b"")


class Ear:
    """Stands for the driver: remembers what it was told."""

    def __init__(self) -> None:
        self.packets: list[bytes] = []
        self.whispers: list[bytes] = []

    def packet(self, sender: MemberId, packet: bytes) -> None:
        assert sender == OTHER
        self.packets.append(packet)

    def whispered(self, address: Address, data: bytes) -> None:
        assert address == THERE
        self.whispers.append(data)


def network(ear: Ear, life: int = 1) -> Network:
    made = Network(Settings(), "me", HERE)
    made.own_life = lambda: life
    made.begin(cast("Driver", ear))
    return made


def test_what_comes_before_the_member_is_there_is_lost_and_harms_nothing() -> None:
    made = Network(Settings(), "me", HERE)
    made.arrived(GREETING, WHISPER, (0, 0), b"anyone?")
    ear = Ear()
    made.begin(cast("Driver", ear))
    made.arrived(GREETING, WHISPER, (0, 0), b"anyone now?")
    assert ear.whispers == [b"anyone now?"]


async def told_later(made: Network, life: int) -> None:
    made.open(OTHER, life, THERE)
    await asyncio.sleep(0)


def test_packets_of_a_member_that_is_not_known_yet_wait_until_it_is() -> None:
    ear = Ear()
    made = network(ear)
    made.arrived(GREETING, PACKET, (4, 1), b"first")
    made.arrived(GREETING, PACKET, (4, 1), b"second")
    assert ear.packets == []
    asyncio.run(told_later(made, 4))
    made.arrived(GREETING, PACKET, (4, 1), b"third")
    assert ear.packets == [b"first", b"second", b"third"]


def test_packets_for_a_life_that_this_member_is_about_to_begin_wait_for_it() -> None:
    ear = Ear()
    made = network(ear)
    made.arrived(GREETING, PACKET, (2, 7), b"welcome")
    made.own_life = lambda: 7
    asyncio.run(told_later(made, 2))
    assert ear.packets == [b"welcome"]


@pytest.mark.parametrize(("sender", "receiver"), [(3, 5), (4, 4)])
def test_packets_of_lives_that_are_over_are_dropped(sender: int, receiver: int) -> None:
    ear = Ear()
    made = network(ear, life=5)
    asyncio.run(told_later(made, 4))
    made.arrived(GREETING, PACKET, (sender, receiver), b"late")
    made.close(OTHER)
    made.arrived(GREETING, PACKET, (4, 5), b"later")
    asyncio.run(told_later(made, 4))
    assert ear.packets == []


def test_what_waits_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "EARLY_BYTES_MAX", 10)
    ear = Ear()
    made = network(ear)
    for _ in range(3):
        made.arrived(GREETING, PACKET, (4, 1), b"12345")
    asyncio.run(told_later(made, 4))
    assert ear.packets == [b"12345", b"12345"]
    made.arrived(GREETING, PACKET, (5, 1), b"12345")
    asyncio.run(told_later(made, 5))
    assert ear.packets == [b"12345"] * 3
