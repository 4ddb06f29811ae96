"""What comes from other members before this one is ready for it."""

from __future__ import annotations

from typing import cast

from holdfast.config import Settings
from holdfast.core.machine import Address, MemberId
from holdfast.engine.driver import Driver
from holdfast.runtime.peers import WHISPER, Greeting, Network

HERE = Address("127.0.0.1", 1)
THERE = Address("127.0.0.1", 2)
GREETING = Greeting(MemberId("other"), THERE.host, THERE.port, b"")


class Ear:
    """Stands for the driver: remembers what it was told."""

    def __init__(self) -> None:
        self.whispers: list[bytes] = []

    def whispered(self, address: Address, data: bytes) -> None:
        assert address == THERE
        self.whispers.append(data)


def test_what_comes_before_the_member_is_there_is_lost_and_harms_nothing() -> None:
    made = Network(Settings(), "me", HERE)
    made.arrived(GREETING, WHISPER, b"anyone?")
    ear = Ear()
    made.begin(cast("Driver", ear))
    made.arrived(GREETING, WHISPER, b"anyone now?")
    assert ear.whispers == [b"anyone now?"]
