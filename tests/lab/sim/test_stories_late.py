"""Directed stories of what comes late: words of the dead, and of earlier lives."""

from __future__ import annotations

from functools import partial

from tests.lab.sim.stage import Stage

from holdfast.core.messages import Heartbeat, JoinRequest, ViewDecided
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.wire.codec import encode
from holdfast_lab.sim.workload import MAP


def test_a_late_request_of_a_dead_process_does_not_drive_out_who_lives_at_its_address() -> None:
    stage = Stage(3)
    dead = stage.processes[1]
    dead.crash()
    stage.wait(10)
    stage.processes[1] = living = stage.cluster.start(1)
    stage.rest()
    master = stage.processes[0].driver
    before = master.member.membership.view
    identity = dead.driver.member.membership.identity
    request = JoinRequest(identity.info, identity.cluster, identity.shared)
    stage.processes[0].step(lambda: master.datagram_received(dead.address, encode(request)))
    stage.wait(5)
    assert master.member.membership.view == before
    assert living.driver.member.membership.state == "member"


def test_an_old_sign_of_life_does_not_speak_for_a_later_life() -> None:
    stage = Stage(3)
    backup = stage.processes[2]
    member = backup.driver.member
    first_life = member.membership.info
    stage.isolate(backup)
    stage.wait(10)
    stage.heal()
    stage.rest()
    assert member.membership.info.life > first_life.life
    backup.crash()
    crashed_ns = stage.world.now_ns
    view = stage.view()
    late = encode(Heartbeat(first_life.uuid, first_life.life, 1))
    while stage.view() == view and stage.world.now_ns < crashed_ns + 20 * SECOND:
        for process in stage.processes[:2]:
            process.step(partial(process.driver.datagram_received, backup.address, late))
        stage.wait(0.2)
    assert first_life.uuid not in [info.uuid for info in stage.view().members]


def test_an_old_view_does_not_come_back() -> None:
    stage = Stage(3)
    old = stage.view()
    stage.isolate(stage.processes[2])
    stage.wait(10)
    stage.heal()
    stage.rest()
    newest = stage.view()
    assert newest.number > old.number
    for process in stage.processes:
        process.step(partial(process.driver.datagram_received, process.address, encode(ViewDecided(old))))
    stage.wait(2)
    assert [process.driver.member.membership.view for process in stage.processes] == [newest] * 3


def test_what_was_sent_to_an_earlier_life_has_no_effect_on_a_later_one() -> None:
    stage = Stage(3)
    sender, receiver = stage.processes[0], stage.processes[2]
    held: list[bytes] = []
    carry = sender.carry

    def hold(member: MemberId, packet: bytes) -> None:
        if member == receiver.driver.member.me:
            held.append(packet)
        else:
            carry(member, packet)

    sender.carry = hold  # type: ignore[method-assign]
    subscription = sender.driver.callers.listen(MAP, key=None, local_only=False, on_event=lambda event: None)
    stage.wait(1)
    assert held
    subscription()
    stage.isolate(receiver)
    stage.wait(10)
    sender.carry = carry  # type: ignore[method-assign]
    stage.heal()
    stage.rest()
    for packet in held:
        receiver.step(partial(receiver.driver.packet, sender.driver.member.me, packet))
    assert MAP not in receiver.driver.member.lane.listening
    stage.rest()
