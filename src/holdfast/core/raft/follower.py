"""The follower's side of a group.

A follower acknowledges an index with `RaftKind.APPENDED`, which `RaftState` sends when everything before is durable. A
rejection carries a hint to the last place where both logs may agree, so that the leader need not try index by index.
"""

from __future__ import annotations

from holdfast.core.raft.raft_messages import RaftKind, RaftMessage, RaftSnapshot
from holdfast.core.raft.raft_state import RaftState


class Follower:
    def __init__(self, state: RaftState) -> None:
        self._state = state
        self._log = state.log

    def on_message(self, message: RaftMessage) -> None:
        """Handle a message of the leader of this term."""
        state = self._state
        state.lead = message.sender
        if state.settings.starts_voted and state.vote is None and state.is_empty:
            state.vote = message.sender
        if message.kind is RaftKind.HEARTBEAT:
            self._on_heartbeat(message)
        elif message.kind is RaftKind.SNAPSHOT:
            self._on_snapshot(message)
        else:
            self._on_append(message)

    def _on_heartbeat(self, message: RaftMessage) -> None:
        log, state, sender = self._log, self._state, message.sender
        if message.commit <= log.last:
            log.commit_to(message.commit)
        elif state.settings.starts_voted and state.is_empty:
            # The leader counts on a replica that was here before and was destroyed: let it send from the start.
            state.send(RaftKind.APPENDED, sender, index=message.commit, refused=True)
        state.send(RaftKind.HEARTBEAT_HEARD, sender, context=message.context)

    def _on_append(self, message: RaftMessage) -> None:
        log, state, sender = self._log, self._state, message.sender
        if message.index < log.committed:
            state.send(RaftKind.APPENDED, sender, index=log.committed)
            return
        last = log.take(message.index, message.log_term, message.entries, message.commit)
        if last is not None:
            state.send(RaftKind.APPENDED, sender, index=last)
            return
        hint, hint_term = log.conflict_hint(min(message.index, log.last), message.log_term)
        state.send(
            RaftKind.APPENDED, sender, index=message.index, refused=True, hint=hint, log_term=hint_term
        )

    def _on_snapshot(self, message: RaftMessage) -> None:
        snapshot, log, sender = message.snapshot, self._log, message.sender
        assert snapshot is not None, "a message with a snapshot has one"
        if snapshot.index > log.committed and not self._knows(snapshot):
            log.restore(snapshot)
            self._state.send(RaftKind.APPENDED, sender, index=log.last)
        else:
            self._state.send(RaftKind.APPENDED, sender, index=log.committed)

    def _knows(self, snapshot: RaftSnapshot) -> bool:
        """Whether the log contains everything up to the snapshot; if so, commit it up to there."""
        if not self._log.matches(snapshot.index, snapshot.term):
            return False
        self._log.commit_to(snapshot.index)
        return True
