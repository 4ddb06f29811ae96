"""One seed, one run, one verdict: faults, clients, judges."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from holdfast.check import convergence
from holdfast.check.durability import judge_final, judge_reads
from holdfast.core.machine import SECOND
from holdfast.core.migration.choice import How
from holdfast.core.placement.key import partition_of
from holdfast.core.rules import Rules
from holdfast.core.store.operations import Op, Outcome, Request, Status
from holdfast.sim.cluster import Cluster, simulated_settings
from holdfast.sim.faults import Faults
from holdfast.sim.workload import Client, Ear, Habits, map_of, wire_key
from holdfast.sim.world import Process, World

CONVERGE_NS = 180 * SECOND
"""Simulated time within which everything must be well again after the faults have ended."""
CLIENTS = 3
LOOKS = 32
"""How often a run is looked at for what is left over, before that counts."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one seed."""

    seed: int
    ok: bool
    problems: list[str]
    trace_hash: str
    figures: dict[str, int | float] = field(default_factory=dict)


def simulate(
    seed: int, *, without: frozenset[str] = frozenset(), story: Callable[[str], None] | None = None
) -> Verdict:
    """Run one seed. `without` switches rules off by name; `story` is told every step worth telling."""
    world = World(seed, story)
    draw = random.Random(f"{seed}/shape")
    hosts = draw.choice([3, 4, 5, 5, 7])
    spare = draw.choice([0, 1, 2])
    backups = draw.choice([1, 1, 2])
    settings = simulated_settings(
        backups,
        draw.choice([3, 7, 13, 31]),
        chunk_bytes=draw.choice([100, 1024]),
        mixed=draw.random() < 0.4,
        **_replication(seed),
    )
    cluster = Cluster(world, settings, Rules(without), hosts + spare)
    world.tell(f"seed {seed}: {hosts} hosts, {backups} backups, {settings.partitions.count} partitions")
    cluster.start(0, bootstrap=True)
    for index in range(1, hosts):
        world.after(draw.randint(0, 2 * SECOND), partial(_start, cluster, index))
    end_ns = draw.choice([15, 25, 40]) * SECOND
    clients = [Client(f"c{n}", world, cluster, Habits.drawn(draw)) for n in range(CLIENTS)]
    for client in clients:
        client.start()
    crowd = Client("crowd", world, cluster, Habits.drawn(draw))
    crowd.running = False
    faults = Faults(seed, world, cluster, end_ns, crowd.surge)
    ear = Ear(world, cluster)
    ear.start()
    faults.start()
    world.run_until(end_ns)
    faults.end()
    ear.running = False
    return _judged(seed, world, cluster, [*clients, crowd], faults)


def _replication(seed: int) -> dict[str, int]:
    """How much of the past a copy remembers, and how often replicas are compared."""
    draw = random.Random(f"{seed}/replication")
    return {
        "tail_bytes": draw.choice([0, 1000, 65_536]),
        "anti_entropy_ms": draw.choice([0, 1000, 5000]),
    }


def _start(cluster: Cluster, index: int) -> None:
    if cluster.is_free(index):
        cluster.start(index)


def _judged(seed: int, world: World, cluster: Cluster, clients: list[Client], faults: Faults) -> Verdict:
    """The second half: no more faults, clients come to an end, all must be well and everything there."""
    world.run_until(world.now_ns + 12 * SECOND)
    for client in clients:
        client.running = False
    calm_from = world.now_ns
    world.run_until(world.now_ns + CONVERGE_NS, stop=lambda: _at_rest(cluster, clients))
    problems = list(world.failures)
    if not problems and not _at_rest(cluster, clients):
        problems.append(f"not at rest {CONVERGE_NS // SECOND} s after the faults ended")
        problems += [f"{client.name} still waits" for client in clients if client.waiting]
    if not world.failures:
        members = cluster.members()
        problems += convergence.judge(members) if members else ["nobody lives"]
        if not problems:
            problems += _judge_data(world, cluster, clients)
    for problem in problems:
        world.tell(f"PROBLEM {problem}")
    figures = _figures(world, cluster, clients, faults)
    figures["calm_s"] = round((world.now_ns - calm_from) / SECOND, 1)
    return Verdict(seed, not problems, problems, world.hash.hexdigest(), figures)


def _figures(world: World, cluster: Cluster, clients: list[Client], faults: Faults) -> dict[str, int | float]:
    writes = [write for client in clients for write in client.writes]
    masters = [process.driver.member.migrations for process in cluster.everyone]
    return {
        "writes_acknowledged": sum(1 for write in writes if write.outcome == "ok"),
        "writes_unknown": sum(1 for write in writes if write.outcome == "unknown"),
        "reads": sum(len(client.reads) for client in clients),
        "migrations": sum(master.completed for master in masters),
        "migrations_failed": sum(master.failed for master in masters),
        "migrations_under_faults": faults.migrations,
        "repairs": sum(process.driver.member.repair.repaired for process in cluster.everyone),
        **{
            f"fills_{how.name.lower()}": sum(p.driver.member.source.fills[how] for p in cluster.everyone)
            for how in How
        },
        "members": len(cluster.everyone),
        "events": world.events,
        "simulated_s": round(world.now_ns / SECOND, 1),
        **{f"fault_{kind}": count for kind, count in sorted(faults.counts.items())},
    }


def _at_rest(cluster: Cluster, clients: list[Client]) -> bool:
    return not any(client.waiting for client in clients) and cluster.settled()


def _judge_data(world: World, cluster: Cluster, clients: list[Client]) -> list[str]:
    """Read every key through a member, and hold the answers against what the clients were told; then look what is
    left over when nothing is under way any more.
    """
    final: dict[str, str | None] = {}
    keys = sorted({write.key for client in clients for write in client.writes})
    process = world.random.choice(cluster.living())
    for key in keys:
        process.step(partial(_read_finally, process, key, final))
    world.run_until(world.now_ns + 10 * SECOND)
    missing = [key for key in keys if key not in final]
    if missing:
        return [f"final reads of {missing} were not answered", *world.failures]
    writes = [write for client in clients for write in client.writes]
    touches = [touch for client in clients for touch in client.touches]
    reads = [read for client in clients for read in client.reads]
    problems = judge_final(writes, final, touches, world.now_ns) + judge_reads(writes, reads)
    for _ in range(LOOKS):
        # Perhaps something is just on its way, such as a look at the tables, that is always so from time to time.
        if not cluster.leftovers():
            break
        world.run_until(world.now_ns + SECOND // 16)
    return problems + cluster.leftovers() + world.failures


def _read_finally(process: Process, key: str, final: dict[str, str | None]) -> None:
    raw = wire_key(key)
    settings = process.driver.member.settings
    partition = partition_of(raw, 0, settings.partitions.count)

    def told(outcome: Outcome) -> None:
        if outcome.status is Status.OK:
            final[key] = outcome.value.decode() if isinstance(outcome.value, bytes) else None

    process.driver.execute(Request(Op.GET, map_of(key, settings), [partition], raw), told)
