"""Password checks in a thread, one at a time, while the event loop runs (`server.logins.Prover`).

Addresses take turns: if one sends 100 logins and another sends 1, the latter waits for at most one of the
former's. The queue is bounded by `limits.unauthenticated_connections`, since each check belongs to such a
connection.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from holdfast.config.verifiers import PasswordVerifier


class _Proof(NamedTuple):
    verifiers: tuple[PasswordVerifier, ...]
    password: str
    needed: Callable[[], bool]
    done: Callable[[bool], None]

    def made(self) -> bool:
        """Whether the password is right. Every verifier is tried, so that the time does not depend on the
        matching one.
        """
        found = [verifier.matches(self.password) for verifier in self.verifiers]
        return any(found)


class Proving:
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
        self._stopped = True
        self._waiting.clear()
        self._thread.shutdown(wait=False, cancel_futures=True)
