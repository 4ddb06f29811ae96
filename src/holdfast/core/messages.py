"""Every message between members. On the wire each is a number and its fields; nothing is executable."""

from __future__ import annotations

import msgspec

from holdfast.core.model.baseline import Baseline
from holdfast.core.model.ids import GroupNumber, MemberId
from holdfast.core.model.levels import LOWEST
from holdfast.core.model.map_changes import MapChanges
from holdfast.core.model.map_moves import MovePhase
from holdfast.core.model.metastore_founding import MetastoreFounding
from holdfast.core.model.migration import Migration
from holdfast.core.model.operations import EntryEvent, Outcome, Request
from holdfast.core.model.partition_events import News
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Puts, Record, after_wait, rest_of
from holdfast.core.model.sync_request import Demand, How
from holdfast.core.model.views import ClusterState, FilesGone, FilesSeen, Intent, MemberInfo, Room, View
from holdfast.core.raft.raft_messages import RaftMessage

Ballot = tuple[int, str]
"""Round and proposer; compared as a pair, greater wins."""


class JoinRequest(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A process, or a member that was removed although alive, asks for admission."""

    info: MemberInfo
    cluster: str
    shared: dict[str, str]
    """All members must share these settings."""
    cluster_id: str = ""
    """The cluster whose data it holds."""
    stores: dict[str, FilesSeen] = {}
    """Files of all members of that cluster, as its own files know them."""
    baseline: Baseline | None = None
    """The baseline of that cluster, with its history."""
    level: int = LOWEST
    """In force in that cluster, as far as the sender knows."""
    maps: MapChanges = MapChanges()
    """Changed at run time there, as far as it knows."""
    metastore: MetastoreFounding | None = None
    """The founding of the metastore there, as far as it knows."""
    gone: FilesGone | None = None
    """Former members there; None: not known, because the sender's last view is that of a recovering cluster."""


class JoinAnswer(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """`idle`: the sender is in no cluster either. Otherwise `refusal` is the reason for the rejection."""

    uuid: MemberId
    idle: bool
    refusal: str = ""
    host: str = ""
    port: int = 0
    ending: bool = False
    """The cluster is being shut down: its former members may end."""
    cluster_id: str = ""
    """The cluster that the sender is in; if idle: the one whose data its files hold. Older builds leave it empty unless
    they are idle.
    """
    asker: MemberId = MemberId("")
    """The receiver; another process may have its address by now."""
    evicted: bool = False
    """The receiver ends, because no member admits it again."""


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Sign of life, with the sender's view, suspects, intent, and whether it has accepted a next view (`sealed`)."""

    uuid: MemberId
    life: int
    view: int
    suspects: list[MemberId] = []
    wish: Intent = Intent.NONE
    wish_number: int = 0
    sealed: bool = False
    safe: bool = False
    """The sender sees no data at risk."""
    applied: int = 0
    """The last round of this view that the sender has applied."""
    known: int = 0
    """From the master: the last round that every member has applied."""
    full: bool = False
    """Writes that the sender would have to keep are rejected."""
    reached: int = 0
    """The last durable block of the sender's journal."""
    room: Room = Room.PLENTY


class ViewDecided(msgspec.Struct, frozen=True, array_like=True, tag=4):
    view: View
    rows: list[tuple[int, Assignment]] = []
    """Newest assignments of the members that agreed to the view."""


class Prepare(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Phase 1 of the agreement on the view after `view`."""

    view: int
    ballot: Ballot


class Promise(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The sender accepts nothing below `ballot`; with what it has accepted so far."""

    view: int
    ballot: Ballot
    accepted_ballot: Ballot | None
    accepted: View | None


class Accept(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Phase 2: accept this next view."""

    view: int
    ballot: Ballot
    value: View


class Accepted(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The sender has accepted the view and stores no more tables of the old one; with the newest assignments
    that it knows.
    """

    view: int
    ballot: Ballot
    rows: list[tuple[int, Assignment]] = []


class Declined(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """The sender has promised a higher ballot, or does not suspect the members that should propose first."""

    view: int
    ballot: Ballot
    promised: Ballot


class TableOffer(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The master asks to store these assignments; rounds up to `committed` may be applied."""

    view: int
    round: int
    committed: int
    rows: list[tuple[int, Assignment]]
    news: list[News] = []
    """Published when the assignments are applied."""


class TableStored(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Stored, not yet applied."""

    view: int
    round: int


class TableCommit(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Rounds up to this one are committed."""

    view: int
    round: int


class TableFetch(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """A new master asks for the newest known assignments."""

    view: int


class TableReport(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The newest assignment known for each partition, and the migrations in which the sender is the primary."""

    view: int
    rows: list[tuple[int, Assignment]]
    active: list[tuple[Migration, int]]
    """With the version of the assignment from which each starts."""
    news: list[News] = []
    """The sender has published them and another member may lack them."""
    offered: list[News] = []
    """News of rounds that it has not applied."""


class TableCheck(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """The stamp of the master's table after this round."""

    view: int
    round: int
    stamp: int


class TableDiffers(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """The sender's table has another stamp after that round: it needs the whole table."""

    view: int
    round: int
    stamp: int


class StateWanted(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """To the master: the operator wants this cluster state, or the end of the cluster."""

    view: int
    state: ClusterState
    ending: bool = False


class BaselineWanted(msgspec.Struct, frozen=True, array_like=True, tag=66):
    """To the master: the operator wants exactly these members to own data, if nothing has changed since
    `after`.
    """

    view: int
    after: str
    """The end of the history that the operator has seen; empty: there was no baseline."""
    members: list[str]
    adjust_ms: int


class LevelWanted(msgspec.Struct, frozen=True, array_like=True, tag=67):
    """To the master: the operator wants this feature level in force, if all members support it."""

    view: int
    level: int


class MetastoreWanted(msgspec.Struct, frozen=True, array_like=True, tag=73):
    """To the master: the operator wants a metastore with so many voters."""

    view: int
    voters: int


class MapChangeWanted(msgspec.Struct, frozen=True, array_like=True, tag=69):
    """To the master: the operator wants these settings of a map, if nothing has changed since version `after`."""

    view: int
    after: int
    ticket: int
    """At the member of the operator; the same in each repetition."""
    origin: MemberId
    """The operator's member, which is notified of a rejection."""
    name: str
    values: dict[str, int]
    to: str | None = None
    """The zone to move to, empty: out of zones; None: the map does not move."""
    cancels: bool = False
    resets: bool = False
    """Whether its settings are to be those of the configuration: `values`, as the sender has them."""


class MapChangeAsked(msgspec.Struct, frozen=True, array_like=True, tag=70):
    """To all members: can this change of a map be accepted?"""

    view: int
    after: int
    name: str
    values: dict[str, int]
    to: str | None = None
    cancels: bool = False
    resets: bool = False


class MapChangeJudged(msgspec.Struct, frozen=True, array_like=True, tag=71):
    """To the master: the reason why the sender rejects the change; empty: it accepts."""

    view: int
    after: int
    why: str


class MapChangeRefused(msgspec.Struct, frozen=True, array_like=True, tag=72):
    """To the operator's member: the reason why nothing was changed."""

    ticket: int
    why: str


class MapMoveReport(msgspec.Struct, frozen=True, array_like=True, tag=75):
    """To the master, repeated during a move: how far this member is in the present phase (map_moves/V-2)."""

    view: int
    name: str
    number: int
    phase: MovePhase
    round: int
    source: list[int]
    """Partitions that it leads in the source, and which have done what the phase wants."""
    target: list[int]
    """The same in the target."""
    problem: str
    """Why the move cannot continue; empty: it can."""


class EvictMembersWithoutMajority(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """To all: the operator evicts these silent members although the rest is no majority."""

    view: int
    members: list[MemberId]


class EvictMembers(msgspec.Struct, frozen=True, array_like=True, tag=68):
    """To all: the operator evicts these members. A receiver without their heartbeats suspects them at once."""

    view: int
    members: list[MemberId]


class RetainedCopy(msgspec.Struct, frozen=True, array_like=True):
    """A copy of a partition on a member that no assignment names any more."""

    partition: int
    epoch: int
    counters: list[tuple[str, int, int]]
    """Map, low watermark and its term."""
    whole: bool
    """The copy provably lacks nothing that the member once held."""


class Holdings(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """To a new master: copies and knowledge from before the sender joined or returned."""

    view: int
    seen: View | None
    """Its last one."""
    stores: dict[MemberId, str]
    """Files of the members of its views."""
    rows: list[tuple[int, Assignment]]
    """Assignments that it had applied."""
    kept: list[RetainedCopy]


class AcceptLoss(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """To the master: the operator accepts the loss of what missing members or files hold."""

    view: int


class ResetLost(msgspec.Struct, frozen=True, array_like=True, tag=59):
    """To the master: the operator lets these maps continue with what is left of these partitions."""

    view: int
    partitions: list[int]
    maps: list[str]


class MigrationRequest(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Master to primary: fill the destination with everything that the new assignment requires."""

    view: int
    migration: Migration
    version: int


class MigrationReady(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Primary to master: the destination holds everything; if the primary changes, writes have stopped."""

    view: int
    partition: int
    version: int


class MigrationRefused(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Primary to master: not started, with the reason."""

    view: int
    partition: int
    version: int
    why: str


class Section(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Records of one partition at one version, all of the primary of one term."""

    partition: int
    version: int
    records: list[Record]
    term: int = 0
    puts: list[Puts] = []
    """Maps to which only plain entries were added; `records` has nothing of these maps."""

    def all_records(self) -> list[Record]:
        """Single records."""
        return [*self.records, *(record for puts in self.puts for record in puts.records())]

    def after_wait(self, waited_ns: int) -> Section:
        if not any(record.ttl_ms for record in self.records):
            return self
        records = [after_wait(record, waited_ns) for record in self.records]
        return msgspec.structs.replace(self, records=records)


class Ack(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A client that the backup itself notifies when it holds the records of these partitions."""

    client: bytes
    correlations: list[int]
    """The client's ids of its requests."""
    partitions: list[int]


class Replicate(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """The records of a batch; or, sent again, those of several open batches."""

    batches: list[int]
    sections: list[Section]
    acks: list[Ack] = []


class Replicated(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """The sender holds the records of these partitions in these batches. Others were not accepted (yet)."""

    batches: list[int]
    partitions: list[int]
    unkept: list[tuple[int, str, bytes, int]] = []
    """Cuts among these records that this member could not keep, because its copy was filled past them: partition, map,
    id of the cut, update counter.
    """


class Enlist(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """A new primary asks for confirmation: partition, version, and for each map the low watermark and its term."""

    partitions: list[tuple[int, int, list[tuple[str, int, int]]]]


class Enlisted(msgspec.Struct, frozen=True, array_like=True, tag=33):
    """The sender knows the receiver as primary at this version; and whether its counters are equal."""

    partitions: list[tuple[int, int, bool]]


class FillEntries(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Entries of one map in a chunk: packed, or as columns of one length. A column of numbers is empty if all are 0."""

    map: str
    counter: int
    """Update counter of the map when the entries were read."""
    keys: list[bytes] = []
    values: list[bytes] = []
    ttls_ms: list[int] = []
    """Remaining."""
    max_idles_ms: list[int] = []
    key_hashes: list[int] = []
    lineage: list[tuple[int, int]] = []
    """In the last chunk: the terms of the map's updates."""
    sizes: bytes = b""
    """As in `Puts`, without expiry and hash words."""
    data: bytes = b""

    def packed(self) -> Puts:
        """They are not updates and have no numbers."""
        return Puts(self.map, 0, self.sizes, self.data)

    def after_wait(self, waited_ns: int) -> FillEntries:
        ttls_ms = [rest_of(ttl_ms, waited_ns) for ttl_ms in self.ttls_ms]
        return msgspec.structs.replace(self, ttls_ms=ttls_ms) if ttls_ms else self


class FillShare(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Pieces of a service's share in a chunk."""

    service: str
    counter: int
    """Update counter of the share when its pieces, in all chunks, were read."""
    pieces: list[bytes]
    whole: bool
    """The last pieces of the share."""
    lineage: list[tuple[int, int]] = []
    """With the last pieces: the terms of the share's updates."""


class FillPlan(msgspec.Struct, frozen=True, array_like=True):
    """How a supply fills one map."""

    map: str
    how: How
    counter: int
    """The update counter at which the content begins: earlier updates are in the content, or obsolete. Without content:
    updates up to it are sent, or are in the base.
    """
    ranges: list[int] = []
    """Sent in full, when not all key ranges are."""


class FillRecords(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Updates of one map that the receiver has missed, in the order of the counter."""

    map: str
    runs: list[tuple[int, int]]
    """Term and number of records, in order."""
    records: list[Record]

    def after_wait(self, waited_ns: int) -> FillRecords:
        records = [after_wait(record, waited_ns) for record in self.records]
        return msgspec.structs.replace(self, records=records)


class Fill(msgspec.Struct, frozen=True, array_like=True, tag=34):
    """A chunk of a partition's content, for a replica that is being filled."""

    partition: int
    version: int
    ticket: int
    sequence: int
    last: bool
    epoch: int
    joining: bool
    """True for the destination of a migration, False for a replica of the assignment."""
    index: int
    """The replica index that the receiver will have, or has."""
    maps: list[FillEntries]
    shares: list[FillShare] = []
    plans: list[FillPlan] = []
    """In the first chunk after the empty one; unnamed maps are sent in full."""
    records: list[FillRecords] = []
    compare: bool = False
    """In the empty chunk: report digests of the content."""
    requests: bytes = b""
    """In the last chunk: recently applied ones (`Remembered.encode`)."""
    earlier: list[FillRecords] = []
    """For maps with change streams: updates whose effect is in the content, or in the receiver's base."""
    paused_ns: int = 0
    """In the last chunk: for how long the partition has accepted no writes."""

    def after_wait(self, waited_ns: int) -> Fill:
        maps = [part.after_wait(waited_ns) for part in self.maps]
        records = [part.after_wait(waited_ns) for part in self.records]
        return msgspec.structs.replace(self, maps=maps, records=records)


class Filled(msgspec.Struct, frozen=True, array_like=True, tag=35):
    """Chunk `sequence` of the supply `ticket` is held."""

    partition: int
    version: int
    ticket: int
    sequence: int
    demand: Demand | None = None
    """With the empty chunk: the receiver's base."""


class FillRefused(msgspec.Struct, frozen=True, array_like=True, tag=36):
    """The supply `ticket` is rejected; no more chunks are wanted."""

    partition: int
    version: int
    ticket: int
    why: str


class FillEnded(msgspec.Struct, frozen=True, array_like=True, tag=39):
    """The primary aborts the supply `ticket`; no more chunks come, and no assignment has to change."""

    partition: int
    version: int
    ticket: int
    why: str


class Summed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Counter, term and digest of one map or service of a primary."""

    name: str
    counter: int
    term: int
    digest: int


class Summary(msgspec.Struct, frozen=True, array_like=True, tag=37):
    """The content that a backup should have after all earlier records."""

    partition: int
    version: int
    maps: list[Summed]
    """Every map that this backup should hold; others are gone."""
    services: list[Summed] = []


class RepairWanted(msgspec.Struct, frozen=True, array_like=True, tag=38):
    """The sender's copy of this partition is wrong or incomplete."""

    partition: int
    version: int
    why: str
    content: bool = True
    """Its content may be wrong, rather than only updates missing."""


class ForgottenMap(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A map that the primary of a partition, at this version, has forgotten: it was empty at this counter and term."""

    partition: int
    version: int
    map: str
    counter: int
    term: int


class ForgetMaps(msgspec.Struct, frozen=True, array_like=True, tag=45):
    """The sender has forgotten these maps; the receiver need not keep them."""

    maps: list[ForgottenMap]


class Forward(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """A request for partitions that the receiver should serve."""

    ticket: int
    request: Request


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """The outcome, and the partitions that the sender did not serve: send them elsewhere."""

    ticket: int
    outcome: Outcome
    missed: list[int]


class MessageBatch(msgspec.Struct, frozen=True, array_like=True, tag=76):
    """Several messages, each as if it had come alone (engine/M-1)."""

    messages: list[Replicate | Replicated | Forward | Answer]


class Withdrawals(msgspec.Struct, frozen=True, array_like=True, tag=78):
    """The clients of these forwarded requests have gone: those that wait for a change are to be answered at once
    (routing/R-21). Requests that do not wait are answered as ever.
    """

    tickets: list[int]


class ClientsAsked(msgspec.Struct, frozen=True, array_like=True, tag=86):
    """Which of these clients are connected to the receiver? They have locks at the sender (primary_backup/K-1)."""

    round: int
    clients: list[bytes]


class ClientsConnected(msgspec.Struct, frozen=True, array_like=True, tag=87):
    """The clients of a question that are connected to the sender."""

    round: int
    clients: list[bytes]


class ForwardFrames(msgspec.Struct, frozen=True, array_like=True, tag=64):
    """Requests for entries of partitions that the receiver should serve, as clients sent them."""

    ticket: int
    first: int
    """Number in the id of the first request; the others follow. 0: they have no ids."""
    parts: list[tuple[int, bytes]]
    """For each read buffer the number of requests, and their frames."""
    heard: int = 0
    """Number of the last `FramesAnswer` that the sender has received from the receiver (routing/R-16)."""


class FramesAnswer(msgspec.Struct, frozen=True, array_like=True, tag=65):
    """Responses to some parts of a `ForwardFrames`; another message may answer the others later."""

    ticket: int
    number: int
    """The sender counts its answers."""
    parts: list[tuple[int, bytes, bytes, list[int]]]
    """Place of the part, its responses, withheld responses, and the places of requests that were not executed."""
    unknown: str = ""
    """Why the outcome of the requests with withheld responses is unknown."""


class Subscribe(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """Begin, or stop, sending the entry events of this map to the sender."""

    map: str
    wanted: bool
    relayed: bool = False
    """For near caches of clients of the sender: only what leaders of zones change in its partitions (streams/E-1)."""


class Events(msgspec.Struct, frozen=True, array_like=True, tag=43):
    events: list[EntryEvent]


class Collecting(msgspec.Struct, frozen=True, array_like=True, tag=44):
    """Clients that have registered with the sender, or left, and that it can notify as a backup."""

    added: list[bytes]
    removed: list[bytes]


class GroupMessages(msgspec.Struct, frozen=True, array_like=True, tag=50):
    """Raft messages from replicas of one member to those of another, in one step."""

    groups: list[tuple[GroupNumber, list[RaftMessage]]]
    asleep: list[tuple[GroupNumber, int, int]] = []
    """Idle groups that the sender leads, with term and last index: a replica with the whole log need not wait for
    heartbeats.
    """


class GroupState(msgspec.Struct, frozen=True, array_like=True, tag=51):
    """Part of the state of a group, for a replica whose log ends before the leader's begins."""

    group: GroupNumber
    snapshot: RaftMessage
    """Given to the replica when all parts have arrived."""
    first: int
    pieces: list[bytes]
    last: bool


class GroupStateTaken(msgspec.Struct, frozen=True, array_like=True, tag=52):
    """So many pieces of the state at this index have arrived: send the next."""

    group: GroupNumber
    index: int
    taken: int


class GroupStateWanted(msgspec.Struct, frozen=True, array_like=True, tag=74):
    """The sender's replica of this group differs from others: send it the leader's state, from the beginning."""

    group: GroupNumber


class ZoneLeaders(msgspec.Struct, frozen=True, array_like=True, tag=53):
    """The sender leads these groups since these terms: requests may be forwarded to it."""

    groups: list[tuple[GroupNumber, int]]


class ZoneForward(msgspec.Struct, frozen=True, array_like=True, tag=58):
    """A request for one partition of a zone; the receiver may take it only as leader of this term."""

    ticket: int
    request: Request
    term: int


class LeadAsked(msgspec.Struct, frozen=True, array_like=True, tag=56):
    """The sender reads from groups that it leads, and asks for confirmation."""

    round: int
    groups: list[tuple[GroupNumber, int]]
    """With the leader's term; not confirmed yet by the receiver in its present `standing`."""


class LeadConfirmed(msgspec.Struct, frozen=True, array_like=True, tag=57):
    """The answer: the sender knows no higher term of these groups."""

    round: int
    standing: int
    """Grows whenever one of the sender's replicas follows another leader."""
    groups: list[GroupNumber]


class ZoneStatesAsked(msgspec.Struct, frozen=True, array_like=True, tag=54):
    """Asks for the states of the receiver's replicas of this zone."""

    zone: int


class ZoneStates(msgspec.Struct, frozen=True, array_like=True, tag=55):
    """The sender's replicas of a zone: partition, state, last index of the log, whether it is a learner."""

    zone: int
    replicas: list[tuple[int, str, int, bool]]
    configurations: list[tuple[int, list[str], list[str], int]] = []
    """Known to its replicas: partition, voters, old voters of a joint one, token."""


class LocksAwaited(msgspec.Struct, frozen=True, array_like=True, tag=63):
    """All present lock waits at the sender, for the master, which looks for deadlocks."""

    waits: list[tuple[bytes, MemberId, bytes]]
    """Waiting transaction, its coordinator, and the holder of the lock."""


class DeadlockFound(msgspec.Struct, frozen=True, array_like=True, tag=60):
    """A deadlock was found: roll back this transaction of the receiver."""

    transaction: bytes
    others: list[bytes]


class OwnersAsked(msgspec.Struct, frozen=True, array_like=True, tag=61):
    """The sender keeps locks or branches of these transactions: does the receiver still coordinate them?"""

    transactions: list[bytes]


class OwnersGone(msgspec.Struct, frozen=True, array_like=True, tag=62):
    """The answer: the sender does not coordinate these."""

    transactions: list[bytes]


Message = (
    JoinRequest
    | JoinAnswer
    | Heartbeat
    | ViewDecided
    | Prepare
    | Promise
    | Accept
    | Accepted
    | Declined
    | TableOffer
    | TableStored
    | TableCommit
    | TableFetch
    | TableReport
    | TableCheck
    | TableDiffers
    | StateWanted
    | BaselineWanted
    | LevelWanted
    | MetastoreWanted
    | MapChangeWanted
    | MapChangeAsked
    | MapChangeJudged
    | MapChangeRefused
    | MapMoveReport
    | EvictMembersWithoutMajority
    | EvictMembers
    | Holdings
    | AcceptLoss
    | ResetLost
    | MigrationRequest
    | MigrationReady
    | MigrationRefused
    | Replicate
    | Replicated
    | Enlist
    | Enlisted
    | Fill
    | Filled
    | FillRefused
    | FillEnded
    | Summary
    | RepairWanted
    | ForgetMaps
    | Forward
    | Answer
    | MessageBatch
    | Withdrawals
    | ClientsAsked
    | ClientsConnected
    | ForwardFrames
    | FramesAnswer
    | Subscribe
    | Events
    | Collecting
    | GroupMessages
    | GroupState
    | GroupStateTaken
    | GroupStateWanted
    | ZoneLeaders
    | ZoneForward
    | LeadAsked
    | LeadConfirmed
    | ZoneStatesAsked
    | ZoneStates
    | LocksAwaited
    | DeadlockFound
    | OwnersAsked
    | OwnersGone
)
