"""`holdfast transactions`: running transactions, their waits, and how to end them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import click
import msgspec

from holdfast.actions.list_transactions import (
    ListTransactions,
    RollBackRunning,
    Topology,
    TransactionList,
    Wait,
)
from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call, declared_command, operator_command
from holdfast.cli.query_commands import answers_of_members
from holdfast.cli.rendering import Shown, table_of
from holdfast.cli.status import find_member
from holdfast.client.operator import act
from holdfast.core.model.result_columns import column, duration
from holdfast.errors import ConfigError, Refused

SHOWN_ID = 16
"""Characters of an id in the list: enough to tell transactions apart, and for `show` and `kill`."""


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

    running: list[Transaction]
    waits: list[Wait]
    orphans: int
    silent: list[str]

    def only(self, wanted: str) -> Transaction:
        """The transaction whose id has this prefix. Raises ConfigError for several, Refused for none."""
        matching = [each for each in self.running if each.transaction.startswith(wanted.lower())]
        if len(matching) > 1:
            raise ConfigError(
                f"{len(matching)} transactions have an id that begins with {wanted}: give more of it"
            )
        if not matching:
            silent = "".join(f"; not asked: {line}" for line in self.silent)
            raise Refused(f"no transaction runs whose id begins with {wanted}{silent}")
        return matching[0]


def find(call: Call) -> Found:
    answers, silent = answers_of_members(call, ListTransactions())
    lists: dict[str, TransactionList] = answers
    running = [
        Transaction(**msgspec.structs.asdict(each), member=name)
        for name, found in lists.items()
        for each in found.transactions
    ]
    running.sort(key=lambda each: -each.age_ms)
    waits = [wait for found in lists.values() for wait in found.waits]
    return Found(running, waits, sum(found.orphans for found in lists.values()), silent)


@click.group()
def transactions() -> None:
    r"""List, show and kill running transactions, through any member.

    \b
      holdfast transactions list              oldest first, with the transactions that they wait for
      holdfast transactions show 3f2a         show its locks, by the first digits of its id
    """


@declared_command(ListTransactions, transactions)
def list_transactions(call: Call) -> Transactions:
    found = find(call)
    return Transactions(
        transactions=found.running,
        waits=found.waits,
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
    one = found.only(transaction)
    waits = [wait for wait in found.waits if one.transaction in (wait.waiter, wait.holder)]
    return TransactionShown(**msgspec.structs.asdict(one), waits=waits, unreachable_members=found.silent)


@declared_command(RollBackRunning, transactions)
@click.argument("transaction")
def kill(call: Call, transaction: str) -> RolledBack:
    one = find(call).only(transaction)
    member = find_member(one.member, call.status().members)
    action = RollBackRunning(one.transaction)
    act(member.door, call.credentials.for_client(), action, timeout_s=call.timeout_s)
    return RolledBack(transaction=one.transaction)
