"""A client that uses a queue, a counter, a lock and a semaphore, and records what it knows of them.

    python -m holdfast_lab.chaos.structure_calls --address HOST:PORT ... --client NAME > HISTORY

It runs the official Hazelcast client with several threads until standard input ends or has the line "stop". With the
line "empty" it takes what is left in the queue first. It prints a line of JSON for each call, which `note` reads.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import click

from holdfast.core.model.cp import CpKind
from holdfast_lab.chaos.recorded_calls import open_client
from holdfast_lab.check.structure_histories import (
    Addition,
    Holding,
    QueueHistory,
    judge_counter,
    judge_holders,
    judge_queue,
)

NAME = "chaos-structures"
"""Name of the queue, and of the CP group: both are in the same partition."""
PERMITS = 2
TAKE_S, REST_S, HELD_S = 2.0, 0.08, 0.03
EMPTY_S = 130.0

Line = dict[str, Any]


@dataclass(slots=True)
class StructureHistory:
    queue: QueueHistory = field(default_factory=QueueHistory)
    additions: list[Addition] = field(default_factory=list)
    holdings: dict[str, list[Holding]] = field(
        default_factory=lambda: {CpKind.LOCK: [], CpKind.SEMAPHORE: []}
    )
    count: int = 0
    """The counter at the end."""

    def note(self, line: Line) -> None:
        match line["what"]:
            case "offer":
                (self.queue.offered if line["known"] else self.queue.perhaps).add(line["item"])
            case "take" if not line["known"]:
                self.queue.unknown += 1
            case "take":
                self.queue.taken.append(line["item"])
            case "add":
                self.additions.append(Addition(line["start_ns"], line["end_ns"], line["former"]))
            case "count":
                self.count = line["count"]
            case kind:
                holding = Holding(0, line["since_ns"], line["until_ns"], line["fence"], line["asked_ns"])
                self.holdings[kind].append(holding)

    def add(self, other: StructureHistory) -> None:
        self.queue.offered |= other.queue.offered
        self.queue.perhaps |= other.queue.perhaps
        self.queue.taken += other.queue.taken
        self.queue.unknown += other.queue.unknown
        self.additions += other.additions
        for kind, held in other.holdings.items():
            self.holdings[kind] += held
        self.count = max(self.count, other.count)

    def counts(self) -> dict[str, int]:
        return {
            "items taken": len(self.queue.taken),
            "additions": sum(one.former is not None for one in self.additions),
            "locks held": len(self.holdings[CpKind.LOCK]),
            "permits held": len(self.holdings[CpKind.SEMAPHORE]),
            "takes of unknown outcome": self.queue.unknown,
        }

    def problems(self) -> list[str]:
        return [
            *(f"queue: {problem}" for problem in judge_queue(self.queue)),
            *(f"counter: {problem}" for problem in judge_counter(self.additions, self.count)),
            *(f"lock: {problem}" for problem in judge_holders(CpKind.LOCK, self.holdings[CpKind.LOCK], 1)),
            *(
                f"semaphore: {problem}"
                for problem in judge_holders(CpKind.SEMAPHORE, self.holdings[CpKind.SEMAPHORE], PERMITS)
            ),
        ]


class Users:
    def __init__(self, client: Any, name: str, out: Callable[[Line], None]) -> None:
        self._name = name
        self._out = out
        self._offered = 0
        self._dice = random.Random(name)  # noqa: S311 - how long a client rests is no secret
        self._queue = client.get_queue(NAME).blocking()
        cp = client.cp_subsystem
        self._counter = cp.get_atomic_long(f"x@{NAME}").blocking()
        self._lock = cp.get_lock(f"x@{NAME}").blocking()
        self._semaphore = cp.get_semaphore(f"x@{NAME}").blocking()
        self._semaphore.init(PERMITS)
        # The session begins here. If two threads need the first one at the same time, version 5.7 of the client
        # creates two, and forgets one of them with the lock that it has acquired there.
        self._lock.lock()
        self._lock.unlock()

    @property
    def steps(self) -> list[Callable[[], None]]:
        """One for each thread."""
        return [self.offer, *[self.take] * 3, self.add, *[self.hold_lock] * 2, *[self.hold_permit] * 2]

    def rest(self) -> None:
        time.sleep(self._dice.uniform(0, 2 * REST_S))

    def offer(self) -> None:
        self._offered += 1
        item = f"{self._name}/{self._offered}"
        try:
            self._queue.offer(item)
            known = True
        except Exception:  # noqa: BLE001 - whatever the client raises, the caller was not answered
            known = False
        self._out({"what": "offer", "item": item, "known": known})

    def take(self) -> None:
        self.take_within(TAKE_S)

    def take_within(self, seconds: float) -> bool:
        """Whether there may be more."""
        try:
            item = self._queue.poll(seconds)
        except Exception:  # noqa: BLE001 - as above
            self._out({"what": "take", "known": False})
            return True
        if item is not None:
            self._out({"what": "take", "item": item, "known": True})
        return item is not None

    def add(self) -> None:
        start_ns = time.monotonic_ns()
        try:
            former = self._counter.get_and_add(1)
        except Exception:  # noqa: BLE001 - as above
            former = None
        end_ns = time.monotonic_ns()
        self._out({"what": "add", "start_ns": start_ns, "end_ns": end_ns, "former": former})

    def count(self) -> None:
        self._out({"what": "count", "count": self._counter.get()})

    def hold_lock(self) -> None:
        self._hold(CpKind.LOCK, self._lock.lock, self._lock.unlock)

    def hold_permit(self) -> None:
        self._hold(CpKind.SEMAPHORE, self._semaphore.acquire, self._semaphore.release)

    def _hold(self, kind: CpKind, acquire: Callable[[], int | None], release: Callable[[], object]) -> None:
        """Record the holding when its end begins."""
        asked_ns = time.monotonic_ns()
        try:
            fence = acquire() or 0
        except Exception:  # noqa: BLE001 - as above
            _end(release)
            return
        since_ns = time.monotonic_ns()
        time.sleep(self._dice.uniform(0, 2 * HELD_S))
        held = {"asked_ns": asked_ns, "since_ns": since_ns, "until_ns": time.monotonic_ns(), "fence": fence}
        self._out({"what": str(kind), **held})
        _end(release)


def _end(release: Callable[[], object]) -> None:
    """Release until the server says that nothing is held: an answer may have been lost."""
    from hazelcast.errors import IllegalMonitorStateError, IllegalStateError

    deadline_s = time.monotonic() + EMPTY_S
    while time.monotonic() < deadline_s:
        try:
            release()
            return
        except (IllegalMonitorStateError, IllegalStateError):
            return
        except Exception:  # noqa: BLE001 - as above
            time.sleep(REST_S)


@click.command()
@click.option("--address", "addresses", multiple=True, required=True)
@click.option("--client", "name", required=True)
@click.option("--smart/--no-smart", default=True)
def main(*, addresses: tuple[str, ...], name: str, smart: bool) -> None:
    """Call until standard input ends."""
    writing = threading.Lock()

    def out(line: Line) -> None:
        with writing:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

    client = open_client(addresses, name, smart=smart)
    users = Users(client, name, out)
    ended = threading.Event()

    def repeat(step: Callable[[], None]) -> None:
        while not ended.is_set():
            step()
            users.rest()

    threads = [threading.Thread(target=repeat, args=(step,)) for step in users.steps]
    for thread in threads:
        thread.start()
    out({"ready": True})
    last = sys.stdin.readline()
    ended.set()
    for thread in threads:
        thread.join()
    if last == "empty\n":
        deadline_s = time.monotonic() + EMPTY_S
        while users.take_within(0.5) and time.monotonic() < deadline_s:
            pass
        users.count()
    client.shutdown()


if __name__ == "__main__":
    main()
