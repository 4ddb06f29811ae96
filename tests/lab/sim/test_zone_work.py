"""The work of a zone of many small partitions, counted in messages, revisions and timers instead of time."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from tests.lab.sim.zone_stage import ZoneStage, zoned_settings

from holdfast.actions.change_zone import AlterZone
from holdfast.core.messages import Message
from holdfast.core.model.ids import MemberId
from holdfast.core.model.timer_name import TimerName
from holdfast.core.outbox import Outbox
from holdfast.core.zones.descriptors import NEVER, ZoneSettings
from holdfast_lab.sim.world import Process

PARTITIONS = 60
REST_S = 10
GROUP_MESSAGES = ("GroupMessages", "GroupState", "LeadAsked")


class Meter:
    """Messages and timers of all members, by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: Counter[str] = Counter()
        self.timers: Counter[str] = Counter()
        send, timer = Outbox.send, Outbox.timer

        def sending(out: Outbox, to: MemberId, message: Message) -> None:
            self.sent[type(message).__name__] += 1
            send(out, to, message)

        def setting(out: Outbox, name: TimerName, after_ns: int, jitter_ns: int = 0) -> None:
            self.timers[name.value] += 1
            timer(out, name, after_ns, jitter_ns)

        monkeypatch.setattr(Outbox, "send", sending)
        monkeypatch.setattr(Outbox, "timer", setting)

    def clear(self) -> None:
        self.sent.clear()
        self.timers.clear()


def stands(stage: ZoneStage, replicas: int) -> bool:
    """Whether all members know that each partition has so many replicas, and none moves."""
    for process in stage.living():
        view = process.driver.member.agreed.view
        for keys in view.partitions(view.zones()[0]):
            if keys.pending or keys.stable is None or len(keys.stable.peers) != replicas:
                return False
    return True


def revision(process: Process) -> int:
    return process.driver.member.agreed.metastore.keyspace.revision


def at_rest(stage: ZoneStage, meter: Meter) -> None:
    """Members exchange nothing about groups, and no timer is more frequent than those without zones."""
    stage.wait(5)
    meter.clear()
    stage.wait(REST_S)
    assert [meter.sent[name] for name in GROUP_MESSAGES] == [0] * len(GROUP_MESSAGES)
    assert meter.timers["groups"] == 0
    assert meter.timers["zones"] <= 3 * REST_S * len(stage.living())


@pytest.mark.rule("zones/A-31")
@pytest.mark.rule("multiraft/H-3")
def test_a_growing_zone_costs_few_revisions_and_a_resting_one_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each move had three revisions of its own and 50 messages, and groups with an absent replica never slept."""
    settings = zoned_settings(partitions={"count": PARTITIONS})
    zone = ZoneSettings("z", partitions=PARTITIONS, replicas=1, scale_down_s=NEVER)
    stage = ZoneStage(3, zone=zone, settings=settings)
    stage.until(lambda: stands(stage, 1))
    meter = Meter(monkeypatch)
    at_rest(stage, meter)
    meter.clear()
    before = revision(stage.processes[0])
    answers: list[object] = []
    order = AlterZone("z", replicas=3)
    process = stage.processes[0]
    process.step(partial(process.driver.act, order, answers.append))
    stage.until(lambda: stands(stage, 3))
    assert (revision(process) - before) / PARTITIONS <= 1.2
    assert meter.sent["GroupMessages"] / PARTITIONS <= 30
    at_rest(stage, meter)
    stage.zput(process, "k", "v")
    stage.processes[2].crash()
    stage.wait(30)
    stage.zput(process, "k", "w")
    stage.wait(5)
    at_rest(stage, meter)
