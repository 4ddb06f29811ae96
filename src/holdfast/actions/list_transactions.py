"""List running transactions, and roll one back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from holdfast.actions.operator_action import (
    OUTCOME_UNKNOWN,
    AnsweredAction,
    Declaration,
    MachineQuery,
    Target,
)
from holdfast.config.permissions import Action, Kind
from holdfast.core.model.transaction_orders import (
    LockWait,
    RunningTransaction,
    TransactionAnswer,
    TransactionFate,
)
from holdfast.core.model.transactions import EntryKey
from holdfast.errors import HoldfastError, Refused
from holdfast.wire.values import from_stored

if TYPE_CHECKING:
    from holdfast.core.member import Member

ROLLED_BACK = "an operator has rolled it back"


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


class TransactionState(msgspec.Struct, frozen=True):
    """A running transaction."""

    transaction: Annotated[str, Meta(description="its id, in hexadecimal digits")]
    owner: str
    phase: str
    age_ms: int
    timeout_ms: int
    optimistic: bool
    label: str
    keys: Annotated[list[str], Meta(description="the first entries that it has locked or written")]
    entries: Annotated[int, Meta(description="number of entries")]
    partitions: list[int]
    topology: Topology


class TransactionList(msgspec.Struct, frozen=True):
    """The transactions that one member runs, and the waits for locks in its partitions."""

    transactions: list[TransactionState]
    waits: list[Wait]
    orphans: Annotated[
        int, Meta(description="transactions without a coordinator that have locks in its partitions")
    ]


class ListTransactions(MachineQuery, frozen=True):
    r"""List the running transactions of all members, oldest first.

    \b
      holdfast transactions list
    """

    declared = Declaration(
        "transactions",
        Action.LIST,
        "transactions list",
        "List running transactions.",
        target=Target.EACH,
        timeout_s=5,
        kind=Kind.TRANSACTION,
    )
    result = TransactionList

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        found = member.transactions
        reply(
            TransactionList(
                [_state(one) for one in found.coordinator.running.told()],
                [_wait(one) for one in found.deadlocks.waits()],
                found.orphans.count,
            )
        )


class RollBackRunning(AnsweredAction, frozen=True):
    r"""Roll a transaction back, by the first digits of its id. Its client receives an error that names the operator.

    A transaction that is already committing cannot be rolled back.

    \b
      holdfast transactions kill 3f2a
    """

    declared = Declaration(
        "roll-back-transaction",
        Action.ROLL_BACK,
        "transactions kill",
        "Roll a transaction back.",
        target=Target.MEMBER,
        timeout_s=10,
        kind=Kind.TRANSACTION,
        sent_once=True,
        at_timeout=OUTCOME_UNKNOWN,
    )

    transaction: Annotated[
        str,
        Meta(
            pattern="^([0-9a-f]{2}){1,64}$",
            description="Its id, as `holdfast transactions list --json` shows it.",
            extra={"argument": "TRANSACTION"},
        ),
    ]

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        def done(answer: object) -> None:
            assert isinstance(answer, TransactionAnswer)
            rolled_back = answer.fate is TransactionFate.DONE
            reply(None if rolled_back else Refused(f"{self.transaction}: not rolled back: {answer.why}"))

        member.transactions.coordinator.commits.roll_back(bytes.fromhex(self.transaction), ROLLED_BACK, done)

    def answer_text(self, answer: None) -> str:
        return f"{self.transaction}: rolled back"


def _entry(key: EntryKey) -> str:
    name, raw = key
    try:
        shown = repr(from_stored(raw))
    except (HoldfastError, ValueError, TypeError):
        shown = raw.hex()
    return f"{name}[{shown}]"


def _state(one: RunningTransaction) -> TransactionState:
    plain = msgspec.structs.asdict(one)
    plain |= {
        "transaction": one.transaction.hex(),
        "topology": Topology(one.topology.major, one.topology.minor),
        "keys": [_entry(key) for key in one.keys],
    }
    return TransactionState(**plain)


def _wait(wait: LockWait) -> Wait:
    return Wait(wait.waiter.hex(), wait.holder.hex(), _entry(wait.key), wait.since_ms)
