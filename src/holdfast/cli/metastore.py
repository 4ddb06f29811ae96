"""`holdfast metastore`: reads and changes keys of the metastore."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

import click
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from holdfast.actions.metastore_keys import KeyChanges, KeyHistory, ReadKey, ScanKeys
from holdfast.cli.action_commands import action_command, add_actions
from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.rendering import Shown, table_of
from holdfast.cli.status import gather
from holdfast.core.model.member_status import MetastoreReplica
from holdfast.core.model.metastore_answers import KeyAnswer, KeysFound
from holdfast.errors import NotReady, Unsupported

LOOK_S = 0.25


@click.group()
def metastore() -> None:
    r"""Start the metastore, and read and change its keys, through any member.

    \b
      holdfast metastore start --voters 3
      holdfast metastore status
      holdfast metastore scan zones/zone/          the settings of every zone

    Reads are linearizable: they see every change that was acknowledged before. Change keys that begin with zones/
    only by `holdfast zone`.
    """


class Key(Answer):
    """A key at a revision; without a value it was absent or removed then."""

    key: str
    revision: int
    value: str | None = None
    time_ms: int | UnsetType = UNSET

    def view(self) -> Iterable[Shown]:
        at = ""
        if isinstance(self.time_ms, int):
            at = f"{time.strftime('%H:%M:%S', time.localtime(self.time_ms / 1000))} "
        value = "removed" if self.value is None else f"= {_formatted(self.value)}"
        yield f"{at}{self.revision:>6} {self.key} {value}"


class KeyNow(Key, kw_only=True):
    """The value of a key as of a revision of the metastore."""

    as_of: int

    def view(self) -> Iterable[Shown]:
        if self.value is not None:
            yield _formatted(self.value, indent=2)

    def notes(self) -> Iterable[str]:
        if self.value is None:
            yield f"key {self.key} has no value as of revision {self.as_of}"

    @property
    def exit_status(self) -> int:
        return int(self.value is None)


class MetastoreStatus(Answer):
    """The metastore as the queried member sees it, and as each member does."""

    metastore: MetastoreReplica
    members: dict[str, MetastoreReplica]
    unreachable_members: dict[str, str]

    def view(self) -> Iterable[Shown]:
        seen = self.metastore
        yield f"leader {seen.leader or 'not known'}, voters {', '.join(seen.voters) or 'not known'}"
        roles = [one.role(name) for name, one in self.members.items()]
        yield table_of(
            list(self.members.values()), MetastoreReplica, first={"member": list(self.members), "role": roles}
        )
        yield from (f"{name}: silent: {why}" for name, why in self.unreachable_members.items())

    @property
    def exit_status(self) -> int:
        return int(not self.metastore.leader)


@action_command(ReadKey, metastore)
def get(call: Call, query: ReadKey) -> KeyNow:
    answer: KeysFound = call.ask(query)
    [found] = answer.keys
    return KeyNow(key=found.key, revision=found.revision, value=found.value, as_of=answer.revision)


@action_command(ScanKeys, metastore)
def scan(call: Call, query: ScanKeys) -> Iterator[Key]:
    while True:
        answer: KeysFound = call.ask(query)
        yield from map(_key, answer.keys)
        if not answer.more:
            return
        query = replace(query, after=answer.keys[-1].key, revision=answer.revision)


@action_command(KeyHistory, metastore)
def history(call: Call, query: KeyHistory) -> Iterator[Key]:
    while True:
        answer: KeysFound = call.ask(query)
        yield from map(_key, answer.keys)
        if not answer.more:
            return
        query = replace(query, after=answer.keys[-1].revision)


@action_command(KeyChanges, metastore)
def watch(call: Call, query: KeyChanges) -> Iterator[Key]:
    with suppress(KeyboardInterrupt):
        yield from _follow(call, query)


def _follow(call: Call, query: KeyChanges) -> Iterator[Key]:
    if query.after is None:
        query = replace(query, after=call.ask(query).revision)
    what = f"the keys that begin with {query.prefix}" if query.prefix else "all keys"
    click.echo(f"watching {what} after revision {query.after}", err=True)
    silent = False
    while True:
        try:
            answer: KeysFound = call.ask(query)
        except NotReady as failed:
            if not silent:
                click.echo(f"{failed}; trying again", err=True)
            silent = True
            time.sleep(1)
            continue
        silent = False
        yield from map(_key, answer.keys)
        query = replace(query, after=answer.revision)
        if not answer.more:
            time.sleep(LOOK_S)


@operator_command(
    metastore, "status", short_help="Show the leader, the voters, and the revision of each member."
)
def status_command(call: Call) -> MetastoreStatus:
    r"""Show the leader, the voters, and the revision of each member.

    \b
      holdfast metastore status
    """
    report = gather(call.address, call.credentials)
    names = {member.uuid: member.name for member in report.seen.members}
    found = {name: own.metastore for name, own in sorted(report.named()) if own.metastore is not None}
    if report.seen.metastore is None:
        raise Unsupported("this cluster has no metastore: start one with holdfast metastore start")
    silent = {names[uuid]: why for uuid, why in report.silent.items()}
    return MetastoreStatus(metastore=report.seen.metastore, members=found, unreachable_members=silent)


add_actions(metastore, "metastore")


# -- output


def _formatted(text: str, indent: int | None = None) -> str:
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.dumps(json.loads(text), indent=indent)
    except ValueError:
        return text


def _key(found: KeyAnswer) -> Key:
    return Key(key=found.key, revision=found.revision, value=found.value, time_ms=found.time_ms or UNSET)
