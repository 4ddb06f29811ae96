"""Orders to change settings of a map in use: taken by every member, or by none."""

from __future__ import annotations

import pytest
from tests.core.membership.one_member import SEEDS, One, a, b, c, info, recovering

from holdfast.config import Settings
from holdfast.core.membership.formation import Formation
from holdfast.core.membership.identity import Identity
from holdfast.core.messages import (
    JoinAnswer,
    JoinRequest,
    MapChangeAsked,
    MapChangeJudged,
    MapChangeRefused,
    MapChangeWanted,
)
from holdfast.core.model.ids import SECOND
from holdfast.core.model.levels import CHANGES_MAPS, MOVES_MAPS, OF_THIS_BUILD, RESETS_MAPS
from holdfast.core.model.map_changes import MapChange, MapChanges, MapOrder
from holdfast.core.model.map_moves import MapMove
from holdfast.core.model.views import ClusterState, MemberInfo, Room, View

A, B, C, D = (info(name, levels=OF_THIS_BUILD) for name in "abcd")
TTL = MapChangeWanted(5, 0, 1, b, "m", {"ttl_ms": 9})
COPIES = MapChangeWanted(5, 0, 1, b, "m", {"backups": 2})
DONE = MapChanges(1, (MapChange("m", {"ttl_ms": 9}),))
HALF = MapChanges().ordered(Settings(), "m", {"backups": 2})


def member(who: MemberInfo = A, **changed: object) -> One:
    """One of three, in a view of the newest level."""
    one = One(who)
    one.membership.install(View(5, "id", [A, B, C], level=OF_THIS_BUILD.highest, **changed))  # type: ignore[arg-type]
    one.fresh()
    for other in (A, B, C):
        if other is not who:
            one.beat(other)
    one.fresh()
    return one


def judged(one: One, *who: str, why: str = "", after: int = 0) -> None:
    for sender in who:
        one.membership.map_orders.on_judged(sender, MapChangeJudged(5, after, why))  # type: ignore[arg-type]


def refusal(one: One, ttl_ms: int = 9) -> str:
    """Why the order of this member's operator was refused."""
    return one.membership.maps.refusal_of(MapOrder("m", {"ttl_ms": ttl_ms}), one.out.now_ns)


@pytest.mark.rule("membership/C-1")
def test_it_changes_when_every_member_has_accepted_it() -> None:
    one = member()
    one.membership.map_orders.on_wanted(TTL)
    assert one.sent(MapChangeAsked) == [(who, MapChangeAsked(5, 0, "m", {"ttl_ms": 9})) for who in (a, b, c)]
    judged(one, a, b)
    assert one.membership.wanted() is None, "one has not answered"
    judged(one, c)
    assert one.proposes
    assert one.wanted().maps == DONE


RESET = MapChangeWanted(5, 1, 1, b, "m", {"ttl_ms": 0}, resets=True)


@pytest.mark.rule("membership/C-1")
@pytest.mark.rule("model/C-2")
def test_settings_are_reset_when_every_member_is_configured_alike() -> None:
    one = member(maps=DONE)
    one.membership.map_orders.on_wanted(RESET)
    assert {asked.values["ttl_ms"] for _, asked in one.sent(MapChangeAsked)} == {0}
    judged(one, a, b, c, after=1)
    assert one.wanted().maps == MapChanges(2)


@pytest.mark.rule("model/C-2")
@pytest.mark.parametrize(
    ("ttl_ms", "why"), [(0, ""), (7, "has ttl_ms=0 for m, and another member's has ttl_ms=7")]
)
def test_a_member_with_another_configuration_rejects_a_reset(ttl_ms: int, why: str) -> None:
    one = member(B, maps=DONE)
    one.membership.map_orders.on_asked(a, MapChangeAsked(5, 1, "m", {"ttl_ms": ttl_ms}, resets=True))
    [(_, answer)] = one.sent(MapChangeJudged)
    assert answer.why.endswith(why)
    assert bool(answer.why) == bool(why)


def test_a_reset_is_sent_with_the_configured_values_and_waits_for_its_level() -> None:
    one = member(B, maps=DONE)
    one.membership.map_orders.order(MapOrder("m", resets=True))
    assert one.sent(MapChangeWanted) == [(a, MapChangeWanted(5, 1, 1, b, "m", {"ttl_ms": 0}, resets=True))]
    one = member(B)
    one.membership.map_orders.order(MapOrder("m", resets=True))
    assert one.sent(MapChangeWanted) == [], "nothing was changed"
    one = member(B)
    one.membership.install(View(6, "id", [A, B, C], level=RESETS_MAPS - 1, maps=DONE))
    one.fresh()
    one.membership.map_orders.order(MapOrder("m", resets=True))
    assert one.sent(MapChangeWanted) == []
    assert "holdfast cluster upgrade" in one.membership.maps.refusal_of(
        MapOrder("m", resets=True), one.out.now_ns
    )


@pytest.mark.rule("membership/C-1")
def test_one_that_refuses_prevents_it_and_the_operator_learns_why() -> None:
    one = member()
    one.membership.map_orders.on_wanted(TTL)
    judged(one, a, b)
    one.fresh()
    judged(one, c, why="c is short of memory")
    assert one.sent(MapChangeRefused) == [(b, MapChangeRefused(1, "c is short of memory"))]
    judged(one, a, b, c)
    assert one.membership.wanted() is None, "late answers count for nothing"


@pytest.mark.rule("membership/C-1")
def test_an_order_that_another_came_before_is_void() -> None:
    one = member(maps=DONE)
    one.membership.map_orders.on_wanted(TTL)
    assert one.sent(MapChangeAsked) == []


@pytest.mark.rule("membership/C-1")
def test_it_is_void_in_a_later_view_and_when_it_is_not_repeated() -> None:
    one = member()
    one.membership.map_orders.on_wanted(TTL)
    judged(one, a, b)
    one.pass_time(4 * SECOND)
    judged(one, c)
    assert one.membership.map_orders.accepted(one.membership.view or View(0, "", [])) is None
    one = member()
    one.membership.map_orders.on_wanted(TTL)
    judged(one, a, b, c)
    one.membership.install(View(6, "id", [A, B, C], level=OF_THIS_BUILD.highest))
    assert one.membership.map_orders.accepted(one.membership.view or View(0, "", [])) is None


def test_two_orders_at_once_are_not_mixed() -> None:
    one = member()
    one.membership.map_orders.on_wanted(TTL)
    one.membership.map_orders.on_wanted(COPIES)
    ((to, refused),) = one.sent(MapChangeRefused)
    assert to == b
    assert "another order" in refused.why


@pytest.mark.rule("membership/C-1")
def test_a_process_that_joins_meanwhile_was_not_asked() -> None:
    one = member()
    one.membership.map_orders.on_wanted(TTL)
    judged(one, a, b, c)
    one.membership.agreement.install(one.membership.view)
    one.ask(D, shared=one.membership.identity.shared)
    wanted = one.wanted()
    assert len(wanted.members) == 4
    assert wanted.maps == MapChanges(), "it changes with the next view, if the order is repeated"


@pytest.mark.parametrize(
    ("changed", "order", "why"),
    [
        ({"level": CHANGES_MAPS - 1}, TTL, "holdfast cluster upgrade"),
        ({"state": ClusterState.NO_MIGRATION}, COPIES, "holdfast cluster state active"),
    ],
)
def test_the_master_refuses_what_the_cluster_cannot_do(
    changed: dict[str, object], order: MapChangeWanted, why: str
) -> None:
    one = One(A)
    one.membership.install(View(5, "id", [A, B, C], **{"level": OF_THIS_BUILD.highest, **changed}))  # type: ignore[arg-type]
    one.membership.map_orders.on_wanted(order)
    ((_, refused),) = one.sent(MapChangeRefused)
    assert why in refused.why


def test_a_lifetime_can_change_while_nothing_migrates() -> None:
    one = member(state=ClusterState.NO_MIGRATION)
    one.membership.map_orders.on_wanted(TTL)
    assert len(one.sent(MapChangeAsked)) == 3


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("m", {"ttl_ms": -1}, "maps.m.ttl_ms = -1 is not allowed"),
        ("m", {"backups": 5, "async_backups": 3}, "8 together: at most 6 are allowed"),
        ("m", {"changes_bytes": 3}, "cannot be changed while the map is used"),
        ("__schemas", {"backups": 1}, "a map of Holdfast's own"),
        ("m", {"ttl_ms": 5, "backups": 0}, ""),
    ],
)
def test_each_member_judges_the_settings(name: str, values: dict[str, int], why: str) -> None:
    one = member(B)
    one.membership.map_orders.on_asked(a, MapChangeAsked(5, 0, name, values))
    ((to, answer),) = one.sent(MapChangeJudged)
    assert to == a
    assert why in answer.why
    assert bool(why) is bool(answer.why)


def test_a_member_that_is_short_of_memory_refuses_more_copies_but_not_fewer() -> None:
    one = member(B)
    one.membership.note_room(Room.LITTLE)
    one.fresh()
    for backups, short in ((2, True), (0, False)):
        one.membership.map_orders.on_asked(a, MapChangeAsked(5, 0, "m", {"backups": backups}))
        ((_, answer),) = one.sent(MapChangeJudged)
        assert ("limits.memory_bytes" in answer.why) is short


def test_only_the_master_is_answered() -> None:
    one = member(B)
    one.membership.map_orders.on_asked(c, MapChangeAsked(5, 0, "m", {"ttl_ms": 1}))
    assert one.sent(MapChangeJudged) == []


def test_the_member_of_the_operator_remembers_the_refusal_of_its_order_while_it_is_repeated() -> None:
    one = member(B)
    orders = one.membership.map_orders
    orders.order(MapOrder("m", {"ttl_ms": 9}))
    assert one.sent(MapChangeWanted) == [(a, MapChangeWanted(5, 0, 1, b, "m", {"ttl_ms": 9}))]
    orders.on_refused(MapChangeRefused(0, "of an earlier order"))
    assert refusal(one) == ""
    orders.on_refused(MapChangeRefused(1, "no"))
    assert refusal(one) == "no"
    assert refusal(one, 8) == ""
    one.pass_time(4 * SECOND)
    assert refusal(one) == "", "the operator tries again"
    orders.order(MapOrder("m", {"ttl_ms": 9}))
    assert one.sent(MapChangeWanted) == [(a, MapChangeWanted(5, 0, 2, b, "m", {"ttl_ms": 9}))]


def test_an_order_that_was_carried_out_is_not_repeated_against_a_later_one() -> None:
    one = member(B)
    orders = one.membership.map_orders
    orders.order(MapOrder("m", {"ttl_ms": 9}))
    for number, maps in ((6, DONE), (7, DONE.ordered(Settings(), "m", {"ttl_ms": 1}))):
        one.membership.install(View(number, "id", [A, B, C], level=OF_THIS_BUILD.highest, maps=maps))
        one.fresh()
        orders.order(MapOrder("m", {"ttl_ms": 9}))
        assert one.sent(MapChangeWanted) == []
    assert refusal(one) == "another order has changed m in the meantime"


def test_an_order_follows_another_one_about_something_else() -> None:
    one = member(B, maps=DONE)
    one.membership.map_orders.order(MapOrder("other", {"ttl_ms": 9}))
    ((_, wanted),) = one.sent(MapChangeWanted)
    assert wanted.after == 1


def test_an_older_master_is_not_asked() -> None:
    one = One(B)
    one.membership.install(View(5, "id", [A, B, C], level=CHANGES_MAPS - 1))
    one.fresh()
    one.membership.map_orders.order(MapOrder("m", {"ttl_ms": 9}))
    assert one.sent(MapChangeWanted) == []
    assert "holdfast cluster upgrade" in refusal(one)


# -- model/C-1


@pytest.mark.rule("model/C-1")
def test_the_next_step_follows_when_it_is_proved_and_nobody_comes_or_goes() -> None:
    one = member(maps=HALF)
    assert one.membership.wanted() is None
    one.copies_proven = True
    assert one.wanted().maps == HALF.advanced()
    one.ask(D, shared=one.membership.identity.shared)
    assert one.wanted().maps == HALF


# -- membership/C-2


@pytest.mark.rule("membership/C-2")
def test_a_stopped_cluster_learns_of_newer_changes_while_it_recovers() -> None:
    one = recovering()
    one.ask(info("b", store="t"), cluster_id="old", maps=DONE)
    assert one.membership.view is not None
    assert one.membership.view.maps == DONE, "it was alone, and has decided"
    running = member()
    running.ask(D, cluster_id="id", maps=DONE)
    assert running.wanted().maps == MapChanges()


@pytest.mark.rule("membership/C-2")
def test_a_process_may_differ_in_what_was_changed_and_in_nothing_else() -> None:
    def refusal_of_a_join(**shared: str) -> str:
        one = member(maps=DONE)
        ours = {"partitions.count": "7", "maps.m.ttl_ms": "1", "maps.m.backups": "1"}
        one.membership.identity.shared.clear()
        one.membership.identity.shared.update(ours)
        theirs = ours | {f"maps.m.{key}": value for key, value in shared.items()}
        one.ask(D, shared=theirs)
        return "".join(answer.refusal for _, answer in one.datagram_received(JoinAnswer))

    assert refusal_of_a_join(ttl_ms="5") == ""
    assert "maps.m.backups is 1 in this cluster, yours is 2" in refusal_of_a_join(backups="2")


@pytest.mark.rule("membership/C-2")
def test_a_stopped_cluster_is_formed_again_with_its_changes() -> None:
    mine = info("a", store="files", levels=OF_THIS_BUILD)
    seen = View(8, "id", [mine], level=CHANGES_MAPS, maps=DONE)
    back = Formation(Identity(mine, "prod", {}, (), True, "new", "id", seen)).first_view({})
    assert back.maps == DONE


@pytest.mark.rule("membership/C-2")
def test_a_process_with_files_says_what_it_knows_of() -> None:
    mine = info("a", store="files", levels=OF_THIS_BUILD)
    seen = View(8, "id", [mine], level=CHANGES_MAPS, maps=DONE)
    one = One(mine, cluster_id="id", seen=seen, seeds=SEEDS)
    one.membership.start()
    one.membership.on_timer("join")
    assert {request.maps.version for _, request in one.datagram_received(JoinRequest)} == {1}


# -- would it be accepted?


INTO_ZONE = MapOrder("m", to="z")


def test_each_member_says_why_it_would_reject_a_move_now() -> None:
    def rejection(**changed: object) -> str:
        one = member()
        one.membership.install(View(6, "id", [A, B, C], **({"level": OF_THIS_BUILD.highest} | changed)))  # type: ignore[arg-type]
        return one.membership.map_orders.rejection(INTO_ZONE)

    move = MapMove(1, "", "z")
    moves = MapChanges(1, (MapChange("m", {}, move=move),))
    assert rejection() == ""
    assert "maps can be moved in use from feature level" in rejection(level=MOVES_MAPS - 1)
    assert "m is being moved" in rejection(maps=moves)
    assert "set its state to active first" in rejection(state=ClusterState.FROZEN)
    assert One(A).membership.map_orders.rejection(INTO_ZONE) == "name-a is in no cluster"
