"""How a configuration changes: etcd's cases, and joint changes against simple ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.raft.datadriven import cases, files

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


def _changes(lines: list[str]) -> list[PeerChange]:
    return [
        PeerChange(PeerStep(word[0]), word[1:] if word[1:] != "0" else "")
        for line in lines
        for word in line.split()
    ]


class Followed:
    """A configuration, and with which command each member came."""

    def __init__(self) -> None:
        self.now = Configuration()
        self.since: dict[str, int] = {}

    def take(self, configuration: Configuration, command: int) -> None:
        self.now = configuration
        self.since = {node: self.since.get(node, command) for node in configuration.members}

    def __str__(self) -> str:
        def number(nodes: frozenset[str]) -> str:
            return f"({' '.join(sorted(nodes, key=int))})"

        now = self.now
        text = f"voters={number(now.voters)}" + (f"&&{number(now.outgoing)}" if now.joint else "")
        text += f" learners={number(now.learners)}" if now.learners else ""
        text += f" learners_next={number(now.learners_next)}" if now.learners_next else ""
        text += " autoleave" if now.auto_leave else ""
        lines = [
            f"{node}: StateProbe match=0 next={max(self.since[node], 1)}"
            + ("" if now.votes(node) else " learner")
            for node in sorted(self.since, key=int)
        ]
        return "\n".join([text, *lines])


@pytest.mark.parametrize("path", files("confchange/testdata"))
def test_what_etcd_says_of_changes(path: Path) -> None:
    followed = Followed()
    for number, case in enumerate(cases(path)):
        changes = _changes(case.input)
        try:
            if case.command == "simple":
                after = simple(followed.now, changes)
            elif case.command == "enter-joint":
                auto = case.value("autoleave", "false") == "true"
                after = enter_joint(followed.now, changes, auto_leave=auto)
            else:
                after = leave_joint(followed.now)
        except ConfigurationRefused as refused:
            told = str(refused)
        else:
            followed.take(after, number)
            told = str(followed)
        assert told == "\n".join(case.expected), f"{path.name}:{case.line}"


NODES = st.sampled_from("abcdef")
STEPS = st.lists(st.builds(PeerChange, st.sampled_from(list(PeerStep)), NODES), max_size=8)


@given(st.frozensets(NODES, min_size=1), STEPS)
def test_a_joint_change_comes_to_the_same_as_its_steps_one_by_one(
    voters: frozenset[str], changes: list[PeerChange]
) -> None:
    begin = Configuration(voters)
    one_by_one: Configuration | None = begin
    for change in changes:
        try:
            assert one_by_one is not None
            one_by_one = simple(one_by_one, [change])
        except ConfigurationRefused:
            return  # On the way there was no voter.
    joint = enter_joint(begin, changes)
    assert joint.outgoing == voters
    assert not joint.learners & (joint.voters | joint.outgoing), "a voter of either half is no learner"
    assert leave_joint(joint) == one_by_one


@given(
    st.frozensets(NODES, min_size=1),
    st.frozensets(NODES),
    st.frozensets(NODES, min_size=1),
    st.frozensets(NODES),
)
def test_the_steps_to_a_target_lead_there(
    voters: frozenset[str], learners: frozenset[str], target: frozenset[str], followers: frozenset[str]
) -> None:
    now = Configuration(voters, learners=learners - voters)
    steps = steps_to(now, target, followers)
    after = leave_joint(enter_joint(now, steps, token=3))
    assert (after.voters, after.learners, after.token) == (target, followers - target, 3)
    assert steps_to(after, target, followers) == []


@pytest.mark.rule("raft/C-3")
def test_a_change_with_an_older_token_is_refused() -> None:
    now = enter_joint(Configuration(frozenset("a")), [PeerChange(PeerStep.VOTER, "b")], token=5)
    after = leave_joint(now)
    assert after.token == 5
    for change in (enter_joint, simple):
        with pytest.raises(ConfigurationRefused, match="token 4 is older than 5"):
            change(after, [PeerChange(PeerStep.VOTER, "c")], token=4)  # type: ignore[operator]
        assert change(after, [PeerChange(PeerStep.VOTER, "c")], token=5).token == 5  # type: ignore[operator]


@pytest.mark.rule("raft/C-1")
def test_more_than_one_voter_needs_a_joint_step() -> None:
    now = Configuration(frozenset("abc"))
    with pytest.raises(ConfigurationRefused, match="more than one voter"):
        simple(now, [PeerChange(PeerStep.VOTER, "d"), PeerChange(PeerStep.REMOVE, "a")])
    assert enter_joint(now, [PeerChange(PeerStep.VOTER, "d"), PeerChange(PeerStep.REMOVE, "a")]).sets == (
        frozenset("bcd"),
        frozenset("abc"),
    )


@pytest.mark.rule("raft/C-2")
def test_a_voter_that_is_demoted_votes_until_the_joint_step_is_over() -> None:
    joint = enter_joint(Configuration(frozenset("ab")), [PeerChange(PeerStep.LEARNER, "a")])
    assert joint.votes("a")
    assert (joint.learners, joint.learners_next) == (frozenset(), frozenset("a"))
    assert leave_joint(joint).learners == frozenset("a")
