"""When the voters of the metastore may be reset, what an operator is told meanwhile, and when a lite member votes."""

from __future__ import annotations

import pytest
from tests.core.metastore.test_metastore_voters_cases import Leader, has

from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.raft.configuration import Configuration

LONG_NS = 1000 * MILLISECOND
"""Members are suspected after 100 ms."""


def left_alone(members: str, now: Configuration, *, heard: str = "", me: str = "A") -> Leader:
    """A member that has heard from these of its view just now, and from the others long ago."""
    found = Leader(members, now, me=me)
    found.standing.detector.watch([MemberId(name) for name in members if name != me], 0)
    found.out.now_ns = LONG_NS
    for name in heard:
        found.standing.detector.heard(MemberId(name), LONG_NS)
    return found


@pytest.mark.rule("metastore/V-6")
def test_without_a_majority_of_the_members_a_reset_names_the_order_that_comes_first() -> None:
    alone = left_alone("ABC", has("ABC"))
    assert "holdfast member evict B C --without-majority" in alone.voters.reset()
    assert alone.groups.resets == []


@pytest.mark.rule("metastore/V-6")
def test_silent_voters_have_to_leave_the_view_first() -> None:
    """Of five members three are heard; of the three voters only this one."""
    some = left_alone("ABCDE", has("ABC"), heard="DE")
    said = some.voters.reset()
    assert said.startswith("most of the 3 voters of the metastore are in the cluster, and silent")
    assert said.endswith("holdfast member evict B C")
    assert some.groups.resets == []
    some.view("ADE")
    assert some.voters.reset() == ""


@pytest.mark.rule("metastore/V-6")
def test_a_majority_of_voters_that_is_heard_needs_no_reset() -> None:
    for me, heard in (("A", "BDE"), ("B", "ADE"), ("D", "ABE")):
        here = left_alone("ABCDE", has("ABC"), heard=heard, me=me)
        assert "are here: it needs no reset" in here.voters.reset()
        assert here.groups.resets == []


def test_a_member_that_leads_alone_may_be_reset() -> None:
    """It leads only by what it has not noticed yet."""
    alone = Leader("AD", has("ABC"))
    alone.groups.led_by = "A"
    assert alone.voters.reset() == ""


def test_tokens_of_resets_of_two_members_differ_by_their_places() -> None:
    tokens = []
    for me in "DA":
        one = Leader("DA", has("ABC"), me=me)
        one.out.epoch_ms = 5
        assert one.voters.reset() == ""
        tokens.append(one.groups.resets[0][1])
    assert [token & 0xFFFF for token in tokens] == [0, 1]
    assert {token >> 16 for token in tokens} == {6}


def test_the_way_out_of_lost_voters() -> None:
    assert Leader("AB", has("ABC")).voters.recovery_advice() == ""
    assert Leader("AB", Configuration(frozenset())).voters.recovery_advice() == ""
    missing = Leader("AD", has("ABC"))
    missing.groups.runs = False
    assert missing.voters.recovery_advice() == ""
    said = Leader("AD", has("ABC", old="AEF")).voters.recovery_advice()
    assert said.startswith("4 of its 5 voters are not in the cluster")
    assert said.endswith("holdfast metastore reset")


@pytest.mark.rule("metastore/V-7")
@pytest.mark.parametrize(
    ("members", "lite", "most", "voters"),
    [
        ("ABC", "C", 3, "ABC"),  # two data members and a witness
        ("CAB", "C", 3, "ABC"),  # the witness is the oldest
        ("ABCD", "CD", 3, "ABC"),  # one witness is enough
        ("ABCD", "D", 3, "ABC"),  # an odd number needs none
        ("ABCDE", "E", 5, "ABCDE"),
        ("ABCDE", "DE", 5, "ABC"),  # three data members: two witnesses more would decide against them
        ("ABC", "C", 1, "A"),
        ("ABCDE", "E", 3, "ABC"),  # enough data members without it
        ("ABC", "ABC", 3, "ABC"),  # lite members alone
    ],
)
def test_a_lite_member_votes_where_that_makes_the_number_odd(
    members: str, lite: str, most: int, voters: str
) -> None:
    leader = Leader(members, has("A"), voters=most)
    leader.view(members, lite=lite)
    asked = leader.look()
    assert (asked[-1][0] if asked else "A") == voters


@pytest.mark.rule("metastore/V-7")
@pytest.mark.parametrize(
    ("now", "members", "lite", "most", "voters"),
    [("ABC", "ABCD", "C", 3, "ABD"), ("C", "ABC", "C", 1, "A"), ("ABCDE", "ABCDEFG", "EG", 5, "ABCDF")],
)
def test_a_lite_member_gives_its_vote_to_data_members_that_come(
    now: str, members: str, lite: str, most: int, voters: str
) -> None:
    leader = Leader(members, has(now), voters=most)
    leader.view(members, lite=lite)
    assert leader.look()[-1][0] == voters
