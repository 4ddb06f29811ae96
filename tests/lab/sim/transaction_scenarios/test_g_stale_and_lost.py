"""Scenarios G2 to G11: copies that are stale or lost, history that is not there, cuts, and what never ends.

G1 is told with the baseline, G3 in `tests/lab/sim/test_loss_policies.py`, and G5 with A2.
"""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from tests.lab.sim.scenarios.keeping import PARTITION, Files, kept, keys_in
from tests.lab.sim.transaction_scenarios.scenario_stage import GRACEFUL, TransactingStage, under_load

from holdfast.actions.drain import Drain
from holdfast.actions.reset_lost import ResetLost
from holdfast.config import MapSettings, Settings
from holdfast.core.events import ActionRequested
from holdfast.core.model.operations import Op
from holdfast.core.model.transaction_orders import TransactionFate
from holdfast.core.primary_backup.cuts import Taken
from holdfast_lab.check.serializability import (
    AnomalyFound,
    Isolation,
    ListRead,
    ListTransaction,
    TransactionOutcome,
    judge,
)
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import key_of
from holdfast_lab.sim.rig import Packet
from holdfast_lab.sim.transacting import LISTS, Applications
from holdfast_lab.sim.world import Process

SMALL: Files = {"segment_bytes": 4096, "checkpoint_bytes": 512}
KEYS = keys_in(PARTITION, 60)


# -- G2: all owners are away


def safe(backups: int = 1) -> Settings:
    settings = kept(backups)
    safe = MapSettings(backups=backups, journal="sync", loss_policy="read-write-safe")
    return msgspec.structs.replace(settings, maps={**settings.maps, "ledger": safe})


def refused(stage: TransactingStage, near: int) -> None:
    """Nothing can be written to the partition, in no kind of transaction."""
    for optimistic in (False, True):
        tx = stage.begin_unheard(near, stage.values(KEYS[8:10]), optimistic=optimistic)
        stage.wait(1)
        assert {each.fate for each in tx.writes} == {TransactionFate.NOT_DONE}
        assert "LOST" in tx.writes[0].answer.why
        stage.roll_back(tx)


@pytest.mark.covering(1)
@pytest.mark.parametrize("began", ["prepared", "locked", "optimistic"])
@pytest.mark.parametrize("how", ["kill", "power cut"])
def test_g2_what_is_lost_is_no_business_of_transactions_until_it_is_reset(how: str, began: str) -> None:
    """One that was prepared when the owners went away waits for them, and is not half done. One that had not begun to
    be prepared is rolled back: nothing of it is written to what is lost.
    """
    stage = TransactingStage(5, safe())
    gone = stage.holders()
    near = next(host for host in range(5) if host not in gone)
    other = next(p for p in range(7) if not {*stage.holders(p)} & {*gone})
    stage.transact(near, [*KEYS[:5], *keys_in(other, 5)])
    waits = stage.begin(
        near, stage.values([*KEYS[5:8], *keys_in(other, 3, 5)]), optimistic=began == "optimistic"
    )
    if began == "prepared":
        stage.hold_commits(near)
        stage.commit(waits)
        stage.soon(lambda: stage.prepared(waits))
        stage.wait(0.05)
    stage.end("kill" if how == "kill" else "power cut", *gone)
    stage.gone_but(*gone)
    if began == "prepared":
        stage.resume_commits(near)
    refused(stage, near)
    stage.transact(near, keys_in(other, 3, 10))
    assert waits.fate is None
    stage.start(*gone)
    stage.calm()
    refused(stage, near)
    if began != "prepared":
        stage.commit(waits)
        stage.answered(waits)
        assert waits.fate is TransactionFate.ROLLED_BACK
        assert ("its locks" if began == "locked" else "are lost") in waits.told.answer.why
    process = stage.process(near)
    lost = tuple(process.driver.member.picture.lost_partitions)
    process.step(lambda: process.driver.handle(ActionRequested(ResetLost(list(lost), ["ledger"]))))
    stage.wait(2)
    stage.answered(waits)
    assert waits.done == (began == "prepared")
    stage.whole()


# -- G4: stale


@pytest.mark.parametrize("theirs", [1, 3, 8], ids=["ahead", "equal", "behind"])
def test_g4_a_stale_copy_is_replaced_whatever_its_counter(theirs: int) -> None:
    """A primary was cut off with a transaction that nobody heard of; after a long absence its bare counter is higher
    than, equal to, or lower than that of the others. No read on any member ever sees what it holds.
    """
    stage = TransactingStage(3)
    one = stage.holders()[0]
    other = next(host for host in range(3) if host != one)
    stage.transact(other, KEYS[:10])
    unheard = stage.begin(one, stage.values(KEYS[:3]))
    stage.wait(1)
    stage.isolate(stage.process(one))
    stage.commit(unheard)
    stage.wait(12)
    assert stage.counter(one) == 13
    stage.transact(other, KEYS[:theirs])
    assert {stage.counter(host) for host in range(3) if host != one} == {10 + theirs}
    stage.end("power cut", one)
    stage.heal()
    stage.gone(one)
    stage.start(one)
    seen = set()
    for _ in range(10):
        if stage.process(one).up and stage.member(one).picture.admitted:
            seen |= {stage.get(stage.process(one), key) for key in KEYS[:3]}
        stage.wait(0.3)
    assert not seen & {*unheard.entries.values()}, "of what was never done"
    stage.rest()
    assert stage.synchronised(one)[0][0] == "full"
    stage.whole()


@ablated("term")
def test_g4_without_terms_what_is_stale_is_seen() -> None:
    with pytest.raises(AssertionError):
        test_g4_a_stale_copy_is_replaced_whatever_its_counter(3)


@pytest.mark.parametrize("how", ["kill", "power cut"])
def test_g4_what_began_anew_is_not_mended_with_what_was_before(how: str) -> None:
    """All owners are away, the cluster accepts that, and the partition begins anew; its counter gets as far as before.
    Who comes back is filled with what is there now. (D10, lost partitions that are reset.)
    """
    stage = TransactingStage(5, kept(1, lost="accept"))
    gone = stage.holders()
    near = next(host for host in range(5) if host not in gone)
    stage.transact(near, KEYS[:15])
    stage.end("kill" if how == "kill" else "power cut", *gone)
    stage.gone(*gone)
    stage.expected.clear()
    assert {stage.counter(host) for host in stage.holders()} == {0}
    for _ in range(3):
        stage.transact(near, KEYS[:5])
    assert {stage.counter(host) for host in stage.holders()} == {15}
    stage.start(*gone)
    stage.rest()
    for host in gone:
        assert {how for how, _ in stage.synchronised(host)} <= {"full"}
    stage.whole()


# -- history that is there, or is not


def absent(settings: Settings, spare: int = 0, keys: int = 40) -> tuple[TransactingStage, int, int]:
    """Three members; one that is not the master ends after a transaction. Answers another one, and it."""
    stage = TransactingStage(3, settings, spare=spare)
    gone = next(host for host in stage.holders()[1:] if host != stage.master_host())
    near = next(host for host in stage.holders()[1:] if host != gone)
    stage.transact(near, KEYS[:keys])
    stage.end("kill", gone)
    stage.gone(gone)
    return stage, near, gone


@GRACEFUL
def test_g6_a_member_without_data_stops_and_history_stays_history(graceful: bool) -> None:
    """It ran a transaction, as a client does; and stops while another is filled."""
    stage, near, gone = absent(kept(2, tail_bytes=0), spare=1)
    stage.start(3, lite=True)
    stage.rest()
    stage.transact(3, [*KEYS[:5], *stage.elsewhere(near)])
    left = stage.begin(3, stage.values(KEYS[5:9]))

    def stop(packet: Packet) -> None:
        if graceful:
            stage.process(3).step(partial(stage.process(3).driver.handle, ActionRequested(Drain())))
        else:
            stage.end("kill", 3)

    met = stage.lose_first(stage.filling(gone), stop)
    stage.start(gone)
    stage.until(lambda: bool(met))
    stage.until(lambda: stage.process(3).dead)
    stage.processes = stage.cluster.running()
    stage.gone(3)
    assert stage.synchronised(gone)[0] == ("history", "5 updates after 40 were missed")
    assert stage.there(left) == [False]
    stage.whole()


@pytest.mark.parametrize("kind", ["flip", "zero", "unreadable"])
def test_g7_history_that_cannot_be_read_is_no_reason_to_hang(kind: str) -> None:
    stage, near, gone = absent(kept(2, tail_bytes=0, segment_bytes=4096, checkpoint_bytes=8192), keys=60)
    for _ in range(3):
        stage.transact(near, [*KEYS, *stage.elsewhere(near)])
    for host in {0, 1, 2} - {gone}:
        disk = stage.cluster.disks[host]
        segments = sorted(name for name in disk.contents() if name.endswith(".seg"))
        assert len(segments) > 4
        for name in segments[:-3]:
            for offset in range(0, 4096, 512):
                disk.spoil(name, offset, kind)
    stage.start(gone)
    stage.rest()
    assert stage.synchronised(gone)[0][0] == "full"
    # Files that are damaged are not what a restart of everybody may rest on.
    stage.whole(again=False)


@pytest.mark.covering(1)
@pytest.mark.parametrize("backups", [1, 2])
@pytest.mark.parametrize("puts", [0, 50])
def test_g8_what_was_under_way_at_a_checkpoint_is_delivered_all_the_same(puts: int, backups: int) -> None:
    """20 transactions stand before their prepare and 30 before their end when the primary writes a checkpoint; then the
    backups' disks fail, and they die. What one is sent when it is back begins with what it proves to have.
    """
    stage = TransactingStage(3 + backups, kept(backups, tail_bytes=0, **SMALL))
    one, *others = stage.holders()
    near = next(host for host in range(3 + backups) if host not in (one, *others))
    elsewhere = stage.elsewhere(near, 50)
    tx = [stage.begin(near, stage.values([KEYS[at], elsewhere[at]]), optimistic=True) for at in range(50)]
    stage.hold_commits(near)
    stage.commit(*tx[:30])
    stage.soon(lambda: all(stage.prepared(each) for each in tx[:30]))
    stage.wait(0.05)
    for host in others:
        stage.cut_off(one, host)
        stage.cluster.disks[host].fail_armed(lambda: True)
    stage.resume_commits(near)
    stage.commit(*tx[30:])
    stage.wait(0.3)
    for key in keys_in(PARTITION, puts, 100):
        stage.send(Op.SET, key, host=one)
    stage.checkpoint(one, PARTITION)
    assert not any(each.done for each in tx)
    stage.end("power cut", *(host for host in others if not stage.process(host).dead))
    stage.heal()
    stage.gone(*others)
    for host in others:
        stage.cluster.disks[host].fail_armed(None)
    stage.start(others[0])
    stage.answered(*tx)
    assert all(each.done for each in tx)
    stage.whole(again=False)
    stage.start(*others[1:])
    stage.whole()


def test_g9_a_backup_whose_answers_were_withheld_restarts_and_is_sent_nothing() -> None:
    """20 transactions in one phase are on its disk when it dies: the primary has them answered, for it is gone."""
    stage = TransactingStage(4, kept(1, delay_ms=60_000))
    one, backup = stage.holders()
    near = next(host for host in range(4) if host not in (one, backup, stage.master_host()))
    tx = [stage.begin(near, stage.values([KEYS[at]])) for at in range(20)]
    stage.wait(1)
    stage.cut_off(backup, one)
    stage.commit(*tx)
    stage.wait(0.5)
    assert not any(each.fate for each in tx)
    stage.checkpoint(backup, PARTITION)
    stage.end("kill", backup)
    stage.heal()
    stage.gone_but(backup)
    stage.answered(*tx)
    assert all(each.done for each in tx)
    stage.start(backup)
    stage.rest()
    assert {how for how, _ in stage.synchronised(backup)} == {"same"}
    stage.whole()


# -- G10: cuts under load


def cut(stage: TransactingStage, number: int, *, whole: bool) -> ListTransaction:
    """Cut all partitions, one after the other; `whole`: while transactions begin to commit nowhere. What it shows."""
    began_ns = stage.world.now_ns
    hosts = [stage.host_of(process) for process in stage.cluster.living()]
    if whole:
        for host in hosts:
            stage.hold_commits(host)
    seen: dict[str, list[str]] = {}
    taken: list[Taken] = []
    for partition in range(7):
        process = stage.process(stage.holders(partition)[0])

        def take(process: Process = process, partition: int = partition) -> None:
            process.driver.enter()
            process.driver.callers.take_cut(
                b"cut %012d" % number,
                (LISTS, "__transactions"),
                (partition,),
                60_000,
                taken.append,
                passive=False,
            )
            process.driver.leave_lane()

        process.step(take)
        held = process.driver.member.copies.held[partition].maps.get(LISTS)
        for key, value in held.state.entries.items() if held is not None else ():
            seen[key_of(key)] = value.decode().split(",")
        stage.wait(0.05)
    if whole:
        for host in hosts:
            stage.resume_commits(host)
    stage.until(lambda: len(taken) == 7)
    reads = [ListRead(key, elements) for key, elements in seen.items()]
    return ListTransaction(
        f"cut {number}", TransactionOutcome.COMMITTED, began_ns, stage.world.now_ns, list(reads)
    )


def cuts_under_load(*, whole: bool) -> tuple[TransactingStage, list[AnomalyFound]]:
    """What no order of the transactions and of what the cuts show explains."""
    stage = TransactingStage(3, under_load(kept(1)))
    running: Applications
    running, stop = stage.run_applications()
    cuts: list[ListTransaction] = []
    for number in range(20):
        stage.wait(0.7)
        cuts.append(cut(stage, number, whole=whole))
    assert stop() > 5
    return stage, judge([*running.history, *cuts], Isolation.SERIALIZABLE)


def test_g10_cuts_under_load_show_each_transaction_whole_and_leave_copies_equal() -> None:
    stage, problems = cuts_under_load(whole=True)
    assert problems == []
    stage.whole()


def test_g10_cuts_that_do_not_wait_for_transactions_are_torn() -> None:
    stage, problems = cuts_under_load(whole=False)
    assert problems
    stage.whole()


# -- G11: what never ends


@pytest.mark.parametrize("ends", [False, True], ids=["without a timeout", "with one"])
def test_g11_a_transaction_that_never_ends_holds_no_drain(ends: bool) -> None:
    """In the source it holds the exchange of the whole cluster; here its locks move with their partitions. And it is
    listed, with who waits for it.
    """
    settings = kept(1)
    chosen = msgspec.structs.replace(settings.transactions, timeout_ms=4000 if ends else 600_000)
    stage = TransactingStage(4, msgspec.structs.replace(settings, transactions=chosen))
    one = stage.holders()[0]
    near = next(host for host in range(4) if host not in (one, 0))
    never = stage.begin(near, stage.values([*KEYS[:3], *stage.elsewhere(near)]))
    waiter = stage.begin_unheard(0 if one else 1, stage.values(KEYS[:1]))
    stage.leave(one, seconds=20)
    stage.wait(5)
    waits = [(wait.waiter, wait.holder) for wait in stage.listed(stage.holders()[0]).waits]
    assert waits == ([] if ends else [(waiter.id.hex(), never.id.hex())])
    stage.commit(never)
    stage.answered(never)
    assert never.done != ends
    stage.wait(1)
    assert ends or {each.fate for each in waiter.writes} == {TransactionFate.DONE}
    stage.roll_back(waiter)
    stage.answered(waiter)
    stage.whole()
