"""Messages of groups that a member receives in one turn are handled together."""

from __future__ import annotations

from functools import partial

import pytest
from tests.lab.sim.zone_stage import ZONED, ZoneStage

from holdfast.core.effects import Effect, EndTurn, Send
from holdfast.core.events import Event, Received, TimerFired, TurnEnded
from holdfast.core.member import Member
from holdfast.core.messages import GroupMessages
from holdfast.core.model.ids import MemberId
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.timer_name import TimerName
from holdfast.core.multiraft.group_host import GroupHost
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.world import Process


def key_led_by(stage: ZoneStage, process: Process, without: int = -1) -> tuple[int, bytes]:
    """A key in a partition that this member leads, and the partition; not in partition `without`."""
    for number in range(200):
        raw = wire_key(f"k{number}")
        partition = partition_of(raw, 0, stage.settings.partitions.count)
        if partition != without and process.picture.copies.led(ZONED, partition) is not None:
            return partition, raw
    raise AssertionError("it leads nothing")


class Exchange:
    """A leader and a follower: what the leader sends is kept here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage = stage = ZoneStage(3)
        self.leader = next(
            process
            for process in stage.processes
            if sum(
                process.picture.copies.led(ZONED, each) is not None
                for each in range(stage.settings.partitions.count)
            )
            > 1
        )
        self.other = next(process for process in stage.processes if process is not self.leader)
        self.follower: Member = self.other.driver.member
        self.kept: list[GroupMessages] = []
        driver = self.leader.driver
        monkeypatch.setattr(driver, "_send", self._keep)
        first, raw = key_led_by(stage, self.leader)
        second, other_raw = key_led_by(stage, self.leader, without=first)
        self.partitions = (first, second)
        for partition, key in ((first, raw), (second, other_raw)):
            asked = Request(Op.SET, ZONED, [partition], key, b"v")
            self.leader.step(partial(driver.execute, asked, lambda outcome: None))
            stage.wait(0.001)
        assert len(self.kept) == 2

    def _keep(self, to: MemberId, message: object) -> None:
        if to == self.follower.me and isinstance(message, GroupMessages):
            self.kept.append(message)

    def handle(self, event: Event) -> list[Effect]:
        return self.follower.handle(event, self.follower.out.now_ns)

    def receive(self, message: GroupMessages) -> list[Effect]:
        return self.handle(Received(self.leader.driver.member.me, message))


def sent(effects: list[Effect]) -> list[int]:
    """Number of groups in each message to another member's groups."""
    return [
        len(effect.message.groups)
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, GroupMessages)
    ]


def test_messages_of_a_turn_are_answered_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Exchange(monkeypatch)
    first = exchange.receive(exchange.kept[0])
    assert (EndTurn(with_buffer=True) in first, sent(first)) == (True, [])
    assert exchange.receive(exchange.kept[1]) == []
    assert sent(exchange.handle(TurnEnded())) == [2]


def test_something_else_is_handled_after_what_was_received_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sees the groups as they are after these messages."""
    exchange = Exchange(monkeypatch)
    exchange.receive(exchange.kept[0])
    order: list[str] = []
    flush, sweep = GroupHost.flush, Member.on_sweep

    def flushes(groups: GroupHost) -> None:
        order.append("groups")
        flush(groups)

    def sweeps(member: Member) -> None:
        order.append("sweep")
        sweep(member)

    monkeypatch.setattr(GroupHost, "flush", flushes)
    monkeypatch.setattr(Member, "on_sweep", sweeps)
    assert sent(exchange.handle(TimerFired(TimerName.SWEEP))) == [1]
    assert order[:2] == ["groups", "sweep"]
    exchange.receive(exchange.kept[1])
    assert sent(exchange.handle(TurnEnded())) == [1]


def test_the_end_of_a_read_buffer_is_the_end_of_the_turn_for_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Exchange(monkeypatch)
    driver = exchange.other.driver
    answers: list[GroupMessages] = []

    def keep(to: MemberId, message: object) -> None:
        if isinstance(message, GroupMessages):
            answers.append(message)

    monkeypatch.setattr(driver, "_send", keep)
    for message in exchange.kept:
        driver.handle(Received(exchange.leader.driver.member.me, message))
    assert answers == []
    driver.end_buffer()
    assert [len(answer.groups) for answer in answers] == [2]
    driver.end_buffer()
    exchange.stage.wait(0.001)
    assert len(answers) == 1, "the turn has ended already"
