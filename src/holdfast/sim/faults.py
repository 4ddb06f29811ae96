"""Which faults a seed has, and when: a swarm, so that no two seeds are alike. All end before the run is judged."""

from __future__ import annotations

import random
from collections.abc import Callable

from holdfast.core.machine import MILLISECOND, SECOND
from holdfast.sim.cluster import Cluster
from holdfast.sim.world import Process, World


class Faults:
    """The faults of one run. Counts of each kind are in `counts`."""

    KINDS = (
        "crash",
        "crash-midstep",
        "crash-torn",
        "isolate",
        "halves",
        "one-way",
        "bridge",
        "pause",
        "drain",
        "lossy",
        "slow",
    )

    def __init__(self, seed: int, world: World, cluster: Cluster, until_ns: int) -> None:
        self.random = random.Random(f"{seed}/faults")
        self.world = world
        self.cluster = cluster
        self.until_ns = until_ns
        count = self.random.randint(2, len(self.KINDS))
        self.kinds = self.random.sample(self.KINDS, count)
        self.pause_ns = self.random.choice([1, 2, 5]) * SECOND
        self.counts: dict[str, int] = {}
        if self.random.random() < 0.5:
            world.weather.loss = self.random.choice([0.0, 0.01, 0.1])
            world.weather.twice = self.random.choice([0.0, 0.01, 0.1])

    def start(self) -> None:
        """Begin to do harm."""
        self.world.after(self.random.randint(SECOND, 3 * SECOND), self._next)

    def _next(self) -> None:
        if self.world.now_ns >= self.until_ns:
            return
        kind = self.random.choice(self.kinds)
        getattr(self, "_" + kind.replace("-", "_"))()
        self.world.after(self.random.randint(self.pause_ns // 2, 2 * self.pause_ns), self._next)

    def _did(self, kind: str, what: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.world.tell(f"FAULT {kind}: {what}")

    def _for_a_while(self, undo: Callable[[], None]) -> None:
        length = self.random.choice([200 * MILLISECOND, SECOND, 5 * SECOND, 10 * SECOND])
        self.world.at(min(self.world.now_ns + length, self.until_ns), undo)

    # -- processes

    def _victim(self) -> Process | None:
        living = self.cluster.living()
        if len(living) < 2:
            return None
        process = self.random.choice(living)
        return process if self.cluster.may_die(process) else None

    def _restart_later(self, process: Process) -> None:
        index = self.cluster.addresses.index(process.address)
        delay = self.random.randint(200 * MILLISECOND, 6 * SECOND)

        def again() -> None:
            present = self.world.processes.get(process.address)
            if present is None or present.dead:
                self.cluster.start(index)

        self.world.after(delay, again)

    def _crash(self) -> None:
        process = self._victim()
        if process is not None:
            self._did("crash", process.name)
            process.crash()
            self._restart_later(process)

    def _crash_midstep(self) -> None:
        """Arm a crash in the middle of some coming step; the budget is asked again when it strikes."""
        process = self._victim()
        if process is None:
            return
        count = self.random.randint(1, 60)

        def strike() -> None:
            if self.cluster.may_die(process):
                self._did("crash-midstep", f"{process.name} within a step")
                process.crash()
                self._restart_later(process)

        process.crash_armed(count, strike)

    def _crash_torn(self) -> None:
        """Cut a process off from some others and let it die a moment later: what it sent last reached some only."""
        process = self._victim()
        if process is None:
            return
        _, *hosts = [process.host, *(host for host in self._hosts() if host != process.host)]
        deaf = hosts[: self.random.randint(1, max(1, len(hosts) - 1))]
        self._cut("crash-torn", [(process.host, host) for host in deaf])

        def strike() -> None:
            if not process.dead and self.cluster.may_die(process):
                process.crash()
                self._restart_later(process)

        self.world.after(self.random.choice([50, 200, 800]) * MILLISECOND, strike)

    def _pause(self) -> None:
        process = self.random.choice(self.cluster.living())
        length = self.random.choice([100 * MILLISECOND, SECOND, 5 * SECOND])
        self._did("pause", f"{process.name} for {length / 1e9:.1f} s")
        process.awake_at_ns = self.world.now_ns + length

    def _drain(self) -> None:
        staying = [p for p in self.cluster.living() if not p.driver.member.membership.leaving]
        if len(staying) < 3:
            return
        process = self.random.choice(staying)
        membership = process.driver.member.membership
        if membership.state == "member" and len(membership.data_members()) < 2:
            # Nobody drains the last member of a cluster that others are to come back to.
            return
        self._did("drain", process.name)
        process.step(process.driver.leave)

        def look() -> None:
            if process.dead:
                self._restart_later(process)
            else:
                self.world.after(SECOND, look)

        self.world.after(SECOND, look)

    # -- network

    def _cut(self, kind: str, pairs: list[tuple[str, str]]) -> None:
        cut = self.world.weather.cut
        added = [pair for pair in pairs if not cut.get(pair)]
        for pair in added:
            cut[pair] = True
        self._did(kind, f"{len(added)} directions cut")

        def heal() -> None:
            for pair in added:
                cut.pop(pair, None)
            self.world.tell(f"HEALED {kind}")

        self._for_a_while(heal)

    def _hosts(self) -> list[str]:
        hosts = [address.host for address in self.cluster.addresses]
        self.random.shuffle(hosts)
        return hosts

    def _isolate(self) -> None:
        one, *others = self._hosts()
        self._cut("isolate", [pair for other in others for pair in ((one, other), (other, one))])

    def _halves(self) -> None:
        hosts = self._hosts()
        middle = len(hosts) // 2
        self._cut("halves", [p for a in hosts[:middle] for b in hosts[middle:] for p in ((a, b), (b, a))])

    def _one_way(self) -> None:
        one, *others = self._hosts()
        self._cut("one-way", [(one, other) for other in others[: self.random.randint(1, len(others))]])

    def _bridge(self) -> None:
        """Two halves that only one host reaches."""
        _, *hosts = self._hosts()
        middle = len(hosts) // 2
        self._cut("bridge", [p for a in hosts[:middle] for b in hosts[middle:] for p in ((a, b), (b, a))])

    def _lossy(self) -> None:
        weather = self.world.weather
        before = (weather.loss, weather.twice)
        weather.loss, weather.twice = self.random.choice([(0.3, 0.0), (0.1, 0.3), (0.05, 0.05)])
        self._did("lossy", f"loss {weather.loss}, doubled {weather.twice}")

        def better() -> None:
            weather.loss, weather.twice = before

        self._for_a_while(better)

    def _slow(self) -> None:
        weather = self.world.weather
        before = weather.delay_ns
        weather.delay_ns = (MILLISECOND, self.random.choice([20, 200, 800]) * MILLISECOND)
        self._did("slow", f"up to {weather.delay_ns[1] // MILLISECOND} ms")

        def better() -> None:
            weather.delay_ns = before

        self._for_a_while(better)

    def end(self) -> None:
        """Heal everything: the network is whole and quick, nobody is paused."""
        weather = self.world.weather
        weather.cut.clear()
        weather.loss = weather.twice = 0.0
        weather.delay_ns = (200_000, 2 * MILLISECOND)
        for process in self.cluster.living():
            process.crash_armed(0, lambda: None)
        self.world.tell("ALL FAULTS END")
