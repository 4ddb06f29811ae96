"""All Raft groups that this member has a replica of: one timer, and one message to each other member and one wait for
the disk in a step, whatever groups have something to say in it.

A replica's *node* is its member's files, where it keeps any, and else the member itself: who comes back with its files
is the same voter, and who comes back without is another one.

- multiraft/H-1: What is to be said when something is durable is said when it is: by the journal's order what was
  written before is durable, too. A member without a journal is another node in each life, so it may speak at once.
- multiraft/H-2: A replica whose files may lack what it has promised takes no part.
- multiraft/H-3: A group with nothing to do sleeps: its leader tells followers that have everything, and none of them
  waits for a heartbeat. Whatever happens to it wakes it; so does the leader's, or a follower's, going, or its silence
  when it was asked for something.
- multiraft/H-4: A state is sent as of one index, and the log goes on after it only when all of it is there and durable.
- multiraft/H-6: A member whose ticks come late, because it gets little of its processor, waits longer for leaders
  before it campaigns: what they have sent has not been read either. With 271 groups whose members take turns of 300
  ms each, ten ticks are hardly enough for an election with files, and one election follows the other.
- multiraft/H-7: In one step at most `GROUPS_AT_ONCE` groups tick, hear that members have gone or come, or hear that
  what they wrote is durable; the next ones do so in a step of their own. So a message holds the words of as many
  groups at most, and what belongs to other maps waits for no more than that, however many groups there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import msgspec

from holdfast.core.journal.log import Log
from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.core.machine import Outbox
from holdfast.core.messages import GroupMessages, GroupState, GroupStateTaken
from holdfast.core.model.ids import METASTORE_GROUP, MILLISECOND, SECOND, GroupNumber, MemberId
from holdfast.core.model.journal_entries import Began, Dropped, MapSnapshot, Snapshot
from holdfast.core.model.notices import CheckpointEnded, GroupsWritten, ViewInstalled
from holdfast.core.model.object_names import part_name
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import MemberInfo
from holdfast.core.multiraft.persistence import (
    NOTHING,
    GroupHead,
    GroupWrite,
    RestoredGroup,
    encoded,
    regained,
)
from holdfast.core.multiraft.read_rounds import ReadRounds
from holdfast.core.raft.configuration import Configuration, NodeId
from holdfast.core.raft.group import Group, RaftReady, RaftWritten
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_messages import RaftEntry, RaftKind, RaftMessage, RaftSnapshot
from holdfast.core.raft.raft_state import GroupNotice, RaftRole, RaftSettings
from holdfast.core.raft.reconfiguration import ChangeAnswer

TICK_NS = 100 * MILLISECOND
LATE_TICKS = 2
"""A tick is late when it comes so many times later than it should;"""
LATE_COUNTS = 3
"""then only each third one counts for those that wait for a leader."""
GROUPS_AT_ONCE = 32
"""So many groups are looked at in one step (multiraft/H-7): a few milliseconds of work, as a chunk of a migration
is.
"""
SLEEP_TICKS = 10
"""A group in which nothing has happened for so long may sleep."""
STATE_BYTES = 256 << 10
"""Of the state in one message, at about."""
LOG_ENTRIES = 4096
"""A log keeps so many entries that are applied, for followers that lack some; twice as many before it is cut."""
LOG_BYTES = 16 << 20
"""And at most so many bytes of them, at about;"""
METASTORE_LOG_BYTES = 1 << 20
"""of the metastore's, whose whole state is not much larger."""
PIECES = part_name("raft")
"""What the pieces of a group are called in a checkpoint."""


class LeadChanged(NamedTuple):
    """Who leads a group, as this replica knows; None: nobody."""

    lead: NodeId | None
    role: RaftRole
    term: int


ReplicaNotice = LeadChanged | GroupNotice


class GroupClient(Protocol):
    """Whose state a group replicates, on one member. None of these may raise."""

    def apply(self, entries: Sequence[RaftEntry]) -> None:
        """These are committed: in order, each once after the state that was restored last."""

    def read_ready(self, context: bytes) -> None:
        """Everything is applied that this read must see."""

    def on_group(self, notice: ReplicaNotice) -> None:
        """Something has happened to the group."""

    def pieces(self) -> Iterable[bytes]:
        """The state as of the last entry that was applied; walked through later, while it changes."""

    def restore(self, pieces: Sequence[bytes]) -> None:
        """Hold this in place of everything; nothing: begin empty."""


class GroupOpener(Protocol):
    """Who knows which groups there should be."""

    def open_group(self, number: GroupNumber) -> GroupClient | None:
        """Another member speaks of this group, of which there is no replica here: whose it is; None: nobody's."""


@dataclass(slots=True)
class _Writing:
    """What one `RaftReady` has wanted, until it is durable."""

    after: Sequence[RaftMessage]
    written: RaftWritten | None
    durable: bool = False
    ticket: int = 0
    """Of the checkpoint that has to be durable, too; 0: of none."""


@dataclass(slots=True)
class _Arriving:
    """A state that comes in parts."""

    index: int
    term: int
    pieces: list[bytes] = field(default_factory=list)


class _Supplying:
    """A state that is sent in parts."""

    def __init__(self, index: int, snapshot: RaftMessage, pieces: Iterable[bytes]) -> None:
        """`index`: as of which the state is."""
        self.index = index
        self.snapshot = snapshot
        self.sent = 0
        """Pieces."""
        self._pieces: Iterator[bytes] = iter(pieces)
        self._next = next(self._pieces, None)

    def part(self, number: GroupNumber) -> GroupState:
        """The next part."""
        first, pieces, size = self.sent, [], 0
        while self._next is not None and size < STATE_BYTES:
            pieces.append(self._next)
            size += len(self._next)
            self._next = next(self._pieces, None)
        self.sent += len(pieces)
        return GroupState(number, self.snapshot, first, pieces, self._next is None)


class HostedGroup:
    """One replica, and what belongs to it here."""

    __slots__ = (
        "arriving",
        "asleep",
        "bytes_since",
        "client",
        "group",
        "halted",
        "number",
        "quiet",
        "reads",
        "term_seen",
        "writing",
    )

    def __init__(self, number: GroupNumber, group: Group, client: GroupClient) -> None:
        self.number = number
        self.group = group
        self.client = client
        self.writing: deque[_Writing] = deque()
        """What is not durable yet, in order."""
        self.reads: list[tuple[int, bytes]] = []
        """Reads that wait for an index to be applied."""
        self.arriving: _Arriving | None = None
        self.asleep: bool
        self.halted = False
        """Whether it rests until somebody lets it go on."""
        self.quiet: int
        """Ticks since something happened."""
        self.bytes_since = 0
        """Of entries, at about, since the log was looked at."""
        self.term_seen = group.term
        """In which it was when it was last looked at."""

    @property
    def idle(self) -> bool:
        """Whether everything that is here is done; of a leader: everywhere."""
        group, log = self.group, self.group.log
        done = log.last == log.committed == log.applied and not self.writing and not self.reads
        leading = group.leading
        if leading is None:
            return done and log.snapshot is None
        return (
            done
            and leading.settled
            and group.rests
            and all(
                progress.match == log.last and progress.sent_commit == log.committed
                for node, progress in leading.progress.items()
                if node != group.me
            )
        )


class GroupHost:
    """The replicas of one member."""

    def __init__(
        self,
        info: MemberInfo,
        out: Outbox,
        log: Log,
        opener: GroupOpener,
        recovered: dict[GroupNumber, RecoveredGroup] | None = None,
        settings: RaftSettings | None = None,
        *,
        patience_ns: int = 60 * SECOND,
    ) -> None:
        """`recovered`: what was found in this member's files. `patience_ns`: how long reads wait to be confirmed."""
        self.me: NodeId = node_of(info)
        self._out = out
        self._log = log
        self._opener = opener
        self._settings = replace(settings or RaftSettings(), starts_voted=True)
        self._zone_settings = replace(self._settings, sends_commits=False)
        """Of all groups but the metastore's: of what is committed followers hear with what comes next."""
        self._found = dict(recovered or {})
        self.hosted: dict[GroupNumber, HostedGroup] = {}
        self.rounds = ReadRounds(self.me, out, self.hosted, patience_ns)
        """Reads of groups that this member leads."""
        self._members: dict[NodeId, MemberId] = {}
        """Where each node is, by the view."""
        self._dirty: set[GroupNumber] = set()
        self._outgoing: dict[NodeId, dict[GroupNumber, list[RaftMessage]]] = {}
        self._asleep: dict[NodeId, list[tuple[GroupNumber, int, int]]] = {}
        self._supplies: dict[tuple[GroupNumber, NodeId], _Supplying] = {}
        self._batches: dict[int, list[tuple[HostedGroup, _Writing]]] = {}
        self._batch: list[tuple[HostedGroup, _Writing]] = []
        self._batch_number = 0
        self._checkpoints: dict[int, tuple[HostedGroup, _Writing]] = {}
        self._ticking = False
        self._ticked_ns = self._late = 0
        self._follows = True
        """Whether those that wait for a leader count the tick that is under way."""
        self._to_tick: deque[HostedGroup] = deque()
        self._to_regard: dict[GroupNumber, set[NodeId]] = {}
        """Groups that have not heard yet which nodes have gone or come."""
        self._to_go_on: deque[HostedGroup] = deque()
        """Groups of which something is durable."""

    # -- which replicas there are

    @property
    def found(self) -> list[GroupNumber]:
        """Groups of which there is a replica in the files, and that nobody has started or stopped yet."""
        return sorted(self._found)

    def doubt(self, number: GroupNumber) -> str:
        """Why what was found of it cannot be used; empty when it can, or when nothing was found (multiraft/H-2)."""
        found = self._found.get(number)
        return found.doubt if found is not None else ""

    def start(
        self, number: GroupNumber, configuration: Configuration, client: GroupClient
    ) -> HostedGroup | None:
        """Have a replica: of what was found in the files, or a new one of a group with this configuration. Without
        voters it waits for a leader. None: what was found is not to be used (multiraft/H-2).
        """
        assert number not in self.hosted, "a member has one replica of a group"
        if self.doubt(number):
            self._out.note(
                "a replica of a group is not started", "error", group=number, why=self.doubt(number)
            )
            return None
        found = self._found.pop(number, None)
        replica = RestoredGroup()
        if found is not None:
            try:
                replica = regained(found)
            except msgspec.DecodeError as error:
                self._found[number] = RecoveredGroup(doubt=f"what is in the files is none: {error}")
                return self.start(number, configuration, client)
            client.restore(replica.pieces)
        else:
            replica.snapshot = RaftSnapshot(1, 1, configuration) if configuration.voters else NOTHING
            replica.hard = replica.hard._replace(commit=replica.snapshot.index)
            client.restore(())
            self._log.note(Began(number, 0))
            if self._log.on:
                write = GroupWrite(hard=replica.hard, begin=replica.snapshot)
                self._log.group_wrote(number, encoded(write))
        name = number.to_bytes(8, "big")
        chosen = self._settings if number == METASTORE_GROUP else self._zone_settings
        group = Group(self.me, name, replica.log(), replica.hard, chosen)
        hosted = self.hosted[number] = HostedGroup(number, group, client)
        self.rounds.changed()
        self._touched(hosted)
        return hosted

    def halt(self, number: GroupNumber) -> None:
        """Let the replica rest, with all that it has: it says nothing, and hears nothing, until `resume`."""
        hosted = self.hosted.get(number)
        if hosted is not None:
            hosted.halted = hosted.asleep = True
            self.rounds.changed()
            self.rounds.lead_lost(number)

    def resume(self, number: GroupNumber) -> None:
        """Let a replica that rests take part again."""
        hosted = self.hosted[number]
        hosted.halted = False
        self._touched(hosted)

    def rouse(self, number: GroupNumber) -> None:
        """Its leader does not do what it was asked: a replica that sleeps here wakes up, and waits for a heartbeat as
        for long as an election takes; none comes from a leader that has stopped (multiraft/H-3).
        """
        hosted = self.hosted.get(number)
        if hosted is not None and hosted.asleep and not hosted.halted:
            self._touched(hosted)

    def peek(self, number: GroupNumber) -> RestoredGroup:
        """What was found in the files of a replica that is not started. Raises msgspec.DecodeError."""
        return regained(self._found[number])

    def stop(self, number: GroupNumber) -> None:
        """Have no replica any more: what is written down of it is void."""
        known = self.hosted.pop(number, None) is not None
        known = self._found.pop(number, None) is not None or known
        if known:
            self._log.note(Dropped(number))
        self.rounds.changed()
        self.rounds.ended(number)
        for key in [key for key in self._supplies if key[0] == number]:
            del self._supplies[key]

    # -- what is asked of them

    def lead(self, number: GroupNumber) -> NodeId | None:
        """Who leads the group, as far as is known here."""
        hosted = self.hosted.get(number)
        return hosted.group.lead if hosted is not None else None

    def member(self, node: NodeId) -> MemberId | None:
        """Which member of the view this node is."""
        return self._members.get(node)

    def term(self, number: GroupNumber) -> int | None:
        """The term in which this member leads the group; None where it does not."""
        hosted = self.hosted.get(number)
        return hosted.group.term if hosted is not None and hosted.group.leading is not None else None

    def current(self, number: GroupNumber) -> bool:
        """Whether this member leads the group, and its state has all that earlier leaders have answered."""
        hosted = self.hosted.get(number)
        if hosted is None or hosted.halted or hosted.group.leading is None:
            return False
        return hosted.group.log.applied >= hosted.group.leading.began

    def _touch(self, number: GroupNumber) -> Group:
        hosted = self.hosted.get(number)
        if hosted is None or hosted.halted:
            raise ProposalRefused("no replica of this group runs here")
        self._touched(hosted)
        return hosted.group

    def _touched(self, hosted: HostedGroup) -> None:
        """Something happens to it: it is looked at in this step, and awake (multiraft/H-3)."""
        hosted.quiet = 0
        hosted.asleep = False
        self._dirty.add(hosted.number)
        if not self._ticking:
            self._ticking = True
            self._out.timer(TimerName.GROUPS, TICK_NS)

    def propose(self, number: GroupNumber, commands: Sequence[bytes]) -> int | None:
        """Have these commands applied everywhere; answers the index of the last. Where this member does not lead they
        are passed on, and may be lost: None. Raises ProposalRefused.
        """
        return self._touch(number).propose(commands)

    def read(self, number: GroupNumber, context: bytes) -> None:
        """Ask for a read: the client is told when its state has all that was answered before. It may be lost. Raises
        ProposalRefused.
        """
        hosted = self.hosted.get(number)
        if hosted is not None and not hosted.halted and self.rounds.takes(hosted.group):
            self.rounds.ask(number, context)
        else:
            self._touch(number).read(context)

    def change_peers(
        self,
        number: GroupNumber,
        term: int,
        voters: Iterable[NodeId],
        learners: Iterable[NodeId],
        token: int,
        *,
        asks: bool = False,
    ) -> ChangeAnswer:
        """See `Group.change_peers`. Raises ProposalRefused."""
        return self._touch(number).change_peers(term, voters, learners, token, asks=asks)

    def agree_change(self, number: GroupNumber, term: int, token: int) -> bool:
        """See `Group.agree_change`. Raises ProposalRefused."""
        return self._touch(number).agree_change(term, token)

    def cancel_change(self, number: GroupNumber, term: int, token: int) -> bool:
        """See `Group.cancel_change`. Raises ProposalRefused."""
        return self._touch(number).cancel_change(term, token)

    def reset(
        self, number: GroupNumber, voters: Iterable[NodeId], token: int, *, term: int = 0
    ) -> ChangeAnswer:
        """See `Group.reset`. Raises ProposalRefused."""
        return self._touch(number).reset(voters, token, term=term)

    def transfer(self, number: GroupNumber, node: NodeId) -> None:
        """Hand leadership over. Raises ProposalRefused."""
        self._touch(number).transfer(node)

    # -- what happens

    def on_view(self, notice: ViewInstalled) -> None:
        """Who is where; groups whose leader or followers have gone or come wake up (multiraft/H-3)."""
        members = notice.new.members if notice.new is not None else []
        before, self._members = self._members, {node_of(info): info.uuid for info in members}
        self.rounds.on_view(self._members)
        changed = {
            node
            for node in before.keys() | self._members.keys()
            if before.get(node) != self._members.get(node)
        }
        for node in notice.gone | notice.came:
            changed |= {each for each, member in self._members.items() if member == node}
        if changed:
            for number in sorted(self.hosted):
                self._to_regard.setdefault(number, set()).update(changed)
            self._regard_some()
        for key in [key for key in self._supplies if key[1] in changed]:
            del self._supplies[key]

    def _regard_some(self) -> None:
        """multiraft/H-7."""
        for number in list(self._to_regard)[:GROUPS_AT_ONCE]:
            changed = self._to_regard.pop(number)
            hosted = self.hosted.get(number)
            if hosted is not None and not hosted.halted:
                self._members_changed(hosted, changed)
        self._more()

    def _more(self) -> None:
        """Whoever has not had its turn gets it in a step of its own."""
        if self._to_tick or self._to_regard or self._to_go_on:
            self._out.timer(TimerName.GROUPS_MORE, 0)

    def on_more(self) -> None:
        """The next groups get their turn: one kind of work in a step."""
        if self._to_regard:
            self._regard_some()
        elif not self._to_go_on:
            self._tick_some()

    def _members_changed(self, hosted: HostedGroup, changed: set[NodeId]) -> None:
        group = hosted.group
        if not changed & group.configuration.members:
            return
        self._touched(hosted)
        if group.leading is not None:
            for node in sorted(changed):
                group.leading.unreachable(node)
        elif group.lead in changed:
            group.forget_leader()
            here = [node for node in sorted(group.configuration.voters) if node in self._members]
            if here and here[0] == self.me:
                group.campaign()

    def on_timer(self) -> None:
        """Some time has passed, for all that are awake."""
        self._ticking = False
        self._follows = self._follows_now()
        if not self._to_tick:
            awake = sorted([each for each in self.hosted.items() if not each[1].asleep])
            self._to_tick.extend(hosted for _, hosted in awake)
        self._tick_some()

    def _tick_some(self) -> None:
        """multiraft/H-7."""
        awake = False
        for _ in range(min(len(self._to_tick), GROUPS_AT_ONCE)):
            hosted = self._to_tick.popleft()
            if hosted.asleep or self.hosted.get(hosted.number) is not hosted:
                continue
            hosted.quiet += 1
            if hosted.quiet >= SLEEP_TICKS and hosted.group.leading is not None and hosted.idle:
                self._fall_asleep(hosted)
                continue
            awake = True
            if self._follows or hosted.group.leading is not None:
                hosted.group.tick()
                self._dirty.add(hosted.number)
        self._more()
        if awake and not self._ticking:
            self._ticking = True
            self._out.timer(TimerName.GROUPS, TICK_NS)

    def _follows_now(self) -> bool:
        """Whether those that wait for a leader count this tick (multiraft/H-6)."""
        now_ns, before_ns = self._out.now_ns, self._ticked_ns
        self._ticked_ns = now_ns
        late = before_ns and now_ns - before_ns > LATE_TICKS * TICK_NS
        self._late = self._late + 1 if late else 0
        return not late or self._late % LATE_COUNTS == 0

    def _fall_asleep(self, hosted: HostedGroup) -> None:
        group = hosted.group
        hosted.asleep = True
        for node in sorted(group.configuration.members - {self.me}):
            self._asleep.setdefault(node, []).append((hosted.number, group.term, group.log.last))

    def on_messages(self, sender: MemberId, message: GroupMessages) -> None:
        """Replicas of another member have something to say."""
        for number, messages in message.groups:
            hosted = self.hosted.get(number) or self._open(number)
            if hosted is None or hosted.halted:
                continue
            for each in messages:
                self._step(hosted, each)
        for number, term, last in message.asleep:
            asleep = self.hosted.get(number)
            if asleep is not None:
                self._may_sleep(asleep, sender, term, last)

    def _open(self, number: GroupNumber) -> HostedGroup | None:
        client = self._opener.open_group(number)
        return self.start(number, Configuration(), client) if client is not None else None

    def _step(self, hosted: HostedGroup, message: RaftMessage) -> None:
        if message.to != self.me or message.kind is RaftKind.SNAPSHOT:
            return
        beat = message.kind in (RaftKind.HEARTBEAT, RaftKind.HEARTBEAT_HEARD) and not message.context
        if beat and hosted.asleep and message.term == hosted.group.term:
            return
        quiet = hosted.quiet
        self._touched(hosted)
        if beat:
            hosted.quiet = quiet
        hosted.group.step(message)

    def _may_sleep(self, hosted: HostedGroup, sender: MemberId, term: int, last: int) -> None:
        """The leader sleeps: so does who has everything."""
        group, log = hosted.group, hosted.group.log
        leader = group.lead is not None and self._members.get(group.lead) == sender
        if leader and term == group.term and log.last == last and hosted.idle:
            hosted.asleep = True

    # -- states that travel

    def _supply(self, hosted: HostedGroup, message: RaftMessage) -> None:
        """Send the state as it is now: the message names the index that is applied (multiraft/H-4)."""
        assert message.snapshot is not None and message.snapshot.index == hosted.group.log.applied, (
            "the state is as of what is applied"
        )
        supply = _Supplying(message.snapshot.index, message, hosted.client.pieces())
        self._supplies[hosted.number, message.to] = supply
        self._send_part(hosted.number, message.to, supply)

    def _send_part(self, number: GroupNumber, node: NodeId, supply: _Supplying) -> None:
        member = self._members.get(node)
        if member is not None:
            self._out.send(member, supply.part(number))

    def on_state(self, sender: MemberId, message: GroupState) -> None:
        """A part of a state has come."""
        hosted = self.hosted.get(message.group) or self._open(message.group)
        snapshot = message.snapshot.snapshot
        if hosted is None or hosted.halted or snapshot is None or message.snapshot.to != self.me:
            return
        arriving = hosted.arriving
        if message.first == 0:
            arriving = hosted.arriving = _Arriving(snapshot.index, snapshot.term)
        if arriving is None or (arriving.index, arriving.term) != (snapshot.index, snapshot.term):
            return
        if message.first != len(arriving.pieces):
            return
        arriving.pieces += message.pieces
        self._out.send(sender, GroupStateTaken(message.group, snapshot.index, len(arriving.pieces)))
        self._touched(hosted)
        if message.last:
            hosted.group.step(message.snapshot)

    def on_state_taken(self, sender: MemberId, message: GroupStateTaken) -> None:
        """The other side has a part: the next may go."""
        hosted = self.hosted.get(message.group)
        for (number, node), supply in list(self._supplies.items()):
            if (
                number == message.group
                and self._members.get(node) == sender
                and supply.index == message.index
            ):
                if hosted is None or hosted.group.leading is None:
                    del self._supplies[number, node]
                    continue
                hosted.group.leading.moved(node)
                if supply.sent == message.taken:
                    part = supply.part(number)
                    if part.pieces:
                        self._out.send(sender, part)
                    else:
                        del self._supplies[number, node]

    # -- deeds

    def flush(self) -> None:
        """The step ends: carry out what the groups want, as far as it can be done now."""
        rounds = self.rounds
        if self._to_go_on:
            self._go_on_some()
        for number in rounds.take_doubted():
            # By the answer to this it learns why.
            self._touched(self.hosted[number])
            if (leading := self.hosted[number].group.leading) is not None:
                leading.heartbeat()
        if not (self._dirty or self._asleep or rounds.dirty or rounds.ready):
            return
        for number in rounds.take_ready():
            self._answer_reads(self.hosted[number])
        while self._dirty:
            dirty, self._dirty = sorted(self._dirty), set()
            for number in dirty:
                hosted = self.hosted.get(number)
                while hosted is not None and hosted.group.has_ready:
                    self._carry_out(hosted, hosted.group.ready())
        rounds.flush()
        for node in sorted(self._outgoing.keys() | self._asleep.keys()):
            groups = self._outgoing.get(node, {})
            member = self._members.get(node)
            if member is not None:
                self._out.send(member, GroupMessages(list(groups.items()), self._asleep.get(node, [])))
        self._outgoing, self._asleep = {}, {}
        if self._batch:
            self._batch_number += 1
            batch, self._batch = self._batch, []
            self._batches[self._batch_number] = batch
            self._log.tell_when_durable(GroupsWritten(self._batch_number))

    def _carry_out(self, hosted: HostedGroup, ready: RaftReady) -> None:
        if hosted.term_seen != hosted.group.term:
            hosted.term_seen = hosted.group.term
            self.rounds.changed()
        if ready.leadership_changed:
            if hosted.group.leading is None:
                self.rounds.lead_lost(hosted.number)
            hosted.client.on_group(LeadChanged(ready.lead, ready.role, hosted.group.term))
        if ready.abandoned:
            hosted.client.restore(())
            hosted.reads.clear()
        self._write(hosted, ready)
        for message in ready.messages:
            if message.kind is RaftKind.SNAPSHOT:
                self._supply(hosted, message)
            else:
                self._say(hosted.number, message)
        for notice in ready.notices:
            hosted.client.on_group(notice)
        if ready.committed:
            self._apply(hosted, ready.committed)
        if ready.reads:
            hosted.reads += [(read.upto, read.context) for read in ready.reads]
        if hosted.reads:
            self._answer_reads(hosted)

    def _say(self, number: GroupNumber, message: RaftMessage) -> None:
        self._outgoing.setdefault(message.to, {}).setdefault(number, []).append(message)

    def _apply(self, hosted: HostedGroup, entries: Sequence[RaftEntry]) -> None:
        commands = [entry for entry in entries if entry.data]
        if commands:
            hosted.client.apply(commands)
        hosted.group.applied(entries)
        self._dirty.add(hosted.number)
        hosted.bytes_since += sum(entry.size for entry in entries)
        log = hosted.group.log
        kept = log.applied - log.base
        most = METASTORE_LOG_BYTES if hosted.number == METASTORE_GROUP else LOG_BYTES
        if kept >= 2 * LOG_ENTRIES or hosted.bytes_since >= most:
            hosted.bytes_since = 0
            log.compact(max(log.base, log.applied - min(LOG_ENTRIES, kept // 2)))

    def _answer_reads(self, hosted: HostedGroup) -> None:
        applied = hosted.group.log.applied
        ready = [context for upto, context in hosted.reads if upto <= applied]
        hosted.reads = [each for each in hosted.reads if each[0] > applied]
        for context in ready:
            hosted.client.read_ready(context)

    # -- the disk

    def _write(self, hosted: HostedGroup, ready: RaftReady) -> None:
        writing = _Writing(ready.after, ready.written)
        if ready.abandoned and self._log.on:
            self._log.group_wrote(hosted.number, encoded(GroupWrite(abandoned=True)))
        if ready.snapshot is not None:
            self._install(hosted, ready.snapshot, writing)
        if not self._log.on:
            writing.durable = True
        elif ready.must_sync or ready.entries or ready.abandoned:
            arrived = hosted.group.log.snapshot
            installing = arrived.index if arrived is not None else 0
            write = GroupWrite(ready.hard, tuple(ready.entries), installing=installing)
            self._log.group_wrote(hosted.number, encoded(write))
            self._batch.append((hosted, writing))
        else:
            writing.durable = True
        if writing.durable and not writing.ticket and not hosted.writing:
            self._told(hosted, writing)
        else:
            hosted.writing.append(writing)

    def _install(self, hosted: HostedGroup, snapshot: RaftSnapshot, writing: _Writing) -> None:
        """Hold the state that has come, and keep it before anybody hears of it (multiraft/H-4)."""
        arriving, hosted.arriving = hosted.arriving, None
        assert arriving is not None and arriving.index == snapshot.index, "its state came before it"
        hosted.client.restore(arriving.pieces)
        if self._log.on:
            writing.ticket = self._checkpoint(hosted, snapshot, arriving.pieces)
            self._checkpoints[writing.ticket] = (hosted, writing)

    def _checkpoint(self, hosted: HostedGroup, snapshot: RaftSnapshot, pieces: Iterable[bytes]) -> int:
        log = hosted.group.log
        entries = log.entries_from(snapshot.index + 1) if snapshot.index < log.last else ()
        head = encoded(GroupHead(hosted.group.hard, snapshot, entries))
        taken = MapSnapshot(PIECES, [], b"", [], [head, *pieces])
        taken.keys.extend(place.to_bytes(8, "big") for place in range(len(taken.values)))
        return self._log.checkpoint(Snapshot(hosted.number, 0, [taken], b"", self._out.wall_ms()))

    def write_out(self, number: GroupNumber) -> None:
        """Write a replica out, so that older parts of the journal are not needed any more."""
        hosted = self.hosted.get(number)
        if hosted is None or hosted.group.log.snapshot is not None:
            return
        log = hosted.group.log
        at = log.applied
        snapshot = RaftSnapshot(at, log.term(at), log.configuration_at(at))
        self._checkpoint(hosted, snapshot, hosted.client.pieces())

    def on_written(self, notice: GroupsWritten) -> None:
        """A batch is durable (multiraft/H-1)."""
        for hosted, writing in self._batches.pop(notice.batch):
            writing.durable = True
            self._to_go_on.append(hosted)

    def _go_on_some(self) -> None:
        """multiraft/H-7."""
        for _ in range(min(len(self._to_go_on), GROUPS_AT_ONCE)):
            self._go_on(self._to_go_on.popleft())
        self._more()

    def on_checkpoint(self, notice: CheckpointEnded) -> None:
        """A state that was installed is durable; or there was no room, and it is tried again."""
        found = self._checkpoints.pop(notice.ticket, None)
        if found is None:
            return
        hosted, writing = found
        if notice.well:
            writing.ticket = 0
            self._go_on(hosted)
        elif self.hosted.get(hosted.number) is hosted:
            log = hosted.group.log
            snapshot = log.snapshot
            assert snapshot is not None, "it is not installed before it is durable"
            writing.ticket = self._checkpoint(hosted, snapshot, hosted.client.pieces())
            self._checkpoints[writing.ticket] = (hosted, writing)

    def _go_on(self, hosted: HostedGroup) -> None:
        """Say what may be said now: in the order in which it was written."""
        if self.hosted.get(hosted.number) is not hosted:
            return
        while hosted.writing and hosted.writing[0].durable and not hosted.writing[0].ticket:
            self._told(hosted, hosted.writing.popleft())

    def _told(self, hosted: HostedGroup, writing: _Writing) -> None:
        if writing.written is not None:
            hosted.group.written(writing.written)
        for message in writing.after:
            if message.to == self.me:
                hosted.group.step(message)
            else:
                self._say(hosted.number, message)
        self._dirty.add(hosted.number)

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        return {
            "groups not written": sum(len(hosted.writing) for hosted in self.hosted.values()),
            "reads of groups": sum(len(hosted.reads) for hosted in self.hosted.values())
            + self.rounds.leftovers,
            "states of groups on their way": len(self._supplies),
        }


def node_of(info: MemberInfo) -> NodeId:
    """Which node of groups a member is."""
    return info.store or info.uuid
