"""Entries with a time to live in runs with files: each has its own key, is written once, and is read
repeatedly, before and after restarts of members.

An entry view shows the remaining time, so every read is evidence for the judge
(`holdfast_lab/check/times.py`), also of an entry that outlasts the run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast_lab.check.linearizability import Call
from holdfast_lab.check.linearizability import Outcome as Answered
from holdfast_lab.check.times import Remaining
from holdfast_lab.sim.calls import name_of, wire_key, wire_value
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import Process, World

CLIENT = "lifetimes"
TTLS_S = (20, 60, 120)
"""The shortest ends within a run, the longest outlasts most of its restarts."""
FIRST_KEY = 1000
"""Keys are `t1000`, `t1001`, …: the first letter names the map, and no other client uses these numbers."""
ANSWERED_NS = 60 * SECOND
AGAIN_NS = 100 * MILLISECOND


class Lifetimes:
    def __init__(
        self,
        world: World,
        cluster: Cluster,
        letters: str,
        map_of: Callable[[str], str],
        noted: Callable[[Call], None],
    ) -> None:
        self.world = world
        self.cluster = cluster
        self.random = random.Random(f"{world.seed}/lifetimes")
        self.running = False
        self.seen: list[Remaining] = []
        self._letters = letters
        self._map_of = map_of
        self._noted = noted
        self._written = 0
        self._open: list[str] = []
        self._writers: dict[str, Process] = {}

    def start(self) -> None:
        self.running = True
        self.world.after(self.random.randint(SECOND, 2 * SECOND), self._write_next)
        self.world.after(2 * SECOND, self._read_next)

    def _write_next(self) -> None:
        if not self.running:
            return
        self.world.after(self.random.randint(300, 900) * MILLISECOND, self._write_next)
        if living := self.cluster.living():
            process = self.random.choice(living)
            process.whenever_awake(partial(process.step, partial(self._write, process)))

    def _write(self, process: Process) -> None:
        key = f"{self._letters[self._written % len(self._letters)]}{FIRST_KEY + self._written}"
        self._written += 1
        ttl_s = self.random.choice(TTLS_S)
        value = f"{CLIENT}.{self._written}"
        call = Call("set", key, self.world.now_ns, argument=value, client=CLIENT, ttl=ttl_s * SECOND)
        self._noted(call)

        def answered(outcome: Outcome) -> None:
            if outcome.status is Status.UNKNOWN or process.dead:
                return
            call.end = self.world.now_ns
            call.outcome = Answered.DONE if outcome.status is Status.OK else Answered.REFUSED
            if call.outcome is Answered.DONE:
                self._open.append(key)
                self._writers[key] = process

        process.driver.execute(
            self._request(Op.SET, key, value=wire_value(value), ttl_ms=ttl_s * 1000), answered
        )

    def _request(self, op: Op, key: str, *, value: bytes = b"", ttl_ms: int = 0) -> Request:
        raw = wire_key(key)
        partition = partition_of(raw, 0, self.cluster.settings.partitions.count)
        return Request(op, self._map_of(key), [partition], raw, value, ttl_ms=ttl_ms)

    def _read_next(self) -> None:
        if not self.running:
            return
        self.world.after(self.random.randint(100, 300) * MILLISECOND, self._read_next)
        living = self.cluster.living()
        if living and self._open:
            process, key = self.random.choice(living), self.random.choice(self._open)
            process.whenever_awake(partial(process.step, partial(self._read, process, key, lambda ok: None)))

    def _read(self, process: Process, key: str, done: Callable[[bool], None]) -> None:
        call = Call("get", key, self.world.now_ns, client=CLIENT)

        def answered(outcome: Outcome) -> None:
            if process.dead:
                return
            if outcome.status is Status.OK:
                call.end, call.outcome = self.world.now_ns, Answered.DONE
                call.result = name_of(outcome.value)
                self._noted(call)
                self._note(call, outcome)
            done(outcome.status is Status.OK)

        process.driver.execute(self._request(Op.ENTRY_VIEW, key), answered)

    def _note(self, call: Call, outcome: Outcome) -> None:
        view = outcome.value
        if isinstance(call.result, str) and isinstance(view, list):
            left_ms = view[3]
            assert isinstance(left_ms, int), "an entry view says how long the entry still has"
            if self._writers[call.key].dead:
                self.world.marks.hit("time to live over a restart")
            self.seen.append(Remaining(call, left_ms * MILLISECOND if left_ms >= 0 else None))
        elif call.key in self._open:
            self._open.remove(call.key)

    def look(self) -> list[str]:
        """Read all entries of a cluster at rest that may still exist. Returns errors if reads are not
        answered.
        """
        process = self.random.choice(self.cluster.living())
        missing = dict.fromkeys(self._open)

        def ask(key: str) -> None:
            process.step(partial(self._read, process, key, partial(told, key)))

        def told(key: str, ok: bool) -> None:
            if ok:
                missing.pop(key, None)
            else:
                # The number of requests that wait for other members is limited.
                self.world.after(AGAIN_NS, partial(ask, key))

        for key in list(missing):
            ask(key)
        self.world.run_until(self.world.now_ns + ANSWERED_NS, stop=lambda: not missing)
        if missing:
            return [f"entry views of {list(missing)[:10]} were not answered"]
        return []
