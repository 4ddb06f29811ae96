"""Read rounds: one question to each other member confirms the leadership of all groups that are read in a step.

A member counts changes of leader and term of its replicas: its *standing*, which it adds to each answer. Groups that it
has confirmed at its present standing need not be named again, so without elections a question and its answer have a few
bytes.

Example: member 1 leads groups 10 to 99, and reads in all of them arrive. It asks member 2 "round 7: groups 10 to 99 at
term 4?" and gets "standing 31: yes, all". For the next reads it asks "round 8?", and the answer "standing 31" confirms
all ninety groups. Had a replica of member 2 followed another leader meanwhile, the standing would be 32, and member 1
would ask by group again.

- multiraft/H-5: A read is answered when a majority of the group has confirmed, after the read arrived, that it knows no
  higher term than the leader's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.core.messages import LeadAsked, LeadConfirmed
from holdfast.core.model.ids import MILLISECOND, GroupNumber, MemberId
from holdfast.core.model.timer_name import TimerName
from holdfast.core.outbox import Outbox
from holdfast.core.raft.configuration import NodeId
from holdfast.core.raft.group import Group
from holdfast.core.raft.quorum import majority

SLOW_NS = 20 * MILLISECOND
"""After this time all voters are asked, not only the necessary ones, and new reads start a round of their own."""

AGAIN_NS = 500 * MILLISECOND


class LedReplica(Protocol):
    group: Group
    halted: bool
    reads: list[tuple[int, bytes]]
    """They wait until an index is applied."""


class LeadWaiter(Protocol):
    def lead_confirmed(self, *, confirmed: bool) -> None:
        """This member has led all groups since then; not `confirmed`: unknown, so drop what was read."""


@dataclass(slots=True)
class _Confirmations:
    member: MemberId
    standing: int
    terms: dict[GroupNumber, int] = field(default_factory=dict)
    """Groups in which it knew no higher term, at this standing."""


@dataclass(slots=True)
class _Asked:
    term: int
    index: int
    contexts: list[bytes]
    confirmed: set[NodeId]


@dataclass(slots=True)
class _Waiter:
    groups: frozenset[GroupNumber]
    asked_ns: int
    callback: LeadWaiter


@dataclass(slots=True)
class _Round:
    number: int
    asked_ns: int
    groups: dict[GroupNumber, _Asked]
    waiters: list[_Waiter]
    sent_ns: int = 0
    asked: set[NodeId] = field(default_factory=set)
    few: bool = True
    """Only the necessary members were asked."""


class ReadRounds:
    """Confirms reads of groups that this member leads, and answers the questions of other leaders."""

    def __init__(
        self, me: NodeId, out: Outbox, replicas: Mapping[GroupNumber, LedReplica], patience_ns: int
    ) -> None:
        self._me = me
        self._out = out
        self._replicas = replicas
        self._patience_ns = patience_ns
        self._members: dict[NodeId, MemberId] = {}
        self._nodes: dict[MemberId, NodeId] = {}
        self.standing = 0
        """Changes of the leaders or terms that the replicas here follow."""
        self._confirmations: dict[NodeId, _Confirmations] = {}
        self._slow: set[NodeId] = set()
        """Nodes that did not answer the last question in time."""
        self._number = 0
        self._open: dict[GroupNumber, list[bytes]] = {}
        """Contexts of reads without a round."""
        self._waiters: list[_Waiter] = []
        self._rounds: dict[int, _Round] = {}
        """The newest one delays the next for a while."""
        self._questions: list[tuple[MemberId, LeadAsked]] = []
        """Questions from other members; answered at the end of the step, when its effects on the replicas are known."""
        self.ready: set[GroupNumber] = set()
        """With newly confirmed reads."""
        self.doubted: set[GroupNumber] = set()
        """Another member did not confirm them: they should send heartbeats to learn why."""
        self._timer = False

    def changed(self) -> None:
        """A replica here follows another leader or term, or was added or removed."""
        self.standing += 1

    # -- reads here

    def takes(self, group: Group) -> bool:
        """Whether a round can confirm reads of this group: this member leads it, and it has other voters."""
        if group.leading is None or not group.leading.settled:
            return False
        configuration = group.configuration
        return len(configuration.voters) > 1 or bool(configuration.outgoing)

    def ask(self, number: GroupNumber, context: bytes) -> None:
        self._open.setdefault(number, []).append(context)

    def wait(self, numbers: Iterable[GroupNumber], callback: LeadWaiter) -> None:
        """The groups were read, with complete states (`GroupHost.current`): notify when that is confirmed."""
        asked = frozenset([number for number in numbers if not self._alone(number)])
        if asked:
            self._waiters.append(_Waiter(asked, self._out.now_ns, callback))
        else:
            callback.lead_confirmed(confirmed=True)

    def _alone(self, number: GroupNumber) -> bool:
        """Whether this member is the only voter of the group, and leads it. A halted replica may have been
        given up.
        """
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
        return bool(self._open or self._waiters or self._questions)

    def flush(self) -> None:
        """Answer the questions of others, and start a round if one is due."""
        questions, self._questions = self._questions, []
        for sender, message in questions:
            self._answer(sender, message)
        if (self._open or self._waiters) and not self._waits():
            self._begin()

    def _waits(self) -> bool:
        youngest = self._rounds.get(self._number)
        return youngest is not None and self._out.now_ns - youngest.asked_ns < SLOW_NS

    def _begin(self) -> None:
        """Start a round for all open reads, except for groups that an older round has not confirmed."""
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
                waiter.callback.lead_confirmed(confirmed=False)
        self._waiters = rest
        if groups:
            self._number += 1
            asked = self._rounds[self._number] = _Round(self._number, self._out.now_ns, groups, waiters)
            self._send(asked, self._needed(groups))
            self._arm()

    def _enters(self, groups: dict[GroupNumber, _Asked], number: GroupNumber) -> bool:
        replica = self._replicas.get(number)
        if replica is None or replica.halted or not self.takes(replica.group):
            return False
        group = replica.group
        groups[number] = _Asked(group.term, group.log.committed, [], {self._me})
        return True

    def _needed(self, groups: Mapping[GroupNumber, _Asked]) -> set[NodeId]:
        """The nodes to ask: as few as possible, because an answer costs more than the groups in it. Slow nodes come
        last.
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
        """Present and fast nodes first, then by name."""
        return (node not in self._members or node in self._slow, node < self._me, node)

    def _send(self, asked: _Round, nodes: set[NodeId]) -> None:
        """Name only the groups that the nodes have not confirmed at their present standing."""
        asked.asked |= nodes
        asked.sent_ns = self._out.now_ns
        for node in sorted(nodes):
            member, confirmations = self._members.get(node), self._confirmations.get(node)
            if member is None:
                continue
            terms = confirmations.terms if confirmations is not None else {}
            unknown = [
                (number, one.term) for number, one in asked.groups.items() if terms.get(number) != one.term
            ]
            self._out.send(member, LeadAsked(asked.number, unknown))

    def on_confirmed(self, sender: MemberId, message: LeadConfirmed) -> None:
        node = self._nodes.get(sender)
        asked = self._rounds.get(message.round)
        if node is None:
            return
        self._slow.discard(node)
        if asked is None:
            return
        confirmations = self._confirmations.get(node)
        changed = confirmations is not None and confirmations.standing != message.standing
        if confirmations is None or changed:
            confirmations = self._confirmations[node] = _Confirmations(sender, message.standing)
        for number in message.groups:
            if number in asked.groups:
                confirmations.terms[number] = asked.groups[number].term
        done: list[GroupNumber] = []
        unknown: list[GroupNumber] = []
        for number, one in asked.groups.items():
            if confirmations.terms.get(number) != one.term:
                unknown.append(number)
                continue
            one.confirmed.add(node)
            if self._is_confirmed(number, one):
                done.append(number)
        if unknown and changed:
            # The question may not have named them, because they were confirmed at the earlier standing.
            self._send(asked, {node})
        else:
            self.doubted.update(unknown)
        for number in done:
            one = asked.groups.pop(number)
            if one.contexts:
                self._replicas[number].reads += [(one.index, context) for context in one.contexts]
                self.ready.add(number)
        self._finish(asked)

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

    def _finish(self, asked: _Round) -> None:
        waiters, asked.waiters = asked.waiters, []
        for waiter in waiters:
            if not asked.groups.keys().isdisjoint(waiter.groups):
                asked.waiters.append(waiter)
            else:
                waiter.callback.lead_confirmed(confirmed=True)
        if not asked.groups:
            self._rounds.pop(asked.number, None)

    # -- reads of others

    def on_asked(self, sender: MemberId, message: LeadAsked) -> None:
        self._questions.append((sender, message))

    def _answer(self, sender: MemberId, message: LeadAsked) -> None:
        known = [number for number, term in message.groups if self._knows_none_higher(number, term)]
        self._out.send(sender, LeadConfirmed(message.round, self.standing, known))

    def _knows_none_higher(self, number: GroupNumber, term: int) -> bool:
        replica = self._replicas.get(number)
        return replica is not None and not replica.halted and replica.group.term == term

    # -- occasions

    def on_view(self, members: Mapping[NodeId, MemberId]) -> None:
        """Ask all voters again, since a new member may be the missing one."""
        self._members = dict(members)
        self._nodes = {member: node for node, member in members.items()}
        self._confirmations = {
            node: confirmations
            for node, confirmations in self._confirmations.items()
            if members.get(node) == confirmations.member
        }
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
        """This member no longer leads the group, or has no replica of it: reads fail."""
        self._open.pop(number, None)
        for asked in list(self._rounds.values()):
            if asked.groups.pop(number, None) is not None:
                self._refuse(asked.waiters, [one for one in asked.waiters if number in one.groups])
                self._finish(asked)
        self._refuse(self._waiters, [one for one in self._waiters if number in one.groups])

    def ended(self, number: GroupNumber) -> None:
        self.lead_lost(number)
        self.ready.discard(number)
        self.doubted.discard(number)

    def _refuse(self, waiters: list[_Waiter], refused: list[_Waiter]) -> None:
        for waiter in refused:
            waiters.remove(waiter)
            waiter.callback.lead_confirmed(confirmed=False)

    def _arm(self) -> None:
        if not self._timer:
            self._timer = True
            self._out.timer(TimerName.READ_ROUNDS, SLOW_NS)

    def on_timer(self) -> None:
        """Ask all voters if the chosen ones have not answered, and fail reads that have waited too long."""
        self._timer = False
        now_ns = self._out.now_ns
        for asked in list(self._rounds.values()):
            if now_ns - asked.asked_ns >= self._patience_ns:
                del self._rounds[asked.number]
                for waiter in asked.waiters:
                    waiter.callback.lead_confirmed(confirmed=False)
            elif now_ns - asked.sent_ns >= (SLOW_NS if asked.few else AGAIN_NS):
                self._slow |= asked.asked
                self._send(asked, self._voters(asked))
                asked.few = False
        given_up_ns = now_ns - self._patience_ns
        self._refuse(self._waiters, [one for one in self._waiters if one.asked_ns <= given_up_ns])
        if self._rounds:
            self._arm()  # Otherwise the end of the step starts a round with the remaining reads.

    def take_ready(self) -> list[GroupNumber]:
        ready, self.ready = self.ready, set()
        return sorted(ready)

    def take_doubted(self) -> list[GroupNumber]:
        doubted, self.doubted = self.doubted, set()
        return sorted(doubted)

    @property
    def leftovers(self) -> int:
        return len(self._open) + len(self._waiters) + len(self._rounds)
