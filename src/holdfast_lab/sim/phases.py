"""Phases after the faults of a run: a core of hosts must work alone; more members die than must be survived; backups
are damaged. The end of each is judged.

**Sufficient core.** Some hosts are healthy, all others cut off, dead, or paused. The healthy ones are a core if the
protocols promise that they can work alone:

- They are a quorum of the newest view, of each agreed view, and of the newest that they know themselves, so only they
  can decide.
- For every newest assignment of a partition, wherever it is known, one of them is in sync.
- The operator lets partitions move: otherwise there are no promotions and no new copies.
- They have a majority of the metastore's group, and of the group of each partition of a zone, if there are any.
- No view is being proposed, because its quorum is not known yet.
- The cluster is not recovering from files (it would wait for all members), and `quorum` is not `"any"` (a core would
  not be a single cluster).

Within LIVE_NS such a core must have a single view of its members, serve all partitions with all possible copies, and
answer a client from every partition.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from holdfast.actions.accept_loss import AcceptLoss
from holdfast.core.events import ActionRequested
from holdfast.core.membership.view_agreement import is_quorum
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.partition_events import Kind, News
from holdfast_lab.sim.calls import PROBE, wire_key
from holdfast_lab.sim.cluster import Cluster, agreed_views, settled_among
from holdfast_lab.sim.damage import mended, spoil
from holdfast_lab.sim.faults import Faults
from holdfast_lab.sim.shape import Loss
from holdfast_lab.sim.world import Process, World
from holdfast_lab.sim.zone_loss import ZoneLoss

LIVE_NS = 90 * SECOND
CALM_NS = 90 * SECOND
CHOICE_NS = 5 * SECOND
STEP_NS = 100 * MILLISECOND
NAP_NS = 2 * SECOND
"""Length of one pause; pauses follow each other."""
SAY_NS = 40 * SECOND
AWAY_NS = (8 * SECOND, 20 * SECOND)
STEP_DOWN_NS = 5 * SECOND
DAMAGES_MOST = 4
PROBES = "probes"


class Phases:
    def __init__(self, world: World, cluster: Cluster, faults: Faults) -> None:
        self.world = world
        self.cluster = cluster
        self.faults = faults
        self.random = random.Random(f"{world.seed}/phases")

    def _fail(self, what: str) -> None:
        self.world.log(f"PROBLEM {what}")
        self.world.failures.append(what)

    def _wait(self, limit_ns: int, until: Callable[[], bool]) -> bool:
        self.world.run_until(self.world.now_ns + limit_ns, stop=until)
        return not self.world.failures and until()

    def calm(self) -> bool:
        return self._wait(CALM_NS, lambda: len(self.cluster.members()) > 0 and self.cluster.settled())

    # -- sufficient core

    def core(self) -> None:
        if self.faults.power_cuts_due or self.cluster.settings.cluster.quorum == "any":
            return
        chosen: list[Process] = []

        def found() -> bool:
            chosen[:] = self._choose_core()
            return bool(chosen)

        if not self._wait(CHOICE_NS, found):
            return
        core = {process.host for process in chosen}
        mend = self._break_others(core)
        self.faults.core = core
        began_ns = self.world.now_ns
        probes = Probes(self.world, self.cluster, core, self.random)

        def converged() -> bool:
            here = self._of(core)
            return bool(here) and settled_among([process.driver.member for process in here])

        well = self._wait(LIVE_NS, converged)
        probes.start()
        well = well and self._wait(LIVE_NS - (self.world.now_ns - began_ns), lambda: probes.answered)
        if not self.world.failures and not well:
            self._fail(
                f"the core {sorted(core)} has not converged in {LIVE_NS // SECOND} s: {self._why(core, probes)}"
            )
        probes.running = False
        self.world.marks.hit("phase core alone")
        self.world.log(f"CORE went on alone for {(self.world.now_ns - began_ns) / SECOND:.1f} s")
        self.faults.core = None
        mend()

    def _of(self, hosts: set[str]) -> list[Process]:
        return [process for process in self.cluster.living() if process.host in hosts]

    def _why(self, core: set[str], probes: Probes) -> str:
        members = [process.driver.member for process in self._of(core)]
        whys = [
            f"{member.picture.info.name}: {member.picture.unsafe_reason() or 'well'}" for member in members
        ]
        return f"{'; '.join(whys)}; not answered: partitions {sorted(probes.open)}"

    def _choose_core(self) -> list[Process]:
        """The least sufficient processes, or some more; empty if all are needed."""
        processes = [p for p in self.cluster.living() if p.picture.admitted]
        core = list(processes)
        if not self._suffices(core) or not self._keeps_groups(core):
            return []
        order = list(processes)
        self.random.shuffle(order)
        most = self.random.choice([1, len(order)])
        for process in order:
            rest = [other for other in core if other is not process]
            if len(processes) - len(core) < most and self._suffices(rest) and self._keeps_groups(rest):
                core = rest
        return core if len(core) < len(processes) else []

    def _keeps_groups(self, core: list[Process]) -> bool:
        """Whether the core has a majority of every group, and no group moves or is about to: it might need
        just its destinations.
        """
        if not self.cluster.has_groups:
            return True
        if self.cluster.orders_wait or self.cluster.groups_move():
            return False
        return self.cluster.groups_survive(core, disks=False) and self.cluster.groups_begun_within(core)

    def _suffices(self, core: list[Process]) -> bool:
        everyone = self.cluster.members()
        members = [process.driver.member for process in core]
        alive = {member.me for member in members}
        views = [view for member in everyone if (view := member.picture.view) is not None]
        known = [view for member in members if (view := member.picture.view) is not None]
        if not known or any(view.recovering or not view.state.migrates for view in views):
            return False
        if any(member.picture.proposing or not member.picture.assigned for member in everyone):
            return False
        newest = max(view.number for view in views)
        least = min(newest, max(view.number for view in known))
        needed = [view for member in everyone for view in agreed_views(member) if view.number >= least]
        if not all(is_quorum(view, alive) for view in needed):
            return False
        staying = [m for m in members if not m.picture.info.lite and not m.picture.leaving]
        return bool(staying) and self.cluster.copies_elsewhere(everyone, alive, set())

    def _break_others(self, core: set[str]) -> Callable[[], None]:
        others = [address.host for address in self.cluster.addresses if address.host not in core]
        told: list[str] = []
        dead: list[int] = []
        still: list[Process] = []
        cut = self.world.weather.cut
        apart = self.random.random() < 0.3
        pairs = [(a, b) for a in others for b in (*sorted(core), *(others if apart else ())) if a != b]
        pairs = [pair for a, b in pairs for pair in ((a, b), (b, a))]
        for pair in pairs:
            cut[pair] = True
        for index, address in enumerate(self.cluster.addresses):
            process = self.world.processes.get(address)
            if address.host in core or process is None or process.dead:
                continue
            deed = self.random.choice(["cut off", "dead", "standing still"])
            told.append(f"{process.name} {deed}")
            if deed == "dead":
                process.crash()
                dead.append(index)
            elif deed == "standing still":
                still.append(process)
        self.world.log(f"CORE {', '.join(sorted(core))} alone; {', '.join(told) or 'no other process lives'}")
        on = True

        def nap() -> None:
            if on:
                for process in still:
                    process.awake_at_ns = max(process.awake_at_ns, self.world.now_ns + NAP_NS + 1)
                self.world.after(NAP_NS, nap)

        nap()

        def mend() -> None:
            nonlocal on
            on = False
            for pair in pairs:
                cut.pop(pair, None)
            for index in dead:
                if self.cluster.is_free(index):
                    self.cluster.start(index)

        return mend

    # -- more losses than promised

    def lose(self, kind: Loss) -> None:
        """All in-sync holders of a partition die at once. The cluster must report that, and continue when the
        loss is accepted, or when they come back with their disks.
        """
        if not kind or not self.calm():
            return
        victims = self._choose_victims()
        if not victims:
            return
        lost = self._partitions_of(victims)
        told: set[int] = set()
        rest = [process for process in self.cluster.living() if process not in victims]

        def hear(news: News) -> None:
            if news.kind is Kind.LOST and news.loss is not None:
                told.add(news.loss.partition)

        ends = [process.driver.callers.on_news(hear) for process in rest]
        names = ", ".join(process.name for process in victims)
        self.world.log(f"LOSS {kind}: {names} die, with all of partitions {lost}")
        if kind != "return":
            self.cluster.lost += [(partition, self.world.now_ns) for partition in lost]
        away = [self.cluster.addresses.index(process.address) for process in victims]
        for process, index in zip(victims, away, strict=True):
            process.crash()
            if kind != "return" and (disk := self.cluster.disk_of(process)) is not None:
                disk.wipe()
                self.cluster.distrust(process, wiped=True)
            delay_ns = self.random.randint(*AWAY_NS) if kind == "return" else SAY_NS + SECOND
            self.world.after(delay_ns, partial(self._again, index))
        said = self._wait(SAY_NS, lambda: told.issuperset(lost))
        for end in ends:
            end()
        if not self.world.failures and not said:
            missed = sorted(set(lost) - told)
            self._fail(f"no member reported the loss of all copies of partitions {missed}")
            return
        if kind == "operator":
            self._accept(lost)
        self.world.marks.hit(f"phase loss: {kind}")
        # Otherwise they would come back during a later phase.
        self._wait(SAY_NS + 2 * SECOND, lambda: not any(map(self.cluster.is_free, away)))
        self.calm()

    def lose_zone(self) -> None:
        """The majority of some groups dies, without files: no leader until the operator resets the zone."""
        loss = ZoneLoss(self.world, self.cluster, random.Random(f"{self.world.seed}/zone loss phase"))
        if not self.calm() or not loss.strike():
            return
        self._wait(SAY_NS, loss.noticed)
        self._wait(STEP_DOWN_NS, lambda: False)
        if not self.world.failures and (led := loss.led().intersection(loss.lost)):
            self._fail(f"partitions {sorted(led)} of the zone have a leader though they have no majority")
        loss.reset()
        # Perhaps the remaining members do not fit the zone's filter.
        served = self._wait(SAY_NS, loss.served)
        loss.restart()
        if not served and not self._wait(LIVE_NS, loss.served) and not self.world.failures:
            missing = sorted(set(range(self.cluster.settings.partitions.count)) - loss.led())
            self._fail(f"partitions {missing} of the zone have no leader after its reset")
        self.world.marks.hit("zone: reset")
        self.calm()

    def _again(self, index: int) -> None:
        if self.cluster.is_free(index):
            self.cluster.start(index)

    def _accept(self, lost: list[int]) -> None:
        """Until the operator accepts the loss, lost partitions must not be served, nor the cluster be called
        safe.
        """
        members = self.cluster.members()
        serving = [p for p in lost for member in members if member.picture.serves(p)]
        if serving:
            self._fail(f"partitions {sorted(serving)} are served though all their copies are lost")
        if any(not member.picture.unsafe_reason() for member in members if not member.picture.info.lite):
            self._fail(f"a member reports no risk though partitions {lost} are lost")
        process = self.random.choice(self.cluster.living())
        self.world.log(f"LOSS accepted at {process.name}")
        self.cluster.accepted = True
        process.step(partial(process.driver.handle, ActionRequested(AcceptLoss())))
        self.world.after(SECOND, partial(self._accept_again, process))

    def _accept_again(self, process: Process) -> None:
        """Repeat the order until everything is served, like `runtime.control`: another holder may be found
        dead after it.
        """
        if not process.dead and process.driver.member.picture.unserved_reason():
            process.step(partial(process.driver.handle, ActionRequested(AcceptLoss())))
            self.world.after(SECOND, partial(self._accept_again, process))

    def _choose_victims(self) -> list[Process]:
        living = self.cluster.living()
        view = living[0].picture.view
        if view is None:
            return []
        by_uuid = {process.driver.member.me: process for process in living}
        rows = living[0].picture.assignments
        for partition in self.random.sample(range(len(rows)), len(rows)):
            # A remaining copy with a higher index than the holders lacks some maps, so it is lost too.
            victims = [by_uuid[uuid] for uuid in rows[partition].replicas if uuid in by_uuid]
            rest = {process.driver.member.me for process in living if process not in victims}
            data = [process for process in living if process not in victims]
            if is_quorum(view, rest) and any(not p.picture.info.lite for p in data):
                return victims
        return []

    def _partitions_of(self, victims: list[Process]) -> list[int]:
        gone = {process.driver.member.me for process in victims}
        rows = victims[0].picture.assignments
        holders = self.cluster.settings.holders()
        return [p for p, row in enumerate(rows) if gone.issuperset(filter(None, row.holding[:holders]))]

    # -- damaged copies

    def damage(self) -> None:
        if not self.calm():
            return
        cluster = self.cluster
        count = self.random.randint(1, DAMAGES_MOST)
        found = [
            damage
            for _ in range(count)
            if (damage := spoil(cluster.living(), cluster.damages, self.random)) is not None
        ]
        for damage in found:
            self.world.log(f"DAMAGE {damage}")
            self.world.marks.hit(f"damage {damage.kind}")
        began_ns = self.world.now_ns
        self._wait(self.mend_ns, self._all_mended)
        if cluster.damages and not self.world.failures:
            seconds = self.mend_ns // SECOND
            self._fail(f"not mended in {seconds} s: {'; '.join(map(str, cluster.damages))}")
        elif found:
            self.world.log(f"DAMAGE mended after {(self.world.now_ns - began_ns) / SECOND:.1f} s")

    @property
    def mend_ns(self) -> int:
        """Time in which a damaged copy is repaired: replicas are compared once in each interval, and a copy
        is recounted in every fourth of its 32 steps.
        """
        settings = self.cluster.settings
        interval_ns = settings.replication.anti_entropy_ms * MILLISECOND
        return 20 * SECOND + 4 * interval_ns + interval_ns * (settings.partitions.count + 8) // 8

    def _all_mended(self) -> bool:
        cluster = self.cluster
        for damage in list(cluster.damages):
            owner = damage.member.picture.assignment(damage.partition).owner
            primary = next((member for member in cluster.members() if member.me == owner), None)
            if mended(damage, primary):
                cluster.damages.remove(damage)
        return not cluster.damages


class Probes:
    def __init__(self, world: World, cluster: Cluster, hosts: set[str], draw: random.Random) -> None:
        self.world = world
        self.cluster = cluster
        self.hosts = hosts
        self.random = draw
        self.running = True
        count = cluster.settings.partitions.count
        self.open: dict[tuple[int, str], bytes] = {}
        maps = [PROBES, *(name for name, entry in cluster.settings.maps.items() if entry.raft_zone)]
        number = 0
        while len(self.open) < count * len(maps):
            key = wire_key(f"{PROBE}{number}")
            for name in maps:
                self.open.setdefault((partition_of(key, 0, count), name), key)
            number += 1

    @property
    def answered(self) -> bool:
        return not self.open

    def start(self) -> None:
        for place in list(self.open):
            self._ask(place)

    def _ask(self, place: tuple[int, str]) -> None:
        living = [process for process in self.cluster.living() if process.host in self.hosts]
        if not self.running or not living:
            return
        process = self.random.choice(living)
        request = Request(Op.SET, place[1], [place[0]], self.open[place], b"here")

        def told(outcome: Outcome) -> None:
            if outcome.status is Status.OK:
                self.open.pop(place, None)
            elif place in self.open:
                self.world.after(STEP_NS, partial(self._ask, place))

        process.when_dead.append(lambda: self.world.after(STEP_NS, partial(self._ask_again, place)))
        process.whenever_awake(lambda: process.step(lambda: process.driver.execute(request, told)))

    def _ask_again(self, place: tuple[int, str]) -> None:
        if place in self.open:
            self._ask(place)
