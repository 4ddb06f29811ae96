"""Orders to found the metastore: when the next view has a founding, and who the founders are."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.membership.one_member import SECOND, A, B, C, D, E, One, a, b, c, home, info, view

from holdfast.core.membership import admission
from holdfast.core.membership.metastore_orders import founded, founding_problem
from holdfast.core.messages import JoinRequest, MetastoreWanted
from holdfast.core.model.levels import OF_THIS_BUILD, STARTS_METASTORE, FeatureLevels
from holdfast.core.model.metastore_founding import MetastoreFounding
from holdfast.core.model.views import MemberInfo, View

LEVEL = OF_THIS_BUILD.highest
OF_ALL = MetastoreFounding(3, (a, b, c))


def able(who: MemberInfo, levels: FeatureLevels = OF_THIS_BUILD) -> MemberInfo:
    return msgspec.structs.replace(who, levels=levels)


def member(*, me: MemberInfo = A, **changed: object) -> One:
    """One of the members {A, B, C} of a cluster, in view 5."""
    one = One(able(me))
    all_of_them = [able(who) for who in (A, B, C)]
    one.membership.install(msgspec.structs.replace(View(5, "id", all_of_them, level=LEVEL), **changed))
    one.fresh()
    for other in (A, B, C):
        if other is not me:
            one.beat(other)
    return one


def next_founding(one: One) -> MetastoreFounding | None:
    wanted = one.membership.wanted()
    return wanted.metastore if wanted is not None else None


@pytest.mark.rule("model/F-1", "membership/F-4")
def test_the_view_after_an_order_has_the_founding() -> None:
    one = member()
    assert one.membership.wanted() is None
    one.membership.metastore_orders.on_wanted(MetastoreWanted(5, 3))
    assert one.proposes
    assert next_founding(one) == OF_ALL


@pytest.mark.rule("membership/F-4")
def test_an_order_of_another_view_or_that_is_not_repeated_is_void() -> None:
    one = member()
    one.membership.metastore_orders.on_wanted(MetastoreWanted(4, 3))
    one.membership.metastore_orders.on_wanted(MetastoreWanted(6, 3))
    assert one.membership.wanted() is None
    one.membership.metastore_orders.on_wanted(MetastoreWanted(5, 3))
    one.pass_time(4 * SECOND)
    for other in (B, C):
        one.beat(other)
    assert next_founding(one) is None
    one.membership.metastore_orders.on_wanted(MetastoreWanted(5, 3))
    one.membership.install(View(6, "id", [able(who) for who in (A, B, C)], level=LEVEL))
    assert next_founding(one) is None


@pytest.mark.rule("membership/F-4")
@pytest.mark.parametrize(
    "changed",
    [{"recovering": True}, {"ending": True}, {"level": STARTS_METASTORE - 1}, {"metastore": OF_ALL}],
)
def test_nothing_is_founded_then(changed: dict[str, object]) -> None:
    one = member(**changed)
    one.assigned = False
    one.membership.metastore_orders.on_wanted(MetastoreWanted(5, 3))
    assert next_founding(one) in (None, changed.get("metastore"))


def test_a_member_that_is_not_the_master_only_passes_the_order_on() -> None:
    one = member(me=B)
    one.membership.metastore_orders.on_wanted(MetastoreWanted(5, 3))
    assert one.membership.wanted() is None
    one.membership.metastore_orders.order(3)
    assert one.sent(MetastoreWanted) == [(a, MetastoreWanted(5, 3))]


def test_an_order_for_another_number_changes_only_the_number() -> None:
    one = member(metastore=OF_ALL)
    one.membership.metastore_orders.on_wanted(MetastoreWanted(5, 5))
    assert next_founding(one) == msgspec.structs.replace(OF_ALL, voters=5)


@pytest.mark.rule("membership/F-4")
def test_a_process_that_joins_with_that_view_is_no_founder() -> None:
    one = member()
    one.ask(able(D))
    one.membership.metastore_orders.on_wanted(MetastoreWanted(5, 3))
    wanted = one.membership.wanted()
    assert wanted is not None
    assert [who.uuid for who in wanted.members] == [a, b, c, D.uuid]
    assert wanted.metastore == OF_ALL


@pytest.mark.rule("membership/F-4")
def test_what_is_configured_is_ordered_with_heartbeats_until_there_is_a_metastore() -> None:
    one = member(me=C)
    one.membership.on_timer("heartbeat")
    assert one.sent(MetastoreWanted) == []
    one.membership.metastore_orders.configured = 5
    one.membership.on_timer("heartbeat")
    assert one.sent(MetastoreWanted) == [(a, MetastoreWanted(5, 5))]
    one.membership.install(View(6, "id", [able(who) for who in (A, B, C)], level=LEVEL, metastore=OF_ALL))
    one.fresh()
    one.membership.on_timer("heartbeat")
    assert one.sent(MetastoreWanted) == []


@pytest.mark.rule("membership/F-4")
def test_while_a_stopped_cluster_recovers_a_process_reports_the_founding_that_it_knows() -> None:
    one = member(recovering=True)
    one.assigned = False
    one.ask(able(info("d", store="s")), cluster_id="id", metastore=OF_ALL)
    assert next_founding(one) == OF_ALL
    running = member()
    running.ask(able(info("d", store="s")), cluster_id="id", metastore=OF_ALL)
    assert next_founding(running) is None


@pytest.mark.rule("membership/F-5")
def test_a_metastore_of_a_lower_level_is_taken_over_when_the_level_rises() -> None:
    for configured, founding in ((3, MetastoreFounding(3)), (0, None)):
        one = member(level=STARTS_METASTORE - 1)
        one.membership.metastore_orders.configured = configured
        one.membership.intents.order_level(STARTS_METASTORE, one.out.now_ns)
        wanted = one.membership.wanted()
        assert wanted is not None
        assert (wanted.level, wanted.metastore) == (STARTS_METASTORE, founding)


def test_the_reason_why_nothing_can_be_founded_names_the_next_step() -> None:
    assert founding_problem(view(able(A), able(B), level=LEVEL)) == ""
    lower = founding_problem(view(able(A), able(B), level=1))
    assert "the cluster is at 1: raise it first (holdfast cluster upgrade)" in lower
    short = founding_problem(view(able(A), able(B, FeatureLevels(1, 2)), level=1))
    assert short.endswith("(holdfast cluster upgrade): name-b (1 to 2)")
    assert "try again" in founding_problem(view(able(A), level=LEVEL, recovering=True))


@pytest.mark.parametrize(
    ("voters", "members", "departing", "first", "others"),
    [
        (3, [A], [], "a", ""),
        (3, [A, B], [], "a", "b"),
        (3, [A, B, C, D], [], "abc", "d"),
        (1, [A, B, C], [], "a", "bc"),
        (5, [A, B, C, D], [], "abc", "d"),
        (3, [A, B, C, D], [a], "bcd", "a"),
        (3, [A, B, C, D, E], [a, b], "cde", "ab"),
        (3, [A, B], [a, b], "a", "b"),
    ],
)
def test_founders(
    voters: int, members: list[MemberInfo], departing: list[str], first: str, others: str
) -> None:
    assert founded(voters, members, departing) == MetastoreFounding(voters, tuple(first), tuple(others))  # type: ignore[arg-type]


def test_lite_members_begin_as_voters_only_without_data_members_and_files_are_a_node() -> None:
    lite = info("l", lite=True)
    assert founded(3, [lite, A, B, C], ()) == MetastoreFounding(3, (a, b, c), ("l",))
    assert founded(3, [lite], ()) == MetastoreFounding(3, ("l",))
    assert founded(3, [info("f", store="files")], ()) == MetastoreFounding(3, ("files",))
    assert founded(3, [], ()) is None


@pytest.mark.rule("membership/F-5")
def test_from_the_level_on_members_may_have_different_settings() -> None:
    request = JoinRequest(able(D), "prod", {"metastore.voters": "3"})
    mine = {"metastore.voters": "0"}
    for level, fits in ((LEVEL, True), (STARTS_METASTORE - 1, False)):
        why = admission.refusal(request, "prod", mine, "id", view(able(A), level=level))
        assert (why == "") is fits
    assert admission.refusal(request, "prod", mine, "", None) == ""


@pytest.mark.rule("membership/F-4")
def test_a_process_with_files_reports_and_continues_the_founding_in_them() -> None:
    seen = View(4, "id", [able(A), able(B)], level=LEVEL, metastore=OF_ALL)
    files = info("a", store="s")
    seeking = One(able(files), cluster_id="id", seen=seen, seeds=(home(B), home(A)))
    seeking.membership.on_timer("join")
    ((_, request),) = seeking.datagram_received(JoinRequest)
    assert request.metastore == OF_ALL
    forming = One(able(files), cluster_id="id", seen=seen, bootstrap=True)
    forming.membership.on_timer("join")
    assert forming.membership.view is not None
    assert (forming.membership.view.recovering, forming.membership.view.metastore) == (True, OF_ALL)


@pytest.mark.rule("model/F-1")
def test_a_new_cluster_begins_with_the_metastore_that_is_configured() -> None:
    for configured, founding in ((3, MetastoreFounding(3, (a,))), (0, None)):
        forming = One(able(A), bootstrap=True)
        forming.membership.metastore_orders.configured = configured
        forming.membership.on_timer("join")
        assert forming.membership.view is not None
        assert forming.membership.view.metastore == founding
    older = One(able(A, FeatureLevels(1, STARTS_METASTORE - 1)), bootstrap=True)
    older.membership.metastore_orders.configured = 3
    older.membership.on_timer("join")
    assert older.membership.view is not None
    assert older.membership.view.metastore is None
