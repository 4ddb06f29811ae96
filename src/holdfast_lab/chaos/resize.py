"""Grows and shrinks a cluster under load, with crashes in between, and measures lost data and waiting times.

Each round begins with 3 members. Four more join, one of the seven is killed and another one joins in its place, and all
but three are drained; members join and drain all at once, or one after the other. An official Hazelcast client reads
and writes at a fixed rate all the time. At the end everything acknowledged is read back, initial entries are read
completely, and every replica is compared with its owner.

With `--zones` one more map of the client, and of ballast, is in a zone whose replicas follow the members. Then "safe"
and "settled" include the zone, so that no member is killed before it has all its replicas again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from holdfast.client.blocking import Client
from holdfast.errors import HoldfastError
from holdfast.replica_comparison.live import diverged
from holdfast.wire.values import to_stored
from holdfast_lab.processes.campaign import SHOWN, Campaign, CampaignVerdict, run_campaign
from holdfast_lab.processes.hazelcast_writer import connect, read_back
from holdfast_lab.processes.latency import (
    CRASH,
    MOVEMENT,
    PHASES,
    PROCESSES,
    Judged,
    Log,
    Span,
    Summary,
    judge,
)
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember
from holdfast_lab.processes.paced import PacedProcess

SMALL, LARGE = 3, 7
ZONE, ZONED_CLIENT, ZONED_BALLAST = "resize", "client-zoned", "ballast-zoned"
VOTERS, REPLICAS = 3, 3
SCALE_DOWN_S = 3
"""Wait before others take the replicas of a killed member, which keeps no files."""
SETTLE_S = 180.0
ENTRY_BYTES = 1000
BALLAST_STEP = 2000
ADMITTED, LEFT = " INFO view ", " INFO left the view "
"""Log texts of a member that is admitted, and of others that continue without it."""
TIME_DIGITS = len("2026-01-01 00:00:00,000")
SLOWEST = 5
AIM_RATIO, AIM_PAUSE_MS = 3.0, 250.0
"""Targets: p99 during movement relative to p99 at rest, and the longest pause outside crashes."""


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 10
    backups: tuple[int, ...] = (1, 2)
    """Sync backups of maps: the client and the ballast have one map for each number."""
    rate: float = 400.0
    """Operations of the client in a second; half of them write."""
    megabytes: int = 32
    """Ballast of each map, which moves in addition to the client's entries."""
    small: int = SMALL
    large: int = LARGE
    rest_s: float = 5.0
    kills: bool = True
    seed: int = 0
    zones: bool = False
    """Whether one more map of each kind is in a zone with as many partitions as the cluster."""

    @property
    def config(self) -> str:
        names = [(name, count) for count in self.backups for name in (client_map(count), ballast_map(count))]
        led = "".join(f'[maps."{name}"]\nbackups = {count}\n' for name, count in names)
        if not self.zones:
            return led
        zoned = "".join(f'[maps."{name}"]\nraft_zone = "{ZONE}"\n' for name in (ZONED_CLIENT, ZONED_BALLAST))
        return f"[metastore]\nvoters = {VOTERS}\n{led}{zoned}"

    @property
    def client_maps(self) -> list[str]:
        return [client_map(count) for count in self.backups] + [ZONED_CLIENT] * self.zones


def client_map(backups: int) -> str:
    return f"client-{backups}"


def ballast_map(backups: int) -> str:
    return f"ballast-{backups}"


@dataclass
class Verdict(CampaignVerdict):
    kills: int = 0
    joins: int = 0
    drains: int = 0
    migrations: int = 0
    """As counted by the masters, without what a master did between the last question and its death."""
    moved_megabytes: float = 0.0
    """Sent by primaries for migrations and repairs, counted likewise."""
    acknowledged: int = 0
    unknown: int = 0
    read: int = 0
    wrong_reads: int = 0
    lost: int = 0
    diverged: int = 0
    measured: Judged | None = None
    spans: list[Span] = field(default_factory=list)

    def facts(self) -> dict[str, str]:
        return {
            **super().facts(),
            "members joined / drained / killed": f"{self.joins} / {self.drains} / {self.kills}",
            "migrations": f"{self.migrations:,} ({self.moved_megabytes:,.0f} MB copied)",
            "writes acknowledged": f"{self.acknowledged:,}",
            "writes not answered": f"{self.unknown:,}",
        }

    def failures(self) -> dict[str, int]:
        counts = {"wrong reads": self.wrong_reads, "lost": self.lost, "diverged": self.diverged}
        return {**counts, **super().failures()}

    def as_dict(self) -> dict[str, object]:
        plain = asdict(self)
        plain["measured"] = self.measured.as_dict() if self.measured is not None else None
        plain["good"] = self.good
        return plain


class Resize(Campaign[Verdict]):
    judges_failures = False

    def __init__(self, plan: Plan, console: Console, log_dir: Path | None = None) -> None:
        super().__init__(Verdict(), console)
        self.rounds = plan.rounds
        self.plan = plan
        self.dice = random.Random(plan.seed)  # noqa: S311 - which member dies is no secret
        self.log_dir = log_dir
        self.spans = self.verdict.spans
        self._counted: dict[str, tuple[int, int]] = {}

    def prepare(self, stack: ExitStack, folder: Path) -> None:
        plan = self.plan
        self.cluster = stack.enter_context(LocalCluster(plan.small, plan.config, log_dir=self.log_dir))
        self.cluster.wait_settled(SETTLE_S)
        for count in plan.backups:
            self._write_ballast(ballast_map(count))
        if plan.zones:
            self.cluster.create_zone(ZONE, REPLICAS, SCALE_DOWN_S)
            self.cluster.wait_settled(SETTLE_S)
            self._write_zoned_ballast()
        self._ledgers = {name: folder / f"{name}.json" for name in plan.client_maps}
        log = self.cluster.log_dir / "client.log"
        addresses = self.cluster.client_addresses()
        client = PacedProcess(addresses, self._ledgers, folder, log, plan.rate, plan.seed)
        self._client = stack.enter_context(client)
        client.wait_started()

    def judge(self) -> None:
        verdict = self.verdict
        time.sleep(self.plan.rest_s)
        self._count()
        last = self._client.finish()
        verdict.acknowledged, verdict.unknown = last.acknowledged, last.unknown
        verdict.read, verdict.wrong_reads = last.read, last.wrong_reads
        verdict.measured = judge([Log.load(self._client.operations)], list(self._ledgers), self.spans)
        self._compare()
        verdict.migrations = sum(completed for completed, _ in self._counted.values())
        verdict.moved_megabytes = sum(sent for _, sent in self._counted.values()) / 1e6

    def show(self) -> None:
        super().show()
        if self.verdict.measured is not None:
            show_waits(self.verdict.measured, self.console)

    # -- a round

    def round(self, number: int) -> str:
        """Grow, lose one member and replace it, shrink, with random victims and times."""
        plan = self.plan
        at_once = number % 2 == 1
        moment = self.dice.choice(["growing", "at rest", "shrinking"]) if plan.kills else "never"
        time.sleep(plan.rest_s)
        self._grow(at_once=at_once, kill=moment == "growing")
        time.sleep(plan.rest_s)
        if moment == "at rest":
            self._kill("at rest")
            self._replace(plan.large)
        self._shrink(at_once=not at_once if number % 4 < 2 else at_once, kill=moment == "shrinking")
        self._replace(plan.small)
        now = self._client.progress
        return f"{now.acknowledged:,} writes acknowledged, longest wait so far {now.longest_pause_ms:.0f} ms"

    def _grow(self, *, at_once: bool, kill: bool) -> None:
        missing = self.plan.large - len(self.cluster.alive)
        steps = [missing] if at_once else [1] * missing
        deadly = self.dice.randrange(len(steps)) if kill else -1
        for step, count in enumerate(steps):
            self._join(count, kill=step == deadly)
        self._replace(self.plan.large)

    def _join(self, count: int, *, kill: bool = False) -> None:
        """Add members, and wait for the movement of partitions, which begins with the first admitted one."""
        started = [self.cluster.start_member(wait=False) for _ in range(count)]
        names = ", ".join(member.name for member in started)
        self.verdict.joins += count
        self.cluster.wait_ready(started)
        admitted_s = {member.name: said_s(member, ADMITTED) for member in started}
        for member in started:
            begun_s, end_s = member.started_s, admitted_s[member.name]
            self.spans.append(Span(PROCESSES, begun_s, end_s, f"start {member.name}"))
        if kill:
            time.sleep(self.dice.random())
            self._kill(f"while {names} join")
        self.cluster.wait_settled(SETTLE_S)
        self._moved(f"join {names}", min(admitted_s.values()), self.cluster.seen_s)

    def _shrink(self, *, at_once: bool, kill: bool) -> None:
        """Drain all but `small` members, half of the times including the master."""
        alive = self.cluster.alive
        count = len(alive) - self.plan.small
        leaving = self.dice.sample(alive, count)
        steps = [leaving] if at_once else [[member] for member in leaving]
        deadly = self.dice.randrange(len(steps)) if kill else -1
        for step, wanted in enumerate(steps):
            members = [member for member in wanted if member.alive]
            if not members or len(self.cluster.alive) <= self.plan.small:
                continue
            self._count()
            names = ", ".join(member.name for member in members)
            self.verdict.drains += len(members)
            begun_s = time.monotonic()
            for member in members:
                self.cluster.drain(member, wait=False)
            killed = None
            if step == deadly:
                time.sleep(self.dice.random())
                killed = self._kill(f"while {names} leave")
            members = [member for member in members if member is not killed]
            for member in members:
                self.cluster.wait_drained(member, SETTLE_S)
            self.cluster.wait_settled(SETTLE_S)
            left_s = max((said_s(member, LEFT) for member in members), default=self.cluster.seen_s)
            self._moved(f"drain {names}", begun_s, left_s)
            self.spans.append(Span(PROCESSES, left_s, self.cluster.seen_s, f"end {names}"))

    def _replace(self, wanted: int) -> None:
        if missing := wanted - len(self.cluster.alive):
            self._join(missing)

    def _kill(self, when: str) -> ManagedMember:
        """SIGKILL one member, the master once in three times, and wait until the cluster is safe."""
        alive = self.cluster.alive
        master = self._count()
        victim = self.dice.choice(alive)
        if self.dice.random() < 1 / 3:
            victim = next((member for member in alive if member.uuid == master), victim)
        what = f"kill {victim.name}{', the master,' if victim.uuid == master else ''} {when}"
        self.say(f"  {what}")
        self.verdict.kills += 1
        begun_s = time.monotonic()
        self.cluster.kill(victim)
        self.cluster.wait_safe(SETTLE_S)
        self.spans.append(Span(CRASH, begun_s, self.cluster.seen_s, what))
        return victim

    def _moved(self, what: str, begin_s: float, end_s: float) -> None:
        self.spans.append(Span(MOVEMENT, begin_s, end_s, what))
        self.say(f"  {what}: {end_s - begin_s:.1f} s")

    def _count(self) -> str:
        """Ask every member for its counts, since it may be gone later. Returns the master."""
        master = ""
        for member in self.cluster.alive:
            try:
                status = self.cluster.status(member)
            except (HoldfastError, OSError):
                # It is just leaving.
                continue
            migrations = status.migrations
            self._counted[member.uuid] = (migrations.completed, migrations.sent_bytes)
            master = status.master or master
        return master

    # -- before and after the rounds

    def _entries(self) -> Iterator[dict[int, str]]:
        count = self.plan.megabytes * 1_000_000 // ENTRY_BYTES
        for begin in range(0, count, BALLAST_STEP):
            numbers = range(begin, min(begin + BALLAST_STEP, count))
            yield {number: f"{number:08d}" * (ENTRY_BYTES // 8) for number in numbers}

    def _ballast(self) -> Iterator[tuple[list[bytes], list[bytes]]]:
        for entries in self._entries():
            yield list(map(to_stored, entries)), list(map(to_stored, entries.values()))

    def _write_ballast(self, name: str) -> None:
        with Client(self.cluster.client_addresses()) as client:
            for keys, values in self._ballast():
                client.put_columns(name, keys, values)

    def _ballast_lost(self, name: str) -> int:
        found: dict[bytes, bytes] = {}
        with Client(self.cluster.client_addresses()) as client:
            for partition in range(client.partition_count):
                for batch in client.scan(name, partition):
                    found.update(zip(*batch.split(), strict=True))
        lost = 0
        for keys, values in self._ballast():
            lost += sum(found.pop(key, None) != value for key, value in zip(keys, values, strict=True))
        return lost + len(found)

    def _write_zoned_ballast(self) -> None:
        """Write with a Hazelcast client: columns and scans do not work for maps in zones."""
        client = connect(tuple(self.cluster.client_addresses()), "holdfast-ballast")
        try:
            ballast = client.get_map(ZONED_BALLAST).blocking()
            for entries in self._entries():
                ballast.put_all(entries)
        finally:
            client.shutdown()

    def _zoned_ballast_lost(self) -> int:
        lost = found = 0
        client = connect(tuple(self.cluster.client_addresses()), "holdfast-ballast-check")
        try:
            ballast = client.get_map(ZONED_BALLAST).blocking()
            for entries in self._entries():
                there = ballast.get_all(list(entries))
                found += len(there)
                lost += sum(there.get(key) != value for key, value in entries.items())
            return lost + abs(int(ballast.size()) - found)
        finally:
            client.shutdown()

    def _compare(self) -> None:
        verdict = self.verdict
        addresses = self.cluster.client_addresses()
        for name, ledger in self._ledgers.items():
            answer = read_back(addresses, name, ledger, by_key=name == ZONED_CLIENT)
            verdict.lost += int(answer["lost"])
            verdict.problems += [f"lost: key {key} of map {name}" for key in answer["examples"]]
        ballast = {ballast_map(count): self._ballast_lost(ballast_map(count)) for count in self.plan.backups}
        if self.plan.zones:
            ballast[ZONED_BALLAST] = self._zoned_ballast_lost()
        for name, lost in ballast.items():
            if lost:
                verdict.lost += lost
                verdict.problems.append(f"lost: {lost} entries of map {name}")
        differences = diverged(addresses[0])
        verdict.diverged = len(differences)
        verdict.problems += map(str, differences[:SHOWN])


def said_s(member: ManagedMember, words: str) -> float:
    """When a member first logged these words, by this machine's monotonic clock; now, if it never did."""
    offset_s = time.time() - time.monotonic()
    with member.log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if words in line:
                told = datetime.strptime(line[:TIME_DIGITS], "%Y-%m-%d %H:%M:%S,%f")  # noqa: DTZ007 - local, as logs are
                return told.timestamp() - offset_s
    return time.monotonic()


# -- output


def waits(title: str, phases: dict[str, Summary]) -> Table:
    shown = Table(title, "operations", "errors", "p50", "p99", "p99.9", "longest")
    for phase in PHASES:
        one = phases[phase]
        shown.add_row(
            phase,
            f"{one.operations:,}",
            f"{one.errors:,}",
            *(f"{point:.1f}" for point in (one.p50_ms, one.p99_ms, one.p999_ms, one.max_ms)),
        )
    return shown


def show_waits(measured: Judged, console: Console) -> None:
    console.print(waits("the client waited, ms", measured.phases))
    if ZONED_CLIENT in measured.maps:
        console.print(waits("of this for the map in the zone", measured.maps[ZONED_CLIENT]))
    console.print(
        f"p99 during movement is {measured.ratio:.1f} times p99 at rest (aim: {AIM_RATIO:g}); the longest pause "
        f"outside of crashes was {measured.longest_pause_ms:.0f} ms (aim: {AIM_PAUSE_MS:g})",
        highlight=False,
    )
    for slow in measured.slowest[:SLOWEST]:
        console.print(
            f"  {slow['ms']} ms: {slow['operation']} on {slow['map']} {slow['phase']}"
            + (f", {slow['after_s']} s after {slow['what']} began" if slow["what"] else ""),
            highlight=False,
        )


def main(
    plan: Plan, *, as_json: bool = False, logs: Path | None = None, console: Console | None = None
) -> int:
    """Returns 0 if nothing was lost, else 1. `as_json`: write one object to standard output, and everything
    else to standard error. `logs`: folder for the logs of members and client, which are deleted otherwise.
    """
    console = console or Console(stderr=as_json)
    maps = " and ".join(str(count) for count in plan.backups) + ", and a zone" * plan.zones
    return run_campaign(
        Resize(plan, console, logs),
        f"{plan.small} → {plan.large} → {plan.small} members, {plan.rounds} times; sync backups: {maps}; "
        f"{plan.rate:g} operations a second; {plan.megabytes} MB in each map; seed {plan.seed}",
        {"plan": asdict(plan)} if as_json else None,
    )
