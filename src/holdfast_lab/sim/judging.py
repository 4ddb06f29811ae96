"""Runs the judges of data on the calls of a simulated run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from holdfast.config import Settings
from holdfast.core.model import operations as core
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Request, Status
from holdfast_lab.check.heard_events import REMOVING
from holdfast_lab.check.linearizability import FOREVER, READS, Call, Outcome, judge
from holdfast_lab.check.times import EXACT, OUTLIVES, Clocks, Remaining, endings, misdated, outlived
from holdfast_lab.sim.calls import Knowledge, name_of, wire_key
from holdfast_lab.sim.clocks import MILLION
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.cutting import CLIENT as CUT
from holdfast_lab.sim.workload import Keys, map_of
from holdfast_lab.sim.world import Process, World
from holdfast_lab.sim.zone_runs import ZONED

AT_A_TIME = 40
ANSWERED_NS = 60 * SECOND
AGAIN_NS = 20 * MILLISECOND
HEARD_NS = 10 * SECOND
"""Time until a loss is known: before that, stale members may still answer."""
LAST = "the last look"
"""Client that reads every key at the end, with the cluster at rest and connected: its reads are binding."""
MODES = (
    ("a call that changed something", False, False),
    ("a call that changed nothing", True, False),
    ("a read", True, True),
)


def look(world: World, cluster: Cluster, keys: Keys, knowledge: Knowledge) -> list[str]:
    """Read every called key through one member of a cluster at rest, and record the answers as calls. Returns
    errors if they do not come.
    """
    process = world.random.choice(cluster.living())
    missing = dict.fromkeys(sorted({call.key for call in knowledge.calls}))
    due = iter(list(missing))

    def ask() -> None:
        key = next(due, None)
        if key is not None:
            _read(process, key, keys, knowledge, told)

    def told(key: str) -> None:
        del missing[key]
        # Later, because a member answers for its own partitions before the call returns.
        process.soon(ask)

    for _ in range(AT_A_TIME):
        process.step(ask)
    world.run_until(world.now_ns + ANSWERED_NS, stop=lambda: not missing)
    if missing:
        return [f"final reads of {list(missing)[:10]} were not answered", *world.failures]
    return list(world.failures)


def last_values(knowledge: Knowledge) -> dict[str, str | None]:
    looks = [call for call in knowledge.calls if call.client == LAST]
    return {call.key: call.result for call in looks if call.result is None or isinstance(call.result, str)}


def _read(
    process: Process, key: str, keys: Keys, knowledge: Knowledge, answered: Callable[[str], None]
) -> None:
    call = Call("get", key, process.world.now_ns, client=LAST)

    def told(outcome: core.Outcome) -> None:
        if outcome.status is not Status.OK:
            # The number of requests that wait for other members is limited.
            process.world.after(AGAIN_NS, partial(process.step, ask))
        else:
            call.end, call.outcome, call.result = process.world.now_ns, Outcome.DONE, name_of(outcome.value)
            knowledge.calls.append(call)
            answered(key)

    def ask() -> None:
        call.start = process.world.now_ns
        process.driver.execute(request, told)

    name = map_of(key, process.driver.member.settings)
    request = Request(Op.GET, name, [keys.partition(key)], wire_key(key))
    ask()


def clocks_of(cluster: Cluster) -> Clocks:
    clocks, files = cluster.world.clocks, bool(cluster.disks)
    # A few times as long as it may take to remove an unreachable backup.
    silent_ns = 5 * cluster.settings.cluster.suspect_after_ms * MILLISECOND
    return Clocks(
        fastest=clocks.fastest_ppm / MILLION,
        slowest=clocks.slowest_ppm / MILLION,
        early_ns=clocks.skipped_ns + (clocks.set_ahead_ns if files else 0),
        settled_ns=cluster.moved_ns,
        late_ns=clocks.stood_ns + (clocks.set_back_ns if files else 0) + max(0, silent_ns - OUTLIVES),
    )


def zone_clocks_of(cluster: Cluster) -> Clocks:
    """The same for Raft maps, where the leader's calendar decides when an entry was written and when it ends;
    the next leader's may be ahead or behind. So may that of the member to which a move of the map copies an entry.
    """
    clocks, apart_ns = clocks_of(cluster), cluster.world.clocks.apart_ns * (1 + cluster.map_moves)
    return replace(clocks, early_ns=clocks.early_ns + apart_ns, late_ns=clocks.late_ns + apart_ns)


def judge_times(
    calls: Sequence[Call], seen: Sequence[Remaining], clocks: Clocks, zone_clocks: Clocks
) -> list[str]:
    problems: list[str] = []
    for zoned, of_these in ((False, clocks), (True, zone_clocks)):
        mine = [call for call in calls if (call.key[0] == "z") is zoned]
        problems += outlived(mine, of_these)
        problems += misdated(mine, [one for one in seen if (one.call.key[0] == "z") is zoned], of_these)
    return problems


def judge_calls(
    calls: Sequence[Call],
    settings: Settings,
    clocks: Clocks = EXACT,
    lost: Sequence[tuple[int, int]] = (),
    seen: Sequence[Remaining] = (),
    zone_clocks: Clocks = EXACT,
    zone_lost: Sequence[tuple[int, int]] = (),
) -> list[str]:
    """Errors in the answers: keys whose history fits no register, with the kind of call that shows it; values
    seen after their time; reads of values that were never written. `lost`: partitions whose copies were all
    destroyed, and when; `zone_lost`: of Raft maps. `seen`: remaining times of entries in reads.
    """
    confirmed = {
        name
        for name in {map_of(call.key, settings) for call in calls}
        if settings.map(name).reads == "confirmed" or settings.map(name).raft_zone
    }
    binding = [
        call
        for call in calls
        if call.operation not in READS
        or call.client in (LAST, CUT)
        or map_of(call.key, settings) in confirmed
    ]
    moves = ZONED in settings.maps and settings.map(ZONED).reads == "confirmed"
    # Other reads may come from a replaced primary, and count as no use.
    count = settings.partitions.count
    of_zones = _parted([call for call in binding if call.key[0] == "z"], count, lost if moves else zone_lost)
    others = _parted([call for call in binding if call.key[0] != "z"], count, lost)
    binding = [*of_zones, *others]
    binding += endings(others, clocks) + endings(of_zones, zone_clocks)
    by_key: dict[str, list[Call]] = defaultdict(list)
    for call in binding:
        by_key[call.key].append(call)
    problems = [problem for key in sorted(by_key) if (problem := _of_key(key, by_key[key]))]
    return problems + judge_times(calls, seen, clocks, zone_clocks) + _invented(calls)


def _parted(calls: list[Call], partitions: int, lost: Sequence[tuple[int, int]]) -> list[Call]:
    """Split the calls on keys of lost partitions into two histories: until shortly before the loss, and after
    it, when earlier writes may be there or not. Zones lose nothing: a majority of their voters remains.
    """
    if not lost:
        return calls
    last = dict(sorted(lost, key=lambda one: one[1]))
    first = dict(sorted(lost, key=lambda one: -one[1]))
    found: list[Call] = []
    for call in calls:
        partition = partition_of(wire_key(call.key), 0, partitions)
        if partition not in last:
            found.append(call)
        elif call.start > last[partition] + HEARD_NS:
            found.append(replace(call, key=f"{call.key} after the loss"))
        else:
            doubtful = replace(call, outcome=Outcome.UNKNOWN, end=FOREVER, result=None)
            whole = call.outcome is not Outcome.DONE or call.end <= first[partition] - HEARD_NS
            found.append(replace(call if whole else doubtful, key=f"{call.key} before the loss"))
            if call.outcome is Outcome.UNKNOWN:
                found.append(replace(call, key=f"{call.key} after the loss"))
            elif call.outcome is Outcome.DONE and call.operation == "set_ttl":
                found.append(replace(doubtful, key=f"{call.key} after the loss"))
            elif call.outcome is Outcome.DONE and call.operation in REMOVING:
                if call.end > first[partition]:
                    # It may have been applied after the loss, and after writes that followed the loss.
                    found.append(replace(doubtful, end=call.end, key=f"{call.key} after the loss"))
            elif call.outcome is Outcome.DONE and call.argument is not None:
                # An earlier call leaves at most the value that it wrote, as a plain set would.
                end = max(call.end, last[partition] + HEARD_NS)
                written = replace(doubtful, operation="set", expected=None, end=end)
                found.append(replace(written, key=f"{call.key} after the loss"))
    return found


def _of_key(key: str, calls: Sequence[Call]) -> str:
    """Errors of one key, including an undecided history. The weakest mode that fails is the most informative."""
    try:
        if not judge(calls):
            return ""
        weakest = next(
            (name, found[0]) for name, *mode in MODES if (found := judge(calls, quiet=mode[0], reads=mode[1]))
        )
    except RuntimeError as undecided:
        return f"key {key} is not decided: {undecided}"
    return f"not linearizable, shown by {weakest[0]}: {weakest[1]}"


def _invented(calls: Sequence[Call]) -> list[str]:
    written = {call.argument: call for call in calls if call.argument is not None}
    problems: list[str] = []
    for call in calls:
        if not isinstance(call.result, str) or call.outcome is not Outcome.DONE:
            continue
        write = written.get(call.result)
        if write is None or write.key != call.key:
            problems.append(f"{call}: that was never written there")
        elif write.outcome is Outcome.REFUSED:
            problems.append(f"{call}: its write was refused: {write}")
        elif write.start > call.end:
            problems.append(f"{call}: before it was written: {write}")
    return problems
