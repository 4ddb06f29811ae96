"""How far is each follower, and how much may be on its way to it? The leader's view of one of them.

- raft/P-1: To a follower whose log is not known to match, one message goes at a time (PROBE); to one that matches,
  a window of them (REPLICATE); to one that needs the state itself, none (SNAPSHOT).
- raft/P-2: What is known to match never falls while one leads, unless the follower says that it has nothing: then
  it is another replica.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, unique


@unique
class LogFlow(Enum):
    """How the log goes to a follower."""

    PROBE = "StateProbe"
    REPLICATE = "StateReplicate"
    SNAPSHOT = "StateSnapshot"


class Inflight:
    """The messages that are on their way to one follower: the last index of each, and its bytes."""

    __slots__ = ("_bytes", "_bytes_most", "_messages", "_most")

    def __init__(self, most: int, bytes_most: int = 0) -> None:
        """`most` messages, and about `bytes_most` bytes (0: without bound), may be on their way."""
        self._messages: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._most = most
        self._bytes_most = bytes_most

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def full(self) -> bool:
        """Whether no other message may be sent."""
        return len(self._messages) >= self._most or bool(self._bytes_most and self._bytes >= self._bytes_most)

    def add(self, last: int, size: int) -> None:
        """A message with entries up to `last` is on its way."""
        assert not self.full, "more is on its way than may be"
        assert not self._messages or self._messages[-1][0] < last, "messages leave in the order of the log"
        self._messages.append((last, size))
        self._bytes += size

    def arrived(self, upto: int) -> None:
        """Everything up to this index has arrived."""
        while self._messages and self._messages[0][0] <= upto:
            self._bytes -= self._messages.popleft()[1]

    def reset(self) -> None:
        """Nothing is on its way any more."""
        self._messages.clear()
        self._bytes = 0


GONE = 1 << 30
"""Ticks of silence of one that is known to have gone."""


class FollowerProgress:
    """One follower, or the leader itself."""

    __slots__ = (
        "active",
        "flow",
        "inflight",
        "learner",
        "match",
        "next",
        "paused",
        "quiet",
        "silent",
        "snapshot",
        "told_commit",
    )

    def __init__(self, following: int, inflight: Inflight, *, learner: bool = False, match: int = 0) -> None:
        """`following`: the index that is to be sent next."""
        self.match = match
        """Up to here its log is known to be the leader's."""
        self.next = following
        self.flow = LogFlow.PROBE
        self.inflight = inflight
        self.paused = False
        """Whether it has as much as it may have, and its answer, or a heartbeat's, is waited for."""
        self.active = False
        """Whether it was heard of since the leader last asked itself whether it has a majority."""
        self.quiet = 0
        """Ticks since it was last seen to get anything."""
        self.silent = 0
        """Ticks since it was heard of; many when it is known to have gone."""
        self.snapshot = 0
        """The index of the snapshot that is on its way to it."""
        self.told_commit = 0
        """The commit index that was last sent to it."""
        self.learner = learner

    def heard(self) -> None:
        """It has said something."""
        self.active = True
        self.silent = 0

    def probe(self) -> None:
        """Its log is not known any more: one message at a time."""
        pending = self.snapshot
        self._enter(LogFlow.PROBE)
        self.next = max(self.match, pending) + 1
        self.told_commit = min(self.told_commit, self.next - 1)

    def replicate(self) -> None:
        """Its log matches: a window of messages."""
        self._enter(LogFlow.REPLICATE)
        self.next = self.match + 1

    def send_snapshot(self, index: int) -> None:
        """It needs the state as of this index; nothing else is sent meanwhile."""
        self._enter(LogFlow.SNAPSHOT)
        self.snapshot = index
        self.next = index + 1
        self.told_commit = index

    def _enter(self, flow: LogFlow) -> None:
        self.paused = False
        self.snapshot = 0
        self.flow = flow
        self.quiet = 0
        self.inflight.reset()

    @property
    def waits(self) -> bool:
        """Whether nothing may be sent to it now."""
        return self.flow is LogFlow.SNAPSHOT or self.paused

    def sent(self, entries: int, size: int) -> None:
        """So many entries, of so many bytes, were sent to it."""
        if self.flow is LogFlow.REPLICATE:
            if entries:
                self.next += entries
                self.inflight.add(self.next - 1, size)
            # What fills the window, or finds it full, is a probe: nothing follows before something is heard.
            self.paused = self.inflight.full
        elif entries:
            assert self.flow is LogFlow.PROBE, "to who gets a snapshot nothing else is sent"
            self.paused = True

    def may_tell_commit(self, index: int) -> bool:
        """Whether a message would tell it of a commit that it does not know of yet."""
        return index > self.told_commit and self.told_commit < self.next - 1

    def acknowledged(self, index: int) -> bool:
        """It holds everything up to this index; whether that is news."""
        if index <= self.match:
            return False
        self.match = index
        self.quiet = 0
        self.next = max(self.next, index + 1)
        self.paused = False
        return True

    def refused(self, index: int, hint: int) -> bool:
        """It has refused what follows `index`, and guesses that it matches up to `hint`; whether that is news."""
        if self.flow is LogFlow.REPLICATE:
            if index <= self.match:
                return False
            self.next = self.match + 1
            self.told_commit = min(self.told_commit, self.next - 1)
            return True
        if self.next - 1 != index:
            return False
        following = max(min(index, hint + 1), self.match + 1)
        if following == self.next:
            # It has lost what it had acknowledged: the next heartbeat asks again, and not before.
            return False
        self.next = following
        self.told_commit = min(self.told_commit, self.next - 1)
        self.paused = False
        return True

    def begins_anew(self) -> None:
        """It has nothing any more: the replica that has acknowledged so much was destroyed."""
        self.match = 0
        self._enter(LogFlow.PROBE)
        self.next = 1
        self.told_commit = 0

    def __str__(self) -> str:
        parts = [f"{self.flow.value} match={self.match} next={self.next}"]
        if self.learner:
            parts.append("learner")
        if self.waits:
            parts.append("paused")
        if self.snapshot:
            parts.append(f"pendingSnap={self.snapshot}")
        if not self.active:
            parts.append("inactive")
        if len(self.inflight):
            parts.append(f"inflight={len(self.inflight)}" + ("[full]" if self.inflight.full else ""))
        return " ".join(parts)
