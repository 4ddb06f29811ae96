"""Passwords are checked in a thread, the addresses in turn, and only while somebody waits."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.config.verifiers import PasswordVerifier
from holdfast.runtime.doors.proving import Proving


class Slow(PasswordVerifier):
    """A verifier that takes until the test says so, and notes who was checked."""

    gate = threading.Semaphore(0)
    checked: list[str] = []  # noqa: RUF012  (of this file)

    def matches(self, password: str) -> bool:
        assert threading.current_thread() is not threading.main_thread()
        self.gate.acquire()
        self.checked.append(password)
        return password == "right"


SLOW = (Slow(2, 1, 1, b"", b""),)


@pytest.mark.rule("server/L-4")
def test_checks_are_made_in_a_thread_and_the_addresses_have_their_turns() -> None:
    async def run() -> None:
        proving = Proving(asyncio.get_running_loop())
        told: list[tuple[str, bool]] = []
        over = asyncio.Event()
        Slow.checked.clear()

        def ask(password: str, address: str, *, needed: bool = True) -> None:
            def done(right: bool) -> None:
                told.append((password, right))
                if len(told) == 5:
                    over.set()

            proving.prove(SLOW, password, address, lambda: needed, done)

        for number in range(3):
            ask(f"guess {number}", "a")
        ask("nobody waits", "c", needed=False)
        ask("right", "b")
        ask("last", "b")
        await asyncio.sleep(0)
        assert not told, "the loop has gone on"
        for _ in range(5):
            Slow.gate.release()
        await asyncio.wait_for(over.wait(), 120)
        assert Slow.checked == ["guess 0", "guess 1", "right", "guess 2", "last"]
        assert dict(told)["right"] is True
        assert sum(right for _, right in told) == 1
        proving.stop()

    asyncio.run(run())


def test_who_is_told_nothing_after_the_end() -> None:
    async def run() -> None:
        proving = Proving(asyncio.get_running_loop())
        told: list[bool] = []
        proving.prove(SLOW, "right", "a", lambda: True, told.append)
        proving.prove(SLOW, "right", "b", lambda: True, told.append)
        proving.stop()
        Slow.gate.release()
        await asyncio.sleep(0.05)
        assert told == []

    asyncio.run(run())
