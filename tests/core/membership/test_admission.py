"""Who is let in, who is told why not, and how many at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.config import load
from holdfast.core.membership import admission
from holdfast.core.membership.admission import CANDIDATE_NS, Admission
from holdfast.core.membership.failure_detector import FailureDetector
from holdfast.core.membership.identity import Timing
from holdfast.core.membership.known_files import KnownFiles, files_gone
from holdfast.core.messages import JoinRequest
from holdfast.core.model.baseline import Baseline, BaselineMember
from holdfast.core.model.ids import MILLISECOND, Address, MemberId
from holdfast.core.model.levels import STARTS_METASTORE, FeatureLevels
from holdfast.core.model.map_changes import MapChanges
from holdfast.core.model.metastore_founding import MetastoreFounding
from holdfast.core.model.views import ClusterState, FilesGone, FilesProof, FilesSeen, MemberInfo, View

TIMING = Timing(heartbeat_ns=1000, suspect_after_ns=5000)


def info(uuid: str, **changed: Any) -> MemberInfo:
    """A member that is at the host of its name."""
    return msgspec.structs.replace(
        MemberInfo(MemberId(uuid), 1, uuid, 5701, "client", 5702, f"name-{uuid}"), **changed
    )


A, B, C, D, E = (info(name) for name in "abcde")


def view(*members: MemberInfo, **changed: Any) -> View:
    return msgspec.structs.replace(View(4, "id", list(members)), **changed)


def request(who: MemberInfo = C, **changed: Any) -> JoinRequest:
    return msgspec.structs.replace(JoinRequest(who, "prod", {"partitions.count": "7"}), **changed)


def refusal(
    asked: JoinRequest, now: View | None = None, shared: dict[str, str] | None = None, here: str = "id"
) -> str:
    return admission.refusal(asked, "prod", shared or {"partitions.count": "7"}, here, now)


def test_home_is_where_it_listens_for_members() -> None:
    assert admission.home(A) == Address("a", 5701)


# -- why not


def test_who_fits_is_not_refused() -> None:
    assert refusal(request()) == ""
    assert refusal(request(), view(A, B)) == ""
    assert refusal(request(cluster_id="id"), view(A, B)) == ""
    assert refusal(request(cluster_id="other"), here="") == "", "this one has no data of any cluster"


def test_another_cluster_is_refused() -> None:
    assert refusal(request(cluster="test")) == "cluster.name is 'prod' here, yours is 'test'"
    assert (
        refusal(request(cluster_id="other")) == "you hold data of another cluster (id other); this one is id"
    )


def test_another_placement_is_refused_by_name() -> None:
    ours, theirs = (
        load(f"[partitions]\nplacement = '{placement}'").shared() for placement in ("even", "rendezvous")
    )
    assert refusal(request(shared=ours), shared=ours) == ""
    assert refusal(request(shared=theirs), shared=ours) == (
        "partitions.placement is even in this cluster, yours is rendezvous"
    )


def test_nobody_is_let_in_while_the_cluster_ends() -> None:
    assert "being shut down" in refusal(request(), view(A, B, ending=True))


@pytest.mark.parametrize("state", [ClusterState.FROZEN, ClusterState.PASSIVE])
def test_into_a_frozen_cluster_come_only_those_who_were_there(state: ClusterState) -> None:
    now = view(A, B, state=state, missing=[C, D])
    assert refusal(request(C), now) == ""
    assert refusal(request(info("new", host="d")), now) == "", "another process in its place"
    assert refusal(request(info("new", host="a")), now) == "", "nor is the place of a member strange"
    assert refusal(request(E), now) == (
        f"the cluster is {state}: only members that have gone since then may come back (at c:5701, d:5701); "
        "set its state to active first: holdfast cluster state active"
    )
    assert "come back; set" in refusal(request(E), view(A, B, state=state))
    assert refusal(request(E), view(A, B, state=ClusterState.NO_MIGRATION)) == ""


def test_settings_that_all_share_must_be_the_same() -> None:
    assert (
        refusal(request(shared={"partitions.count": "8"}))
        == "partitions.count is 7 in this cluster, yours is 8"
    )
    assert refusal(request(shared={})) == "partitions.count is 7 in this cluster, yours is not set"
    more = {"partitions.count": "7", "a": "1"}
    assert refusal(request(shared=more)) == "a is not set in this cluster, yours is 1"
    assert (
        refusal(request(shared=more | {"b": "1"}), shared=more | {"b": "2"})
        == "b is 2 in this cluster, yours is 1"
    )
    assert refusal(request(shared={"z": "1", "b": "1"}), shared={"z": "2", "b": "2"}).startswith("b is"), (
        "in order"
    )


def test_services_must_be_the_same() -> None:
    key = "services.carts.backups"
    rest = {"partitions.count": "7"}
    same = "; all members need the same ones"
    assert (
        refusal(request(), shared=rest | {key: "1"})
        == f"this cluster runs the service 'carts', you do not{same}"
    )
    assert (
        refusal(request(shared=rest | {key: "1"}))
        == f"you run the service 'carts', this cluster does not{same}"
    )
    assert (
        refusal(request(shared=rest | {key: "2"}), shared=rest | {key: "1"})
        == f"the service 'carts' has 1 backups in this cluster, yours has 2{same}"
    )


def test_services_must_have_the_same_settings() -> None:
    rest = {"partitions.count": "7", "services.carts.backups": "1"}
    assert refusal(
        request(shared=rest | {"services.carts.partitions": "3"}),
        shared=rest | {"services.carts.partitions": "5"},
    ) == (
        "the service 'carts' has partitions = 5 in this cluster, yours has 3; all members need the same ones"
    )


@pytest.mark.rule("membership/L-2")
def test_the_reason_says_which_version_to_install() -> None:
    def why(lowest: int, highest: int, level: int) -> str:
        return admission.levels_problem(FeatureLevels(lowest, highest), level)

    assert (why(2, 4, 2), why(2, 4, 4)) == ("", "")
    assert why(2, 4, 5) == (
        "this cluster is at feature level 5, and your Holdfast supports 2 to 4: install a version that "
        "supports level 5; the level of a cluster never falls"
    )
    assert "bring the cluster to level 2 first (holdfast cluster upgrade)" in why(2, 4, 1)


def test_the_number_of_voters_of_a_metastore_may_differ_once_views_have_it() -> None:
    ours, theirs = {"metastore.voters": "3"}, {"metastore.voters": "5"}
    for level, same in (
        (STARTS_METASTORE - 1, False),
        (STARTS_METASTORE, True),
        (STARTS_METASTORE + 1, True),
    ):
        asking = request(info("c", levels=FeatureLevels(1, 9)), shared=theirs)
        assert (refusal(asking, view(A, B, level=level), shared=ours) == "") is same


# -- what those who come may know better


def owned(*changes: str) -> Baseline:
    baseline = Baseline((BaselineMember("name-a"),), -1, 1, ("x",))
    for change in changes:
        baseline = baseline.changed(baseline.members, -1, change)
    return baseline


def test_only_a_recovering_cluster_learns_newer_settings_of_maps() -> None:
    older, newer = MapChanges(2), MapChanges(3)
    same = MapChanges(3, ())
    assert admission.newest_maps(None, newer) is newer
    for recovering in (True, False):
        now = view(A, maps=older, recovering=recovering)
        assert admission.newest_maps(now, newer) is (newer if recovering else older)
        assert admission.newest_maps(now, MapChanges(1)) is older
        ahead = view(A, maps=newer, recovering=recovering)
        assert admission.newest_maps(ahead, same) is newer


@pytest.mark.rule("membership/B-1")
def test_a_newer_history_fits_while_a_newer_view_may_exist() -> None:
    now = view(A, baseline=owned())

    def problem(theirs: Baseline | None, here: View, *, certain: bool) -> bool:
        return bool(admission.history_problem(theirs, here, certainly_newest=certain))

    assert problem(owned("y"), now, certain=True)
    assert not problem(owned("y"), now, certain=False)
    recovering = view(A, baseline=owned(), recovering=True)
    assert not problem(owned("y"), recovering, certain=True), "the newest view was perhaps not stored here"
    branched = view(A, baseline=owned("z"), recovering=True)
    assert problem(owned("y"), branched, certain=False)
    why = admission.history_problem(owned("y"), view(A), certainly_newest=True)
    assert "than this cluster (none)" in why
    assert "(1 changes, the last x)" in admission.history_problem(owned("y"), now, certainly_newest=True)


def test_a_recovering_cluster_takes_the_newest_that_its_members_know() -> None:
    founding, other = MetastoreFounding(3, ("s",)), MetastoreFounding(5, ("t",))
    candidates = Admission()
    candidates.ask(B, 0, owned("y"), 2, MapChanges(3), founding)
    candidates.ask(C, 0, owned("y", "z"), 4, MapChanges(2), other)
    candidates.ask(D, 0)
    members = [A, B, C, D]
    now = view(A, baseline=owned(), level=3, maps=MapChanges(1), recovering=True)
    assert candidates.newest_baseline(now, members) == owned("y", "z")
    assert candidates.newest_baseline(now, [A, C, B]) == owned("y", "z"), "in any order"
    assert candidates.newest_baseline(now, [A, D]) == owned()
    assert candidates.newest_baseline(view(A, recovering=True), [A, B]) == owned("y")
    assert candidates.newest_level(now, members) == 4
    assert candidates.newest_level(now, [A, B]) == 3
    assert candidates.newest_maps(now, members) == candidates.newest_maps(now, [C, B]) == MapChanges(3)
    assert candidates.newest_maps(now, [A, D]) == MapChanges(1)
    assert candidates.known_founding(now, members) == founding
    assert candidates.known_founding(now, [A, D]) is None
    own = view(A, metastore=other, recovering=True)
    assert candidates.known_founding(own, members) == other, "the view has one"


@pytest.mark.rule("membership/F-6")
def test_files_of_members_that_were_gone_before_the_stop_are_not_awaited() -> None:
    """A forms the cluster from an older view."""
    lost = info("d", store="files-d", life=4, incarnation=3)
    staying = info("c", store="files-c")
    recovering = view(A, missing=[lost, staying], recovering=True)

    knowing = info("b", store="files-b")

    def awaited(number: int, incarnation: int, *members: MemberInfo) -> list[MemberInfo]:
        candidates = Admission()
        candidates.ask(knowing, 0, gone=FilesGone(number, {"files-d": incarnation}))
        return candidates.awaited(recovering, list(members))

    assert awaited(9, 3, A, knowing) == [staying]
    assert awaited(9, 3, A) == [lost, staying], "B is not admitted yet"
    assert awaited(3, 3, A, knowing) == [lost, staying], "it was admitted later"
    assert awaited(9, 2, A, knowing) == [lost, staying], "it has come back since then"
    lite = msgspec.structs.replace(knowing, lite=True)
    assert awaited(9, 3, A, lite) == [lost, staying], "if B crashed now, it would not be awaited"
    candidates = Admission()
    candidates.ask(knowing, 0, gone=FilesGone(9, {}))
    assert candidates.awaited(recovering, [A, knowing]) == [lost, staying], "B does not know these files"
    candidates.forget(CANDIDATE_NS + 1)
    assert not candidates._gone


@pytest.mark.rule("membership/F-6")
def test_a_settled_view_knows_the_files_that_are_gone() -> None:
    stores = {"files-c": FilesSeen(2, "t"), "files-d": FilesSeen(3, "u"), "files-e": FilesSeen(4, "v")}
    now = view(A, info("c", store="files-c"), missing=[info("d", store="files-d")], stores=stores)
    assert files_gone(now) == FilesGone(now.number, {"files-e": 4})
    assert files_gone(msgspec.structs.replace(now, recovering=True)) is None
    assert files_gone(None) is None


def test_a_running_cluster_knows_best() -> None:
    candidates = Admission()
    candidates.ask(B, 0, owned("y"), 1, MapChanges(3), MetastoreFounding(3, ("s",)))
    now = view(A, baseline=owned(), maps=MapChanges(1))
    assert candidates.newest_baseline(now, [A, B]) == owned()
    assert candidates.newest_maps(now, [A, B]) == MapChanges(1)
    assert candidates.known_founding(now, [A, B]) is None


@pytest.mark.parametrize("how", ["installed", "forgotten"])
def test_what_was_known_of_those_who_ask_no_more_is_forgotten(how: str) -> None:
    candidates = Admission()
    for who, now_ns in ((B, 0), (C, 5)):
        candidates.ask(who, now_ns, owned("y"), 4, MapChanges(3), MetastoreFounding(3, ("s",)))
    now = view(A, baseline=owned(), level=2, maps=MapChanges(1), recovering=True)

    def known(who: MemberInfo) -> tuple[object, ...]:
        return (
            candidates.newest_baseline(now, [who]),
            candidates.newest_level(now, [who]),
            candidates.newest_maps(now, [who]).version,
            candidates.known_founding(now, [who]) is not None,
        )

    assert known(B) == known(C) == (owned("y"), 4, 3, True)
    if how == "installed":
        candidates.installed(view(A, B))
    else:
        candidates.forget(CANDIDATE_NS + 1)
    assert known(B) == (owned(), 2, 1, False)
    assert known(C) == (owned("y"), 4, 3, True)


# -- who is not here


def test_awaited_are_those_with_files_that_are_not_here() -> None:
    kept = [info(name, store=f"files-{name}") for name in "abc"]
    lite = info("l", store="files-l", lite=True)
    now = view(kept[0], D, lite, missing=[kept[1], kept[2]])
    assert admission.awaited(now, []) == [kept[1], kept[2], kept[0]]
    assert admission.awaited(now, [kept[1]]) == [kept[2], kept[0]]
    assert admission.awaited(now, [info("new", store="files-c")]) == [kept[1], kept[0]], (
        "files, not processes"
    )


def test_missing_are_those_whose_place_is_empty() -> None:
    now = view(A, B, missing=[C, D])
    assert admission.missing(now, [A]) == [C, D, B]
    assert admission.missing(now, [A, info("new", host="c")]) == [D, B], "its place is taken"
    assert admission.missing(now, [A, info("d", host="elsewhere")]) == [C, B], "it is back, elsewhere"


# -- candidates


def let_in(
    candidates: Admission, now: View, now_ns: int = 0, staying: list[MemberInfo] | None = None
) -> list[str]:
    chosen = candidates.admissible(now, now.members if staying is None else staying, now_ns, KnownFiles(None))
    return [one.uuid for one in chosen]


def asked(*who: MemberInfo, now_ns: int = 0) -> Admission:
    candidates = Admission()
    for one in who:
        candidates.ask(one, now_ns)
    return candidates


def test_who_asks_is_let_in_with_the_number_of_the_next_view_as_its_life() -> None:
    chosen = asked(C, info("b2")).admissible(view(A, B), [A, B], 0, KnownFiles(None))
    assert chosen == [info("b2", life=5), info("c", life=5)]


def test_no_more_are_let_in_than_stay() -> None:
    assert let_in(asked(B, C, D), view(A)) == ["b"]
    assert let_in(asked(C, D, E), view(A, B)) == ["c", "d"]
    assert let_in(asked(C, D, E), view(A, B), staying=[A]) == ["c"]


def test_who_is_in_the_view_or_at_the_place_of_who_stays_is_not_let_in() -> None:
    assert let_in(asked(B, C), view(A, B), staying=[A]) == ["c"], (
        "B is still in the view: it comes back with the next"
    )
    assert let_in(asked(info("new", host="b"), C), view(A, B)) == ["c"]
    assert let_in(asked(info("new", host="b")), view(A, B), staying=[A]) == ["new"]


def test_who_has_stopped_asking_is_not_let_in() -> None:
    assert CANDIDATE_NS == 2000 * MILLISECOND
    candidates = asked(C)
    assert let_in(candidates, view(A), CANDIDATE_NS) == ["c"]
    assert let_in(candidates, view(A), CANDIDATE_NS + 1) == []
    candidates.ask(D, 5)
    assert let_in(candidates, view(A), CANDIDATE_NS + 5) == ["d"]
    candidates.forget(CANDIDATE_NS)
    assert let_in(candidates, view(A, B), 0) == ["c", "d"]
    candidates.forget(CANDIDATE_NS + 1)
    assert let_in(candidates, view(A, B), 0) == ["d"]


def test_what_is_kept_of_those_who_ask_no_more_is_counted() -> None:
    candidates = asked(C)
    assert candidates.forgotten(2 * CANDIDATE_NS) == 0
    assert candidates.forgotten(2 * CANDIDATE_NS + 1) == 1
    candidates.ask(D, 0)
    assert candidates.forgotten(2 * CANDIDATE_NS + 1) == 2


def test_of_two_processes_at_one_address_the_newer_is_alive() -> None:
    candidates = asked(info("old", host="c"), D, C)
    assert let_in(candidates, view(A, B, E)) == ["c", "d"]


def test_who_was_refused_or_is_in_asks_no_more() -> None:
    candidates = asked(C, D, E)
    candidates.refused(MemberId("d"))
    candidates.refused(MemberId("nobody"))
    candidates.installed(view(A, E))
    assert let_in(candidates, view(A, B)) == ["c"]


@pytest.mark.rule("membership/B-1")
def test_those_whose_histories_branched_are_not_let_in_together() -> None:
    candidates = Admission()
    candidates.ask(C, 0, owned("y"))
    candidates.ask(D, 0, owned("z"))
    candidates.ask(E, 0, owned("y", "more"))
    recovering = view(A, B, baseline=owned(), recovering=True)
    assert let_in(candidates, recovering) == ["c", "e"]
    assert let_in(candidates, view(A, B, baseline=owned())) == [], "they know what no member has decided"
    assert let_in(candidates, view(A, B, baseline=owned("y", "more"))) == ["c", "e"]


@pytest.mark.rule("membership/L-2")
def test_those_who_cannot_read_the_level_of_another_are_not_let_in_with_it() -> None:
    candidates = Admission()
    candidates.ask(info("c", levels=FeatureLevels(1, 4)), 0, None, 3)
    candidates.ask(info("d", levels=FeatureLevels(1, 2)), 0, None, 1)
    candidates.ask(info("e", levels=FeatureLevels(1, 4)), 0, None, 1)
    members = [info(name, levels=FeatureLevels(1, 4)) for name in "ab"]
    assert let_in(candidates, view(*members, level=1)) == ["c", "e"]
    old = [info(name, levels=FeatureLevels(1, 2)) for name in "ab"]
    assert let_in(candidates, view(*old, level=1)) == ["d", "e"], "no member can read the files of c"


def test_an_ending_cluster_lets_nobody_in() -> None:
    assert let_in(asked(C), view(A, ending=True)) == []


def test_a_frozen_cluster_lets_in_those_who_are_missing_or_their_place() -> None:
    now = view(A, B, state=ClusterState.FROZEN, missing=[D])
    assert let_in(asked(C, info("new", host="d")), now) == ["new"]
    assert let_in(asked(C, D), view(A, B, state=ClusterState.NO_MIGRATION)) == ["c", "d"]


def test_files_come_in_once() -> None:
    candidates = asked(info("c", store="s"), info("d", store="s"), E)
    assert let_in(candidates, view(A, B)) == ["c", "e"]
    assert let_in(candidates, view(A, info("b", store="s"))) == ["e"]
    assert let_in(asked(C, D), view(A, B)) == ["c", "d"], "who keeps no files shares none"


def test_files_that_lack_what_was_seen_of_them_are_marked() -> None:
    short = info("c", store="s", incarnation=3, proof=FilesProof("token", reached=9))
    marked = info("d", behind=True)
    now = view(A, B, info("f"), stores={"s": FilesSeen(3, "token", 10)})
    chosen = asked(short, marked, E).admissible(now, [A, B, info("f")], 0, KnownFiles(None))
    assert [(one.uuid, one.behind) for one in chosen] == [("c", True), ("d", True), ("e", False)]
    now = view(A, B, stores={"s": FilesSeen(3, "token", 9)})
    chosen = asked(short).admissible(now, [A, B], 0, KnownFiles(None))
    assert [one.behind for one in chosen] == [False]


# -- two processes with the same files


class Twins:
    """Member A is asked by C; B and C show the same files."""

    def __init__(self) -> None:
        self.candidates = Admission()
        self.detector = FailureDetector(5000, 10_000)
        self.now = view(A, info("b", store="s"))
        self.detector.watch([MemberId("b")], 0)

    def why(self, now_ns: int, *, me: str = "a", old: str = "", who: MemberInfo | None = None) -> str:
        return self.candidates.same_files(
            who or info("c", store="s"), self.now, MemberId(me), self.detector, now_ns, TIMING, old
        )


COPY = (
    "member name-b is running with the same files, or was just now: one of the two directories is a copy. Start this "
    "member with an empty persistence.directory"
)


def test_a_process_that_was_started_again_may_be_let_in_when_its_old_one_is_silent() -> None:
    twins = Twins()
    assert twins.why(100) == ""
    twins.detector.heard(MemberId("b"), 100 + 2 * TIMING.heartbeat_ns)
    assert twins.why(3000) == "", "what was under way when it ended"


def test_a_copy_of_the_files_of_a_living_member_is_refused() -> None:
    twins = Twins()
    assert twins.why(100) == ""
    twins.detector.heard(MemberId("b"), 101 + 2 * TIMING.heartbeat_ns)
    assert twins.why(3000) == COPY


def test_one_that_shows_the_files_of_the_member_that_it_asks_is_refused_at_once() -> None:
    assert Twins().why(100, me="b") == COPY


def test_old_files_beside_those_of_a_member_are_told_as_a_copy() -> None:
    twins = Twins()
    assert twins.why(100, old="old files") == COPY
    assert twins.why(100, old="old files", who=info("c", store="other")) == "old files"
    assert twins.why(100, old="old files", who=info("b", store="s")) == "old files", "its own"


def test_who_keeps_no_files_or_asks_nobody_in_a_view_has_no_twin() -> None:
    twins = Twins()
    assert twins.why(100, me="b", who=C) == ""
    assert twins.why(100, me="b", who=info("c", store="other")) == ""
    assert twins.why(100, me="a", who=C) == "", "A keeps none either"
    assert twins.candidates.same_files(
        info("c", store="s"), None, MemberId("b"), twins.detector, 100, TIMING, "old files"
    ) == "old files"  # fmt: skip


def test_the_time_begins_anew_when_the_files_were_free_or_a_view_was_installed() -> None:
    for free in (True, False):
        twins = Twins()
        assert twins.why(100) == ""
        both = twins.now
        if free:
            twins.now = view(A)
            assert twins.why(200) == ""
            twins.now = both
        else:
            twins.candidates.installed(both)
        assert twins.why(2000) == ""
        twins.detector.heard(MemberId("b"), 3500)
        assert twins.why(3600) == "", "the first time that counts is 2000"
        twins.detector.heard(MemberId("b"), 4001)
        assert twins.why(4100) == COPY
