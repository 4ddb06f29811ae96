"""The schema: one frozen struct for each section, and the same as data for messages and documentation.

The last part of a key's name is its unit: `_ms` milliseconds, `_s` seconds, `_bytes` bytes.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from holdfast.config import sharing
from holdfast.config.addresses import parse_seed
from holdfast.config.http_settings import HttpSettings
from holdfast.config.log_settings import LogSettings
from holdfast.config.sections import LIVE, Names, Password, Port, SecretiveSection, Secrets, Section, Text
from holdfast.config.sharing import ENCODED_NAMES
from holdfast.config.tls_settings import TlsSettings
from holdfast.config.trace_settings import TraceSettings

BACKUPS_MAX: Final = 6
"""A partition has replica indices 0-6: the owner and at most six backups, whether sync or async."""

PREFIX: Final = "HOLDFAST_"

DEFAULT_MAP: Final = "default"
"""The entry of `maps` from which every other map takes the keys it does not set itself."""

INTERNAL: Final = "__"
"""Names of maps that Holdfast keeps for itself begin so."""
TRANSACTIONS_MAP: Final = INTERNAL + "transactions"
"""In each partition: the locks that transactions hold there, and what has been prepared and decided."""
SERVICE_PREFIX: Final = INTERNAL + "service:"
"""How the name of a service begins in records and counters."""

ATTRIBUTES_MAX: Final = 64
"""A member has at most so many attributes."""
OWN_ATTRIBUTES: Final = ("name", "host", "group")
"""Attributes that every member has by itself."""

Milliseconds = Annotated[int, Meta(ge=1, le=86_400_000)]
LifetimeMilliseconds = Annotated[int, Meta(ge=0, le=2**53)]
Backups = Annotated[int, Meta(ge=0, le=BACKUPS_MAX)]
Placement = Literal["even", "rendezvous"]
LaneChoice = Literal["auto", "python"]
SocketsChoice = Literal["auto", "poll", "loop"]


class ClusterSettings(Section, frozen=True, kw_only=True, rename=ENCODED_NAMES["cluster"]):
    """Which cluster this member belongs to, and when a silent member counts as lost."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=512,
            description="Members and clients with another cluster name are refused.",
        ),
    ] = "dev"
    seeds: Annotated[
        list[str],
        Meta(
            max_length=64,
            description="HOST:MEMBER_PORT of members to ask for the cluster. The first one forms the cluster when it "
            "finds none; empty: this member forms its own. Behind a name, or srv:_SERVICE._tcp.NAME, all members that "
            "the DNS knows are asked.",
        ),
    ] = []
    bootstrap: Annotated[
        bool,
        Meta(description="Form a new cluster at once when no seed answers, whatever the order of the seeds."),
    ] = False
    dns_servers: Annotated[
        list[str],
        Meta(
            max_length=8,
            description="ADDRESS:PORT of name servers that are asked for names in cluster.seeds; empty: the system's.",
        ),
    ] = []
    quorum: Annotated[
        Literal["majority", "any"],
        Meta(
            description="Which part of a cut cluster goes on: only one with a majority of the last members, or any "
            "('any' may lose acknowledged writes when a network heals)."
        ),
    ] = "majority"
    heartbeat_ms: Annotated[
        Milliseconds, Meta(description="Time between two heartbeats to each other member.")
    ] = 1000
    suspect_after_ms: Annotated[
        Milliseconds,
        Meta(description="A member that was silent for so long is suspected, and removed by the master."),
    ] = 10_000
    initial_members: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="The first assignment of partitions waits until so many data members are there.",
        ),
    ] = 1
    join_timeout_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400_000,
            description="How long a starting member looks for a cluster before it gives up, and ends. 0: for ever, as "
            "after a power cut that some hosts are slow to come back from. Who is in a cluster waits for others there "
            "as long as that takes.",
        ),
    ] = 0
    on_missing_data_dirs: Annotated[
        Literal["wait", "accept"],
        Meta(
            description="After the whole cluster was stopped: wait for every member whose files may hold "
            "acknowledged writes, or go on with those that are here and accept the loss."
        ),
    ] = "wait"


class MemberSettings(Section, frozen=True, kw_only=True, rename=ENCODED_NAMES["member"]):
    """This one member."""

    name: Annotated[
        Text, Meta(description="A name for people, shown in logs and status; empty: the uuid's start.")
    ] = ""
    host: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=253,
            description="Address on which both doors listen. Any but loopback needs TLS and credentials.",
        ),
    ] = "127.0.0.1"
    public_host: Annotated[
        Text, Meta(description="Address that others use to reach this member; empty: the same as host.")
    ] = ""
    member_port: Annotated[
        Port,
        Meta(
            description="Door for other members; 0: any free port. If left out and taken, the next free one is used."
        ),
    ] = 5751
    client_port: Annotated[
        Port,
        Meta(
            description="Door for clients; 0: any free port. If left out and taken, the next free one is used."
        ),
    ] = 5701
    lite: Annotated[bool, Meta(description="A lite member serves clients but owns no partition.")] = False
    group: Annotated[
        Text, Meta(description="Name of the failure group, if it is not the host; see partitions.group_by.")
    ] = ""
    availability_zone: Annotated[
        Text,
        Meta(
            description="Name of the availability zone that this member runs in; needed when partitions.group_by is "
            "'zone'. Others see it as the member's attribute 'zone'."
        ),
    ] = ""
    rack: Annotated[
        Text, Meta(description="Name of the rack; needed when partitions.group_by is 'rack'.")
    ] = ""
    attributes: Annotated[
        dict[str, Text],
        Meta(
            max_length=ATTRIBUTES_MAX,
            description="Further facts about this member: filters of zones go by them, and clients are shown them.",
        ),
    ] = {}
    batch_invalidations: Annotated[
        bool,
        Meta(
            description="Whether the near-cache invalidations of one turn of the event loop leave in one event. false: "
            "one event for each key, for clients that want them so."
        ),
    ] = True
    lane: Annotated[
        LaneChoice,
        Meta(
            description="How single entries are read and written: auto: by compiled code, if there is some; or python."
        ),
    ] = "auto"
    sockets: Annotated[
        SocketsChoice,
        Meta(
            description="How clients' bytes come and go: poll: many connections in one call, where there is epoll; "
            "loop: each by a call of the event loop; auto: poll, if it is compiled."
        ),
    ] = "auto"


class PartitionSettings(Section, frozen=True, kw_only=True, rename=ENCODED_NAMES["partitions"]):
    """How data is cut into partitions and how these move. All members must agree on the first four."""

    count: Annotated[
        int,
        Meta(ge=1, le=65_536, description="Number of partitions of the cluster; fixed for its life."),
    ] = 271
    group_by: Annotated[
        Literal["member", "host", "host-soft", "rack", "zone"],
        Meta(
            description="Two copies of a partition never share this; where there are too few of them, there are fewer "
            "copies. With 'host-soft' there are as many all the same: copies share a host as long as there are fewer "
            "hosts than copies."
        ),
    ] = "member"
    placement: Annotated[
        Placement,
        Meta(
            description="Where partitions live: 'even' keeps the members' loads within one of each other, going on "
            "from where the partitions are; 'rendezvous' lets each partition rank the members by a hash of their "
            "consistent ids (a member's name, else the id of its files), so that its place depends on nothing but who "
            "is there."
        ),
    ] = "even"
    lost: Annotated[
        Literal["wait", "accept"],
        Meta(
            description="When every in-sync copy of a partition is gone: wait for one to return, or accept the loss, "
            "declare it and go on empty."
        ),
    ] = "wait"
    publish_interval_ms: Annotated[
        Milliseconds,
        Meta(
            description="How often the master compares its partition table with the others'; a member whose table "
            "differs is sent the whole one. Changes are sent at once, whatever this is."
        ),
    ] = 15_000
    parallel_migrations: Annotated[
        int,
        Meta(
            ge=1,
            le=1024,
            description="How many partitions one member sends or receives at a time. More of them are sooner done, and "
            "requests wait longer meanwhile.",
        ),
    ] = 10
    chunk_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=16_777_216,
            description="Size of one piece of a moving partition; one piece of each is under way at a time.",
        ),
    ] = 131_072
    rebalance_delay_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400_000,
            description="How long after a crash lost copies are not restored elsewhere, so that the member can come "
            "back; backups are promoted at once all the same.",
        ),
    ] = 0
    max_in_flight_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=2**40,
            description="Bytes that one member may have sent to others to fill them, and that are not acknowledged; "
            "one piece may always go. With less, partitions move more slowly, and requests wait less meanwhile.",
            extra=LIVE,
        ),
    ] = 16_777_216
    max_in_flight_bytes_total: Annotated[
        int,
        Meta(
            ge=1024,
            le=2**40,
            description="The same for all migrations of the cluster together: no more run at a time than may have one "
            "piece under way each; one may always run.",
        ),
    ] = 268_435_456
    drain_timeout_s: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="How long a member that leaves waits for its partitions to be safe elsewhere.",
        ),
    ] = 600


class MapSettings(Section, frozen=True, kw_only=True, rename=ENCODED_NAMES["maps"]):
    """One map, or 'default' for all that are not named."""

    backups: Annotated[
        Backups, Meta(description="Copies that hold a write before it is acknowledged, besides the owner's.")
    ] = 1
    async_backups: Annotated[
        Backups, Meta(description="Further copies that follow without being waited for.")
    ] = 0
    ttl_ms: Annotated[
        LifetimeMilliseconds, Meta(description="An entry ends so long after its last write; 0: it stays.")
    ] = 0
    max_idle_ms: Annotated[
        LifetimeMilliseconds, Meta(description="An entry ends so long after its last use; 0: it stays.")
    ] = 0

    journal: Annotated[
        Literal["off", "sync", "lazy"],
        Meta(
            description="Whether writes survive a power cut: not; all that were acknowledged; or all but those of the "
            "last persistence.sync_interval_ms. Needs persistence.directory."
        ),
    ] = "off"
    read_backups: Annotated[
        bool,
        Meta(
            description="Whether a member answers reads from a backup that it holds: sooner, perhaps an older value, "
            "but never older than the last one it answered."
        ),
    ] = False
    reads: Annotated[
        Literal["primary", "confirmed", "local"],
        Meta(
            description="Who answers for a read: the primary alone, at once; or the primary when its sync backups have "
            "confirmed that it still is, and hold what was read. A confirmed read never shows the past, and takes as "
            "long as a write. In a zone a majority confirms every read, unless it is 'local': then the leader answers "
            "at once, and may show the past."
        ),
    ] = "primary"
    raft_zone: Annotated[
        Text,
        Meta(
            description="The zone in which the map lives (`holdfast zone`): its partitions are Raft groups then. "
            "Empty: it has a primary and backups."
        ),
    ] = ""
    changes_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=2**40,
            description="Bytes of the last changes that each copy of a partition keeps in memory for change streams, "
            "with old values and times; 0: the map has no change stream.",
        ),
    ] = 0
    transactional: Annotated[
        bool,
        Meta(
            description="Whether transactions may change the map. Whoever writes to an entry that a transaction has "
            "locked then waits until it is over. A map in a zone takes no part."
        ),
    ] = True
    loss_policy: Annotated[
        Literal["ignore", "read-write-safe", "read-only-safe"],
        Meta(
            description="What becomes of the map when partitions of it are lost, until the operator resets them: "
            "'read-write-safe' refuses all that touches a lost partition, 'read-only-safe' also every write to the "
            "map. With 'ignore' nothing is refused: a partition waits for its copies (partitions.lost), and is used "
            "with what it has when it goes on."
        ),
    ] = "ignore"

    @property
    def takes_part(self) -> bool:
        """Whether transactions may change it."""
        return self.transactional and not self.raft_zone

    @property
    def copies(self) -> int:
        """How many members hold an entry of this map: the owner and all backups."""
        return 1 + self.backups + self.async_backups


class ServiceSettings(Section, frozen=True, kw_only=True):
    """What a service says of itself: it is no part of a configuration, for every member runs the same services."""

    backups: int = 1
    """Copies that hold an update before it is acknowledged, besides the owner's."""
    async_backups: int = 0
    """Further copies that follow without being waited for."""
    journal: Literal["off", "sync", "lazy"] = "off"
    """Whether updates survive a power cut, as with maps."""

    @property
    def copies(self) -> int:
        """How many members hold a share: the owner and all backups."""
        return 1 + self.backups + self.async_backups

    @property
    def changes_bytes(self) -> int:
        """A service has no change stream."""
        return 0

    @property
    def reads(self) -> Literal["primary", "confirmed"]:
        """Questions are answered by the primary alone."""
        return "primary"


class MetastoreSettings(Section, frozen=True, kw_only=True):
    """What the whole cluster agrees on by consensus: who keeps it."""

    voters: Annotated[
        Literal[0, 1, 3, 5, 7],
        Meta(
            description="How many members vote in the metastore's group, when there are so many: it goes on as long as "
            "most of them do. All others follow. 0: there is no metastore, and there can be no zones."
        ),
    ] = 0
    replace_after_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400_000,
            description="How long after a voter was removed from the cluster another member takes its place.",
        ),
    ] = 5000


class PersistenceSettings(Section, frozen=True, kw_only=True):
    """Where this member keeps journal and checkpoints, and how much of them."""

    directory: Annotated[
        str,
        Meta(
            max_length=4096,
            description="Directory of this member alone for its journal and checkpoints; empty: nothing is kept.",
        ),
    ] = ""
    sync_interval_ms: Annotated[
        Milliseconds,
        Meta(description="What maps with journal = 'lazy' wrote for so long a power cut may lose."),
    ] = 1000
    segment_bytes: Annotated[
        int, Meta(ge=65_536, le=2**31, description="Size of one file of the journal, reserved beforehand.")
    ] = 67_108_864
    checkpoint_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=2**40,
            description="A partition is written out as a checkpoint when the journal has grown by so much since its "
            "last one; after a crash at most about so much is replayed.",
        ),
    ] = 268_435_456
    history_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=2**44,
            description="How much journal is kept beyond what a restart needs, so that a member that was away gets "
            "only what it has missed.",
        ),
    ] = 1_073_741_824
    history_age_s: Annotated[
        int, Meta(ge=0, le=31_536_000, description="Journal beyond what a restart needs is kept for so long.")
    ] = 86_400


class ReplicationSettings(Section, frozen=True, kw_only=True, rename=ENCODED_NAMES["replication"]):
    """How writes reach backups, and how copies that differ are found and mended."""

    backup_timeout_ms: Annotated[
        Milliseconds,
        Meta(
            description="How long a write waits for its sync backups; then its outcome is unknown, and the "
            "caller is told."
        ),
    ] = 5000
    unknown_writes: Annotated[
        Literal["retry", "fail"],
        Meta(
            description="When the member that was asked to write has left before it answered: ask the next primary (a "
            "request that is known there is not applied again), or tell the caller that the outcome is unknown."
        ),
    ] = "retry"
    backup_acks: Annotated[
        Literal["owner", "client"],
        Meta(
            description="Who waits for sync backups: the owner, or a client that can. Clients that stop waiting may "
            "take silence for success."
        ),
    ] = "owner"
    request_ids: Annotated[
        int,
        Meta(ge=0, le=1_000_000, description="How many requests a partition remembers, to apply each once."),
    ] = 1000
    tail_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=2**30,
            description="Bytes of the last updates that each copy of each map and partition keeps in memory, for "
            "replicas that have missed just these.",
        ),
    ] = 65_536
    anti_entropy_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400_000,
            description="How often primaries tell their backups what these should hold; 0: never.",
        ),
    ] = 30_000
    parallel_repairs: Annotated[
        int, Meta(ge=1, le=1024, description="How many copies that differ one member mends at a time.")
    ] = 4


class TransactionSettings(Section, frozen=True, kw_only=True):
    """How long transactions may take, and hold others up."""

    timeout_ms: Annotated[
        Milliseconds,
        Meta(
            description="A transaction that names no timeout of its own is rolled back so long after it began, "
            "wherever its owner is."
        ),
    ] = 120_000
    timeout_max_ms: Annotated[
        Milliseconds,
        Meta(description="The longest timeout that a transaction may name; a longer one is cut to this."),
    ] = 600_000
    per_connection: Annotated[
        int, Meta(ge=1, le=50_000, description="How many transactions one client connection may have open.")
    ] = 1000
    lock_wait_ms: Annotated[
        Milliseconds,
        Meta(
            description="How long a transaction waits for an entry that another one has locked; then it is rolled back."
        ),
    ] = 30_000
    deadlock_after_ms: Annotated[
        Milliseconds,
        Meta(description="How long a transaction waits for a lock before it is looked at for deadlocks."),
    ] = 500


class SecuritySettings(SecretiveSection, frozen=True, kw_only=True):
    """Who may come in. Without these, and TLS, only loopback addresses are bound."""

    username: Annotated[Text, Meta(description="Name that a client must give, with the password.")] = ""
    password: Annotated[
        Password, Meta(description="Password that a client must give, with the username.")
    ] = ""
    token: Annotated[
        Password, Meta(description="Token that a client may give instead of username and password.")
    ] = ""
    member_secret: Annotated[
        Password, Meta(description="Secret that all members of the cluster share and prove to each other.")
    ] = ""
    audit_file: Annotated[
        str,
        Meta(
            max_length=4096,
            description="File into which a line of JSON is written for each login, refusal and order of an operator; "
            "empty: none is.",
        ),
    ] = ""
    audit_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=2**40,
            description="When security.audit_file has so many bytes it is renamed to .1, and that one to .2, and so "
            "on.",
        ),
    ] = 67_108_864
    audit_files: Annotated[
        int,
        Meta(
            ge=0, le=1000, description="How many of these older files are kept besides security.audit_file."
        ),
    ] = 2

    second_member_secret: Annotated[
        Password,
        Meta(
            description="A second secret that this member proves and believes as well, while the secret is rolled from "
            "one member to the next."
        ),
    ] = ""
    allow_insecure_bind: Annotated[
        bool,
        Meta(
            description="INSECURE: listen on other addresses than loopback although TLS or credentials are missing. "
            "Whoever reaches the ports can then read passwords and data on their way, or change everything."
        ),
    ] = False

    @property
    def clients_authenticate(self) -> bool:
        """Whether a client must show a username and password, or a token."""
        return bool(self.password or self.token)


class UserSettings(SecretiveSection, frozen=True, kw_only=True):
    """A user: what it knows, and which roles it has. As soon as there is one, whoever comes must be one."""

    passwords: Annotated[
        Secrets, Meta(description="Passwords that the user may give with its name; two while one is changed.")
    ] = []
    tokens: Annotated[
        Secrets, Meta(description="Tokens that the user may give instead; two while one is changed.")
    ] = []
    verifiers: Annotated[
        Annotated[list[Annotated[str, Meta(max_length=1024)]], Meta(max_length=4, extra={"secret": True})],
        Meta(
            description="What `holdfast credentials` has made of passwords and tokens: these can be checked by it, and "
            "not be read."
        ),
    ] = []
    roles: Annotated[
        Names, Meta(description="Roles of the user, each from [roles.NAME]; 'admin' may do everything.")
    ] = []


class RoleSettings(Section, frozen=True, kw_only=True):
    """A role: what those may do who have it. Whatever no rule permits is refused."""

    rules: Annotated[
        list[Annotated[str, Meta(max_length=1024)]],
        Meta(
            max_length=1024,
            description="Each says KIND NAME ACTION ..., as in 'map flights-* read put': see docs/security.md.",
        ),
    ] = []


class LimitSettings(Section, frozen=True, kw_only=True, rename=ENCODED_NAMES["limits"]):
    """What one key, entry, frame or connection may take of this member, and all of them together."""

    memory_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=2**50,
            description="Memory that this member's process may take. From 80 % of it on, writes that store entries are "
            "refused in the partitions that the member holds; from 90 % on no partition is moved to it. 0: three "
            "quarters of the container's memory or of RLIMIT_AS, or half of the host's, whichever is least.",
            extra=LIVE,
        ),
    ] = 0

    key_bytes: Annotated[int, Meta(ge=16, le=1_048_576, description="Largest serialised key.")] = 65_536
    value_bytes: Annotated[int, Meta(ge=16, le=2**30, description="Largest serialised value.")] = 4_194_304
    frame_bytes: Annotated[
        int, Meta(ge=65_536, le=2**31 - 1, description="Largest message that a client may send.")
    ] = 16_777_216
    auth_frame_bytes: Annotated[
        int,
        Meta(ge=1024, le=65_536, description="Largest message from a client that has not proved who it is."),
    ] = 4096
    auth_timeout_ms: Annotated[
        Milliseconds, Meta(description="Time to prove who one is, else disconnected.")
    ] = 5000
    connections: Annotated[
        int, Meta(ge=1, le=65_536, description="Clients that are logged in, at a time.", extra=LIVE)
    ] = 2048
    connections_per_address: Annotated[
        int, Meta(ge=1, le=65_536, description="Of these, so many from one address.", extra=LIVE)
    ] = 1536
    operator_connections: Annotated[
        int,
        Meta(
            ge=1,
            le=1024,
            description="Further places for `holdfast status`, `holdfast member` and `holdfast cluster`, for when "
            "clients have taken all others.",
            extra=LIVE,
        ),
    ] = 8
    unauthenticated_connections: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="Connections that have not proved who they are, for clients and for members each, and as many "
            "that have not ended the TLS handshake. One more, and the oldest of the address with the most is closed.",
        ),
    ] = 128
    member_connections: Annotated[
        int,
        Meta(
            ge=8,
            le=65_536,
            description="Connections of other members. One more, and the oldest of the address with the most is "
            "closed.",
            extra=LIVE,
        ),
    ] = 1024
    call_timeout_ms: Annotated[
        Milliseconds,
        Meta(
            description="How long a request waits for a partition that nobody serves; then it is refused, not done."
        ),
    ] = 60_000
    idle_timeout_ms: Annotated[
        Milliseconds,
        Meta(
            description="A client that was silent for so long, and waits for no answer, is closed. Hazelcast's send a "
            "ping, Holdfast's connect again when they have something to ask.",
            extra=LIVE,
        ),
    ] = 300_000
    output_buffer_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=2**31,
            description="Answers that a client has not read yet, or that wait for others; above this its requests are "
            "not carried out.",
        ),
    ] = 4_194_304
    total_output_buffer_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=2**40,
            description="The same of all clients together, and what has come in of messages that are not whole. Above "
            "it only clients that have read all their answers are served; above twice as much the one with the most "
            "is disconnected.",
            extra=LIVE,
        ),
    ] = 268_435_456
    answer_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=201_326_592,
            description="Keys and values in one answer, for requests that are answered with many; more is refused.",
        ),
    ] = 134_217_728
    backlog_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=2**40,
            description="Records kept here for backups that have not answered. Above it clients are not read; if that "
            "does not help, or above twice as much, writes are refused.",
        ),
    ] = 67_108_864
    async_backlog_bytes: Annotated[
        int,
        Meta(ge=65_536, le=2**40, description="The same for one async backup; above it writes wait for it."),
    ] = 16_777_216
    waiting_requests: Annotated[
        int,
        Meta(ge=1, le=2**31, description="Requests that may wait here for other members; more are refused."),
    ] = 100_000
    waiting_bytes: Annotated[
        int, Meta(ge=65_536, le=2**40, description="Bytes of these requests; more are refused.")
    ] = 67_108_864

    def bounded(self, size: int) -> int:
        """At most a sixteenth of `memory_bytes`, where that is known: of what is only on its way."""
        return min(size, self.memory_bytes // 16) if self.memory_bytes else size


SECTIONS: Final[dict[str, type[Section]]] = {
    "cluster": ClusterSettings,
    "member": MemberSettings,
    "partitions": PartitionSettings,
    "metastore": MetastoreSettings,
    "persistence": PersistenceSettings,
    "replication": ReplicationSettings,
    "transactions": TransactionSettings,
    "security": SecuritySettings,
    "tls": TlsSettings,
    "http": HttpSettings,
    "limits": LimitSettings,
    "log": LogSettings,
    "traces": TraceSettings,
}
"""Every table of the file but those of which there are several, each with a name."""

NAMED: Final[dict[str, type[Section]]] = {
    "maps": MapSettings,
    "users": UserSettings,
    "roles": RoleSettings,
}
"""Sections that have a table for each name, as in `[maps.NAME]`."""
SOMEBODY: Final = "NAME"
"""Stands for a name where there is none that is always there."""

SHARED: Final = (
    "cluster.name",
    "cluster.quorum",
    "partitions.count",
    "partitions.group_by",
    "partitions.placement",
    "partitions.lost",
    "metastore.voters",
    "replication.unknown_writes",
    "replication.request_ids",
)
"""Keys that all members of a cluster must agree on, besides those of `maps`."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of one member, checked. Make one with `load`."""

    cluster: ClusterSettings = ClusterSettings()
    member: MemberSettings = MemberSettings()
    partitions: PartitionSettings = PartitionSettings()
    metastore: MetastoreSettings = MetastoreSettings()
    persistence: PersistenceSettings = PersistenceSettings()
    replication: ReplicationSettings = ReplicationSettings()
    transactions: TransactionSettings = TransactionSettings()
    security: SecuritySettings = SecuritySettings()
    tls: TlsSettings = TlsSettings()
    http: HttpSettings = HttpSettings()
    limits: LimitSettings = LimitSettings()
    log: LogSettings = LogSettings()
    traces: TraceSettings = TraceSettings()
    maps: dict[str, MapSettings] = {}
    """By name; `default` is always there after `load`."""
    users: dict[str, UserSettings] = {}
    """By name; with none everybody whom `security` lets in may do everything."""
    roles: dict[str, RoleSettings] = {}
    """By name."""
    services: dict[str, ServiceSettings] = {}
    """By name; of the services that this member was given, never from a configuration."""
    given: frozenset[str] = frozenset()
    """Dotted names of the keys that somebody set, in whatever source."""

    def map(self, name: str) -> MapSettings:
        """The settings of the map `name`: its own, else those of `default`.

        Holdfast's own maps (`__schemas`, ...) have as many sync backups as any map has copies; services have their own.
        """
        if name == TRANSACTIONS_MAP:
            return self._of_transactions()
        if name.startswith(INTERNAL) and name not in self.maps:
            return MapSettings(backups=self.replica_backups(), journal="sync" if self.journalled else "off")
        return self.maps.get(name) or self.maps.get(DEFAULT_MAP) or MapSettings()

    def _of_transactions(self) -> MapSettings:
        """What transactions hold is kept wherever an entry is that they may change, and as well as that."""
        everything = [self.map(DEFAULT_MAP), *self.maps.values()]
        taking_part = [entry for entry in everything if entry.takes_part] or [MapSettings()]
        backups = max(entry.backups for entry in taking_part)
        copies = max(entry.copies for entry in taking_part)
        modes = {entry.journal for entry in taking_part}
        journal: Literal["off", "sync", "lazy"] = (
            "sync" if "sync" in modes else "lazy" if "lazy" in modes else "off"
        )
        return MapSettings(backups=backups, async_backups=copies - 1 - backups, journal=journal)

    @property
    def transactional(self) -> bool:
        """Whether transactions may change any map."""
        return any(entry.takes_part for entry in self._all() if isinstance(entry, MapSettings))

    def object(self, name: str) -> MapSettings | ServiceSettings:
        """The settings of a map, or of a service by the name that its records have (`SERVICE_PREFIX`)."""
        if name.startswith(SERVICE_PREFIX):
            return self.services.get(name.removeprefix(SERVICE_PREFIX)) or ServiceSettings()
        return self.map(name)

    @property
    def journalled(self) -> bool:
        """Whether any map or service has a journal."""
        return any(entry.journal != "off" for entry in self._all())

    @property
    def clients_authenticate(self) -> bool:
        """Whether a client must prove who it is."""
        return bool(self.users) or self.security.clients_authenticate

    def is_given(self, key: str) -> bool:
        """Whether somebody set this key (`member.client_port`), rather than leaving it at its default."""
        return key in self.given

    def replica_backups(self) -> int:
        """The largest number of backups, sync and async, of any map that is configured."""
        return max(entry.copies - 1 for entry in self._all())

    def holders(self) -> int:
        """How many replicas of a partition, from the owner on, hold every map that has a sync backup at all."""
        counts = [entry.backups for entry in self._all() if entry.backups]
        return 1 + min(counts, default=BACKUPS_MAX)

    def depths(self) -> list[int]:
        """How many copies there may be of a map, the owner's included: each number once, the smallest first."""
        return sorted({entry.copies for entry in self._all()})

    def complete(self) -> int:
        """How many replicas of a partition, from the owner on, hold every map: also those without backups."""
        return 1 + min(entry.backups for entry in self._all())

    def maps_within(self, replicas: int) -> list[str]:
        """The maps, by their configured names, whose every copy lies within so many replicas from the owner on."""
        named: dict[str, MapSettings | ServiceSettings] = {DEFAULT_MAP: self.map(DEFAULT_MAP), **self.maps}
        named.update({SERVICE_PREFIX + name: entry for name, entry in self.services.items()})
        return sorted(name for name, entry in named.items() if entry.copies <= replicas)

    def configured(self, name: str) -> str:
        """By which name the settings of a map are configured: its own, or `default`."""
        return name if name in self.maps else DEFAULT_MAP

    def guarded(self, replicas: int = 1 + BACKUPS_MAX) -> tuple[str, ...]:
        """Those of `maps_within` so many replicas whose losses are not ignored (`loss_policy`)."""
        return tuple(
            name
            for name in self.maps_within(replicas)
            if not name.startswith(INTERNAL) and self.map(name).loss_policy != "ignore"
        )

    def _all(self) -> list[MapSettings | ServiceSettings]:
        return [self.map(DEFAULT_MAP), *self.maps.values(), *self.services.values()]

    def seed_addresses(self) -> list[tuple[str, int]]:
        """The seeds as (host, member port)."""
        return [parse_seed(seed, "cluster.seeds") for seed in self.cluster.seeds]

    def shared(self) -> dict[str, str]:
        """What all members must have alike, as comparable text: dotted key, as it is sent -> value."""
        usual = Settings()
        found = {key: _at(self, key) for key in SHARED}
        found = {key: at for key, at in found.items() if key not in sharing.LATER or at != _at(usual, key)}
        plain_map, plain_service = MapSettings(), ServiceSettings()
        for name in sorted({DEFAULT_MAP, *self.maps}):
            found |= {
                f"maps.{name}.{key}": value for key, value in sharing.told("maps", self.map(name), plain_map)
            }
        for name, service in sorted(self.services.items()):
            found |= {
                f"services.{name}.{key}": value
                for key, value in sharing.told("services", service, plain_service)
            }
        return {sharing.encoded_key(key): str(value) for key, value in found.items()}

    def digest(self) -> str:
        """The shared settings as one stable text, equal exactly when `shared` is."""
        return "\n".join(f"{key}={value}" for key, value in self.shared().items())


def _at(settings: Settings, key: str) -> object:
    """The value of this dotted key."""
    section, _, name = key.partition(".")
    return getattr(getattr(settings, section), name)
