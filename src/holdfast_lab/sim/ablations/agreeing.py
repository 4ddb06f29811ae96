"""Ablations of the rules of Raft, of the metastore and of zones."""

# ruff: noqa: SLF001, ARG001 - a twin sits where the original does, and is given what that is given

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.core.metastore.invoke import Leaf, PutKey, RemoveKey
from holdfast.core.metastore.metastore import Metastore, MetastoreAsker, Ticket
from holdfast.core.model.ids import GroupNumber
from holdfast.core.multiraft import group_journal
from holdfast.core.multiraft.persistence import RestoredGroup
from holdfast.core.multiraft.read_rounds import LeadWaiter, ReadRounds
from holdfast.core.raft import group, leader
from holdfast.core.raft.group import Group
from holdfast.core.raft.leader import Leader, _Read
from holdfast.core.raft.raft_log import RaftLog
from holdfast.core.raft.raft_messages import RaftEntry, RaftKind, RaftMessage
from holdfast.core.raft.raft_state import RaftState
from holdfast.core.raft.reconfiguration import Reconfiguration
from holdfast.core.raft_partition import leader_routing
from holdfast.core.zones import replica_duties, zone_triggers
from holdfast.core.zones.adjusting import LocalCopy, ReplicaDuty
from holdfast.core.zones.assignments import Node, PartitionKeys
from holdfast.core.zones.data_nodes import DataNodes
from holdfast.core.zones.descriptors import ClusterTopology, ZoneSettings
from holdfast.core.zones.zone_host import ZoneHost
from holdfast.core.zones.zone_keys import KeysRead
from holdfast_lab.sim.ablations.place import Place, always, nothing
from holdfast_lab.sim.replacing import Method

# -- a group


def _forgets_its_vote(truth: Method, found: RecoveredGroup) -> RestoredGroup:
    replica: RestoredGroup = truth(found)
    entries = replica.entries
    term = entries[-1].term if entries else replica.snapshot.term
    replica.hard = replica.hard._replace(term=term, vote=None)
    return replica


def _acknowledges(seat: RaftState, kind: RaftKind, to: str, *given: Any, **named: Any) -> bool:
    return kind is RaftKind.APPENDED and to != seat.me


def _says_at_once(truth: Method, seat: RaftState, kind: RaftKind, to: str, *given: Any, **named: Any) -> None:
    truth(seat, kind, to, *given, **named)
    seat.messages.append(seat.after.pop())


def _conflicts(
    log: RaftLog, before: int, before_term: int, entries: Sequence[RaftEntry], commit: int
) -> bool:
    return log.committed <= before <= log.last and not log.matches(before, before_term)


def _takes_what_does_not_follow(
    truth: Method, log: RaftLog, before: int, before_term: int, entries: Sequence[RaftEntry], commit: int
) -> int | None:
    taken: int | None = truth(log, before, log.term(before), entries, commit)
    return taken


def _joint(sets: Sequence[Any], said: Mapping[Any, Any]) -> bool:
    return bool(sets[1])


def _asks_the_new_ones_alone(truth: Method, sets: Sequence[Any], said: Mapping[Any, Any]) -> Any:
    return truth((sets[0], frozenset()), said)


def _lags(changing: Reconfiguration, node: Node) -> bool:
    """Whether a new voter lacks the last entries; the rule decides nothing about others."""
    return not changing.leading.progress[node].match


def _token_known(changing: Reconfiguration) -> int:
    wanted = changing.target.token if changing.target is not None else 0
    return max(changing._state.configuration.token, wanted)


def _outdated(
    changing: Reconfiguration, term: int, voters: Any, learners: Any, token: int, *, asks: bool = False
) -> bool:
    return token < _token_known(changing)


def _takes_an_old_token(
    truth: Method,
    changing: Reconfiguration,
    term: int,
    voters: Any,
    learners: Any,
    token: int,
    *,
    asks: bool = False,
) -> Any:
    return truth(changing, term, voters, learners, _token_known(changing), asks=asks)


def _waits_to_be_agreed(changing: Reconfiguration) -> bool:
    return changing.target is not None and changing.target.asks


def _joins(_: Method, changing: Reconfiguration) -> None:
    changing._join()


def _answers_unconfirmed(_: Method, leads: Leader, message: RaftMessage) -> None:
    leads._answer(_Read(message.sender, message.context, leads._log.committed))


def _asks_nobody(_: Method, rounds: ReadRounds, number: GroupNumber, context: bytes) -> None:
    replica = rounds._replicas[number]
    replica.reads.append((replica.group.log.committed, context))
    rounds.ready.add(number)


def _counts_at_once(_: Method, rounds: ReadRounds, numbers: Iterable[GroupNumber], told: LeadWaiter) -> None:
    told.lead_confirmed(confirmed=True)


# -- keys


def _reads_what_is_here(
    _: Method, metastore: Metastore, keys: tuple[bytes, ...], prefix: bytes | None, asker: MetastoreAsker
) -> Ticket:
    ticket = metastore._ticket()
    state = metastore.keyspace
    entries = [state.get(key) for key in keys] if prefix is None else state.scan(prefix)
    metastore._notifications.append((asker, ticket, (entries, state.revision)))
    return ticket


def _writes_unguarded(_: Method, read: KeysRead, changes: Sequence[PutKey | RemoveKey]) -> Leaf:
    return Leaf(tuple(changes), 1)


def _destroys_what_is_not_named(
    truth: Method, me: Node, keys: PartitionKeys, copy: LocalCopy | None, **revisions: int
) -> ReplicaDuty:
    if copy is not None and keys.stable is not None and me not in keys.stable.nodes:
        return ReplicaDuty.DESTROY
    duty: ReplicaDuty = truth(me, keys, copy, **revisions)
    return duty


def _has_gone(data: DataNodes, settings: ZoneSettings, topology: ClusterTopology, _: object) -> bool:
    return bool(data.latest - topology.nodes)


def _knows_no_successors(_: Method, *given: Any) -> dict[Node, Node]:
    return {}


AGREEING: dict[str, tuple[Place, ...]] = {
    "vote-durable": (Place(group_journal, "regained", _forgets_its_vote),),
    "append-durable": (Place(RaftState, "send", _says_at_once, when=_acknowledges),),
    "vote-for-complete": (Place(RaftLog, "up_to_date", always),),
    "matching-append": (Place(RaftLog, "take", _takes_what_does_not_follow, when=_conflicts),),
    "joint-majorities": (
        Place(leader, "committed", _asks_the_new_ones_alone, when=_joint),
        Place(leader, "vote", _asks_the_new_ones_alone, when=_joint),
        Place(group, "vote", _asks_the_new_ones_alone, when=_joint),
    ),
    "catch-up": (Place(Reconfiguration, "_close", always, when=_lags),),
    "change-token": (Place(Reconfiguration, "request", _takes_an_old_token, when=_outdated),),
    "change-agreed": (Place(Reconfiguration, "_join_if_agreed", _joins, when=_waits_to_be_agreed),),
    "read-index": (
        Place(Leader, "on_read", _answers_unconfirmed),
        Place(ReadRounds, "ask", _asks_nobody),
        Place(ReadRounds, "wait", _counts_at_once),
    ),
    "read-standing": (Place(ReadRounds, "changed", nothing),),
    "forward-term": (Place(leader_routing, "of_this_term", always),),
    "reset-fences": (Place(Group, "_in_generation", always),),
    "metastore-reads": (Place(Metastore, "_read", _reads_what_is_here),),
    "keys-guarded": (Place(KeysRead, "guarded", _writes_unguarded),),
    "clean-up": (Place(replica_duties, "replica_duty", _destroys_what_is_not_named),),
    "zone-waits": (Place(ZoneHost, "can_leave", always),),
    "zone-successors": (Place(zone_triggers, "successors", _knows_no_successors, when=_has_gone),),
}
