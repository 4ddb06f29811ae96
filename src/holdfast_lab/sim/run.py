"""One run of one seed with its verdict: faults, clients, judges."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.sync_request import How
from holdfast.core.primary_backup.lane import Ways
from holdfast.engine.recording import RecordBroken, Recorder
from holdfast.version import __version__
from holdfast_lab.check import convergence, ranked_placement
from holdfast_lab.check.linearizability import STILL, Call, Outcome
from holdfast_lab.check.times import OUTLIVES
from holdfast_lab.check.witnessed import witnessed
from holdfast_lab.sim.ablations.rules import RULES
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.builds import Builds
from holdfast_lab.sim.calls import Knowledge
from holdfast_lab.sim.clients.client import Manners
from holdfast_lab.sim.clients.hazelcast import HazelcastClient
from holdfast_lab.sim.clients.own_client import OwnClient
from holdfast_lab.sim.clients.simulated_doors import Doors
from holdfast_lab.sim.clocks import SYNCHRONISED_MS
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.faults import Faults
from holdfast_lab.sim.judging import clocks_of, judge_calls, last_values, look, zone_clocks_of
from holdfast_lab.sim.lies import LIES, telling
from holdfast_lab.sim.map_mover import MapMover
from holdfast_lab.sim.marks import RULE, Marks
from holdfast_lab.sim.observers import Observers
from holdfast_lab.sim.phases import Phases
from holdfast_lab.sim.shape import KEPT_SEEDS, Journalling, Shape, drawn
from holdfast_lab.sim.side_callers import SideCallers, hosted_services, side_callers
from holdfast_lab.sim.workload import Auditor, Client, Habits, Keys
from holdfast_lab.sim.world import World
from holdfast_lab.sim.zone_runs import ZoneOperator, ZoneWatch, keeping_log_entries

CONVERGE_NS = 180 * SECOND
ARRIVE_NS = 2 * SECOND
"""For messages in flight at rest, such as the last table offer or the end of a connection."""
CLIENTS = 3
REMEMBERS = 1000
"""Least number of remembered requests for clients to repeat short requests."""
WIRED = 0.7
POWER_CUTS = 2
TELL_NS = 100 * MILLISECOND
LOOK_NS = SECOND // 17
"""Interval of looks: no multiple of the steps in which members compare replicas, which would always be in
progress.
"""
LATE_NS = 5 * SECOND
"""Delay, beyond the tolerance for expired entries, before they are looked for: entries of seconds are gone
then.
"""
CAUGHT_UP_NS = 20 * SECOND
GOES_ON = frozenset(
    {"parked requests", "transactions", "transactions that are being ended", "maps to be forgotten"}
)
"""Work that ends by itself: its requester has given up, or it is housekeeping that begins at any time.
Example: a map whose last entry expired is forgotten some rounds of anti-entropy later.
"""
LOOKS = 32


WITHOUT, TOLD_LIES, ENTRIES = "without", "lies", "log entries"


@contextmanager
def as_recorded(told: Mapping[str, str]) -> Iterator[None]:
    """Set up members as recorded, for the block: disabled rules, lies and short logs. Raises RecordBroken for
    unknown ones.
    """
    without, lies = (
        {name for name in told.get(what, "").split(", ") if name} for what in (WITHOUT, TOLD_LIES)
    )
    if unknown := sorted((without - RULES.keys()) | (lies - LIES.keys())):
        raise RecordBroken(f"it was run with {', '.join(unknown)}: no rule or lie that this Holdfast knows")
    with telling(lies), ablated(*without), keeping_log_entries(int(told.get(ENTRIES, 0))):
        yield


@dataclass(frozen=True, slots=True)
class Verdict:
    seed: int
    ok: bool
    problems: list[str]
    trace_hash: str
    figures: dict[str, int | float] = field(default_factory=dict)


def simulate(
    seed: int,
    *,
    without: frozenset[str] = frozenset(),
    lies: frozenset[str] = frozenset(),
    story: Callable[[str], None] | None = None,
    journal: Journalling = "off",
    power_cuts: bool = False,
    memory: bool = False,
    zones: bool = False,
    transactions: bool = False,
    asked: Counter[str] | None = None,
    record: Callable[[bytes], object] | None = None,
    ways: Ways | None = None,
) -> Verdict:
    """Run one seed.

    `without`: names of disabled rules. `lies`: names of installed lies. `story`: called with every notable
    step. `power_cuts`: all hosts lose power at once, at least twice, and maps are journalled synchronously.
    `memory`: members have little or no memory at times. `zones`: one of the maps is in a zone.
    `transactions`: applications run some. `asked`: counts for each rule the decisions it took part in, also
    if the run raises an error. `record`: gets the bytes of a recording (`engine.recording`). `ways`: compiled
    parts of members; with compiled tables a run is reproducible only in a process with the same hash secret
    (PYTHONHASHSEED).
    """
    asked = Counter() if asked is None else asked
    shape = drawn(seed, journal, power_cuts=power_cuts, memory=memory, zones=zones, transactions=transactions)
    told = {"seed": str(seed), "shape": shape.line(), "holdfast": __version__}
    told |= {ENTRIES: str(shape.log_entries)} if shape.zone is not None else {}
    told |= {
        what: ", ".join(sorted(names)) for what, names in ((WITHOUT, without), (TOLD_LIES, lies)) if names
    }
    with telling(lies), ablated(*without, asked=asked), keeping_log_entries(shape.log_entries):
        recorder = partial(Recorder, record, told=told) if record is not None else None
        verdict, marks = _run(seed, story, shape, power_cuts=power_cuts, recorder=recorder, ways=ways)
    for name, times in asked.items():
        marks.hit(RULE + name, times)
    verdict.figures.update(marks.figures())
    return verdict


def _run(
    seed: int,
    story: Callable[[str], None] | None,
    shape: Shape,
    *,
    power_cuts: bool,
    recorder: Callable[[World], Recorder] | None,
    ways: Ways | None,
) -> tuple[Verdict, Marks]:
    world = World(seed, story)
    if ways is not None:
        world.ways = ways
    world.buffer_ns = shape.buffer_ns
    if recorder is not None:
        world.recorder = recorder(world)
    cluster = _cluster(world, shape)
    draw = random.Random(f"{seed}/run")
    cluster.start(0, bootstrap=True)
    for index in range(1, shape.hosts):
        world.after(draw.randint(0, 2 * SECOND), partial(_start, cluster, index))
    end_ns = shape.run_ns
    doors = Doors(world, cluster)
    clients, crowd = _clients(world, cluster, doors, shape, draw)
    callers = side_callers(world, cluster, shape, TELL_NS)
    watch = _zone(world, cluster, shape, crowd.knowledge.calls)
    faults = _faults(world, cluster, shape, crowd, power_cuts=power_cuts)
    observers = _observers(world, cluster, shape, crowd, doors, power_cuts=power_cuts)
    observers.start()
    faults.start()
    Builds(seed, world, cluster, end_ns).start()
    world.run_until(end_ns)
    faults.end()
    phases = Phases(world, cluster, faults)
    phases.core()
    phases.lose(shape.loss)
    if shape.zone_loss:
        phases.lose_zone()
    if shape.damage:
        # A reader of a damaged copy would see the damage.
        observers.pause()
        phases.damage()
    world.run_until(world.now_ns + 12 * SECOND)
    callers.stop()
    if power_cuts:
        # Before the clients stop: what is lost now is not written again.
        faults.power_cut_again()
        world.run_until(world.now_ns + CONVERGE_NS, stop=lambda: not faults.power_cuts_due)
    observers.pause()
    verdict = _judged(seed, world, cluster, [*clients, crowd], faults, observers, callers, watch)
    return verdict, world.marks


def _cluster(world: World, shape: Shape) -> Cluster:
    seed = world.seed
    if shape.clocks:
        world.clocks.err(random.Random(f"{seed}/clocks"))
    if shape.zone is not None and seed % 2:
        world.clocks.skew_ms = SYNCHRONISED_MS
    services = hosted_services(shape)
    cluster = Cluster(
        world,
        shape.settings,
        shape.hosts + shape.spare,
        services,
        lite=shape.lite,
        groups=shape.groups,
        builds=shape.builds,
    )
    world.log(f"seed {seed}: {shape.line()}")
    for feature in shape.features():
        world.marks.hit(feature)
    return cluster


def _faults(world: World, cluster: Cluster, shape: Shape, crowd: Client, *, power_cuts: bool) -> Faults:
    return Faults(
        world.seed,
        world,
        cluster,
        shape.run_ns,
        crowd.surge,
        power_cuts=POWER_CUTS if power_cuts else 0,
        memory=shape.memory,
        operator=shape.states,
        connected=shape.split,
        clocks=shape.clocks,
    )


def _observers(
    world: World, cluster: Cluster, shape: Shape, crowd: Client, doors: Doors, *, power_cuts: bool
) -> Observers:
    # If nothing is durable, delivered changes may be lost together with their writes.
    durable = shape.journal != "lazy"
    return Observers(
        world,
        cluster,
        crowd.keys,
        crowd.knowledge,
        doors,
        stream=durable,
        transactions=shape.transactions and durable,
        lifetimes=bool(cluster.disks) and (power_cuts or world.seed >= KEPT_SEEDS),
    )


def _clients(
    world: World, cluster: Cluster, doors: Doors, shape: Shape, draw: random.Random
) -> tuple[list[Client], Client]:
    keys, knowledge = Keys(shape.settings, shape.keys), Knowledge(locks=shape.transactions)

    wires = random.Random(f"{world.seed}/wires")
    remembers = shape.settings.replication.request_ids >= REMEMBERS and not shape.large_bytes

    def client(name: str, kind: type[Client] = Client, wired: float = 0.0) -> Client:
        wire = None
        if wires.random() < wired:
            protocol = wires.choice([HazelcastClient, HazelcastClient, OwnClient])
            own = random.Random(f"{world.seed}/{name} on the wire")
            # A repeat that is not remembered would rightly be applied twice.
            manners = replace(Manners.drawn(own), **({} if remembers else {"repeats": False}))
            wire = protocol(name, world, doors, own, manners)
        return kind(name, world, cluster, Habits.drawn(draw, shape.large_bytes), keys, knowledge, wire)

    clients = [*(client(f"c{number}", wired=WIRED) for number in range(CLIENTS)), client("auditor", Auditor)]
    for each in clients:
        each.start()
    crowd = client("crowd")
    crowd.running = False
    return clients, crowd


def _zone(world: World, cluster: Cluster, shape: Shape, calls: Sequence[Call]) -> ZoneWatch | None:
    if shape.zone is None:
        return None
    operator = ZoneOperator(world, cluster, shape.zone, shape.run_ns, shape.start_voters)
    operator.start()
    if shape.moves:
        MapMover(world, cluster, operator, shape.run_ns).start()
    watch = ZoneWatch(world, cluster, operator, calls)
    watch.start()
    return watch


def _start(cluster: Cluster, index: int) -> None:
    if cluster.is_free(index):
        cluster.start(index)


def _judged(
    seed: int,
    world: World,
    cluster: Cluster,
    clients: list[Client],
    faults: Faults,
    observers: Observers,
    callers: SideCallers,
    watch: ZoneWatch | None = None,
) -> Verdict:
    for client in clients:
        client.stop()
    calm_from = world.now_ns
    _come_to_rest(world, lambda: _over(cluster, clients, faults, callers, watch), clients)
    problems = list(world.failures)
    if not problems and not _over(cluster, clients, faults, callers, watch):
        problems.append(f"not at rest {CONVERGE_NS // SECOND} s after the faults ended")
        problems += [f"{client.name} still waits" for client in clients if client.waiting]
        problems += watch.problems() if watch is not None else []
    final: dict[str, str | None] = {}
    if not world.failures:
        problems += _look_at_all(world, cluster, clients, known=problems, observers=observers)
        final = last_values(clients[0].knowledge)
    observers.end()
    if not problems:
        problems += callers.problems(cluster)
    calm_ns = world.now_ns - calm_from
    if not problems and cluster.disks:
        problems += [
            f"again from disk: {problem}"
            for problem in _again_from_disk(world, cluster, clients, watch) or observers.lifetimes.look()
        ]
    if not problems and any(client.habits.ttl or client.habits.idle for client in clients):
        world.run_until(world.now_ns + OUTLIVES + LATE_NS)
        problems += look(world, cluster, clients[0].keys, clients[0].knowledge)
    problems += judge_calls(
        clients[0].knowledge.calls,
        cluster.settings,
        clocks_of(cluster),
        cluster.lost,
        observers.lifetimes.seen,
        zone_clocks_of(cluster),
        cluster.zone_lost,
    )
    problems += observers.problems(clients[0].knowledge.calls, final)
    for problem in problems:
        world.log(f"PROBLEM {problem}")
    figures = _figures(world, cluster, clients, faults)
    figures |= observers.figures | callers.figures
    figures["calm_s"] = round(calm_ns / SECOND, 1)
    return Verdict(seed, not problems, problems, world.hash.hexdigest(), figures)


def _come_to_rest(world: World, at_rest: Callable[[], bool], clients: Sequence[Client] = ()) -> None:
    """Run until the cluster is at rest and messages in flight have arrived. Wait twice, because an entry that
    expires just then is removed from its replicas.
    """
    world.run_until(world.now_ns + CONVERGE_NS, stop=at_rest)
    for client in clients:
        client.hang_up()
    world.run_until(world.now_ns + ARRIVE_NS)
    world.run_until(world.now_ns + CONVERGE_NS, stop=at_rest)


def _look_at_all(
    world: World,
    cluster: Cluster,
    clients: list[Client],
    known: list[str],
    observers: Observers | None = None,
) -> list[str]:
    """Errors of a cluster at rest, in addition to known ones. Only without any, read all its data, and look
    for leftovers.
    """
    members = cluster.pictures()
    problems = convergence.judge(members) if members else ["no process lives"]
    if cluster.settings.partitions.placement == "rendezvous":
        problems += ranked_placement.judge(members)
    if problems or known:
        return problems
    problems = look(world, cluster, clients[0].keys, clients[0].knowledge)
    if observers is not None:
        problems += observers.lifetimes.look()
        # This takes a second, in which entries may expire, so the change stream is read to its end after it.
        observers.near_caches.look()
        world.run_until(world.now_ns + CAUGHT_UP_NS, stop=lambda: observers.caught_up)
        observers.look()
        observers.end()
    left = cluster.leftovers()
    for _ in range(LOOKS):
        # Something is often in flight, such as a comparison of replicas: only what is there at every look is
        # left over.
        if not left:
            break
        world.run_until(world.now_ns + LOOK_NS)
        left = [problem for problem in cluster.leftovers() if problem in left]
    return problems + left + world.failures


def _again_from_disk(
    world: World, cluster: Cluster, clients: list[Client], watch: ZoneWatch | None
) -> list[str]:
    """Check that the files contain everything that was just judged: the power of all hosts fails, all
    restart, and everything is checked again.
    """
    lazy = any(chosen.journal == "lazy" for chosen in cluster.settings.maps.values())
    if lazy and any(client.habits.idle for client in clients):
        # The reads have removed entries whose idle time was over. A power cut may undo that until it is
        # durable, and the entries would come back with a fresh idle time.
        lag_ms = cluster.settings.persistence.sync_interval_ms
        world.run_until(world.now_ns + 2 * lag_ms * MILLISECOND)
    hosts = [cluster.addresses.index(process.address) for process in cluster.running()]
    world.log("EVERYBODY AGAIN FROM DISK")
    cluster.power_cut_everywhere()
    for index in hosts:
        world.after(world.random.randint(0, 3 * SECOND), partial(_start, cluster, index))
    world.run_until(world.now_ns + 3 * SECOND)
    _come_to_rest(world, lambda: _at_rest(cluster, clients, watch))
    if world.failures:
        return list(world.failures)
    problems: list[str] = []
    if not _at_rest(cluster, clients, watch):
        problems.append(f"not at rest after {CONVERGE_NS // SECOND} s")
        problems += watch.problems() if watch is not None else []
    return problems + _look_at_all(world, cluster, clients, known=problems)


def _figures(world: World, cluster: Cluster, clients: list[Client], faults: Faults) -> dict[str, int | float]:
    calls = clients[0].knowledge.calls
    seen = [shown for _, shown in witnessed(calls)]
    writes = [call.outcome for call in calls if call.operation not in STILL]
    pictures = [process.picture for process in cluster.everyone]
    masters = [picture.migrations() for picture in pictures]
    return {
        "writes_acknowledged": len(seen),
        "writes_judged": sum(seen),
        "writes_refused": writes.count(Outcome.REFUSED),
        "writes_unknown": writes.count(Outcome.UNKNOWN),
        "calls": len(calls),
        "migrations": sum(master.completed for master in masters),
        "migrations_failed": sum(master.failed for master in masters),
        "migrations_under_faults": faults.migrations,
        "repairs": sum(picture.repaired for picture in pictures),
        **{
            f"fills_{how}": sum(picture.replicas().filled[how] for picture in pictures)
            for how in (one.name.lower() for one in How)
        },
        "members": len(cluster.everyone),
        "events": world.events,
        "simulated_s": round(world.now_ns / SECOND, 1),
        **{f"fault_{kind}": count for kind, count in sorted(faults.counts.items())},
    }


def _over(
    cluster: Cluster,
    clients: list[Client],
    faults: Faults,
    callers: SideCallers,
    watch: ZoneWatch | None,
) -> bool:
    if callers.waiting:
        return False
    return not faults.power_cuts_due and _at_rest(cluster, clients, watch)


def _at_rest(cluster: Cluster, clients: list[Client], watch: ZoneWatch | None) -> bool:
    if any(client.waiting for client in clients) or not cluster.settled():
        return False
    # Work for clients that gave up continues until it is answered, such as clearing a map.
    if any(picture.under_way().keys() & GOES_ON for picture in cluster.pictures()):
        return False
    return watch is None or watch.at_rest()
