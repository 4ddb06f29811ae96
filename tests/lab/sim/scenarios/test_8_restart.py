"""Replicas that prove what they hold, groups B and G of the scenarios of Ignite 2: members, or everybody, stop and come
back with what is in their files.

Activation of Ignite is here one thing with the return: a stopped cluster waits for those who were in it last. For
clusters with a baseline see `tests/lab/sim/test_baseline.py`.
"""

from __future__ import annotations

from functools import partial

import pytest
from tests.lab.sim.scenarios.keeping import ENDS, PARTITION, End, Files, Keeping, kept, keys_in
from tests.lab.sim.stage import clean

from holdfast.actions.accept_loss import AcceptLoss
from holdfast.actions.drain import Drain
from holdfast.core.events import ActionRequested
from holdfast.core.messages import Fill
from holdfast.core.model.operations import Op, Status
from holdfast_lab.sim.rig import Packet

KEYS = keys_in(PARTITION, 15)
SMALL: Files = {"segment_bytes": 4096, "checkpoint_bytes": 512}
"""Files so small that there are checkpoints all the time."""


def checkpoints(stage: Keeping, host: int) -> set[str]:
    return {name for name in stage.cluster.disks[host].contents() if name.startswith(f"p{PARTITION:05}-")}


# -- a single owner


@pytest.mark.covering(1)
@pytest.mark.parametrize("files", [{}, SMALL], ids=["journal", "checkpoints"])
@pytest.mark.parametrize("how", [*ENDS, "leave"])
def test_a_single_owner_restarts(how: str, files: Files) -> None:
    """B8: three lots of 5, 7 and 3 updates, with or without checkpoints between them; killed, or stopped gracefully.
    Counters and entries are 15 again.
    """
    stage = Keeping(1, kept(0, **files))
    for first, last in ((12, 15), (5, 12), (0, 5)):
        stage.write(KEYS[first:last])
        stage.wait(2)
    assert bool(checkpoints(stage, 0)) == bool(files)
    if how == "leave":
        stage.leave(0)
    else:
        stage.end("kill" if how == "kill" else "power cut", 0)
    stage.start(0)
    stage.rest()
    assert stage.counter(0) == 15
    clean(stage, stage.writes)
    stage.write(KEYS[:1])
    assert stage.counter(0) == 16, "and goes on from there"


@pytest.mark.parametrize("how", ENDS)
def test_updates_that_nobody_was_told_of_may_vanish_with_their_numbers(how: End) -> None:
    """B9: updates have numbers and are in memory, but nothing is on the disk: the restart knows nothing of them."""
    stage = Keeping(1, kept(0))
    stage.cluster.disks[0].slowness = 10_000
    answers = [stage.send(Op.SET, key) for key in KEYS]
    stage.wait(0.1)
    assert not any(answers)
    assert stage.counter(0) == 15
    stage.end(how, 0)
    stage.cluster.disks[0].slowness = 1
    stage.start(0)
    stage.rest()
    assert stage.counter(0) in (0, 15)
    clean(stage, stage.writes)


@pytest.mark.parametrize("deeds", range(1, 7))
def test_of_updates_under_way_a_beginning_is_kept(deeds: int) -> None:
    """B10: three lots of updates are on their way to the disk when the power fails, a little later each time. What is
    found has no gap, and everything that was acknowledged.
    """
    stage = Keeping(1, kept(0))
    disk = stage.cluster.disks[0]
    disk.cut_armed(deeds, stage.cluster.power_cut_everywhere)
    for first, last in ((12, 15), (5, 12), (0, 5)):
        for key in KEYS[first:last]:
            stage.send(Op.SET, key)
        stage.wait(0.05)
        if stage.process(0).dead:
            break
    assert stage.process(0).dead
    disk.cut_armed(0, stage.cluster.power_cut_everywhere)
    acknowledged = sum(write.outcome == "ok" for write in stage.writes)
    stage.start(0)
    stage.rest()
    assert acknowledged <= stage.counter(0) <= len(stage.writes)
    clean(stage, stage.writes)


# -- everybody


@pytest.mark.covering(1)
@pytest.mark.parametrize("stale", ["removed", "named"])
@pytest.mark.parametrize("how", ENDS)
def test_the_first_supplier_dies_while_a_stopped_cluster_comes_back(how: End, stale: str) -> None:
    """D5: everybody was stopped; one has stale data. The first who supplies it dies in the middle, and the next one
    takes over. `stale`: it had been removed long before, or the last row still names it.
    """
    stage = Keeping(3, kept(2, chunk_bytes=200))
    stage.write(keys_in(PARTITION, 40))
    behind = next(host for host in stage.holders()[1:] if host != stage.master_host())
    stage.end(how, behind)
    if stale == "removed":
        stage.gone(behind)
        stage.write(keys_in(PARTITION, 20))
    else:
        for key in keys_in(PARTITION, 20):
            stage.send(Op.SET, key)
        stage.wait(0.5)
    stage.end_all(how)
    struck: list[int] = []

    def strike(packet: Packet) -> None:
        struck.append(stage.host_of(packet.sender))
        stage.end(how, *struck)

    stage.lose_first(lambda packet: isinstance(packet.message, Fill) and bool(packet.message.records), strike)
    stage.start(0, 1, 2)
    stage.until(lambda: bool(struck))
    stage.rest()
    assert len(stage.processes) == 2
    clean(stage, stage.writes, again=False)
    stage.start(*struck)
    clean(stage, stage.writes)


def assigned(stage: Keeping) -> bool:
    return any(member.table.assigned for member in stage.cluster.members())


def accept(stage: Keeping, host: int) -> None:
    """The operator accepts through this member that something is lost; it is said again until nothing waits."""
    stage.cluster.accepted = True
    process = stage.process(host)
    for _ in range(10):
        if process.driver.member.picture.unserved_reason():
            process.step(partial(process.driver.handle, ActionRequested(AcceptLoss())))
            stage.wait(1)
    assert not process.driver.member.picture.unserved_reason()


@pytest.mark.covering(1)
@pytest.mark.parametrize("by_order", [False, True])
@pytest.mark.parametrize("how", [*ENDS, "leave"])
def test_a_part_that_was_not_there_last_waits_for_the_others(how: str, by_order: bool) -> None:
    """G1 (IGNITE-5854): {0,1,2,3} write and stop. {0,1} wait; the operator accepts the loss, they write and stop.
    {2,3} alone must wait, for they do not have what was written last, also if one of them is ordered to form the
    cluster (else they wait for the first seed). With everybody all is there.
    """

    def stop(*hosts: int) -> None:
        if how == "leave":
            stage.leave(*hosts)
        else:
            stage.end_all("kill" if how == "kill" else "power cut")
        stage.world.weather.refusal = 1.0

    stage = Keeping(4, kept(2))
    keys = stage.everywhere()
    stop(0, 1, 2, 3)
    stage.start(0, 1)
    stage.wait(20)
    assert not assigned(stage)
    accept(stage, 0)
    stage.rest()
    stage.write(keys)
    stage.write(keys[:10], Op.DELETE)
    stop(0, 1)
    del stage.told[:]
    stage.start(2, 3, by_order=by_order)
    stage.wait(30)
    assert not assigned(stage)
    if by_order:
        waits = [line for line in stage.told if "for members that were in the cluster last" in line]
        assert "host0" in waits[-1] or "host1" in waits[-1]
    stage.start(0, 1)
    stage.rest()
    clean(stage, stage.writes)


def test_who_was_there_last_goes_on_without_the_first_seed_when_ordered() -> None:
    """G1, the other way round: host 0, the first seed, is dead for good, and was removed. The others stop, and come
    back: nobody who was there last is missing. But only the operator knows that host 0 has nothing newer: they wait for
    an order.
    """
    stage = Keeping(3, kept(1))
    keys = stage.everywhere()
    stage.end("kill", 0)
    stage.gone(0)
    stage.write(keys)
    stage.end_all("kill")
    stage.start(1, 2)
    stage.wait(60)
    assert not assigned(stage)
    stage.end("kill", 1)
    stage.start(1, by_order=True)
    clean(stage, stage.writes)


@pytest.mark.parametrize("how", ENDS)
def test_while_all_owners_of_a_partition_are_away_the_others_work(how: End) -> None:
    """G2: reads and writes of a partition without owners fail by name, and change nothing; all others work. Here there
    is nothing to reset: when an owner is back, so is the partition, with everything.
    """
    stage = Keeping(5, kept(1))
    stage.everywhere()
    before = [stage.host_of(process) for process in stage.processes]
    gone = stage.holders()
    stage.end(how, *gone)
    stage.wait(15)
    refused = [stage.send(Op.SET, KEYS[0]), stage.send(Op.DELETE, KEYS[1]), stage.send(Op.GET, KEYS[0])]
    stage.until(lambda: all(refused), 90)
    assert {answers[0].status for answers in refused} == {Status.NOT_READY}
    stage.writes.pop()
    rows = stage.processes[0].driver.member.table.rows
    working = [
        p
        for p, row in enumerate(rows)
        if not {stage.member(host).me for host in gone} >= {*row.holding} - {None}
    ]
    assert working
    stage.write([key for partition in working for key in keys_in(partition, 3)])
    stage.start(gone[1])
    stage.rest(120)
    stage.write(KEYS[:3])
    stage.start(gone[0])
    stage.rest(120)
    assert len(stage.processes) == len(before)
    clean(stage, stage.writes)


def test_what_began_anew_is_not_mended_with_what_was_before() -> None:
    """G4 and D10 (lost partitions reset): all owners of a partition are away, the cluster accepts that, and it begins
    anew, with counters from 0. It gets as far as before. Who comes back brings the same counters: all are replaced.
    """
    stage = Keeping(5, kept(1, lost="accept"))
    stage.write(KEYS)
    gone = stage.holders()
    stage.end("power cut", *gone)
    stage.gone(*gone)
    stage.writes.clear()
    assert {stage.counter(host) for host in stage.holders()} == {0}
    stage.write(KEYS[:5])
    stage.write(KEYS[:5])
    stage.write(KEYS[:5])
    assert {stage.counter(host) for host in stage.holders()} == {15}
    stage.start(*gone)
    stage.rest()
    for host in gone:
        assert {how for how, _ in stage.synchronised(host)} <= {"full"}
    clean(stage, stage.writes)
    assert [stage.get(stage.processes[0], key) for key in KEYS[5:]] == [None] * 10


# -- history


@pytest.mark.parametrize("leaves", [True, False])
def test_who_holds_nothing_stops_and_history_stays_history(leaves: bool) -> None:
    """G6 (IGNITE-12636): a lite member comes and goes, while another is away and while it comes back."""
    stage = Keeping(3, kept(2, tail_bytes=0), spare=1)
    stage.write(KEYS)
    gone = next(host for host in stage.holders()[1:] if host != stage.master_host())
    stage.end("kill", gone)
    stage.gone(gone)
    stage.start(3, lite=True)
    stage.rest()
    stage.write(KEYS[:5])

    def stop(packet: Packet) -> None:
        if leaves:
            stage.process(3).step(partial(stage.process(3).driver.handle, ActionRequested(Drain())))
        else:
            stage.end("kill", 3)

    met = stage.lose_first(stage.filling(gone), stop)
    stage.start(gone)
    stage.until(lambda: bool(met))
    stage.until(lambda: stage.process(3).dead)
    stage.gone(3)
    assert stage.synchronised(gone)[0] == ("history", "5 updates after 15 were missed")
    clean(stage, stage.writes)


@pytest.mark.parametrize("kind", ["flip", "zero", "unreadable"])
def test_history_that_cannot_be_read_is_no_reason_to_hang(kind: str) -> None:
    """G7 (IGNITE-8391): the segments with the promised history are spoiled before they are read: everything is sent."""
    stage = Keeping(3, kept(2, tail_bytes=0, segment_bytes=4096, checkpoint_bytes=8192))
    keys = keys_in(PARTITION, 60)
    stage.write(keys)
    gone = next(host for host in stage.holders()[1:] if host != stage.master_host())
    stage.end("kill", gone)
    stage.gone(gone)
    stage.write([key for _ in range(9) for key in keys])
    others = [host for host in range(3) if host != gone]
    for host in others:
        disk = stage.cluster.disks[host]
        segments = sorted(name for name in disk.contents() if name.endswith(".seg"))
        assert len(segments) > 4
        for name in segments[:-3]:
            for offset in range(0, 4096, 512):
                disk.spoil(name, offset, kind)
    stage.start(gone)
    stage.rest()
    (first, *_) = stage.synchronised(gone)
    assert first[0] == "full"
    clean(stage, stage.writes, again=False)


@pytest.mark.parametrize("backups", [1, 2])
def test_what_was_under_way_at_a_checkpoint_is_delivered_all_the_same(backups: int) -> None:
    """G8: updates are on their way to the backups when the primary is checkpointed; the backups die, their disks fail;
    one comes back. What it is sent begins with what it proves to have, not with the primary's checkpoint.
    """
    stage = Keeping(3 + backups, kept(backups, tail_bytes=0, **SMALL))
    stage.write(KEYS)
    first, *others = stage.holders()
    for host in others:
        stage.cut(stage.process(first), stage.process(host))
        stage.cluster.disks[host].fail_armed(lambda: True)
    before = checkpoints(stage, first)
    for key in keys_in(PARTITION, 50):
        stage.send(Op.SET, key, host=first)
        stage.wait(0.1)
    assert checkpoints(stage, first) != before
    alive = [host for host in others if not stage.process(host).dead][:1]
    stage.end("power cut", *alive)
    stage.heal()
    stage.gone(*alive)
    stage.write(keys_in(PARTITION, 50))
    for host in others:
        stage.cluster.disks[host].fail_armed(None)
        if stage.process(host).dead:
            stage.start(host)
    stage.rest()
    clean(stage, stage.writes)
