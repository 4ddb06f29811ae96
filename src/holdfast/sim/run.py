"""One seed, one run, one verdict: faults, clients, judges."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from holdfast.check import convergence
from holdfast.check.durability import Write, judge_final, judge_reads
from holdfast.core.machine import MILLISECOND, SECOND
from holdfast.core.migration.choice import How
from holdfast.core.placement.key import partition_of
from holdfast.core.rules import Rules
from holdfast.core.store.operations import Op, Outcome, Request, Status
from holdfast.sim import tally
from holdfast.sim.asked import AskedRules
from holdfast.sim.cluster import Cluster
from holdfast.sim.faults import Faults
from holdfast.sim.marks import RULE
from holdfast.sim.phases import Phases
from holdfast.sim.shape import Journalling, Shape, drawn
from holdfast.sim.stream import Reader
from holdfast.sim.tally import Tally, Teller
from holdfast.sim.workload import LONG_TTL_MS, MAP, Client, Ear, Habits, map_of, wire_key
from holdfast.sim.world import Process, World

CONVERGE_NS = 180 * SECOND
"""Simulated time within which everything must be well again after the faults have ended."""
ARRIVE_NS = 2 * SECOND
"""After everybody was dead, what is just on its way at rest, such as the last offer of the table, may arrive."""
CLIENTS = 3
POWER_CUTS = 2
"""How often at least the power of all hosts fails, in runs that are about this."""
TELL_NS = 100 * MILLISECOND
"""How long those who write to a service rest in between, at the most."""
AGAIN_NS = 20 * MILLISECOND
"""After how long a read that was refused is asked for again."""
LOOK_NS = SECOND // 17
"""Between two looks: no multiple of the steps in which members compare their replicas, which would always be seen."""
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
    seed: int,
    *,
    without: frozenset[str] = frozenset(),
    story: Callable[[str], None] | None = None,
    journal: Journalling = "off",
    power_cuts: bool = False,
    memory: bool = False,
    rules: Rules | None = None,
) -> Verdict:
    """Run one seed. `without` switches rules off by name; `story` is told every step worth telling. With `power_cuts`
    everybody loses power at once, at least twice; maps are journalled synchronously then. With `memory` members have
    little or no room in their memories, again and again. `rules` are those that hold,
    if the caller wants to see how they are used, instead of all but those `without`.
    """
    world = World(seed, story)
    shape = drawn(seed, journal, power_cuts=power_cuts, memory=memory)
    if shape.clocks:
        world.clocks.err(random.Random(f"{seed}/clocks"))
    asked = AskedRules(without) if rules is None else None
    services = (lambda: [Tally(backups)]) if (backups := shape.service_backups) is not None else list
    cluster = Cluster(
        world,
        shape.settings,
        asked or rules or Rules(without),
        shape.hosts + shape.spare,
        services,
        lite=shape.lite,
        groups=shape.groups,
    )
    world.tell(f"seed {seed}: {shape.line()}")
    for feature in shape.features():
        world.marks.hit(feature)
    draw = random.Random(f"{seed}/run")
    cluster.start(0, bootstrap=True)
    for index in range(1, shape.hosts):
        world.after(draw.randint(0, 2 * SECOND), partial(_start, cluster, index))
    end_ns = shape.run_ns
    clients = [Client(f"c{n}", world, cluster, Habits.drawn(draw)) for n in range(CLIENTS)]
    for client in clients:
        client.start()
    crowd = Client("crowd", world, cluster, Habits.drawn(draw))
    crowd.running = False
    tellers = _tellers(world, cluster, shape)
    faults = Faults(
        seed,
        world,
        cluster,
        end_ns,
        crowd.surge,
        power_cuts=POWER_CUTS if power_cuts else 0,
        memory=shape.memory,
        operator=shape.states,
        connected=shape.split,
        clocks=shape.clocks,
    )
    ear = Ear(world, cluster)
    ear.start()
    reader = Reader(world, cluster, MAP)
    if shape.journal != "lazy":
        # What was told may be lost together with the write then.
        reader.start()
    faults.start()
    world.run_until(end_ns)
    faults.end()
    ear.running = reader.running = False
    phases = Phases(world, cluster, faults)
    phases.core()
    phases.lose(shape.loss)
    if shape.damage:
        phases.damage()
    world.run_until(world.now_ns + 12 * SECOND)
    for teller in tellers:
        teller.running = False
    if power_cuts:
        # Once more before the clients stop: what is lost now is not written again.
        faults.power_cut_again()
        world.run_until(world.now_ns + CONVERGE_NS, stop=lambda: not faults.power_cuts_due)
    world.failures += reader.problems
    verdict = _judged(seed, world, cluster, [*clients, crowd], faults, tellers)
    for name, times in asked.asked.items() if asked is not None else ():
        world.marks.hit(RULE + name, times)
    verdict.figures.update(world.marks.figures())
    return verdict


def _tellers(world: World, cluster: Cluster, shape: Shape) -> list[Teller]:
    """Who writes to the service, if there is one."""
    if shape.service_backups is None:
        return []
    partitions = range(shape.settings.partitions.count)
    tellers = [Teller(index, world, cluster, partitions, TELL_NS) for index in range(2)]
    for teller in tellers:
        teller.start()
    return tellers


def _start(cluster: Cluster, index: int) -> None:
    if cluster.is_free(index):
        cluster.start(index)


def _judged(
    seed: int,
    world: World,
    cluster: Cluster,
    clients: list[Client],
    faults: Faults,
    tellers: Sequence[Teller] = (),
) -> Verdict:
    """The second half: no more faults, clients come to an end, all must be well and everything there."""
    for client in clients:
        client.running = False
    calm_from = world.now_ns
    world.run_until(world.now_ns + CONVERGE_NS, stop=lambda: _over(cluster, clients, faults, tellers))
    if faults.blackouts:
        world.run_until(world.now_ns + ARRIVE_NS)
    problems = list(world.failures)
    if not problems and not _over(cluster, clients, faults, tellers):
        problems.append(f"not at rest {CONVERGE_NS // SECOND} s after the faults ended")
        problems += [f"{client.name} still waits" for client in clients if client.waiting]
    if not world.failures:
        problems += _judge_all(world, cluster, clients, known=problems)
    if not problems and tellers:
        problems += tally.judge(cluster.members(), tellers, {partition for partition, _ in cluster.lost})
    calm_ns = world.now_ns - calm_from
    if not problems and cluster.disks:
        problems += [f"again from disk: {problem}" for problem in _judge_disks(world, cluster, clients)]
    for problem in problems:
        world.tell(f"PROBLEM {problem}")
    figures = _figures(world, cluster, clients, faults)
    figures["calm_s"] = round(calm_ns / SECOND, 1)
    return Verdict(seed, not problems, problems, world.hash.hexdigest(), figures)


def _judge_all(world: World, cluster: Cluster, clients: list[Client], known: list[str]) -> list[str]:
    """What is wrong with a cluster at rest, beside what is known already; only if nothing is, with its data."""
    members = cluster.members()
    problems = convergence.judge(members) if members else ["nobody lives"]
    return problems if problems or known else _judge_data(world, cluster, clients)


def _judge_disks(world: World, cluster: Cluster, clients: list[Client]) -> list[str]:
    """Whether what the members keep in their files is all that was judged good just now: the power of all hosts fails,
    everybody starts again, and everything is judged once more.
    """
    hosts = [cluster.addresses.index(process.address) for process in cluster.running()]
    world.tell("EVERYBODY AGAIN FROM DISK")
    cluster.power_cut_everywhere()
    for index in hosts:
        world.after(world.random.randint(0, 3 * SECOND), partial(_start, cluster, index))
    world.run_until(world.now_ns + 3 * SECOND)
    world.run_until(world.now_ns + CONVERGE_NS, stop=lambda: _at_rest(cluster, clients))
    world.run_until(world.now_ns + ARRIVE_NS)
    if world.failures:
        return list(world.failures)
    problems: list[str] = []
    if not _at_rest(cluster, clients):
        problems.append(f"not at rest after {CONVERGE_NS // SECOND} s")
    return problems + _judge_all(world, cluster, clients, known=problems)


def _figures(world: World, cluster: Cluster, clients: list[Client], faults: Faults) -> dict[str, int | float]:
    writes = [write for client in clients for write in client.writes]
    masters = [process.driver.member.migrations for process in cluster.everyone]
    return {
        "writes_acknowledged": sum(1 for write in writes if write.outcome == "ok"),
        "writes_refused": sum(1 for write in writes if write.outcome == "refused"),
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


def _over(cluster: Cluster, clients: list[Client], faults: Faults, tellers: Sequence[Teller]) -> bool:
    """Whether all is well, and all that was to happen has happened."""
    if any(teller.waiting for teller in tellers):
        return False
    return not faults.power_cuts_due and _at_rest(cluster, clients)


def _at_rest(cluster: Cluster, clients: list[Client]) -> bool:
    if any(client.waiting for client in clients) or not cluster.settled():
        return False
    # What a client has given up goes on until it is answered: a map that is cleared, for one.
    return not any(member.router.leftovers["parked requests"] for member in cluster.members())


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
    writes = [_excused(write, cluster) for client in clients for write in client.writes]
    touches = [touch for client in clients for touch in client.touches]
    reads = [read for client in clients for read in client.reads]
    early, late = _slack(world, cluster)
    problems = judge_final(writes, final, touches, world.now_ns, early=early, late=late)
    problems += judge_reads(writes, reads, touches, late=late)
    left = cluster.leftovers()
    for _ in range(LOOKS):
        # Something is often just on its way, such as a comparison of replicas: only what is always there is left over.
        if not left:
            break
        world.run_until(world.now_ns + LOOK_NS)
        left = [problem for problem in cluster.leftovers() if problem in left]
    return problems + left + world.failures


def _excused(write: Write, cluster: Cluster) -> Write:
    """A write of a partition whose copies were all destroyed later may be gone, and may be there."""
    if cluster.lost:
        at = partition_of(wire_key(write.key), 0, cluster.settings.partitions.count)
        if any(partition == at and write.start <= when for partition, when in cluster.lost):
            return replace(write, outcome="unknown")
    return write


def _slack(world: World, cluster: Cluster) -> tuple[int, int]:
    """How much sooner, and how much later, than true clocks would have it, entries may have ended in this run."""
    longest, files = LONG_TTL_MS * MILLISECOND, bool(cluster.disks)
    clocks = world.clocks
    return longest - clocks.earliest_ns(longest, files=files), clocks.latest_ns(0, files=files)


def _read_finally(process: Process, key: str, final: dict[str, str | None]) -> None:
    raw = wire_key(key)
    settings = process.driver.member.settings
    partition = partition_of(raw, 0, settings.partitions.count)

    def told(outcome: Outcome) -> None:
        if outcome.status is Status.OK:
            final[key] = outcome.value.decode() if isinstance(outcome.value, bytes) else None
        else:
            # Only so many requests may wait for other members.
            again = partial(process.step, partial(_read_finally, process, key, final))
            process.world.after(AGAIN_NS, again)

    process.driver.execute(Request(Op.GET, map_of(key, settings), [partition], raw), told)
