"""Who forms a cluster, and which."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.membership.formation import PATIENCE, Formation
from holdfast.core.membership.identity import Identity
from holdfast.core.model.baseline import Baseline, BaselineMember
from holdfast.core.model.ids import Address, MemberId
from holdfast.core.model.map_changes import MapChanges
from holdfast.core.model.metastore_founding import MetastoreFounding
from holdfast.core.model.views import FilesSeen, MemberInfo, View

SEEDS = tuple(Address(name, 5701) for name in "abc")
A, B, C = SEEDS
D = Address("d", 5701)


def info(name: str, **changed: Any) -> MemberInfo:
    return msgspec.structs.replace(MemberInfo(MemberId(name), 0, name, 5701, name, 5702, name), **changed)


def process(
    home: Address = A,
    seeds: tuple[Address, ...] = SEEDS,
    *,
    bootstrap: bool = False,
    cluster_id: str = "",
    seen: View | None = None,
    store: str = "",
    level: int = 1,
) -> Formation:
    who = info(home.host, store=store)
    return Formation(Identity(who, "prod", {}, seeds, bootstrap, "new", cluster_id, seen, level))


# -- membership/V-3


def test_one_that_is_told_to_or_knows_no_seed_forms_a_cluster() -> None:
    assert process(bootstrap=True).may_form(A) is True
    assert process(B, bootstrap=True).may_form(B) is True
    assert process(D, ()).may_form(D) is True


@pytest.mark.rule("membership/V-3")
def test_only_the_first_seed_forms_a_new_cluster_when_all_others_are_idle() -> None:
    for home, forms in ((A, True), (B, False)):
        formation = process(home)
        others = [seed for seed in SEEDS if seed != home]
        assert formation.may_form(home) is False, "nothing is known"
        formation.idle(others[0], "")
        assert formation.may_form(home) is False, "one is not known"
        formation.idle(others[1], "")
        assert formation.may_form(home) is forms


@pytest.mark.rule("membership/V-10")
def test_behind_a_name_all_must_be_known_to_be_in_no_cluster() -> None:
    many = Address("many", 5701)
    formation = process(A, (A, many))
    assert formation.may_form(A) is False, "nobody knows who is there"
    formation.behind(many, (MemberId("b"), MemberId("c")))
    formation.idle(B, "", MemberId("b"))
    assert formation.may_form(A) is False, "one of them is not known"
    formation.idle(C, "", MemberId("c"))
    assert formation.may_form(A) is True
    formation.behind(many, (MemberId("b"), MemberId("c"), MemberId("d")))
    assert formation.may_form(A) is False, "one more is there"
    formation.behind(many, ())
    assert formation.may_form(A) is True, "nobody is there any more"


@pytest.mark.rule("membership/V-10")
def test_data_behind_a_name_is_not_passed_over() -> None:
    formation = process(A, (A, Address("many", 5701)))
    formation.behind(Address("many", 5701), (MemberId("b"), MemberId("c")))
    formation.idle(B, "", MemberId("b"))
    formation.idle(C, "old", MemberId("c"))
    assert formation.may_form(A) is False, "there is a cluster to be formed again"
    assert process(D, (Address("many", 5701),)).may_form(D) is False, "a name is nobody's own"


def test_one_that_is_no_seed_forms_nothing() -> None:
    formation = process(D)
    for seed in SEEDS:
        formation.idle(seed, "")
    assert formation.may_form(D) is False
    formation = process(D, cluster_id="old")
    for seed in SEEDS:
        formation.idle(seed, "")
    assert formation.may_form(D) is False, "nor an old one"
    assert process(A, (A,)).may_form(A) is True
    assert process(D, (A,)).may_form(D) is False


def test_a_seed_at_which_nobody_is_is_in_no_cluster() -> None:
    formation = process()
    formation.absent(B)
    formation.absent(C)
    assert formation.may_form(A) is True


def test_one_without_data_forms_nothing_when_another_seed_has_some() -> None:
    formation = process()
    formation.idle(B, "")
    formation.idle(C, "old")
    assert formation.may_form(A) is False
    formation.idle(C, "")
    assert formation.may_form(A) is True, "what it said last counts"


# -- membership/V-7


@pytest.mark.rule("membership/V-7")
def test_the_first_seed_with_data_forms_the_old_cluster_again() -> None:
    formation = process(B, cluster_id="old")
    formation.idle(C, "old")
    assert formation.may_form(B) is False
    formation.idle(A, "")
    assert formation.may_form(B) is True, "A says that it has no data"
    formation.idle(A, "old")
    assert formation.may_form(B) is False, "A has some, and is before it"
    formation.absent(A)
    assert formation.may_form(B) is False, "A may have some: nobody is there to say"
    formation = process(A, cluster_id="old")
    formation.idle(B, "old")
    formation.idle(C, "old")
    assert formation.may_form(A) is True


def test_the_first_that_may_have_data_is_waited_for_also_when_it_is_not_the_first_seed() -> None:
    formation = process(C, cluster_id="old")
    formation.idle(A, "")
    formation.absent(B)
    assert formation.may_form(C) is False
    formation.idle(B, "")
    assert formation.may_form(C) is True


def patience(formation: Formation, home: Address = A) -> int:
    """How often it asks in vain; 10 when it does so for ever."""
    return next((count for count in range(10) if formation.may_form(home)), 10)


@pytest.mark.rule("membership/V-7")
def test_one_that_keeps_files_is_patient_with_seeds_that_do_not_run() -> None:
    formation = process(store="files")
    formation.absent(B)
    formation.idle(C, "")
    assert patience(formation) == PATIENCE == 4
    formation.absent(B)
    assert patience(formation) == 0, "it was absent before"
    formation = process(store="files")
    formation.idle(B, "")
    formation.idle(C, "")
    assert patience(formation) == 0, "all seeds run"


def test_only_who_would_form_a_new_cluster_and_keeps_files_is_patient() -> None:
    formation = process()
    formation.absent(B)
    formation.idle(C, "")
    assert patience(formation) == 0
    formation = process(store="files", cluster_id="old")
    formation.absent(B)
    formation.idle(C, "")
    assert patience(formation) == 0
    second = process(B, store="files")
    second.absent(A)
    second.idle(C, "")
    assert patience(second, B) == 10, "it is not the first seed"
    assert second._patience == PATIENCE, "and so uses no patience up"


# -- which


# -- membership/V-11


def stopped_with_b(*, seeds: tuple[Address, ...] = (A,), bootstrap: bool = False) -> Formation:
    """A process whose files know a cluster of a and b."""
    seen = View(7, "old", [info("a"), info("b")])
    return process(A, seeds, cluster_id="old", seen=seen, bootstrap=bootstrap)


@pytest.mark.rule("membership/V-11")
@pytest.mark.parametrize("seeds", [(A,), ()], ids=["its own seed", "without seeds"])
def test_members_of_the_last_view_are_asked_before_the_old_cluster_is_formed(
    seeds: tuple[Address, ...],
) -> None:
    """The first seed was restarted alone, and the others still run: it joins them."""
    formation = stopped_with_b(seeds=seeds)
    assert formation.known(A) == [Address("b", 5701)]
    for _ in range(3 * PATIENCE):
        assert formation.may_form(A) is False
        formation.runs(B)
    formation.absent(B)
    assert formation.may_form(A) is True


@pytest.mark.rule("membership/V-11")
def test_a_member_that_was_in_no_cluster_counts_again_when_it_is_in_one() -> None:
    formation = stopped_with_b()
    formation.idle(B, "old")
    formation.runs(B)
    assert formation.may_form(A) is False


@pytest.mark.rule("membership/V-11")
def test_members_of_the_last_view_that_are_in_no_cluster_or_silent_are_not_waited_for() -> None:
    formation = stopped_with_b()
    assert formation.may_form(A) is False
    formation.idle(B, "old")
    assert formation.may_form(A) is True
    formation = stopped_with_b()
    assert [formation.may_form(A) for _ in range(PATIENCE + 1)] == [False] * PATIENCE + [True]


def test_an_order_to_form_the_cluster_asks_nobody() -> None:
    assert stopped_with_b(bootstrap=True).may_form(A) is True
    assert process(A, (A,), cluster_id="old", seen=View(7, "old", [info("a")])).may_form(A) is True


# -- the first view


def test_a_new_cluster_begins_with_view_one_of_one_member() -> None:
    stores = {"files": FilesSeen(1, "token")}
    assert process().first_view(stores) == View(1, "new", [info("a")], stores=stores)


def test_a_stopped_cluster_goes_on_from_the_last_view_that_is_known_and_awaits_its_members() -> None:
    before = View(
        9, "old", [info("x", store="files"), info("y", store="more")], missing=[info("z", store="third")]
    )
    formation = process(cluster_id="old", seen=before, store="files")
    stores = {"more": FilesSeen(1, "token")}
    assert formation.first_view(stores) == View(
        10,
        "old",
        [info("a", store="files")],
        missing=[info("z", store="third"), info("y", store="more")],
        stores=stores,
        recovering=True,
    )


def test_a_stopped_cluster_of_which_no_view_is_known_begins_at_one() -> None:
    formation = process(cluster_id="old", store="files")
    assert formation.first_view({}) == View(1, "old", [info("a", store="files")], recovering=True)


def test_a_stopped_cluster_keeps_its_level_maps_and_metastore() -> None:
    maps, founding = MapChanges(3), MetastoreFounding(3, ("files",))
    before = View(9, "old", [info("x", store="files")], level=4, maps=maps, metastore=founding)
    first = process(cluster_id="old", seen=before, store="files", level=2).first_view({})
    assert (first.level, first.maps, first.metastore) == (4, maps, founding)
    newer = process(cluster_id="old", seen=before, store="files", level=5).first_view({})
    assert newer.level == 5, "its files were perhaps written at this level after that view"
    assert first.baseline is None


def test_after_a_stop_the_other_members_of_the_baseline_are_away() -> None:
    owners = Baseline(
        (
            BaselineMember("a"),
            BaselineMember("gone", away=True),
            BaselineMember("here"),
            BaselineMember("lite"),
            BaselineMember("promised"),
        ),
        700,
        1,
        ("x",),
    )
    members = [info("a"), info("here"), info("lite", lite=True)]
    first = process(cluster_id="old", seen=View(9, "old", members, baseline=owners)).first_view({})
    assert first.baseline is not None
    assert [member.consistent_id for member in first.baseline.away] == ["gone", "here"]
    assert first.baseline.ids == owners.ids
    assert first.baseline.history == owners.history
    own_place = Baseline((BaselineMember("a", away=True),), 700, 1, ("x",))
    first = process(cluster_id="old", seen=View(9, "old", [], baseline=own_place)).first_view({})
    assert first.baseline is not None
    assert first.baseline.away == (), "it is here itself"


# -- advice for who waits


def test_who_waits_is_told_which_seeds_have_not_responded() -> None:
    formation = process(A)
    assert "seeds b:5701, c:5701 have not responded" in formation.join_advice(A)
    formation.idle(B, "")
    assert "seeds c:5701 have not responded" in formation.join_advice(A)
    formation.absent(C)
    assert formation.join_advice(A) == "", "it has no files of a stopped cluster"
    many = Address("many", 5701)
    formation = process(A, (A, many), cluster_id="old")
    formation.absent(many)
    formation.behind(many, (MemberId("b"),))
    assert "seeds many:5701 have not responded" in formation.join_advice(A), "there are members now"


def test_who_waits_for_seeds_that_do_not_run_is_told_to_start_them_or_to_do_without() -> None:
    formation = process(C, cluster_id="old")
    formation.idle(A, "")
    formation.absent(B)
    advice = formation.join_advice(C)
    assert "nothing runs at seeds b:5701: start the members there again" in advice
    assert "--bootstrap" in advice
    formation.idle(B, "old")
    assert formation.join_advice(C) == ""


@pytest.mark.rule("membership/V-10")
def test_a_name_without_members_behind_it_may_have_data() -> None:
    many = Address("many", 5701)
    formation = process(B, (many, B), cluster_id="old")
    formation.behind(many, (MemberId("c"),))
    formation.idle(C, "", MemberId("c"))
    assert formation.may_form(B) is True, "all behind the name have no data"
    formation.behind(many, ())
    assert formation.may_form(B) is False, "the files there are unknown"
