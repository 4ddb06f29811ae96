"""What the machines around a machine are to it in tests: what they tell it, and what it reads of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from holdfast.core.messages import Ack
from holdfast.core.model import notices as n
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import ClusterState, MemberInfo, Room, View


def gone(*members: MemberId) -> n.ViewInstalled:
    """These members have gone."""
    return n.ViewInstalled(None, None, True, frozenset(members), frozenset())


def came(*members: MemberId) -> n.ViewInstalled:
    """These members have come."""
    return n.ViewInstalled(None, None, True, frozenset(), frozenset(members))


def removed() -> n.ViewInstalled:
    """This member was removed."""
    return n.ViewInstalled(None, None, False, frozenset(), frozenset())


def assigned(partition: int, new: Assignment, old: Assignment | None = None) -> n.AssignmentChanged:
    """A partition is assigned otherwise."""
    return n.AssignmentChanged(partition, old or Assignment(), new)


@dataclass
class Rooms:
    """Who has no room."""

    full: set[MemberId] = field(default_factory=set)
    short: dict[MemberId, Room] = field(default_factory=dict)


class Around:
    """What machines read of the membership, of the stored rows, and of who has taken office."""

    def __init__(self, *members: MemberId, master: MemberId | None = None, number: int = 1) -> None:
        self.master = master
        self.view = View(number, "id", [])
        self.intents = Rooms()
        self.cluster_state = ClusterState.ACTIVE
        self.stored: Assignment | None = None
        self.active: set[int] = set()
        self.held: list[tuple[int, MemberId]] = []
        """Replicas that were said to hold what the primary holds."""
        self._members = members

    def members(self) -> list[MemberInfo]:
        return [MemberInfo(member, 1, member, 5701, member, 5702, member) for member in self._members]

    def stored_assignment(self, partition: int) -> Assignment | None:
        return self.stored

    def holds(self, partition: int, member: MemberId) -> None:
        self.held.append((partition, member))


class Told:
    """Records acknowledgements for clients."""

    def __init__(self, take: Callable[[list[Ack]], object]) -> None:
        self.notify = take


@dataclass
class Audience:
    """Hears what is told, and remembers it."""

    told: list[n.Notice] = field(default_factory=list)

    def on_notice(self, notice: n.Notice) -> None:
        self.told.append(notice)

    def of(self, kinds: type | tuple[type, ...]) -> Iterable[n.Notice]:
        return [notice for notice in self.told if isinstance(notice, kinds)]
