"""A cut across partitions that shows each transaction whole or not at all.

A cut has one moment for each partition, so a commit on partitions 1 and 2 could be on both of its sides.
Therefore every member holds up the commits of transactions with several partitions, reports when the running
ones are done, and only then the partitions are cut. Everything else, also transactions in one partition,
continues. The cut includes locks and branches, which are examined afterwards: if a transaction was half
committed all the same, because its coordinator died in the middle, the cut is taken again. Transactions pause
for as long as a cut takes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from holdfast.client.blocking import Client
from holdfast.client.blocking_retries import BlockingRetries
from holdfast.client.connection import Broken
from holdfast.client.cut_handles import Cut, end_cut, scan_cut, take_cut
from holdfast.client_core.routing import PASSING
from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.model.transaction_orders import (
    HoldCommits,
    ResumeCommits,
    TransactionAnswer,
    TransactionFate,
    TransactionOrder,
)
from holdfast.core.model.transactions import BranchState, TransactionId, decode_branch, transaction_of
from holdfast.errors import HoldfastError, NotReady
from holdfast.wire import own

HOLD_MS = 10_000


def take_whole_cut(
    client: Client, maps: Sequence[str], *, lease_s: float = 600.0, timeout: float | None = None
) -> Cut:
    """Cut these maps through all partitions as `take_cut` does, with each transaction whole or not at all. It
    is the same where no map takes part in transactions. Raises as `take_cut`.
    """
    patience_s = client.timeout_s if timeout is None else timeout
    deadline_s = time.monotonic() + patience_s
    retries = BlockingRetries(patience_s)
    while True:
        left_s = max(0.001, deadline_s - time.monotonic())
        cut, why = _try(client, maps, lease_s, left_s)
        if cut is not None:
            return cut
        if not retries.sleep():
            raise NotReady(
                f"no moment was found for {patience_s:g} s at which no transaction was half done: {why}"
            )
        client.refresh()


def _try(client: Client, maps: Sequence[str], lease_s: float, left_s: float) -> tuple[Cut | None, str]:
    hold = os.urandom(16)
    before = _ask_all(client, HoldCommits(hold, HOLD_MS))
    if isinstance(before, list) and all(said.fate is TransactionFate.NOT_ACTIVE for said in before):
        return take_cut(client, maps, lease_s=lease_s, timeout=left_s), ""
    cut: Cut | None = None
    why = before if isinstance(before, str) else _hold_problem(before)
    after: list[TransactionAnswer] | str = []
    try:
        if not why:
            cut = take_cut(client, [*maps, TRANSACTIONS_MAP], lease_s=lease_s, timeout=left_s)
    finally:
        after = _ask_all(client, ResumeCommits(hold))
    if cut is None:
        return None, why
    why = after if isinstance(after, str) else _hold_problem(after)
    if not why and isinstance(before, list) and isinstance(after, list):
        seen = {tuple(said.value) for said in [*before, *after] if isinstance(said.value, list)}
        why = "" if len(seen) == 1 else "members joined or left in between"
    why = why or _half_done(client, cut)
    if why:
        end_cut(client, cut)
        return None, why
    marks = {place: mark for place, mark in cut.marks.items() if place[0] != TRANSACTIONS_MAP}
    return Cut(cut.id, marks, cut.lease_s), ""


def _hold_problem(answers: list[TransactionAnswer]) -> str:
    """Why commits were not held up everywhere all the time; empty if they were."""
    for said in answers:
        if said.fate is not TransactionFate.DONE:
            return said.why or "a member resumed commits"
        if not isinstance(said.value, list) or said.value[1] != len(answers):
            return "not every member could be asked"
    return ""


def _ask_all(client: Client, order: TransactionOrder) -> list[TransactionAnswer] | str:
    posted = []
    try:
        for member in client.known_table().members:
            connection = client.to(member)
            question = own.OrderTransaction(connection.next_number(), order)
            connection.post(question)
            posted.append((connection, question.id))
        return [connection.collect(number, own.TransactionSays).answer for connection, number in posted]
    except (Broken, *PASSING) as passing:
        for connection, number in posted:
            with suppress(HoldfastError):
                connection.collect(number, own.TransactionSays)
        return str(passing)


def _half_done(client: Client, cut: Cut) -> str:
    """Describes a transaction that is committed in one partition at the cut and only prepared in another;
    else empty.
    """
    committed: set[TransactionId] = set()
    prepared: set[TransactionId] = set()
    for transaction, state in _branches(client, cut):
        (committed if state is BranchState.COMMITTED else prepared).add(transaction)
    half = committed & prepared
    return f"transaction {min(half).hex()} was half committed" if half else ""


def _branches(client: Client, cut: Cut) -> Iterator[tuple[TransactionId, BranchState]]:
    for (name, partition), mark in sorted(cut.marks.items()):
        if name != TRANSACTIONS_MAP or not mark.entries:
            continue
        for page in scan_cut(client, cut, name, partition):
            keys, values = page.columns.split()
            for key, value in zip(keys, values, strict=True):
                transaction = transaction_of(key)
                if transaction is not None:
                    branch = decode_branch(value)
                    if branch.state is not BranchState.ROLLED_BACK:
                        yield transaction, branch.state
