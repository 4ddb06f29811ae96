"""Faults of runs with files: power failures, and slow, full, broken or lost disks.

Choices of such runs come from a separate random stream, so that runs without files do not change.
"""

from __future__ import annotations

import random

from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.disk import SimDisk
from holdfast_lab.sim.harm import Harm
from holdfast_lab.sim.world import Process, World

AGAIN_NS = 250 * MILLISECOND
SOON_NS = MILLISECOND
PATIENCE_NS = 500 * MILLISECOND
"""How long a power failure waits for an acknowledgement. Disks are slow until then, so that little is durable."""
SPOTS_MOST = 3


class DiskFaults(Harm):
    DISK_KINDS = (
        "power-cut-one",
        "power-cut-all",
        "kill-all",
        "fsync-error",
        "disk-full",
        "slow-disk",
        "rot",
        "wiped-disk",
    )

    def __init__(self, seed: int, world: World, cluster: Cluster, until_ns: int, power_cuts: int = 0) -> None:
        super().__init__(seed, world, cluster, until_ns)
        self.power_cuts_due = power_cuts
        self._disk_random = random.Random(f"{seed}/disk-faults")
        self._power = self._disk_random.choice([0.0, 0.3, 1.0])

    def disk_kinds(self) -> list[str]:
        if not self.cluster.disks:
            return []
        count = self._disk_random.randint(2, len(self.DISK_KINDS))
        # Faults that strike all hosts are rarely allowed.
        kinds = self._disk_random.sample(self.DISK_KINDS, count)
        if self.cluster.has_groups:
            # A replica with damaged files takes no part (multiraft/H-2), and is not replaced while its member
            # keeps its name.
            kinds = [kind for kind in kinds if kind != "rot"]
        return [*kinds, *(kind for kind in kinds if kind.endswith("-all"))]

    def start_power_cuts(self) -> None:
        for _ in range(self.power_cuts_due):
            self.world.at(self._disk_random.randint(3 * SECOND, self.until_ns), self._insist)

    def power_cut_again(self) -> None:
        self.power_cuts_due += 1
        self._insist()

    def _insist(self) -> None:
        """Let the power fail just after an acknowledged write, mostly with slow disks: acknowledged data that
        is not durable by then will be missed.
        """
        slowness = self._disk_random.choice([1.0, 20.0, 100.0])
        for disk in self.cluster.disks:
            disk.slowness = slowness
        struck = False

        def strike() -> None:
            nonlocal struck
            if struck:
                return
            struck = True
            for disk in self.cluster.disks:
                disk.slowness = 1.0
            if not self._blackout("power-cut-all"):
                self.world.after(AGAIN_NS, self._insist)
            else:
                self.power_cuts_due -= 1

        delay_ns = self._disk_random.randint(0, SOON_NS)
        lead_ns = self._disk_random.randint(0, PATIENCE_NS // 2)
        waiting = self.cluster.when_acknowledged
        self.world.after(lead_ns, lambda: waiting.append(lambda: self.world.after(delay_ns, strike)))
        self.world.after(PATIENCE_NS, strike)

    @property
    def blackouts(self) -> int:
        return self.counts.get("power-cut-all", 0) + self.counts.get("kill-all", 0)

    # -- deaths

    def _die(self, process: Process) -> None:
        if self.cluster.disks and self._disk_random.random() < self._power:
            self.cluster.power_cut(process)
        else:
            process.crash()

    def _power_cut_one(self) -> None:
        process = self._victim()
        if process is None:
            return

        def strike() -> None:
            if not process.dead and self.cluster.may_die(process):
                self._did("power-cut-one", process.name)
                self.cluster.power_cut(process)
                self._restart_later(process)

        if self._disk_random.random() < 0.5:
            strike()
        else:
            self._disk(process).cut_armed(self._disk_random.randint(1, 40), strike)

    def _power_cut_all(self) -> None:
        self._blackout("power-cut-all")

    def _kill_all(self) -> None:
        self._blackout("kill-all")

    def _blackout(self, kind: str) -> bool:
        """All processes die at once and come back later, if everything acknowledged is on disks."""
        running = self.cluster.running()
        if not self.cluster.all_may_die():
            return False
        self._did(kind, ", ".join(process.name for process in running))
        if kind == "kill-all":
            self.cluster.kill_everywhere()
        else:
            self.cluster.power_cut_everywhere()
        longest_ns = self._disk_random.choice([0, SECOND, 6 * SECOND, 15 * SECOND])
        for process in running:
            self._restart_later(process, self._disk_random.randint(0, longest_ns))
        return True

    # -- disks

    def _disk(self, process: Process) -> SimDisk:
        disk = self.cluster.disk_of(process)
        assert disk is not None
        return disk

    def _fsync_error(self) -> None:
        """Fail a later sync if the budget allows it then. The process must end."""
        process = self._victim()
        if process is None:
            return

        def may_fail() -> bool:
            if process.dead or not self.cluster.may_die(process):
                return False
            self._did("fsync-error", process.name)
            process.doomed = True
            self._when_dead(process)
            return True

        self._disk(process).fail_armed(may_fail)

    def _when_dead(self, process: Process) -> None:
        if process.dead:
            self._restart_later(process)
        else:
            self.world.after(AGAIN_NS, lambda: self._when_dead(process))

    def _disk_full(self) -> None:
        living = self.cluster.living()
        one = [self._disk(self._disk_random.choice(living))]
        disks = self.cluster.disks if self._disk_random.random() < 0.2 else one
        for disk in disks:
            disk.full = True
        self._did("disk-full", ", ".join(disk.name for disk in disks))

        def room() -> None:
            for disk in disks:
                disk.full = False
            self.world.log("HEALED disk-full")

        self._for_a_while(room)

    def _slow_disk(self) -> None:
        disk = self._disk(self._disk_random.choice(self.cluster.living()))
        disk.slowness = self._disk_random.choice([20.0, 200.0, 1000.0])
        self._did("slow-disk", f"{disk.name}: {disk.slowness:.0f} times slower")

        def better() -> None:
            disk.slowness = 1.0

        self._for_a_while(better)

    def _rot(self) -> None:
        """Damage some places of one disk while its process is down. No other member may need that data: until
        others have it, no disk of theirs is damaged.
        """
        process = self._victim(disk_too=True)
        if process is None:
            return
        self._die(process)
        disk, count = self._disk(process), self._disk_random.randint(1, SPOTS_MOST)
        spots = [disk.rot(lambda name: name.endswith((".seg", ".parquet"))) for _ in range(count)]
        self.cluster.distrust(process, wiped=False)
        self._did("rot", f"{process.name}: {'; '.join(spot for spot in spots if spot) or 'nothing to spoil'}")
        self._restart_later(process)

    def _wiped_disk(self) -> None:
        process = self._victim(disk_too=True)
        if process is None:
            return
        self._die(process)
        self._disk(process).wipe()
        self.cluster.distrust(process, wiped=True)
        self._did("wiped-disk", process.name)
        self._restart_later(process)

    def heal_disks(self) -> None:
        for disk in self.cluster.disks:
            disk.full, disk.slowness = False, 1.0
            disk.fail_armed(None)
            disk.cut_armed(0, lambda: None)
