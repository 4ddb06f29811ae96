"""Judge of transfers between accounts: money is neither created nor lost.

Every read of all accounts shows the known total. At the end each account has its initial balance with each
committed transfer and some of the unknown ones, each whole or not at all. (The workload `bank` of Jepsen
checks only the total.)

Whether some of the unknown transfers explain the balances is a subset-sum question over vectors with a number
for each account. A transfer that alone touches an account is decided by it. The rest forms groups without a
common account; for each, all sums of one half of its transfers are compared with all sums of the other. There
may be too many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_lab.check.serializability import TransactionOutcome

MOST_SUMS = 1 << 16
"""Most sums of half of a group: 32 transfers reach it if no two sums are equal."""


@dataclass(frozen=True, slots=True)
class Transfer:
    id: str
    outcome: TransactionOutcome
    changes: Mapping[str, int]
    """By account; their sum is 0."""


@dataclass(frozen=True, slots=True)
class BalancesRead:
    id: str
    balances: Mapping[str, int]


@dataclass(slots=True)
class BankVerdict:
    problems: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    """Balances with too many unknown transfers to decide. Their total was judged."""


def judge(
    initial: Mapping[str, int],
    transfers: Iterable[Transfer],
    reads: Iterable[BalancesRead],
    final: Mapping[str, int],
    *,
    may_be_negative: bool = False,
    most_sums: int = MOST_SUMS,
) -> BankVerdict:
    """Raises ValueError for a duplicate id, or a transfer that changes the total or names an unknown account."""
    verdict = BankVerdict()
    for read in reads:
        verdict.problems += _judge_balances(read.id, initial, read.balances, may_be_negative)
    verdict.problems += _judge_balances("the end", initial, final, may_be_negative)
    surplus = {account: final.get(account, 0) - balance for account, balance in initial.items()}
    unknown: list[Transfer] = []
    ids: set[str] = set()
    for transfer in transfers:
        _check(transfer, initial, ids)
        if transfer.outcome is TransactionOutcome.UNKNOWN and _touched(transfer):
            unknown.append(transfer)
        elif transfer.outcome is TransactionOutcome.COMMITTED:
            for account, change in transfer.changes.items():
                surplus[account] -= change
    if final.keys() != initial.keys():
        return verdict
    for accounts, some in _groups(surplus, unknown):
        answer = _explained({account: surplus[account] for account in accounts}, some, most_sums)
        if answer is True:
            continue
        told = ", ".join(f"{account} {surplus[account]:+}" for account in accounts)
        names = ", ".join(transfer.id for transfer in some) or "there are none"
        if answer is False:
            verdict.problems.append(
                f"the end: beside what committed transfers explain there is {told}; no choice of the unknown ones "
                f"makes that ({names})"
            )
        else:
            verdict.undecided.append(f"{told}: {len(some)} unknown transfers are too many to decide")
    return verdict


def _check(transfer: Transfer, initial: Mapping[str, int], ids: set[str]) -> None:
    if transfer.id in ids:
        raise ValueError(f"two transfers have the id {transfer.id}: each needs one of its own")
    ids.add(transfer.id)
    if sum(transfer.changes.values()):
        raise ValueError(f"{transfer.id} changes the total by {sum(transfer.changes.values())}: it must be 0")
    strange = [account for account in transfer.changes if account not in initial]
    if strange:
        raise ValueError(f"{transfer.id} names {', '.join(strange)}, which is no account")


def _judge_balances(
    where: str, initial: Mapping[str, int], balances: Mapping[str, int], may_be_negative: bool
) -> list[str]:
    problems = [f"{where}: account {account} is missing" for account in initial if account not in balances]
    problems += [f"{where}: {account} is no account" for account in balances if account not in initial]
    total, expected = sum(balances.values()), sum(initial.values())
    if not problems and total != expected:
        problems.append(f"{where}: the total is {total}, and must be {expected}")
    if not may_be_negative:
        problems += [
            f"{where}: account {account} holds {balance}"
            for account, balance in balances.items()
            if balance < 0
        ]
    return problems


def _groups(accounts: Iterable[str], transfers: Sequence[Transfer]) -> list[tuple[list[str], list[Transfer]]]:
    root = {account: account for account in accounts}

    def find(account: str) -> str:
        while root[account] != account:
            root[account] = root[root[account]]
            account = root[account]
        return account

    for transfer in transfers:
        first, *others = _touched(transfer)
        for other in others:
            root[find(other)] = find(first)
    members: dict[str, tuple[list[str], list[Transfer]]] = {}
    for account in root:
        members.setdefault(find(account), ([], []))[0].append(account)
    for transfer in transfers:
        members[find(_touched(transfer)[0])][1].append(transfer)
    return list(members.values())


def _touched(transfer: Transfer) -> list[str]:
    return [account for account, change in transfer.changes.items() if change]


def _explained(surplus: dict[str, int], transfers: list[Transfer], most_sums: int) -> bool | None:
    """Whether some transfers sum up to the surplus; None: too many to decide."""
    left = _decide_forced(surplus, transfers)
    answers = [_sums_meet(accounts, surplus, some, most_sums) for accounts, some in _groups(surplus, left)]
    if False in answers:
        return False
    return None if None in answers else True


def _decide_forced(surplus: dict[str, int], transfers: list[Transfer]) -> list[Transfer]:
    """Decide transfers that alone touch an account; returns the others. Those that must have been applied are
    subtracted from the surplus. If an account fits neither case, its surplus stays, and no sum explains it.
    """
    open_transfers = {transfer.id: transfer for transfer in transfers}
    count = Counter(account for transfer in transfers for account in _touched(transfer))
    work = [account for account in surplus if count[account] == 1]
    touching: dict[str, list[Transfer]] = {}
    for transfer in transfers:
        for account in _touched(transfer):
            touching.setdefault(account, []).append(transfer)
    while work:
        account = work.pop()
        only = next((one for one in touching[account] if one.id in open_transfers), None)
        if only is None:
            continue
        done = surplus[account] == only.changes[account]
        del open_transfers[only.id]
        for other in _touched(only):
            surplus[other] -= only.changes[other] if done else 0
            count[other] -= 1
            if count[other] == 1:
                work.append(other)
    return list(open_transfers.values())


def _sums_meet(
    accounts: list[str], surplus: Mapping[str, int], transfers: list[Transfer], most_sums: int
) -> bool | None:
    nothing = (0,) * len(accounts)
    one, other = {nothing}, {tuple(surplus[account] for account in accounts)}
    for transfer in transfers:
        change = tuple(transfer.changes.get(account, 0) for account in accounts)
        if len(one) <= len(other):
            one |= {tuple(map(int.__add__, vector, change)) for vector in one}
        else:
            other |= {tuple(map(int.__sub__, vector, change)) for vector in other}
        if max(len(one), len(other)) > most_sums:
            return None
    return not one.isdisjoint(other)
