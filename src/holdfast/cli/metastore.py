"""`holdfast metastore`: reads and changes keys of the metastore."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import ClassVar, TypeVar

import click
import msgspec
from msgspec import UNSET, UnsetType

from holdfast.cli.action_commands import add_actions
from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.rendering import Shown, table_of
from holdfast.cli.status import gather
from holdfast.client.agreed_client import ask_metastore
from holdfast.core.model.member_status import MetastoreReplica
from holdfast.core.model.metastore_questions import (
    KeyAnswer,
    KeyAsked,
    KeyChangesAsked,
    KeyHistoryAsked,
    MetastoreAnswer,
    MetastoreQuestion,
    PrefixAsked,
    PutAsked,
    RemoveAsked,
    ResetAsked,
)
from holdfast.errors import NotReady, Unsupported

LOOK_S = 0.25
Change = TypeVar("Change", bound="Changed")

if_revision_option = click.option(
    "--if-revision",
    type=click.IntRange(0),
    metavar="N",
    help="Only if the key is at this revision; 0: only if it is absent.",
)
revision_option = click.option(
    "--revision", type=click.IntRange(1), metavar="N", help="Read at this revision."
)


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


add_actions(metastore, "metastore")


class Key(Answer):
    """A key at a revision; without a value it was absent or removed then. `hex` has a value that is no text."""

    key: str
    revision: int
    value: str | None = None
    hex: str | UnsetType = UNSET
    time_ms: int | UnsetType = UNSET

    @property
    def text(self) -> str | None:
        """The value for people; None if there is none."""
        return self.hex if isinstance(self.hex, str) else self.value

    def view(self) -> Iterable[Shown]:
        at = ""
        if isinstance(self.time_ms, int):
            at = f"{time.strftime('%H:%M:%S', time.localtime(self.time_ms / 1000))} "
        value = "removed" if self.text is None else f"= {_formatted(self.text)}"
        yield f"{at}{self.revision:>6} {self.key} {value}"


class KeyNow(Key, kw_only=True):
    """The value of a key as of a revision of the metastore."""

    as_of: int

    def view(self) -> Iterable[Shown]:
        if self.text is not None:
            yield _formatted(self.text, indent=2)

    def notes(self) -> Iterable[str]:
        if self.text is None:
            yield f"key {self.key} has no value as of revision {self.as_of}"

    @property
    def exit_status(self) -> int:
        return int(self.text is None)


class Changed(Answer):
    """Whether the change was applied, its revision, and the key as it is now."""

    decides = "applied"
    outcome: ClassVar[str]

    key: str
    applied: bool
    revision: int
    now: Key | None

    def view(self) -> Iterable[Shown]:
        if self.applied:
            yield f"key {self.key} {self.outcome} as of revision {self.revision}"

    def notes(self) -> Iterable[str]:
        if not self.applied and self.now is not None:
            state = "absent" if self.now.text is None else f"at revision {self.now.revision}"
            yield f"key {self.key} is {state}; nothing was changed"


class Put(Changed):
    """Whether the value was stored, the revision of that, and the key as it is now."""

    outcome = "has this value"


class Removed(Changed):
    """Whether the key was removed, the revision of that, and the key as it is now."""

    outcome = "is not there"


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


class Reset(Answer):
    """The revision from which the metastore continues."""

    revision: int

    def view(self) -> Iterable[Shown]:
        yield f"the metastore continues from revision {self.revision} of this member"


def _ask(call: Call, question: MetastoreQuestion) -> MetastoreAnswer:
    return ask_metastore(call.addresses, call.credentials.for_client(), question)


@operator_command(metastore, short_help="Print the value of a key, now or at a revision.")
@click.argument("key")
@revision_option
def get(call: Call, key: str, *, revision: int | None) -> KeyNow:
    r"""Print the value of KEY.

    \b
      holdfast metastore get app/flag
    """
    answer = _ask(call, KeyAsked(key.encode(), revision or 0))
    [found] = answer.keys
    return KeyNow(**msgspec.structs.asdict(_key(found)), as_of=answer.revision)


@operator_command(metastore, short_help="Print keys with a prefix.")
@click.argument("prefix", default="")
@revision_option
def scan(call: Call, prefix: str, *, revision: int | None) -> Iterator[Key]:
    r"""Print the keys that begin with PREFIX and their values, one per line.

    \b
      holdfast metastore scan zones/zone/
    """
    asked = PrefixAsked(prefix.encode(), revision=revision or 0)
    while True:
        answer = _ask(call, asked)
        yield from map(_key, answer.keys)
        if not answer.more:
            return
        asked = PrefixAsked(prefix.encode(), answer.keys[-1].key, answer.revision)


@operator_command(metastore, short_help="Set the value of a key.")
@click.argument("key")
@click.argument("value")
@if_revision_option
def put(call: Call, key: str, value: str, *, if_revision: int | None) -> Put:
    r"""Set KEY to VALUE, and print the revision of the change.

    \b
      holdfast metastore put app/flag on --if-revision 0
    """
    return _changed(Put, key, _ask(call, PutAsked(key.encode(), value.encode(), if_revision)))


@operator_command(metastore, short_help="Remove a key.")
@click.argument("key")
@if_revision_option
def remove(call: Call, key: str, *, if_revision: int | None) -> Removed:
    r"""Remove KEY, and print the revision of the change. Removing an absent key changes nothing.

    \b
      holdfast metastore remove app/flag
    """
    return _changed(Removed, key, _ask(call, RemoveAsked(key.encode(), if_revision)))


def _changed(kind: type[Change], key: str, answer: MetastoreAnswer) -> Change:
    now = _key(answer.keys[0]) if answer.keys else None
    return kind(key=key, applied=answer.applied, revision=answer.revision, now=now)


@operator_command(metastore, short_help="Print former values of a key.")
@click.argument("key")
def history(call: Call, key: str) -> Iterator[Key]:
    r"""Print former values of KEY, oldest first, as far as the metastore still has them.

    \b
      holdfast metastore history app/flag
    """
    after = 0
    while True:
        answer = _ask(call, KeyHistoryAsked(key.encode(), after))
        yield from map(_key, answer.keys)
        if not answer.more:
            return
        after = answer.keys[-1].revision


@operator_command(metastore, short_help="Print changes as they happen.")
@click.argument("prefix", default="")
@click.option("--after", type=click.IntRange(0), metavar="N", help="Changes after this revision.  [now]")
def watch(call: Call, prefix: str, *, after: int | None) -> Iterator[Key]:
    r"""Print each change of keys that begin with PREFIX, in order of revisions, until Ctrl-C.

    Prints its first revision to standard error. With several members in --address it continues with another one when
    the first goes away.

    \b
      holdfast metastore watch app/
    """
    with suppress(KeyboardInterrupt):
        yield from _follow(call, prefix, after)


def _follow(call: Call, prefix: str, after: int | None) -> Iterator[Key]:
    last = after if after is not None else _ask(call, KeyAsked(b"")).revision
    what = f"the keys that begin with {prefix}" if prefix else "all keys"
    click.echo(f"watching {what} after revision {last}", err=True)
    silent = False
    while True:
        try:
            answer = _ask(call, KeyChangesAsked(prefix.encode(), last))
        except Unsupported:
            raise
        except NotReady as failed:
            if not silent:
                click.echo(f"{failed}; trying again", err=True)
            silent = True
            time.sleep(1)
            continue
        silent = False
        yield from map(_key, answer.keys)
        last = answer.revision
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


@operator_command(
    metastore,
    confirms=True,
    short_help="Continue without most of the voters. Their last changes are lost.",
)
def reset(call: Call) -> Reset:
    r"""Make the copy of the member at --address the metastore, after most of its voters are gone for good.

    Choose the member with the highest revision (`holdfast metastore status`). Changes that only the lost voters had
    are lost, such as zones that were just created. Rejected while a majority of the voters is available.

    \b
      holdfast metastore reset -a 10.0.0.1:5701
    """
    call.confirm(
        "Discard changes that only lost voters of the metastore have? Acknowledged changes may be lost"
    )
    answer = ask_metastore(call.addresses[:1], call.credentials.for_client(), ResetAsked())
    return Reset(revision=answer.revision)


# -- output


def _formatted(text: str, indent: int | None = None) -> str:
    """A value for display: formatted JSON, or the text."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.dumps(json.loads(text), indent=indent)
    except ValueError:
        return text


def _key(found: KeyAnswer) -> Key:
    value: str | None = None
    digits: str | UnsetType = UNSET
    if found.value is not None:
        try:
            value = found.value.decode()
        except UnicodeDecodeError:
            digits = found.value.hex()
    return Key(
        key=found.key.decode(errors="backslashreplace"),
        revision=found.revision,
        value=value,
        hex=digits,
        time_ms=found.time_ms or UNSET,
    )
