"""`holdfast transactions`: running transactions, their waits, and how to end them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import click
import msgspec

from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.rendering import Shown, table_of
from holdfast.client.client_transaction import order_transaction
from holdfast.core.model.ids import Address
from holdfast.core.model.result_columns import column, duration
from holdfast.core.model.transaction_orders import (
    ListTransactions,
    LockWait,
    RollBackTransaction,
    RunningTransaction,
    TransactionFate,
)
from holdfast.core.model.transactions import EntryKey
from holdfast.errors import ConfigError, HoldfastError, Refused
from holdfast.wire.values import from_stored

SHOWN_ID = 16
"""Characters of an id in the list: enough to tell transactions apart, and for `show` and `kill`."""
KILLED = "an operator has rolled it back"


class Topology(msgspec.Struct, frozen=True):
    """The topology of the first lock; 0.0 before it."""

    major: int
    minor: int


class Wait(msgspec.Struct, frozen=True):
    """A transaction that waits for another one to release an entry."""

    waiter: str
    holder: str
    entry: str
    since_ms: int


class Transaction(Answer):
    """A running transaction."""

    transaction: str
    member: str
    owner: str
    phase: str
    age_ms: int
    timeout_ms: int
    optimistic: bool
    label: str
    keys: list[str]
    entries: int
    partitions: list[int]
    topology: Topology


class TransactionShown(Transaction):
    """A running transaction with its waits."""

    waits: list[Wait]
    unreachable_members: list[str]

    def view(self) -> Iterable[Shown]:
        yield f"transaction {self.transaction} of member {self.member}: {self.phase}"
        age, limit = duration(self.age_ms / 1000), duration(self.timeout_ms / 1000)
        yield f"  age {age} of {limit}; {self.label or 'no label'}"
        topology = f"{self.topology.major}.{self.topology.minor}"
        yield f"  partitions {', '.join(map(str, self.partitions)) or 'none'}; topology {topology}"
        for key in self.keys:
            yield f"  entry {key}"
        if self.entries > len(self.keys):
            yield f"  and {self.entries - len(self.keys)} more"
        for wait in self.waits:
            waits = wait.waiter == self.transaction
            other = wait.holder if waits else wait.waiter
            how = "waits for" if waits else "holds up"
            yield f"  {how} {other}: {wait.entry}, for {duration(wait.since_ms / 1000)}"

    def notes(self) -> Iterable[str]:
        return [f"not asked: {line}" for line in self.unreachable_members]


class TransactionRow(msgspec.Struct, frozen=True):
    """A line of the list for people."""

    transaction: Annotated[str, column("transaction")]
    member: Annotated[str, column("member")]
    age_ms: Annotated[int, column("age", "ms")]
    timeout_ms: Annotated[int, column("timeout", "ms")]
    phase: Annotated[str, column("phase")]
    entries: Annotated[int, column("entries", "count")]
    label: Annotated[str, column("label", fold=True)]
    waits: Annotated[str, column("waits for")]


class Transactions(Answer):
    """The running transactions, oldest first, and which waits for which."""

    transactions: list[Transaction]
    waits: list[Wait]
    orphans: int
    unreachable_members: list[str]

    def view(self) -> Iterable[Shown]:
        waits = {wait.waiter: wait for wait in self.waits}
        if self.transactions:
            rows = [self._row(one, waits.get(one.transaction)) for one in self.transactions]
            yield table_of(rows, TransactionRow)
        else:
            yield "no transactions run"
        if self.orphans:
            yield f"{self.orphans} transactions of members that have gone are being ended"

    @staticmethod
    def _row(one: Transaction, wait: Wait | None) -> TransactionRow:
        return TransactionRow(
            one.transaction[:SHOWN_ID],
            one.member,
            one.age_ms,
            one.timeout_ms,
            one.phase + (" (optimistic)" if one.optimistic else ""),
            one.entries,
            one.label,
            f"{wait.holder[:SHOWN_ID]} since {duration(wait.since_ms / 1000)}" if wait else "",
        )

    def notes(self) -> Iterable[str]:
        return [f"not asked: {line}" for line in self.unreachable_members]


class RolledBack(Answer):
    """The transaction was rolled back."""

    transaction: str
    rolled_back: bool = True

    def view(self) -> Iterable[Shown]:
        yield f"{self.transaction}: rolled back"


class Found(NamedTuple):
    """The transactions of all members."""

    running: list[tuple[str, Address, RunningTransaction]]
    """With name and client address of the member that runs it."""
    waits: list[LockWait]
    orphans: int
    silent: list[str]

    def only(self, wanted: str) -> tuple[str, Address, RunningTransaction]:
        """The transaction whose id has this prefix. Raises ConfigError for several, Refused for none."""
        matching = [each for each in self.running if each[2].transaction.hex().startswith(wanted.lower())]
        if len(matching) > 1:
            raise ConfigError(
                f"{len(matching)} transactions have an id that begins with {wanted}: give more of it"
            )
        if not matching:
            silent = "".join(f"; not asked: {line}" for line in self.silent)
            raise Refused(f"no transaction runs whose id begins with {wanted}{silent}")
        return matching[0]


def find(call: Call) -> Found:
    running: list[tuple[str, Address, RunningTransaction]] = []
    waits: list[LockWait] = []
    silent: list[str] = []
    orphans = 0
    for member in call.status().members:
        door = member.door
        try:
            answer = order_transaction(door, call.credentials.for_client(), ListTransactions())
        except HoldfastError as error:
            silent.append(f"{member.name}: {error}")
            continue
        running += [(member.name, door, each) for each in answer.running]
        waits += answer.waits
        orphans += answer.orphans
    running.sort(key=lambda each: -each[2].age_ms)
    return Found(running, waits, orphans, silent)


@click.group()
def transactions() -> None:
    r"""List, show and kill running transactions, through any member.

    \b
      holdfast transactions list              oldest first, with the transactions that they wait for
      holdfast transactions show 3f2a         show its locks, by the first digits of its id
    """


@operator_command(transactions, "list", short_help="List running transactions.")
def list_transactions(call: Call) -> Transactions:
    r"""List the running transactions of all members, oldest first.

    \b
      holdfast transactions list
    """
    found = find(call)
    return Transactions(
        transactions=[_transaction(name, each) for name, _, each in found.running],
        waits=[_wait(wait) for wait in found.waits],
        orphans=found.orphans,
        unreachable_members=found.silent,
    )


@operator_command(transactions, short_help="Show the locks and writes of a transaction.")
@click.argument("transaction")
def show(call: Call, transaction: str) -> TransactionShown:
    r"""Show one transaction, by the first digits of its id.

    \b
      holdfast transactions show 3f2a
    """
    found = find(call)
    name, _, each = found.only(transaction)
    waits = [wait for wait in found.waits if each.transaction in (wait.waiter, wait.holder)]
    return TransactionShown(
        **msgspec.structs.asdict(_transaction(name, each)),
        waits=[_wait(wait) for wait in waits],
        unreachable_members=found.silent,
    )


@operator_command(transactions, short_help="Roll a transaction back.")
@click.argument("transaction")
def kill(call: Call, transaction: str) -> RolledBack:
    r"""Roll a transaction back, by the first digits of its id. Its client receives an error that names the operator.

    A transaction that is already committing cannot be rolled back.

    \b
      holdfast transactions kill 3f2a
    """
    _, door, each = find(call).only(transaction)
    order = RollBackTransaction(each.transaction, KILLED)
    answer = order_transaction(door, call.credentials.for_client(), order)
    if answer.fate is not TransactionFate.DONE:
        raise Refused(f"{each.transaction.hex()}: not rolled back: {answer.why}")
    return RolledBack(transaction=each.transaction.hex())


def _entry(key: EntryKey) -> str:
    name, raw = key
    try:
        shown = repr(from_stored(raw))
    except (HoldfastError, ValueError, TypeError):
        shown = raw.hex()
    return f"{name}[{shown}]"


def _transaction(name: str, each: RunningTransaction) -> Transaction:
    plain = msgspec.structs.asdict(each)
    plain |= {
        "transaction": each.transaction.hex(),
        "member": name,
        "topology": Topology(each.topology.major, each.topology.minor),
        "keys": [_entry(key) for key in each.keys],
    }
    return Transaction(**plain)


def _wait(wait: LockWait) -> Wait:
    return Wait(wait.waiter.hex(), wait.holder.hex(), _entry(wait.key), wait.since_ms)
