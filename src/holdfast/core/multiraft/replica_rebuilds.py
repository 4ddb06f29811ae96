"""Rebuilds of replicas whose state is damaged.

- multiraft/H-9: A follower whose state is damaged is rebuilt: it gets the leader's state at some index, and applies the
  entries of its own log after that again. Its log, term and vote stay, since it has promised them. It repeats its
  request until that is done, whichever replica leads: the state may be lost, may be newer than what it has applied, or
  older than the beginning of its log. If it leads itself, it transfers its leadership first.

Example: the follower has applied entry 40, and its log ends with entry 42. The leader sends its state at 42, which the
follower does not install, because it has these entries. It keeps the state until it has applied 42, and replaces its
own then.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.core.messages import GroupStateWanted
from holdfast.core.model.ids import GroupNumber, MemberId
from holdfast.core.model.levels import ZONE_REPAIRS
from holdfast.core.multiraft.group_journal import GroupJournal
from holdfast.core.multiraft.hosted_group import HostedGroup, StateFill
from holdfast.core.outbox import Outbox
from holdfast.core.raft.configuration import NodeId
from holdfast.core.raft.group import Group
from holdfast.core.raft.raft_messages import RaftSnapshot

AGAIN_TICKS = 20
"""A rebuild without progress is requested again after so many ticks."""


class RebuildHost(Protocol):
    hosted: dict[GroupNumber, HostedGroup]

    @property
    def me(self) -> NodeId: ...

    def member(self, node: NodeId) -> MemberId | None: ...

    def running(self, number: GroupNumber) -> Group: ...

    def start_ticking(self) -> None: ...


class ReplicaRebuilds:
    def __init__(self, out: Outbox, journal: GroupJournal, host: RebuildHost) -> None:
        self._out = out
        self._journal = journal
        self._host = host
        self._ticks: dict[GroupNumber, int] = {}
        """Replicas that are being rebuilt: ticks until the state is requested again."""
        self._awaiting: dict[GroupNumber, tuple[RaftSnapshot, StateFill]] = {}
        """States of their leaders at an index that they have not applied yet."""

    @property
    def running(self) -> int:
        return len(self._ticks)

    def begin(self, number: GroupNumber) -> str:
        """Request the leader's state for the replica here (multiraft/H-9). Returns why that is not possible now; empty:
        it was requested, and will be until the replica is rebuilt. A leader transfers its leadership instead.
        """
        why = self._request(number)
        if not why:
            self._ticks[number] = AGAIN_TICKS
            self._host.start_ticking()
        return why

    def _request(self, number: GroupNumber) -> str:
        host, hosted = self._host, self._host.hosted.get(number)
        if hosted is None or hosted.halted:
            return "this member runs no replica of the partition"
        group = hosted.group
        if (leading := group.leading) is not None:
            others = [
                node
                for node in sorted(group.configuration.voters - {host.me})
                if host.member(node) is not None
            ]
            if not others:
                return "it leads, and no other voter is here"
            host.running(number).transfer(max(others, key=lambda node: leading.progress[node].match))
            return "it leads: another member has to lead first"
        leader = host.member(group.lead) if group.lead is not None else None
        if leader is None:
            return "its leader is not known"
        if not self._out.does(ZONE_REPAIRS):
            return f"it needs feature level {ZONE_REPAIRS} (holdfast cluster upgrade)"
        self._out.send(leader, GroupStateWanted(number))
        return ""

    def on_tick(self) -> None:
        for number, ticks in self._ticks.items():
            self._ticks[number] = ticks - 1 or AGAIN_TICKS
            if ticks == 1:
                self._request(number)

    def on_leader(self, number: GroupNumber) -> None:
        """The replica leads now, or follows another leader, or no longer knows any."""
        if number in self._ticks:
            self._request(number)

    def progressed(self, number: GroupNumber) -> bool:
        """A part of a state has arrived. Returns whether the replica is being rebuilt."""
        if number in self._ticks:
            self._ticks[number] = AGAIN_TICKS
        return number in self._ticks

    def take(self, hosted: HostedGroup, snapshot: RaftSnapshot, fill: StateFill) -> None:
        """A whole state has arrived that Raft does not install."""
        self._awaiting[hosted.number] = (snapshot, fill)
        self.on_applied(hosted)

    def on_applied(self, hosted: HostedGroup) -> None:
        found = self._awaiting.get(hosted.number)
        if found is None or found[0].index > hosted.group.log.applied:
            return
        del self._awaiting[hosted.number]
        if hosted.rebuild(*found):
            self.end(hosted.number)
            self._journal.abort_checkpoint(hosted.number)
            self._journal.write_out(hosted.number)
        else:
            self._request(hosted.number)

    def end(self, number: GroupNumber) -> None:
        """The whole state was replaced, or the replica is stopped."""
        self._ticks.pop(number, None)
        self._awaiting.pop(number, None)
