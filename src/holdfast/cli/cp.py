"""`holdfast cp`: objects and sessions of CP groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import click
import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from holdfast.cli.action_commands import add_actions
from holdfast.cli.answers import Answer
from holdfast.cli.data import ANSWER_S
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.rendering import Shown, table_of
from holdfast.cli.typed_values import plain_of, text_of, type_of
from holdfast.client.blocking import Client
from holdfast.client.holdings import known_maps
from holdfast.core.cp.cp_entries import (
    DESTROYED,
    LatchEntry,
    LockEntry,
    LongEntry,
    ReferenceEntry,
    SemaphoreEntry,
    SessionEntry,
    decode_entry,
)
from holdfast.core.model.collections import partition_of_name
from holdfast.core.model.cp import (
    DEFAULT_GROUP,
    OBJECTS,
    CpKind,
    group_of_map,
    kind_and_name,
    map_of_group,
    session_key,
)
from holdfast.core.model.result_columns import column
from holdfast.errors import ConfigError

Entries = Mapping[bytes, bytes]

group_option = click.option(
    "--group", default=DEFAULT_GROUP, show_default=True, metavar="GROUP", help="The CP group of the object."
)


@click.group()
def cp() -> None:
    r"""List, show and destroy CP objects: locks, semaphores, latches and atomic values.

    \b
      holdfast cp list
      holdfast cp show lock ledger
    """


class CpObject(Answer):
    """A CP object."""

    kind: Annotated[str, column("kind")]
    name: Annotated[str, column("name")]
    group: Annotated[str, column("group")]
    state: Annotated[str, column("state", fold=True)]


class CpObjects(Answer):
    """The CP objects that were used, and the number of open sessions of clients."""

    objects: list[CpObject]
    sessions: int

    def view(self) -> Iterable[Shown]:
        yield table_of(self.objects, CpObject)
        yield f"{self.sessions} sessions of clients"


class CpHolder(msgspec.Struct, frozen=True):
    """A client that holds a lock, or permits."""

    client: Annotated[str, column("client")]
    session: Annotated[int, column("session", "count")]
    holds: Annotated[int, column("holds", "count")]
    """How often it holds the lock, or how many permits."""


class CpObjectShown(CpObject):
    """A CP object with its content."""

    holders: list[CpHolder]
    fence: int | UnsetType = UNSET
    available: int | UnsetType = UNSET
    count: int | UnsetType = UNSET
    value: Any | UnsetType = UNSET
    value_type: str | UnsetType = UNSET

    def view(self) -> Iterable[Shown]:
        yield f"{self.kind} {self.name} in group {self.group}: {self.state}"
        if self.holders:
            yield table_of(self.holders, CpHolder)


@operator_command(cp, "list", short_help="List CP objects with their state.")
@click.option("--group", metavar="GROUP", help="Only those of this CP group.")
def list_command(call: Call, *, group: str | None) -> CpObjects:
    r"""List the CP objects that were used, with their state, and count the sessions of clients.

    Objects that were destroyed stay in the list, because their names cannot be used again.

    \b
      holdfast cp list
    """
    objects: list[CpObject] = []
    sessions = 0
    with call.client(ANSWER_S) as client:
        for name in [group] if group is not None else _groups(client):
            entries = _entries(client, name)
            objects += [_shown(entries, kind, own, name) for kind, own in _objects(entries)]
            sessions += sum(key.startswith(CpKind.SESSION.key()) for key in entries)
    return CpObjects(objects=objects, sessions=sessions)


@operator_command(cp, short_help="Show a CP object, and which clients hold it.")
@click.argument("kind", type=click.Choice([str(kind) for kind in OBJECTS]), metavar="KIND")
@click.argument("name", metavar="NAME")
@group_option
def show(call: Call, kind: str, name: str, *, group: str) -> CpObjectShown:
    r"""Show the CP object NAME of this KIND (long, reference, latch, lock, semaphore), and which clients hold it.

    \b
      holdfast cp show semaphore jobs --group eu
    """
    with call.client(ANSWER_S) as client:
        entries = _entries(client, group)
    chosen = CpKind(kind)
    if chosen.key(name) not in entries:
        there = ", ".join(f"{other} {named}" for other, named in _objects(entries)) or "none"
        raise ConfigError(f"there is no {kind} {name!r} in CP group {group!r}: there are {there}")
    return _shown(entries, chosen, name, group)


add_actions(cp, "cp")


def _groups(client: Client) -> list[str]:
    names = known_maps(client, timeout_s=ANSWER_S).names
    return sorted(group for name in names if (group := group_of_map(name)))


def _entries(client: Client, group: str) -> dict[bytes, bytes]:
    partition = partition_of_name(group, client.partition_count)
    found: dict[bytes, bytes] = {}
    for page in client.scan(map_of_group(group), partition):
        found.update(zip(*page.split(), strict=True))
    return found


def _objects(entries: Entries) -> Iterator[tuple[CpKind, str]]:
    named = (kind_and_name(key) for key in sorted(entries))
    return (one for one in named if one is not None and one[0] in OBJECTS)


def _shown(entries: Entries, kind: CpKind, name: str, group: str) -> CpObjectShown:
    stored = entries[kind.key(name)]
    found = CpObjectShown(kind=str(kind), name=name, group=group, state="destroyed", holders=[])
    if stored == DESTROYED:
        return found
    match kind:
        case CpKind.LOCK:
            lock = decode_entry(LockEntry, stored)
            holders = [_holder(entries, lock.session, len(lock.uids))] if lock.uids else []
            state = f"held by {holders[0].client}, fence {lock.fence}" if holders else "free"
            return replace(found, state=state, holders=holders, fence=lock.fence)
        case CpKind.SEMAPHORE:
            semaphore = decode_entry(SemaphoreEntry, stored)
            holders = [_holder(entries, session, held) for session, held in sorted(semaphore.held.items())]
            state = f"{semaphore.available} permits available, {len(holders)} clients hold some"
            return replace(found, state=state, holders=holders, available=semaphore.available)
        case CpKind.LATCH:
            latch = decode_entry(LatchEntry, stored)
            return replace(found, state=f"count {latch.count}", count=latch.count)
        case CpKind.ATOMIC_LONG:
            number = decode_entry(LongEntry, stored).value
            return replace(found, state=str(number), value=number, value_type="long")
        case _:
            value = decode_entry(ReferenceEntry, stored).value
            if value is None:
                return replace(found, state="no value")
            plain = plain_of(value)
            return replace(found, state=text_of(plain), value=plain, value_type=type_of(value))


def _holder(entries: Entries, session: int, holds: int) -> CpHolder:
    client = decode_entry(SessionEntry, entries.get(session_key(session))).client
    return CpHolder(client.decode(errors="replace") or "unknown", session, holds)
