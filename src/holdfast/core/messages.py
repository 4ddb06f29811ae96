"""Every message between members: the vocabulary. Each is a number and its fields on the wire; nothing executable."""

from __future__ import annotations

import msgspec

from holdfast.core.model.baseline import Baseline
from holdfast.core.model.ids import GroupNumber, MemberId
from holdfast.core.model.levels import LOWEST
from holdfast.core.model.migration import Migration
from holdfast.core.model.operations import EntryEvent, Outcome, Request
from holdfast.core.model.partition_events import News
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Puts, Record
from holdfast.core.model.sync_request import Demand, How
from holdfast.core.model.views import ClusterState, FilesSeen, Intent, MemberInfo, Room, View
from holdfast.core.raft.raft_messages import RaftMessage

Ballot = tuple[int, str]
"""Round and proposer; greater ones win."""


class JoinRequest(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A stranger (or a member that was removed though alive) asks to be admitted."""

    info: MemberInfo
    cluster: str
    shared: dict[str, str]
    """The settings that all members must share."""
    cluster_id: str = ""
    """The cluster it belonged to before, if it still holds data of it."""
    stores: dict[str, FilesSeen] = {}
    """What its own files know of those of all members of that cluster."""
    baseline: Baseline | None = None
    """Who owned data in that cluster, and the history of that."""
    level: int = LOWEST
    """The feature level that was in force there, as far as it knows."""


class JoinAnswer(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """`idle`: this process is in no cluster either. Else the reason for which the caller is refused."""

    uuid: MemberId
    idle: bool
    refusal: str = ""
    host: str = ""
    port: int = 0
    ending: bool = False
    """The cluster is being shut down: who belonged to it may end."""
    cluster_id: str = ""
    """If idle: the cluster whose data it has found in its files."""
    asker: MemberId = MemberId("")
    """Whom this answers: another process may have its address by now."""
    evicted: bool = False
    """The operator has evicted the caller: it ends, for no member admits it again."""


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """I am alive, in this view; whom I suspect; what I want to become; whether I have agreed to a next view."""

    uuid: MemberId
    life: int
    view: int
    suspects: list[MemberId] = []
    wish: Intent = Intent.NONE
    wish_number: int = 0
    """Which of the sender's wishes this is: heartbeats may arrive out of order."""
    sealed: bool = False
    safe: bool = False
    """Whether the sender sees nothing that a crash could cost."""
    applied: int = 0
    """The last round of this view that the sender has applied."""
    known: int = 0
    """Of the master: every member has applied the rounds up to this one."""
    full: bool = False
    """Whether the sender's disk is full: writes that it would have to keep are refused."""
    reached: int = 0
    """Up to which block the sender's journal is durable."""
    room: Room = Room.PLENTY
    """How much room the sender has left in its memory."""


class ViewDecided(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """This view is agreed."""

    view: View
    rows: list[tuple[int, Assignment]] = []
    """The newest rows of those who agreed to the view."""


class Prepare(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Phase 1 of the agreement on the view after `view`."""

    view: int
    ballot: Ballot


class Promise(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """I accept nothing below `ballot`; what I have accepted so far."""

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
    """I have accepted it, and store no further table of the old view; these are the newest rows I know."""

    view: int
    ballot: Ballot
    rows: list[tuple[int, Assignment]] = []


class Declined(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """I have promised a higher ballot, or do not suspect the members that should propose before you."""

    view: int
    ballot: Ballot
    promised: Ballot


class TableOffer(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The master asks to store these rows; rounds up to `committed` may be applied."""

    view: int
    round: int
    committed: int
    rows: list[tuple[int, Assignment]]
    news: list[News] = []
    """What has happened with these rows; told when they are applied."""


class TableStored(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Stored, not yet applied."""

    view: int
    round: int


class TableCommit(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Rounds up to this one are the table now."""

    view: int
    round: int


class TableFetch(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """A new master asks for the newest rows that you know."""

    view: int


class TableReport(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The newest row known for each partition, and the migrations in which the sender is the primary."""

    view: int
    rows: list[tuple[int, Assignment]]
    active: list[tuple[Migration, int]]
    """Migration and the version of the row that it starts from."""
    news: list[News] = []
    """News that the sender has told, and somebody may not have heard yet."""
    offered: list[News] = []
    """News of rounds that it has not applied."""


class TableCheck(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """The master's table after this round has this stamp."""

    view: int
    round: int
    stamp: int


class TableDiffers(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Mine has another stamp after that round: send me the whole table."""

    view: int
    round: int
    stamp: int


class StateWanted(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """To the master: the operator wants the cluster in this state, or to end."""

    view: int
    state: ClusterState
    ending: bool = False


class BaselineWanted(msgspec.Struct, frozen=True, array_like=True, tag=66):
    """To the master: the operator wants just these members to own data, if nothing has changed since."""

    view: int
    after: str
    """The end of the history that was seen; empty: there was no baseline."""
    members: list[str]
    """By consistent id."""
    adjust_ms: int


class LevelWanted(msgspec.Struct, frozen=True, array_like=True, tag=67):
    """To the master: the operator wants this feature level in force, if all members can do it."""

    view: int
    level: int


class EvictMembersWithoutMajority(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """To all: the operator evicts these silent members although the rest is no majority."""

    view: int
    members: list[MemberId]


class EvictMembers(msgspec.Struct, frozen=True, array_like=True, tag=68):
    """To all: the operator evicts these members. A member that hears nothing of them suspects them at once."""

    view: int
    members: list[MemberId]


class RetainedCopy(msgspec.Struct, frozen=True, array_like=True):
    """A copy that a member has of a partition that no row gives to it (any more)."""

    partition: int
    epoch: int
    counters: list[tuple[str, int, int]]
    """Map, low watermark, and its term."""
    whole: bool
    """Whether it is proven that nothing is missing of what the member once held."""


class Holdings(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """To a new master: what this member has kept, and knows, of the time before it came (back)."""

    view: int
    seen: View | None
    """The last view that it was in before."""
    stores: dict[MemberId, str]
    """Which files the members of its views had."""
    rows: list[tuple[int, Assignment]]
    """The rows that it had applied."""
    kept: list[RetainedCopy]


class AcceptLoss(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """To the master: the operator does not want to wait for members, or parts of files, that are missing."""

    view: int


class ResetLost(msgspec.Struct, frozen=True, array_like=True, tag=59):
    """To the master: the operator lets these maps use what there is of these partitions, which are lost."""

    view: int
    partitions: list[int]
    maps: list[str]
    """By the names under which they are configured."""


class MigrationRequest(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Master to primary: bring the destination to hold what the new row wants it to hold."""

    view: int
    migration: Migration
    version: int


class MigrationReady(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Primary to master: the destination holds everything, and (if the primary changes) writes stand still."""

    view: int
    partition: int
    version: int


class MigrationRefused(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Primary to master: not started, and why."""

    view: int
    partition: int
    version: int
    why: str


class Section(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Records of one partition at one version, all made by the primary of one term."""

    partition: int
    version: int
    records: list[Record]
    term: int = 0
    puts: list[Puts] = []
    """What is said of maps to which only ordinary entries were added: of these maps `records` says nothing."""

    def told(self) -> list[Record]:
        """All that it says, one by one."""
        return [*self.records, *(record for puts in self.puts for record in puts.records())]


class Ack(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A client that wants to be told by the backup itself when it holds the records of these partitions."""

    client: bytes
    correlations: list[int]
    """The ids by which the client knows its requests."""
    partitions: list[int]


class Replicate(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """The records of a batch; or, sent again, those of several batches that are not finished yet."""

    batches: list[int]
    sections: list[Section]
    acks: list[Ack] = []


class Replicated(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """The records of these partitions of the batches are held. What is not named was not accepted (yet)."""

    batches: list[int]
    partitions: list[int]
    unkept: list[tuple[int, str, bytes, int]] = []
    """Cuts among these records that this member could not keep, because its copy was filled past them: partition, map,
    id of the cut, update counter."""


class Enlist(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """A primary that wants to serve: partition, version, and of each map the low watermark and its term."""

    partitions: list[tuple[int, int, list[tuple[str, int, int]]]]


class Enlisted(msgspec.Struct, frozen=True, array_like=True, tag=33):
    """I know you as primary at this version; whether my counters equal yours."""

    partitions: list[tuple[int, int, bool]]


class FillEntries(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Entries of one map in a chunk: packed, or as columns of one length, of which the three of numbers are empty when
    they hold only zeros.
    """

    map: str
    counter: int
    """The update counter at which the entries were as they are here."""
    keys: list[bytes] = []
    values: list[bytes] = []
    ttls_ms: list[int] = []
    """What is left of their times to live."""
    max_idles_ms: list[int] = []
    key_hashes: list[int] = []
    lineage: list[tuple[int, int]] = []
    """In the last chunk: the terms of the map's updates."""
    sizes: bytes = b""
    """Of entries that are packed, and neither end nor carry a hash: as in `Puts`,"""
    data: bytes = b""
    """and so is this."""

    def packed(self) -> Puts:
        """Those that are packed. They are no updates, so they have no numbers."""
        return Puts(self.map, 0, self.sizes, self.data)


class FillShare(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Pieces of a service's share in a chunk."""

    service: str
    counter: int
    """The update counter at which the share was as the pieces of all chunks together say."""
    pieces: list[bytes]
    whole: bool
    """Whether these are the last pieces of the share."""
    lineage: list[tuple[int, int]] = []
    """With the last pieces: the terms of the share's updates."""


class FillPlan(msgspec.Struct, frozen=True, array_like=True):
    """What a supply sends of one map."""

    map: str
    how: How
    counter: int
    """The update counter at which the content begins: what was recorded up to it is in the content, or over. Without
    content: the updates up to it are sent, or in the base."""
    ranges: list[int] = []
    """Key ranges that are sent whole, when not all are."""


class FillRecords(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Updates of one map that the receiver has missed, in the order of the counter."""

    map: str
    runs: list[tuple[int, int]]
    """Their terms, each with the number of records that are of it."""
    records: list[Record]


class Fill(msgspec.Struct, frozen=True, array_like=True, tag=34):
    """A chunk of a partition's content, supplied to a replica that is being filled."""

    partition: int
    version: int
    ticket: int
    sequence: int
    last: bool
    epoch: int
    joining: bool
    """True for the destination of a migration, False for a replica of the row that is brought up to date."""
    index: int
    """The replica index that the receiver will have, or has."""
    maps: list[FillEntries]
    shares: list[FillShare] = []
    plans: list[FillPlan] = []
    """In the first chunk after the empty one: what is sent of each map. Of a map that is not named: everything."""
    records: list[FillRecords] = []
    compare: bool = False
    """In the empty chunk: whether the receiver is to tell the digests of what it has."""
    requests: bytes = b""
    """In the last chunk: the requests that were applied not long ago (`Remembered.encode`)."""
    earlier: list[FillRecords] = []
    """Of maps with change streams: updates that the content, or what the receiver has of it, tells the outcome of."""


class Filled(msgspec.Struct, frozen=True, array_like=True, tag=35):
    """Chunk `sequence` of the supply `ticket` is held."""

    partition: int
    version: int
    ticket: int
    sequence: int
    demand: Demand | None = None
    """With the empty chunk: what the receiver has to begin with."""


class FillRefused(msgspec.Struct, frozen=True, array_like=True, tag=36):
    """The supply `ticket` is not taken, and why; nothing more of it is to come."""

    partition: int
    version: int
    ticket: int
    why: str


class FillEnded(msgspec.Struct, frozen=True, array_like=True, tag=39):
    """The primary gives the supply `ticket` up, and why; nothing more of it is to come, and no row need change."""

    partition: int
    version: int
    ticket: int
    why: str


class Summed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a primary holds of one map or service, in short."""

    name: str
    counter: int
    term: int
    digest: int


class Summary(msgspec.Struct, frozen=True, array_like=True, tag=37):
    """A primary tells a backup what this should hold, when it has taken every record that was sent before."""

    partition: int
    version: int
    maps: list[Summed]
    """Every map that this backup is to hold; what is not named is not there any more."""
    services: list[Summed] = []


class RepairWanted(msgspec.Struct, frozen=True, array_like=True, tag=38):
    """My copy of this partition is not what it should be, and why."""

    partition: int
    version: int
    why: str
    content: bool = True
    """Whether its content may be wrong, and not only updates missing."""


class ForgottenMap(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A map that the primary of a partition, at this version, has forgotten: it was empty at this counter and term."""

    partition: int
    version: int
    map: str
    counter: int
    term: int


class ForgetMaps(msgspec.Struct, frozen=True, array_like=True, tag=45):
    """The sender has forgotten these maps, and the receiver need not keep what it has of them."""

    maps: list[ForgottenMap]


class Forward(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """A request for partitions that the receiver should serve."""

    ticket: int
    request: Request


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """The outcome, and the partitions that the sender did not serve (ask again for these)."""

    ticket: int
    outcome: Outcome
    missed: list[int]


class Subscribe(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """Send me (or send me no longer) the entry events of this map."""

    map: str
    wanted: bool


class Events(msgspec.Struct, frozen=True, array_like=True, tag=43):
    """Entry events for a subscriber, in the order in which they happened."""

    events: list[EntryEvent]


class Collecting(msgspec.Struct, frozen=True, array_like=True, tag=44):
    """These clients can be told by the sender that it holds their writes, and those not any more."""

    added: list[bytes]
    removed: list[bytes]


class GroupMessages(msgspec.Struct, frozen=True, array_like=True, tag=50):
    """What replicas of Raft groups of one member say to those of another, in one step."""

    groups: list[tuple[GroupNumber, list[RaftMessage]]]
    asleep: list[tuple[GroupNumber, int, int]] = []
    """Groups that the sender leads and that have nothing to do, with the term and the last index: who has all of it
    need not wait for a heartbeat."""


class GroupState(msgspec.Struct, frozen=True, array_like=True, tag=51):
    """A part of the state of a group, as of a snapshot, for a replica whose log ends before the leader's begins."""

    group: GroupNumber
    snapshot: RaftMessage
    """It is given to the replica when all parts are there."""
    first: int
    """The place of the first of these pieces."""
    pieces: list[bytes]
    last: bool


class GroupStateTaken(msgspec.Struct, frozen=True, array_like=True, tag=52):
    """So many pieces of the state as of the index have come: the next may."""

    group: GroupNumber
    index: int
    taken: int


class ZoneLeaders(msgspec.Struct, frozen=True, array_like=True, tag=53):
    """The sender leads these groups, each since this term: requests on their partitions may come to it."""

    groups: list[tuple[GroupNumber, int]]


class ZoneForward(msgspec.Struct, frozen=True, array_like=True, tag=58):
    """A request for one partition of a zone, whose group the receiver should lead in this term, and in no other."""

    ticket: int
    request: Request
    term: int


class LeadAsked(msgspec.Struct, frozen=True, array_like=True, tag=56):
    """The sender leads groups that it reads, and wants to be sure that it still does."""

    round: int
    groups: list[tuple[GroupNumber, int]]
    """Those, with the leader's term, of which the receiver has not said so at its present standing."""


class LeadConfirmed(msgspec.Struct, frozen=True, array_like=True, tag=57):
    """The answer: of these groups the sender knows no higher term."""

    round: int
    standing: int
    """Grows whenever anything changes in whom the sender's replicas follow."""
    groups: list[GroupNumber]


class ZoneStatesAsked(msgspec.Struct, frozen=True, array_like=True, tag=54):
    """How are your replicas of this zone?"""

    zone: int


class ZoneStates(msgspec.Struct, frozen=True, array_like=True, tag=55):
    """How the sender's replicas of a zone are: partition, state, last index of the log, whether it is a learner."""

    zone: int
    replicas: list[tuple[int, str, int, bool]]


class LocksAwaited(msgspec.Struct, frozen=True, array_like=True, tag=63):
    """Which transactions wait for which at the sender, now: for the master, who looks for deadlocks."""

    waits: list[tuple[bytes, MemberId, bytes]]
    """Who waits, the owner of that one, and who holds the lock."""


class DeadlockFound(msgspec.Struct, frozen=True, array_like=True, tag=60):
    """This transaction of the receiver is in a circle of transactions that wait for each other, and is to give way."""

    transaction: bytes
    others: list[bytes]


class OwnersAsked(msgspec.Struct, frozen=True, array_like=True, tag=61):
    """The sender keeps locks or branches of these transactions, which the receiver began: does it still run them?"""

    transactions: list[bytes]


class OwnersGone(msgspec.Struct, frozen=True, array_like=True, tag=62):
    """The answer: these it does not run."""

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
    | Subscribe
    | Events
    | Collecting
    | GroupMessages
    | GroupState
    | GroupStateTaken
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
