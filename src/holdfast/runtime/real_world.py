"""The real clock, network, dice and event loop, as a member's engine sees them (`engine.ports.World`)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Protocol

from holdfast.config import Settings
from holdfast.core.effects import Note
from holdfast.core.model.ids import Address, MemberId
from holdfast.engine.ports import ProcessorRunner
from holdfast.runtime.peering.member_network import MemberNetwork
from holdfast.runtime.processor_threads import processor_threads


class WorldOwner(Protocol):
    def guard(self, deed: Callable[[], None]) -> None: ...

    def tick(self) -> None:
        """A deadline of the engine is over."""

    def stopped(self, why: str) -> None: ...


class RealWorld:
    """Implements `engine.ports.World` for one member. It has one timer: for the engine's next deadline."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        network: MemberNetwork,
        owner: WorldOwner,
        note: Callable[[Note], None],
    ) -> None:
        self._note = note
        self._loop = loop
        self._network = network
        self._owner = owner
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ns = 0

    now_ns = staticmethod(time.monotonic_ns)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def jitter(self, limit_ns: int) -> int:
        return random.randint(0, limit_ns)  # noqa: S311  (spreads retries; no secret)

    def open(self, member: MemberId, address: Address) -> None:
        self._network.open(member, address)

    def close(self, member: MemberId) -> None:
        self._network.close(member)

    def carry(self, member: MemberId, packet: bytes) -> None:
        self._network.carry(member, packet)

    def hold(self) -> None:
        self._network.hold()

    def release(self) -> None:
        self._network.release()

    def send_datagram(self, address: Address, data: bytes) -> None:
        self._network.send_datagram(address, data)

    def shuffle(self, effects: list[object]) -> None:
        """Only the simulator changes their order."""

    def note(self, note: Note) -> None:
        self._note(note)

    def stopped(self, why: str) -> None:
        self._owner.stopped(why)

    def soon(self, deed: Callable[[], None]) -> None:
        self._loop.call_soon(self._owner.guard, deed)

    def wake_at(self, deadline_ns: int) -> None:
        if self._timer is not None:
            if self._timer_at_ns <= deadline_ns:
                return
            self._timer.cancel()
        self._timer_at_ns = deadline_ns
        delay_s = max(0, deadline_ns - time.monotonic_ns()) / 1e9
        self._timer = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._owner.tick()

    def processors(self, settings: Settings) -> ProcessorRunner | None:
        """None: the settings have no entry processors. Raises ConfigError."""
        return processor_threads(settings, self._loop, self._owner.guard)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
