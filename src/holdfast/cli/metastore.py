"""`holdfast metastore`: reads and changes keys of the metastore."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from typing import Any

import click

from holdfast.cli.addresses import address_option
from holdfast.cli.answers import json_option
from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.orders import EXIT_FAILED
from holdfast.cli.status import gather
from holdfast.client.agreed_client import ask_metastore
from holdfast.client.routing import parse_addresses
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
from holdfast.errors import NotReady, Refused, Unsupported

LOOK_S = 0.25

if_revision_option = click.option(
    "--if-revision",
    type=click.IntRange(0),
    metavar="N",
    help="Only if the key is at this revision; 0: only if it is absent.",
)


@click.group()
def metastore() -> None:
    r"""Read and change keys of the metastore, through any member. A cluster with metastore.voters has one.

    \b
      holdfast metastore status
      holdfast metastore scan zones/zone/          the settings of every zone
      holdfast metastore put app/flag on --if-revision 0
      holdfast metastore watch app/

    Reads are linearizable: they see every change that was acknowledged before. Change keys that begin with zones/
    only by `holdfast zone`.
    """


def _ask(address: str, known: Credentials, question: MetastoreQuestion) -> MetastoreAnswer:
    return ask_metastore(parse_addresses(address), known.for_client(), question)


@metastore.command(short_help="Print the value of a key, now or at a revision.")
@click.argument("key")
@click.option("--revision", type=click.IntRange(1), metavar="N", help="Read at this revision.")
@json_option
@address_option
@credentials
def get(key: str, *, revision: int | None, as_json: bool, address: str, credentials: Credentials) -> None:
    """Print the value of KEY."""
    answer = _ask(address, credentials, KeyAsked(key.encode(), revision or 0))
    [found] = answer.keys
    if as_json:
        _print_json({**_plain(found), "as_of": answer.revision})
    elif found.value is not None:
        click.echo(_readable(found.value, indent=2))
    if found.value is None:
        if not as_json:
            raise Refused(f"key {key} has no value as of revision {answer.revision}")
        sys.exit(EXIT_FAILED)


@metastore.command(short_help="Print keys with a prefix.")
@click.argument("prefix", default="")
@click.option("--revision", type=click.IntRange(1), metavar="N", help="Read at this revision.")
@json_option
@address_option
@credentials
def scan(prefix: str, *, revision: int | None, as_json: bool, address: str, credentials: Credentials) -> None:
    """Print the keys that begin with PREFIX and their values, one per line."""
    asked = PrefixAsked(prefix.encode(), revision=revision or 0)
    while True:
        answer = _ask(address, credentials, asked)
        for found in answer.keys:
            _print_line(found, as_json=as_json)
        if not answer.more:
            return
        asked = PrefixAsked(prefix.encode(), answer.keys[-1].key, answer.revision)


@metastore.command(short_help="Set the value of a key.")
@click.argument("key")
@click.argument("value")
@if_revision_option
@json_option
@address_option
@credentials
def put(
    key: str, value: str, *, if_revision: int | None, as_json: bool, address: str, credentials: Credentials
) -> None:
    """Set KEY to VALUE, and print the revision of the change."""
    answer = _ask(address, credentials, PutAsked(key.encode(), value.encode(), if_revision))
    _changed(key, answer, "has this value", as_json=as_json)


@metastore.command(short_help="Remove a key.")
@click.argument("key")
@if_revision_option
@json_option
@address_option
@credentials
def remove(
    key: str, *, if_revision: int | None, as_json: bool, address: str, credentials: Credentials
) -> None:
    """Remove KEY, and print the revision of the change. Removing an absent key changes nothing."""
    answer = _ask(address, credentials, RemoveAsked(key.encode(), if_revision))
    _changed(key, answer, "is not there", as_json=as_json)


def _changed(key: str, answer: MetastoreAnswer, what: str, *, as_json: bool) -> None:
    if as_json:
        now = [_plain(one) for one in answer.keys]
        _print_json({"applied": answer.applied, "revision": answer.revision, "now": now[0] if now else None})
    if answer.applied:
        if not as_json:
            click.echo(f"key {key} {what} as of revision {answer.revision}")
        return
    if not as_json:
        [found] = answer.keys
        state = "absent" if found.value is None else f"at revision {found.revision}"
        raise Refused(f"key {key} is {state}; nothing was changed")
    sys.exit(EXIT_FAILED)


@metastore.command(short_help="Print former values of a key.")
@click.argument("key")
@json_option
@address_option
@credentials
def history(key: str, *, as_json: bool, address: str, credentials: Credentials) -> None:
    """Print former values of KEY, oldest first, as far as the metastore still has them."""
    after = 0
    while True:
        answer = _ask(address, credentials, KeyHistoryAsked(key.encode(), after))
        for found in answer.keys:
            _print_line(found, as_json=as_json)
        if not answer.more:
            return
        after = answer.keys[-1].revision


@metastore.command(short_help="Print changes as they happen.")
@click.argument("prefix", default="")
@click.option("--after", type=click.IntRange(0), metavar="N", help="Changes after this revision.  [now]")
@json_option
@address_option
@credentials
def watch(prefix: str, *, after: int | None, as_json: bool, address: str, credentials: Credentials) -> None:
    """Print each change of keys that begin with PREFIX, in order of revisions, until Ctrl-C.

    Prints its first revision to standard error. With several members in --address it continues with another one when
    the first goes away.
    """
    with suppress(KeyboardInterrupt):
        _follow(prefix, after, as_json=as_json, address=address, credentials=credentials)


def _follow(prefix: str, after: int | None, *, as_json: bool, address: str, credentials: Credentials) -> None:
    last = after if after is not None else _ask(address, credentials, KeyAsked(b"")).revision
    what = f"the keys that begin with {prefix}" if prefix else "all keys"
    click.echo(f"watching {what} after revision {last}", err=True)
    silent = False
    while True:
        try:
            answer = _ask(address, credentials, KeyChangesAsked(prefix.encode(), last))
        except Unsupported:
            raise
        except NotReady as failed:
            if not silent:
                click.echo(f"{failed}; trying again", err=True)
            silent = True
            time.sleep(1)
            continue
        silent = False
        for found in answer.keys:
            _print_line(found, as_json=as_json)
        sys.stdout.flush()
        last = answer.revision
        if not answer.more:
            time.sleep(LOOK_S)


@metastore.command("status", short_help="Show the leader, the voters, and the revision of each member.")
@json_option
@address_option
@credentials
def status_command(*, as_json: bool, address: str, credentials: Credentials) -> None:
    """Show the leader, the voters, and the revision of each member."""
    report = None
    for each in address.split(","):
        try:
            report = gather(each, credentials)
            break
        except NotReady as failed:
            click.echo(str(failed), err=True)
    if report is None:
        raise NotReady("no member answers")
    names = {member["uuid"]: member["name"] for member in report.seen["members"]}
    told = {names[uuid]: own["metastore"] for uuid, own in sorted(report.own.items()) if own.get("metastore")}
    if not told:
        raise Unsupported("this cluster has no metastore: metastore.voters is 0")
    seen = report.seen["metastore"]
    if as_json:
        silent = {names[uuid]: why for uuid, why in report.silent.items()}
        _print_json({"metastore": seen, "members": told, "unreachable_members": silent})
    else:
        click.echo(
            f"leader {seen['leader'] or 'not known'}, voters {', '.join(seen['voters']) or 'not known'}"
        )
        for name, own in told.items():
            role = "leads" if own["leader"] == name else "votes" if name in own["voters"] else "learns"
            click.echo(
                f"{name}: {role}, revision {own['revision']} ({own['keys']:,} keys, known from {own['compacted']} on), "
                f"{own['pending']} pending"
            )
        for uuid, why in report.silent.items():
            click.echo(f"{names[uuid]}: silent: {why}")
    if not seen["leader"]:
        sys.exit(EXIT_FAILED)


@metastore.command(short_help="Continue without most of the voters. Their last changes are lost.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@address_option
@credentials
def reset(*, yes: bool, as_json: bool, address: str, credentials: Credentials) -> None:
    """Make the copy of the member at --address the metastore, after most of its voters are gone for good.

    Choose the member with the highest revision (`holdfast metastore status`). Changes that only the lost voters had
    are lost, such as zones that were just created. Rejected while a majority of the voters is available.
    """
    if not yes:
        question = (
            "Discard changes that only lost voters of the metastore have? Acknowledged changes may be lost"
        )
        click.confirm(question, abort=True, err=True)
    answer = _ask(address.partition(",")[0], credentials, ResetAsked())
    if as_json:
        _print_json({"revision": answer.revision})
    else:
        click.echo(f"the metastore continues from revision {answer.revision} of this member")


# -- output


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


def _readable(value: bytes, indent: int | None = None) -> str:
    """A value for display: formatted JSON, other text unchanged, everything else in hexadecimal."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex()
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.dumps(json.loads(text), indent=indent)
    except ValueError:
        return text


def _plain(found: KeyAnswer) -> dict[str, Any]:
    plain: dict[str, Any] = {"key": _text(found.key), "revision": found.revision, "value": None}
    if found.time_ms:
        plain["time_ms"] = found.time_ms
    if found.value is not None:
        try:
            plain["value"] = found.value.decode()
        except UnicodeDecodeError:
            plain["hex"] = found.value.hex()
    return plain


def _print_line(found: KeyAnswer, *, as_json: bool) -> None:
    if as_json:
        _print_json(_plain(found))
        return
    at = f"{time.strftime('%H:%M:%S', time.localtime(found.time_ms / 1000))} " if found.time_ms else ""
    value = "removed" if found.value is None else f"= {_readable(found.value)}"
    click.echo(f"{at}{found.revision:>6} {_text(found.key)} {value}")


def _print_json(plain: object) -> None:
    click.echo(json.dumps(plain))
