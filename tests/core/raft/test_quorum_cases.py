"""What is committed, and who has won: etcd's cases, and both by their definitions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.raft.datadriven import Case, cases, files

from holdfast.core.raft.quorum import UNBOUNDED, Election, committed, vote, vote_of

SPOKEN = {Election.WON: "VoteWon", Election.LOST: "VoteLost", Election.PENDING: "VotePending"}


def _sets(case: Case) -> tuple[list[str], list[str]]:
    joint = case.arguments.get("cfgj", [])
    return case.arguments.get("cfg", []), [] if joint == ["zero"] else joint


def _by_voter(sets: tuple[list[str], list[str]], said: list[str]) -> dict[str, str]:
    """Who has said what: in the order in which the voters were named first."""
    voters = list(dict.fromkeys([*sets[0], *sets[1]]))
    return {voter: word for voter, word in zip(sorted(voters, key=int), said, strict=True) if word != "_"}


@pytest.mark.parametrize("path", files("quorum/testdata"))
def test_what_etcd_says_of_majorities(path: Path) -> None:
    for case in cases(path):
        sets = _sets(case)
        if case.command == "committed":
            held = _by_voter(sets, case.arguments.get("idx", []))
            index = committed(sets, {voter: int(word) for voter, word in held.items()})
            told = "∞" if index == UNBOUNDED else str(index)
        else:
            votes = _by_voter(sets, case.arguments.get("votes", []))
            told = SPOKEN[vote(sets, {voter: word == "y" for voter, word in votes.items()})]
        assert told == case.expected[-1].removeprefix("<empty majority quorum>"), f"{path.name}:{case.line}"


VOTERS = st.frozensets(st.integers(0, 7), max_size=7)


@given(VOTERS, VOTERS, st.dictionaries(st.integers(0, 7), st.integers(0, 9)))
def test_what_is_committed_is_held_by_both_majorities_and_nothing_more(
    one: frozenset[int], other: frozenset[int], held: dict[int, int]
) -> None:
    def has(index: int) -> bool:
        return all(
            2 * sum(held.get(voter, 0) >= index for voter in voters) > len(voters)
            for voters in (one, other)
            if voters
        )

    index = committed((one, other), held)
    if not one and not other:
        assert index == UNBOUNDED
    else:
        assert has(index)
        assert not has(index + 1)


@given(VOTERS, VOTERS, st.dictionaries(st.integers(0, 7), st.booleans()))
def test_an_election_is_decided_when_the_rest_could_not_change_it(
    one: frozenset[int], other: frozenset[int], votes: dict[int, bool]
) -> None:
    def won(everybody: dict[int, bool]) -> bool:
        return all(
            2 * sum(everybody.get(voter, False) for voter in voters) > len(voters)
            for voters in (one, other)
            if voters
        )

    silent = (one | other) - votes.keys()
    result = vote((one, other), votes)
    assert (result is Election.WON) == won(votes)
    assert (result is Election.LOST) == (not won({**votes, **dict.fromkeys(silent, True)}))


@pytest.mark.parametrize(
    ("voters", "yes", "no", "result"),
    [
        ("", "", "", Election.WON),
        ("a", "", "", Election.PENDING),
        ("a", "a", "", Election.WON),
        ("a", "", "a", Election.LOST),
        ("abcd", "ab", "", Election.PENDING),
        ("abcd", "abc", "", Election.WON),
        ("abcd", "ab", "cd", Election.LOST),
        ("abc", "xyz", "a", Election.PENDING),
    ],
)
def test_what_one_set_of_voters_has_decided(voters: str, yes: str, no: str, result: Election) -> None:
    votes = dict.fromkeys(yes, True) | dict.fromkeys(no, False)
    assert vote_of(voters, votes) is result
