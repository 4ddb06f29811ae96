"""Holds what the clients of a run were told against what a map is: the judges of data."""

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

AT_A_TIME = 40
ANSWERED_NS = 60 * SECOND
"""Within which the last reads are answered."""
AGAIN_NS = 20 * MILLISECOND
"""After how long a read that was refused is asked for again."""
HEARD_NS = 10 * SECOND
"""Within which a loss is heard of: before that somebody may still answer from what others have given up."""
LAST = "the last look"
"""The client that reads every key when all is at rest: nobody can be cut off then, so its reads are binding."""
MODES = (
    ("a call that changed something", False, False),
    ("a call that changed nothing", True, False),
    ("a read", True, True),
)


def look(world: World, cluster: Cluster, keys: Keys, knowledge: Knowledge) -> list[str]:
    """Read every key that anybody has called, through one member of a cluster at rest, and note the answers as calls.
    What is wrong if they do not come.
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
        # Soon, not at once: a member answers what is its own before the call returns.
        process.soon(ask)

    for _ in range(AT_A_TIME):
        process.step(ask)
    world.run_until(world.now_ns + ANSWERED_NS, stop=lambda: not missing)
    if missing:
        return [f"final reads of {list(missing)[:10]} were not answered", *world.failures]
    return list(world.failures)


def last_values(knowledge: Knowledge) -> dict[str, str | None]:
    """What the last look has found of each key."""
    looks = [call for call in knowledge.calls if call.client == LAST]
    return {call.key: call.result for call in looks if call.result is None or isinstance(call.result, str)}


def _read(
    process: Process, key: str, keys: Keys, knowledge: Knowledge, answered: Callable[[str], None]
) -> None:
    call = Call("get", key, process.world.now_ns, client=LAST)

    def told(outcome: core.Outcome) -> None:
        if outcome.status is not Status.OK:
            # Only so many requests may wait for other members.
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
    """What the clocks of its hosts have been like."""
    clocks, files = cluster.world.clocks, bool(cluster.disks)
    # As long as it may take until a backup that nobody reaches is left out, a few times over.
    silent_ns = 5 * cluster.settings.cluster.suspect_after_ms * MILLISECOND
    return Clocks(
        fastest=clocks.fastest_ppm / MILLION,
        slowest=clocks.slowest_ppm / MILLION,
        early_ns=clocks.skipped_ns + (clocks.set_ahead_ns if files else 0),
        settled_ns=cluster.moved_ns,
        late_ns=clocks.stood_ns + (clocks.set_back_ns if files else 0) + max(0, silent_ns - OUTLIVES),
    )


def zone_clocks_of(cluster: Cluster) -> Clocks:
    """The same for Raft maps. There the leader's calendar says when an entry was written and when its time is over; the
    next leader's may be ahead or behind.
    """
    clocks, apart_ns = clocks_of(cluster), cluster.world.clocks.apart_ns
    return replace(clocks, early_ns=clocks.early_ns + apart_ns, late_ns=clocks.late_ns + apart_ns)


def judge_times(
    calls: Sequence[Call], seen: Sequence[Remaining], clocks: Clocks, zone_clocks: Clocks
) -> list[str]:
    """Entries that were seen after their time, or of which a read told another end than their writes allow."""
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
) -> list[str]:
    """What is wrong with the answers, in words: of a key that holds no register, what kind of call shows it; values
    that were seen after their time; reads of what nobody wrote. `lost`: partitions of which all copies were destroyed,
    and when. `seen`: how long entries still had, as reads were told.
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
    binding = _parted(binding, settings.partitions.count, lost)
    # Other reads may come from a primary that was replaced, and have used nothing.
    of_zones = [call for call in binding if call.key[0] == "z"]
    others = [call for call in binding if call.key[0] != "z"]
    binding += endings(others, clocks) + endings(of_zones, zone_clocks)
    by_key: dict[str, list[Call]] = defaultdict(list)
    for call in binding:
        by_key[call.key].append(call)
    problems = [problem for key in sorted(by_key) if (problem := _of_key(key, by_key[key]))]
    return problems + judge_times(calls, seen, clocks, zone_clocks) + _invented(calls)


def _parted(calls: list[Call], partitions: int, lost: Sequence[tuple[int, int]]) -> list[Call]:
    """The same calls, but that those on a key whose partition was lost are two histories: one until shortly before, and
    one after it, in which whatever was written before may be there or not. Of a zone nothing is ever lost: a majority
    of its voters is left.
    """
    if not lost:
        return calls
    zoned = [call for call in calls if call.key[0] == "z"]
    calls = [call for call in calls if call.key[0] != "z"]
    last = dict(sorted(lost, key=lambda one: one[1]))
    first = dict(sorted(lost, key=lambda one: -one[1]))
    found: list[Call] = zoned
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
                    # It may have been made after the loss, and of what was written after it.
                    found.append(replace(doubtful, end=call.end, key=f"{call.key} after the loss"))
            elif call.outcome is Outcome.DONE and call.argument is not None:
                # Of all that was done only what it has written can be there, as if that had been all.
                end = max(call.end, last[partition] + HEARD_NS)
                written = replace(doubtful, operation="set", expected=None, end=end)
                found.append(replace(written, key=f"{call.key} after the loss"))
    return found


def _of_key(key: str, calls: Sequence[Call]) -> str:
    """What is wrong with one key: the weakest mode in which it fails says most. Nor may one stay undecided."""
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
    """Answers that name a value which nobody wrote there, whose write was refused, or which was written only later."""
    written = {call.argument: call for call in calls if call.argument is not None}
    problems: list[str] = []
    for call in calls:
        if not isinstance(call.result, str) or call.outcome is not Outcome.DONE:
            continue
        write = written.get(call.result)
        if write is None or write.key != call.key:
            problems.append(f"{call}: nobody wrote that there")
        elif write.outcome is Outcome.REFUSED:
            problems.append(f"{call}: its write was refused: {write}")
        elif write.start > call.end:
            problems.append(f"{call}: before it was written: {write}")
    return problems
