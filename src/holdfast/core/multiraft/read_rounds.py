"""Does this member still lead its groups? One question to each other member answers that for all groups that are read
in a step.

A member counts how often anything has changed in whom its replicas follow: its *standing*. Who answers says how that
stands. A leader remembers in which of its groups a member has said, at this standing, that it knows no higher term: so
it need not ask for each group again. While nobody is elected a question and its answer are a few bytes.

- multiraft/H-5: A read is answered when a majority of the group has said, after the read came, that it knows no higher
  term than the leader's. Who said so before, and whose standing is still the same, says so again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.core.machine import Outbox
from holdfast.core.messages import LeadAsked, LeadConfirmed
from holdfast.core.model.ids import MILLISECOND, GroupNumber, MemberId
from holdfast.core.model.timer_name import TimerName
from holdfast.core.raft.configuration import NodeId
from holdfast.core.raft.group import Group
from holdfast.core.raft.quorum import majority

SLOW_NS = 20 * MILLISECOND
"""After this time it is not only asked who is needed, and who comes later does not wait any more."""

AGAIN_NS = 500 * MILLISECOND
"""And after this time it is asked again."""


class LedReplica(Protocol):
    """What is to be known of a group's replica here."""

    group: Group
    halted: bool
    reads: list[tuple[int, bytes]]
    """Reads that wait for an index to be applied."""


class LeadWaiter(Protocol):
    """Who has read the state of groups as it is here."""

    def lead_confirmed(self, *, confirmed: bool) -> None:
        """This member has led all of them since; or that cannot be said, and what was read does not count."""


@dataclass(slots=True)
class _Said:
    """What another member has said."""

    member: MemberId
    standing: int
    terms: dict[GroupNumber, int] = field(default_factory=dict)
    """At this standing: in these groups it knows no higher term than this one."""


@dataclass(slots=True)
class _Asked:
    """The reads of one group in a round."""

    term: int
    index: int
    contexts: list[bytes]
    confirmed: set[NodeId]


@dataclass(slots=True)
class _Waiter:
    """Who waits for several groups at once."""

    groups: frozenset[GroupNumber]
    asked_ns: int
    told: LeadWaiter


@dataclass(slots=True)
class _Round:
    number: int
    asked_ns: int
    groups: dict[GroupNumber, _Asked]
    """Those that are not confirmed yet."""
    waiters: list[_Waiter]
    sent_ns: int = 0
    """When somebody was asked last."""
    asked: set[NodeId] = field(default_factory=set)
    """Who was asked."""
    few: bool = True
    """Whether these are only as many as are needed."""


class ReadRounds:
    """The reads of groups that this member leads, and what it answers others about theirs."""

    def __init__(
        self, me: NodeId, out: Outbox, replicas: Mapping[GroupNumber, LedReplica], patience_ns: int
    ) -> None:
        """`patience_ns`: how long anybody waits."""
        self._me = me
        self._out = out
        self._replicas = replicas
        self._patience_ns = patience_ns
        self._members: dict[NodeId, MemberId] = {}
        self._nodes: dict[MemberId, NodeId] = {}
        self.standing = 0
        """How often it has changed whom the replicas here follow."""
        self._said: dict[NodeId, _Said] = {}
        self._slow: set[NodeId] = set()
        """Who has not answered in time when it was asked last."""
        self._number = 0
        self._open: dict[GroupNumber, list[bytes]] = {}
        """Reads that no round has taken yet, by their contexts."""
        self._waiters: list[_Waiter] = []
        """Who waits for several groups, and is in no round yet."""
        self._rounds: dict[int, _Round] = {}
        """Those that are on their way: the youngest keeps the next one waiting, for a while."""
        self._questions: list[tuple[MemberId, LeadAsked]] = []
        """Of other members: answered when this step has done to the replicas what it does."""
        self.ready: set[GroupNumber] = set()
        """Groups some of whose reads are confirmed now."""
        self.doubted: set[GroupNumber] = set()
        """Groups of which another member does not say what it was asked to: they should hear why."""
        self._timer = False

    def changed(self) -> None:
        """A replica here follows somebody else, in another term, or has come or gone."""
        self.standing += 1

    # -- reads here

    def takes(self, group: Group) -> bool:
        """Whether a read of this group can be confirmed by a round: this member leads it, and it has other voters."""
        if group.leading is None or not group.leading.settled:
            return False
        configuration = group.configuration
        return len(configuration.voters) > 1 or bool(configuration.outgoing)

    def ask(self, number: GroupNumber, context: bytes) -> None:
        """Have this read confirmed."""
        self._open.setdefault(number, []).append(context)

    def wait(self, numbers: Iterable[GroupNumber], told: LeadWaiter) -> None:
        """Something was read in these groups, whose states were whole (`Groups.current`): tell when it counts."""
        asked = frozenset([number for number in numbers if not self._alone(number)])
        if asked:
            self._waiters.append(_Waiter(asked, self._out.now_ns, told))
        else:
            told.lead_confirmed(confirmed=True)

    def _alone(self, number: GroupNumber) -> bool:
        """Whether this member is the group's one voter, and leads it. One that rests may have been given up."""
        replica = self._replicas[number]
        group, configuration = replica.group, replica.group.configuration
        return (
            not replica.halted
            and len(configuration.voters) == 1
            and not configuration.outgoing
            and group.me in configuration.voters
            and group.leading is not None
        )

    @property
    def dirty(self) -> bool:
        """Whether the end of the step has anything to do."""
        return bool(self._open or self._waiters or self._questions)

    def flush(self) -> None:
        """The step ends: answer what others have asked, and ask what is to be asked here."""
        questions, self._questions = self._questions, []
        for sender, message in questions:
            self._answer(sender, message)
        if (self._open or self._waiters) and not self._waits():
            self._begin()

    def _waits(self) -> bool:
        """Whether what is open is to wait for the round that is on its way."""
        youngest = self._rounds.get(self._number)
        return youngest is not None and self._out.now_ns - youngest.asked_ns < SLOW_NS

    def _begin(self) -> None:
        """Ask for all that is open, but not for groups that an older round waits for in vain."""
        vain = {number for one in self._rounds.values() for number in one.groups}
        groups: dict[GroupNumber, _Asked] = {}
        for number in [number for number in self._open if number not in vain]:
            contexts = self._open.pop(number)
            if self._enters(groups, number):
                groups[number].contexts = contexts
        waiters: list[_Waiter] = []
        rest: list[_Waiter] = []
        for waiter in self._waiters:
            if not vain.isdisjoint(waiter.groups):
                rest.append(waiter)
            elif all(number in groups or self._enters(groups, number) for number in waiter.groups):
                waiters.append(waiter)
            else:
                waiter.told.lead_confirmed(confirmed=False)
        self._waiters = rest
        if groups:
            self._number += 1
            asked = self._rounds[self._number] = _Round(self._number, self._out.now_ns, groups, waiters)
            self._send(asked, self._needed(groups))
            self._arm()

    def _enters(self, groups: dict[GroupNumber, _Asked], number: GroupNumber) -> bool:
        """Whether the group can be asked about; then it is."""
        replica = self._replicas.get(number)
        if replica is None or replica.halted or not self.takes(replica.group):
            return False
        group = replica.group
        groups[number] = _Asked(group.term, group.log.committed, [], {self._me})
        return True

    def _needed(self, groups: Mapping[GroupNumber, _Asked]) -> set[NodeId]:
        """Whom to ask at first: few, for each answer costs as much as all that it is about. Those that do not answer
        come last.
        """
        chosen: set[NodeId] = set()
        for number in groups:
            configuration = self._replicas[number].group.configuration
            for voters in (configuration.voters, configuration.outgoing):
                missing = majority(len(voters)) - len(voters & chosen) - (self._me in voters)
                others = sorted(voters - chosen - {self._me}, key=self._rank)
                chosen.update(others[: max(0, missing)])
        return chosen

    def _rank(self, node: NodeId) -> tuple[bool, bool, NodeId]:
        """Who is asked first: who is here, who has answered in time, and who follows by name."""
        return (node not in self._members or node in self._slow, node < self._me, node)

    def _send(self, asked: _Round, nodes: set[NodeId]) -> None:
        """Ask these; by name of the groups of which they have not said so at their present standing."""
        asked.asked |= nodes
        asked.sent_ns = self._out.now_ns
        for node in sorted(nodes):
            member, said = self._members.get(node), self._said.get(node)
            if member is None:
                continue
            terms = said.terms if said is not None else {}
            unsaid = [
                (number, one.term) for number, one in asked.groups.items() if terms.get(number) != one.term
            ]
            self._out.send(member, LeadAsked(asked.number, unsaid))

    def on_confirmed(self, sender: MemberId, message: LeadConfirmed) -> None:
        """Another member says what it knows (multiraft/H-5)."""
        node = self._nodes.get(sender)
        asked = self._rounds.get(message.round)
        if node is None:
            return
        self._slow.discard(node)
        if asked is None:
            return
        said = self._said.get(node)
        if said is None or said.standing != message.standing:
            said = self._said[node] = _Said(sender, message.standing)
        for number in message.groups:
            if number in asked.groups:
                said.terms[number] = asked.groups[number].term
        done: list[GroupNumber] = []
        for number, one in asked.groups.items():
            if said.terms.get(number) != one.term:
                self.doubted.add(number)
                continue
            one.confirmed.add(node)
            if self._is_confirmed(number, one):
                done.append(number)
        for number in done:
            one = asked.groups.pop(number)
            if one.contexts:
                self._replicas[number].reads += [(one.index, context) for context in one.contexts]
                self.ready.add(number)
        self._tell(asked)

    def _is_confirmed(self, number: GroupNumber, one: _Asked) -> bool:
        replica = self._replicas[number]
        if replica.halted or replica.group.term != one.term:
            return False
        configuration = replica.group.configuration
        return all(
            2 * len(voters & one.confirmed) > len(voters)
            for voters in (configuration.voters, configuration.outgoing)
            if voters
        )

    def _tell(self, asked: _Round) -> None:
        """Tell those who wait for nothing more in this round, and end it when nobody does."""
        waiters, asked.waiters = asked.waiters, []
        for waiter in waiters:
            if not asked.groups.keys().isdisjoint(waiter.groups):
                asked.waiters.append(waiter)
            else:
                waiter.told.lead_confirmed(confirmed=True)
        if not asked.groups:
            self._rounds.pop(asked.number, None)

    # -- reads of others

    def on_asked(self, sender: MemberId, message: LeadAsked) -> None:
        """Another member wants to know whether it still leads."""
        self._questions.append((sender, message))

    def _answer(self, sender: MemberId, message: LeadAsked) -> None:
        known = [number for number, term in message.groups if self._knows_none_higher(number, term)]
        self._out.send(sender, LeadConfirmed(message.round, self.standing, known))

    def _knows_none_higher(self, number: GroupNumber, term: int) -> bool:
        replica = self._replicas.get(number)
        return replica is not None and not replica.halted and replica.group.term == term

    # -- occasions

    def on_view(self, members: Mapping[NodeId, MemberId]) -> None:
        """Who is where now: all are asked again, for whoever has come may be the one that is missing."""
        self._members = dict(members)
        self._nodes = {member: node for node, member in members.items()}
        self._said = {node: said for node, said in self._said.items() if members.get(node) == said.member}
        self._slow &= members.keys()
        for asked in self._rounds.values():
            self._send(asked, self._voters(asked))
            asked.few = False

    def _voters(self, asked: _Round) -> set[NodeId]:
        voters: set[NodeId] = set()
        for number in asked.groups:
            configuration = self._replicas[number].group.configuration
            voters |= configuration.voters | configuration.outgoing
        return voters - {self._me}

    def lead_lost(self, number: GroupNumber) -> None:
        """This member does not lead the group any more, or has no replica of it: what was read does not count."""
        self._open.pop(number, None)
        for asked in list(self._rounds.values()):
            if asked.groups.pop(number, None) is not None:
                self._refuse(asked.waiters, [one for one in asked.waiters if number in one.groups])
                self._tell(asked)
        self._refuse(self._waiters, [one for one in self._waiters if number in one.groups])

    def ended(self, number: GroupNumber) -> None:
        """There is no replica of this group here any more."""
        self.lead_lost(number)
        self.ready.discard(number)
        self.doubted.discard(number)

    def _refuse(self, waiters: list[_Waiter], refused: list[_Waiter]) -> None:
        for waiter in refused:
            waiters.remove(waiter)
            waiter.told.lead_confirmed(confirmed=False)

    def _arm(self) -> None:
        if not self._timer:
            self._timer = True
            self._out.timer(TimerName.READ_ROUNDS, SLOW_NS)

    def on_timer(self) -> None:
        """Ask everybody what those who were chosen have not answered, and let nobody wait for ever."""
        self._timer = False
        now_ns = self._out.now_ns
        for asked in list(self._rounds.values()):
            if now_ns - asked.asked_ns >= self._patience_ns:
                del self._rounds[asked.number]
                for waiter in asked.waiters:
                    waiter.told.lead_confirmed(confirmed=False)
            elif now_ns - asked.sent_ns >= (SLOW_NS if asked.few else AGAIN_NS):
                self._slow |= asked.asked
                self._send(asked, self._voters(asked))
                asked.few = False
        given_up_ns = now_ns - self._patience_ns
        self._refuse(self._waiters, [one for one in self._waiters if one.asked_ns <= given_up_ns])
        if self._rounds:
            self._arm()  # Otherwise the end of the step begins one with what is left.

    def take_ready(self) -> list[GroupNumber]:
        """The groups whose reads have been confirmed since this was asked last."""
        ready, self.ready = self.ready, set()
        return sorted(ready)

    def take_doubted(self) -> list[GroupNumber]:
        """The groups whose leader here may lead no more, since this was asked last."""
        doubted, self.doubted = self.doubted, set()
        return sorted(doubted)

    @property
    def leftovers(self) -> int:
        """Reads that are not confirmed."""
        return len(self._open) + len(self._waiters) + len(self._rounds)
