"""A majority of the members is silent: which order helps, and when it is rejected."""

from __future__ import annotations

from functools import partial

import pytest
from tests.lab.sim.stage import Stage, settings
from tests.lab.sim.way_out import named
from tests.lab.sim.zone_stage import ZoneStage

from holdfast.actions.evict import Evict
from holdfast.core.events import ActionRequested
from holdfast.core.model.ids import METASTORE_GROUP, MemberId
from holdfast_lab.sim.world import Process


def ids(*processes: Process) -> list[MemberId]:
    return [process.driver.member.me for process in processes]


def rejection(through: Process, *ended: Process, without_majority: bool = True) -> str:
    return through.picture.eviction_rejection(ids(*ended), without_majority=without_majority)


@pytest.mark.rule("membership/M-1")
def test_nothing_is_given_up_while_a_majority_is_heard() -> None:
    stage = Stage(3)
    one, two, three = stage.processes
    three.crash()
    stage.wait(1)
    assert rejection(one, three) == (
        "a majority of the members responds and can agree to remove the others: omit --without-majority "
        f"(holdfast member evict {three.picture.info.name})"
    )
    assert rejection(one, three, without_majority=False) == ""
    assert "cannot evict the member that handles this request" in rejection(one, one)
    assert rejection(one, two) != ""


@pytest.mark.parametrize(
    ("files", "advice"),
    [
        (False, "If the members that held them still run, reconnect them. If their processes have ended"),
        (True, "Start the members that held them again, with their files. If these are gone for good"),
    ],
)
def test_lost_partitions_are_sought_where_they_may_be(files: bool, advice: str) -> None:
    """A member without files that is started again brings nothing back."""
    chosen = settings(persistence={"directory": "files"}) if files else settings()
    stage = Stage(3, settings=chosen)
    one, *gone = stage.processes
    for process in gone:
        process.crash()
    stage.wait(20)
    evict = Evict(ids(*gone), without_majority=True)
    one.step(partial(one.driver.handle, ActionRequested(evict)))
    stage.wait(20)
    said = one.picture.unsafe_reason()
    assert advice in said
    assert named(said) == "cluster accept-loss"


@pytest.mark.rule("membership/M-2")
def test_only_silent_members_are_given_up_and_enough_of_them() -> None:
    stage = Stage(5)
    one, two, *gone = stage.processes
    for process in gone:
        process.crash()
    stage.wait(20)
    ended = set(ids(*gone))
    names = " ".join(info.name for info in one.picture.members() if info.uuid in ended)
    said = one.picture.cluster_unsafe_reason()
    assert said.startswith(
        "3 of 5 members are silent; the rest is no majority and cannot continue without them"
    )
    assert named(said) == f"member evict {names} --without-majority"
    # Without the flag, and for every other order that needs a majority, the same is said.
    assert rejection(one, gone[0], without_majority=False) == one.picture.accept_loss_rejection() == said
    assert f"{two.picture.info.name} responded recently" in rejection(one, two, *gone)
    # One dead member less makes two of four, and the oldest among them: that is enough.
    assert rejection(one, gone[0]) == ""
    assert "is not a member" in one.picture.eviction_rejection([MemberId("x")], without_majority=True)


@pytest.mark.rule("membership/M-2")
def test_too_few_that_are_named_are_no_help() -> None:
    stage = Stage(5)
    one, *gone = stage.processes
    for process in gone:
        process.crash()
    stage.wait(20)
    assert "name all members that have ended" in rejection(one, gone[0])
    assert named(rejection(one, gone[0])).count("#") == 4
    assert rejection(one, *gone) == ""


@pytest.mark.rule("membership/V-6")
def test_a_member_that_was_given_up_and_runs_ends_when_it_hears_of_it() -> None:
    """It was cut off, alone: what it holds is older than what the others went on with."""
    stage = Stage(3)
    stage.put(stage.processes[0], "k", "v")
    one, two, three = stage.processes
    stage.isolate(two)
    three.crash()
    stage.wait(20)
    one.step(lambda: one.driver.handle(ActionRequested(Evict(list(ids(two, three)), without_majority=True))))
    stage.processes = [one]
    stage.wait(5)
    assert len(one.picture.members()) == 1
    stage.heal()
    stage.wait(30)
    assert two.dead
    assert "this member was evicted by an operator" in two.picture.refusal
    assert len(one.picture.members()) == 1


@pytest.mark.rule("metastore/V-6")
def test_the_metastore_is_not_reset_while_its_voters_are_in_the_view() -> None:
    """Two of its voters are cut off with each other: they may serve all others, for what the third one knows."""
    stage = ZoneStage(3)
    one, two, three = stage.processes
    for other in (one, two):
        stage.cut(other, three)
        stage.cut(three, other)
    stage.wait(1)
    said = three.driver.member.agreed.voters.reset()
    assert said.startswith("most of the 3 voters of the metastore are here"), "they were heard of just now"
    stage.wait(20)
    said = three.driver.member.agreed.voters.reset()
    assert named(said) == f"member evict {one.picture.info.name} {two.picture.info.name} --without-majority"
    assert one.driver.member.agreed.groups.term(METASTORE_GROUP) or two.driver.member.agreed.groups.term(
        METASTORE_GROUP
    )


@pytest.mark.rule("metastore/V-6")
def test_silent_voters_have_to_be_out_of_the_view_first() -> None:
    """Five members, three voters, and two of these stand still: the others will agree to remove them, but have not."""
    stage = Stage(5, settings=settings(metastore={"voters": 3}, cluster={"suspect_after_ms": 60_000}))
    stage.wait(10)
    voters = stage.processes[0].driver.member.agreed.voters.configuration
    assert voters is not None
    gone = [p for p in stage.processes if p.driver.member.agreed.groups.me in voters.voters][:2]
    rest = [p for p in stage.processes if p not in gone]
    for process in gone:
        stage.isolate(process)
        process.crash()
    stage.wait(10)
    assert "are here: it needs no reset" in rest[0].driver.member.agreed.voters.reset()
