"""Judge of Raft logs on disks: a committed entry that a node has acknowledged is there after every restart.

Without this judge a lost entry shows only if the member fails because of it. With voters {1,2,3}, entry 31 on
1 and 2, and 2 restarted without it, the leader sends 2 the commit index 31, and 2 fails with an IndexError.
This judge knows what each node had acknowledged, and names the lost writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.core.member_view import MemberView
from holdfast.core.model.ids import METASTORE_GROUP, GroupNumber, MemberId, place_of
from holdfast.core.model.operations import Op
from holdfast.core.model.zone_batches import ZoneRequests, ZoneWrites
from holdfast.core.raft.group import Group
from holdfast.core.raft.raft_messages import RaftEntry
from holdfast.core.raft_partition.partition_commands import decode_command
from holdfast_lab.check.linearizability import Call, Outcome
from holdfast_lab.sim.calls import key_of, name_of

SHOWN = 3


@dataclass(frozen=True, slots=True)
class _Acknowledged:
    index: int
    life: MemberId
    at_ns: int


class KeptEntries:
    """Observes all groups. Only nodes with files are judged; others come back as different nodes."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self._acknowledged: dict[tuple[GroupNumber, str], _Acknowledged] = {}
        self._entries: dict[GroupNumber, list[RaftEntry]] = {}

    def look(self, members: Sequence[MemberView], now_ns: int) -> None:
        """Record acknowledgements so far. Call this also before a member dies."""
        lives = {member.consensus.groups.me: member.me for member in members}
        for number, (leader, group) in self._leaders(members).items():
            self._note(number, leader, group, lives, now_ns)

    def _leaders(self, members: Sequence[MemberView]) -> Mapping[GroupNumber, tuple[str, Group]]:
        """The newest leader of each group; a replaced one may track nodes that have left the group."""
        found: dict[GroupNumber, tuple[str, Group]] = {}
        for member in members:
            for number, hosted in member.consensus.groups.hosted.items():
                group, known = hosted.group, found.get(number)
                if group.leading is not None and (known is None or known[1].term < group.term):
                    found[number] = (member.consensus.groups.me, group)
        return found

    def _note(
        self, number: GroupNumber, leader: str, group: Group, lives: Mapping[str, MemberId], now_ns: int
    ) -> None:
        assert group.leading is not None
        log, followed = group.log, group.leading.progress
        for place in [place for place in self._acknowledged if place[0] == number]:
            if place[1] not in followed:
                del self._acknowledged[place]
        for node, progress in followed.items():
            index, before = min(progress.match, log.committed), self._acknowledged.get((number, node))
            # A leader counts its own entries before they are on its disk.
            if (
                node in lives
                and progress is not followed.get(leader)
                and (before is None or before.index < index)
            ):
                self._acknowledged[number, node] = _Acknowledged(index, lives[node], now_ns)
        known = self._entries.setdefault(number, [])
        since = max(log.first, known[-1].index + 1 if known else 0)
        if since <= log.committed:
            known += log.entries_from(since, upto=log.committed)

    def started(self, member: MemberView) -> list[str]:
        """Lost acknowledged entries of a member that has read its files and not acted yet."""
        groups = member.consensus.groups
        problems: list[str] = []
        for number in groups.journal.found:
            said = self._acknowledged.get((number, groups.me))
            if said is None or groups.journal.doubt(number):
                continue
            last = groups.journal.peek(number).log().last
            if last < said.index:
                del self._acknowledged[number, groups.me]
                problems.append(self._words(number, last, said, member))
        return problems

    def _words(self, number: GroupNumber, last: int, said: _Acknowledged, member: MemberView) -> str:
        lost = [entry for entry in self._entries.get(number, ()) if last < entry.index <= said.index]
        zone, partition = place_of(number)
        where = "the metastore" if number == METASTORE_GROUP else f"partition {partition} of zone {zone}"
        named = [str(call) for call in self._written(lost)] if number != METASTORE_GROUP else []
        more = f", and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        writes = f": {'; '.join(named[:SHOWN])}{more}" if named else ""
        return (
            f"acknowledged and gone: {where}, log index {last + 1} to {said.index}, acknowledged by {said.life} at "
            f"{said.at_ns / 1e9:.3f} s, is not in the log of {member.me} after its restart{writes}"
        )

    def _written(self, entries: Sequence[RaftEntry]) -> Iterator[Call]:
        done: dict[tuple[str, str | None], Call] = {
            (call.key, call.argument): call
            for call in self._calls
            if call.outcome is Outcome.DONE and call.argument
        }
        for entry in entries:
            for raw, value in _values(entry):
                if (call := done.get((key_of(raw), name_of(value)))) is not None:
                    yield call


def _values(entry: RaftEntry) -> Iterator[tuple[bytes, bytes | None]]:
    if not entry.data:
        return
    for part in decode_command(entry.data).parts:
        if isinstance(part, ZoneWrites):
            yield from ((key, value) for _, key, value, *_ in part.writes)
        elif isinstance(part, ZoneRequests):
            for request in part.requests:
                if request.op is Op.PIN:
                    continue
                yield request.key, request.value
                yield from zip(request.items[::2], request.items[1::2], strict=False)
