"""Deliberate losses and lies, to test the judges: each replaces a method of the members for one run.

Where possible a lie is the same on all replicas, so that no comparison of copies finds it. Each has its own
random stream, so that a seed with a lie is reproducible.
"""

# ruff: noqa: SLF001 - a lie sits where the truth does

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

import msgspec

from holdfast.core.hosted_services import Endpoint, MigrationEvent
from holdfast.core.journal.recovery import Recovered, RecoveredGroup, Recovery
from holdfast.core.messages import Forward
from holdfast.core.model.changes_since import ChangesSince
from holdfast.core.model.decisions import Decision
from holdfast.core.model.operations import READS, WHOLE, EntryEvent, Op, Request
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Record
from holdfast.core.multiraft import group_journal
from holdfast.core.operations import map_operations
from holdfast.core.primary_backup import primary_copy
from holdfast.core.primary_backup.cuts import Pin
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.primary_backup.primary_activation import PrimaryActivation
from holdfast.core.primary_backup.staging_replica import StagingReplica
from holdfast.core.raft.raft_messages import RaftEntry
from holdfast.core.raft_partition.leader_routing import LeaderRouting
from holdfast.core.raft_partition.partition_commands import decode_command
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.core.routing import backup_reads
from holdfast.core.routing.router import Router
from holdfast.core.store.map_state import MapState
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica, Replica
from holdfast.core.streams import change_streams
from holdfast.core.streams.entry_listeners import EntryListeners
from holdfast.server.hazelcast import near_caches
from holdfast.server.hazelcast.near_caches import Invalidations
from holdfast_lab.sim.replacing import Method, Replaced
from holdfast_lab.sim.zone_runs import ZONED

REPLAYED_MS = 5000
"""A command applied so long after its proposal is being applied again by a restart."""


@dataclass(frozen=True, slots=True)
class Asked:
    state: MapState | None
    request: Request
    now_ns: int
    decide: Callable[[Request], Decision]

    def truth(self) -> Decision:
        return self.decide(self.request)

    @property
    def present(self) -> bytes | None:
        state = self.state
        if state is None or state.expired(self.request.key, self.now_ns, touch=False):
            return None
        return state.entries.get(self.request.key)

    def store(self) -> Decision:
        return self.decide(msgspec.structs.replace(self.request, op=Op.PUT))


class Liar(Replaced):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.random = random.Random(f"lie/{name}")
        self._copies: list[LocalReplicas] = []
        self._lost: set[tuple[str, bytes, bytes]] = set()

    def begin(self, tell: Callable[[Liar], None]) -> None:
        self.replace(LocalReplicas, "__init__", self._register)
        tell(self)

    def _register(self, begin: Method) -> Method:
        def begins(copies: LocalReplicas, *args: Any, **named: Any) -> None:
            begin(copies, *args, **named)
            self._copies.append(copies)

        return begins

    def decide(self, operation: Op, share: float, lie: Callable[[Asked], Decision]) -> None:
        def around(decide: Method) -> Method:
            def decides(state: MapState | None, request: Request, now_ns: int, *more: Any) -> Any:
                def truth(request: Request) -> Decision:
                    decision: Decision = decide(state, request, now_ns, *more)
                    return decision

                if request.op is operation and self.now_and_then(share):
                    return lie(Asked(state, request, now_ns, truth))
                return truth(request)

            return decides

        self.replace(primary_copy, "decide", around)

    def now_and_then(self, share: float) -> bool:
        return self.random.random() < share

    def everywhere(self, partition: int) -> list[PartitionCopy]:
        found = []
        for copies in self._copies:
            staged = copies.staging.get(partition)
            filled = staged.copy if staged is not None else None
            held = (copies.held.get(partition), copies.stale.get(partition), filled)
            found += [copy for copy in held if copy is not None]
        return found

    def lose(self, partition: int, name: str, keys: Iterable[bytes], *others: MapReplica) -> None:
        """Remove entries from all copies, and from `others`, without an update. Copies that get them later,
        from a disk or a returned member, lose them too.
        """
        copies = [held for copy in self.everywhere(partition) if (held := copy.maps.get(name)) is not None]
        for held in [*copies, *others]:
            for key in keys:
                if (value := held.state.drop(key)) is not None:
                    self._lost.add((name, key, value))

    def lose_for_good(self) -> None:
        def store(original: Method) -> Method:
            def stores(held: MapState, key: bytes, value: bytes, *more: Any) -> None:
                if (held.name, key, value) in self._lost:
                    held.drop(key)
                else:
                    original(held, key, value, *more)

            return stores

        def start_from(original: Method) -> Method:
            def starts(held: MapState, base: MapState) -> None:
                original(held, base)
                self._forget(held)

            return starts

        def finish(original: Method) -> Method:
            def finishes(recovery: Recovery, recovered: Recovered) -> None:
                original(recovery, recovered)
                for copy in recovered.copies.values():
                    for held in copy.maps.values():
                        self._forget(held.state)

            return finishes

        self.replace(MapState, "store", store)
        self.replace(MapState, "start_from", start_from)
        self.replace(Recovery, "finish", finish)

    def _forget(self, held: MapState) -> None:
        gone = [key for key, value in held.entries.items() if (held.name, key, value) in self._lost]
        for key in gone:
            held.drop(key)


# -- losses


def _promotion_forgets(liar: Liar) -> None:
    orphaned: set[tuple[str, int]] = set()

    def assignment_changed(original: Method) -> Method:
        def changed(
            copies: LocalReplicas, partition: int, old: Assignment, new: Assignment, arrived: Any
        ) -> Any:
            me = copies._me
            if new.owner == me and me in old.replicas[1:] and old.owner not in new.replicas:
                orphaned.add((me, partition))
            return original(copies, partition, old, new, arrived)

        return changed

    def take_office(original: Method) -> Method:
        def takes(activation: PrimaryActivation, partition: int) -> None:
            if (activation._me, partition) in orphaned:
                orphaned.discard((activation._me, partition))
                salt = activation._rows[partition].version
                for held in activation._copies.held[partition].maps.values():
                    keys = [key for key in held.state.entries if crc32(key, salt) % 4 == 0]
                    liar.lose(partition, held.name, keys)
            original(activation, partition)

        return takes

    liar.lose_for_good()
    liar.replace(LocalReplicas, "assignment_changed", assignment_changed)
    liar.replace(PrimaryActivation, "_become_primary", take_office)


def _chunk_loses(liar: Liar) -> None:
    def pour(original: Method) -> Method:
        def pours(staged: StagingReplica, fill: Any, now_ns: int) -> None:
            original(staged, fill, now_ns)
            for part in fill.maps:
                if part.keys and liar.now_and_then(0.25):
                    liar.lose(fill.partition, part.map, part.keys[-1:])

        return pours

    liar.lose_for_good()
    liar.replace(StagingReplica, "pour", pour)


def _recovery_loses(liar: Liar) -> None:
    def finish(original: Method) -> Method:
        def finishes(recovery: Recovery, recovered: Recovered) -> None:
            original(recovery, recovered)
            for partition, copy in sorted(recovered.copies.items()):
                for held in copy.maps.values():
                    if held.state.entries and liar.now_and_then(0.5):
                        key = min(held.state.entries, key=crc32)
                        liar.lose(partition, held.name, [key], held)

        return finishes

    liar.lose_for_good()
    liar.replace(Recovery, "finish", finish)


def _group_tail_lost(liar: Liar) -> None:
    def regain(original: Method) -> Method:
        def regains(found: RecoveredGroup) -> Any:
            replica = original(found)
            # The same ones at every read.
            if replica.entries and crc32(b"".join(found.writes)) % 3 == 0:
                replica.entries.pop()
            return replica

        return regains

    liar.replace(group_journal, "regained", regain)


def _backup_idle(liar: Liar) -> None:
    def apply(original: Method) -> Method:
        def applies(held: Replica[Any], record: Record, now_ns: int) -> None:
            if liar.now_and_then(0.02):
                held.updates.update(record.counter - 1)
            else:
                original(held, record, now_ns)

        return applies

    liar.replace(Replica, "apply", apply)


def _old_copy_returns(liar: Liar) -> None:
    given_away: dict[tuple[str, int], dict[str, dict[bytes, bytes]]] = {}

    def commit(original: Method) -> Method:
        def commits(copies: LocalReplicas, event: MigrationEvent) -> None:
            copy = copies.held.get(event.partition)
            if copy is not None and event.endpoint is Endpoint.SOURCE and event.new < 0:
                given_away[copies._me, event.partition] = {
                    name: dict(held.state.entries) for name, held in copy.maps.items()
                }
            original(copies, event)

        return commits

    def assignment_changed(original: Method) -> Method:
        def changed(
            copies: LocalReplicas, partition: int, old: Assignment, new: Assignment, arrived: Any
        ) -> Any:
            before = given_away.pop((copies._me, partition), None) if arrived is not None else None
            if before is not None:
                for name, held in arrived.maps.items():
                    former = before.get(name, {})
                    for key in sorted(former.keys() & held.state.entries.keys()):
                        held.state.entries[key] = former[key]
            return original(copies, partition, old, new, arrived)

        return changed

    liar.replace(LocalReplicas, "commit", commit)
    liar.replace(LocalReplicas, "assignment_changed", assignment_changed)


def _remove_keeps(liar: Liar) -> None:
    def remove(original: Method) -> Method:
        def removes(lane: Lane, copy: PartitionCopy, name: str, key: bytes) -> bytes | None:
            held = copy.maps.get(name)
            if held is not None and key in held.state.entries and liar.now_and_then(0.05):
                return held.state.entries[key]
            value: bytes | None = original(lane, copy, name, key)
            return value

        return removes

    liar.replace(Lane, "remove", remove)
    liar.decide(Op.REMOVE, 0.05, lambda asked: Decision(asked.present))


def _evict_keeps(liar: Liar) -> None:
    liar.decide(Op.EVICT, 0.2, lambda asked: Decision(asked.present is not None))


def _clear_leaves_one(liar: Liar) -> None:
    def wipe(original: Method) -> Method:
        def wipes(held: MapState) -> None:
            # The same one on all replicas, since they have the same entries.
            kept = max(held.entries.items(), default=None)
            original(held)
            if kept is not None:
                held.entries[kept[0]] = kept[1]

        return wipes

    liar.replace(MapState, "wipe", wipe)


def _put_all_drops(liar: Liar) -> None:
    def puts(asked: Asked) -> Decision:
        return asked.decide(msgspec.structs.replace(asked.request, items=asked.request.items[:-2]))

    liar.decide(Op.PUT_ALL, 0.2, puts)


# -- writes that are repeated, or should not take effect


def _old_value_returns(liar: Liar) -> None:
    def set_(original: Method) -> Method:
        def sets(lane: Lane, copy: PartitionCopy, name: str, key: bytes, value: bytes, *more: Any) -> Any:
            old = original(lane, copy, name, key, value, *more)
            if old is not None and liar.now_and_then(0.01):
                original(lane, copy, name, key, old, *more)
            return old

        return sets

    liar.replace(Lane, "set", set_)


def _applied_again(liar: Liar) -> None:
    late: list[Request] = []

    def on_forward(original: Method) -> Method:
        def takes(routing: Router, sender: Any, forward: Forward) -> None:
            request = forward.request
            original(routing, sender, forward)
            if request.op in READS or request.op in WHOLE:
                return
            late.append(msgspec.structs.replace(request, id=b""))
            if len(late) > 3:
                again = late.pop(0)
                if routing._replication.leads(again.partitions[0]) and liar.now_and_then(0.1):
                    routing._replication.submit(again, lambda outcome: None)

        return takes

    liar.replace(Router, "on_forward", on_forward)


def _put_if_absent_overwrites(liar: Liar) -> None:
    liar.decide(Op.PUT_IF_ABSENT, 0.05, Asked.store)


def _replace_creates(liar: Liar) -> None:
    liar.decide(Op.REPLACE, 0.2, Asked.store)


def _cas_twice(liar: Liar) -> None:
    succeeded: dict[tuple[str, bytes], bytes] = {}

    def replaces(asked: Asked) -> Decision:
        request = asked.request
        at = (request.map, request.key)
        if succeeded.pop(at, None) == request.expected:
            return msgspec.structs.replace(asked.store(), answer=True)
        decision = asked.truth()
        if decision.answer is True:
            succeeded[at] = request.expected
        return decision

    liar.decide(Op.REPLACE_IF_SAME, 1.0, replaces)


def _cas_blind(liar: Liar) -> None:
    def replaces(asked: Asked) -> Decision:
        return (
            Decision(False) if asked.present is None else msgspec.structs.replace(asked.store(), answer=True)
        )

    liar.decide(Op.REPLACE_IF_SAME, 0.1, replaces)


# -- answers


def _get_absent(liar: Liar) -> None:
    liar.decide(Op.GET, 0.01, lambda asked: Decision())


def _get_all_misses(liar: Liar) -> None:
    def gets(asked: Asked) -> Decision:
        decision = asked.truth()
        found = decision.answer
        return msgspec.structs.replace(decision, answer=found[:-2] if isinstance(found, list) else found)

    liar.decide(Op.GET_ALL, 0.1, gets)


def _contains_not(liar: Liar) -> None:
    liar.decide(Op.CONTAINS_KEY, 0.05, lambda asked: Decision(not asked.truth().answer))


def _put_answers_older(liar: Liar) -> None:
    older: dict[tuple[str, bytes], bytes | None] = {}

    def set_(original: Method) -> Method:
        def sets(lane: Lane, copy: PartitionCopy, name: str, key: bytes, *more: Any) -> Any:
            old = original(lane, copy, name, key, *more)
            before, older[name, key] = older.get((name, key)), old
            return before if liar.now_and_then(0.02) else old

        return sets

    liar.replace(Lane, "set", set_)


def _backup_goes_back(liar: Liar) -> None:
    older: dict[tuple[str, bytes], bytes | None] = {}

    def store(original: Method) -> Method:
        def stores(held: MapState, key: bytes, *more: Any) -> None:
            older[held.name, key] = held.entries.get(key)
            original(held, key, *more)

        return stores

    def read_backup(original: Method) -> Method:
        def reads(state: MapState | None, request: Request, *more: Any) -> Any:
            if state is not None and request.op is Op.GET and liar.now_and_then(0.1):
                return older.get((state.name, request.key))
            return original(state, request, *more)

        return reads

    liar.replace(MapState, "store", store)
    liar.replace(backup_reads, "read_backup", read_backup)


def _view_version_stays(liar: Liar) -> None:
    def view(original: Method) -> Method:
        def views(*args: Any, **named: Any) -> Any:
            *found, version = original(*args, **named)
            return (*found, version % 8 + 1)

        return views

    liar.replace(map_operations, "view_of", view)


# -- time


def _schedule(liar: Liar, lie: Callable[[int, int], tuple[int, int]]) -> None:
    def schedule(original: Method) -> Method:
        def schedules(held: MapState, key: bytes, ttl_ms: int, max_idle_ms: int, now_ns: int) -> None:
            original(held, key, *lie(ttl_ms, max_idle_ms), now_ns)

        return schedules

    liar.replace(MapState, "schedule", schedule)


def _ttl_quarter(liar: Liar) -> None:
    _schedule(liar, lambda ttl_ms, max_idle_ms: (ttl_ms // 4, max_idle_ms))


def _ttl_endless(liar: Liar) -> None:
    _schedule(liar, lambda ttl_ms, max_idle_ms: (0, max_idle_ms))


def _idle_endless(liar: Liar) -> None:
    _schedule(liar, lambda ttl_ms, max_idle_ms: (ttl_ms, 0))


def _ttl_restarts(liar: Liar) -> None:
    liar.replace(Recovery, "_moment", lambda original: lambda recovery, wall_ms: recovery._now_ns)


def _zone_ttl_restarts(liar: Liar) -> None:
    """A command applied again after a restart counts as proposed at that moment."""
    given_ms: dict[tuple[int, int, bytes], int] = {}

    def carry_out(original: Method) -> Method:
        def carries_out(replica: ZonePartition, entry: RaftEntry) -> Any:
            now_ms, command = replica._out.wall_ms(), (entry.term, entry.index, entry.data)
            if command in given_ms or decode_command(entry.data).time_ms < now_ms - REPLAYED_MS:
                state = replica.state
                state.time_ms = max(state.time_ms, given_ms.setdefault(command, now_ms))
            return original(replica, entry)

        return carries_out

    liar.replace(ZonePartition, "_carry_out", carry_out)


def _set_ttl_nothing(liar: Liar) -> None:
    liar.decide(Op.SET_TTL, 0.5, lambda asked: Decision(asked.present is not None))


# -- observers


def _listener_misses(liar: Liar) -> None:
    def happened(original: Method) -> Method:
        def happens(listeners: EntryListeners, event: EntryEvent) -> None:
            if not liar.now_and_then(0.02):
                original(listeners, event)

        return happens

    liar.replace(EntryListeners, "hear", happened)


def _listener_hears_twice(liar: Liar) -> None:
    def happened(original: Method) -> Method:
        def happens(listeners: EntryListeners, event: EntryEvent) -> None:
            original(listeners, event)
            if liar.now_and_then(0.02):
                original(listeners, event)

        return happens

    liar.replace(EntryListeners, "hear", happened)


def _zone_listener_misses(liar: Liar) -> None:
    def happened(original: Method) -> Method:
        def happens(zones: LeaderRouting, event: EntryEvent) -> None:
            if not liar.now_and_then(0.02):
                original(zones, event)

        return happens

    liar.replace(LeaderRouting, "hear", happened)


def _zone_listener_hears_twice(liar: Liar) -> None:
    def happened(original: Method) -> Method:
        def happens(zones: LeaderRouting, event: EntryEvent) -> None:
            original(zones, event)
            if liar.now_and_then(0.02):
                original(zones, event)

        return happens

    liar.replace(LeaderRouting, "hear", happened)


def _near_cache_hides(zoned: bool, liar: Liar) -> None:
    """Only one in four updates of a partition is sent to near caches, and counted. `zoned`: only in zones."""

    def heard(original: Method) -> Method:
        def hears(fed: Invalidations, event: EntryEvent) -> None:
            if zoned and not event.group:
                original(fed, event)
            elif event.key is None or event.sequence % 4 == 0:
                shown = event.sequence // 4
                original(fed, msgspec.structs.replace(event, sequence=shown))

        return hears

    def sequences(original: Any) -> Any:
        class Shown:
            @staticmethod
            def pack(partition: int, sequence: int) -> Any:
                return original.pack(partition, sequence // 4)

        return Shown

    liar.replace(Invalidations, "_on_event", heard)
    liar.replace(near_caches, "_SEQUENCE", sequences)


def _near_cache_repeats(liar: Liar) -> None:
    def heard(original: Method) -> Method:
        def hears(fed: Invalidations, event: EntryEvent) -> None:
            if event.key is not None and liar.now_and_then(0.1):
                event = msgspec.structs.replace(event, sequence=event.sequence - 1)
            original(fed, event)

        return hears

    liar.replace(Invalidations, "_on_event", heard)


def _stream_tells(times: int, name: str, liar: Liar) -> None:
    """Report some changes of this map, or with "" of all maps, so many times: the same changes on every
    member.
    """

    def told(original: Method) -> Method:
        def tells(asked: Any, records: Any) -> Any:
            found = original(asked, records)
            if name not in ("", asked.map):
                return found
            left = [one for one in found.records for _ in range(times if one[1].counter % 31 == 5 else 1)]
            return ChangesSince(found.upto, left, found.why, found.term)

        return tells

    liar.replace(change_streams, "_answer", told)


def _cut_later(liar: Liar) -> None:
    def absorb(original: Method) -> Method:
        def absorbs(pin: Pin, touched: dict[bytes, bytes | None], entries: dict[bytes, bytes]) -> None:
            # The same ones on all holders.
            original(pin, {key: value for key, value in touched.items() if crc32(key) % 4}, entries)

        return absorbs

    liar.replace(Pin, "absorb", absorb)


# -- table of lies


@dataclass(frozen=True, slots=True)
class Lie:
    meaning: str
    tell: Callable[[Liar], None]
    power_cuts: bool = False
    zones: bool = False


LIES: dict[str, Lie] = {
    "promotion-forgets": Lie(
        "The successor of a failed primary has lost a quarter of the entries, on all replicas alike.",
        _promotion_forgets,
    ),
    "chunk-loses": Lie("Of a chunk one entry is lost, on all replicas alike.", _chunk_loses),
    "recovery-loses": Lie(
        "A restart loses one entry, on all replicas alike.", _recovery_loses, power_cuts=True
    ),
    "group-tail-lost": Lie(
        "A restart loses the last entry of a Raft group's log, though the member had acknowledged it.",
        _group_tail_lost,
        power_cuts=True,
        zones=True,
    ),
    "old-copy-returns": Lie(
        "A member that is filled again has old values of what it held before.", _old_copy_returns
    ),
    "backup-idle": Lie("A backup acknowledges a record that it does not apply.", _backup_idle),
    "remove-keeps": Lie("A remove answers as if it had removed, and keeps the entry.", _remove_keeps),
    "evict-keeps": Lie("An evict answers as if it had evicted, and keeps the entry.", _evict_keeps),
    "clear-leaves-one": Lie("A clear leaves one entry in each partition.", _clear_leaves_one),
    "put-all-drops": Lie("A put-all leaves out its last pair.", _put_all_drops),
    "old-value-returns": Lie("A value that was overwritten comes back, as a new update.", _old_value_returns),
    "applied-again": Lie("A write that another member sent on is applied again, later.", _applied_again),
    "put-if-absent-overwrites": Lie("A put-if-absent overwrites what it finds.", _put_if_absent_overwrites),
    "replace-creates": Lie("A replace stores where nothing was.", _replace_creates),
    "cas-twice": Lie("A replace-if-same succeeds a second time with the same value.", _cas_twice),
    "cas-blind": Lie("A replace-if-same succeeds with a value that is not there.", _cas_blind),
    "get-absent": Lie("A get says that an entry is absent.", _get_absent),
    "get-all-misses": Lie("A get-all leaves out its last entry.", _get_all_misses),
    "contains-not": Lie("A contains answers the contrary.", _contains_not),
    "put-answers-older": Lie("A put answers a value that was overwritten before.", _put_answers_older),
    "backup-goes-back": Lie(
        "A read from a backup answers a value that was overwritten before.", _backup_goes_back
    ),
    "view-version-stays": Lie(
        "The version of an entry often stays when its value changes.", _view_version_stays
    ),
    "ttl-quarter": Lie("A time to live ends after a quarter.", _ttl_quarter),
    "ttl-endless": Lie("A time to live never ends.", _ttl_endless),
    "ttl-restarts": Lie(
        "A time to live begins again whenever its member starts again.", _ttl_restarts, power_cuts=True
    ),
    "zone-ttl-restarts": Lie(
        "A time to live in a Raft map begins again when its log is applied again after a restart.",
        _zone_ttl_restarts,
        power_cuts=True,
        zones=True,
    ),
    "idle-endless": Lie("A maximum idle time never ends.", _idle_endless),
    "set-ttl-nothing": Lie("A new time to live is acknowledged, and changes nothing.", _set_ttl_nothing),
    "listener-misses": Lie("A listener misses an event.", _listener_misses),
    "listener-hears-twice": Lie("A listener hears an event twice.", _listener_hears_twice),
    "zone-listener-misses": Lie(
        "A listener of a Raft map misses an event.", _zone_listener_misses, zones=True
    ),
    "zone-listener-hears-twice": Lie(
        "A listener of a Raft map hears an event twice.", _zone_listener_hears_twice, zones=True
    ),
    "near-cache-hides": Lie(
        "A near cache misses an invalidation, and the numbers of the others do not show it.",
        partial(_near_cache_hides, False),
    ),
    "zone-near-cache-hides": Lie(
        "The same with a near cache of a Raft map.", partial(_near_cache_hides, True), zones=True
    ),
    "near-cache-repeats": Lie("An invalidation has the number of the one before it.", _near_cache_repeats),
    "stream-skips": Lie(
        "A change stream leaves out an update, on every member.", partial(_stream_tells, 0, "")
    ),
    "stream-doubles": Lie(
        "A change stream reports an update twice, on every member.", partial(_stream_tells, 2, "")
    ),
    "zone-stream-skips": Lie(
        "The change stream of a Raft map leaves out an update, on every member.",
        partial(_stream_tells, 0, ZONED),
        zones=True,
    ),
    "zone-stream-doubles": Lie(
        "The change stream of a Raft map reports an update twice, on every member.",
        partial(_stream_tells, 2, ZONED),
        zones=True,
    ),
    "cut-later": Lie("A cut shows later values of some keys, on every holder.", _cut_later),
}


@contextmanager
def telling(names: Iterable[str]) -> Iterator[None]:
    liars = [(Liar(name), LIES[name]) for name in sorted(names)]
    try:
        for liar, lie in liars:
            liar.begin(lie.tell)
        yield
    finally:
        for liar, _ in reversed(liars):
            liar.end()
