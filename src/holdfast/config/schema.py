"""The schema of settings: one frozen struct for each section, also as data for messages and documentation.

The last part of a key's name is the unit of a plain number: `_ms` milliseconds, `_s` seconds, `_bytes` bytes.
Texts have units: `"64M"`, `"10min"` (`config.units`).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, cast

import msgspec
from msgspec import Meta

from holdfast.config import sharing
from holdfast.config.addresses import parse_seed
from holdfast.config.cp_settings import CpSettings
from holdfast.config.http_settings import HttpSettings
from holdfast.config.log_settings import LogSettings
from holdfast.config.processor_settings import ProcessorSettings
from holdfast.config.sections import (
    Password,
    Port,
    SecretiveSection,
    Section,
    Text,
    about,
    sized,
    whole,
)
from holdfast.config.service_settings import ServiceSettings
from holdfast.config.sharing import ENCODED_NAMES
from holdfast.config.tls_settings import TlsSettings
from holdfast.config.trace_settings import TraceSettings
from holdfast.config.user_settings import RoleSettings, UserSettings

BACKUPS_MAX: Final = 6
"""A partition has replica indices 0-6: the owner and at most six backups, sync and async."""

PREFIX: Final = "HOLDFAST_"

DEFAULT_MAP: Final = "default"
"""The entry of `maps` from which every other map takes the keys it does not set itself."""

COPIES: Final = ("backups", "async_backups")
"""Keys of a map that set its number of copies."""

INTERNAL: Final = "__"
"""Prefix of the names of Holdfast's own maps."""
TRANSACTIONS_MAP: Final = INTERNAL + "transactions"
"""In each partition: the locks of transactions, and what they have prepared and decided."""
MOVES_MAP: Final = INTERNAL + "moves"
"""In each partition: what it knows of maps that are being moved (`core.model.map_moves`)."""
SWITCHES_MAP: Final = INTERNAL + "switches"
"""In each partition: where the change streams of moved maps continue (`core.model.map_moves.StreamSwitch`)."""
REQUESTS_MAP: Final = INTERNAL + "requests"
"""In each partition: requests on moved maps that their source had applied, with the answers (model/M-5)."""
SERVICE_PREFIX: Final = INTERNAL + "service:"
"""Prefix of the names of services in records and counters."""
COLLECTIONS: Final = {
    INTERNAL + "queue:": "queues",
    INTERNAL + "list:": "lists",
    INTERNAL + "set:": "sets",
    INTERNAL + "ringbuffer:": "ringbuffers",
    INTERNAL + "multimap:": "multimaps",
    INTERNAL + "topic:": "",
    INTERNAL + "reliable-topic:": "",
    INTERNAL + "replicated-map:": "replicated_maps",
    INTERNAL + "pn-counter:": "pn_counters",
    INTERNAL + "flake-id-generator:": "flake_id_generators",
    INTERNAL + "cardinality-estimator:": "cardinality_estimators",
}
"""Prefix of the map that holds the items of a collection -> section of the collection's settings; empty: none."""
COLLECTION_SECTIONS: Final = tuple(filter(None, COLLECTIONS.values()))
INHERITED: Final[tuple[str, ...]] = ("backups", "async_backups", "journal", "transactional")
"""Keys of a structure that has them which are those of the map `default` if they are not set."""
RELIABLE_TOPIC_PREFIX: Final = "_hz_rb_"
"""A reliable topic is the ringbuffer whose name is this prefix and the topic's name."""
KEY_LOCKS: Final = INTERNAL + "lock:"
"""Prefix of the map with the locks of another map's entries (`core.model.map_locks`)."""
CP_PREFIX: Final = INTERNAL + "cp:"
"""Prefix of the map that holds the objects and sessions of a CP group."""

ATTRIBUTES_MAX: Final = 64
OWN_ATTRIBUTES: Final = ("name", "host", "group")
"""Attributes that every member has without configuration."""

Milliseconds = Annotated[int, Meta(ge=1, le=86_400_000)]
LifetimeMilliseconds = Annotated[int, Meta(ge=0, le=2**53)]
ENDLESS_IDLE_MS: Final = 2**41
"""A maximum idle time that never passes: seventy years. The clock of a zone plus this fits into 64 bits of ns."""
Backups = Annotated[int, Meta(ge=0, le=BACKUPS_MAX)]
Placement = Literal["even", "rendezvous"]
LaneChoice = Literal["auto", "python"]
SocketsChoice = Literal["auto", "poll", "loop"]


class ClusterSettings(Section, frozen=True, kw_only=True, rename=ENCODED_NAMES["cluster"]):
    """Membership of the cluster, and detection of failed members."""

    name: str = sized(
        "dev",
        512,
        "Name of the cluster. Members reject other members and clients with another name.",
        least=1,
    )
    seeds: list[str] = sized(
        [],
        64,
        "HOST:MEMBER_PORT of members through which to join. The first seed forms a new cluster when it finds "
        "none; empty: this member forms its own. A DNS name, or srv:_SERVICE._tcp.NAME, stands for all members "
        "that it resolves to.",
    )
    bootstrap: bool = about(
        False, "Form a new cluster at once when no seed answers, even if this member is not the first seed."
    )
    dns_servers: list[str] = sized(
        [], 8, "ADDRESS:PORT of name servers that resolve names in cluster.seeds; empty: those of the system."
    )
    quorum: Literal["majority", "any"] = about(
        "majority",
        "Side of a network partition that stays available: the side with a majority of the last members, or both "
        "(any; may lose acknowledged writes when the network heals).",
    )
    heartbeat_ms: Milliseconds = about(1000, "Interval of heartbeats to every other member.")
    suspect_after_ms: Milliseconds = about(
        10_000, "Time without a heartbeat after which the master removes a member."
    )
    initial_members: int = whole(
        1,
        1,
        65_536,
        "Number of data members that have to join before partitions are assigned for the first time.",
    )
    join_timeout_ms: int = whole(
        0,
        0,
        86_400_000,
        "Time after which a starting member ends if it has found no cluster. 0: never, so that members wait for "
        "slow hosts after a power cut. A member that has joined waits without limit.",
    )
    on_missing_data_dirs: Literal["wait", "accept"] = about(
        "wait",
        "After a full stop of the cluster: wait for every member whose files may hold acknowledged writes, or "
        "start with the present members and accept the loss.",
    )


class MemberSettings(Section, frozen=True, kw_only=True, rename=ENCODED_NAMES["member"]):
    """Identity and addresses of this member."""

    name: Text = about("", "Name of this member in logs and status; empty: the first digits of its UUID.")
    host: str = sized(
        "127.0.0.1",
        253,
        "Address on which this member listens. Any address but loopback needs TLS and credentials.",
        least=1,
    )
    public_host: Text = about("", "Address at which others reach this member; empty: the same as host.")
    member_port: Port = about(
        5751,
        "Port for other members; 0: any free port. If the key is not set and the port is in use, the next free "
        "one.",
    )
    client_port: Port = about(
        5701,
        "Port for clients; 0: any free port. If the key is not set and the port is in use, the next free one.",
    )
    lite: bool = about(False, "Lite member: it serves clients, and holds no partitions.")
    group: Text = about("", "Name of the failure group, if it is not the host; see partitions.group_by.")
    availability_zone: Text = about(
        "",
        "Name of the availability zone that this member runs in; needed when partitions.group_by is 'zone'. "
        "Others see it as the member's attribute 'zone'.",
    )
    rack: Text = about("", "Name of the rack; needed when partitions.group_by is 'rack'.")
    attributes: dict[str, Text] = sized(
        {}, ATTRIBUTES_MAX, "Attributes of this member, for the filters of zones and for clients."
    )
    batch_invalidations: bool = about(
        True,
        "Whether near-cache invalidations of one event-loop turn are sent as one event. false: one event per "
        "key, for clients that need it.",
    )
    lane: LaneChoice = about(
        "auto",
        "Implementation of reads and writes of single entries: auto: compiled code if available; python: never "
        "compiled.",
    )
    sockets: SocketsChoice = about(
        "auto",
        "I/O of client connections: poll: one epoll set for all; loop: asyncio; auto: poll if it is compiled.",
    )


class PartitionSettings(Section, frozen=True, kw_only=True, rename=ENCODED_NAMES["partitions"]):
    """Partitions, their placement and their migration. The first four keys must be equal on all members."""

    count: int = whole(271, 1, 65_536, "Number of partitions of the cluster. Cannot be changed later.")
    group_by: Literal["member", "host", "host-soft", "rack", "zone"] = about(
        "member",
        "Failure domain that two copies of a partition never share; with fewer domains than copies there are "
        "fewer copies. With 'host-soft' the number of copies is kept, and copies share a host while there are "
        "fewer hosts than copies.",
    )
    placement: Placement = about(
        "even",
        "Placement of partitions: 'even' keeps the numbers of partitions of all members within one of each "
        "other, starting from the present placement; 'rendezvous' ranks the members for each partition by a hash "
        "of their consistent ids (name, else the id of the files), so that the placement depends on the members "
        "alone.",
    )
    lost: Literal["wait", "accept"] = about(
        "wait",
        "When every in-sync copy of a partition is gone: wait for one to return, or accept and report the loss, "
        "and continue with an empty partition.",
    )
    publish_interval_ms: Milliseconds = about(
        15_000,
        "Interval at which the master compares its partition table with those of the others, and sends the whole "
        "table to a member with another one. Changes are always sent at once.",
    )
    parallel_migrations: int = whole(
        10,
        1,
        1024,
        "Number of partitions that one member sends or receives at a time. More finish sooner, but requests wait "
        "longer meanwhile.",
    )
    chunk_bytes: int = whole(
        131_072,
        1024,
        16_777_216,
        "Size of one chunk of a moving partition; each partition has one chunk in flight at a time.",
    )
    rebalance_delay_ms: int = whole(
        0,
        0,
        86_400_000,
        "Time after a crash before lost copies are restored elsewhere, so that the member can return. Backups "
        "are promoted at once.",
    )
    max_in_flight_bytes: int = whole(
        16_777_216,
        1024,
        2**40,
        "Unacknowledged bytes of chunks that one member may have in flight; one chunk is always allowed. Less "
        "slows migrations down, and delays requests less.",
        live=True,
    )
    max_in_flight_bytes_total: int = whole(
        268_435_456,
        1024,
        2**40,
        "Limit of bytes in flight for all migrations of the cluster: the master starts only as many as may have "
        "one chunk in flight each, and at least one.",
    )
    drain_timeout_s: int = whole(
        600, 1, 86_400, "Time that a leaving member waits for its partitions to be safe elsewhere."
    )


class MapSettings(Section, frozen=True, kw_only=True, rename=ENCODED_NAMES["maps"]):
    """Settings of one map, or 'default' for all maps without a table of their own."""

    backups: Backups = about(
        1,
        "Sync backups: copies besides the owner's that hold a write before it is acknowledged.",
        in_use=True,
    )
    async_backups: Backups = about(
        0, "Async backups: further copies that a write does not wait for.", in_use=True
    )
    ttl_ms: LifetimeMilliseconds = about(
        0, "Time to live: entries expire this long after their last write; 0: never.", in_use=True
    )
    max_idle_ms: LifetimeMilliseconds = about(
        0, "Entries expire this long after their last use; 0: never.", in_use=True
    )

    journal: Literal["off", "sync", "lazy"] = about(
        "off",
        "Writes that survive a power cut: none (off); all acknowledged ones (sync); or all but those of the last "
        "persistence.sync_interval_ms (lazy). Needs persistence.directory.",
    )
    read_backups: bool = about(
        False,
        "Whether a member serves reads from its own backup: faster, perhaps an older value, but never older than "
        "the last one that it returned.",
    )
    reads: Literal["primary", "confirmed", "local"] = about(
        "primary",
        "Consistency of reads. 'primary': the primary answers at once. 'confirmed': it answers after its sync "
        "backups have confirmed that it is still the primary and that they hold the value; such a read is never "
        "stale, and takes as long as a write. In a zone a majority confirms every read, except with 'local': the "
        "leader answers at once, and the value may be stale.",
    )
    eviction: Literal["none", "lru", "random"] = about(
        "none",
        "Which entry goes when the map exceeds max_size or max_bytes: the one of a sample that was used longest ago "
        "(lru), or any (random). none: the map has no limit.",
    )
    max_size: int = whole(
        0,
        0,
        2**40,
        "Entries of the map in the partitions that a member serves, as an upper limit; copies at backups come on "
        "top. Each of these partitions may hold its share. Needs eviction. 0: no limit.",
    )
    max_bytes: int = whole(
        0,
        0,
        2**50,
        "The same in bytes of keys and values, which are estimated from a sample of entries. 0: no limit.",
    )
    raft_zone: Text = about(
        "",
        "The zone of the map (`holdfast zone`), which makes its partitions Raft groups. Empty: primary and "
        "backups.",
    )
    changes_bytes: int = whole(
        0,
        0,
        2**40,
        "Memory for the last changes in each copy of a partition, with old values and times, for change streams; "
        "0: no change stream.",
    )
    transactional: bool = about(
        True,
        "Whether transactions may change the map. Other writes to an entry that a transaction has locked wait "
        "until it ends.",
    )
    loss_policy: Literal["ignore", "read-write-safe", "read-only-safe"] = about(
        "ignore",
        "Requests that are rejected while partitions of the map are lost, until the operator resets them: with "
        "'read-write-safe' all that touch a lost partition; with 'read-only-safe' also every write to the map; "
        "with 'ignore' none: a partition waits for its copies (partitions.lost), and then continues with the "
        "data that it has.",
    )

    @property
    def evicts(self) -> bool:
        return self.eviction != "none"

    @property
    def lifetimes(self) -> tuple[int, int]:
        """Default time to live and maximum idle time, in ms. Entries of a map with `lru` have an idle time that never
        passes, so that their last uses are kept like those of entries that expire.
        """
        if self.eviction == "lru" and not self.max_idle_ms:
            return self.ttl_ms, ENDLESS_IDLE_MS
        return self.ttl_ms, self.max_idle_ms

    @property
    def takes_part(self) -> bool:
        """Whether primaries and backups keep branches of transactions for it; its zone does otherwise."""
        return self.transactional and not self.raft_zone

    @property
    def copies(self) -> int:
        """Number of members that hold an entry: the owner and all backups."""
        return 1 + self.backups + self.async_backups


class StructureSettings(Section, frozen=True, kw_only=True):
    """Settings of one structure, or of 'default' of its kind. Keys that neither sets are those of the map 'default'."""

    backups: Backups = about(
        1, "Sync backups: copies besides the owner's that hold a change before it is acknowledged."
    )
    async_backups: Backups = about(0, "Async backups: further copies that a change does not wait for.")
    journal: Literal["off", "sync", "lazy"] = about(
        "off",
        "Changes that survive a power cut: none (off); all acknowledged ones (sync); or all but those of the last "
        "persistence.sync_interval_ms (lazy). Needs persistence.directory.",
    )

    @property
    def copies(self) -> int:
        """Number of members that hold an item: the owner and all backups."""
        return 1 + self.backups + self.async_backups

    def as_map(self) -> MapSettings:
        """Settings of the map that holds the items."""
        return MapSettings(
            backups=self.backups,
            async_backups=self.async_backups,
            journal=self.journal,
            transactional=self.takes_part,
        )

    @property
    def takes_part(self) -> bool:
        """Whether transactions may change it."""
        return False


class CollectionSettings(StructureSettings, frozen=True, kw_only=True):
    """Settings of one queue, list or set, or of 'default'."""

    max_size: int = whole(
        0, 0, 2**31 - 1, "Largest number of items; more are not added. 0: as many as fit into memory."
    )
    transactional: bool = about(
        True,
        "Whether transactions may change it. Other changes wait until a transaction that has locked it ends.",
    )

    raft_zone: Text = about(
        "",
        "The zone whose Raft groups keep the items, as with maps. Empty: primary and backups.",
    )

    @property
    def takes_part(self) -> bool:
        return self.transactional and not self.raft_zone

    def as_map(self) -> MapSettings:
        return msgspec.structs.replace(StructureSettings.as_map(self), raft_zone=self.raft_zone)


class QueueSettings(CollectionSettings, frozen=True, kw_only=True):
    """Settings of one queue, or 'default' for all queues without a table of their own."""


class ListSettings(CollectionSettings, frozen=True, kw_only=True):
    """Settings of one list, or 'default' for all lists without a table of their own."""


class SetSettings(CollectionSettings, frozen=True, kw_only=True):
    """Settings of one set, or 'default' for all sets without a table of their own."""


class RingbufferSettings(StructureSettings, frozen=True, kw_only=True):
    """Settings of one ringbuffer, or of the one of a reliable topic; or 'default' for all without a table of their
    own.
    """

    capacity: int = whole(
        10_000, 1, 2**31 - 1, "Largest number of items; another one replaces the oldest (or is rejected)."
    )
    ttl_ms: LifetimeMilliseconds = about(
        0, "Time to live: items expire this long after they were added; 0: never."
    )


class ReplicatedMapSettings(StructureSettings, frozen=True, kw_only=True):
    """Settings of one replicated map, or 'default' for all without a table of their own."""


class CounterSettings(StructureSettings, frozen=True, kw_only=True):
    """Settings of one PN counter, or 'default' for all without a table of their own."""


class IdGeneratorSettings(StructureSettings, frozen=True, kw_only=True):
    """Settings of one flake id generator, or 'default' for all without a table of their own."""


class EstimatorSettings(StructureSettings, frozen=True, kw_only=True):
    """Settings of one cardinality estimator, or 'default' for all without a table of their own."""


class MultimapSettings(CollectionSettings, frozen=True, kw_only=True):
    """Settings of one multimap, or 'default' for all multimaps without a table of their own."""

    max_size: int = whole(
        0,
        0,
        2**31 - 1,
        "Largest number of values of one key; more are rejected. 0: only the bounds of a request.",
    )
    values: Literal["set", "list"] = about(
        "set", "Values of one key: each at most once, or as often as it was added, in that order."
    )


class MetastoreSettings(Section, frozen=True, kw_only=True):
    """The metastore: keys on which all members agree, kept by a Raft group."""

    voters: Literal[0, 1, 3, 5, 7] = about(
        0,
        "Start a metastore with this number of voters, if the cluster has none. `holdfast metastore start` does so in "
        "a running cluster, and changes the number. 0: do not start one; without a metastore there are no zones.",
    )
    replace_after_ms: int = whole(
        5000,
        0,
        86_400_000,
        "Time after the removal of a voter from the cluster until another member replaces it.",
    )


class PersistenceSettings(Section, frozen=True, kw_only=True):
    """Journal and checkpoints of this member."""

    directory: str = sized(
        "", 4096, "Directory for journal and checkpoints, for this member alone; empty: memory only."
    )
    sync_interval_ms: Milliseconds = about(
        1000,
        "Interval of disk syncs for maps with journal = 'lazy': a power cut may lose the writes of this time.",
    )
    segment_bytes: int = whole(
        67_108_864, 65_536, 2**31, "Size of one file of the journal; allocated in advance."
    )
    checkpoint_bytes: int = whole(
        268_435_456,
        65_536,
        2**40,
        "Growth of the journal after which a partition writes a new checkpoint. A restart replays at most about "
        "as much.",
    )
    history_bytes: int = whole(
        1_073_741_824,
        0,
        2**44,
        "Journal to keep beyond the needs of a restart, so that a member that was away receives only the updates "
        "that it missed.",
    )
    history_age_s: int = whole(86_400, 0, 31_536_000, "Time to keep journal beyond the needs of a restart.")


class ReplicationSettings(Section, frozen=True, kw_only=True, rename=ENCODED_NAMES["replication"]):
    """Replication to backups, and repair of differing copies."""

    backup_timeout_ms: Milliseconds = about(
        5000,
        "Time that a write waits for its sync backups; after it the caller receives an error with unknown "
        "outcome.",
    )
    unknown_writes: Literal["retry", "fail"] = about(
        "retry",
        "When the member that received a write goes away before it responds: retry at the next primary, which "
        "does not apply a known request twice; or fail, and report the outcome as unknown.",
    )
    backup_acks: Literal["owner", "client"] = about(
        "owner",
        "Where a write waits for its sync backups: at the owner, or at clients that support it. A client that "
        "stops waiting may take silence for success.",
    )
    request_ids: int = whole(
        1000, 0, 1_000_000, "Number of requests that a partition remembers, to apply each only once."
    )
    tail_bytes: int = whole(
        65_536,
        0,
        2**30,
        "Memory for the last updates of each map in each copy of a partition, for replicas that missed only "
        "these.",
    )
    anti_entropy_ms: int = whole(
        30_000,
        0,
        86_400_000,
        "Interval at which primaries send digests to their backups to find copies that differ; 0: never.",
    )
    parallel_repairs: int = whole(4, 1, 1024, "Number of copies that one member repairs at a time.")


class TransactionSettings(Section, frozen=True, kw_only=True):
    """Timeouts and locks of transactions."""

    timeout_ms: Milliseconds = about(
        120_000, "Timeout of transactions that set none: they are rolled back this long after their start."
    )
    timeout_max_ms: Milliseconds = about(
        600_000, "Maximum timeout of a transaction; a longer one is reduced to this."
    )
    per_connection: int = whole(
        1000, 1, 50_000, "Number of transactions that one client connection may have open."
    )
    lock_wait_ms: Milliseconds = about(
        30_000, "Time that a transaction waits for a lock before it is rolled back."
    )
    deadlock_after_ms: Milliseconds = about(
        100, "Time that a transaction waits for a lock before the deadlock check."
    )


class SecuritySettings(SecretiveSection, frozen=True, kw_only=True):
    """Credentials. Without them and TLS, the member binds loopback addresses only."""

    username: Text = about("", "Username that clients must send, with the password.")
    password: Password = about("", "Password that clients must send, with the username.")
    token: Password = about("", "Token that clients may send instead of username and password.")
    member_secret: Password = about(
        "", "Secret that all members share, and by which they authenticate each other."
    )
    audit_file: str = sized(
        "", 4096, "Audit log: a line of JSON per login, rejection and operator command; empty: none."
    )
    audit_bytes: int = whole(
        67_108_864, 65_536, 2**40, "Size at which security.audit_file is rotated to .1, .1 to .2, and so on."
    )
    audit_files: int = whole(2, 0, 1000, "Number of rotated files to keep besides security.audit_file.")

    second_member_secret: Password = about(
        "",
        "A second secret that this member also accepts and proves, for replacing the secret member by member.",
    )
    allow_insecure_bind: bool = about(
        False,
        "INSECURE: listen on other addresses than loopback without TLS or credentials. Anyone who reaches the "
        "ports can then read passwords and data in transit, or change everything.",
    )

    @property
    def clients_authenticate(self) -> bool:
        """Whether clients must send a username and password, or a token."""
        return bool(self.password or self.token)


class LimitSettings(Section, frozen=True, kw_only=True, rename=ENCODED_NAMES["limits"]):
    """Limits of keys, entries, frames, connections and buffers of this member."""

    memory_bytes: int = whole(
        0,
        0,
        2**50,
        "Memory limit of this member's process. From 80 % of it, writes that store entries are rejected in the "
        "partitions that the member holds; from 90 %, no partition moves to it. 0: three quarters of the "
        "container's memory or of RLIMIT_AS, or half of the host's, whichever is least.",
        live=True,
    )

    key_bytes: int = whole(65_536, 16, 1_048_576, "Largest serialised key.")
    value_bytes: int = whole(4_194_304, 16, 2**30, "Largest serialised value.")
    frame_bytes: int = whole(16_777_216, 65_536, 2**31 - 1, "Largest message of a client.")
    auth_frame_bytes: int = whole(4096, 1024, 65_536, "Largest message of a client before it has logged in.")
    auth_timeout_ms: Milliseconds = about(5000, "Time to log in before the member closes the connection.")
    connections: int = whole(2048, 1, 65_536, "Number of client connections that are logged in.", live=True)
    connections_per_address: int = whole(
        1536, 1, 65_536, "Number of client connections from one address.", live=True
    )
    operator_connections: int = whole(
        8,
        1,
        1024,
        "Additional connections, reserved for `holdfast status`, `holdfast member` and `holdfast cluster`.",
        live=True,
    )
    unauthenticated_connections: int = whole(
        128,
        1,
        65_536,
        "Number of connections that have not logged in, for clients and for members each, and as many before the "
        "end of the TLS handshake. Above it, the oldest connection of the address with the most is closed.",
    )
    member_connections: int = whole(
        1024,
        8,
        65_536,
        "Number of connections of other members. Above it, the oldest connection of the address with the most is "
        "closed.",
        live=True,
    )
    call_timeout_ms: Milliseconds = about(
        60_000,
        "Time that a request waits for a partition without a primary before it is rejected; it is not applied.",
    )
    idle_timeout_ms: Milliseconds = about(
        300_000,
        "Time after which an idle client connection is closed. Hazelcast clients send pings; Holdfast clients "
        "reconnect when they need to.",
        live=True,
    )
    output_buffer_bytes: int = whole(
        4_194_304,
        65_536,
        2**31,
        "Responses that one client has not read yet, or that wait for others. Above it, the member stops "
        "processing the client's requests.",
    )
    total_output_buffer_bytes: int = whole(
        268_435_456,
        65_536,
        2**40,
        "Unread responses and incomplete requests of all clients together. Above it, the member serves only "
        "clients that have read all their responses; above twice as much, it disconnects the client with the "
        "most.",
        live=True,
    )
    answer_bytes: int = whole(
        134_217_728,
        65_536,
        201_326_592,
        "Size of the keys and values in one response; requests that need more are rejected.",
    )
    backlog_bytes: int = whole(
        67_108_864,
        65_536,
        2**40,
        "Records kept for backups that have not acknowledged them. Above it, the member stops reading from "
        "clients; if that does not help, or above twice as much, it rejects writes.",
    )
    async_backlog_bytes: int = whole(
        16_777_216, 65_536, 2**40, "Records kept for one async backup. Above it, writes wait for that backup."
    )
    waiting_requests: int = whole(
        100_000, 1, 2**31, "Number of requests that may wait for other members; more are rejected."
    )
    waiting_bytes: int = whole(
        67_108_864, 65_536, 2**40, "Size of the requests that may wait for other members; more are rejected."
    )
    processor_threads: int = whole(4, 1, 256, "Threads that run entry processors.")
    waiting_processors: int = whole(
        1000, 1, 1_000_000, "Runs of entry processors that may wait for a thread; more are rejected."
    )

    def bounded(self, size: int) -> int:
        """At most a sixteenth of `memory_bytes`, where that is known: for data in transit."""
        return min(size, self.memory_bytes // 16) if self.memory_bytes else size


SECTIONS: Final[dict[str, type[Section]]] = {
    "cluster": ClusterSettings,
    "member": MemberSettings,
    "partitions": PartitionSettings,
    "metastore": MetastoreSettings,
    "cp": CpSettings,
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
"""Sections that occur once."""

NAMED: Final[dict[str, type[Section]]] = {
    "maps": MapSettings,
    "queues": QueueSettings,
    "lists": ListSettings,
    "sets": SetSettings,
    "ringbuffers": RingbufferSettings,
    "replicated_maps": ReplicatedMapSettings,
    "pn_counters": CounterSettings,
    "flake_id_generators": IdGeneratorSettings,
    "cardinality_estimators": EstimatorSettings,
    "multimaps": MultimapSettings,
    "processors": ProcessorSettings,
    "users": UserSettings,
    "roles": RoleSettings,
}
"""Sections that have a table for each name, as in `[maps.NAME]`."""
SOMEBODY: Final = "NAME"
"""Placeholder for the name of such a table."""

SHARED: Final = (
    "cluster.name",
    "cluster.quorum",
    "partitions.count",
    "partitions.group_by",
    "partitions.placement",
    "partitions.lost",
    "metastore.voters",
    "cp.raft_zone",
    "cp.sessionless_semaphores",
    "replication.unknown_writes",
    "replication.request_ids",
)
"""Keys that must be equal on all members, besides those of `maps`."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of one member, checked. `load` makes one."""

    cluster: ClusterSettings = ClusterSettings()
    member: MemberSettings = MemberSettings()
    partitions: PartitionSettings = PartitionSettings()
    metastore: MetastoreSettings = MetastoreSettings()
    cp: CpSettings = CpSettings()
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
    """By name; `load` adds `default`."""
    queues: dict[str, QueueSettings] = {}
    lists: dict[str, ListSettings] = {}
    sets: dict[str, SetSettings] = {}
    ringbuffers: dict[str, RingbufferSettings] = {}
    replicated_maps: dict[str, ReplicatedMapSettings] = {}
    pn_counters: dict[str, CounterSettings] = {}
    flake_id_generators: dict[str, IdGeneratorSettings] = {}
    cardinality_estimators: dict[str, EstimatorSettings] = {}
    multimaps: dict[str, MultimapSettings] = {}
    processors: dict[str, ProcessorSettings] = {}
    users: dict[str, UserSettings] = {}
    """By name. Without users, everyone that `security` admits has all permissions."""
    roles: dict[str, RoleSettings] = {}
    services: dict[str, ServiceSettings] = {}
    """By name; set by the program, never by a configuration."""
    given: frozenset[str] = frozenset()
    """Dotted names of the keys that any source has set."""

    def map(self, name: str) -> MapSettings:
        """The settings of map `name`: its own, or those of `default`. Holdfast's own maps (`__schemas`, ...)
        have as many sync backups as any map has copies; services have their own settings.
        """
        if name == TRANSACTIONS_MAP:
            return self._of_transactions()
        if name.startswith(INTERNAL) and name not in self.maps:
            if (collection := self.collection(name)) is not None:
                return collection.as_map()
            if name.startswith(KEY_LOCKS):
                return self._of_locks(name.removeprefix(KEY_LOCKS))
            return MapSettings(
                backups=self.replica_backups(),
                journal="sync" if self.journalled else "off",
                raft_zone=self.cp.raft_zone if name.startswith(CP_PREFIX) else "",
                transactional=not name.startswith(CP_PREFIX),
            )
        return self.maps.get(name) or self.maps.get(DEFAULT_MAP) or MapSettings()

    def collection(self, name: str) -> StructureSettings | None:
        """The settings of the collection whose items this map holds; None: of none."""
        prefix, colon, own = name.partition(":")
        section = COLLECTIONS.get(prefix + colon)
        if section is None:
            return None
        chosen: dict[str, StructureSettings] = getattr(self, section) if section else {}
        names = (
            own,
            own.removeprefix(RELIABLE_TOPIC_PREFIX) if section == "ringbuffers" else own,
            DEFAULT_MAP,
        )
        found = next((chosen[one] for one in names if one in chosen), None)
        if found is not None:
            return found
        usual = self.map(DEFAULT_MAP)
        kind = NAMED[section] if section else StructureSettings
        inherited = {key: getattr(usual, key) for key in INHERITED if key in kind.__struct_fields__}
        return cast("type[StructureSettings]", kind)(**inherited)

    def _of_locks(self, name: str) -> MapSettings:
        """Locks have as many copies as the entries that they guard, and survive what these survive."""
        guarded = self.map(name)
        return MapSettings(
            backups=guarded.backups,
            async_backups=guarded.async_backups,
            journal=guarded.journal,
            transactional=False,
        )

    def _of_transactions(self) -> MapSettings:
        """Records of transactions are kept on every member that may hold an entry changed by them, and
        journalled as well as these.
        """
        collections = (
            entry.as_map() for section in COLLECTION_SECTIONS for entry in getattr(self, section).values()
        )
        everything = [self.map(DEFAULT_MAP), *self.maps.values(), *collections]
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
        """Whether any map or collection may take part in transactions."""
        kept = (MapSettings, CollectionSettings)
        return any(entry.transactional for entry in self._all() if isinstance(entry, kept))

    @property
    def uses_zones(self) -> bool:
        """Whether any map, collection or CP group lives in a zone."""
        maps = any(entry.raft_zone for entry in self.maps.values())
        collections = (*self.queues.values(), *self.lists.values(), *self.sets.values())
        return maps or bool(self.cp.raft_zone) or any(entry.raft_zone for entry in collections)

    def object(self, name: str) -> MapSettings | ServiceSettings:
        """The settings of a map, or of a service by its prefixed name (`SERVICE_PREFIX`)."""
        if name.startswith(SERVICE_PREFIX):
            return self.services.get(name.removeprefix(SERVICE_PREFIX)) or ServiceSettings()
        return self.map(name)

    @property
    def journalled(self) -> bool:
        """Whether any map or service has a journal."""
        return any(entry.journal != "off" for entry in self._all())

    @property
    def clients_authenticate(self) -> bool:
        """Whether clients must log in."""
        return bool(self.users) or self.security.clients_authenticate

    def is_given(self, key: str) -> bool:
        """Whether any source has set this key (`member.client_port`)."""
        return key in self.given

    def replica_backups(self) -> int:
        """The largest number of backups, sync and async, of any configured map."""
        return max(entry.copies - 1 for entry in self._all())

    def holders(self) -> int:
        """Number of replicas, from the owner on, that hold every map with a sync backup."""
        counts = [entry.backups for entry in self._all() if entry.backups]
        return 1 + min(counts, default=BACKUPS_MAX)

    def depths(self) -> list[int]:
        """The different numbers of copies that maps may have, the owner's included, in ascending order."""
        return sorted({entry.copies for entry in self._all()})

    def complete(self) -> int:
        """Number of replicas, from the owner on, that hold every map, also those without backups."""
        return 1 + min(entry.backups for entry in self._all())

    def maps_within(self, replicas: int) -> list[str]:
        """The maps, by configured name, whose copies all lie within the first `replicas` replicas."""
        named: dict[str, MapSettings | ServiceSettings | StructureSettings] = {
            DEFAULT_MAP: self.map(DEFAULT_MAP),
            **self.maps,
        }
        named.update({SERVICE_PREFIX + name: entry for name, entry in self.services.items()})
        for prefix, section in COLLECTIONS.items():
            if section:
                named.update({prefix + name: entry for name, entry in getattr(self, section).items()})
        return sorted(name for name, entry in named.items() if entry.copies <= replicas)

    def configured(self, name: str) -> str:
        """The name under which the map is configured: its own, or `default`."""
        return name if name in self.maps else DEFAULT_MAP

    def guarded(self, replicas: int = 1 + BACKUPS_MAX) -> tuple[str, ...]:
        """Those of `maps_within` whose losses are not ignored (`loss_policy`)."""
        return tuple(
            name
            for name in self.maps_within(replicas)
            if not name.startswith(INTERNAL) and self.map(name).loss_policy != "ignore"
        )

    def _all(self) -> list[MapSettings | ServiceSettings | StructureSettings]:
        collections = [entry for section in COLLECTION_SECTIONS for entry in getattr(self, section).values()]
        return [self.map(DEFAULT_MAP), *self.maps.values(), *collections, *self.services.values()]

    def seed_addresses(self) -> list[tuple[str, int]]:
        """The seeds as (host, member port)."""
        return [parse_seed(seed, "cluster.seeds") for seed in self.cluster.seeds]

    def shared(self) -> dict[str, str]:
        """The settings that all members share, as comparable text: dotted key -> value."""
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
        for section in COLLECTION_SECTIONS:
            for name, chosen in sorted(getattr(self, section).items()):
                found |= {
                    f"{section}.{name}.{key}": value
                    for key, value in sharing.told(section, chosen, NAMED[section]())
                }
        return {sharing.encoded_key(key): str(value) for key, value in found.items()}

    def digest(self) -> str:
        """The shared settings as one stable text, equal exactly when `shared` is."""
        return "\n".join(f"{key}={value}" for key, value in self.shared().items())


def _at(settings: Settings, key: str) -> object:
    section, _, name = key.partition(".")
    return getattr(getattr(settings, section), name)
