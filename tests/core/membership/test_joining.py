"""How a member comes into a cluster: whom it asks, what it answers who asks, and whose files are believed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.core.membership.one_member import (
    HEARTBEAT_NS,
    NEWS,
    OLD,
    SEEDS,
    A,
    B,
    C,
    D,
    E,
    One,
    a,
    b,
    c,
    d,
    home,
    info,
    parting,
    recovering,
    row,
    view,
)

from holdfast.core.effects import CloseLink, Datagram, Note, SetTimer, Stop
from holdfast.core.membership.formation import PATIENCE
from holdfast.core.membership.joining import EVICTED, JOIN_INTERVAL_NS
from holdfast.core.membership.membership_status import MembershipState
from holdfast.core.messages import Heartbeat, JoinAnswer, JoinRequest, ViewDecided
from holdfast.core.model.baseline import Baseline, BaselineMember
from holdfast.core.model.ids import MILLISECOND, SECOND, Address
from holdfast.core.model.levels import FeatureLevels
from holdfast.core.model.map_changes import MapChanges
from holdfast.core.model.metastore_founding import MetastoreFounding
from holdfast.core.model.views import FilesGone, FilesProof, FilesSeen, View

# -- looking for the cluster


def test_it_asks_all_seeds_but_itself() -> None:
    one = One(A, seeds=SEEDS)
    one.membership.on_timer("join")
    effects = one.out.take()
    assert SetTimer("join", JOIN_INTERVAL_NS, JOIN_INTERVAL_NS // 4) in effects
    assert JOIN_INTERVAL_NS == 500 * MILLISECOND
    request = JoinRequest(A, "prod", {"partitions.count": "7"}, "", {})
    assert effects[1:] == [Datagram(home(B), request), Datagram(home(C), request)]


def test_the_first_seed_forms_the_cluster_when_the_others_are_idle() -> None:
    one = One(A, seeds=SEEDS, info=info("a", store="files"))
    one.membership.on_join_answer(home(B), JoinAnswer(b, True, "", "b", 5701))
    one.membership.on_timer("join")
    assert one.membership.view is None
    one.membership.joining.seed_absent(home(C))
    for _ in range(5):
        one.fresh()
        one.membership.on_timer("join")
    assert one.membership.view == View(
        1, "new", [info("a", store="files")], stores={"files": FilesSeen(0, "")}
    )
    effects = one.out.take()
    notes = [effect for effect in effects if isinstance(effect, Note)]
    assert notes[0] == Note("cluster formed", {"cluster": "prod", "by": a})
    assert not [effect for effect in effects if isinstance(effect, Datagram | SetTimer)], (
        "it asks nobody any more"
    )
    one.membership.on_timer("join")
    assert one.out.effects == [], "a member looks for nothing"


def test_one_that_was_asked_by_an_idle_seed_knows_it_as_idle() -> None:
    one = One(A, seeds=SEEDS)
    one.ask(B)
    assert one.datagram_received(JoinAnswer) == [("b", JoinAnswer(a, True, "", "a", 5701))]
    one.ask(C, cluster_id="old")
    one.membership.on_timer("join")
    assert one.membership.view is None, "C has data"
    one.ask(C)
    one.membership.on_timer("join")
    assert one.membership.view is not None


def test_a_stopped_cluster_is_formed_again_and_its_life_does_not_count_yet() -> None:
    who = info("a", store="files", incarnation=3, proof=FilesProof("now", "before"))
    seen = View(
        8, "old", [info("x", store="files"), info("y", store="more")], stores={"more": FilesSeen(2, "t")}
    )
    one = One(who, cluster_id="old", seen=seen)
    for _ in range(PATIENCE + 1):
        one.membership.on_timer("join")
    assert one.membership.view == View(
        9,
        "old",
        [who],
        missing=[info("y", store="more")],
        stores={"more": FilesSeen(2, "t")},
        recovering=True,
    )


@pytest.mark.rule("membership/V-11")
def test_with_files_it_asks_the_members_that_it_knew_before_it_forms_a_cluster() -> None:
    who = info("a", store="files")
    one = One(who, seeds=(home(A),), cluster_id="old", seen=View(8, "old", [who, B]))
    for _ in range(2 * PATIENCE):
        one.membership.on_timer("join")
        ((to, request),) = one.datagram_received(JoinRequest)
        assert to == home(B).host
        assert request.cluster_id == "old"
        assert one.membership.view is None
        one.membership.on_join_answer(home(B), JoinAnswer(b, False, "", "b", 5701, cluster_id="old"))
    one.membership.joining.seed_absent(home(B))
    one.membership.on_timer("join")
    assert one.membership.view is not None


@pytest.mark.rule("membership/V-11")
@pytest.mark.parametrize(
    "answer",
    [
        JoinAnswer(c, False, "cluster.name is 'other' here", "b", 5701, asker=a),
        JoinAnswer(c, False, "you hold data of another cluster", "b", 5701, cluster_id="new", asker=a),
        JoinAnswer(b, False, "partitions.count is 7 here", "b", 5701, asker=a),
        JoinAnswer(b, False, "", "b", 5701),
    ],
    ids=["an older build of another cluster", "another cluster", "in no cluster", "in exile"],
)
def test_it_does_not_wait_for_processes_that_are_not_in_its_cluster(answer: JoinAnswer) -> None:
    """The address of a former member is that of another process now, or that one waits for a cluster itself."""
    who = info("a", store="files")
    one = One(who, seeds=(home(A),), cluster_id="old", seen=View(8, "old", [who, B]))
    for _ in range(PATIENCE + 1):
        one.membership.on_timer("join")
        one.membership.on_join_answer(home(B), answer)
        assert one.membership.refusal == "", "it would end the process"
    assert one.membership.view is not None


@pytest.mark.rule("membership/V-11")
@pytest.mark.parametrize(
    ("seeds", "cluster_id", "counts"),
    [
        ((home(A),), "old", True),
        ((home(A),), "new", False),
        ((home(A),), "", False),
        ((), "", False),
        ((home(A), home(B)), "new", True),
        ((home(A), home(B)), "", True),
        ((Address("many", 5701),), "new", False),
        ((Address("many", 5701),), "", True),
    ],
)
def test_a_rejection_by_another_process_at_an_address_of_the_files_alone_does_not_count(
    seeds: tuple[Address, ...], cluster_id: str, counts: bool
) -> None:
    who = info("a", store="files")
    one = One(who, seeds=seeds, cluster_id="old", seen=View(8, "old", [who, B]))
    answer = JoinAnswer(b, False, "too late", "b", 5701, cluster_id=cluster_id, asker=a)
    one.membership.on_join_answer(home(B), answer)
    assert one.membership.refusal == ("too late" if counts else "")


@pytest.mark.rule("membership/V-11")
def test_a_rejection_by_a_member_of_its_cluster_counts_and_others_do_not() -> None:
    """Process b is in the cluster of the files, then removed from it, then it looks for a cluster after a restart."""
    for here, admitted, cluster_id in ((view(B), True, "id"), (view(A), False, "")):
        one = One(B, A, B)
        one.membership.on_view(ViewDecided(msgspec.structs.replace(here, number=6)))
        one.fresh()
        assert one.membership.admitted is admitted
        one.ask(C, cluster="other")
        ((_, answer),) = one.datagram_received(JoinAnswer)
        assert (answer.idle, answer.cluster_id) == (False, cluster_id)
    one = One(B, A, B)
    one.silence(A)
    one.ask(C, cluster="other")
    ((_, answer),) = one.datagram_received(JoinAnswer)
    assert answer.cluster_id == "", "it hears no majority"
    one = One(B, cluster_id="id", seeds=SEEDS)
    one.ask(C, cluster="other")
    ((_, answer),) = one.datagram_received(JoinAnswer)
    assert (answer.idle, answer.cluster_id) == (False, "")


def test_it_tells_what_its_files_know() -> None:
    who = info("b", store="files", proof=FilesProof("now", reached=7))
    seen = View(8, "old", [], stores={"more": FilesSeen(2, "t")})
    one = One(who, seeds=SEEDS, cluster_id="old", seen=seen)
    one.membership.on_timer("join")
    ((_, request), _) = one.datagram_received(JoinRequest)
    assert (request.cluster_id, request.stores) == ("old", {"more": FilesSeen(2, "t")})
    assert request.gone == FilesGone(8, {"more": 2})
    assert request.info == who
    one.membership.durable(9)
    one.membership.on_timer("join")
    ((_, request), _) = one.datagram_received(JoinRequest)
    assert request.info.proof == FilesProof("now", reached=9), "it has gone on writing"
    one.membership.durable(8)
    one.membership.durable(0)
    one.membership.on_timer("join")
    ((_, request), _) = one.datagram_received(JoinRequest)
    assert request.info.proof.reached == 9
    assert request.stores["files"] == FilesSeen(0, "now", 9)


@pytest.mark.rule("membership/F-3")
def test_files_await_their_last_members_until_the_cluster_has_recovered() -> None:
    """The process that forms the cluster again knows none of them."""
    lost, known = info("d", store="files-d"), info("e", store="files-e")
    who = info("b", store="files-b", life=9)
    one = One(who, cluster_id="old", seen=View(8, "old", [who, lost, known]))
    one.membership.install(View(9, "old", [A, who], recovering=True, missing=[known]))
    for number, here in ((9, [known, lost]), (10, [lost]), (11, [])):
        if number > 9:
            members = [A, who, known, lost][: number - 7]
            one.membership.on_view(ViewDecided(View(number, "old", members, recovering=True)))
        ((_, installed),) = one.changes
        assert installed is not None
        assert (installed.number, installed.missing) == (number, here)
        one.changes.clear()
    one.membership.on_view(ViewDecided(View(12, "old", [A, who])))
    ((_, installed),) = one.changes
    assert installed is not None
    assert installed.missing == []


@pytest.mark.rule("membership/F-6")
def test_the_process_that_forms_a_cluster_again_awaits_no_files_that_others_know_to_be_gone() -> None:
    who = info("b", store="files-b")
    one = One(who, cluster_id="old", seen=View(8, "old", [who, info("d", store="files-d")]))
    one.pass_time(20 * SECOND)
    for _ in range(9):
        one.membership.on_timer("join")
    assert one.membership.view is not None
    assert [info.name for info in one.membership.view.missing] == ["name-d"]
    one.membership.install(View(10, "old", [who, info("c", store="files-c")], recovering=True))
    assert one.membership.view.missing == []


def test_who_belongs_to_no_cluster_tells_nothing_of_files() -> None:
    one = One(info("a", store="s"), seeds=SEEDS)
    one.membership.durable(9)
    one.membership.on_timer("join")
    assert [request.stores for _, request in one.datagram_received(JoinRequest)] == [{}, {}]


def test_who_was_removed_asks_the_members_that_it_knew_too() -> None:
    one = One(A, A, B, D, seeds=SEEDS)
    one.membership.on_view(ViewDecided(view(B, E, number=6, stores={"s": FilesSeen(1, "t")})))
    assert one.membership.state == "exiled"
    one.fresh()
    one.membership.on_timer("join")
    asked = one.datagram_received(JoinRequest)
    assert [host for host, _ in asked] == ["b", "c", "e"]
    assert {request.gone for _, request in asked} == {None}, (
        "its inventory does not have the view that removed it"
    )
    assert {(request.cluster_id, frozenset(request.stores)) for _, request in asked} == {
        ("id", frozenset({"s"}))
    }
    one.membership.state = MembershipState.GONE
    one.membership.on_timer("join")
    assert one.out.effects == []


def test_who_was_removed_forms_no_cluster() -> None:
    one = One(A, A, B)
    one.membership.on_view(ViewDecided(view(B, number=6)))
    one.membership.on_timer("join")
    assert (one.membership.view, one.membership.state) == (None, "exiled")
    one = One(A, A, B)
    alone = view(A, B, number=6)
    one.membership.last_view = alone
    one.membership._go_into_exile(alone, alone)
    one.fresh()
    one.membership.on_timer("join")
    assert [host for host, _ in one.datagram_received(JoinRequest)] == ["b"], "it does not ask itself"


# -- requests to be admitted


def test_who_is_refused_is_told_why() -> None:
    one = One(A, A, B)
    one.ask(C)
    one.membership.agreement.install(one.membership.view)
    one.fresh()
    one.ask(C, cluster="test")
    why = "cluster.name is 'prod' here, yours is 'test'"
    assert one.out.take() == [Datagram(home(C), JoinAnswer(a, False, why, "a", 5701, False, "id", c))]
    assert one.membership.wanted() is None, "and it asks no more"
    one.membership.view = view(A, B, ending=True)
    one.ask(C)
    ((_, answer),) = one.datagram_received(JoinAnswer)
    assert answer.ending is True


def test_who_holds_data_of_another_cluster_is_refused() -> None:
    one = One(A, A, B)
    one.ask(C, cluster_id="other")
    ((_, answer),) = one.datagram_received(JoinAnswer)
    assert answer.refusal == "you hold data of another cluster (id other); this one is id"
    one = One(A, cluster_id="mine", seeds=SEEDS)
    one.ask(C, cluster_id="other")
    ((_, answer),) = one.datagram_received(JoinAnswer)
    assert answer.refusal.endswith("this one is mine")
    one = One(A, cluster_id="mine", seeds=SEEDS)
    one.ask(C, cluster_id="mine")
    assert one.datagram_received(JoinAnswer) == [("c", JoinAnswer(a, True, "", "a", 5701, cluster_id="mine"))]


def test_old_files_are_refused() -> None:
    one = One(A)
    one.membership.install(view(A, B, stores={"s": FilesSeen(4, "token", 9)}))
    one.fresh()
    one.ask(info("c", store="s", incarnation=3, proof=FilesProof("token")))
    ((_, answer),) = one.datagram_received(JoinAnswer)
    assert answer.refusal.startswith("these files are an old copy")
    one.ask(info("c", store="other", incarnation=3))
    assert one.datagram_received(JoinAnswer) == []


def test_a_copy_of_this_members_files_is_refused() -> None:
    one = One(A, info("a", store="s"), B)
    one.ask(info("c", store="s"))
    ((_, answer),) = one.datagram_received(JoinAnswer)
    assert "is running with the same files" in answer.refusal


def test_the_files_of_a_member_that_may_be_gone_wait_for_its_removal() -> None:
    one = One(A, A, info("b", store="s"))
    one.ask(info("c", store="s"))
    assert not one.proposes
    assert one.membership.wanted() is None
    one.silence(B)
    assert one.wanted().members == [A], "it asks again when B is gone"
    one = One(A, A, B)
    one.ask(info("c", store="s"))
    assert one.wanted().members == [A, B, info("c", store="s", life=6)]


def test_who_is_in_no_view_says_so() -> None:
    one = One(A, A, B)
    one.membership.on_view(ViewDecided(view(B, number=6)))
    one.fresh()
    one.ask(C)
    assert one.datagram_received(JoinAnswer) == [("c", JoinAnswer(a, False, "", "a", 5701))]
    assert one.membership.joining._formation._idle == {}
    one = parting(B)
    one.ask(C)
    assert one.datagram_received(JoinAnswer) == [("c", JoinAnswer(a, False, "", "a", 5701))]


def test_who_is_a_member_already_is_told_the_view() -> None:
    one = One(A, A, B)
    one.membership.carried = [(1, row(2))]
    one.ask(B)
    assert one.out.take() == [Datagram(home(B), ViewDecided(view(A, B), [(1, row(2))]))]
    one = One(B, A, B, C)
    one.ask(C)
    assert one.out.take() == [Datagram(home(C), ViewDecided(view(A, B, C)))], "nor need the master know"


@pytest.mark.rule("membership/V-11")
def test_a_process_with_files_learns_that_a_cluster_runs() -> None:
    one = One(A)
    one.membership.install(view(A, B))
    one.fresh()
    one.ask(info("c", store="other"), cluster_id=view(A).cluster_id)
    ((_, answer),) = one.datagram_received(JoinAnswer)
    assert (answer.idle, answer.refusal, answer.cluster_id) == (False, "", "id")
    one.silence(B)
    one.ask(info("c", store="other"), cluster_id="id")
    ((_, answer),) = one.datagram_received(JoinAnswer)
    assert answer.cluster_id == "id", "the elder of two decides alone"
    one = One(B)
    one.membership.install(view(A, B))
    one.silence(A)
    one.fresh()
    one.ask(info("a2", host="a", store="other"), cluster_id="id")
    ((_, answer),) = one.datagram_received(JoinAnswer)
    assert answer.cluster_id == "", "the younger one does not: nobody could admit the process"


def test_a_request_is_handed_on_to_the_master() -> None:
    one = One(B, A, B)
    one.ask(C)
    assert one.datagram_received(JoinRequest) == [("a", JoinRequest(C, "prod", {"partitions.count": "7"}))]
    one.ask(info("a2", host="a"))
    assert one.datagram_received(JoinRequest) == [], "the master's place is taken by who asks"
    one = One(A, A, B)
    one.ask(C)
    assert one.datagram_received(JoinRequest) == []
    assert one.proposes


def test_who_asks_is_remembered_by_all_for_one_may_be_master_soon() -> None:
    one = One(B, A, B, D)
    one.ask(C)
    assert not one.proposes
    one.silence(A)
    assert one.wanted().members == [B, D, info("c", life=6)]


def test_a_new_process_at_a_members_place_means_that_the_old_one_is_dead() -> None:
    one = One(A, A, B, C)
    one.beat(B)
    one.out.now_ns += HEARTBEAT_NS * 3 // 2
    new = info("new", host="b")
    one.ask(new)
    assert one.membership.wanted() is not None
    assert one.wanted().members == [A, C, msgspec.structs.replace(new, life=6)]
    one = One(A, A, B, C)
    one.beat(B)
    one.out.now_ns += HEARTBEAT_NS * 3 // 2 - 1
    one.ask(new)
    assert one.membership.wanted() is None, "B was just heard: it is the request that is old"


def test_a_new_process_elsewhere_means_nothing_for_others() -> None:
    one = One(A, A, B, C)
    one.out.now_ns += SECOND
    one.ask(info("new", host="b", port=5702))
    assert [who.uuid for who in one.wanted().members] == [a, b, c, "new"]


# -- answers to requests


def test_why_it_is_refused_is_told_once() -> None:
    one = One(A, seeds=SEEDS)
    answer = JoinAnswer(b, False, "too late", "b", 5701, asker=a)
    one.membership.on_join_answer(home(B), answer)
    assert one.membership.refusal == "too late"
    assert one.noted("join refused") == [{"by": "b:5701", "reason": "too late", "level": "error"}]
    one.membership.on_join_answer(home(B), answer)
    assert one.out.effects == []
    one.membership.on_join_answer(home(B), msgspec.structs.replace(answer, refusal="never"))
    assert one.membership.refusal == "never"
    one.membership.on_join_answer(home(B), JoinAnswer(b, False, "", "b", 5701))
    assert one.membership.refusal == "never", "this says nothing"


def test_an_answer_to_another_process_or_to_a_member_does_not_count() -> None:
    one = One(A, seeds=SEEDS)
    one.membership.on_join_answer(home(B), JoinAnswer(b, False, "too late", "b", 5701, asker=c))
    assert (one.membership.refusal, one.out.effects) == ("", [])
    one = One(A, A, B)
    one.membership.on_join_answer(home(B), JoinAnswer(b, True, "too late", "b", 5701, asker=a))
    assert (one.membership.refusal, one.out.effects, one.membership.joining._formation._idle) == ("", [], {})


def test_only_who_is_idle_counts_as_idle() -> None:
    one = One(A, seeds=SEEDS)
    one.membership.on_join_answer(home(B), JoinAnswer(b, False, "", "b", 5701))
    assert one.membership.joining._formation._idle == {}
    one.membership.on_join_answer(home(C), JoinAnswer(b, True, "", "b", 5701, cluster_id="old"))
    assert one.membership.joining._formation._idle == {home(B): "old"}


def test_who_was_away_when_the_cluster_was_shut_down_may_end() -> None:
    ending = JoinAnswer(b, False, "ends", "b", 5701, ending=True, asker=a)
    one = One(A, A, B)
    one.membership.on_view(ViewDecided(view(B, number=6)))
    one.fresh()
    one.membership.on_join_answer(home(B), msgspec.structs.replace(ending, asker=c))
    assert one.membership.state == "exiled"
    one.membership.on_join_answer(home(B), ending)
    assert one.membership.state == "gone"
    assert one.out.take() == [Stop("the cluster was shut down while this member was away")]
    one = One(A, seeds=SEEDS)
    one.membership.on_join_answer(home(B), ending)
    assert (one.membership.state, one.membership.refusal) == ("joining", "ends"), "it held nothing"
    one = One(A, A, B)
    one.membership.on_view(ViewDecided(view(B, number=6)))
    one.membership.on_join_answer(home(B), msgspec.structs.replace(ending, ending=False))
    assert one.membership.state == "exiled"


# -- files


def test_how_far_the_journals_are_is_written_down_from_time_to_time() -> None:
    one = One(A, info("a", store="s", proof=FilesProof("t")), B)
    one.membership.on_timer("heartbeat")
    assert one.notices == [], "no news"
    one.membership.durable(9)
    one.membership.on_timer("heartbeat")
    assert [told.view.stores for told in one.notices] == [{"s": FilesSeen(0, "t", 9)}]
    one.membership.durable(10)
    one.membership.on_timer("heartbeat")
    assert len(one.notices) == 1, "not so soon"
    one.out.now_ns += 2 * SECOND
    one.membership.state = MembershipState.PARTING
    one.membership.on_timer("heartbeat")
    assert len(one.notices) == 1
    one.membership.state = MembershipState.MEMBER
    one.membership.view, kept = None, one.membership.view
    one.membership.on_timer("heartbeat")
    one.membership.view = kept
    one.membership.on_timer("heartbeat")
    assert [told.view.stores["s"].reached for told in one.notices] == [9, 10]


def test_what_is_durable_only_grows() -> None:
    one = One(A, info("a", store="s", proof=FilesProof("t")), B)
    for reached in (9, 7, 0):
        one.membership.durable(reached)
        one.membership.on_timer("heartbeat")
        assert [beat.reached for _, beat in one.datagram_received(Heartbeat)] == [9]
    assert one.membership.files.seen("s", None) == FilesSeen(0, "t", 9)


@pytest.mark.rule("membership/F-3")
def test_one_whose_files_are_an_old_copy_finds_out_and_is_no_member() -> None:
    """membership/F-3."""
    one = recovering(OLD, B)
    one.ask(C, cluster_id="old", stores=NEWS)
    assert (one.membership.state, one.membership.view) == ("gone", None)
    assert one.membership.refusal.startswith("these files are an old copy")
    effects = one.out.take()
    notes = [effect for effect in effects if isinstance(effect, Note)]
    assert notes[0] == Note("join refused", {"by": "name-c", "reason": one.membership.refusal}, "error")
    assert CloseLink(b) in effects
    assert not [effect for effect in effects if isinstance(effect, Datagram)]
    waiting = One(OLD, cluster_id="old", seeds=SEEDS)
    waiting.ask(C, cluster_id="old", stores=NEWS)
    assert waiting.membership.state == "gone", "nor may it form the cluster"
    assert waiting.done(Datagram) == []


@pytest.mark.parametrize("state", ["made", "other", "exiled", "none", "no files", "good"])
def test_its_own_files_are_judged_only_while_the_table_is_not_made(state: str) -> None:
    one = recovering(B if state == "no files" else OLD)
    asked: dict[str, Any] = {"cluster_id": "old", "stores": NEWS}
    if state == "made":
        one.membership.view = View(9, "old", [OLD])
    elif state == "other":
        asked["cluster_id"] = ""
    elif state == "exiled":
        one.membership._go_into_exile(one.membership.view, View(10, "old", []))
    elif state == "none":
        one = One(OLD, seeds=SEEDS)
        asked["cluster_id"] = ""
    elif state == "good":
        asked["stores"] = {"s": FilesSeen(2, "token2", 5)}
    one.ask(C, **asked)
    assert one.membership.state != "gone"
    learned = one.membership.files._learned
    assert bool(learned) == (state in {"no files", "good"})


def test_who_joined_a_cluster_that_comes_back_learns_too() -> None:
    one = One(B)
    one.membership.install(View(9, "old", [A, B], recovering=True))
    one.ask(C, cluster_id="old", stores=NEWS)
    assert one.membership.files.seen("s", None) == NEWS["s"]


def test_files_that_go_on_growing_are_no_old_copy() -> None:
    """membership/F-3: one that heard how far they are by now, and came back with its own files, tells nothing new."""
    one = recovering(OLD, B)
    one.membership.durable(12)
    seen = {"s": FilesSeen(2, "token2", 12)}
    one.ask(C, cluster_id="old", stores=seen)
    assert one.membership.state == "member"
    other = recovering(B, OLD)
    other.beat(OLD, number=9, reached=12)
    other.ask(C, cluster_id="old", stores=seen)
    assert other.membership.files.outdated([OLD]) == set()
    one.ask(C, cluster_id="old", stores={"s": FilesSeen(2, "token2", 13)})
    assert one.membership.state == "gone", "further than they ever were"


def test_what_others_have_found_shows_who_else_has_old_files() -> None:
    for back in (True, False):
        one = recovering(
            info("a", store="mine"), info("b", store="s", incarnation=2, proof=FilesProof("token2")), D
        )
        one.assigned = False
        one.ask(C, cluster_id="old", stores=NEWS)
        if not back:
            assert one.membership.view is not None
            one.membership.view = msgspec.structs.replace(one.membership.view, recovering=False)
        assert [who.uuid for who in one.wanted().members] == ([a, d, c] if back else [a, b, d, c])


# -- what it says of the cluster of its files


OWNERS = Baseline((BaselineMember("name-a"), BaselineMember("name-b")), 700, 1, ("x",))
MAPS = MapChanges(3)
FOUNDING = MetastoreFounding(3, ("s",))


def asked(one: One) -> JoinRequest:
    one.membership.on_timer("join")
    requests = [request for _, request in one.datagram_received(JoinRequest)]
    assert requests
    request = requests[0]
    assert isinstance(request, JoinRequest)
    return request


def known_of(request: JoinRequest) -> tuple[object, ...]:
    baseline = request.baseline
    return baseline and baseline.ids, request.level, request.maps, request.metastore


def test_it_tells_what_its_files_know_of_the_cluster() -> None:
    seen = View(8, "old", [A, B], baseline=OWNERS, level=4, maps=MAPS, metastore=FOUNDING)
    one = One(A, seeds=SEEDS, cluster_id="old", seen=seen, level=2)
    request = asked(one)
    assert known_of(request) == (OWNERS.ids, 4, MAPS, FOUNDING)
    assert request.baseline is not None
    assert [member.consistent_id for member in request.baseline.away] == ["name-b"]
    one = One(A, seeds=SEEDS, cluster_id="old", seen=seen, level=6)
    assert asked(one).level == 6, "its files were perhaps written at this level after that view"
    one = One(A, seeds=SEEDS, cluster_id="old", level=6)
    assert known_of(asked(one)) == (None, 6, MapChanges(), None), "no view is known"
    one = One(A, seeds=SEEDS, seen=seen, level=6)
    assert known_of(asked(one)) == (None, 1, MapChanges(), None), "it belongs to no cluster"


def test_who_was_removed_tells_what_the_view_without_it_says() -> None:
    seen = View(8, "id", [A, B], baseline=OWNERS, level=2, maps=MapChanges(1))
    one = One(A, A, B, C, seeds=SEEDS, cluster_id="id", seen=seen)
    newer = view(B, C, number=9, baseline=OWNERS, level=4, maps=MAPS, metastore=FOUNDING)
    one.membership.on_view(ViewDecided(newer))
    one.fresh()
    assert known_of(asked(one)) == (OWNERS.ids, 4, MAPS, FOUNDING)
    assert one.membership.join_advice == "", "members that it knows will admit it"


def test_who_waits_for_seeds_has_advice() -> None:
    one = One(B, seeds=SEEDS)
    one.membership.on_timer("join")
    assert "seeds a:5701, c:5701 have not responded" in one.membership.join_advice
    one.membership.install(view(A, B))
    assert one.membership.join_advice == ""


@pytest.mark.rule("membership/V-10")
def test_behind_a_name_that_names_this_process_too_only_others_count() -> None:
    many = Address("many", 5701)
    one = One(A, seeds=(home(A), many))
    one.membership.joining.seed_behind(many, (a, b))
    one.ask(B)
    one.membership.on_timer("join")
    assert one.membership.view is not None, "B is in no cluster, and A is this process"
    one = One(A, seeds=(home(A), many))
    one.membership.joining.seed_behind(many, (a, b))
    one.membership.on_timer("join")
    assert one.membership.view is None, "B is not known"


# -- files that do not fit


@pytest.mark.rule("membership/B-1")
def test_files_of_another_history_of_the_baseline_are_refused() -> None:
    def refusal(one: One, baseline: Baseline | None, **changed: object) -> str:
        one.ask(D, cluster_id="id", baseline=baseline, **changed)
        refusals = [answer.refusal for _, answer in one.datagram_received(JoinAnswer)]
        return str(refusals[0]) if refusals else ""

    def member(who: int) -> One:
        one = One((A, B, C)[who])
        one.membership.install(view(A, B, C, baseline=OWNERS))
        one.fresh()
        return one

    other = Baseline(OWNERS.members, 700, 1, ("y",))
    newer = OWNERS.continued({"name-d"})
    why = "your files are of another history of the baseline"
    assert why in refusal(member(0), other)
    assert why in refusal(member(1), other), "no member lets it pass on"
    assert refusal(member(0), OWNERS) == refusal(member(0), None) == ""
    assert why in refusal(member(0), newer), "the master of a majority knows the newest history"
    assert refusal(member(1), newer) == "", "a newer view may exist"
    cut_off = member(0)
    cut_off.silence(B, C)
    assert refusal(cut_off, newer) == "", "the others have perhaps decided something newer"
    exiled = member(0)
    exiled.membership.on_view(ViewDecided(view(B, C, number=6, baseline=OWNERS)))
    exiled.fresh()
    assert refusal(exiled, other) == "", "who is no member judges no history"
    wrong = "cluster.name is 'prod' here, yours is 'test'"
    assert refusal(member(0), other, cluster="test") == wrong, "the first reason counts"


@pytest.mark.rule("membership/L-3")
def test_files_of_a_level_that_a_member_cannot_read_are_refused() -> None:
    old, new = FeatureLevels(1, 2), FeatureLevels(1, 4)

    def refusal(who: int, level: int, *levels: FeatureLevels) -> str:
        members = [info(name, levels=can) for name, can in zip("abc", levels, strict=False)]
        one = One(members[who])
        one.membership.install(view(*members, level=2))
        one.fresh()
        one.ask(info("d", levels=new), cluster_id="id", level=level)
        refusals = [answer.refusal for _, answer in one.datagram_received(JoinAnswer)]
        return str(refusals[0]) if refusals else ""

    why = refusal(0, 3, new, old)
    assert why.startswith("your files were written at feature level 3, which name-b cannot read")
    assert refusal(0, 3, new, new) == "", "all can be raised"
    assert refusal(0, 2, new, old) == "", "it is the level of the cluster"
    assert refusal(1, 3, new, old) == "", "the master decides"


@pytest.mark.rule("membership/V-9")
def test_a_member_whose_eviction_was_wrong_is_not_refused_as_evicted() -> None:
    one = One(A, A, B, C)
    one.membership.evicted[c] = None
    one.ask(C)
    assert [answer for _, answer in one.datagram_received(JoinAnswer)] == [], "it is still a member"
    one.membership.install(view(A, B, number=6))
    one.fresh()
    one.ask(C)
    ((_, answer),) = one.datagram_received(JoinAnswer)
    assert (answer.refusal, answer.evicted) == (EVICTED, True)
    exiled = One(C, A, B, C)
    exiled.membership.install(view(A, B, number=6))
    exiled.fresh()
    exiled.membership.on_join_answer(home(A), answer)
    assert exiled.membership.state is MembershipState.GONE
    assert exiled.out.take() == [Stop(EVICTED)]
    assert exiled.membership.refusal == EVICTED


def test_who_may_not_join_now_is_not_taken() -> None:
    joining, member = One(A, seeds=SEEDS), One(A, A, B)
    requests = (JoinRequest(D, "prod", {}), JoinRequest(B, "prod", {}))
    assert joining.membership.joining.takes(requests[0]) is False
    assert member.membership.joining.takes(requests[1]) is False, "it is a member already"
    assert member.membership.joining.takes(requests[0]) is True
