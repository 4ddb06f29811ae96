"""How often clients are told of changes."""

from __future__ import annotations

import asyncio

from holdfast.server.member_grid import Sparing

LONG_S, SHORT_S = 3600.0, 0.001


async def turn() -> None:
    """Let the loop do what is due now."""
    for _ in range(3):
        await asyncio.sleep(0)


async def soon_and_not_again() -> list[int]:
    calls: list[int] = []
    sparing = Sparing(lambda: calls.append(1), LONG_S, asyncio.get_running_loop())
    counts = [len(calls)]
    sparing.ask()
    sparing.ask()
    await turn()
    counts.append(len(calls))
    sparing.ask()
    await turn()
    counts.append(len(calls))
    sparing.now()
    sparing.now()
    counts.append(len(calls))
    sparing.ask()
    sparing.end()
    sparing.now()
    counts.append(len(calls))
    return counts


def test_several_wishes_make_one_call_at_once_and_then_none_for_a_while() -> None:
    counts = asyncio.run(soon_and_not_again())
    assert counts[:3] == [0, 1, 1]
    assert counts[3] == 2, "unless it must be now, once"
    assert counts[4] == 2, "or nobody wants it any more"


async def every_time() -> None:
    called = asyncio.Event()
    sparing = Sparing(called.set, SHORT_S, asyncio.get_running_loop())
    for _ in range(3):
        called.clear()
        sparing.ask()
        await asyncio.wait_for(called.wait(), 20)


def test_no_wish_is_forgotten() -> None:
    asyncio.run(every_time())
