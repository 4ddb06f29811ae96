"""What keeps the event loop: a stall is seen, rest is none, and the collector neither stalls nor forgets."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import cast

from tests.cluster.crew import until
from tests.core.store.noted import deadlines

from holdfast.client.blocking import Client
from holdfast.config import load
from holdfast.core.store.expiry import Expiry
from holdfast.core.store.map_state import MapState
from holdfast.runtime.doors.clients import Connection
from holdfast.runtime.in_process.embedded import Member
from holdfast.runtime.stalls import LOOK_S, StallGauge

SETTINGS: dict[str, object] = {"member.member_port": 0, "member.client_port": 0, "partitions.count": 7}


class TimedLoop:
    """Calls what is due when it is told that it is then."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.due_s = 0.0
        self.deed: Callable[[], None] | None = None

    def call_later(self, delay_s: float, deed: Callable[[], None]) -> TimedLoop:
        self.due_s, self.deed = self.now_s + delay_s, deed
        return self

    def cancel(self) -> None:
        self.deed = None

    def turn(self, late_s: float = 0.0) -> None:
        """Go on to the moment that is due, or so much later."""
        self.now_s = self.due_s + late_s
        assert self.deed is not None
        self.deed()


def timed() -> tuple[TimedLoop, StallGauge]:
    loop = TimedLoop()
    return loop, StallGauge(cast("asyncio.AbstractEventLoop", loop), lambda: loop.now_s)


def told(gauge: StallGauge) -> tuple[object, object]:
    figures = gauge.status()
    return figures.longest_in_last_minute_ms, figures.longest_ms


def test_timers_in_time_are_no_stall() -> None:
    loop, gauge = timed()
    for _ in range(round(200 / LOOK_S)):
        loop.turn()
    assert told(gauge) == (0.0, 0.0)


def test_the_longest_of_the_last_minute_and_of_all() -> None:
    loop, gauge = timed()
    loop.turn(late_s=0.5)
    loop.turn(late_s=0.3)
    assert told(gauge) == (500.0, 500.0)
    while loop.now_s < 1050:
        loop.turn()
    loop.turn(late_s=0.25)
    assert told(gauge) == (500.0, 500.0)
    while loop.now_s < 1070:
        loop.turn()
    assert told(gauge) == (250.0, 500.0)
    while loop.now_s < 1200:
        loop.turn()
    assert told(gauge) == (0.0, 500.0)


def test_a_gauge_that_was_stopped_looks_no_more() -> None:
    loop, gauge = timed()
    gauge.stop()
    assert loop.deed is None


def test_a_member_tells_of_a_callback_that_kept_its_loop() -> None:
    async def story() -> None:
        async with Member(load(None, {}, SETTINGS)) as member:
            asyncio.get_running_loop().call_soon(time.sleep, 0.4)
            await asyncio.sleep(0.05)
            stalls = member._node.status().stalls
            assert stalls is not None
            # Of the 400 ms the timer may have been set one interval before its time.
            assert 1000 * (0.4 - 2 * LOOK_S) <= stalls.longest_ms == stalls.longest_in_last_minute_ms

    asyncio.run(story())


# -- the collector


def test_nothing_of_an_entry_is_looked_at_by_the_collector() -> None:
    state = MapState("m")
    for number in range(1000):
        key = b"%d" % number
        state.store(key, b"x" * 100, ttl_ms=number % 2 * 60_000, max_idle_ms=0, key_hash=number, now_ns=1)
    gc.collect()
    assert len(state.expiries) == 500
    assert not any(map(gc.is_tracked, (state.entries, state.expiries, state.hashes)))
    assert not any(map(gc.is_tracked, [*state.expiries.values(), *deadlines(state)]))


def test_the_expiry_of_a_copy_goes_its_own_way() -> None:
    expiry = Expiry(5, 6, 7, 8, 9)
    other = expiry.copy()
    assert other == expiry
    other.accessed_ns = 1
    assert expiry.accessed_ns == 8


PROGRAM = """
import asyncio, gc, json, weakref
from holdfast.runtime.stalls import PENDING, CollectorControl

class Cycle:
    def __init__(self):
        self.me = self

def grow(count):
    return [[number] for number in range(count)]

def look_when_due():
    while gc.get_count()[2] < PENDING:
        gc.collect(1)
    kept.look()

pace_s = now_s = 0.0
def clock():
    global now_s
    now_s += pace_s
    return now_s

kept = CollectorControl(clock=clock)
loop = asyncio.new_event_loop()
kept.begin(loop)
told = {"seen_at_begin": len(gc.get_objects())}
holds = grow(10_000)
kept.look()
told["count"] = gc.get_count()[2]
look_when_due()
told["short"] = len(gc.get_objects())
pace_s = 1.0
look_when_due()
told["long"] = len(gc.get_objects())
# What is out of sight is freed all the same, and cycles that are made afterwards are found.
pace_s = 0.0
before = gc.get_freeze_count()
del holds
told["freed"] = before - gc.get_freeze_count()
made = [weakref.ref(Cycle()) for _ in range(10_000)]
look_when_due()
told["cycles_left"] = sum(one() is not None for one in made)
# It goes on looking by itself.
while gc.get_count()[2] < PENDING:
    gc.collect(1)
async def until_collected():
    while gc.get_count()[2] >= PENDING:
        await asyncio.sleep(0.01)
loop.run_until_complete(asyncio.wait_for(until_collected(), 120))
loop.close()
print(json.dumps(told))
"""


def test_what_survives_a_long_collection_is_not_gone_through_again() -> None:
    """In a process of its own: what is frozen there is nobody else's."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    assert found["seen_at_begin"] < 1000
    assert found["count"] > 0, "too little has come to look at everything"
    assert found["short"] > 10_000
    assert found["long"] < 1000
    assert found["freed"] >= 10_000
    assert found["cycles_left"] == 0


def test_clients_that_come_and_go_leave_nothing_behind() -> None:
    """Neither what the collector has out of its sight nor what it finds grows with them."""

    def come_and_go(address: str, times: int) -> None:
        for _ in range(times):
            with Client(address) as client:
                client.set("m", b"key", b"value")

    async def story() -> None:
        async with Member(load(None, {}, SETTINGS)) as member:
            loop, door = asyncio.get_running_loop(), member._node._door
            counts = []
            # Nothing is collected meanwhile: what is dropped must go without that, wherever it was frozen.
            gc.collect()
            gc.disable()
            try:
                for _ in range(3):
                    await loop.run_in_executor(None, come_and_go, member.client_address, 20)
                    await until(lambda: not door.connections)
                    counts.append(sum(isinstance(one, Connection) for one in gc.get_objects()))
            finally:
                gc.enable()
            assert counts[-1] <= 3, counts

    asyncio.run(story())
