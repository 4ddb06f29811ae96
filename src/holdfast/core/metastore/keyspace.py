"""State machine of the metastore.

Replicas that have applied the same commands have the same `pieces`, byte by byte. No input can make it fail.

- metastore/M-2: Exactly one leaf of an invoke is applied. All its changes have one revision, the next number; without a
  change there is no new revision. A removed key is absent; an absent value is less than any other, and the revision of
  an absent key is 0.
- metastore/M-3: An invoke is applied once. A repeated one gets the first answer, which is kept until the proposer
  confirms it. Only the last `PROPOSERS_MOST` active proposers are known. An unknown name counts as new only if it began
  after the last activity of every forgotten proposer. Otherwise it must take a new name. Example: proposer a is
  forgotten after its last command, number 900. A retry of a, which began at 850, could be one that was applied already,
  so it is rejected. A proposer that began at 901 cannot have been forgotten.
- metastore/M-4: The times of revisions rise, whatever the clocks of the proposers say.
- metastore/M-5: Compaction up to a revision drops everything that no read at that revision or later can see. A read of
  dropped data fails with an error of its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, eq, ge, gt, le, lt, ne
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.core.metastore.commands import (
    CompactCommand,
    InvokeCommand,
    MalformedCommand,
    Proposer,
    decode_command,
)
from holdfast.core.metastore.invoke import (
    Absent,
    AllOf,
    AnyOf,
    Branch,
    Compare,
    Comparison,
    Condition,
    Exists,
    If,
    Invoked,
    Leaf,
    MetastoreEntry,
    PutKey,
    Removed,
    Subject,
)
from holdfast.errors import ProtocolError

PROPOSERS_MOST: Final = 256
"""All replicas must use the same number: it belongs to the version of the commands."""
PIECE_BYTES: Final = 256 << 10
"""Approximate."""
PIECES_VERSION: Final = 1


class RevisionCompacted(LookupError):
    pass


class RevisionAhead(LookupError):
    """This replica has not reached the revision yet."""


class KeyVersion(NamedTuple):
    revision: int
    time_ms: int
    value: bytes | None
    """None: removed."""


class RevisionChanges(msgspec.Struct, frozen=True, array_like=True):
    revision: int
    time_ms: int
    """Milliseconds since 1970; rises with the revision."""
    changes: tuple[tuple[MetastoreEntry, MetastoreEntry], ...]
    """Each key before and after, sorted by key. A key that was absent before has revision 0."""


class CommandAnswer(NamedTuple):
    proposer: Proposer
    number: int
    invoked: Invoked | None
    """None: the proposer is forgotten, and the invoke was not applied this time (metastore/M-3)."""


@dataclass(slots=True)
class _Session:
    used: int = 0
    """Count of commands at its last one."""
    answered: int = 0
    answers: dict[int, Invoked] = field(default_factory=dict)
    """Those above `answered`."""

    def settle(self, upto: int) -> None:
        if upto > self.answered:
            self.answered = upto
            for number in [number for number in self.answers if number <= upto]:
                del self.answers[number]


class _Header(msgspec.Struct, array_like=True):
    version: int
    revision: int
    compacted: int
    time_ms: int
    applied: int
    malformed: int
    horizon: int
    sessions: list[tuple[Proposer, int, int, list[tuple[int, Invoked]]]]
    """Proposer, `used`, `answered`, answers; the most recently active proposer is last."""
    versions: int


_KeyedVersion = tuple[bytes, int, int, bytes | None]
"""Key, and the fields of `KeyVersion`."""
_encoder = msgspec.msgpack.Encoder()
_headers: msgspec.msgpack.Decoder[_Header] = msgspec.msgpack.Decoder(_Header)
_portions: msgspec.msgpack.Decoder[list[_KeyedVersion]] = msgspec.msgpack.Decoder(list[_KeyedVersion])

_HOLDS: Final[dict[Comparison, Any]] = {
    Comparison.EQUAL: eq,
    Comparison.NOT_EQUAL: ne,
    Comparison.LESS: lt,
    Comparison.LESS_OR_EQUAL: le,
    Comparison.GREATER: gt,
    Comparison.GREATER_OR_EQUAL: ge,
}
_revision_of = attrgetter("revision")


class Keyspace:
    def __init__(self) -> None:
        self.revision = 0
        self.time_ms = 0
        self.compacted = 0
        """Values before this revision are compacted."""
        self.applied = 0
        """Commands, valid or not."""
        self.malformed = 0
        self.history_bytes = 0
        """Approximate size of keys and values that changed after the compaction."""
        self._horizon = 0
        """Highest count of commands at which a forgotten proposer was last active."""
        self._sessions: dict[Proposer, _Session] = {}
        """The most recently active proposer is last."""
        self._versions: dict[bytes, list[KeyVersion]] = {}
        """By revision; the last one is current."""
        self._keys: list[bytes] = []
        self._changed: dict[int, list[bytes]] = {}
        """By each revision after `_trimmed`; sorted."""
        self._trimmed = 0
        """Versions up to here are freed. At most `compacted`, and less while a watcher needs them."""
        self._needed: int | None = None

    # -- commands

    def apply(self, data: bytes) -> CommandAnswer | None:
        """Apply the next command of the log. None: no proposer waits for an answer."""
        self.applied += 1
        try:
            command = decode_command(data)
        except MalformedCommand:
            self.malformed += 1
            return None
        if isinstance(command, CompactCommand):
            if command.revision <= self.revision:
                self.compacted = max(self.compacted, command.revision)
                self._trim()
            return None
        return self._apply_once(command)

    def _apply_once(self, command: InvokeCommand) -> CommandAnswer | None:
        """metastore/M-3."""
        proposer, number = command.proposer, command.number
        session = self._sessions.pop(proposer, None)
        if session is None:
            if proposer.since < self._horizon:
                return CommandAnswer(proposer, number, None)
            if proposer.since >= self.applied:
                # It began with a state that was given up, and could count as new again later: give no answer.
                return None
            session = _Session()
        self._sessions[proposer] = session
        session.used = self.applied
        if len(self._sessions) > PROPOSERS_MOST:
            forgotten = self._sessions.pop(next(iter(self._sessions)))
            self._horizon = max(self._horizon, forgotten.used)
        session.settle(command.answered)
        if number <= session.answered:
            return None
        if number not in session.answers:
            session.answers[number] = self._carry_out(command.branch, command.time_ms)
        return CommandAnswer(proposer, number, session.answers[number])

    def answer_of(self, proposer: Proposer, number: int) -> Invoked | None:
        session = self._sessions.get(proposer)
        return None if session is None else session.answers.get(number)

    def _carry_out(self, branch: Branch, time_ms: int) -> Invoked:
        """metastore/M-2."""
        while isinstance(branch, If):
            branch = branch.then if self._holds(branch.condition) else branch.otherwise
        self._change(branch, time_ms)
        return Invoked(branch.answer, self.revision)

    def _change(self, leaf: Leaf, time_ms: int) -> None:
        values = {
            change.key: change.value if isinstance(change, PutKey) else None
            for change in leaf.changes
            if isinstance(change, PutKey) or self.get(change.key).exists
        }
        if not values:
            return
        self.revision += 1
        self.time_ms = max(time_ms, self.time_ms + 1)  # metastore/M-4
        for key in sorted(values):
            self._add(key, KeyVersion(self.revision, self.time_ms, values[key]))

    def _add(self, key: bytes, version: KeyVersion) -> None:
        versions = self._versions.get(key)
        if versions is None:
            versions = self._versions[key] = []
            insort(self._keys, key)
        versions.append(version)
        if version.revision > self._trimmed:
            self._changed.setdefault(version.revision, []).append(key)
            self.history_bytes += _size(key, version)

    def _holds(self, condition: Condition) -> bool:
        match condition:
            case AllOf(conditions):
                return all(map(self._holds, conditions))
            case AnyOf(conditions):
                return any(map(self._holds, conditions))
        entry = self.get(condition.key)
        match condition:
            case Exists():
                return entry.exists
            case Absent():
                return not entry.exists
            case Removed():
                return not entry.exists and entry.revision > 0
            case Compare(_, Subject.VALUE, how, than):
                return bool(_HOLDS[how]((entry.exists, entry.value), (True, than)))
            case Compare(_, _, how, than):
                revision = entry.revision if entry.exists else 0
                return bool(_HOLDS[how](revision, int.from_bytes(than, "big")))

    # -- reads

    def get(self, key: bytes, revision: int | None = None) -> MetastoreEntry:
        """Now, or at a revision. Raises RevisionCompacted, RevisionAhead."""
        if revision is not None:
            self._check(revision)
        versions = self._versions.get(key)
        if versions is None:
            return MetastoreEntry(key)
        if revision is None:
            return self._entry(key, versions[-1])
        at = bisect_right(versions, revision, key=_revision_of)
        return self._entry(key, versions[at - 1]) if at else MetastoreEntry(key)

    def scan(self, prefix: bytes, revision: int | None = None) -> list[MetastoreEntry]:
        """Existing keys, sorted. Raises as `get` does."""
        if revision is not None:
            self._check(revision)
        found: list[MetastoreEntry] = []
        for at in range(bisect_left(self._keys, prefix), len(self._keys)):
            key = self._keys[at]
            if not key.startswith(prefix):
                break
            entry = self.get(key, revision)
            if entry.exists:
                found.append(entry)
        return found

    def history(self, key: bytes) -> list[tuple[MetastoreEntry, int]]:
        """The values of a key with their times (ms since 1970), oldest first."""
        versions = _since(self._versions.get(key, []), self.compacted)
        return [(self._entry(key, version), version.time_ms) for version in versions]

    def changes(self, revision: int) -> RevisionChanges:
        """Raises RevisionCompacted, RevisionAhead."""
        self._check(revision - 1)
        self._check(revision)
        changes: list[tuple[MetastoreEntry, MetastoreEntry]] = []
        time_ms = 0
        for key in self._changed[revision]:
            versions = self._versions[key]
            at = bisect_left(versions, revision, key=_revision_of)
            before = versions[at - 1] if at else None
            # Replicas compact at different moments, so the revision of a removal before this change is not reported.
            if before is not None and before.value is not None:
                old = MetastoreEntry(key, before.value, before.revision)
            else:
                old = MetastoreEntry(key)
            time_ms = versions[at].time_ms
            changes.append((old, MetastoreEntry(key, versions[at].value, revision)))
        return RevisionChanges(revision, time_ms, tuple(changes))

    def _entry(self, key: bytes, version: KeyVersion) -> MetastoreEntry:
        """A key that was removed before the compaction looks as if it never existed, even if its version is not
        freed.
        """
        if version.value is None and version.revision <= self.compacted:
            return MetastoreEntry(key)
        return MetastoreEntry(key, version.value, version.revision)

    def _check(self, revision: int) -> None:
        if revision > self.revision:
            raise RevisionAhead(
                f"revision {revision} has not arrived here yet: the newest one here is {self.revision}"
            )
        if revision < self._trimmed:
            raise RevisionCompacted(
                f"revision {revision} is compacted: the oldest one here is {self._trimmed}"
            )

    def __len__(self) -> int:
        return sum(versions[-1].value is not None for versions in self._versions.values())

    # -- compaction

    def need_from(self, revision: int | None) -> None:
        """Keep the state from this revision on in memory, even after a compaction; None: no need."""
        self._needed = revision
        self._trim()

    def can_tell_after(self, revision: int) -> bool:
        """Whether all changes after this revision are known."""
        return self._trimmed <= revision <= self.revision

    def compaction_due(self, revisions: int, history_bytes: int) -> int | None:
        """The last `revisions` remain, or fewer if they exceed `history_bytes`; None: not worthwhile yet."""
        count = self.revision - self.compacted
        if count <= revisions + revisions // 4 and self.history_bytes <= history_bytes:
            return None
        size = 0
        for revision in range(self.revision, max(self.revision - revisions, self.compacted), -1):
            size += sum(_size(key, self._version(key, revision)) for key in self._changed.get(revision, ()))
            if size > history_bytes // 2 and self.history_bytes > history_bytes:
                return revision
        upto = self.revision - revisions
        return upto if upto > self.compacted else None

    def _version(self, key: bytes, revision: int) -> KeyVersion:
        versions = self._versions[key]
        return versions[bisect_left(versions, revision, key=_revision_of)]

    def _trim(self) -> None:
        """metastore/M-5."""
        upto = self.compacted if self._needed is None else min(self.compacted, self._needed)
        while self._trimmed < upto:
            self._trimmed += 1
            for key in self._changed.pop(self._trimmed, ()):
                self.history_bytes -= _size(key, self._version(key, self._trimmed))
                versions = self._versions[key] = _since(self._versions[key], self._trimmed)
                if not versions:
                    del self._versions[key]
                    del self._keys[bisect_left(self._keys, key)]

    # -- snapshots

    def pieces(self) -> list[bytes]:
        """Equal on all replicas that have applied the same commands."""
        versions = [
            (key, *version) for key in self._keys for version in _since(self._versions[key], self.compacted)
        ]
        sessions = [
            (proposer, session.used, session.answered, list(session.answers.items()))
            for proposer, session in self._sessions.items()
        ]
        header = _Header(
            PIECES_VERSION,
            self.revision,
            self.compacted,
            self.time_ms,
            self.applied,
            self.malformed,
            self._horizon,
            sessions,
            len(versions),
        )
        return [_encoder.encode(header), *_portioned(versions)]

    @classmethod
    def from_pieces(cls, pieces: Sequence[bytes]) -> Keyspace:
        """The initial state if there are no pieces. Raises ProtocolError."""
        state = cls()
        if not pieces:
            return state
        try:
            header = _headers.decode(pieces[0])
            versions = [version for piece in pieces[1:] for version in _portions.decode(piece)]
            state._take(header, versions)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise ProtocolError(f"not the state of a metastore: {error}") from error
        return state

    def _take(self, header: _Header, versions: Iterable[_KeyedVersion]) -> None:
        if header.version != PIECES_VERSION:
            raise ValueError(f"a state of version {header.version}")
        self.revision, self.time_ms = header.revision, header.time_ms
        self.compacted = self._trimmed = header.compacted
        self.applied, self.malformed, self._horizon = header.applied, header.malformed, header.horizon
        for proposer, used, answered, answers in header.sessions:
            self._sessions[proposer] = _Session(used, answered, dict(answers))
        count = 0
        last = (b"", 0)
        for key, revision, time_ms, value in versions:
            if not last < (key, revision) or not 0 < revision <= self.revision:
                raise ValueError(f"key {key!r} at revision {revision} follows {last}")
            if value is None and revision <= self.compacted:
                raise ValueError(f"key {key!r} was removed at revision {revision}, which is forgotten")
            self._add(key, KeyVersion(revision, time_ms, value))
            last, count = (key, revision), count + 1
        if count != header.versions:
            raise ValueError(f"{count} versions of {header.versions}")
        if len(self._changed) != self.revision - self.compacted:
            raise ValueError("a revision without changes")


def _size(key: bytes, version: KeyVersion) -> int:
    return len(key) + len(version.value or b"")


def _since(versions: list[KeyVersion], revision: int) -> list[KeyVersion]:
    """Versions that a read at the revision or later can see."""
    at = bisect_right(versions, revision, key=_revision_of)
    if not at:
        return versions
    return versions[at:] if versions[at - 1].value is None else versions[at - 1 :]


def _portioned(versions: list[_KeyedVersion]) -> Iterable[bytes]:
    portion: list[_KeyedVersion] = []
    size = 0
    for version in versions:
        portion.append(version)
        size += len(version[0]) + len(version[3] or b"")
        if size >= PIECE_BYTES:
            yield _encoder.encode(portion)
            portion, size = [], 0
    if portion:
        yield _encoder.encode(portion)
