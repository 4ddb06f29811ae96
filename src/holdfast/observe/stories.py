"""Messages, events and effects of members in a few words each, for stories that people read.

Only fields that matter to a story are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core import messages as m
from holdfast.core.effects import Complete, Effect, Note, Send, Stop
from holdfast.core.events import (
    ActionRequested,
    ActionWithdrawn,
    ClientRequest,
    CutRequested,
    DiskRoom,
    Event,
    FlightBounded,
    Heard,
    ListenerAdded,
    MapDestroyed,
    MemoryRoom,
    PeerSilent,
    Received,
    SeedAbsent,
    SeedBehind,
)
from holdfast.core.model.operations import Outcome
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Record
from holdfast.core.model.views import View

QUIET = (
    m.Heartbeat,
    m.JoinRequest,
    m.JoinAnswer,
    m.Prepare,
    m.Promise,
    m.Accept,
    m.Accepted,
    m.Declined,
    m.Summary,
    m.TableCheck,
    m.ViewDecided,
    m.Subscribe,
    m.Events,
    m.Collecting,
)
"""Frequent messages, left out of stories; their effects are shown."""


def row_in_words(row: Assignment, names: Mapping[str, str]) -> str:
    replicas = [names.get(one or "", "-") for one in row.replicas]
    while replicas and replicas[-1] == "-":
        replicas.pop()
    behind = f" behind: {', '.join(names.get(one, one) for one in row.behind)}" if row.behind else ""
    return f"v{row.version} ({' '.join(replicas)}){behind}"


def in_words(message: m.Message, names: Mapping[str, str]) -> str:
    """The message in a few words; empty if there is nothing to show. `names`: members by UUID."""
    match message:
        case m.MigrationRequest(migration=move):
            source = names.get(move.source or "", "nobody")
            destination = names.get(move.destination, move.destination)
            return f"p{move.partition} slot {move.destination_new}: {source} to {destination}"
        case m.MigrationReady() | m.MigrationRefused() | m.FillRefused() | m.FillEnded():
            why = f": {why}" if (why := getattr(message, "why", "")) else ""
            return f"p{message.partition} v{message.version}{why}"
        case m.Fill() | m.Filled():
            return _of_fills(message)
        case m.TableOffer():
            rows = [f"p{number} {row_in_words(row, names)}" for number, row in message.rows]
            return ", ".join([f"round {message.round}", *rows])
        case m.TableStored() | m.TableCommit():
            return f"round {message.round}"
        case m.TableReport():
            return ", ".join(f"p{number} {row_in_words(row, names)}" for number, row in message.rows)
        case _:
            return _of_data(message, names)


def _of_fills(message: m.Fill | m.Filled) -> str:
    match message:
        case m.Fill():
            plans = [f"{plan.map} {plan.how.name}" for plan in message.plans]
            entries = [f"{len(part.keys)} entries up to {part.counter}" for part in message.maps]
            records = [f"{len(part.records)} updates" for part in message.records]
            words = [f"p{message.partition} v{message.version} #{message.sequence}", *plans, *entries]
            return ", ".join([*words, *records, *(["last"] if message.last else [])])
        case m.Filled():
            has = [f"{base.map} up to {base.lwm}" for base in message.demand.maps] if message.demand else []
            return ", ".join([f"p{message.partition} v{message.version} #{message.sequence}", *has])


def _of_data(message: m.Message, names: Mapping[str, str]) -> str:
    match message:
        case m.Replicate():
            return "; ".join(_section(section) for section in message.sections)
        case m.Replicated():
            return ", ".join(f"p{number}" for number in message.partitions)
        case m.Enlist():
            return ", ".join(f"p{number} v{version}" for number, version, _ in message.partitions)
        case m.Enlisted():
            holds = {True: "holds all", False: "lacks something"}
            return ", ".join(f"p{one} v{version} {holds[well]}" for one, version, well in message.partitions)
        case m.Forward() | m.ZoneForward():
            return f"{message.request.op.name}"
        case m.Answer():
            return message.outcome.status.name
        case m.MessageBatch():
            return ", ".join(f"{type(part).__name__} {_of_data(part, names)}" for part in message.messages)
        case m.Holdings():
            found = ", ".join(f"p{number} {row_in_words(row, names)}" for number, row in message.rows)
            return f"{found}; holds {', '.join(f'p{kept.partition}' for kept in message.kept) or 'nothing'}"
        case _:
            return ""


def _section(section: m.Section) -> str:
    records = ", ".join(map(_record, section.all_records())) or "nothing new"
    return f"p{section.partition} v{section.version} {records}"


def _record(record: Record) -> str:
    # Values of services and transactions are not text.
    value = f" {record.value.decode(errors='backslashreplace')}" if record.value else ""
    return f"{record.counter} {record.change.name}{value}"


def concerned(message: m.Message) -> set[int]:
    if isinstance(message, m.MessageBatch):
        return set().union(*map(concerned, message.messages))
    found: set[int] = set()
    for of in (message, getattr(message, "migration", None), getattr(message, "request", None)):
        if isinstance(partition := getattr(of, "partition", None), int):
            found.add(partition)
        for name in ("partitions", "rows", "sections", "kept"):
            found.update(_partition(one) for one in getattr(of, name, ()))
    return found


def _partition(one: object) -> int:
    if isinstance(one, tuple):
        return _partition(one[0])
    found = one if isinstance(one, int) else getattr(one, "partition", -1)
    assert isinstance(found, int)
    return found


class Narrator:
    def __init__(self, names: Mapping[str, str], *, partition: int | None = None) -> None:
        """`names`: all members by UUID. With `partition`, only lines that concern it."""
        self._names = names
        self._partition = partition
        self._view = -1
        self._rows: dict[int, Assignment] = {}
        self._asked: dict[int, str] = {}

    def _about(self, partitions: Sequence[int] | set[int]) -> bool:
        return self._partition is None or self._partition in partitions

    def event(self, event: Event) -> list[str]:
        match event:
            case Received(sender, message) if not isinstance(message, QUIET):
                if not self._about(concerned(message)):
                    return []
                return [f"<- {self._name(sender)}: {_named(message, self._names)}"]
            case Heard():
                return []
            case ClientRequest(token, request):
                if not self._about(request.partitions):
                    return []
                where = f"p{request.partitions[0]}" if len(request.partitions) == 1 else "its partitions"
                self._asked[token] = f"{request.op.name} of {request.map} in {where}"
                return [f"a client asks for {self._asked[token]}"]
            case CutRequested(_, _, maps, partitions) if self._about(partitions):
                return [f"a client wants a cut of {', '.join(maps)}"]
        return [] if self._partition is not None else _of_all(event, self._names)

    def effects(self, effects: Sequence[Effect]) -> list[str]:
        lines: list[str] = []
        for effect in effects:
            match effect:
                case Send(to, message) if not isinstance(message, QUIET) and self._about(concerned(message)):
                    lines.append(f"-> {self._name(to)}: {_named(message, self._names)}")
                case Complete(token, answer) if token in self._asked:
                    asked = self._asked.pop(token)
                    assert isinstance(answer, Outcome)
                    why = f": {answer.detail}" if answer.detail else ""
                    lines.append(f"the client is told of {asked}: {answer.status.name}{why}")
                case Note(kind, fields) if self._partition in (None, fields.get("partition")):
                    said = " ".join(f"{key}={self._name(str(value))}" for key, value in fields.items())
                    lines.append(f"notes: {kind} {said}".rstrip())
                case Stop(why) if self._partition is None:
                    lines.append(f"ends: {why}")
        return lines

    def state(self, view: View | None, rows: Sequence[Assignment]) -> list[str]:
        lines: list[str] = []
        number = view.number if view is not None else -1
        if number != self._view:
            self._view = number
            if self._partition is None:
                members = ", ".join(info.name for info in view.members) if view is not None else ""
                lines.append(f"is in view {number}: {members}" if view is not None else "is in no view")
        told = range(len(rows)) if self._partition is None else [self._partition]
        for partition in told:
            row = rows[partition]
            if row.version != self._rows.get(partition, Assignment()).version:
                self._rows[partition] = row
                lines.append(f"applies p{partition} {row_in_words(row, self._names)}")
        return lines

    def _name(self, uuid: str) -> str:
        return self._names.get(uuid, uuid)


def _named(message: m.Message, names: Mapping[str, str]) -> str:
    return f"{type(message).__name__} {in_words(message, names)}".rstrip()


def _of_all(event: Event, names: Mapping[str, str]) -> list[str]:
    match event:
        case PeerSilent(member):
            return [f"hears that nobody listens where {names.get(member, member)} was"]
        case ActionRequested(action):
            return [f"the operator wants: {action.audit_line()}"]
        case ActionWithdrawn(action):
            return [f"the operator does not want any more: {action.audit_line()}"]
        case FlightBounded(most):
            return [f"the operator lets {most} bytes be on their way to members that are filled"]
        case DiskRoom(full):
            return ["its disk is full" if full else "its disk has room again"]
        case MemoryRoom(room):
            return [f"its memory has room: {room.name.lower()}"]
        case ListenerAdded(_, name):
            return [f"a client listens to {name}"]
        case MapDestroyed(name):
            return [f"a client destroys {name}"]
        case SeedAbsent(address):
            return [f"hears that nobody listens at {address}"]
        case SeedBehind(address, members):
            return [f"finds {len(members)} members behind {address}"]
        case _:
            return []
