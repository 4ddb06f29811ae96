"""Members of several builds in one simulated cluster: replaced one by one and back, and the level raised."""

from __future__ import annotations

from functools import partial

import pytest
from tests.lab.sim.scenarios.keeping import End, Keeping, kept
from tests.lab.sim.stage import clean
from tests.sampled_cases import sampled

from holdfast.actions.upgrade import Upgrade
from holdfast.core.events import ActionRequested
from holdfast.core.messages import (
    Answer,
    Fill,
    FillEntries,
    Forward,
    MessageBatch,
    MigrationRequest,
    Replicate,
    Section,
)
from holdfast.core.model.journal_entries import Wrote, WrotePuts
from holdfast.core.model.levels import LOWEST, OF_THIS_BUILD, FeatureLevels
from holdfast.core.model.migration import Migration
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.records import pack_puts
from holdfast_lab.check.readable import too_early, unreadable
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.builds import OLDER, builds_drawn
from holdfast_lab.sim.rig import Packet
from holdfast_lab.sim.run import simulate
from holdfast_lab.sim.shape import KEPT_SEEDS, drawn

NEWER = OF_THIS_BUILD
TOP = NEWER.highest
PUTS = pack_puts("m", 0, [b"k"], [b"v"])
"""Three hosts of the older build, some of which get the newer one; the level rises."""


class Mixed(Keeping):
    """A cluster with files, whose hosts have one of two builds."""

    def __init__(self, *builds: FeatureLevels, spare: int = 0) -> None:
        super().__init__(len(builds) - spare, kept(1), spare=spare, builds=builds)
        self.packed = 0
        """Messages with packed stores that have left."""
        self.block(self._count_packed)

    def _count_packed(self, packet: Packet) -> bool:
        if isinstance(packet.message, Replicate):
            self.packed += sum(len(section.puts) for section in packet.message.sections)
        return False

    def put_build(self, host: int, build: FeatureLevels, *, how: End | None = "kill") -> None:
        """Replace what runs on a host: by a kill, or a power cut; None: it leaves in order first."""
        if how is None:
            self.leave(host)
        else:
            self.end(how, host)
        self.cluster.builds[host] = build
        self.start(host)
        self.calm()
        assert self.member(host).picture.info.levels == build

    def order(self, level: int = TOP, *, host: int = 0, seconds: float = 3) -> None:
        """The operator wants this level; the order is given once."""
        process = self.process(host)
        process.step(partial(process.driver.handle, ActionRequested(Upgrade(level))))
        self.wait(seconds)

    def levels(self) -> set[int]:
        """What is in force, as the members know."""
        return {picture.level for picture in self.cluster.pictures()}

    def formats(self) -> set[int]:
        """What the identity files say."""
        return {process.driver.journal.identity.level for process in self.cluster.living()}  # type: ignore[union-attr]


# -- the judge


def test_who_gets_what_it_cannot_read_is_found() -> None:
    packed = Replicate([1], [Section(0, 1, [], 1, [PUTS])])
    chunk = Fill(0, 1, 1, 1, False, 0, True, 1, [FillEntries("m", 1, sizes=PUTS.sizes, data=PUTS.data)])
    for message in (packed, chunk):
        assert "of level 2, and the build of who gets it can do 1" in unreadable(message, OLDER)
        assert unreadable(message, NEWER) == ""
    plain = Replicate([1], [Section(0, 1, PUTS.records(), 1)])
    assert unreadable(plain, OLDER) == ""
    exchange = MigrationRequest(1, Migration(0, "a", 0, 1, "b", 1, 0), 5)
    assert "of level 3, and the build of who gets it can do 1" in unreadable(exchange, OLDER)
    assert "can do 1 to 2" in unreadable(exchange, FeatureLevels(1, 2))
    assert unreadable(exchange, NEWER) == ""
    batch = MessageBatch([Forward(1, Request(Op.GET, "m", [0], b"k")), Answer(1, Outcome(Status.OK), [])])
    assert "of level 11" in unreadable(batch, FeatureLevels(1, 10))
    assert unreadable(batch, FeatureLevels(1, 11)) == ""
    shift = MigrationRequest(1, Migration(0, "a", 0, 2, "b", 1, 0), 5)
    assert unreadable(shift, OLDER) == ""


def test_what_is_written_too_early_is_found() -> None:
    entries = [Wrote(0, 1, PUTS.records()), WrotePuts(0, 1, PUTS)]
    assert too_early(entries, 1) == "WrotePuts is of level 2, and level 1 is in force"
    assert too_early(entries[:1], 1) == too_early(entries, 2) == ""


# -- up, and back


@pytest.mark.parametrize("how", sampled(["kill", "power cut", None], 2))
def test_one_by_one_up_and_back_and_up_again(how: End | None) -> None:
    stage = Mixed(OLDER, OLDER, OLDER)
    stop = stage.load()
    for build in (NEWER, OLDER, NEWER):
        for host in (0, 1, 2):
            stage.put_build(host, build, how=how)
            assert stage.levels() == stage.formats() == {LOWEST}, "nobody has ordered more"
    assert not stage.packed
    stage.order()
    stop()
    assert stage.levels() == {TOP}
    stage.everywhere()
    assert stage.packed
    clean(stage, stage.writes)
    assert stage.formats() == {TOP}


def test_the_level_stays_where_it_is_while_one_old_member_is_there() -> None:
    stage = Mixed(OLDER, NEWER, NEWER)
    for host in (0, 1, 2):
        stage.order(host=host)
    stage.everywhere()
    assert (stage.levels(), stage.packed) == ({LOWEST}, 0)
    stage.put_build(0, NEWER)
    assert stage.levels() == {LOWEST}, "an order of long ago counts no more"
    stage.order()
    assert stage.levels() == {TOP}


@ablated("level-by-all")
def test_without_the_rule_an_old_member_is_told_what_it_cannot_read() -> None:
    stage = Mixed(OLDER, NEWER, NEWER)
    stage.order()
    assert stage.levels() == {TOP}
    with pytest.raises(AssertionError, match="the build of who gets it can do 1"):
        stage.everywhere()


@ablated("level-in-force")
def test_without_the_rule_members_say_what_their_own_build_can() -> None:
    stage = Mixed(OLDER, NEWER, NEWER)
    with pytest.raises(AssertionError, match="of level 2"):
        stage.everywhere()


def test_who_cannot_do_the_level_is_not_let_in() -> None:
    stage = Mixed(NEWER, NEWER, OLDER, spare=1)
    assert stage.levels() == {TOP}, "a new cluster begins at the level of who forms it"
    stage.start(2)
    stage.wait(10)
    assert not stage.member(2).picture.admitted
    assert (
        f"this cluster is at feature level {TOP}, and your Holdfast supports 1"
        in stage.member(2).picture.refusal
    )
    stage.end("kill", 2)
    stage.cluster.builds[2] = NEWER
    stage.start(2)
    stage.rest()
    assert stage.member(2).picture.admitted


@ablated("level-admits")
def test_without_the_rule_a_member_comes_in_that_cannot_read_what_it_is_told() -> None:
    stage = Mixed(NEWER, NEWER, OLDER, spare=1)
    stage.start(2)
    stage.load()
    with pytest.raises(AssertionError, match="the build of who gets it can do 1"):
        stage.wait(20)


def test_a_cluster_that_was_stopped_comes_back_at_its_level() -> None:
    stage = Mixed(OLDER, OLDER, OLDER)
    keys = stage.everywhere()
    for host in (0, 1, 2):
        stage.put_build(host, NEWER)
    stage.order()
    stage.write(keys)
    stage.start(*stage.end_all("power cut"))
    stage.rest()
    assert stage.levels() == {TOP}
    clean(stage, stage.writes)


def test_who_was_away_when_the_level_rose_forms_the_cluster_again_at_that_level() -> None:
    """The first seed, which forms it, has files of before: it learns from the others."""
    stage = Mixed(NEWER, NEWER, NEWER, NEWER)
    assert stage.levels() == {TOP}
    stage = Mixed(OLDER, OLDER, OLDER, OLDER)
    for host in (0, 1, 2, 3):
        stage.put_build(host, NEWER)
    stage.everywhere()
    stage.end("kill", 0)
    stage.gone(0)
    stage.order(host=1)
    assert stage.levels() == {TOP}
    keys = stage.everywhere()
    stage.end_all("kill")
    stage.start(0, 1, 2, 3)
    stage.rest()
    assert stage.levels() == {TOP}
    stage.write(keys)
    clean(stage, stage.writes)


def test_files_of_the_level_are_not_opened_by_a_build_that_cannot_do_it() -> None:
    stage = Mixed(NEWER, NEWER, NEWER)
    stage.everywhere()
    stage.end("kill", 2)
    stage.cluster.builds[2] = OLDER
    stage.start(2)
    assert any(
        f"was written at feature level {TOP}, and this Holdfast can do 1" in line for line in stage.told
    )
    stage.rest()
    clean(stage, stage.writes)


# -- campaigns


def test_some_seeds_have_two_builds_and_the_kept_ones_have_none() -> None:
    shapes = [drawn(seed) for seed in range(KEPT_SEEDS + 100)]
    mixed = [seed for seed, shape in enumerate(shapes) if shape.builds]
    assert 5 < len(mixed) < 30
    assert min(mixed) >= KEPT_SEEDS
    assert builds_drawn(1, 5) == builds_drawn(1, 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "mark", "often"), [(162, "mark_level raised", 1), (133, "mark_fault build", 2)]
)
def test_a_run_of_two_builds_is_good(seed: int, mark: str, often: int) -> None:
    """In one of them hosts get another build twice, in the other one the operator raises the level."""
    assert drawn(seed).builds
    verdict = simulate(seed)
    assert verdict.ok, verdict.problems
    assert verdict.figures[mark] >= often
