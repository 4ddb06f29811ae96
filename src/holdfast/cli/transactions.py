"""`holdfast transactions`: running transactions, their waits, and how to end them."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from holdfast.cli.addresses import address_option
from holdfast.cli.answers import json_option, tell_json
from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.orders import EXIT_FAILED, EXIT_MISUSED
from holdfast.cli.status import gather
from holdfast.client.client_transaction import order_transaction
from holdfast.core.model.ids import Address
from holdfast.core.model.transaction_orders import (
    ListTransactions,
    LockWait,
    RollBackTransaction,
    RunningTransaction,
    TransactionFate,
)
from holdfast.core.model.transactions import EntryKey
from holdfast.errors import HoldfastError
from holdfast.wire.values import from_stored

SHOWN_ID = 16
"""Characters of an id in the list: enough to tell transactions apart, and for `show` and `kill`."""
KILLED = "an operator has rolled it back"


@dataclass(slots=True)
class Found:
    running: list[tuple[str, Address, RunningTransaction]] = field(default_factory=list)
    """With name and client address of the member that runs it."""
    waits: list[LockWait] = field(default_factory=list)
    orphans: int = 0
    silent: list[str] = field(default_factory=list)

    def matching(self, wanted: str) -> list[tuple[str, Address, RunningTransaction]]:
        """Transactions whose id has this prefix, in hexadecimal."""
        return [each for each in self.running if each[2].transaction.hex().startswith(wanted.lower())]


def find(address: str, known: Credentials) -> Found:
    found = Found()
    for member in gather(address, known).seen["members"]:
        door = Address.of_clients(member)
        try:
            told = order_transaction(door, known.for_client(), ListTransactions())
        except HoldfastError as error:
            found.silent.append(f"{member['name']}: {error}")
            continue
        found.running += [(member["name"], door, each) for each in told.running]
        found.waits += told.waits
        found.orphans += told.orphans
    found.running.sort(key=lambda each: -each[2].age_ms)
    return found


@click.group()
def transactions() -> None:
    r"""List, show and kill running transactions, through any member.

    \b
      holdfast transactions list              oldest first, with the transactions that they wait for
      holdfast transactions show 3f2a         show its locks, by the first digits of its id
      holdfast transactions kill 3f2a         roll it back
    """


@transactions.command("list", short_help="List running transactions.")
@json_option
@address_option
@credentials
def list_transactions(*, as_json: bool, address: str, credentials: Credentials) -> None:
    """List the running transactions of all members, oldest first."""
    found = find(address, credentials)
    if as_json:
        click.echo(json.dumps(_plain(found), indent=2))
        return
    console = Console(highlight=False, soft_wrap=True)
    if found.running:
        table = Table(box=None, pad_edge=False)
        for title in ("transaction", "member", "age", "timeout", "phase", "entries", "label", "waits for"):
            table.add_column(title, justify="right" if title in ("age", "timeout", "entries") else "left")
        holders = {wait.waiter: wait for wait in found.waits}
        for name, _, each in found.running:
            wait = holders.get(each.transaction)
            table.add_row(
                each.transaction.hex()[:SHOWN_ID],
                name,
                _seconds(each.age_ms),
                _seconds(each.timeout_ms),
                each.phase + (" (optimistic)" if each.optimistic else ""),
                str(each.entries),
                each.label,
                f"{wait.holder.hex()[:SHOWN_ID]} since {_seconds(wait.since_ms)}" if wait else "",
            )
        console.print(table)
    else:
        console.print("no transactions run")
    if found.orphans:
        console.print(f"{found.orphans} transactions of members that have gone are being ended")
    _tell_silent(found)


@transactions.command(short_help="Show the locks and writes of a transaction.")
@click.argument("transaction")
@json_option
@address_option
@credentials
def show(transaction: str, *, as_json: bool, address: str, credentials: Credentials) -> None:
    """Show one transaction, by the first digits of its id."""
    found = find(address, credentials)
    name, _, each = _only(found, transaction)
    waits = [wait for wait in found.waits if each.transaction in (wait.waiter, wait.holder)]
    if as_json:
        plain = _plain_of(name, each) | {"waits": [_plain_wait(wait) for wait in waits]}
        click.echo(json.dumps(plain, indent=2))
        return
    click.echo(f"transaction {each.transaction.hex()} of member {name}: {each.phase}")
    click.echo(f"  age {_seconds(each.age_ms)} of {_seconds(each.timeout_ms)}; {each.label or 'no label'}")
    click.echo(f"  partitions {', '.join(map(str, each.partitions)) or 'none'}; topology {each.topology}")
    for key in each.keys:
        click.echo(f"  entry {_entry(key)}")
    if each.entries > len(each.keys):
        click.echo(f"  and {each.entries - len(each.keys)} more")
    for wait in waits:
        other = wait.holder if wait.waiter == each.transaction else wait.waiter
        how = "waits for" if wait.waiter == each.transaction else "holds up"
        click.echo(f"  {how} {other.hex()}: {_entry(wait.key)}, for {_seconds(wait.since_ms)}")
    _tell_silent(found)


@transactions.command(short_help="Roll a transaction back.")
@click.argument("transaction")
@json_option
@address_option
@credentials
def kill(transaction: str, *, as_json: bool, address: str, credentials: Credentials) -> None:
    """Roll a transaction back, by the first digits of its id. Its client receives an error that names the operator.

    A transaction that is already committing cannot be rolled back.
    """
    _, door, each = _only(find(address, credentials), transaction)
    order = RollBackTransaction(each.transaction, KILLED)
    answer = order_transaction(door, credentials.for_client(), order)
    if answer.fate is not TransactionFate.DONE:
        click.echo(f"{each.transaction.hex()}: not rolled back: {answer.why}", err=True)
        sys.exit(EXIT_FAILED)
    if as_json:
        tell_json({"transaction": each.transaction.hex(), "rolled_back": True})
    else:
        click.echo(f"{each.transaction.hex()}: rolled back")


def _only(found: Found, wanted: str) -> tuple[str, Address, RunningTransaction]:
    matching = found.matching(wanted)
    if len(matching) == 1:
        return matching[0]
    if matching:
        click.echo(
            f"{len(matching)} transactions have an id that begins with {wanted}: give more of it", err=True
        )
        sys.exit(EXIT_MISUSED)
    _tell_silent(found)
    click.echo(f"no transaction runs whose id begins with {wanted}", err=True)
    sys.exit(EXIT_FAILED)


def _tell_silent(found: Found) -> None:
    for line in found.silent:
        click.echo(f"not asked: {line}", err=True)


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.1f} s"


def _entry(key: EntryKey) -> str:
    name, raw = key
    try:
        shown = repr(from_stored(raw))
    except (HoldfastError, ValueError, TypeError):
        shown = raw.hex()
    return f"{name}[{shown}]"


def _plain(found: Found) -> dict[str, Any]:
    return {
        "transactions": [_plain_of(name, each) for name, _, each in found.running],
        "waits": [_plain_wait(wait) for wait in found.waits],
        "orphans": found.orphans,
        "unreachable_members": found.silent,
    }


def _plain_of(name: str, each: RunningTransaction) -> dict[str, Any]:
    plain = msgspec.structs.asdict(each)
    return plain | {
        "transaction": each.transaction.hex(),
        "member": name,
        "topology": msgspec.structs.asdict(each.topology),
        "keys": [_entry(key) for key in each.keys],
    }


def _plain_wait(wait: LockWait) -> dict[str, Any]:
    return {
        "waiter": wait.waiter.hex(),
        "holder": wait.holder.hex(),
        "entry": _entry(wait.key),
        "since_ms": wait.since_ms,
    }
