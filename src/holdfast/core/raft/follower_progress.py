"""The leader's view of one follower: how far its log matches, and how much is in flight to it.

- raft/P-1: A follower whose log is not known to match gets one message at a time (PROBE), one that matches a window of
  messages (REPLICATE), one that needs a snapshot none (SNAPSHOT).
- raft/P-2: `match` never falls during a leadership, unless the follower reports an empty log: it is another replica
  then.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, unique


@unique
class LogFlow(Enum):
    PROBE = "StateProbe"
    REPLICATE = "StateReplicate"
    SNAPSHOT = "StateSnapshot"


class Inflight:
    """Messages in flight to one follower: the last index and the bytes of each."""

    __slots__ = ("_bytes", "_bytes_most", "_messages", "_most")

    def __init__(self, most: int, bytes_most: int = 0) -> None:
        """`bytes_most`: approximate; 0: unlimited."""
        self._messages: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._most = most
        self._bytes_most = bytes_most

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def full(self) -> bool:
        return len(self._messages) >= self._most or bool(self._bytes_most and self._bytes >= self._bytes_most)

    def add(self, last: int, size: int) -> None:
        assert not self.full, "more is on its way than may be"
        assert not self._messages or self._messages[-1][0] < last, "messages leave in the order of the log"
        self._messages.append((last, size))
        self._bytes += size

    def arrived(self, upto: int) -> None:
        while self._messages and self._messages[0][0] <= upto:
            self._bytes -= self._messages.popleft()[1]

    def reset(self) -> None:
        self._messages.clear()
        self._bytes = 0


GONE = 1 << 30
"""Silence of a node that is known to be gone."""


class FollowerProgress:
    __slots__ = (
        "active",
        "flow",
        "inflight",
        "learner",
        "match",
        "next",
        "paused",
        "quiet",
        "sent_commit",
        "silent",
        "snapshot",
    )

    def __init__(self, following: int, inflight: Inflight, *, learner: bool = False, match: int = 0) -> None:
        """`following`: the next index to send."""
        self.match = match
        """Last index at which its log is known to equal the leader's."""
        self.next = following
        self.flow = LogFlow.PROBE
        self.inflight = inflight
        self.paused = False
        """Nothing may be sent before its next acknowledgement, of entries or a heartbeat."""
        self.active = False
        """It has answered since the last quorum check."""
        self.quiet = 0
        """Ticks without progress."""
        self.silent = 0
        """Ticks since its last answer."""
        self.snapshot = 0
        self.sent_commit = 0
        self.learner = learner

    def heard(self) -> None:
        self.active = True
        self.silent = 0

    def probe(self) -> None:
        """Send one message at a time, because its log may differ (raft/P-1)."""
        pending = self.snapshot
        self._enter(LogFlow.PROBE)
        self.next = max(self.match, pending) + 1
        self.sent_commit = min(self.sent_commit, self.next - 1)

    def replicate(self) -> None:
        """Send a window of messages, because its log matches (raft/P-1)."""
        self._enter(LogFlow.REPLICATE)
        self.next = self.match + 1

    def send_snapshot(self, index: int) -> None:
        """Send no entries before it has the state at this index (raft/P-1)."""
        self._enter(LogFlow.SNAPSHOT)
        self.snapshot = index
        self.next = index + 1
        self.sent_commit = index

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
        if self.flow is LogFlow.REPLICATE:
            if entries:
                self.next += entries
                self.inflight.add(self.next - 1, size)
            # A message that fills the window, or finds it full, acts as a probe: wait for an answer.
            self.paused = self.inflight.full
        elif entries:
            assert self.flow is LogFlow.PROBE, "to who gets a snapshot nothing else is sent"
            self.paused = True

    def may_send_commit(self, index: int) -> bool:
        """Whether a message could raise its commit index."""
        return index > self.sent_commit and self.sent_commit < self.next - 1

    def acknowledged(self, index: int) -> bool:
        """Note that its log matches up to `index`; returns whether that is new."""
        if index <= self.match:
            return False
        self.match = index
        self.quiet = 0
        self.next = max(self.next, index + 1)
        self.paused = False
        return True

    def refused(self, index: int, hint: int) -> bool:
        """Note that it rejected an append after `index` and suggests `hint`; returns whether that is new."""
        if self.flow is LogFlow.REPLICATE:
            if index <= self.match:
                return False
            self.next = self.match + 1
            self.sent_commit = min(self.sent_commit, self.next - 1)
            return True
        if self.next - 1 != index:
            return False
        following = max(min(index, hint + 1), self.match + 1)
        if following == self.next:
            # It lost entries that it had acknowledged. Wait for the next heartbeat before probing again.
            return False
        self.next = following
        self.sent_commit = min(self.sent_commit, self.next - 1)
        self.paused = False
        return True

    def restart(self) -> None:
        """Begin again with an empty log: the replica that acknowledged `match` was destroyed (raft/E-7)."""
        self.match = 0
        self._enter(LogFlow.PROBE)
        self.next = 1
        self.sent_commit = 0

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
