"""The members of a group: voters, learners, and joint configurations between two of them.

- raft/C-1: A change of more than one voter goes through a joint configuration. As soon as it is in a replica's log, the
  old and the new voters must each have a majority. Example: {a, b, c} to {c, d, e} in one step could elect two leaders,
  one by a and b, which do not know the change, and one by d and e.
- raft/C-2: A voter that becomes a learner stays a voter of the old half until the joint configuration is left.
- raft/C-3: A change carries a token, which never falls. A replica that knows a higher one rejects the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum, unique

import msgspec

NodeId = str
"""A replica is named by its node."""


@unique
class PeerStep(Enum):
    VOTER = "v"
    LEARNER = "l"
    REMOVE = "r"
    UPDATE = "u"
    """The host may attach data to the configuration."""


class PeerChange(msgspec.Struct, frozen=True, array_like=True):
    step: PeerStep
    node: NodeId


class ConfigurationRefused(ValueError):
    """The change is not possible from this configuration."""


class Configuration(msgspec.Struct, frozen=True, array_like=True):
    """The members of a group. A configuration is in force as soon as it is in the log."""

    voters: frozenset[NodeId] = frozenset()
    outgoing: frozenset[NodeId] = frozenset()
    """Old voters of a joint configuration; else empty."""
    learners: frozenset[NodeId] = frozenset()
    """They get the log and do not count for majorities."""
    learners_next: frozenset[NodeId] = frozenset()
    """Old voters, when the joint configuration is left."""
    auto_leave: bool = False
    """The leader leaves the joint configuration as soon as it is committed."""
    token: int = 0
    """Revision of the assignments behind it; never falls (raft/C-3)."""

    @property
    def joint(self) -> bool:
        return bool(self.outgoing)

    @property
    def sets(self) -> tuple[frozenset[NodeId], frozenset[NodeId]]:
        """The sets of voters that must agree separately."""
        return self.voters, self.outgoing

    @property
    def members(self) -> frozenset[NodeId]:
        """All replicas that get the log."""
        return self.voters | self.outgoing | self.learners | self.learners_next

    def lacks_majority(self, here: AbstractSet[NodeId]) -> bool:
        """Whether a set of voters has no majority among these nodes."""
        return any(voters and 2 * len(voters & here) <= len(voters) for voters in self.sets)

    def votes(self, node: NodeId) -> bool:
        return node in self.voters or node in self.outgoing

    def __str__(self) -> str:
        parts = [f"voters={_listed(self.voters)}" + (f"&&{_listed(self.outgoing)}" if self.outgoing else "")]
        if self.learners:
            parts.append(f"learners={_listed(self.learners)}")
        if self.learners_next:
            parts.append(f"learners_next={_listed(self.learners_next)}")
        if self.auto_leave:
            parts.append("autoleave")
        return " ".join(parts)


def _listed(nodes: Iterable[NodeId]) -> str:
    return f"({' '.join(str(node) for node in sorted(nodes))})"


def enter_joint(
    now: Configuration, changes: Sequence[PeerChange], *, auto_leave: bool = False, token: int | None = None
) -> Configuration:
    """The joint configuration on the way to these changes. Raises ConfigurationRefused."""
    if now.joint:
        raise ConfigurationRefused("config is already joint")
    if not now.voters:
        raise ConfigurationRefused("can't make a zero-voter config joint")
    draft = msgspec.structs.replace(now, outgoing=now.voters)
    return msgspec.structs.replace(
        _carried_out(draft, changes),
        auto_leave=auto_leave,
        token=now.token if token is None else _newer(now, token),
    )


def leave_joint(now: Configuration) -> Configuration:
    """The final configuration: the joint one without its old half. Raises ConfigurationRefused."""
    if not now.joint:
        raise ConfigurationRefused("can't leave a non-joint config")
    return Configuration(now.voters, learners=now.learners | now.learners_next, token=now.token)


def simple(now: Configuration, changes: Sequence[PeerChange], *, token: int | None = None) -> Configuration:
    """The configuration after these changes, which add or remove one voter at most. Raises ConfigurationRefused."""
    if now.joint:
        raise ConfigurationRefused("can't apply simple config change in joint config")
    after = _carried_out(now, changes)
    if len(now.voters ^ after.voters) > 1:
        raise ConfigurationRefused("more than one voter changed without entering joint config")
    return after if token is None else msgspec.structs.replace(after, token=_newer(now, token))


def _newer(now: Configuration, token: int) -> int:
    """Return the token, unless it is older than the known one (raft/C-3): then raise ConfigurationRefused."""
    if token < now.token:
        raise ConfigurationRefused(f"token {token} is older than {now.token}")
    return token


def _carried_out(now: Configuration, changes: Sequence[PeerChange]) -> Configuration:
    voters, learners, staged = set(now.voters), set(now.learners), set(now.learners_next)
    for change in changes:
        node = change.node
        if not node or change.step is PeerStep.UPDATE:
            continue
        voters.discard(node)
        learners.discard(node)
        staged.discard(node)
        if change.step is PeerStep.VOTER:
            voters.add(node)
        elif change.step is PeerStep.LEARNER:
            # raft/C-2: a voter of the old half cannot be a learner, too.
            (staged if node in now.outgoing else learners).add(node)
    if not voters:
        raise ConfigurationRefused("removed all voters")
    return msgspec.structs.replace(
        now, voters=frozenset(voters), learners=frozenset(learners), learners_next=frozenset(staged)
    )


def steps_to(now: Configuration, voters: Iterable[NodeId], learners: Iterable[NodeId]) -> list[PeerChange]:
    """The changes that lead to these voters and learners from a configuration that is not joint, sorted by name."""
    return list(_steps_to(now, frozenset(voters), frozenset(learners)))


def _steps_to(
    now: Configuration, voters: frozenset[NodeId], learners: frozenset[NodeId]
) -> Iterator[PeerChange]:
    for node in sorted(now.members | voters | learners):
        if node in voters:
            if node not in now.voters:
                yield PeerChange(PeerStep.VOTER, node)
        elif node in learners:
            if node not in now.learners:
                yield PeerChange(PeerStep.LEARNER, node)
        else:
            yield PeerChange(PeerStep.REMOVE, node)
