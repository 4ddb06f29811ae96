"""Nemeses, a term of Jepsen: faults for a cluster under load: kill, owner, pause, cut, resize, clock, blackout.

A nemesis defines the cluster it needs, and strikes once a round. Its faults stay within what the cluster
guarantees to survive; afterwards there are as many members as before, or at least three.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from holdfast.actions.change_zone import CreateZone
from holdfast.actions.move_map import MoveMap
from holdfast.actions.show_zones import ShowZone
from holdfast.client.blocking import Client
from holdfast.client.connection import Credentials
from holdfast.client.operator import act_at_any
from holdfast.client_core.routing import parse_addresses
from holdfast.core.model.collections import partition_of_name
from holdfast.core.model.keys import partition_of
from holdfast.core.model.zone_answers import ZoneDetails
from holdfast.errors import HoldfastError
from holdfast.wire.values import to_stored
from holdfast_lab.chaos.structure_calls import NAME as STRUCTURES
from holdfast_lab.processes.hazelcast_writer import DemoError
from holdfast_lab.processes.links import LinkedCluster, Links, between
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

MAP = "chaos"
ZONED_MAP, ZONE = "chaos-zoned", "chaos"
VOTERS = 3
ZONE_PARTITIONS = 31
"""Each is a group on three members or more."""
SCALE_DOWN_S = 3
"""Wait before others take the replicas of a lost member."""
HEARTBEAT_MS, SUSPECT_MS = 300, 1500
FAULT_S = (1.0, 15.0)
SETTLE_S = 240.0
AGAIN_S = 2.0
FAILOVER_S = 4.0
FAKETIME = ("/usr/lib", "faketime/libfaketimeMT.so.1")
JUMP_S = 3600.0
DRIFT = 0.2
"""Largest drift of a clock, in seconds per second."""
CLOCK_S = 1


def choose_s(dice: random.Random) -> float:
    """Random length of a fault in seconds: as many below 4 as above."""
    low, high = FAULT_S
    return float(low * (high / low) ** dice.random())


class Nemesis:
    name: ClassVar[str]
    members: ClassVar[int] = 3
    backups: ClassVar[int] = 1
    journal: ClassVar[str] = "off"
    keeps_doors: ClassVar[bool] = True
    """Whether returning members keep their ports, so that a client may stay with one."""
    replicas: ClassVar[int] = 3
    replaces: ClassVar[bool] = False
    """Whether the zone moves the replicas of lost members to others; otherwise it waits for their return."""
    keeps_structures: ClassVar[bool] = True
    """Whether a copy of each structure stays in memory."""
    calls_maps: ClassVar[bool] = True
    """Whether clients call maps, too."""
    zones = False
    moves = False
    """Whether the other map moves into the zone and out again while the nemesis strikes."""
    local_reads = False
    """Whether leaders answer reads of the map in the zone alone: reads may then be outdated."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.faults: Counter[str] = Counter()
        self.served_s: list[float] = []
        """For each blackout: time from the last start of a process until every partition was served."""
        self.hot: Callable[[], list[str]] = list

    @property
    def config(self) -> str:
        zoned = (
            f"[metastore]\nvoters = {VOTERS}\n[partitions]\ncount = {ZONE_PARTITIONS}\n"
            f'[queues.default]\nraft_zone = "{ZONE}"\n[cp]\nraft_zone = "{ZONE}"\n'
            f'[maps.{ZONED_MAP}]\nraft_zone = "{ZONE}"\n' + ('reads = "local"\n' if self.local_reads else "")
        )
        return (
            f"[cluster]\nheartbeat_ms = {HEARTBEAT_MS}\nsuspect_after_ms = {SUSPECT_MS}\n"
            "[persistence]\nsegment_bytes = 262144\ncheckpoint_bytes = 524288\n"
            f"[maps.default]\nbackups = {self.backups}\n"
            f'[maps.{MAP}]\nbackups = {self.backups}\nreads = "confirmed"\njournal = "{self.journal}"\n'
            f"{zoned if self.zones else ''}"
        )

    def create_zone(self) -> None:
        scale_down_s = SCALE_DOWN_S if self.replaces else None
        zone = CreateZone(ZONE, replicas=self.replicas, scale_down_s=scale_down_s)
        act_at_any(parse_addresses(self.cluster.client_addresses()), Credentials(), zone)

    def move(self, *, into: bool, timeout_s: float) -> str:
        """Move the map into the zone or out of it; returns why that is not done after this time."""
        addresses = parse_addresses(self.cluster.client_addresses())
        order = MoveMap(MAP, ZONE) if into else MoveMap(MAP, no_zone=True)
        try:
            act_at_any(addresses, Credentials(), order, timeout_s=timeout_s)
        except HoldfastError as failure:
            # It may have moved since the order was given.
            return "" if f"{MAP} lives in" in str(failure) else str(failure)
        return ""

    def prepare(self, stack: ExitStack, folder: Path) -> LocalCluster:
        """The cluster for this nemesis, not started yet; `stack` ends other resources."""
        self.cluster = LocalCluster(self.members, self.config, **self._options(folder))
        return self.cluster

    def _options(self, folder: Path) -> dict[str, Any]:
        data = {"data_dir": folder / "data"} if self.journal != "off" else {}
        return {"log_dir": folder / "logs", **data}

    def strike(self) -> str:
        raise NotImplementedError

    # -- victims

    def master(self) -> ManagedMember:
        uuid = self.cluster.status().master
        return next(member for member in self.cluster.alive if member.uuid == uuid)

    def primary(self) -> ManagedMember:
        with Client(self.cluster.client_addresses()) as client:
            table = client.table()
        uuid = table.owner(partition_of(to_stored(self.dice.choice(self.hot())), 0, len(table)))
        return next(member for member in self.cluster.alive if member.uuid == uuid)

    def structures_owner(self) -> ManagedMember:
        """Primary or leader of the partition with the queue and the CP objects; the master if there is none now."""
        addresses = self.cluster.client_addresses()
        if self.zones:
            shown = self._shown_zone()
            partitions = shown.partitions if shown is not None else []
            led = partitions[partition_of_name(STRUCTURES, len(partitions))].leader if partitions else None
            name = shown.members.get(led or "") if shown is not None else None
            found = [member for member in self.cluster.alive if member.name == name]
        else:
            with Client(addresses) as client:
                table = client.table()
            uuid = table.owner(partition_of_name(STRUCTURES, len(table)))
            found = [member for member in self.cluster.alive if member.uuid == uuid]
        if not found:
            return self.master()
        self.faults["of the owner of the structures"] += 1
        return found[0]

    def _shown_zone(self) -> ZoneDetails | None:
        addresses = parse_addresses(self.cluster.client_addresses())
        try:
            shown: ZoneDetails = act_at_any(addresses, Credentials(), ShowZone(ZONE)).value
        except HoldfastError:
            return None
        return shown

    def zone_leader(self) -> ManagedMember:
        """Leader of some partition of the zone; the primary of a hot key while no leader is known."""
        shown = self._shown_zone()
        if shown is None:
            return self.primary()
        names = [shown.members[one.leader] for one in shown.partitions if one.leader in shown.members]
        led = [member for member in self.cluster.alive if member.name in names]
        if not led:
            return self.primary()
        self.faults["of a zone leader"] += 1
        return self.dice.choice(led)

    def victim(self) -> ManagedMember:
        """The owner of the structures, once in three times, otherwise the master or the primary of a hot key; with
        zones, as often a leader there.
        """
        if self.keeps_structures and self.dice.randrange(3) == 0:
            return self.structures_owner()
        if self.zones and self.dice.randrange(2) == 0:
            return self.zone_leader()
        return self.master() if self.dice.randrange(3) == 0 else self.primary()

    def told(self, member: ManagedMember) -> str:
        if member.uuid != self.cluster.status().master:
            return member.name
        self.faults["of the master"] += 1
        return f"{member.name} (the master)"

    def removed(self, unheard: Sequence[ManagedMember] = ()) -> list[ManagedMember]:
        """Members that others have removed from their view. `unheard`: members that cannot be asked."""
        running = self.cluster.alive
        views = []
        for member in running:
            if member not in unheard:
                view = {row.uuid for row in self.cluster.status(member).members}
                if member.uuid in view:  # Otherwise it has just learned of its own removal.
                    views.append(view)
        return [member for member in running if any(member.uuid not in view for view in views)]


class Kill(Nemesis):
    """A member is killed, and comes back with or without its files."""

    name = "kill"
    members = 4
    journal = "lazy"
    replaces = True

    def strike(self) -> str:
        victim = self.victim()
        words = [f"killed {self.told(victim)}"]
        self._kill(victim)
        if self.dice.random() < 0.5:
            self.cluster.wait_safe(SETTLE_S)
            words.append("copies restored")
        if self.dice.random() < 0.5:
            shutil.rmtree(self.cluster.directory(victim))
            words.append("its files lost")
            self.faults["files lost"] += 1
        (back,) = self.cluster.restart([victim], wait=False)
        if self.dice.random() < 0.25:
            time.sleep(AGAIN_S * self.dice.random())
            self._kill(back)
            (back,) = self.cluster.restart([back], wait=False)
            words.append("killed again while it came back")
        self.cluster.wait_ready([back])
        return ", ".join(words)

    def _kill(self, member: ManagedMember) -> None:
        self.cluster.kill(member)
        self.faults["kill -9"] += 1


class Owner(Nemesis):
    """The primary or leader of a queue, a counter, a lock and a semaphore is killed while they are used.

    Requests that wait there, such as to take an item or to get the lock, wait at the next one.
    """

    name = "owner"
    journal = "lazy"
    calls_maps = False

    def strike(self) -> str:
        victim = self.structures_owner()
        words = f"killed {self.told(victim)}"
        self.cluster.kill(victim)
        self.faults["kill -9"] += 1
        time.sleep(FAILOVER_S * self.dice.random())
        self.cluster.restart([victim])
        return words


class Pause(Nemesis):
    """One member, or two at once, are paused (SIGSTOP) and resumed.

    A deposed primary may still answer requests that it had already queued.
    """

    name = "pause"
    members = 5
    backups = 2
    replicas = 5

    def strike(self) -> str:
        victims = [self.victim()]
        if self.dice.random() < 0.3:
            victims.append(self.dice.choice([one for one in self.cluster.alive if one not in victims]))
        words = [f"paused {' and '.join(self.told(member) for member in victims)}"]
        with ExitStack() as stack:
            for member in victims:
                stack.enter_context(paused(member))
                self.faults["SIGSTOP"] += 1
                pause_s = choose_s(self.dice)
                time.sleep(pause_s)
                words.append(f"{pause_s:.1f} s")
            removed = [member.name for member in self.removed(victims)]
        self.faults["removed meanwhile"] += len(removed)
        return ", ".join([*words, f"removed: {' and '.join(removed) or 'none'}"])


class Cut(Nemesis):
    """Links between members are cut: halves, one member, one direction, all but a bridge; or they are slow."""

    name = "cut"
    members = 5
    backups = 2
    replicas = 5
    SHAPES = ("halves", "isolate", "one-way", "bridge", "links", "slow")

    def prepare(self, stack: ExitStack, folder: Path) -> LocalCluster:
        self.links = stack.enter_context(Links())
        self.cluster = LinkedCluster(self.links, self.members, self.config, **self._options(folder))
        return self.cluster

    def strike(self) -> str:
        shape = self.dice.choice(self.SHAPES)
        late = self.dice.random() < 0.5
        first = self.victim()
        words = f"{shape}, {self.told(first)} first"
        rest = [one.member_address for one in self.cluster.alive if one is not first]
        self.dice.shuffle(rest)
        one, everybody = first.member_address, [first.member_address, *rest]
        if shape == "slow":
            delay_s = 10 ** self.dice.uniform(-2, 0)
            self.links.slow(between([one], rest) | between(rest, [one]), delay_s)
            words += f", {1000 * delay_s:.0f} ms"
        else:
            self.links.cut(self._shape(shape, one, rest, everybody), late=late)
            words += ", what is under way arrives late" if late else ", what is under way is lost"
        self.faults[shape] += 1
        fault_s = choose_s(self.dice)
        time.sleep(fault_s)
        missed = len(self.removed())
        self.faults["removed meanwhile"] += missed
        self.links.heal()
        return f"{words}; {fault_s:.1f} s, {missed} removed meanwhile"

    def _shape(self, shape: str, one: str, rest: list[str], everybody: list[str]) -> set[tuple[str, str]]:
        if shape == "isolate":
            return between([one], rest) | between(rest, [one])
        if shape == "one-way":
            return between([one], rest) if self.dice.random() < 0.5 else between(rest, [one])
        if shape == "links":
            return {link for link in sorted(between(everybody, everybody)) if self.dice.random() < 0.3}
        few, many = [one, rest[0]], rest[1:]
        if shape == "bridge":
            many = many[1:]  # The remaining member reaches both sides.
        return between(few, many) | between(many, few)


class Resize(Nemesis):
    """Members join, others drain, and one is killed, all at the same time."""

    name = "resize"
    members = 4
    keeps_doors = False
    replaces = True
    SMALL, LARGE = 3, 6

    def strike(self) -> str:
        cluster, dice = self.cluster, self.dice
        alive = cluster.alive
        joins = dice.randint(0, self.LARGE - len(alive))
        drains = dice.randint(0, max(0, len(alive) + joins - 1 - self.SMALL))
        drains = min(drains, len(alive) - 2)
        kills = dice.random() < 0.7
        if self.zones:
            # A group shrinks to as many replicas as there are remaining members; with two, none may be lost.
            drains = min(drains, max(0, len(alive) + joins - 1 - self.replicas))
            kills = kills and len(alive) + joins - drains > self.replicas
        leaving = dice.sample(alive, drains)
        started: list[ManagedMember] = []
        words = []
        deeds: list[Callable[[], None]] = []

        def join() -> None:
            started.append(cluster.start_member(wait=False))
            self.faults["join"] += 1

        def drain(member: ManagedMember) -> None:
            if member.alive:
                words.append(f"drains {member.name}")
                cluster.drain(member, wait=False)
                self.faults["drain"] += 1

        def kill() -> None:
            victim = dice.choice(cluster.alive)
            words.append(f"kills {victim.name}")
            killed.append(victim)
            cluster.kill(victim)
            self.faults["kill -9"] += 1

        killed: list[ManagedMember] = []
        joining = [join] * joins
        deeds += [partial(drain, one) for one in leaving] + [kill] * kills
        if self.zones:
            for each in joining:
                each()
            cluster.wait_ready(started)
        else:
            deeds += joining
        dice.shuffle(deeds)
        for deed in deeds:
            deed()
            time.sleep(dice.random())
        cluster.wait_ready([member for member in started if member not in killed])
        for member in leaving:
            if member not in killed:
                cluster.wait_drained(member, SETTLE_S)
        if missing := max(0, self.SMALL - len(cluster.alive)):
            cluster.start_members(missing)
            self.faults["join"] += missing
        names = ", ".join(member.name for member in started)
        return "; ".join([*([f"joins {names}"] if names else []), *words, f"{len(cluster.alive)} members"])


class Blackout(Nemesis):
    """All members are killed at once, and come back with their files.

    Data that a killed process has passed to the operating system survives. The simulator, whose disks lose
    unsynced data, tests that it also reached the disk.
    """

    name = "blackout"
    journal = "sync"
    keeps_structures = False

    def strike(self) -> str:
        again = self.dice.random() < 0.25
        gone = self._kill_all()
        if again:
            self.cluster.restart(gone, wait=False)
            time.sleep(AGAIN_S * self.dice.random())
            gone = self._kill_all()
        begun_s = time.monotonic()
        started = self.cluster.restart(gone, wait=False)
        self.cluster.wait_served(SETTLE_S)
        self.served_s.append(self.cluster.seen_s - begun_s)
        self.cluster.wait_ready(started)
        return (
            f"killed all {len(gone)}{', and again' if again else ''}, served after {self.served_s[-1]:.1f} s"
        )

    def _kill_all(self) -> list[ManagedMember]:
        self.faults["all killed"] += 1
        return self.cluster.kill_all()


class Clock(Nemesis):
    """The calendar of one member, or of several, jumps by up to an hour, or drifts; in some rounds the member restarts.

    Only the processes' clocks change: libfaketime wraps the C library. The monotonic clock, which never jumps
    on any system, is not changed. There are no files, since these need threads, and under libfaketime a waiting
    thread spins.
    """

    name = "clock"
    replaces = True  # Returning members have no files.

    def __init__(self, dice: random.Random, library: Path | None = None) -> None:
        super().__init__(dice)
        self.library = library or find_faketime()

    def prepare(self, stack: ExitStack, folder: Path) -> LocalCluster:
        self.cluster = FakedCluster(self.library, self.members, self.config, **self._options(folder))
        return self.cluster

    def strike(self) -> str:
        assert isinstance(self.cluster, FakedCluster), "made by prepare"
        victims = self.dice.sample(self.cluster.alive, self.dice.randint(1, 2))
        words = []
        for member in victims:
            offset_s = self.cluster.offset_s(member)
            if self.dice.random() < 0.5:
                offset_s = self.dice.choice([0.0, self.dice.uniform(-JUMP_S, JUMP_S)])
                self.cluster.set_offset(member, offset_s)
                self.faults["jump"] += 1
                words.append(f"{self.told(member)} jumps to {offset_s:+.0f} s")
            else:
                rate = self.dice.uniform(-DRIFT, DRIFT)
                self.faults["drift"] += 1
                words.append(f"{self.told(member)} drifts by {rate:+.2f} s a second")
                for _ in range(1 + round(choose_s(self.dice) / CLOCK_S)):
                    offset_s += rate * CLOCK_S
                    self.cluster.set_offset(member, offset_s)
                    time.sleep(CLOCK_S)
        if self.dice.random() < 0.3:
            member = self.dice.choice(victims)
            self.cluster.kill(member)
            self.faults["kill -9"] += 1
            self.cluster.restart([member])
            words.append(f"{member.name} killed and back")
        else:
            time.sleep(choose_s(self.dice) / 4)
        return ", ".join(words)


class FakedCluster(LocalCluster):
    def __init__(self, library: Path, members: int, config: str, **options: Any) -> None:
        super().__init__(members, config, **options)
        self._library = library
        self._offsets_s: dict[str, float] = {}

    def _file(self, name: str) -> Path:
        return self.log_dir / f"{name}.clock"

    def environment(self, name: str) -> dict[str, str]:
        if name not in self._offsets_s:
            self._write(name, 0.0)
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file(name)),
            "FAKETIME_CACHE_DURATION": str(CLOCK_S),  # Else each look at a clock would open the file.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def offset_s(self, member: ManagedMember) -> float:
        return self._offsets_s[member.name]

    def set_offset(self, member: ManagedMember, offset_s: float) -> None:
        self._write(member.name, offset_s)

    def _write(self, name: str, offset_s: float) -> None:
        self._offsets_s[name] = offset_s
        new = self._file(name).with_suffix(".new")
        new.write_text(f"{offset_s:+.3f}\n", encoding="ascii")
        new.replace(self._file(name))  # Atomically: half a number would be another time.


def find_faketime() -> Path:
    """Raises DemoError if libfaketime is not installed."""
    folder, name = FAKETIME
    found = sorted(Path(folder).glob(f"*/{name}"))
    if not found:
        raise DemoError(
            "libfaketime is not installed, without which clocks cannot jump: apt-get install libfaketime, or name the "
            "library with --faketime .../libfaketimeMT.so.1"
        )
    return found[0]


@contextmanager
def paused(member: ManagedMember) -> Iterator[None]:
    member.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        member.process.send_signal(signal.SIGCONT)


NEMESES: dict[str, type[Nemesis]] = {
    one.name: one for one in (Kill, Owner, Pause, Cut, Resize, Clock, Blackout)
}
