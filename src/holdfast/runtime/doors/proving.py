"""Checks passwords in a thread, one at a time, while the loop goes on (`server.logins.Prover`).

The addresses that wait have their turns, so one that sends many keeps nobody else waiting for longer than one of its
own.
How many wait is bounded by `limits.unauthenticated_connections`: each is a connection that has not proved who it is.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from holdfast.config.verifiers import PasswordVerifier


class _Proof(NamedTuple):
    """What is to be checked."""

    verifiers: tuple[PasswordVerifier, ...]
    password: str
    needed: Callable[[], bool]
    done: Callable[[bool], None]

    def made(self) -> bool:
        """Whether it is right. All are looked at, so that it takes equally long."""
        found = [verifier.matches(self.password) for verifier in self.verifiers]
        return any(found)


class Proving:
    """Of one member."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-proving")
        self._waiting: OrderedDict[str, deque[_Proof]] = OrderedDict()
        self._busy = False
        self._stopped = False

    def prove(
        self,
        verifiers: tuple[PasswordVerifier, ...],
        password: str,
        address: str,
        needed: Callable[[], bool],
        done: Callable[[bool], None],
    ) -> None:
        """See `Prover`."""
        self._waiting.setdefault(address, deque()).append(_Proof(verifiers, password, needed, done))
        self._begin()

    def _next(self) -> _Proof | None:
        while self._waiting:
            address, waiting = self._waiting.popitem(last=False)
            proof = waiting.popleft()
            if waiting:
                self._waiting[address] = waiting
            if proof.needed():
                return proof
        return None

    def _begin(self) -> None:
        if self._busy or self._stopped:
            return
        proof = self._next()
        if proof is None:
            return
        self._busy = True
        made = self._loop.run_in_executor(self._thread, proof.made)
        made.add_done_callback(lambda made: self._made(proof, made))

    def _made(self, proof: _Proof, made: asyncio.Future[bool]) -> None:
        self._busy = False
        if not self._stopped:
            proof.done(made.exception() is None and made.result())
            self._begin()

    def stop(self) -> None:
        """Nobody waits any more."""
        self._stopped = True
        self._waiting.clear()
        self._thread.shutdown(wait=False, cancel_futures=True)
