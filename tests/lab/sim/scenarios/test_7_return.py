"""Replicas that prove what they hold, group A of the scenarios of Ignite 2: a member comes back with an older copy.

Without transactions a gap in the update counter has one cause here: a copy that lags. What Ignite calls LWM is the
counter; who is MOVING there is a destination whose staging replica is being filled. Every story ends with `clean`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tests.lab.sim.scenarios.keeping import ENDS, NO_HISTORY, PARTITION, End, Keeping, kept, keys_in
from tests.lab.sim.stage import clean

from holdfast.core.messages import Fill
from holdfast.core.model.operations import Op
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.store.replica import MapReplica
from holdfast_lab.check import convergence
from holdfast_lab.check.durability import Write
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.rig import Packet

KEYS = keys_in(PARTITION, 40)
MISSED = 20


def absent(stage: Keeping, how: End = "kill", missed: int = MISSED) -> int:
    """80 updates of one partition; a backup ends; some more updates. Answers its host."""
    stage.write(KEYS)
    stage.write(KEYS)
    stage.everywhere()
    gone = next(host for host in stage.holders()[1:] if host != stage.master_host())
    stage.end(how, gone)
    stage.gone(gone)
    for _ in range(0, missed, MISSED):
        stage.write(KEYS[:MISSED])
    return gone


def serves_nothing_while_filled(stage: Keeping, host: int) -> list[int]:
    """Looks at every content that comes to the host; the list grows by the partitions."""
    seen: list[int] = []

    def look(packet: Packet) -> bool:
        if packet.receiver is stage.process(host) and isinstance(packet.message, Fill):
            member = stage.member(host)
            seen.append(packet.message.partition)
            assert member.lane.serving[packet.message.partition] is None
            assert packet.message.partition not in member.activation.active
        return False

    stage.block(look)
    return seen


@pytest.mark.covering(1)
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("kept_in", ["memory", "journal"])
def test_a_returning_member_gets_what_it_has_missed(kept_in: str, how: End) -> None:
    """A2 (figure 2): a member rejoins with LWM 80 while the others stand at 100. It is a base, exactly the 20 updates
    are sent, of the primary's memory or of its journal; and until it is whole it serves nothing.
    """
    stage = Keeping(3, kept(2, tail_bytes=65_536 if kept_in == "memory" else 0))
    gone = absent(stage, how)
    before = {host: stage.member(host).source.flow.bytes_full for host in stage.holders()}
    stage.start(gone)
    filled = serves_nothing_while_filled(stage, gone)
    stage.rest()
    assert PARTITION in filled
    (first, *more) = stage.synchronised(gone)
    assert first == ("history", f"{MISSED} updates after {stage.counter(gone) - MISSED} were missed")
    assert all(how == "same" for how, _ in more)
    assert {host: stage.member(host).source.flow.bytes_full for host in before} == before
    clean(stage, stage.writes)


@pytest.mark.parametrize("how", ENDS)
def test_without_history_it_gets_everything(how: End) -> None:
    """A2, history starts at 90: neither memory nor journal has all that was missed; nothing old is left."""
    stage = Keeping(3, kept(2, **NO_HISTORY))
    gone = absent(stage, how, missed=200)
    stage.write(KEYS[-5:], Op.DELETE)
    stage.start(gone)
    stage.rest()
    (first, *_) = stage.synchronised(gone)
    assert first[0] == "full"
    assert "history starts at" in first[1]
    clean(stage, stage.writes)


@pytest.mark.covering(1)
@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize("how", ENDS)
def test_the_supplier_dies_in_the_middle(how: End, history: bool) -> None:
    """A2, supplier s1 dies in step 5: s2 supplies; what it has missed if it knows that, else everything."""
    stage = Keeping(3, kept(2, tail_bytes=0) if history else kept(2, **NO_HISTORY))
    gone = absent(stage, how, missed=200)

    struck: list[int] = []

    def strike(packet: Packet) -> None:
        struck.append(stage.host_of(packet.sender))
        stage.end(how, *struck)

    stage.lose_first(stage.filling(gone), strike)
    stage.start(gone)
    stage.until(lambda: bool(struck))
    stage.rest()
    told = stage.synchronised(gone)
    assert told[0][0] == ("history" if history else "full")
    clean(stage, stage.writes, again=False)
    stage.start(*struck)
    clean(stage, stage.writes)


@pytest.mark.covering(1)
@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize("how", ENDS)
def test_the_returning_member_dies_in_the_middle(how: End, history: bool) -> None:
    """A2, s3 dies in step 5, and G5 (IGNITE-12321): it restarts, does not take the half for the whole, and begins again
    from what it had at first, by itself.
    """
    settings = kept(2, tail_bytes=0, chunk_bytes=200) if history else kept(2, chunk_bytes=200, **NO_HISTORY)
    stage = Keeping(3, settings)
    gone = absent(stage, how, missed=60)
    is_filling = stage.filling(gone)
    before = stage.counter(stage.holders()[0]) - 60

    def third(packet: Packet) -> bool:
        return is_filling(packet) and isinstance(packet.message, Fill) and packet.message.sequence == 3

    met = stage.lose_first(third, lambda packet: stage.end(how, gone))
    stage.start(gone)
    stage.until(lambda: bool(met))
    stage.gone(gone)
    stage.start(gone)
    stage.rest()
    (first, *_) = stage.synchronised(gone)
    assert first[0] == ("history" if history else "full")
    assert not history or first[1] == f"60 updates after {before} were missed"
    clean(stage, stage.writes)


@pytest.mark.parametrize("missed", [5, 400])
def test_writes_go_on_while_it_is_filled(missed: int) -> None:
    """A2 with concurrent writes in steps 4 and 5."""
    stage = Keeping(3, kept(2, chunk_bytes=300))
    stage.everywhere(10)
    gone = next(host for host in stage.holders()[1:] if host != stage.master_host())
    stop = stage.load()
    stage.wait(3)
    stage.end("kill", gone)
    stage.wait(missed / 20)
    stage.start(gone)
    stage.wait(6)
    stop()
    clean(stage, stage.writes)


# -- the judge


def wrong_content(stage: Keeping, held: MapReplica) -> None:
    held.state.entries[wire_key(KEYS[0])] = b"other"


def wrong_counter(stage: Keeping, held: MapReplica) -> None:
    held.updates.next()


def wrong_lineage(stage: Keeping, held: MapReplica) -> None:
    held.lineage[-1] = (held.lineage[-1][0] + 1, held.lineage[-1][1])


def a_gap(stage: Keeping, held: MapReplica) -> None:
    held.updates = UpdateCounter(held.counter - 2)
    held.updates.update(held.counter + 1, 1)


def a_lost_write(stage: Keeping, held: MapReplica) -> None:
    stage.writes.append(Write(KEYS[0], "lost", stage.world.now_ns, stage.world.now_ns, "ok"))


def disks_that_forget(stage: Keeping, held: MapReplica) -> None:
    honest = stage.cluster.power_cut_everywhere

    def forgetful() -> None:
        honest()
        for disk in stage.cluster.disks[1:]:
            disk.wipe()

    stage.cluster.power_cut_everywhere = forgetful  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "harm", [None, wrong_content, wrong_counter, wrong_lineage, a_gap, a_lost_write, disks_that_forget]
)
def test_the_judge_sees_harm(harm: Callable[[Keeping, MapReplica], None] | None) -> None:
    stage = Keeping(3, kept(1))
    stage.write(KEYS)
    if harm is None:
        clean(stage, stage.writes)
        return
    harm(stage, stage.member(stage.holders()[1]).copies.held[PARTITION].maps["ledger"])
    with pytest.raises(AssertionError):
        clean(stage, stage.writes, again=harm is disks_that_forget)


# -- histories that have parted


def parted(stage: Keeping, theirs: int) -> tuple[int, int]:
    """A primary is cut off, and writes three values that are never acknowledged; another takes over and acknowledges
    `theirs`. The first one ends, and comes back with its files. Answers its host, and where its counter stood.
    """
    stage.write(KEYS[:10])
    first = stage.holders()[0]
    stage.isolate(stage.process(first))
    unanswered = [stage.send(Op.SET, key, host=first) for key in KEYS[:3]]
    stage.wait(0.5)
    stood = stage.counter(first)
    assert stood == 13
    stage.wait(12)
    other = next(host for host in range(3) if host != first)
    if theirs:
        stage.write(KEYS[10 : 10 + theirs], host=other)
    stage.end("power cut", first)
    assert all(not answers or answers[0].status.name == "UNKNOWN" for answers in unanswered)
    stage.heal()
    stage.gone(first)
    stage.start(first)
    stage.wait(20)
    return first, stood


@pytest.mark.parametrize("theirs", [1, 3, 8])
def test_a_copy_of_another_history_is_replaced_whatever_its_counter(theirs: int) -> None:
    """G4 (10611), and figure 3 in an available grid: what comes back is stale although its bare counter is higher than,
    equal to, or lower than that of the others. The terms tell; everything is sent.
    """
    stage = Keeping(3, kept(2))
    first, stood = parted(stage, theirs)
    (told, *_) = stage.synchronised(first)
    assert told[0] == "full"
    assert re.fullmatch(rf"diverged: {stood} of term \d+ is held there, which ended at 10 here", told[1])
    clean(stage, stage.writes)
    assert {stage.counter(host) for host in range(3)} == {10 + theirs}


@ablated("term")
def test_without_terms_the_judge_sees_copies_that_differ() -> None:
    """A5, the negative control: if equal counters count as equal copies, nothing is sent, and `clean` fails."""
    stage = Keeping(3, kept(2))
    parted(stage, 3)
    problems = convergence.judge(stage.cluster.pictures())
    assert any("entries of ledger differ" in problem for problem in problems), problems
    with pytest.raises(AssertionError):
        clean(stage, stage.writes)
