"""Which feature level is in force: who is let in, and when it rises."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.membership.one_member import START_NS, A, B, C, D, One, home, info

from holdfast.core.membership.admission import Admission
from holdfast.core.membership.formation import Formation
from holdfast.core.membership.identity import Identity
from holdfast.core.membership.next_level import NextLevel, possible, raise_problem
from holdfast.core.messages import JoinAnswer, JoinRequest, LevelWanted
from holdfast.core.model.ids import SECOND
from holdfast.core.model.levels import LOWEST, OF_THIS_BUILD, FeatureLevels, common
from holdfast.core.model.views import ClusterState, MemberInfo, View
from holdfast_lab.sim.ablations.switching import ablated

OLD, NEW = FeatureLevels(1, 1), FeatureLevels(1, 2)


def of(who: MemberInfo, levels: FeatureLevels) -> MemberInfo:
    return msgspec.structs.replace(who, levels=levels)


def new(*who: MemberInfo) -> list[MemberInfo]:
    return [of(one, NEW) for one in who]


def master(*members: MemberInfo, level: int = 1) -> One:
    """The first of these, in a view of this level."""
    one = One(members[0])
    one.membership.install(View(5, "id", list(members), level=level))
    one.fresh()
    for other in members[1:]:
        one.beat(other)
    return one


def order(one: One, level: int = 2) -> None:
    one.membership.orders.on_level_wanted(LevelWanted(5, level))


# -- what several can do


@pytest.mark.parametrize(
    ("everyone", "level"),
    [
        ([NEW, NEW], 2),
        ([NEW, OLD], 1),
        ([FeatureLevels(2, 3), NEW], 2),
        ([FeatureLevels(2, 3), OLD], 0),
        ([], 0),
    ],
)
def test_what_is_common(everyone: list[FeatureLevels], level: int) -> None:
    assert common(everyone) == level


def test_what_a_build_can_do_in_words() -> None:
    assert str(OLD) == "1"
    assert str(NEW) == "1 to 2"
    assert OF_THIS_BUILD.can(LOWEST)


# -- membership/L-1


@pytest.mark.rule("membership/L-1")
def test_it_does_not_rise_by_itself() -> None:
    one = master(*new(A, B, C))
    assert one.membership.wanted() is None


@pytest.mark.rule("membership/L-1")
def test_it_rises_when_an_operator_wants_it_and_all_can() -> None:
    one = master(*new(A, B, C))
    order(one)
    assert one.proposes
    assert one.wanted().level == 2


@pytest.mark.rule("membership/L-1")
def test_it_does_not_rise_while_somebody_cannot() -> None:
    one = master(*new(A, B), of(C, OLD))
    order(one)
    assert not one.proposes
    assert one.membership.wanted() is None


@ablated("level-by-all")
def test_without_the_rule_it_rises_over_the_head_of_an_old_member() -> None:
    one = master(*new(A, B), of(C, OLD))
    order(one)
    assert one.wanted().level == 2
    assert not C.levels.can(2)


@pytest.mark.rule("membership/L-1")
def test_who_is_waited_for_counts() -> None:
    """Frozen, the cluster keeps the place of who has gone: it may come back as it was."""
    one = One(of(A, NEW))
    frozen = View(5, "id", new(A, B), missing=[of(D, OLD)], state=ClusterState.FROZEN)
    one.membership.install(frozen)
    one.fresh()
    one.beat(of(B, NEW))
    order(one)
    assert one.membership.wanted() is None
    assert "name-d (1)" in raise_problem(frozen, 2)


def test_an_order_is_forgotten_that_nobody_repeats() -> None:
    one = master(*new(A, B), of(C, OLD))
    order(one)
    one.pass_time(4 * SECOND)
    assert one.membership.intents.level_order(one.out.now_ns) == LOWEST


def test_nobody_but_the_master_hears_it() -> None:
    one = One(of(B, NEW), *new(A, B))
    one.membership.orders.on_level_wanted(LevelWanted(5, 2))
    assert one.membership.intents.level_order(START_NS) == LOWEST


def test_the_operator_is_told_what_stands_in_the_way() -> None:
    view = View(5, "id", [*new(A, B), of(C, OLD)], level=1)
    assert possible(view) == 1
    assert "name-c (1)" in raise_problem(view, 2)
    assert raise_problem(msgspec.structs.replace(view, level=2), 1).endswith("a level never falls")
    assert raise_problem(msgspec.structs.replace(view, members=new(A, B), level=2), 2) == "", "it is there"
    assert raise_problem(View(5, "id", new(A, B)), 2) == ""


@pytest.mark.rule("membership/L-1")
@pytest.mark.parametrize(
    ("present", "known", "ordered", "level"),
    [
        (1, 1, 1, 1),
        (1, 2, 1, 2),
        (1, 1, 2, 2),
        (1, 2, 3, 3),
        (1, 3, 2, 3),
        (2, 1, 1, 2),
        # A level that somebody cannot do stands in the way of no other one, and the present one stays.
        (1, 4, 2, 2),
        (1, 2, 4, 2),
        (2, 4, 1, 2),
        (2, 4, 4, 2),
        (3, 4, 2, 3),
    ],
)
def test_the_highest_level_that_is_known_or_wanted_and_that_all_can_do(
    present: int, known: int, ordered: int, level: int
) -> None:
    """`known`: of one who comes back. All can do 1 to 3."""
    there = [of(one, FeatureLevels(1, 3)) for one in (A, B)]
    one = One(there[0])
    one.membership.install(View(5, "id", there, level=present))
    candidates = Admission()
    candidates.ask(there[1], one.out.now_ns, level=known)
    one.membership.intents.order_level(ordered, one.out.now_ns)
    view = one.membership.view
    assert view is not None
    assert NextLevel(one.membership, candidates, one.out).wanted(view, there, []) == level
    if level > present:
        assert NextLevel(one.membership, candidates, one.out).wanted(view, there, [of(D, OLD)]) == present


# -- membership/L-2


@pytest.mark.rule("membership/L-2")
def test_who_cannot_do_the_level_is_told_so_and_not_let_in() -> None:
    one = master(*new(A, B), level=2)
    one.ask(of(C, OLD))
    ((_, answer),) = one.datagram_received(JoinAnswer)
    assert "this cluster is at feature level 2, and your Holdfast supports 1:" in answer.refusal
    assert not one.proposes


@pytest.mark.rule("membership/L-2")
def test_a_build_that_has_forgotten_the_level_is_told_to_bring_the_cluster_up_first() -> None:
    one = master(*new(A, B), level=1)
    one.ask(of(C, FeatureLevels(2, 3)))
    ((_, answer),) = one.datagram_received(JoinAnswer)
    assert "bring the cluster to level 2 first" in answer.refusal


@pytest.mark.rule("membership/L-2")
def test_who_has_asked_before_the_level_rose_is_not_let_in_after_it() -> None:
    one = master(*new(A, B), level=1)
    one.ask(of(C, OLD))
    one.membership.install(View(6, "id", new(A, B), level=2))
    one.beat(of(B, NEW), 6)
    assert one.membership.wanted() is None


@ablated("level-admits")
def test_without_the_rule_an_old_member_is_let_in() -> None:
    one = master(*new(A, B), level=2)
    one.ask(of(C, OLD))
    assert of(C, OLD).uuid in [info.uuid for info in one.wanted().members]


def test_an_old_member_may_come_as_long_as_the_level_is_low() -> None:
    one = master(*new(A, B), level=1)
    one.ask(of(C, OLD))
    assert [info.levels for info in one.wanted().members] == [NEW, NEW, OLD]


# -- membership/L-3


@pytest.mark.rule("membership/L-3")
def test_the_level_of_the_view_is_kept() -> None:
    one = master(*new(A, B, C), level=2)
    one.silence(C)
    assert one.wanted().level == 2


@pytest.mark.rule("membership/L-3")
def test_who_comes_back_tells_of_a_level_that_nobody_here_has_seen() -> None:
    """The view that raised it was agreed without the one who forms the cluster again."""
    one = One(of(A, NEW))
    one.assigned = False
    one.membership.install(View(5, "id", new(A, B), recovering=True))
    one.fresh()
    one.beat(of(B, NEW))
    one.ask(of(C, NEW), cluster_id="id", level=2)
    assert one.wanted().level == 2


@pytest.mark.rule("membership/L-3")
def test_who_tells_of_a_level_that_others_cannot_do_waits_for_them() -> None:
    one = One(of(A, OLD))
    one.assigned = False
    one.membership.install(View(5, "id", [of(A, OLD), of(B, OLD)], recovering=True))
    one.fresh()
    one.beat(of(B, OLD))
    one.ask(of(C, NEW), cluster_id="id", level=2)
    ((_, answer),) = one.datagram_received(JoinAnswer)
    assert "your files were written at feature level 2, which name-a, name-b cannot read" in answer.refusal
    assert one.membership.wanted() is None


@pytest.mark.rule("membership/L-3")
def test_a_stopped_cluster_is_formed_again_at_its_level() -> None:
    mine = info("a", store="files", levels=NEW)
    seen = View(8, "id", [mine], level=2)
    back = Formation(Identity(mine, "prod", {}, (), True, "new", "id", seen)).first_view({})
    assert (back.cluster_id, back.level) == ("id", 2)
    lost = Formation(Identity(mine, "prod", {}, (), True, "new", "id", None, 2)).first_view({})
    assert lost.level == 2, "also when the view itself could not be read"


def test_a_new_cluster_begins_at_what_its_first_member_can_do() -> None:
    fresh = Formation(Identity(of(A, NEW), "prod", {}, (), True, "new")).first_view({})
    assert fresh.level == 2


def test_a_member_says_which_level_it_knows_of() -> None:
    mine = info("a", store="files", levels=NEW)
    seen = View(8, "id", [mine], level=2)
    one = One(mine, cluster_id="id", seen=seen, seeds=(home(B),))
    one.membership.on_timer("join")
    ((_, request),) = one.datagram_received(JoinRequest)
    assert request.level == 2


# -- membership/L-4


@pytest.mark.rule("membership/L-4")
def test_what_is_sent_is_of_the_level_of_the_view() -> None:
    one = One(of(A, NEW))
    assert not one.out.does(2), "who is in no cluster sends what everybody reads"
    one.membership.install(View(5, "id", new(A, B)))
    assert not one.out.does(2)
    one.membership.install(View(6, "id", new(A, B), level=2))
    assert one.out.does(2)
    assert one.noted("feature level in force") == [{"feature_level": 2, "before": 1, "level": "info"}]


@ablated("level-in-force")
def test_without_the_rule_a_member_sends_what_its_build_can() -> None:
    one = One(of(A, NEW))
    assert one.out.does(2)
