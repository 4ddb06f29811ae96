"""Random faults of a seed at random times. All end before the judgement."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.actions.demote import Demote
from holdfast.actions.drain import Drain
from holdfast.actions.promote import Promote
from holdfast.actions.set_state import SetState
from holdfast.core.events import ActionRequested
from holdfast.core.messages import Filled, Message, MigrationRequest, TableOffer
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.views import ClusterState, Intent
from holdfast_lab.sim.ambush import (
    OCCASIONS,
    Ambush,
    Moment,
    backups_beside,
    fills_next_primary,
    new_owners,
    outvoted,
)
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.disk_faults import DiskFaults
from holdfast_lab.sim.memory_faults import MemoryFaults
from holdfast_lab.sim.world import Process, World

DEEDS = ("crash", "crash", "crash-both", "pause", "part", "cut-off", "cut-around", "cut-around")


class Faults(DiskFaults):
    KINDS = (
        "crash",
        "crash-midstep",
        "crash-torn",
        "crash-cut",
        "replace",
        "isolate",
        "halves",
        "one-way",
        "bridge",
        "pause",
        "drain",
        "join",
        "churn",
        "lossy",
        "slow",
        "echo",
    )
    CONNECTED = ("crash", "crash-midstep", "replace", "drain", "join", "churn")
    ALONE = (
        *("join", "pause", "lossy", "slow", "echo", "state", "suspend", "clock-jump", "calendar"),
        *("power-cut-all", "kill-all", "disk-full", "slow-disk"),
    )
    OPERATOR = ("state", "state", "wish")
    CLOCKS = ("suspend", "clock-jump", "calendar")
    AIMED = ("ambush", "coup", "starve")
    """Faults that wait for a moment: every seed has one of them in addition, twice as often as others."""

    def __init__(
        self,
        seed: int,
        world: World,
        cluster: Cluster,
        until_ns: int,
        surge: Callable[[Process, int], None] = lambda process, partition: None,
        *,
        power_cuts: int = 0,
        memory: bool = False,
        operator: bool = False,
        connected: bool = False,
        clocks: bool = False,
    ) -> None:
        """`surge`: lets clients write to one partition, all at once, through a process. `power_cuts`: least
        number of power failures of all hosts at once. `memory`: memory is short at times. `operator`: someone
        changes the state of the cluster and the roles of members. `connected`: only faults that disconnect no
        members. `clocks`: clocks jump and stop, and calendars are set.
        """
        super().__init__(seed, world, cluster, until_ns, power_cuts)
        self._memory = (
            MemoryFaults(seed, world, cluster, until_ns, self._did, self._for_a_while) if memory else None
        )
        self.surge = surge
        count = self.random.randint(2, len(self.KINDS))
        aimed = self.random.choice(self.AIMED)
        self.kinds = [*self.random.sample(self.KINDS, count), aimed, aimed, *self.disk_kinds()]
        if operator:
            self.kinds += self.OPERATOR
        if clocks:
            self.kinds += self.CLOCKS
        if cluster.groups:
            self.kinds.append("group")
        self.core: set[str] | None = None
        self._state_wanted: ClusterState | None = None
        self._insisting = False
        self.pause_ns = self.random.choice([1, 2, 5]) * SECOND
        world.weather.refusal = self.random.choice([0.0, 0.3])
        if self.random.random() < 0.5:
            world.weather.loss = self.random.choice([0.0, 0.01, 0.1])
            world.weather.twice = self.random.choice([0.0, 0.01, 0.1])
            world.weather.echo = self.random.choice([0.0, 0.01, 0.1])
        if connected:
            self.kinds = [*self.CONNECTED, *(self.OPERATOR if operator else ())]
            world.weather.loss = world.weather.echo = 0.0
        if cluster.disks:
            # A stopped cluster waits for every seed that is not known to be gone.
            world.weather.refusal = max(world.weather.refusal, 0.3)

    def start(self) -> None:
        self.cluster.watch()
        self.start_power_cuts()
        if self._memory is not None:
            self._memory.start()
        self.world.after(self.random.randint(SECOND, 3 * SECOND), self._next)

    def _next(self) -> None:
        if self.world.now_ns >= self.until_ns:
            return
        alone = len(self.cluster.living()) == 1
        kinds = [kind for kind in self.kinds if kind in self.ALONE] if alone else self.kinds
        if kinds and self.cluster.living():
            kind = self.random.choice(kinds)
            getattr(self, "_" + kind.replace("-", "_"))()
        self.world.after(self.random.randint(self.pause_ns // 2, 2 * self.pause_ns), self._next)

    # -- processes

    def _crash(self) -> None:
        self._kill(self._victim(), "crash")

    def _replace(self) -> None:
        process = self._victim()
        if process is not None:
            self._did("replace", process.name)
            self._die(process)
            self._restart_later(process, self.random.choice([0, 1, 100]) * MILLISECOND)

    def _crash_cut(self) -> None:
        process = self._victim()
        if process is not None:
            self._kill(process, "crash-cut")
            self.world.after(self.random.randint(0, SECOND), self._isolate)

    def _crash_midstep(self) -> None:
        process = self._victim()
        if process is None:
            return
        count = self.random.randint(1, 60)
        process.crash_armed(count, lambda: self._kill(process, "crash-midstep"))

    def _crash_torn(self) -> None:
        """Cut a process off from some others and crash it a moment later: only some get its last messages."""
        process = self._victim()
        if process is None:
            return
        hosts = [host for host in self._hosts() if host != process.host]
        deaf = hosts[: self.random.randint(1, max(1, len(hosts) - 1))]
        self._cut("torn", [(process.host, host) for host in deaf])
        delay_ns = self.random.choice([50, 200, 800]) * MILLISECOND
        self.world.after(delay_ns, lambda: self._kill(process, "crash-torn"))

    def _pause(self) -> None:
        self._stand_still(self.random.choice(self.cluster.living()))

    def _stand_still(self, process: Process) -> None:
        length = self.random.choice([100 * MILLISECOND, SECOND, 5 * SECOND])
        self._did("pause", f"{process.name} for {length / 1e9:.1f} s")
        process.awake_at_ns = self.world.now_ns + length

    def _join(self) -> None:
        free = [index for index in range(len(self.cluster.addresses)) if self.cluster.is_free(index)]
        if free:
            process = self.cluster.start(self.random.choice(free))
            self._did("join", process.name)

    def _churn(self) -> None:
        for _ in range(2):
            self._join()
            self._drain()

    def _drain(self) -> None:
        staying = [p for p in self.cluster.living() if not p.picture.leaving]
        admitted = [p for p in staying if p.picture.admitted]
        if len(admitted) < 3:
            return
        process = self.random.choice(admitted if self.random.random() < 0.9 else staying)
        if self.cluster.could_end_without(process):
            return
        self._did("drain", process.name)
        process.step(partial(process.driver.handle, ActionRequested(Drain())))

        def look() -> None:
            if process.dead:
                self._restart_later(process)
            else:
                self.world.after(SECOND, look)

        self.world.after(SECOND, look)

    def _group(self) -> None:
        names = sorted({self._group_of(process) for process in self.cluster.living()})
        name = self.random.choice(names)
        for process in [each for each in self.cluster.living() if self._group_of(each) == name]:
            self._kill(process, "group")

    def _group_of(self, process: Process) -> str:
        return self.cluster.groups[self.cluster.addresses.index(process.address)]

    # -- clocks

    def _suspend(self) -> None:
        process = self.random.choice(self.cluster.living())
        length_ns = self.random.choice([100 * MILLISECOND, SECOND, 4 * SECOND])
        if process.awake_at_ns > self.world.now_ns:
            return
        self._did("suspend", f"{process.name} for {length_ns / 1e9:.1f} s")
        self.world.clocks.stand(process.host, self.world.now_ns, length_ns)
        process.awake_at_ns = self.world.now_ns + length_ns

    def _clock_jump(self) -> None:
        process = self.random.choice(self.cluster.living())
        length_ns = self.random.choice([20 * MILLISECOND, SECOND, 6 * SECOND])
        self._did("clock-jump", f"{process.host} by {length_ns / 1e9:.2f} s")
        self.world.clocks.skip(process.host, self.world.now_ns, length_ns)
        process.clock_jumped()

    def _calendar(self) -> None:
        host = self.random.choice(self.cluster.addresses).host
        by_ms = self.random.choice([-1, 1]) * self.random.choice([2_000, 60_000, 3_600_000])
        self._did("calendar", f"{host} by {by_ms / 1000:.0f} s")
        self.world.clocks.set_calendar(host, by_ms)

    # -- the operator

    def _state(self) -> None:
        state = self.random.choice([state for state in ClusterState if state is not ClusterState.ACTIVE])
        self._order(state)
        self._did("state", state)
        self._state_wanted = None
        self._for_a_while(self._activate, self.random.choice([SECOND, 4 * SECOND, 8 * SECOND]))

    def _activate(self) -> None:
        """Order the state active until it is reached: the member that got the order may be cut off or dead."""
        self._state_wanted = ClusterState.ACTIVE
        members = self.cluster.members()
        states = {member.picture.cluster_state for member in members if member.picture.view is not None}
        if members and states != {ClusterState.ACTIVE}:
            self._order(ClusterState.ACTIVE)
        if not self._insisting:
            self._insisting = True
            self.world.after(SECOND, self._insist_on_state)

    def _insist_on_state(self) -> None:
        # An earlier order may still be in flight.
        self._insisting = False
        if self._state_wanted is not None:
            self._activate()

    def _order(self, state: ClusterState) -> None:
        living = self.cluster.living()
        well = [process for process in living if self.core is None or process.host in self.core]
        process = self.random.choice(well or living)
        process.whenever_awake(
            lambda: process.step(lambda: process.driver.handle(ActionRequested(SetState(state))))
        )

    def _wish(self) -> None:
        process = self.random.choice(self.cluster.living())
        picture = process.picture
        if not picture.admitted or picture.leaving:
            return
        wish = Intent.DATA if picture.info.lite else Intent.LITE
        data = [member for member in self.cluster.members() if not member.picture.info.lite]
        if wish is Intent.LITE and len(data) < 3:
            return
        self._did("wish", f"{process.name}: {wish}")
        process.step(
            lambda: process.driver.handle(ActionRequested(Demote() if wish is Intent.LITE else Promote()))
        )

    # -- at a moment of a protocol

    def _ambush(self) -> None:
        self._lie_in_wait(self.random.choice(OCCASIONS), lambda moment: True, self._strike)

    def _lie_in_wait(
        self, occasion: type[Message], wanted: Callable[[Moment], bool], strike: Callable[[Moment], None]
    ) -> None:
        passing = self.random.choice([0, 0, 1, 2])
        Ambush(self.world, self.cluster, occasion, passing=passing, wanted=wanted, strike=strike)

    def _coup(self) -> None:
        """Cut off the master that offers assignments, with the members in them: alone they must not decide.
        Clients try to write there.
        """

        def strike(moment: Moment) -> None:
            hosts = [process.host for process in moment.concerned]
            self._separate("coup", hosts, [host for host in self._hosts() if host not in hosts], 8 * SECOND)
            for seconds in (1, 2, 3):
                partition, owner = self.random.choice(new_owners(moment))
                self.world.after(seconds * SECOND, partial(self.surge, owner, partition))

        self._lie_in_wait(TableOffer, outvoted, strike)
        self._churn()

    def _starve(self) -> None:
        """A primary moves, and messages of the old one to the new one, or to one of several backups, are
        lost: writes stop, some unfinished, others waiting, when the migration is aborted.
        """

        def starve(source: Process, deaf: Process, partition: int) -> None:
            self._cut("starve", [(source.host, deaf.host)], 8 * SECOND)
            self.surge(source, partition)
            self.world.after(2 * SECOND, partial(self.surge, source, partition))

        def several(moment: Moment) -> bool:
            return len(backups_beside(moment, self.cluster)) > 1

        def next_primary(moment: Moment) -> None:
            assert isinstance(moment.message, Filled)
            assert moment.receiver is not None
            starve(moment.receiver, moment.sender, moment.message.partition)

        def backup(moment: Moment) -> None:
            assert isinstance(moment.message, MigrationRequest)
            assert moment.receiver is not None
            deaf = self.random.choice(backups_beside(moment, self.cluster))
            starve(moment.receiver, deaf, moment.message.migration.partition)

        if self.cluster.settings.replica_backups() < 2 or self.random.random() < 0.3:
            self._lie_in_wait(Filled, fills_next_primary, next_primary)
        else:
            self._lie_in_wait(MigrationRequest, several, backup)
        self._churn()

    def _strike(self, moment: Moment) -> None:
        deed = self.random.choice(DEEDS)
        one = self.random.choice([moment.sender, moment.receiver or moment.sender])
        what = type(moment.message).__name__
        self.world.log(f"AMBUSH {deed} at {what} of {moment.sender.name}: {one.name}")
        hosts = [process.host for process in moment.concerned]
        others = [host for host in self._hosts() if host not in hosts]
        match deed:
            case "crash":
                self._kill(one, "ambush-crash")
            case "crash-both":
                self._kill(moment.sender, "ambush-crash")
                self._kill(moment.receiver, "ambush-crash")
            case "pause":
                self._stand_still(one)
            case "part" if moment.receiver is not None:
                self._separate("ambush-part", [moment.sender.host], [moment.receiver.host])
            case "cut-off":
                self._separate(
                    "ambush-cut-off", [one.host], [host for host in self._hosts() if host != one.host]
                )
            case _:
                self._separate("ambush-cut-around", hosts, others)

    # -- network

    def _separate(self, kind: str, here: list[str], there: list[str], length_ns: int | None = None) -> None:
        self._cut(kind, [pair for a in here for b in there for pair in ((a, b), (b, a))], length_ns)

    def _cut(self, kind: str, pairs: list[tuple[str, str]], length_ns: int | None = None) -> None:
        cut = self.world.weather.cut
        added = [pair for pair in pairs if not cut.get(pair)]
        for pair in added:
            cut[pair] = True
        self._did(kind, f"{len(added)} directions cut")

        def heal() -> None:
            for pair in added:
                cut.pop(pair, None)
            self.world.log(f"HEALED {kind}")

        self._for_a_while(heal, length_ns)

    def _hosts(self) -> list[str]:
        hosts = [process.host for process in self.cluster.living()]
        self.random.shuffle(hosts)
        return hosts

    def _isolate(self) -> None:
        hosts = self._hosts()
        if hosts:
            self._separate("isolate", hosts[:1], hosts[1:])

    def _halves(self) -> None:
        hosts = self._hosts()
        middle = len(hosts) // 2
        self._separate("halves", hosts[:middle], hosts[middle:])

    def _one_way(self) -> None:
        one, *others = self._hosts()
        self._cut("one-way", [(one, other) for other in others[: self.random.randint(1, len(others))]])

    def _bridge(self) -> None:
        _, *hosts = self._hosts()
        middle = len(hosts) // 2
        self._separate("bridge", hosts[:middle], hosts[middle:])

    def _lossy(self) -> None:
        weather = self.world.weather
        before = (weather.loss, weather.twice)
        weather.loss, weather.twice = self.random.choice([(0.3, 0.0), (0.1, 0.3), (0.05, 0.05)])
        self._did("lossy", f"loss {weather.loss}, doubled {weather.twice}")

        def better() -> None:
            weather.loss, weather.twice = before

        self._for_a_while(better)

    def _echo(self) -> None:
        """Packets sent now arrive again much later, perhaps at a later life of the receiver."""
        weather = self.world.weather
        before = weather.echo
        weather.echo = self.random.choice([0.05, 0.3])
        self._did("echo", f"{weather.echo} of all packets")

        def better() -> None:
            weather.echo = before

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
        self.over = True
        weather = self.world.weather
        weather.cut.clear()
        self.heal_disks()
        self._migrations_after = self.cluster.migrations()
        self.world.overhearing.clear()
        weather.loss = weather.twice = weather.echo = 0.0
        weather.delay_ns = (200_000, 2 * MILLISECOND)
        for process in self.cluster.living():
            process.crash_armed(0, lambda: None)
        if self._memory is not None:
            self._memory.end()
        self.world.log("ALL FAULTS END")
        self._activate()
