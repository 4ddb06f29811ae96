"""Scenarios D3 to D9 and D12 to D14: copies are made equal, and partitions move, while transactions go on.

D10 is told with the baseline.
"""

from __future__ import annotations

from functools import partial

import pytest
from tests.lab.sim.scenarios.keeping import NO_HISTORY, PARTITION, Files, at, kept, keys_in
from tests.lab.sim.transaction_scenarios.scenario_stage import HISTORICAL, TransactingStage, under_load

from holdfast.actions.demote import Demote
from holdfast.actions.promote import Promote
from holdfast.core.events import ActionRequested, Received
from holdfast.core.messages import (
    Fill,
    Filled,
    Heartbeat,
    MigrationReady,
    TableCommit,
    TableOffer,
    TableReport,
    ViewDecided,
)
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.transaction_orders import TransactionFate
from holdfast.core.model.transactions import BranchState
from holdfast_lab.check.serializability import TransactionOutcome
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.rig import Packet

SMALL: Files = {"segment_bytes": 4096, "checkpoint_bytes": 4096, "history_bytes": 20_000}
KEYS = keys_in(PARTITION, 40)


def three(*, history: bool, chunk_bytes: int = 4096) -> tuple[TransactingStage, int, int]:
    """Three members hold everything; one of them is to go, another runs transactions."""
    settings = kept(2, chunk_bytes=chunk_bytes) if history else kept(2, chunk_bytes=chunk_bytes, **NO_HISTORY)
    stage = TransactingStage(3, settings)
    gone = next(host for host in stage.holders()[1:] if host != stage.master_host())
    near = next(host for host in stage.holders()[1:] if host != gone)
    return stage, near, gone


@HISTORICAL
def test_d3_what_transactions_remove_while_it_is_on_its_way_stays_removed(history: bool) -> None:
    stage, near, gone = three(history=history)
    stage.transact(near, KEYS)
    x, y = stage.elsewhere(near, 2)
    stage.end("kill", gone)
    stage.gone(gone)
    stage.transact(near, [KEYS[0], x])
    for _ in range(0 if history else 8):
        stage.transact(near, [*KEYS[2:], y])
    begun, unblock = stage.hold_up(gone)
    first = stage.begin(near, {KEYS[0]: None, x: None})
    stage.start(gone)
    stage.until(lambda: bool(begun))
    second = stage.begin(near, {KEYS[1]: None, y: None}, optimistic=True)
    stage.commit(first)
    stage.wait(1)
    stage.commit(second)
    stage.wait(1)
    unblock()
    stage.answered(first, second)
    assert first.done
    assert second.done
    stage.rest()
    assert stage.synchronised(gone)[0][0] == ("history" if history else "full")
    assert stage.sizes() == {len(KEYS) - 2}
    stage.whole()


@pytest.mark.parametrize("twice", [False, True])
def test_d4_a_checkpoint_while_it_is_filled(twice: bool) -> None:
    """Of one partition what was missed is sent, of another everything; meanwhile the receiver makes checkpoints."""
    stage = TransactingStage(3, kept(2, chunk_bytes=300))
    few, many = KEYS, keys_in(PARTITION + 1, 10)
    one, *backups = stage.holders()
    behind = next(host for host in backups if host not in stage.holders(PARTITION + 1)[:1])
    stage.transact(one, [*few, "elsewhere"])
    stage.write(many)
    missed = stage.begin(one, stage.values([*few[:20], "elsewhere"]))
    stage.wait(1)
    stage.isolate(stage.process(behind))
    stage.commit(missed)
    for key in many * 30:
        stage.send(Op.SET, key, host=stage.holders(at(key))[0])
    stage.wait(1)
    stage.end_all("power cut")
    stage.heal()
    held = [stage.hold_up(behind, partition) for partition in (PARTITION, PARTITION + 1)]
    stage.start(0, 1, 2)
    stage.until(lambda: all(begun for begun, _ in held))
    stage.checkpoint(behind, PARTITION, PARTITION + 1)
    for _, unblock in held:
        unblock()
    stage.rest()
    assert stage.synchronised(behind, PARTITION + 1)[0][0] == "full"
    assert stage.synchronised(behind, name="__transactions")[0][0] == "history"
    if twice:
        stage.whole()
    stage.whole()


@pytest.mark.covering(1)
@pytest.mark.parametrize("stale", ["removed", "named"])
@HISTORICAL
def test_d5_the_first_supplier_dies_while_a_stopped_cluster_comes_back(history: bool, stale: str) -> None:
    """One copy is stale. `stale`: its member had been removed long before, or the last row still names it."""
    stage, near, behind = three(history=history, chunk_bytes=200)
    one = stage.holders()[0]
    stage.transact(near, [*KEYS, *stage.elsewhere(near)])
    missed = stage.begin(one, stage.values([*KEYS[:20], *stage.elsewhere(near)]))
    stage.wait(1)
    stage.end("kill", behind)
    if stale == "removed":
        stage.gone(behind)
    stage.commit(missed)
    stage.wait(0.5)
    if stale == "removed":
        for _ in range(0 if history else 60):
            stage.transact(near, KEYS[20:])
    stage.end_all("power cut")
    struck: list[int] = []

    def strike(packet: Packet) -> None:
        struck.append(stage.host_of(packet.sender))
        stage.end("kill", *struck)

    stage.lose_first(stage.filling(behind), strike)
    stage.start(0, 1, 2)
    stage.until(lambda: bool(struck))
    stage.rest()
    stage.start(*struck)
    stage.whole()


@pytest.mark.parametrize("what", ["nothing", "restart", "lite", "member", "map"])
def test_d6_something_else_happens_while_it_is_filled(what: str) -> None:
    """Nothing; the receiver itself restarts; a lite member comes, or one that was never here; a new map comes."""
    stage = TransactingStage(3, under_load(kept(2, chunk_bytes=200, tail_bytes=0)), spare=1)
    stage.everywhere(10)
    gone = next(host for host in stage.holders()[1:] if host != stage.master_host())
    stage.end("power cut", gone)
    stage.gone(gone)
    stage.everywhere(10)
    filling = stage.filling(gone)
    stop = stage.applications()

    def second(packet: Packet) -> bool:
        return filling(packet) and isinstance(packet.message, Fill) and packet.message.sequence == 2

    def strike(packet: Packet) -> None:
        if what == "restart":
            stage.end("power cut", gone)
            stage.world.after(MILLISECOND, lambda: stage.start(gone))
        elif what in ("lite", "member"):
            stage.start(3, lite=what == "lite")
        elif what == "map":
            stage.world.after(MILLISECOND, lambda: to_new_map(stage, "another"))

    met = stage.lose_first(second, strike)
    stage.start(gone)
    stage.until(lambda: bool(met))
    stage.wait(5)
    stage.calm()
    assert stop() > 5
    stage.whole()


def to_new_map(stage: TransactingStage, name: str, op: Op = Op.SET) -> None:
    """Write to an entry of this map in each partition, or clear it."""
    process = stage.cluster.living()[0]
    for partition in range(7):
        raw = wire_key(keys_in(partition, 1)[0])
        request = Request(
            op, name, [partition], b"" if op is Op.CLEAR else raw, b"" if op is Op.CLEAR else b"v"
        )
        process.step(partial(process.driver.execute, request, lambda outcome: None))


def test_d7_maps_come_into_being_while_transactions_go_on() -> None:
    """Caches are created and destroyed there, and each time all stands still. Here nothing does: nobody is rolled back
    but for a deadlock, or because what it read has changed, and nobody waits long.
    """
    stage = TransactingStage(3, under_load(kept(1)))
    running, stop = stage.run_applications()
    for turn in range(60):
        to_new_map(stage, f"map{turn}")
        stage.wait(0.25)
        to_new_map(stage, f"map{turn}", Op.CLEAR)
        stage.wait(0.25)
    assert stop() > 20
    assert {each.outcome for each in running.history} <= {
        TransactionOutcome.COMMITTED,
        TransactionOutcome.ROLLED_BACK,
    }
    taken = [each.end - each.start for each in running.history if each.end is not None]
    assert max(taken) < 15 * SECOND
    stage.whole()


def test_d8_locks_are_taken_while_one_of_two_primaries_knows_of_a_new_view_and_the_other_does_not() -> None:
    """A lite member comes: no primary changes."""
    stage = TransactingStage(5, kept(1), spare=1)
    near, one = stage.bystander(), stage.holders()[0]
    owners = {stage.holders(partition)[0] for partition in range(7)}
    two = next(host for host in sorted(owners) if host not in (near, stage.master_host(), *stage.holders()))
    tells = stage.block(
        lambda packet: (
            packet.receiver is stage.process(two) and isinstance(packet.message, ViewDecided | Heartbeat)
        )
    )
    stage.start(5, lite=True)

    def straddles() -> bool:
        newer, older = (stage.member(host).membership.view for host in (one, two))
        return newer is not None and older is not None and newer.number > older.number

    stage.soon(straddles)
    tx = stage.begin(near, stage.values([*KEYS[:5], *stage.elsewhere(two)]))
    stage.commit(tx)
    stage.answered(tx)
    assert straddles(), "it was locked and committed meanwhile"
    late = stage.begin(near, stage.values([*KEYS[5:9], *stage.elsewhere(two, 2)[1:]]))
    assert straddles()
    tells()
    stage.until(lambda: not straddles())
    stage.commit(late)
    stage.answered(late)
    assert tx.done
    assert late.done
    stage.whole()


def test_d9_a_key_whose_partition_moves_while_it_is_locked() -> None:
    """Its lock moves, too, and it is prepared where the partition lives now."""
    stage = TransactingStage(2, kept(1), spare=1)
    keys = [keys_in(partition, 1)[0] for partition in range(7)]
    tx = stage.begin(0, stage.values(keys))
    stage.start(2)
    stage.wait(15)
    moved = [key for key in keys if stage.holders(at(key))[0] == 2]
    assert moved, "some of their partitions live elsewhere now"
    other = stage.begin_unheard(1, stage.values(moved[:1]))
    stage.wait(1)
    assert other.writes[0].fate is None
    stage.commit(tx)
    stage.soon(lambda: stage.state_of(tx, 2, at(moved[0])) is BranchState.PREPARED)
    stage.answered(tx)
    assert tx.done
    stage.until(lambda: other.writes[0].fate is TransactionFate.DONE)
    stage.commit(other)
    stage.answered(other)
    stage.whole()


@pytest.mark.parametrize("optimistic", [False, True], ids=["pessimistic", "optimistic"])
def test_d9_the_coordinator_hears_late_that_a_primary_has_moved(optimistic: bool) -> None:
    """A6, too: it goes by the old table, and who was the primary takes nothing in any more."""
    stage = TransactingStage(4, kept(1), spare=1)
    master = stage.master_host()
    near = next(host for host in range(4) if host != master)
    keys = [keys_in(partition, 3) for partition in range(7)]
    stage.transact(near, [each[0] for each in keys])
    half = stage.begin(near, stage.values([each[1] for each in keys]), optimistic=optimistic)
    hears = stage.block(
        lambda packet: (
            packet.receiver is stage.process(near)
            and isinstance(packet.message, TableOffer | TableCommit | TableReport)
        )
    )
    stage.start(4)

    def owners(host: int) -> list[str | None]:
        return [row.owner for row in stage.member(host).table.rows]

    stage.until(lambda: owners(master) != owners(near))
    moved = next(p for p in range(7) if owners(master)[p] != owners(near)[p])
    other = stage.begin(near, stage.values([keys[moved][2], keys[moved - 1][2]]), optimistic=True)
    stage.commit(half, other)
    stage.wait(0.2)
    assert owners(master)[moved] != owners(near)[moved]
    hears()
    stage.answered(half, other)
    stage.rest()
    assert half.done
    assert other.done
    stage.whole()


def test_d12_a_late_word_of_an_earlier_return_does_not_complete_a_later_one() -> None:
    stage, near, gone = three(history=True, chunk_bytes=200)
    keys = [*KEYS, *stage.elsewhere(near)]
    stage.transact(near, keys)
    old: list[Packet] = []

    def remember(packet: Packet) -> bool:
        if (
            isinstance(packet.message, MigrationReady | Filled)
            and packet.message.partition == PARTITION
            and packet.receiver
        ):
            old.append(packet)
        return False

    forget = stage.block(remember)
    for again in (False, True):
        stage.end("kill", gone)
        stage.gone(gone)
        stage.transact(near, keys)
        if not again:
            stage.start(gone)
            stage.rest()
            forget()
    assert Filled in {type(packet.message) for packet in old}
    begun, unblock = stage.hold_up(gone)
    stage.start(gone)
    stage.until(lambda: bool(begun))
    me = stage.member(gone).me
    version = stage.processes[0].driver.member.table.rows[PARTITION].version
    for packet in old:
        mine = packet.sender.driver.member.me
        senders = {mine, me if isinstance(packet.message, Filled) else mine}
        for sender in senders:
            assert packet.receiver is not None
            if not packet.receiver.dead:
                received = Received(MemberId(sender), packet.message)
                packet.receiver.step(partial(packet.receiver.driver.handle, received))
    stage.wait(2)
    assert {process.driver.member.table.rows[PARTITION].version for process in stage.processes} == {version}
    put = stage.begin(gone, stage.values([keys[0]]), optimistic=True)
    stage.commit(put)
    unblock()
    stage.answered(put)
    assert put.done
    assert stage.get(stage.process(gone), keys[0]) == put.entries[keys[0]]
    stage.rest()
    stage.whole()


@HISTORICAL
def test_d13_puts_and_removals_of_transactions_cross_what_is_sent(history: bool) -> None:
    """Packets overtake one another, of each key there is a put in what is sent and a removal that is live, or the
    other way round.
    """
    stage, near, gone = three(history=history, chunk_bytes=100)
    keys = KEYS[:30]
    stage.transact(near, keys)
    stage.end("kill", gone)
    stage.gone(gone)
    for _ in range(1 if history else 12):
        stage.transact(near, keys[::2])
        stage.transact(near, keys[1::2], removed=True)
        stage.transact(near, keys[1::2])
        stage.transact(near, keys[::2], removed=True)
    stage.start(gone)
    stage.world.weather.delay_ns = (MILLISECOND, 100 * MILLISECOND)
    elsewhere = stage.elsewhere(near, 20)
    for turn in range(20):
        entries = stage.values([keys[turn], elsewhere[turn]]) | {
            keys[-1 - turn if turn < 10 else turn - 10]: None
        }
        crossing = stage.begin(near, entries)
        stage.commit(crossing)
        stage.answered(crossing)
        assert crossing.done
    stage.world.weather.delay_ns = (MILLISECOND // 5, 2 * MILLISECOND)
    stage.rest()
    assert stage.synchronised(gone)[0][0] == ("history" if history else "full")
    assert len(stage.sizes()) == 1
    stage.whole()


@pytest.mark.parametrize("tail_bytes", [0, 65_536], ids=["full", "historical"])
def test_d14_copies_go_and_come_while_transactions_write(tail_bytes: int) -> None:
    """What is cleared, here and on the disk, is never what has come since."""
    stage = TransactingStage(4, under_load(kept(1, tail_bytes=tail_bytes, chunk_bytes=300, **SMALL)))
    stage.everywhere(10)
    stop = stage.applications()
    process = stage.process(2)
    for turn in range(3):
        tx = stage.begin(0, stage.values(keys_in(partition, 1, 20 + turn)[0] for partition in range(7)))
        process.step(lambda: process.driver.handle(ActionRequested(Demote())))
        stage.until(lambda: process.driver.member.membership.info.lite)
        assert stage.member(2).copies.held == {}
        stage.commit(tx)
        process.step(lambda: process.driver.handle(ActionRequested(Promote())))
        stage.until(lambda: bool(stage.member(2).copies.held))
        stage.wait(0.3)
        stage.answered(tx)
        assert tx.done
    stage.calm()
    stage.end("power cut", 2)
    stage.wait(1)
    stage.start(2)
    stage.calm()
    assert stop() > 3
    stage.whole()
