"""Checks of messages from other members that go beyond the types of their fields.

A field of the right type can still name a partition that does not exist, an impossible member, or columns of different
lengths. The protocols do not check for these: such a message is rejected where it is read, and its connection ends.
Whether a member may *want* a request is not checked: peers are trusted.

No message that a member of any release can send may be rejected here, because it would be sent again and again. Fields
that newer releases have added at the end are ignored (wire/C-1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from holdfast.config import TRANSACTIONS_MAP
from holdfast.config.schema import ATTRIBUTES_MAX, BACKUPS_MAX, COPIES
from holdfast.core import messages as m
from holdfast.core.model.baseline import HISTORY_KEPT, Baseline
from holdfast.core.model.collections import step_problem as collection_step_problem
from holdfast.core.model.cp import cp_problem
from holdfast.core.model.ids import GROUPS_FROM
from holdfast.core.model.map_changes import CHANGEABLE, CHANGED_MAPS_MAX, MapChanges
from holdfast.core.model.map_locks import CLIENT_BYTES
from holdfast.core.model.map_moves import FillMap, MapMove, decode_move_step
from holdfast.core.model.map_moves import step_problem as move_step_problem
from holdfast.core.model.metastore_founding import VOTERS, MetastoreFounding
from holdfast.core.model.operations import (
    COLLECTION_STEPS,
    CP_STEPS,
    MOVING,
    EntryEvent,
    Op,
    Request,
    request_problem,
)
from holdfast.core.model.operations import REQUEST_ID_BYTES_MAX as ID_BYTES_MAX
from holdfast.core.model.partition_events import News
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.processors import call_problem
from holdfast.core.model.records import PAIR_BYTES, Record
from holdfast.core.model.transactions import TRANSACTION_ID_BYTES, begins, decode_step, step_problem
from holdfast.core.model.views import FilesSeen, MemberInfo, View
from holdfast.core.primary_backup.cuts import CUT_ID_BYTES
from holdfast.core.raft.raft_messages import RaftKind, RaftMessage
from holdfast.core.store.digest import RANGES
from holdfast.core.store.request_ids import ID_LENGTH, split_mark
from holdfast.core.zones.transitions import LocalState

NUMBER_MAX = 2**63 - 1
"""Limit of counters, versions, terms, rounds and tickets."""
VIEW_MAX = 2**31 - 1
"""Limit of views and lives: clients count them in 32 bits."""
GROUP_MAX = 10**10 - 1
"""Limited by the digits in the name of a checkpoint."""
PORT_MAX = 65_535
HOST_MAX = 253
LEVEL_MAX = 2**31 - 1
CLIENTS_MAX = 100_000
NAME_MAX = 1024
"""Characters of any other name or text of a member."""
_UUID = re.compile(r"[0-9a-f][0-9a-f-]{0,35}")
_HEX_DIGITS_MAX = 32
_REPLICA_STATES = frozenset(LocalState)


def uuid_problem(uuid: str) -> str:
    """Why this is not a member's UUID; empty if it is."""
    if _UUID.fullmatch(uuid) and len(uuid.replace("-", "")) <= _HEX_DIGITS_MAX:
        return ""
    return f"{uuid[:40]!a} is no UUID"


def address_problem(host: str, port: int) -> str:
    """Why no member can listen there; empty if one can."""
    if not 0 <= port <= PORT_MAX:
        return f"port {port} is not in 0 to {PORT_MAX}"
    if not 1 <= len(host) <= HOST_MAX or not host.isprintable() or " " in host:
        return f"{host[:40]!a} is no host"
    return ""


class _Wrong(Exception): ...


def _require(holds: object, what: str) -> None:
    if not holds:
        raise _Wrong(what)


def _none(why: str) -> None:
    if why:
        raise _Wrong(why)


def _numbers(*numbers: int, most: int = NUMBER_MAX) -> None:
    for number in numbers:
        if not 0 <= number <= most:
            raise _Wrong(f"{number} is not in 0 to {most}")


def _partitions(partitions: Iterable[int], count: int) -> None:
    for partition in partitions:
        if not 0 <= partition < count:
            raise _Wrong(f"there is no partition {partition}: there are {count}")


# -- parts of messages


def _row(row: Assignment) -> None:
    _numbers(row.version, row.epoch)
    holders = [uuid for uuid in row.replicas if uuid is not None]
    _require(len(row.replicas) <= 1 + BACKUPS_MAX, f"an assignment with {len(row.replicas)} replicas")
    _require(len(set(holders)) == len(holders), "an assignment names a member twice")
    for uuid in holders:
        _none(uuid_problem(uuid))
    _names_of_maps(row.lost)


def _names_of_maps(names: Sequence[str]) -> None:
    _require(len(set(names)) == len(names), "a map is named twice")
    for name in names:
        _require(len(name) <= NAME_MAX, f"a name of {len(name)} characters")


def _rows(rows: Sequence[tuple[int, Assignment]], count: int) -> None:
    _partitions((partition for partition, _ in rows), count)
    for _, row in rows:
        _row(row)


def _info(info: MemberInfo) -> None:
    _none(uuid_problem(info.uuid))
    _none(address_problem(info.host, info.port))
    _none(address_problem(info.client_host, info.client_port))
    _numbers(info.life, most=VIEW_MAX)
    _numbers(info.incarnation, info.proof.reached)
    for text in (info.name, info.group, info.store, info.proof.token, info.proof.before):
        _require(len(text) <= NAME_MAX, f"a name of {len(text)} characters")
    _require(len(info.version) <= NAME_MAX, f"a version of {len(info.version)} characters")
    _require(0 < info.levels.lowest <= info.levels.highest <= LEVEL_MAX, "levels that no build can do")
    _require(len(info.attributes) <= ATTRIBUTES_MAX, f"{len(info.attributes)} attributes")
    for text in (*info.attributes, *info.attributes.values()):
        _require(len(text) <= NAME_MAX, f"an attribute of {len(text)} characters")


def _stores(stores: dict[str, FilesSeen]) -> None:
    for seen in stores.values():
        _numbers(seen.incarnation, seen.reached)
        _require(len(seen.token) <= NAME_MAX, f"a token of {len(seen.token)} characters")


def _baseline(baseline: Baseline) -> None:
    _numbers(baseline.changes)
    _numbers(baseline.adjust_ms + 1)
    _require(0 < len(baseline.history) <= baseline.changes, "a history of another length than the changes")
    _require(len(baseline.history) <= HISTORY_KEPT, f"a history of {len(baseline.history)} changes")
    names = [one.consistent_id for one in baseline.members]
    _require(names == sorted(set(names)), "a baseline out of order")
    for text in (*names, *(one.group for one in baseline.members), *baseline.history):
        _require(len(text) <= NAME_MAX, f"a name of {len(text)} characters")


def _map_values(name: str, values: dict[str, int]) -> None:
    _require(0 < len(name) <= NAME_MAX, f"a map's name of {len(name)} characters")
    _require(values.keys() <= CHANGEABLE, f"no settings of a map that can change: {sorted(values)}")
    _numbers(*values.values())
    _require(all(values.get(key, 0) <= BACKUPS_MAX for key in COPIES), "more backups than there can be")


def _map_changes(changes: MapChanges) -> None:
    _numbers(changes.version)
    names = [change.name for change in changes.changes]
    _require(names == sorted(set(names)), "changed maps out of order")
    _require(len(names) <= CHANGED_MAPS_MAX, f"{len(names)} changed maps")
    for change in changes.changes:
        _map_values(change.name, change.values)
        copies = change.copies
        _require((copies is not None) is (set(COPIES) <= change.values.keys()), "copies without their step")
        if copies is not None:
            _numbers(copies.backups, copies.waits)
            _require(copies.backups <= copies.waits < copies.holds <= 1 + BACKUPS_MAX, "impossible copies")
            _require(copies.backups < copies.copies <= copies.holds, "impossible copies")
        _place(change.zone)
        if change.move is not None:
            _move(change.move, changes.version)


def _place(zone: str | None) -> None:
    """The place that a map moves to: a zone, or empty."""
    _require(zone is None or len(zone) <= NAME_MAX, "a zone's name that is too long")


def _move(move: MapMove, version: int) -> None:
    _numbers(move.number, move.round)
    _require(0 < move.number <= version, "a move of a later version")
    _place(move.source)
    _place(move.target)
    _require(move.source != move.target, "a move to the same place")


def _founding(metastore: MetastoreFounding | None) -> None:
    if metastore is None:
        return
    _require(metastore.voters in VOTERS, f"a metastore of {metastore.voters} voters")
    first = (*metastore.first_voters, *metastore.first_learners)
    _require(len(set(first)) == len(first), "a metastore has a founder twice")
    for node in first:
        _require(len(node) <= NAME_MAX, f"a name of {len(node)} characters")


def _view(view: View) -> None:
    _numbers(view.number, most=VIEW_MAX)
    _require(0 < view.level <= LEVEL_MAX, f"{view.level} is no feature level")
    if view.cluster_id:
        _none(uuid_problem(view.cluster_id))
    uuids = [info.uuid for info in view.members]
    _require(len(set(uuids)) == len(uuids), "a view names a member twice")
    for info in (*view.members, *view.missing):
        _info(info)
    _stores(view.stores)
    if view.baseline is not None:
        _baseline(view.baseline)
    _map_changes(view.maps)
    _founding(view.metastore)


def _news(news: Iterable[News], count: int) -> None:
    for one in news:
        _numbers(*one.number, *one.process, one.planned, one.completed, one.failed, one.elapsed_ms)
        _numbers(one.version, one.took_ms)
        if one.migration is not None:
            _partitions([one.migration.partition], count)
            for uuid in (one.migration.source, one.migration.destination):
                if uuid is not None:
                    _none(uuid_problem(uuid))
            _require(one.migration.destination_new <= BACKUPS_MAX, "a replica index that cannot be")
        if one.loss is not None:
            _partitions([one.loss.partition], count)
            _numbers(one.loss.lost_backups, most=BACKUPS_MAX)


def _counters(counters: Iterable[tuple[str, int, int]]) -> None:
    for _, counter, term in counters:
        _numbers(counter, term)


def _lineage(lineage: Iterable[tuple[int, int]]) -> None:
    for term, start in lineage:
        _numbers(term, start)


def _clients(message: m.ClientsAsked | m.ClientsConnected) -> None:
    _numbers(message.round)
    _require(len(message.clients) <= CLIENTS_MAX, f"a question about {len(message.clients)} clients")
    for client in message.clients:
        _require(len(client) == CLIENT_BYTES, "a client's UUID of another length")


def _records(records: Iterable[Record]) -> None:
    """Hash words are not checked: entries that were stored when no release checked them must still travel."""
    for record in records:
        if record.counter < 1 or record.ttl_ms < 0 or record.max_idle_ms < 0:
            raise _Wrong("a record with a number below what it can be")
        if record.request:
            _mark(record.request)


def _mark(told: bytes) -> None:
    transaction, mark = split_mark(told)
    if mark is not told:
        _transactions((transaction,))
    if mark and not 0 < mark[0] & ID_LENGTH <= min(ID_BYTES_MAX, len(mark) - 1):
        raise _Wrong("the mark of a request is cut short")


def _request(request: Request, count: int) -> None:
    _none(request_problem(request, count))
    if request.op is Op.PIN:
        _pin(request)
    if request.op in MOVING:
        _step(request)
    if request.op in CP_STEPS:
        _none(cp_problem(request))
    if request.op in COLLECTION_STEPS:
        _none(collection_step_problem(request))
    if request.op is Op.PROCESS:
        _none(call_problem(request))
    if request.op is Op.TRANSACT or request.op is Op.SETTLE:
        _require(request.map == TRANSACTIONS_MAP, f"a step of a transaction on {request.map[:40]!a}")
        try:
            step = decode_step(request.value)
        except msgspec.MsgspecError as error:
            raise _Wrong(f"no step of a transaction: {error}") from error
        _none(step_problem(step, count))
        _require(begins(step) == (request.op is Op.TRANSACT), "a step of a transaction under another name")


def _step(request: Request) -> None:
    try:
        step, engine = decode_move_step(request.value), request.expected.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _Wrong(f"no step of a move: {error}") from error
    _none(move_step_problem(step))
    _place(engine)
    _require(isinstance(step, FillMap) is (request.op is Op.FILL), "a step of a move under another name")


def _pin(request: Request) -> None:
    _require(len(request.key) == CUT_ID_BYTES and request.ttl_ms > 0, "a cut without id or lease")
    _require(bool(request.items), "a cut of no map")
    try:
        names = [item.decode() for item in request.items]
    except UnicodeDecodeError as error:
        raise _Wrong("the name of a map is no text") from error
    _require(all(names) and len(set(names)) == len(names), "maps of a cut have different names")


def _event(event: EntryEvent) -> None:
    _none(uuid_problem(event.member))
    _numbers(event.count, most=2**31 - 1)


def _filled(fill: m.Fill) -> None:
    for entries in fill.maps:
        _numbers(entries.counter)
        _lineage(entries.lineage)
        rows = len(entries.keys)
        _require(len(entries.values) == rows, "columns of different lengths")
        for column in (entries.ttls_ms, entries.max_idles_ms, entries.key_hashes):
            _require(len(column) in (0, rows), "columns of different lengths")
        _require(not (entries.sizes and rows), "entries that are packed and listed")
        _require(entries.packed().whole, "packed entries that are not of the sizes that they say")
        for lifetimes in (entries.ttls_ms, entries.max_idles_ms):
            if lifetimes:
                _numbers(min(lifetimes), max(lifetimes))
    for share in fill.shares:
        _numbers(share.counter)
        _lineage(share.lineage)
    for plan in fill.plans:
        _numbers(plan.counter)
    for told in (*fill.records, *fill.earlier):
        _require(sum(count for _, count in told.runs) == len(told.records), "runs that are not the records")
        _lineage(told.runs)
        _records(told.records)


# -- messages


def _fill(fill: m.Fill, count: int) -> None:
    _partitions([fill.partition], count)
    _numbers(fill.version, fill.ticket, fill.sequence, fill.epoch)
    _require(0 <= fill.index <= BACKUPS_MAX, "a replica index that cannot be")
    _filled(fill)


def _replicate(message: m.Replicate, count: int) -> None:
    _sections(message.sections, count)
    _acks(message.acks, count)


def _acks(acks: list[m.Ack], count: int) -> None:
    for ack in acks:
        _partitions(ack.partitions, count)
        for correlation in ack.correlations:
            _require(-(2**63) <= correlation <= NUMBER_MAX, "a correlation id is an int64")


def _sections(sections: list[m.Section], count: int) -> None:
    for section in sections:
        partition = section.partition
        # A message has hundreds of sections, so correct ones are checked without a call.
        if not (
            0 <= partition < count and 0 <= section.version <= NUMBER_MAX and 0 <= section.term <= NUMBER_MAX
        ):
            _partitions([partition], count)
            _numbers(section.version, section.term)
        if section.records:
            _records(section.records)
        for puts in section.puts:
            sizes, start = puts.sizes, puts.start
            if not sizes or start < 0 or start + len(sizes) // PAIR_BYTES > NUMBER_MAX or not puts.whole:
                raise _Wrong("packed stores that say nothing, or are not of the sizes that they say")


def _replicated(message: m.Replicated, count: int) -> None:
    _partitions(message.partitions, count)
    for partition, _, _, counter in message.unkept:
        _partitions([partition], count)
        _numbers(counter)


def _enlist(message: m.Enlist, count: int) -> None:
    for partition, version, counters in message.partitions:
        _partitions([partition], count)
        _numbers(version)
        _counters(counters)


def _enlisted(message: m.Enlisted, count: int) -> None:
    for partition, version, _ in message.partitions:
        _partitions([partition], count)
        _numbers(version)


def _demanded(message: m.Filled, count: int) -> None:
    _one(message, count)
    _numbers(message.ticket, message.sequence)
    if message.demand is not None:
        _numbers(message.demand.epoch)
        for base in message.demand.maps:
            _lineage(base.lineage)
            _numbers(base.lwm, base.highest)
            _require(len(base.digests) <= RANGES, f"{len(base.digests)} digests of key ranges")


def _one(message: Any, count: int) -> None:
    _partitions([message.partition], count)
    _numbers(message.version)


def _summary(message: m.Summary, count: int) -> None:
    _one(message, count)
    for summed in (*message.maps, *message.services):
        _numbers(summed.counter, summed.term)


def _forget(message: m.ForgetMaps, count: int) -> None:
    for said in message.maps:
        _partitions([said.partition], count)
        _numbers(said.version, said.counter, said.term)


def _table(message: m.TableOffer, count: int) -> None:
    _numbers(message.view, most=VIEW_MAX)
    _numbers(message.round, message.committed)
    _rows(message.rows, count)
    _news(message.news, count)


def _report(message: m.TableReport, count: int) -> None:
    _rows(message.rows, count)
    for migration, version in message.active:
        _partitions([migration.partition], count)
        _numbers(version)
    _news(message.news, count)
    _news(message.offered, count)


def _holdings(message: m.Holdings, count: int) -> None:
    if message.seen is not None:
        _view(message.seen)
    _rows(message.rows, count)
    for kept in message.kept:
        _partitions([kept.partition], count)
        _numbers(kept.epoch)
        _counters(kept.counters)


def _baseline_wanted(message: m.BaselineWanted, _: int) -> None:
    _numbers(message.view, most=VIEW_MAX)
    _numbers(message.adjust_ms + 1)
    for text in (message.after, *message.members):
        _require(len(text) <= NAME_MAX, f"a name of {len(text)} characters")


def _level_wanted(message: m.LevelWanted, _: int) -> None:
    _numbers(message.view, most=VIEW_MAX)
    _require(0 < message.level <= LEVEL_MAX, f"{message.level} is no feature level")


def _metastore_wanted(message: m.MetastoreWanted, _: int) -> None:
    _numbers(message.view, most=VIEW_MAX)
    _require(message.voters in VOTERS, f"a metastore of {message.voters} voters")


def _map_change_wanted(message: m.MapChangeWanted, _: int) -> None:
    _numbers(message.view, most=VIEW_MAX)
    _numbers(message.after, message.ticket)
    _none(uuid_problem(message.origin))
    _map_values(message.name, message.values)
    _place(message.to)


def _map_change_asked(message: m.MapChangeAsked, _: int) -> None:
    _numbers(message.view, most=VIEW_MAX)
    _numbers(message.after)
    _map_values(message.name, message.values)
    _place(message.to)


def _map_move_report(message: m.MapMoveReport, count: int) -> None:
    _numbers(message.view, most=VIEW_MAX)
    _numbers(message.number, message.round)
    _require(0 < len(message.name) <= NAME_MAX, "a map without a name")
    _partitions(message.source, count)
    _partitions(message.target, count)


def _map_change_judged(message: m.MapChangeJudged, _: int) -> None:
    _numbers(message.view, most=VIEW_MAX)
    _numbers(message.after)


def _reset(message: m.ResetLost, count: int) -> None:
    _partitions(message.partitions, count)
    _names_of_maps(message.maps)


def _request_of_migration(message: m.MigrationRequest, count: int) -> None:
    migration = message.migration
    _partitions([migration.partition], count)
    _numbers(message.version)
    for uuid in (migration.source, migration.destination):
        if uuid is not None:
            _none(uuid_problem(uuid))
    _require(migration.destination_new <= BACKUPS_MAX, "a replica index that cannot be")


def _decided(message: m.ViewDecided, count: int) -> None:
    _view(message.view)
    _rows(message.rows, count)


def _heartbeat(message: m.Heartbeat, _: int) -> None:
    _none(uuid_problem(message.uuid))
    _numbers(message.life, message.view, most=VIEW_MAX)
    _numbers(message.wish_number, message.applied, message.known, message.reached)


def _join(message: m.JoinRequest, _: int) -> None:
    _info(message.info)
    _stores(message.stores)
    _require(0 < message.level <= LEVEL_MAX, f"{message.level} is no feature level")
    if message.baseline is not None:
        _baseline(message.baseline)
    _map_changes(message.maps)
    _founding(message.metastore)
    if message.gone is not None:
        _numbers(message.gone.number, *message.gone.stores.values())


def _joined(message: m.JoinAnswer, _: int) -> None:
    _none(uuid_problem(message.uuid))
    if message.host:
        _none(address_problem(message.host, message.port))


def _promise(message: m.Promise, _: int) -> None:
    _numbers(message.view, most=VIEW_MAX)
    if message.accepted is not None:
        _view(message.accepted)
        _require(message.accepted.number > message.view, "an accepted view that is not newer")
    _require((message.accepted is None) == (message.accepted_ballot is None), "half of an accepted view")


def _accept(message: m.Accept, _: int) -> None:
    _view(message.value)
    _require(message.value.number > message.view, "a proposed view that is not newer")


def _accepted(message: m.Accepted, count: int) -> None:
    _rows(message.rows, count)


def _answer(message: m.Answer, count: int) -> None:
    _partitions(message.missed, count)
    _numbers(*message.outcome.position)


def _forward_frames(message: m.ForwardFrames, _: int) -> None:
    _numbers(message.ticket, message.first, message.heard)
    for count, frames in message.parts:
        # A frame has more than one byte.
        _numbers(count, most=len(frames))


def _frames_answer(message: m.FramesAnswer, _: int) -> None:
    _numbers(message.ticket, message.number)
    for place, _answers, _withheld, skipped in message.parts:
        _numbers(place, *skipped)


def _events(message: m.Events, _: int) -> None:
    for event in message.events:
        _event(event)


def _group_messages(message: m.GroupMessages, _: int) -> None:
    for number, messages in message.groups:
        _group(number)
        for each in messages:
            _raft(each)
    for number, term, last in message.asleep:
        _group(number)
        _numbers(term, last)


def _group_state(message: m.GroupState, _: int) -> None:
    _group(message.group)
    _require(message.snapshot.kind is RaftKind.SNAPSHOT, "a state comes with a snapshot")
    _raft(message.snapshot)
    _numbers(message.first)


def _group_state_taken(message: m.GroupStateTaken, _: int) -> None:
    _group(message.group)
    _numbers(message.index, message.taken)


def _zone_forward(message: m.ZoneForward, count: int) -> None:
    _numbers(message.term)
    _request(message.request, count)
    _require(len(message.request.partitions) == 1, "a leader has one partition")


def _zone_leaders(message: m.ZoneLeaders, _: int) -> None:
    for number, term in message.groups:
        _group(number)
        _numbers(term)


def _lead_asked(message: m.LeadAsked, _: int) -> None:
    _numbers(message.round)
    for number, term in message.groups:
        _group(number)
        _numbers(term)


def _lead_confirmed(message: m.LeadConfirmed, _: int) -> None:
    _numbers(message.round, message.standing)
    for number in message.groups:
        _group(number)


def _zone_states(message: m.ZoneStates, _: int) -> None:
    for partition, state, index, _learner in message.replicas:
        _numbers(partition, most=VIEW_MAX)
        _numbers(index)
        _require(state in _REPLICA_STATES, f"{state[:40]!a} is no state of a replica")
    for partition, _voters, _outgoing, token in message.configurations:
        _numbers(partition, most=VIEW_MAX)
        _numbers(token)


def _group(number: int) -> None:
    _require(GROUPS_FROM <= number <= GROUP_MAX, f"there is no group {number}")


def _raft(message: RaftMessage) -> None:
    """A Raft message must be well-formed; the receiving replica may still reject it."""
    _numbers(message.generation, message.term, message.log_term, message.index, message.commit, message.hint)
    if message.kind is RaftKind.SNAPSHOT or message.snapshot is not None:
        _require(message.kind is RaftKind.SNAPSHOT and message.snapshot is not None, "half of a snapshot")
    if message.snapshot is not None:
        _numbers(message.snapshot.index, message.snapshot.term)
        _require(message.snapshot.index and message.snapshot.configuration.voters, "a snapshot of nothing")
    if message.kind is RaftKind.APPEND:
        _raft_entries(message)
    _require(message.kind is not RaftKind.FORGET_LEADER, "a message that members do not send")


def _raft_entries(message: RaftMessage) -> None:
    index, term = message.index, message.log_term
    for entry in message.entries:
        _require(entry.index == index + 1, f"entry {entry.index} after entry {index}")
        _require(
            term <= entry.term <= message.term, f"an entry of term {entry.term} after one of term {term}"
        )
        if entry.configuration is not None:
            _require(entry.configuration.voters, "a configuration without voters")
            _numbers(entry.configuration.token)
        index, term = entry.index, entry.term


def _transactions(names: Iterable[bytes]) -> None:
    _require(all(len(name) == TRANSACTION_ID_BYTES for name in names), "no id of a transaction")


def _locks_awaited(message: m.LocksAwaited) -> None:
    for waiter, owner, holder in message.waits:
        _transactions((waiter, holder))
        _none(uuid_problem(owner))


_CHECKS: dict[type, Callable[[Any, int], None]] = {
    m.JoinRequest: _join,
    m.JoinAnswer: _joined,
    m.Heartbeat: _heartbeat,
    m.ViewDecided: _decided,
    m.Promise: _promise,
    m.Accept: _accept,
    m.Accepted: _accepted,
    m.TableOffer: _table,
    m.TableReport: _report,
    m.Holdings: _holdings,
    m.ResetLost: _reset,
    m.BaselineWanted: _baseline_wanted,
    m.LevelWanted: _level_wanted,
    m.MetastoreWanted: _metastore_wanted,
    m.MapChangeWanted: _map_change_wanted,
    m.MapChangeAsked: _map_change_asked,
    m.MapChangeJudged: _map_change_judged,
    m.MapMoveReport: _map_move_report,
    m.MapChangeRefused: lambda message, _: _numbers(message.ticket),
    m.MigrationRequest: _request_of_migration,
    m.MigrationReady: _one,
    m.MigrationRefused: _one,
    m.Replicate: _replicate,
    m.Replicated: _replicated,
    m.Enlist: _enlist,
    m.Enlisted: _enlisted,
    m.Fill: _fill,
    m.Filled: _demanded,
    m.FillRefused: _one,
    m.Summary: _summary,
    m.ForgetMaps: _forget,
    m.RepairWanted: _one,
    m.Forward: lambda message, count: _request(message.request, count),
    m.ZoneForward: _zone_forward,
    m.Answer: _answer,
    m.Withdrawals: lambda message, count: _numbers(*message.tickets),
    m.ClientsAsked: lambda message, count: _clients(message),
    m.ClientsConnected: lambda message, count: _clients(message),
    m.ForwardFrames: _forward_frames,
    m.FramesAnswer: _frames_answer,
    m.Events: _events,
    m.GroupMessages: _group_messages,
    m.GroupState: _group_state,
    m.GroupStateTaken: _group_state_taken,
    m.GroupStateWanted: lambda message, _: _group(message.group),
    m.ZoneLeaders: _zone_leaders,
    m.LeadAsked: _lead_asked,
    m.LeadConfirmed: _lead_confirmed,
    m.ZoneStates: _zone_states,
    m.LocksAwaited: lambda message, count: _locks_awaited(message),
    m.DeadlockFound: lambda message, count: _transactions((message.transaction, *message.others)),
    m.OwnersAsked: lambda message, count: _transactions(message.transactions),
    m.OwnersGone: lambda message, count: _transactions(message.transactions),
}
"""Messages that are not listed have only numbers that are compared, and names that are looked up."""


AreSound = Callable[[list[m.Section], int], bool]
"""A quicker judge of sections: whether they are beyond doubt right for so many partitions."""


def message_problem(message: m.Message, partition_count: int, are_sound: AreSound | None = None) -> str:
    """Why no member of a cluster with so many partitions can have sent this; empty if one can."""
    if type(message) is m.MessageBatch:
        problems = (message_problem(part, partition_count, are_sound) for part in message.messages)
        return next(filter(None, problems), "")
    check = _CHECKS.get(type(message))
    if check is None:
        return ""
    try:
        if check is _replicate and are_sound is not None and are_sound(message.sections, partition_count):  # type: ignore[union-attr]
            _acks(message.acks, partition_count)  # type: ignore[union-attr]
        else:
            check(message, partition_count)
    except _Wrong as wrong:
        return str(wrong)
    return ""
