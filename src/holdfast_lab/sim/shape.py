"""The shape of a seed: hosts, settings, amount of data; drawn before the run, each part from its own random
stream.

Small shapes are common, so that seeds stay cheap. Limits and times are sometimes tiny or huge, so that some
seeds have full buffers or slow answers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import msgspec

from holdfast.config import CpSettings, Settings
from holdfast.config.schema import (
    LimitSettings,
    MapSettings,
    PartitionSettings,
    PersistenceSettings,
    Placement,
    QueueSettings,
)
from holdfast.core.model.ids import SECOND
from holdfast.core.model.levels import FeatureLevels
from holdfast.core.zones.descriptors import Adjustment, PlacementKind, ZoneSettings
from holdfast_lab.sim.builds import builds_drawn
from holdfast_lab.sim.cluster import Journal, simulated_settings
from holdfast_lab.sim.eviction_user import TIGHT, with_eviction
from holdfast_lab.sim.transacting import with_lists_in_zone, with_transactions
from holdfast_lab.sim.zone_runs import ZONED, start_voters_drawn, zone_drawn

Journalling = Literal["off", "sync", "lazy", "mixed"]
Loss = Literal["", "accept", "operator", "return"]
"""Reaction when more members die than must be survived (empty: they do not): the settings or the operator
accept the loss, or the holders come back with their disks.
"""
Choice = TypeVar("Choice")
LARGE_BYTES = 1_000_000
LITTLE_BYTES = 1_000
LARGE_MEMORY = 1000
"""Remembered requests, so that none is forgotten before it may be repeated."""
MANY_KEYS = 2_000
MANY_HOSTS = 9
MANY_PARTITIONS = 100
KEPT_SEEDS = 100
"""Tests keep many runs of seeds below this for what they show: newer choices do not affect them."""

MOVE_SEEDS, MOVES = 30_000, 0.7
"""In so many zones of seeds from this one on, the map moves."""
MOVED_STREAM_SEEDS = 50_000
MIXED_SEEDS = 78_000
"""From this one on transactions with zones have half of their lists in the zone."""
"""From this seed on a map that moves may have a change stream."""


QUEUE_SEEDS, STRUCTURE_SEEDS, QUEUES = 90_000, 95_000, 0.5
"""In so many runs of seeds from this one on, there is a queue."""
LOCK_SEEDS, LOCKS = 95_000, 0.5
"""The same of a lock."""
ZONE_QUEUE_SEEDS, ZONE_QUEUES = 92_000, 0.5
"""In so many runs with a zone of seeds from this one on, the queue is in the zone."""
PROCESSOR_SEEDS, PROCESSORS, PROCESSED = 99_500, 0.5, "processed"
"""In so many runs of seeds from this one on, an entry processor runs; with a zone, half of these are in it."""
CP_SEEDS, CPS = 94_000, 0.5
"""In so many runs of seeds from this one on, there are CP objects; with a zone, half of these are in it."""
EVICTION_SEEDS, EVICTIONS = 98_500, 0.5
"""In so many runs of seeds from this one on, there are maps with eviction; with a zone, half of these are in it."""


SESSION_SEEDS, SHORT_SESSIONS, SESSION_TTLS_MS = 96_000, 0.6, (2000, 4000, 8000)
"""In so many of these runs of seeds from this one on, the sessions of CP groups end while the run lasts."""


@dataclass(frozen=True, slots=True)
class Shape:
    hosts: int
    spare: int
    settings: Settings
    journal: Journal
    run_ns: int
    lite: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    service_backups: int | None = None
    keys: int = 20
    large_bytes: int = 0
    memory: bool = False
    states: bool = False
    clocks: bool = False
    damage: bool = False
    loss: Loss = ""
    zone: ZoneSettings | None = None
    zone_loss: bool = False
    start_voters: int = 0
    """Voters of the metastore that the operator starts later; 0: it is there from the beginning."""
    log_entries: int = 0
    """Applied entries kept in the log of a Raft group: with few, states are sent instead. 0: as in production."""
    moves: bool = False
    transactions: bool = False
    buffer_ns: int = 0
    """See `World`."""
    builds: tuple[FeatureLevels, ...] = ()
    """Initial feature levels of each host's build; empty: all have this build throughout."""

    def has_lock(self, seed: int) -> bool:
        return self._is_sound and seed >= LOCK_SEEDS and random.Random(f"{seed}/lock").random() < LOCKS

    def has_queue(self, seed: int) -> bool:
        kept = not (self.zone_loss and self.settings.queues)
        drawn = seed >= QUEUE_SEEDS and random.Random(f"{seed}/queue").random() < QUEUES
        return self._is_sound and kept and drawn

    def has_cp(self, seed: int) -> bool:
        kept = not (self.zone_loss and self.settings.cp.raft_zone)
        return self._is_sound and kept and seed >= CP_SEEDS and random.Random(f"{seed}/cp").random() < CPS

    def session_ttl_ms(self, seed: int) -> int:
        """Time to live of sessions of CP groups; 0: they do not end in the run."""
        draw = random.Random(f"{seed}/sessions")
        short = seed >= SESSION_SEEDS and draw.random() < SHORT_SESSIONS
        return draw.choice(SESSION_TTLS_MS) if short else 0

    def has_processors(self, seed: int) -> bool:
        drawn = seed >= PROCESSOR_SEEDS and random.Random(f"{seed}/processor").random() < PROCESSORS
        kept = not (self.zone_loss and PROCESSED in self.settings.maps)
        return self._is_sound and kept and drawn

    def has_structures(self, seed: int) -> bool:
        """Whether the run has a ringbuffer, a counter and a generator of ids."""
        return self._is_sound and seed >= STRUCTURE_SEEDS and random.Random(f"{seed}/ring").random() < QUEUES

    @property
    def has_eviction(self) -> bool:
        return TIGHT in self.settings.maps

    def evicting(self, seed: int) -> Shape:
        """The same run with maps that evict, if its seed has them."""
        drawn = seed >= EVICTION_SEEDS and random.Random(f"{seed}/evictions").random() < EVICTIONS
        if not (self._is_sound and drawn):
            return self
        zone = self.zone.name if self.zone is not None and not self.zone_loss else ""
        return replace(self, settings=with_eviction(self.settings, seed, zone))

    @property
    def _is_sound(self) -> bool:
        """Whether every acknowledged change of a collection stays, and none is repeated."""
        remembers = self.settings.replication.request_ids >= LARGE_MEMORY and not self.large_bytes
        return remembers and not self.split and not self.builds and self.journal != "lazy"

    @property
    def split(self) -> bool:
        """Whether a partitioned cluster continues as two: no members are disconnected in such a run."""
        return self.settings.cluster.quorum == "any"

    def line(self) -> str:
        settings = self.settings
        parts = [
            f"{self.hosts} hosts",
            f"{self.spare} spare" if self.spare else "",
            f"{settings.map('default').backups} backups",
            f"{settings.partitions.count} partitions",
            f"{self.keys} keys",
            f"journal {self.journal}" if self.journal != "off" else "",
            self._zone_line(),
            "the map moves" if self.moves else "",
            *self.features(),
            *unusual(settings),
        ]
        return ", ".join(part for part in parts if part)

    def _zone_line(self) -> str:
        if self.zone is None:
            return ""
        zone, metastore = self.zone, self.settings.metastore
        logs = f", logs of {self.log_entries} entries" if self.log_entries else ""
        begins = "started later, " if self.start_voters else ""
        return (
            f"zone of {zone.replicas} replicas ({zone.adjustment}, {zone.placement}, down {zone.scale_down_s} s, "
            f"up {zone.scale_up_s} s{logs}{', lost' if self.zone_loss else ''}), "
            f"metastore of {self._voters} ({begins}replaced after {metastore.replace_after_ms} ms)"
        )

    def features(self) -> list[str]:
        settings, maps = self.settings, self.settings.maps.values()
        limits = LimitSettings()
        found = {
            "one member": self.hosts == 1,
            "nine members or more": self.hosts >= MANY_HOSTS,
            "one partition": settings.partitions.count == 1,
            "a hundred partitions or more": settings.partitions.count >= MANY_PARTITIONS,
            "thousands of keys": self.keys >= MANY_KEYS,
            "values of a megabyte": self.large_bytes >= LARGE_BYTES,
            "real chunk size": settings.partitions.chunk_bytes == PartitionSettings().chunk_bytes,
            "lite members": bool(self.lite),
            "groups of hosts": bool(self.groups),
            "service": self.service_backups is not None,
            "quorum any": self.split,
            "placed by rendezvous": settings.partitions.placement == "rendezvous",
            "losses accepted": settings.partitions.lost == "accept",
            "acknowledgements collected by clients": settings.replication.backup_acks == "client",
            "confirmed reads": any(entry.reads == "confirmed" for entry in maps),
            "reads from backups": any(entry.read_backups for entry in maps),
            "async backups": any(entry.async_backups for entry in maps),
            "maps of several depths": len({entry.copies for entry in maps}) > 1,
            "change streams": any(entry.changes_bytes for entry in maps),
            "unknown is told at once": settings.replication.unknown_writes == "fail",
            "tiny backlog": settings.limits.backlog_bytes < limits.backlog_bytes,
            "tiny room for waiting requests": settings.limits.waiting_requests < limits.waiting_requests,
            "small values only": settings.limits.value_bytes < limits.value_bytes,
            "memories run short": self.memory,
            "states and wishes": self.states,
            "clocks that err": self.clocks,
            "damaged backups": self.damage,
            "two builds": bool(self.builds),
            "read buffers": self.buffer_ns > 0,
            "more losses than backups": bool(self.loss),
            "journal sync": self.journal == "sync",
            "journal lazy": self.journal == "lazy",
            **self._zone_features(),
        }
        return [name for name, has in found.items() if has]

    @property
    def _voters(self) -> int:
        return self.start_voters or self.settings.metastore.voters

    def _zone_features(self) -> dict[str, bool]:
        if (zone := self.zone) is None:
            return {}
        return {
            "zone: short logs": self.log_entries > 0,
            "zone: change stream": bool(self.settings.map(ZONED).changes_bytes),
            "zone of one replica": zone.replicas == 1,
            "zone of several replicas": zone.replicas > 1,
            "zone of fewer partitions": zone.partitions < self.settings.partitions.count,
            "metastore of one": self._voters == 1,
            "metastore of several": self._voters > 1,
            "zone: replace": zone.adjustment is Adjustment.REPLACE,
            "zone: cancel": zone.adjustment is Adjustment.CANCEL,
            "zone: rendezvous": zone.placement is PlacementKind.RENDEZVOUS,
            "zone: even": zone.placement is PlacementKind.EVEN,
        }

    def large_value(self, draw: random.Random) -> int:
        return self.large_bytes if self.large_bytes and draw.random() < 0.004 else 0


def drawn(
    seed: int,
    journal: Journalling = "off",
    *,
    power_cuts: bool = False,
    memory: bool = False,
    zones: bool = False,
    transactions: bool = False,
) -> Shape:
    """`power_cuts`: all hosts lose power at once, so every write must be durable. `zones`: one of the maps is
    in a zone, and no more than its groups survive is destroyed. `transactions`: all maps take part in some.
    """
    shape = _plain(seed, journal, power_cuts=power_cuts, memory=memory)
    if transactions:
        shape = replace(shape, settings=with_transactions(shape.settings, seed), transactions=True)
    if not zones:
        return shape.evicting(seed)
    moves = seed >= MOVE_SEEDS and not shape.split and random.Random(f"{seed}/moves").random() < MOVES
    # Older builds prevent the founding of a metastore in a running cluster.
    voters = start_voters_drawn(seed) if seed >= KEPT_SEEDS and not shape.builds else 0
    streamed = 0 if moves and seed < MOVED_STREAM_SEEDS else _zone_streamed(seed)
    settings, zone = zone_drawn(seed, shape.settings, changes_bytes=streamed, started=voters > 0, moves=moves)
    if transactions and seed >= MIXED_SEEDS:
        settings = with_lists_in_zone(settings, zone.name)
    if seed >= MOVE_SEEDS and zone.partitions < settings.partitions.count:
        # Members of old builds alone cannot serve a map in such a zone.
        shape = replace(shape, builds=())
    if seed >= ZONE_QUEUE_SEEDS and random.Random(f"{seed}/zone queue").random() < ZONE_QUEUES:
        settings = msgspec.structs.replace(settings, queues={"default": QueueSettings(raft_zone=zone.name)})
        shape = replace(shape, builds=())
    if seed >= CP_SEEDS and random.Random(f"{seed}/zone cp").random() < ZONE_QUEUES:
        settings = msgspec.structs.replace(settings, cp=CpSettings(raft_zone=zone.name))
        shape = replace(shape, builds=())
    if seed >= PROCESSOR_SEEDS and random.Random(f"{seed}/zone processor").random() < ZONE_QUEUES:
        zoned = MapSettings(backups=settings.map("default").backups, raft_zone=zone.name)
        settings = msgspec.structs.replace(settings, maps={**settings.maps, PROCESSED: zoned})
        shape = replace(shape, builds=())
    shape = replace(
        shape,
        settings=settings,
        zone=zone,
        # Members that come back have nothing: their files would be of an older generation of the group.
        zone_loss=shape.journal == "off" and not power_cuts and not moves and _zone_lost(seed),
        moves=moves,
        start_voters=voters,
        log_entries=_log_entries(seed),
        loss="",
    )
    return shape.evicting(seed)


def _plain(seed: int, journal: Journalling, *, power_cuts: bool, memory: bool) -> Shape:
    size = random.Random(f"{seed}/size")
    hosts, spare, partitions = _sizes(size)
    mode, files = _files(seed, "sync" if power_cuts else journal, partitions)
    kinds = random.Random(f"{seed}/kinds")
    lite = _lite(kinds, hosts, spare)
    groups = _groups(kinds, hosts + spare)
    split = not power_cuts and kinds.random() < 0.05
    loss = _loss(kinds, hosts - len([index for index in lite if index < hosts]), mode) if not split else ""
    accepted = loss == "accept" or (not loss and kinds.random() < 0.1)
    changes = kinds.choice([5000, 50_000]) if kinds.random() < 0.15 else _streamed(seed)
    settings = _knobs(
        simulated_settings(
            _chosen(size, [(1, 6), (2, 3), (3, 1)]),
            partitions,
            chunk_bytes=_chosen(size, [(100, 4), (1024, 4), (4096, 1), (131_072, 2)]),
            mixed=size.random() < 0.4,
            journal=mode,
            persistence=files,
            changes_bytes=changes,
        ),
        random.Random(f"{seed}/knobs"),
    )
    settings = _changed(settings, "cluster", quorum="any" if split else "majority")
    settings = _changed(
        settings,
        "partitions",
        lost="accept" if accepted else "wait",
        group_by=kinds.choice(["zone", "host", "rack"]) if groups else "member",
        placement=_placement(seed),
    )
    damage = kinds.random() < 0.25
    if damage:
        settings = _changed(settings, "replication", anti_entropy_ms=kinds.choice([500, 1000]))
    limited = size.random() < 0.06
    if limited:
        settings = _changed(settings, "limits", value_bytes=LITTLE_BYTES)
    large = LARGE_BYTES if size.random() < 0.04 else _chosen(size, [(0, 6), (5_000, 3)])
    return Shape(
        hosts=hosts,
        spare=spare,
        settings=_reading(settings, random.Random(f"{seed}/reading")),
        journal=mode,
        run_ns=_run_ns(size, hosts, partitions),
        lite=lite,
        groups=groups,
        # A service is not stored in files, so it needs another copy in memory.
        service_backups=kinds.choice([1, 1, 2]) if kinds.random() < 0.5 and mode == "off" else None,
        keys=_chosen(size, [(20, 8), (200, 4), (MANY_KEYS, 1)]),
        large_bytes=2 * LITTLE_BYTES if limited else large,
        memory=memory or kinds.random() < 0.08,
        states=kinds.random() < 0.3,
        clocks=kinds.random() < 0.3,
        damage=damage,
        loss=loss if not power_cuts else "",
        buffer_ns=_buffer_ns(seed),
        builds=_builds(seed, hosts + spare),
    )


def unusual(settings: Settings) -> list[str]:
    plain = simulated_settings(1, 1)
    found = []
    for section in ("cluster", "partitions", "replication", "limits"):
        usual, given = getattr(plain, section), getattr(settings, section)
        for name in given.__struct_fields__:
            value = getattr(given, name)
            if value != getattr(usual, name) and name not in (
                "count",
                "quorum",
                "lost",
                "placement",
                "backup_acks",
            ):
                found.append(f"{name} {value}")
    return found


# -- parts ------------------------------------------------------------------------------------------------------------


def _chosen(draw: random.Random, weighted: list[tuple[Choice, int]]) -> Choice:
    return draw.choices([value for value, _ in weighted], [weight for _, weight in weighted])[0]


def _sizes(draw: random.Random) -> tuple[int, int, int]:
    kind = _chosen(draw, [("small", 82), ("tiny", 6), ("many hosts", 5), ("many partitions", 7)])
    if kind == "tiny":
        return draw.choice([1, 2]), draw.choice([0, 1, 2]), draw.choice([1, 3])
    if kind == "many hosts":
        return draw.randint(MANY_HOSTS, 15), draw.choice([0, 1]), draw.choice([7, 31])
    if kind == "many partitions":
        return draw.choice([3, 4]), draw.choice([0, 1]), draw.choice([MANY_PARTITIONS, 271])
    return (
        draw.choice([3, 4, 5, 5, 7]),
        draw.choice([0, 1, 2]),
        _chosen(draw, [(1, 1), (3, 3), (7, 3), (13, 3), (31, 3)]),
    )


def _run_ns(draw: random.Random, hosts: int, partitions: int) -> int:
    large = hosts >= MANY_HOSTS or partitions >= MANY_PARTITIONS
    return draw.choice([10, 15] if large else [15, 25, 40]) * SECOND


def _files(seed: int, journal: Journalling, partitions: int) -> tuple[Journal, PersistenceSettings]:
    """Journals of the maps, and sizes of files: small, so that a run of seconds has many; but each segment
    begins with the whole table, and must have room for more.
    """
    draw = random.Random(f"{seed}/journal")
    table_bytes = 1024 * partitions if partitions >= MANY_PARTITIONS else 0
    chosen: Journal = draw.choice(["off", "sync", "sync", "lazy"])
    files = PersistenceSettings(
        directory="disk",
        sync_interval_ms=draw.choice([50, 200, 1000]),
        segment_bytes=table_bytes + draw.choice([16_384, 65_536]),
        checkpoint_bytes=draw.choice([8_192, 32_768, 262_144]),
        history_bytes=draw.choice([0, 32_768, 1_048_576]),
    )
    return chosen if journal == "mixed" else journal, files


def _builds(seed: int, hosts: int) -> tuple[FeatureLevels, ...]:
    mixed = seed >= KEPT_SEEDS and random.Random(f"{seed}/mixed").random() < 0.15
    return tuple(builds_drawn(seed, hosts)) if mixed else ()


def _buffer_ns(seed: int) -> int:
    draw = random.Random(f"{seed}/read buffers")
    return draw.choice([0, 0, 300_000, 3_000_000]) if seed >= KEPT_SEEDS else 0


def _streamed(seed: int) -> int:
    draw = random.Random(f"{seed}/streams")
    return draw.choice([5000, 50_000]) if seed >= KEPT_SEEDS and draw.random() < 0.41 else 0


def _zone_streamed(seed: int) -> int:
    """Bytes of history that a map in a zone keeps; few are soon forgotten."""
    draw = random.Random(f"{seed}/zone streams")
    return draw.choice([0, 2000, 50_000, 50_000]) if seed >= KEPT_SEEDS else 0


def _zone_lost(seed: int) -> bool:
    return seed >= KEPT_SEEDS and random.Random(f"{seed}/zone loss").random() < 0.6


def _log_entries(seed: int) -> int:
    draw = random.Random(f"{seed}/log entries")
    return draw.choice([4, 20, 100, 0]) if seed >= KEPT_SEEDS else 0


def _placement(seed: int) -> Placement:
    ranked = seed >= KEPT_SEEDS and random.Random(f"{seed}/placement").random() < 0.2
    return "rendezvous" if ranked else "even"


def _lite(draw: random.Random, hosts: int, spare: int) -> tuple[int, ...]:
    """Hosts of lite members: at least two data members remain; the one that forms the cluster may be lite."""
    if hosts < 3 or draw.random() > 0.2:
        return ()
    count = draw.randint(1, min(2, hosts - 2))
    return tuple(sorted(draw.sample(range(hosts + spare), count)))


def _groups(draw: random.Random, hosts: int) -> tuple[str, ...]:
    if hosts < 3 or draw.random() > 0.25:
        return ()
    count = draw.randint(2, min(4, hosts - 1))
    even = draw.random() < 0.7
    return tuple(f"group{index % count if even else draw.randrange(count)}" for index in range(hosts))


def _loss(draw: random.Random, data: int, journal: Journal) -> Loss:
    if data < 5 or draw.random() > 0.12:
        return ""
    ways: list[Loss] = ["accept", "operator", "return"]
    return draw.choice(ways if journal == "sync" else ways[:2])


def _reading(settings: Settings, draw: random.Random) -> Settings:
    confirmed, backups, behind = draw.random() < 0.3, draw.random() < 0.25, draw.random() < 0.15
    changed: dict[str, MapSettings] = {}
    for name, entry in settings.maps.items():
        if entry.backups:
            entry = msgspec.structs.replace(  # noqa: PLW2901 - the same entry, with more keys
                entry,
                reads="confirmed" if confirmed else "primary",
                read_backups=backups and not confirmed,
                async_backups=entry.async_backups + (1 if behind else 0),
            )
        changed[name] = entry
    return msgspec.structs.replace(settings, maps=changed)


def _knobs(settings: Settings, draw: random.Random) -> Settings:
    """Times, sizes and limits: each mostly as usual, sometimes tiny or huge."""

    def of(usual: Any, *others: Any) -> Any:
        return usual if draw.random() < 0.8 else draw.choice(others)

    limits, partitions, replication = settings.limits, settings.partitions, settings.replication
    heartbeat_ms, suspect_after_ms = of((500, 3000), (100, 1000), (200, 3000), (1000, 5000))
    settings = _changed(settings, "cluster", heartbeat_ms=heartbeat_ms, suspect_after_ms=suspect_after_ms)
    settings = _changed(
        settings,
        "partitions",
        parallel_migrations=of(3, 1, 10, 100),
        max_in_flight_bytes=of(partitions.max_in_flight_bytes, 1500),
        max_in_flight_bytes_total=of(partitions.max_in_flight_bytes_total, 3000),
        rebalance_delay_ms=of(0, 1000, 8000),
    )
    unknown = of("retry", "fail")
    settings = _changed(
        settings,
        "replication",
        tail_bytes=draw.choice([0, 1000, 65_536]),
        anti_entropy_ms=draw.choice([0, 1000, 5000]),
        backup_timeout_ms=of(replication.backup_timeout_ms, 400, 20_000),
        unknown_writes=unknown,
        # Repeated requests must be remembered: a run that remembers none repeats none.
        request_ids=of(1000, 100_000) if unknown == "retry" else of(1000, 0),
        backup_acks=draw.choice(["owner", "owner", "client"]),
        parallel_repairs=of(replication.parallel_repairs, 1),
    )
    return _changed(
        settings,
        "limits",
        backlog_bytes=of(limits.backlog_bytes, 3000),
        async_backlog_bytes=of(limits.async_backlog_bytes, 1500),
        waiting_requests=of(limits.waiting_requests, 3),
        waiting_bytes=of(limits.waiting_bytes, 2000),
        call_timeout_ms=of(limits.call_timeout_ms, 500, 5000),
        answer_bytes=of(limits.answer_bytes, 500),
    )


def _changed(settings: Settings, section: str, **keys: Any) -> Settings:
    changed = msgspec.structs.replace(getattr(settings, section), **keys)
    return msgspec.structs.replace(settings, **{section: changed})
