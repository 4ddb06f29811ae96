"""A metastore that is started in a running cluster: founded once, whatever happens meanwhile (model/F-1)."""

from __future__ import annotations

from functools import partial
from itertools import product

import msgspec
import pytest
from tests.lab.sim.stage import Stage, settings
from tests.lab.sim.test_zone_orders import ask, order
from tests.lab.sim.zone_stage import ZONED, kept_settings, zoned_settings
from tests.sampled_cases import sampled

from holdfast.actions.change_zone import CreateZone
from holdfast.actions.metastore_keys import PutKey, ReadKey
from holdfast.actions.start_metastore import StartMetastore
from holdfast.config import MapSettings, MetastoreSettings, Settings
from holdfast.core.events import ActionRequested
from holdfast.core.model.ids import METASTORE_GROUP
from holdfast.core.model.levels import STARTS_METASTORE, FeatureLevels
from holdfast.core.model.metastore_answers import MetastoreRevision
from holdfast.core.model.metastore_founding import MetastoreFounding
from holdfast.core.model.operations import Op, Status
from holdfast.core.model.zone_answers import ZoneChanged
from holdfast.errors import Unsupported
from holdfast_lab.sim.world import Process

MS = 0.001
MOMENTS_MS = (0, 1, 2, 4, 7, 12, 20, 35, 60, 120, 400)


def without_metastore(base: Settings | None = None) -> Settings:
    base = base or settings()
    maps = {**base.maps, ZONED: MapSettings(raft_zone="z")}
    return msgspec.structs.replace(base, maps=maps, metastore=MetastoreSettings())


def give(process: Process, voters: int = 3) -> None:
    """Give the order once."""
    process.step(lambda: process.driver.handle(ActionRequested(StartMetastore(voters))))


def living(stage: Stage) -> list[Process]:
    return [process for process in stage.processes if not process.dead and not process.driver.stopped]


class Writes:
    """Keys that members put meanwhile. The acknowledged ones must be there at the end: if two groups had been founded,
    one of them would discard what it has acknowledged.
    """

    def __init__(self) -> None:
        self.acknowledged: set[bytes] = set()
        self._count = 0

    def put(self, stage: Stage) -> None:
        for process in living(stage):
            self._count += 1
            key = b"app/%d" % self._count
            done = partial(self._done, key)
            process.step(partial(process.driver.act, PutKey(key.decode(), "x"), done))

    def _done(self, key: bytes, answer: object) -> None:
        if isinstance(answer, MetastoreRevision):
            self.acknowledged.add(key)

    def judge(self, stage: Stage) -> None:
        assert self.acknowledged
        for process in living(stage):
            kept = process.driver.member.agreed.metastore.keyspace
            assert [key for key in sorted(self.acknowledged) if not kept.get(key).exists] == []


def repeat(stage: Stage, voters: int = 3, seconds: float = 12, writes: Writes | None = None) -> None:
    """Repeat the order through the last living member, as its command does, while all members write."""
    for round_ in range(round(seconds * 20)):
        if round_ % 20 == 0 and not all(led(process) for process in living(stage)):
            give(living(stage)[-1], voters)
        if writes is not None:
            writes.put(stage)
        terms = [process.driver.member.agreed.groups.term(METASTORE_GROUP) for process in living(stage)]
        led_in = [term for term in terms if term is not None]
        assert len(set(led_in)) == len(led_in), "two members lead in one term"
        stage.wait(0.05)


def led(process: Process) -> bool:
    return process.driver.member.agreed.groups.lead(METASTORE_GROUP) is not None


def founding(process: Process) -> MetastoreFounding | None:
    view = process.driver.member.membership.view
    return view.metastore if view is not None else None


def one_metastore(stage: Stage, value: str = "v") -> None:
    """All living members follow one group: a key that one writes is there on every other one."""
    members = living(stage)
    found = {founding(process) for process in members}
    assert len(found) == 1 and None not in found, found
    leading = [one for one in members if one.driver.member.agreed.groups.term(METASTORE_GROUP) is not None]
    assert len(leading) == 1, leading
    put = ask(stage, members[-1], PutKey("app/key", value))
    assert isinstance(put, MetastoreRevision), put
    stage.wait(2)
    for process in members:
        [read] = ask(stage, process, ReadKey("app/key")).keys
        assert read.value == value
    assert len({process.driver.member.agreed.metastore.keyspace.revision for process in members}) == 1


def usable(stage: Stage) -> None:
    """A zone is created, and its map is written and read."""
    process = living(stage)[0]
    made = order(stage, process, CreateZone("z", replicas=min(3, len(living(stage)))), 12)
    assert isinstance(made, ZoneChanged), made
    stage.wait(10)
    for op, value in ((Op.SET, "x"), (Op.GET, "")):
        answers = stage.ask(process, op, "k", value, ZONED)
        stage.wait(2)
        assert [answer.status for answer in answers] == [Status.OK], (op, answers)


@pytest.mark.rule("membership/F-4", "metastore/V-1")
@pytest.mark.parametrize("hosts", [1, 2, 3, 4])
def test_a_metastore_is_started_while_a_cluster_runs_and_zones_work(hosts: int) -> None:
    stage = Stage(hosts, settings=without_metastore())
    refused = order(stage, stage.processes[0], CreateZone("z"))
    assert (type(refused), "holdfast metastore start" in str(refused)) == (Unsupported, True)
    give(stage.processes[-1])
    stage.wait(5)
    one_metastore(stage)
    configuration = stage.processes[0].driver.member.agreed.voters.configuration
    assert configuration is not None
    assert (len(configuration.voters), len(configuration.members)) == (min(3, hosts - 1 + hosts % 2), hosts)
    usable(stage)


@pytest.mark.rule("model/F-1")
@pytest.mark.parametrize(
    ("victim", "after_ms"), sampled(product(["master", "first voter and its asker"], MOMENTS_MS), 7)
)
def test_whoever_crashes_during_the_founding_there_is_one(after_ms: int, victim: str) -> None:
    stage = Stage(5, settings=without_metastore())
    give(stage.processes[4])
    stage.wait(after_ms * MS)
    for index in [0] if victim == "master" else [1, 4]:
        stage.processes[index].crash()
    writes = Writes()
    repeat(stage, writes=writes)
    one_metastore(stage)
    writes.judge(stage)


@pytest.mark.rule("model/F-1")
@pytest.mark.parametrize("after_ms", sampled(MOMENTS_MS, 6))
def test_all_lose_power_during_the_founding_and_there_is_one(after_ms: int) -> None:
    stage = Stage(3, settings=without_metastore(kept_settings()))
    give(stage.processes[1])
    stage.wait(after_ms * MS)
    stage.cluster.power_cut_everywhere()
    stage.processes = [stage.cluster.start(index) for index in range(3)]
    stage.rest()
    writes = Writes()
    repeat(stage, writes=writes)
    one_metastore(stage)
    writes.judge(stage)


@pytest.mark.rule("membership/F-4")
def test_two_orders_at_once_found_one_metastore() -> None:
    stage = Stage(5, settings=without_metastore())
    give(stage.processes[1], 3)
    give(stage.processes[2], 5)
    writes = Writes()
    repeat(stage, seconds=5, writes=writes)
    one_metastore(stage)
    writes.judge(stage)
    first = founding(stage.processes[0])
    assert first is not None and first.voters in (3, 5)
    # Another number changes the number of voters, and founds nothing.
    give(stage.processes[3], 8 - first.voters)
    stage.wait(10)
    one_metastore(stage, "w")
    second = founding(stage.processes[0])
    assert second == msgspec.structs.replace(first, voters=8 - first.voters)
    configuration = stage.processes[0].driver.member.agreed.voters.configuration
    assert configuration is not None and len(configuration.voters) == second.voters


@pytest.mark.rule("model/F-1")
def test_a_minority_founds_nothing_and_finds_the_one_of_the_others_when_it_returns() -> None:
    stage = Stage(5, settings=without_metastore())
    near, far = stage.processes[:2], stage.processes[2:]
    for one in near:
        for other in far:
            stage.cut(one, other)
            stage.cut(other, one)
    give(near[0])
    give(near[1])
    stage.wait(1)
    assert [founding(process) for process in near] == [None, None]
    for _ in range(10):
        give(near[0])
        give(far[1])
        stage.wait(1)
    assert [founding(process) for process in near] == [None, None]
    assert all(led(process) for process in far)
    stage.heal()
    stage.wait(15)
    one_metastore(stage)


@pytest.mark.rule("model/F-1", "metastore/V-1")
@pytest.mark.parametrize("side", sampled([2, 1, 3], 3))
def test_a_cut_between_the_founding_and_the_first_leader_makes_no_second_metastore(side: int) -> None:
    """The founders are the first three. Each side writes; what was acknowledged on either is there afterwards."""
    stage = Stage(5, settings=without_metastore())
    give(stage.processes[4])
    stage.until(
        lambda: all(METASTORE_GROUP in one.driver.member.agreed.groups.hosted for one in stage.processes), 2
    )
    assert not any(led(process) for process in stage.processes)
    for one in stage.processes[:side]:
        for other in stage.processes[side:]:
            stage.cut(one, other)
            stage.cut(other, one)
    writes = Writes()
    for _ in range(160):
        writes.put(stage)
        stage.wait(0.05)
    stage.heal()
    repeat(stage, seconds=15, writes=writes)
    one_metastore(stage)
    writes.judge(stage)


@pytest.mark.parametrize("after_ms", [0, 300, 600, 900])
def test_members_that_are_just_joining_follow_the_group(after_ms: int) -> None:
    stage = Stage(2, settings=without_metastore(), spare=2)
    stage.processes += [stage.cluster.start(index) for index in (2, 3)]
    stage.wait(after_ms * MS)
    give(stage.processes[1])
    stage.wait(10)
    repeat(stage, seconds=3)
    one_metastore(stage)
    assert len(living(stage)) == 4


@pytest.mark.rule("membership/F-4")
def test_members_that_restart_with_the_setting_found_it_without_an_order() -> None:
    stage = Stage(3, settings=without_metastore(kept_settings()))
    stage.cluster.settings = msgspec.structs.replace(
        stage.cluster.settings, metastore=MetastoreSettings(voters=3)
    )
    for index in range(3):
        stage.processes[index].crash()
        stage.wait(8)
        stage.processes[index] = stage.cluster.start(index)
        stage.wait(10)
    one_metastore(stage)
    usable(stage)


def test_a_metastore_that_was_started_is_there_after_a_restart_without_the_setting() -> None:
    stage = Stage(3, settings=without_metastore(kept_settings()))
    give(stage.processes[0])
    stage.wait(5)
    one_metastore(stage)
    usable(stage)
    stage.cluster.power_cut_everywhere()
    stage.processes = [stage.cluster.start(index) for index in range(3)]
    stage.rest()
    stage.wait(10)
    one_metastore(stage, "later")


@pytest.mark.rule("membership/F-5")
def test_a_member_of_an_older_build_prevents_it_and_is_named() -> None:
    older = FeatureLevels(1, STARTS_METASTORE - 1)
    newer = FeatureLevels(1, STARTS_METASTORE)
    stage = Stage(3, settings=without_metastore(), builds=[older, newer, newer])
    give(stage.processes[1])
    stage.wait(5)
    assert [founding(process) for process in stage.processes] == [None] * 3
    view = stage.processes[1].driver.member.picture
    with pytest.raises(Exception, match=r"upgrade these members first.*host0") as refused:
        StartMetastore().check(view, None)  # type: ignore[arg-type]
    assert type(refused.value).__name__ == "Refused"


@pytest.mark.rule("membership/F-5")
def test_a_metastore_of_an_older_level_is_taken_over_when_the_level_rises() -> None:
    older = FeatureLevels(1, STARTS_METASTORE - 1)
    newer = FeatureLevels(1, STARTS_METASTORE)
    stage = Stage(3, settings=zoned_settings(), builds=[older, newer, newer])
    stage.wait(5)
    assert all(led(process) for process in stage.processes)
    put = ask(stage, stage.processes[1], PutKey("app/old", "1"))
    assert isinstance(put, MetastoreRevision)
    stage.processes[0].crash()
    stage.wait(8)
    stage.cluster.builds[0] = newer
    stage.processes[0] = stage.cluster.start(0)
    stage.rest()
    member = stage.processes[1].driver.member
    stage.processes[1].step(lambda: member.membership.orders.set_level(STARTS_METASTORE))
    stage.wait(10)
    assert founding(stage.processes[1]) == MetastoreFounding(3)
    one_metastore(stage)
    [kept] = ask(stage, stage.processes[0], ReadKey("app/old")).keys
    assert kept.value == "1"
