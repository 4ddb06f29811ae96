"""The log of one replica.

- raft/L-1: Entries are replaced only where they conflict. Example: the log holds 1..5 and a delayed append of 1..3
  arrives, with equal terms: 4 and 5 stay, for they may be acknowledged already.
- raft/L-2: Committed entries are never replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile

from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.raft_messages import RaftEntry, RaftSnapshot


class Compacted(LookupError):
    """The index was compacted; a snapshot is needed instead."""


class RaftLog:
    """Entries `first` to `last`, which follow the snapshot at (`base`, `base_term`)."""

    __slots__ = (
        "_applying_bytes",
        "_applying_most",
        "_entries",
        "_handed",
        "_known",
        "_paused",
        "applied",
        "applying",
        "base",
        "base_configuration",
        "base_term",
        "committed",
        "snapshot",
        "snapshot_handed",
        "stable",
    )

    def __init__(
        self,
        snapshot: RaftSnapshot | None = None,
        entries: Sequence[RaftEntry] = (),
        *,
        committed: int = 0,
        applying_bytes: int = 0,
    ) -> None:
        """All given entries are durable, and the snapshot is applied. `applying_bytes`: see `RaftSettings`."""
        self.base = snapshot.index if snapshot is not None else 0
        self.base_term = snapshot.term if snapshot is not None else 0
        self.base_configuration = snapshot.configuration if snapshot is not None else Configuration()
        self._entries: list[RaftEntry] = list(entries)
        assert not entries or entries[0].index == self.base + 1, "the log follows its snapshot"
        self.stable = self.last
        self._handed = self.last
        """Last index given to the host for writing."""
        self.committed = max(committed, self.base)
        self.applying = self.base
        """Last index given to the host for applying."""
        self.applied = self.base
        self._applying_bytes = 0
        self._applying_most = applying_bytes
        self._paused = False
        self.snapshot: RaftSnapshot | None = None
        """Received, not installed yet."""
        self.snapshot_handed = False
        self._known: list[tuple[int, Configuration]] = [
            (entry.index, entry.configuration) for entry in self._entries if entry.configuration is not None
        ]

    # -- queries

    @property
    def first(self) -> int:
        return self.base + 1

    @property
    def last(self) -> int:
        return self.base + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self.base_term

    @property
    def configuration(self) -> Configuration:
        return self._known[-1][1] if self._known else self.base_configuration

    @property
    def configuration_index(self) -> int:
        """The index of the last configuration, or the snapshot's index if it came with that."""
        return self._known[-1][0] if self._known else self.base

    def configuration_at(self, index: int) -> Configuration:
        earlier = [configuration for at, configuration in self._known if at <= index]
        return earlier[-1] if earlier else self.base_configuration

    def term(self, index: int) -> int:
        """The term of the entry at this index. Raises Compacted before the log, IndexError after it."""
        if index < self.base:
            raise Compacted(index)
        if index == self.base:
            return self.base_term
        return self._entries[index - self.first].term

    def matches(self, index: int, term: int) -> bool:
        try:
            return self.term(index) == term
        except LookupError:
            return False

    def up_to_date(self, index: int, term: int) -> bool:
        """Whether a log that ends at this index and term is at least as up to date as this one (raft/E-2)."""
        return (term, index) >= (self.last_term, self.last)

    def entries_from(self, index: int, bytes_most: int = 0, upto: int | None = None) -> tuple[RaftEntry, ...]:
        """The entries from `index` on: at most `bytes_most` bytes but at least one entry (0: all). Raises Compacted."""
        if index < self.first:
            raise Compacted(index)
        end = len(self._entries) if upto is None else max(0, upto - self.base)
        return limited(self._entries[index - self.first : end], bytes_most)

    def conflict_hint(self, index: int, term: int) -> tuple[int, int]:
        """The last index up to `index` whose term is at most `term`, and its term (0: unknown)."""
        try:
            while (found := self.term(index)) > term:
                index -= 1
        except LookupError:
            return index, 0
        return index, found

    # -- changes

    def append(self, entries: Sequence[RaftEntry]) -> int:
        """Append entries as leader; returns the last index."""
        if entries:
            assert entries[0].index == self.last + 1, "a leader appends at the end"
            self._extend(entries)
        return self.last

    def take(self, before: int, before_term: int, entries: Sequence[RaftEntry], commit: int) -> int | None:
        """Append a leader's entries after `before`. Returns the index of the last one, None if the log does not match
        there.
        """
        if not self.matches(before, before_term):
            return None
        last = before + len(entries)
        new = list(dropwhile(lambda entry: self.matches(entry.index, entry.term), entries))
        if new:
            # raft/L-1: the first entry that conflicts, or that is new.
            assert new[0].index > self.committed, "what is committed is never replaced (raft/L-2)"
            self._cut_from(new[0].index)
            self._extend(new)
        self.commit_to(min(commit, last))
        return last

    def _extend(self, entries: Sequence[RaftEntry]) -> None:
        self._entries.extend(entries)
        self._known.extend(
            (entry.index, entry.configuration) for entry in entries if entry.configuration is not None
        )

    def _cut_from(self, index: int) -> None:
        del self._entries[index - self.first :]
        self.stable = min(self.stable, index - 1)
        self._handed = min(self._handed, index - 1)
        while self._known and self._known[-1][0] >= index:
            self._known.pop()

    def commit_to(self, index: int) -> None:
        assert index <= self.last, "what is not here is not committed here"
        self.committed = max(self.committed, index)

    def restore(self, snapshot: RaftSnapshot) -> None:
        assert snapshot.index > self.committed, "a snapshot takes nothing back"
        self.base, self.base_term = snapshot.index, snapshot.term
        self.base_configuration = snapshot.configuration
        self._entries, self._known = [], []
        self.stable = self._handed = self.committed = snapshot.index
        self.snapshot, self.snapshot_handed = snapshot, False

    # -- writing

    @property
    def unwritten(self) -> list[RaftEntry]:
        return self._entries[self._handed - self.base :]

    @property
    def writing(self) -> bool:
        return self.stable < self.last

    def handed_over(self) -> None:
        self._handed = self.last
        self.snapshot_handed = self.snapshot is not None

    def written(self, index: int, term: int) -> None:
        """Everything up to this index is durable, unless the entry there was replaced since the write began."""
        if self.matches(index, term):
            assert index <= self._handed, "what is durable was handed over"
            self.stable = max(self.stable, index)

    def installed(self, index: int) -> None:
        if self.snapshot is not None and self.snapshot.index == index:
            self.snapshot, self.snapshot_handed = None, False
            self.applying = max(self.applying, index)
            self.applied = max(self.applied, index)

    # -- applying

    @property
    def has_unwritten(self) -> bool:
        return self._handed < self.last

    def has_applicable(self, *, unstable: bool) -> bool:
        """Whether `applicable` would return any: asked for each group in each step, so it makes no list."""
        if self._paused or self.snapshot is not None:
            return False
        return self.applying < (self.committed if unstable else min(self.committed, self.stable))

    def applicable(self, *, unstable: bool) -> tuple[RaftEntry, ...]:
        """The committed entries that were not given out yet. `unstable`: also those not durable here."""
        if self._paused or self.snapshot is not None:
            return ()
        end = self.committed if unstable else min(self.committed, self.stable)
        room = self._applying_most - self._applying_bytes if self._applying_most else 0
        return self.entries_from(self.applying + 1, room, end)

    def apply(self, entries: Sequence[RaftEntry], *, unstable: bool) -> None:
        self.applying = entries[-1].index
        self._applying_bytes += sum(entry.size for entry in entries)
        behind = self.committed if unstable else min(self.committed, self.stable)
        # Until some are applied: the limit is reached, or the next entry did not fit.
        full = bool(self._applying_most) and self._applying_bytes >= self._applying_most
        self._paused = full or self.applying < behind

    def has_applied(self, index: int, size: int) -> None:
        """The host has applied the log up to `index`, perhaps further by a snapshot. `size`: bytes of the entries that
        were given out.
        """
        assert index <= self.applying, "what is applied was handed over, or is in a snapshot"
        self.applied = max(self.applied, index)
        self._applying_bytes -= size
        self._paused = bool(self._applying_most) and self._applying_bytes >= self._applying_most

    def abandon(self) -> None:
        """Drop the log and its state, and start empty (raft/E-6)."""
        self.base = self.base_term = self.committed = 0
        self.applying = self.applied = self.stable = self._handed = 0
        self.base_configuration = Configuration()
        self._entries, self._known = [], []
        self._applying_bytes, self._paused = 0, False
        self.snapshot, self.snapshot_handed = None, False

    def compact(self, index: int) -> None:
        """Remove the entries up to this applied index."""
        assert self.base <= index <= self.applied, "what is not applied is needed"
        term, configuration = self.term(index), self.configuration_at(index)
        del self._entries[: index - self.base]
        self.base, self.base_term, self.base_configuration = index, term, configuration
        self._known = [one for one in self._known if one[0] > index]


def limited(entries: Sequence[RaftEntry], bytes_most: int) -> tuple[RaftEntry, ...]:
    """The first of these entries: at most `bytes_most` bytes but at least one entry (0: all)."""
    if not bytes_most:
        return tuple(entries)
    size = 0
    for count, entry in enumerate(entries):
        size += entry.size
        if count and size > bytes_most:
            return tuple(entries[:count])
    return tuple(entries)
