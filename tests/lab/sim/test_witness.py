"""Two data members and a lite one: any one of the three, or one of the ways between them, may fail."""

from __future__ import annotations

import pytest
from tests.lab.sim.stage import settings
from tests.lab.sim.zone_stage import Asking, ZoneStage, zoned_settings

from holdfast.core.metastore.invoke import Leaf, PutKey
from holdfast.core.model.operations import Op, Status
from holdfast_lab.sim.world import Process


class TwoHosts(ZoneStage):
    """Two data members, and room for another one."""

    def rest(self, seconds: float = 60) -> None:
        """The metastore's voters change when members come: that is waited for, and not judged."""
        self.wait(25)
        assert {process.picture.cluster_unsafe_reason() for process in self.cluster.living()} == {""}


class WitnessStage(TwoHosts):
    """The last host is the lite one. There is no zone."""

    def __init__(self) -> None:
        super().__init__(2, settings=settings(metastore={"voters": 3}), spare=1)
        self.witness = self.cluster.start(2, lite=True)
        self.processes.append(self.witness)
        self.rest()

    def create(self, zone: object) -> None:
        """None."""

    def served(self, *through: Process) -> None:
        """All that was written is read through these members, and more is written, also into the metastore."""
        for process in through:
            assert self.get(process, "k") == "v"
            self.put(process, "k", "w")
            self.put(process, "k", "v")
            asking = Asking(process)
            asking.metastore.invoke(Leaf((PutKey(b"app/k", b"v"),), 1), asking)
            self.wait(3)
            assert asking.invoked is not None, asking.failed


@pytest.fixture
def stage() -> WitnessStage:
    made = WitnessStage()
    made.put(made.processes[0], "k", "v")
    return made


@pytest.mark.rule("metastore/V-7")
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_any_one_member_may_be_lost(stage: WitnessStage, lost: int) -> None:
    voters = stage.witness.driver.member.agreed.voters.configuration
    assert voters is not None
    assert len(voters.voters) == 3
    gone = stage.processes.pop(lost)
    gone.crash()
    stage.wait(20)
    assert [len(process.picture.members()) for process in stage.processes] == [2, 2]
    stage.served(*stage.processes)
    assert [process.picture.cluster_unsafe_reason() for process in stage.processes] == ["", ""]


@pytest.mark.parametrize(("one", "two"), [(0, 1), (0, 2), (1, 2)])
def test_the_way_between_any_two_may_be_cut(stage: WitnessStage, one: int, two: int) -> None:
    """The younger of the two is removed, and asks the third member to be admitted again; nothing is lost meanwhile."""
    first, second = stage.processes[one], stage.processes[two]
    stage.cut(first, second)
    stage.cut(second, first)
    stage.wait(25)
    assert second.picture.view is not first.picture.view
    stage.heal()
    stage.wait(30)
    assert {len(process.picture.members()) for process in stage.processes} == {3}
    stage.served(*stage.processes)


def test_a_zone_has_no_witness() -> None:
    """Of three replicas two can be placed: without one of these the zone waits, and goes on when it is back."""
    stage = TwoHosts(2, settings=zoned_settings(), spare=1)
    witness = stage.cluster.start(2, lite=True)
    stage.wait(20)
    stage.zput(stage.processes[0], "k", "v")
    one, two = stage.processes
    stage.processes.append(witness)
    stage.isolate(two)
    stage.wait(25)
    answers = stage.request(one, Op.GET, "k")
    stage.wait(20)
    assert Status.OK not in [answer.status for answer in answers]
    assert "holdfast zone reset z" in one.driver.member.agreed.recovery_advice()
    stage.heal()
    stage.wait(40)
    assert stage.zget(one, "k") == "v"
