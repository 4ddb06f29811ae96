"""Removal of members whose processes have ended, by order of an operator.

- membership/V-9: Members that have heard nothing of an evicted member for some heartbeats suspect it at once, and a
  majority removes it like any suspected member. If it still runs, it is not admitted again: it ends.

Example: 3 of {1, 2, 3} was killed, and its suspicion takes 10 s. The operator evicts it at member 1, which suspects it
and sends `EvictMembers` to 2. If 2 has had no heartbeat of 3 either, both agree on the view {1, 2} at once. Otherwise
nothing happens: the operator was wrong, or only 1 is cut off from 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import EvictMembers, EvictMembersWithoutMajority
from holdfast.core.model.ids import MemberId
from holdfast.core.outbox import Outbox

SILENT_BEATS = 3
"""An operator may evict a member after so many missed heartbeats."""
EVICTED_KEPT = 64
"""Evicted members to remember until those that still run have asked to return."""


class EvictionsDelegate(Protocol):
    def consider(self) -> None:
        """Propose a next view if one is wanted."""


class Evictions:
    def __init__(self, status: MembershipStatus, out: Outbox, delegate: EvictionsDelegate) -> None:
        self._status = status
        self._out = out
        self._delegate = delegate

    def evict(self, ended: set[MemberId]) -> set[MemberId]:
        """Returns those that were heard recently, which are kept (membership/V-9)."""
        status = self._status
        taken = self._suspect(ended)
        if status.view is not None and status.admitted and taken:
            for info in status.view.members:
                if info.uuid not in ended and info.uuid != status.me:
                    self._out.send(info.uuid, EvictMembers(status.view.number, sorted(taken)))
            self._delegate.consider()
        return {info.uuid for info in status.members() if info.uuid in ended - taken}

    def on_evict_members(self, message: EvictMembers) -> None:
        status = self._status
        if status.view is not None and message.view == status.view.number and status.admitted:
            self._suspect(set(message.members))
            self._delegate.consider()

    def unheard(self) -> list[MemberId]:
        status = self._status
        return status.detector.not_heard_for(SILENT_BEATS * status.timing.heartbeat_ns, self._out.now_ns)

    def _suspect(self, ended: set[MemberId]) -> set[MemberId]:
        """Returns those that are silent here."""
        status, unheard = self._status, set(self.unheard())
        assert status.me not in unheard, "no member suspects itself"
        for info in status.members():
            if info.uuid in ended & unheard:
                if info.uuid not in status.evicted:
                    self._out.note("evicted by the operator", level="warning", member=info.name)
                self._remember(info.uuid)
                status.detector.silent(info.uuid)
        self._forget_oldest()
        return ended & unheard

    def evict_without_majority(self, dead: set[MemberId]) -> set[MemberId]:
        """The rest may be no majority; the operator vouches that they have ended. Returns those that are not suspected,
        which are kept.
        """
        status = self._status
        silent = set(status.detector.suspects(self._out.now_ns))
        assert status.me not in silent, "no member suspects itself"
        for info in status.members():
            if info.uuid in dead & silent and info.uuid not in status.evicted_without_majority:
                self._leave_out([info.uuid])
                self._out.note(
                    "evicted by the operator, without a majority", level="warning", member=info.name
                )
        assert status.me not in status.evicted_without_majority, "no member evicts itself"
        if status.view is not None and status.evicted_without_majority:
            evicted = sorted(status.evicted_without_majority)
            for info in status.view.members:
                if info.uuid not in silent and info.uuid != status.me:
                    self._out.send(info.uuid, EvictMembersWithoutMajority(status.view.number, evicted))
            self._delegate.consider()
        return dead - silent

    def on_evict_members_without_majority(self, message: EvictMembersWithoutMajority) -> None:
        status = self._status
        if status.view is not None and message.view == status.view.number and status.admitted:
            self._leave_out(message.members)
            self._delegate.consider()

    def _leave_out(self, members: Iterable[MemberId]) -> None:
        for member in members:
            self._status.evicted_without_majority.add(member)
            self._remember(member)
        self._forget_oldest()

    def _remember(self, member: MemberId) -> None:
        """Do not admit it again. The oldest entries are forgotten first."""
        self._status.evicted.pop(member, None)
        self._status.evicted[member] = None

    def _forget_oldest(self) -> None:
        evicted = self._status.evicted
        while len(evicted) > EVICTED_KEPT:
            del evicted[next(iter(evicted))]
