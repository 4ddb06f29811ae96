"""An independent judge of a group: the properties of figure 3 of the Raft paper, and what must be durable first.

It does not know how a replica decides. It sees what leaves a replica, what is on the disks, what each log gets and how
far each replica has committed, and checks every rule at the first moment at which it can be broken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.raft.group import Group
from holdfast.core.raft.raft_messages import RaftEntry, RaftKind, RaftMessage, RaftSnapshot
from holdfast.core.raft.raft_state import HardState

Sets = tuple[frozenset[str], frozenset[str]]


class Broken(AssertionError):
    """Something that must never happen has happened."""


class Durable(Protocol):
    """What a replica has after a crash."""

    hard: HardState
    snapshot: RaftSnapshot
    entries: Sequence[RaftEntry]
    """After the snapshot, without a gap."""


def holds(disk: Durable, index: int, term: int | None = None) -> bool:
    """Whether this place, of this term if one is given, is on the disk, or in its snapshot."""
    at = index - disk.snapshot.index - 1
    return at < 0 or (at < len(disk.entries) and term in (None, disk.entries[at].term))


def is_majority(having: Collection[str], voters: Collection[str]) -> bool:
    """Whether these are most of the voters; an empty half of a joint configuration agrees to everything."""
    return not voters or 2 * sum(voter in having for voter in voters) > len(voters)


@dataclass
class Seen:
    """One life of a replica, as it was after its last step."""

    term: int = 0
    committed: int = 0
    applied: int = 0
    led: int = 0
    """The last term that it has led."""
    sets: Sets = (frozenset(), frozenset())


class PaperJudge:
    """The history of one group."""

    def __init__(self, disks: Mapping[str, Durable], *, begun: bool = False) -> None:
        """`disks`: of all replicas, also of those that are down. `begun`: the group was not seen from its beginning, as
        after a reset; a replica's word is taken for what it has committed when it is seen first.
        """
        self._disks = disks
        self._begun = begun
        self.leaders: dict[int, tuple[str, int]] = {}
        """The replica and its life, by term."""
        self.committed: dict[int, RaftEntry] = {}
        self._committed_in: dict[int, int] = {}
        """The term of the leader that has committed an index first."""
        self._votes: dict[tuple[str, int], str] = {}
        """The candidate, by voter and term, over all lives of the voter."""
        self._places: dict[tuple[int, int], tuple[RaftEntry, int]] = {}
        """By index and term: the entry, and the term of the one before it."""
        self._seen: dict[tuple[str, int], Seen] = {}

    def on_step(self, group: Group, life: int) -> None:
        """A replica has taken a step."""
        me, log = group.me, group.log
        seen = self._of(group, life)
        if group.term < seen.term or log.committed < seen.committed:
            raise Broken(f"{me} goes back from term {seen.term} and commit index {seen.committed}")
        if log.committed > log.last:
            raise Broken(f"{me} has committed {log.committed} and its log ends at {log.last}")
        if group.leading is not None and seen.led != group.term:
            seen.led = group.term
            self._elected(group, life)
        if log.committed > seen.committed:
            self._commits(group, seen)
        seen.term, seen.committed, seen.sets = group.term, log.committed, log.configuration.sets

    def _of(self, group: Group, life: int) -> Seen:
        seen = self._seen.get((group.me, life))
        if seen is None:
            seen = self._seen[group.me, life] = Seen(sets=group.configuration.sets)
            if self._begun:
                seen.committed = group.log.committed
                if seen.committed > group.log.base:
                    for entry in group.log.entries_from(group.log.first, 0, seen.committed):
                        self.committed.setdefault(entry.index, entry)
                        self._committed_in.setdefault(entry.index, 0)
        return seen

    def _elected(self, group: Group, life: int) -> None:
        """Election Safety and Leader Completeness."""
        me, term, log = group.me, group.term, group.log
        first = self.leaders.setdefault(term, (me, life))
        if first != (me, life):
            raise Broken(f"two leaders in term {term}: {first} and {(me, life)}")
        if self._disks[me].hard[:2] != (term, me):
            raise Broken(f"{me} leads in term {term}, on its disk is {self._disks[me].hard}")
        for index, entry in self.committed.items():
            if self._committed_in[index] < term and index > log.base and not log.matches(index, entry.term):
                raise Broken(f"leader {me} of term {term} does not have {entry}, which is committed")

    def _commits(self, group: Group, seen: Seen) -> None:
        """Only a leader commits something new, and only what a majority has on disk; all agree on what it is."""
        me, log = group.me, group.log
        for index in range(max(seen.committed, log.base) + 1, log.committed + 1):
            (entry,) = log.entries_from(index, 0, index)
            known = self.committed.get(index)
            if known is None:
                self._commits_new(group, seen, entry)
            elif known != entry:
                raise Broken(f"{me} has committed {entry}, another one {known}")

    def _commits_new(self, group: Group, seen: Seen, entry: RaftEntry) -> None:
        # A leader that the entry removes steps down in the step that commits it.
        if seen.led != group.term:
            raise Broken(f"{group.me} believes that {entry} is committed, and no leader has committed it")
        having = {name for name, disk in self._disks.items() if holds(disk, entry.index, entry.term)}
        # A step may commit under one configuration and then put the next one in force.
        for sets in (seen.sets, group.log.configuration.sets):
            if all(is_majority(having, voters) for voters in sets):
                break
        else:
            raise Broken(f"{group.me} has committed {entry}, which is on the disks of {sorted(having)} alone")
        self.committed[entry.index] = entry
        self._committed_in[entry.index] = group.term

    def on_entries(self, group: Group, entries: Sequence[RaftEntry]) -> None:
        """A log has got these at its end. Log Matching: one place and term means one history before it."""
        if not entries:
            return
        before = group.log.term(entries[0].index - 1)
        for entry in entries:
            known = self._places.setdefault((entry.index, entry.term), (entry, before))
            if known != (entry, before):
                raise Broken(f"{group.me} has {entry} after term {before}, another one has {known}")
            before = entry.term

    def on_applied(self, group: Group, life: int, entries: Iterable[RaftEntry]) -> None:
        """State Machine Safety: all apply the same, in order, and nothing that is not committed and on the own disk."""
        seen = self._of(group, life)
        for entry in entries:
            if not holds(self._disks[group.me], entry.index, entry.term):
                raise Broken(f"{group.me} applies {entry}, which is not on its disk")
            if seen.applied and entry.index <= seen.applied:
                raise Broken(f"{group.me} applies {entry} after {seen.applied}")
            seen.applied = entry.index
            if entry.index not in self.committed and entry.index <= min(group.log.base, seen.committed):
                self._commits_new(group, seen, entry)  # In the step that has compacted it, too.
            if self.committed.get(entry.index) != entry:
                raise Broken(f"{group.me} applies {entry}, committed is {self.committed.get(entry.index)}")

    def on_left(self, me: str, message: RaftMessage) -> None:
        """A message leaves a replica, or comes back to it as the answer of its own disk."""
        disk = self._disks[me]
        if message.kind is RaftKind.VOTED and not message.refused:
            newer = disk.hard.term > message.term
            if not newer and disk.hard[:2] != (message.term, message.to):
                raise Broken(
                    f"{me} votes for {message.to} in term {message.term}, on its disk is {disk.hard}"
                )
            first = self._votes.setdefault((me, message.term), message.to)
            if first != message.to:
                raise Broken(f"{me} votes for {first} and for {message.to} in term {message.term}")
        elif message.kind is RaftKind.APPENDED:
            if disk.hard.term < message.term:
                raise Broken(f"{me} answers in term {message.term}, on its disk is {disk.hard}")
            if not message.refused and not holds(disk, message.index):
                raise Broken(f"{me} acknowledges {message.index} before it is on its disk")


def compare(groups: Iterable[Group]) -> None:
    """Log Matching, once more, of the whole logs as they are now."""
    alive = list(groups)
    for one in alive:
        for other in alive:
            low = max(one.log.first, other.log.first)
            for index in range(min(one.log.last, other.log.last), low - 1, -1):
                if one.log.term(index) == other.log.term(index):
                    if one.log.entries_from(low, 0, index) != other.log.entries_from(low, 0, index):
                        raise Broken(f"{one.me} and {other.me} differ before {index}")
                    break
