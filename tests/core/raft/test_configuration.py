"""A configuration: who is in it, what is refused, and in which form others read it."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.raft.configuration import (
    Configuration,
    ConfigurationRefused,
    PeerChange,
    PeerStep,
    enter_joint,
    leave_joint,
    simple,
    steps_to,
)

JOINT = Configuration(
    frozenset("abd"), frozenset("abc"), frozenset("e"), frozenset("c"), auto_leave=True, token=7
)


def changes(words: str) -> list[PeerChange]:
    return [PeerChange(PeerStep(word[0]), word[1:]) for word in words.split()]


def test_who_is_in_a_configuration() -> None:
    assert JOINT.joint
    assert JOINT.sets == (frozenset("abd"), frozenset("abc"))
    assert JOINT.members == frozenset("abcde")
    assert {node for node in "abcdex" if JOINT.votes(node)} == set("abcd")
    assert str(JOINT) == "voters=(a b d)&&(a b c) learners=(e) learners_next=(c) autoleave"
    assert str(Configuration(frozenset("ba"))) == "voters=(a b)"
    assert not Configuration(frozenset("a")).joint
    assert len({JOINT, Configuration(), JOINT}) == 2
    raw = msgspec.msgpack.decode(msgspec.msgpack.encode(Configuration(frozenset("a"))))
    assert raw == [["a"], [], [], [], False, 0]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(PeerChange(PeerStep.VOTER, "a"))) == ["v", "a"]
    assert len({*changes("va va")}) == 1


@pytest.mark.rule("raft/C-1", "raft/C-2")
def test_a_joint_step_has_both_halves_and_is_left_to_the_new_one() -> None:
    now = Configuration(frozenset("abc"), learners=frozenset("d"), token=4)
    joint = enter_joint(now, changes("vd rc la"))
    assert joint == Configuration(frozenset("bd"), frozenset("abc"), learners_next=frozenset("a"), token=4)
    assert leave_joint(joint) == Configuration(frozenset("bd"), learners=frozenset("a"), token=4)
    assert enter_joint(now, changes("la va")) == Configuration(
        frozenset("abc"), frozenset("abc"), learners=frozenset("d"), token=4
    )
    assert enter_joint(now, changes("vx"), auto_leave=True, token=5) == Configuration(
        frozenset("abcx"), frozenset("abc"), frozenset("d"), auto_leave=True, token=5
    )
    assert leave_joint(JOINT) == Configuration(frozenset("abd"), learners=frozenset("ce"), token=7)


def test_a_simple_change_touches_one_voter_at_most() -> None:
    now = Configuration(frozenset("abc"), learners=frozenset("de"), token=4)
    for words, voters, learners in (
        ("vd", "abcd", "e"),
        ("ra", "bc", "de"),
        ("la", "bc", "ade"),
        ("rd re", "abc", ""),
        ("ua", "abc", "de"),
        ("v", "abc", "de"),
        ("ux vd", "abcd", "e"),
        ("rx", "abc", "de"),
    ):
        assert simple(now, changes(words)) == Configuration(
            frozenset(voters), learners=frozenset(learners), token=4
        )
    assert simple(now, changes("vd"), token=6).token == 6
    with pytest.raises(ConfigurationRefused, match="more than one voter"):
        simple(now, changes("vd ve"))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: enter_joint(JOINT, changes("vx")), "already joint"),
        (lambda: simple(JOINT, changes("vx")), "in joint config"),
        (lambda: leave_joint(Configuration(frozenset("a"))), "non-joint"),
        (lambda: enter_joint(Configuration(), changes("va")), "zero-voter"),
        (lambda: simple(Configuration(frozenset("a")), changes("ra")), "removed all voters"),
        (lambda: enter_joint(Configuration(frozenset("a")), changes("la")), "removed all voters"),
        (lambda: enter_joint(Configuration(frozenset("a"), token=3), changes("vb"), token=2), "older than 3"),
        (lambda: simple(Configuration(frozenset("a"), token=3), changes("vb"), token=2), "older than 3"),
    ],
)
def test_what_is_refused(make: object, why: str) -> None:
    with pytest.raises(ConfigurationRefused, match=why):
        make()  # type: ignore[operator]


@pytest.mark.rule("raft/C-3")
def test_the_token_may_stay_and_never_falls() -> None:
    now = Configuration(frozenset("a"), token=3)
    assert enter_joint(now, changes("vb"), token=3).token == 3
    assert simple(now, changes("vb"), token=3).token == 3


def test_the_steps_to_other_peers_are_few_and_sorted() -> None:
    now = Configuration(frozenset("abc"), learners=frozenset("de"))
    assert steps_to(now, "abd", "cf") == changes("lc vd re lf")
    assert steps_to(now, "abc", "de") == []
    assert steps_to(now, "abc", "abcd") == changes("re"), "who votes is no learner"


@pytest.mark.parametrize(
    ("here", "lacks"),
    [("ab", False), ("abc", False), ("a", True), ("", True), ("xyz", True), ("axy", True)],
)
def test_a_majority_of_three_voters_is_two(here: str, *, lacks: bool) -> None:
    assert Configuration(frozenset("abc")).lacks_majority(frozenset(here)) is lacks


@pytest.mark.parametrize(
    ("here", "lacks"), [("abd", False), ("ab", False), ("bd", True), ("ac", True), ("cd", True)]
)
def test_a_joint_configuration_needs_a_majority_of_both_sets(here: str, *, lacks: bool) -> None:
    """Of {a, b, d} and of {a, b, c}."""
    assert JOINT.lacks_majority(frozenset(here)) is lacks


def test_half_of_the_voters_is_no_majority() -> None:
    four = Configuration(frozenset("abcd"))
    assert [four.lacks_majority(frozenset(here)) for here in ("ab", "abc")] == [True, False]
