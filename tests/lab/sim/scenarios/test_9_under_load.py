"""Replicas that prove what they hold, group D of the scenarios of Ignite 2: copies are made equal while clients write.

There is no rollback here, and a removal leaves nothing behind that could expire: an entry that was removed stays
removed because updates are applied in their order. D7 (maps that come and go) and D8, D9 (transactions across a change
of the table) have no counterpart.
"""

from __future__ import annotations

from functools import partial

import pytest
from tests.lab.sim.scenarios.keeping import (
    ENDS,
    NO_HISTORY,
    PARTITION,
    End,
    Files,
    Keeping,
    at,
    kept,
    keys_in,
)
from tests.lab.sim.stage import clean

from holdfast.actions.demote import Demote
from holdfast.actions.promote import Promote
from holdfast.core.events import ActionRequested, CheckpointWanted, Received
from holdfast.core.messages import Fill, Filled, MigrationReady
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.operations import Op
from holdfast_lab.sim.rig import Packet

SMALL: Files = {"segment_bytes": 4096, "checkpoint_bytes": 4096, "history_bytes": 20_000}


@pytest.mark.covering(1)
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("role", ["primary", "backup"])
@pytest.mark.parametrize("away_s", [1.0, 6.0])
@pytest.mark.parametrize("tail_bytes", [0, 65_536])
def test_members_restart_under_load(how: End, role: str, away_s: float, tail_bytes: int) -> None:
    """D1 (the primary, again and again) and D2 (backups; four members, of which one holds nothing of the partition):
    they end under load, for shorter or for longer than it takes to be removed, and come back.
    """
    stage = Keeping(4, kept(2, tail_bytes=tail_bytes, chunk_bytes=300, **SMALL))
    stop = stage.load()
    for _ in range(3):
        stage.wait(1.5)
        victim = stage.holders()[0 if role == "primary" else 1]
        stage.end(how, victim)
        stage.wait(away_s)
        stage.start(victim)
        stage.calm()
    stop()
    clean(stage, stage.writes)


# -- what is removed stays removed


@pytest.mark.parametrize("history", [True, False])
def test_what_is_removed_while_it_is_on_its_way_stays_removed(history: bool) -> None:
    """D3: k0 and k1 are put; a backup ends; k0 is overwritten; it comes back, and what it is sent is held up; k0 is
    removed, and after a while k1. Then the content comes: both are gone everywhere.
    """
    stage = Keeping(3, kept(2) if history else kept(2, **NO_HISTORY))
    keys = keys_in(PARTITION, 40)
    stage.write(keys)
    gone = next(host for host in stage.holders()[1:] if host != stage.master_host())
    stage.end("kill", gone)
    stage.gone(gone)
    stage.write(keys[:1])
    if not history:
        for _ in range(8):
            stage.write(keys[2:])
    begun, unblock = stage.hold_up(gone)
    stage.start(gone)
    stage.until(lambda: bool(begun))
    removed = [stage.send(Op.DELETE, keys[0])]
    stage.wait(1)
    removed.append(stage.send(Op.DELETE, keys[1]))
    stage.wait(1)
    unblock()
    stage.until(lambda: all(removed))
    stage.rest()
    assert stage.synchronised(gone)[0][0] == ("history" if history else "full")
    for host in range(3):
        entries = stage.member(host).copies.held[PARTITION].maps["ledger"].state.entries
        assert len(entries) == len(keys) - 2
    clean(stage, stage.writes)


@pytest.mark.parametrize("history", [True, False])
def test_puts_and_removals_cross_what_is_sent(history: bool) -> None:
    """D13: of each key there is a put in what is sent and a removal that is live, or the other way round, and packets
    overtake one another.
    """
    stage = Keeping(3, kept(2, tail_bytes=65_536 if history else 0, chunk_bytes=100, **SMALL))
    keys = keys_in(PARTITION, 30)
    stage.write(keys)
    gone = next(host for host in stage.holders()[1:] if host != stage.master_host())
    stage.end("kill", gone)
    stage.gone(gone)
    for _ in range(1 if history else 10):
        stage.write(keys[::2])
        stage.write(keys[1::2], Op.DELETE)
        stage.write(keys[1::2])
        stage.write(keys[::2], Op.DELETE)
    stage.start(gone)
    stage.world.weather.delay_ns = (MILLISECOND, 100 * MILLISECOND)
    for turn in range(40):
        stage.send(Op.DELETE if turn % 3 else Op.SET, keys[turn % 30])
        stage.send(Op.SET if turn % 3 else Op.DELETE, keys[-turn % 30])
        stage.wait(0.1)
    stage.world.weather.delay_ns = (MILLISECOND // 5, 2 * MILLISECOND)
    stage.rest()
    assert stage.synchronised(gone)
    clean(stage, stage.writes)


# -- checkpoints, and what else may happen meanwhile


def test_a_checkpoint_in_the_middle_of_it_changes_nothing() -> None:
    """D4: a stopped cluster comes back, and one copy lags; of one partition what was missed is sent, of another
    everything. Meanwhile its member makes checkpoints of what it has; then all power fails, twice. What was put in the
    place of the older copies is on the disk, too.
    """
    stage = Keeping(3, kept(2, chunk_bytes=300))
    few, many = keys_in(PARTITION, 40), keys_in(PARTITION + 1, 10)
    stage.write([*few, *many])
    behind = next(host for host in stage.holders()[1:] if host not in stage.holders(PARTITION + 1)[:1])
    stage.isolate(stage.process(behind))
    for key in [*few[:20], *many * 30]:
        stage.send(Op.SET, key, host=stage.holders(at(key))[0])
    stage.wait(1)
    hosts = stage.end_all("power cut")
    stage.heal()
    held = [stage.hold_up(behind, partition) for partition in (PARTITION, PARTITION + 1)]
    stage.start(*hosts)
    stage.until(lambda: all(begun for begun, _ in held))
    process, disk = stage.process(behind), stage.cluster.disks[behind]
    before = disk.counts["Put"]
    process.step(partial(process.driver.handle, CheckpointWanted((PARTITION, PARTITION + 1))))
    stage.wait(1)
    assert disk.counts["Put"] == before + 2
    for _, unblock in held:
        unblock()
    stage.rest()
    assert stage.synchronised(behind)[0] == ("history", "20 updates after 40 were missed")
    assert stage.synchronised(behind, PARTITION + 1)[0][0] == "full"
    clean(stage, stage.writes)
    clean(stage, stage.writes)


@pytest.mark.parametrize("what", ["nothing", "restart", "lite", "member"])
def test_something_else_happens_while_it_is_filled(what: str) -> None:
    """D6: nothing; the receiver itself restarts (its half is not taken for the whole); a lite member comes (in the
    place of a cache); a member that was never here before comes.
    """
    stage = Keeping(3, kept(2, chunk_bytes=200, tail_bytes=0), spare=1)
    stage.everywhere(10)
    gone = next(host for host in stage.holders()[1:] if host != stage.master_host())
    stage.end("power cut", gone)
    stage.gone(gone)
    stage.everywhere(10)
    filling = stage.filling(gone)
    stop = stage.load()

    def second(packet: Packet) -> bool:
        return filling(packet) and isinstance(packet.message, Fill) and packet.message.sequence == 2

    def strike(packet: Packet) -> None:
        if what == "restart":
            stage.end("power cut", gone)
            stage.world.after(MILLISECOND, lambda: stage.start(gone))
        elif what in ("lite", "member"):
            stage.start(3, lite=what == "lite")

    met = stage.lose_first(second, strike)
    stage.start(gone)
    stage.until(lambda: bool(met))
    stage.wait(5)
    stage.calm()
    stop()
    clean(stage, stage.writes)


@pytest.mark.covering(1)
@pytest.mark.parametrize("how", [*ENDS, "leave"])
@pytest.mark.parametrize("others", [False, True])
def test_a_member_stops_is_removed_and_comes_back_again_and_again(others: bool, how: str) -> None:
    """D10: a member ends, or leaves and so gives away what it holds; it comes back, gets what it missed, and once more;
    and so do the `others` one after the other. Clients write over the last time.
    """
    stage = Keeping(4, kept(1, tail_bytes=0, **SMALL))

    def once(host: int) -> None:
        if how == "leave":
            stage.leave(host)
        else:
            stage.end("kill" if how == "kill" else "power cut", host)
        stage.gone(host)
        stage.everywhere()
        stage.start(host)
        stage.calm()

    stage.everywhere(10)
    for host in (1, 1, *((2, 3, 0) if others else ())):
        once(host)
    stop = stage.load()
    stage.wait(1.5)
    once(1)
    stop()
    clean(stage, stage.writes)


def test_a_late_word_of_an_earlier_return_does_not_complete_a_later_one() -> None:
    """D12: a member returns twice. What its supplier and it said the first time comes once more, when the second time
    it is being filled: it must not count as filled, and the value that is read through it is the new one.
    """
    stage = Keeping(3, kept(2, chunk_bytes=200))
    keys = keys_in(PARTITION, 30)
    stage.write(keys)
    gone = next(host for host in stage.holders()[1:] if host != stage.master_host())
    old: list[Packet] = []

    def remember(packet: Packet) -> bool:
        if (
            isinstance(packet.message, MigrationReady | Filled)
            and packet.message.partition == PARTITION
            and packet.receiver is not None
        ):
            old.append(packet)
        return False

    forget = stage.block(remember)
    stage.end("kill", gone)
    stage.gone(gone)
    stage.write(keys)
    stage.start(gone)
    stage.rest()
    forget()
    assert Filled in {type(packet.message) for packet in old}
    stage.end("kill", gone)
    stage.gone(gone)
    stage.write(keys)
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
    for process in stage.processes:
        row = process.driver.member.table.rows[PARTITION]
        assert row.version == version
        assert row.index_of(me) < 0
    answers = stage.send(Op.SET, keys[0], host=gone)
    unblock()
    stage.until(lambda: bool(answers))
    value = stage.get(stage.process(gone), keys[0])
    assert value == stage.writes[-1].value
    stage.rest()
    clean(stage, stage.writes)


@pytest.mark.parametrize("tail_bytes", [0, 65_536])
def test_copies_go_and_come_while_clients_write(tail_bytes: int) -> None:
    """D14: what a member holds is given away and comes back, again and again, under load: what is cleared, here and on
    the disk, is never what has come since.
    """
    stage = Keeping(4, kept(1, tail_bytes=tail_bytes, chunk_bytes=300, **SMALL))
    stage.everywhere(10)
    stop = stage.load()
    process = stage.process(2)
    for _ in range(3):
        process.step(lambda: process.driver.handle(ActionRequested(Demote())))
        stage.until(lambda: process.driver.member.membership.info.lite)
        assert stage.member(2).copies.held == {}
        process.step(lambda: process.driver.handle(ActionRequested(Promote())))
        stage.until(lambda: bool(stage.member(2).copies.held))
        stage.wait(0.3)
    stage.calm()
    stage.end("power cut", 2)
    stage.wait(1)
    stage.start(2)
    stage.calm()
    stop()
    clean(stage, stage.writes)
