"""Ablations of the rules of transactions."""

# ruff: noqa: SLF001, ARG001 - a twin sits where the original does, and is given what that is given

from __future__ import annotations

from holdfast.core.model.transactions import EntryKey, StepFate, TransactionBranch, TransactionId, branch_key
from holdfast.core.operations.transaction_branches import TransactionBranches
from holdfast.core.primary_backup import primary_copy
from holdfast.core.raft_partition import state_machine
from holdfast.core.raft_partition.leader_locks import LeaderLocks
from holdfast.core.raft_partition.proposals import DONE, Proposals
from holdfast.core.raft_partition.zone_replicas import Answered
from holdfast.core.store import key_locks
from holdfast.core.transactions import two_phase_commit
from holdfast.core.transactions.finishing import Ending, Finish, Finishing
from holdfast.core.transactions.orphans import Orphans, SeenTransaction
from holdfast.core.transactions.transaction import Transaction
from holdfast.core.transactions.two_phase_commit import TwoPhaseCommit
from holdfast_lab.sim.ablations.place import Place, always, never, nothing
from holdfast_lab.sim.replacing import Method


def _forgets(
    _: Method, branches: TransactionBranches, transaction: TransactionId, branch: TransactionBranch
) -> None:
    branches._drop(branch_key(transaction))


def _gives_up(_: Method, orphans: Orphans, transaction: TransactionId, seen: SeenTransaction) -> None:
    orphans._finishing.roll_back(transaction, seen.owner, sorted(seen.partitions), frozenset())


def _believes_one(
    decide: Method, finishing: Finishing, finish: Finish, partition: int, fate: StepFate
) -> None:
    if finish.ending is Ending.ASKING and fate is StepFate.PREPARED:
        finish.left = {partition}
        for ticket in [ticket for ticket, of in finish.asked.items() if of != partition]:
            del finish.asked[ticket], finishing._of_ticket[ticket]
            finishing._steps.drop(ticket)
    decide(finishing, finish, partition, fate)


def _no_locks(_: Method, transaction: TransactionId, branch: TransactionBranch) -> tuple[()]:
    return ()


def _no_checks(_: Method, commits: TwoPhaseCommit, transaction: Transaction) -> dict[int, list[EntryKey]]:
    return {}


def _at_once(_: Method, proposals: Proposals, on_done: Answered) -> None:
    on_done(DONE)


COMMITTING: dict[str, tuple[Place, ...]] = {
    "lock-exclusive": (Place(TransactionBranches, "_held_by_another", nothing),),
    "lock-respected": (Place(primary_copy, "wait_for_lock", nothing),),
    "locks-checked": (Place(TransactionBranches, "_has_lost", never),),
    "reads-checked": (Place(TwoPhaseCommit, "_unwritten", _no_checks),),
    "prepared-locked": (Place(key_locks, "_locks_of_branch", _no_locks),),
    "seen-compared": (Place(TransactionBranches, "_has_changed", never),),
    "topology-compared": (Place(primary_copy, "_is_outdated", never),),
    "all-prepared": (Place(two_phase_commit, "_is_prepared", always),),
    "asked-is-fenced": (Place(TransactionBranches, "_fence", nothing),),
    "branches-decide": (Place(Orphans, "_recover", _gives_up),),
    "all-asked": (Place(Finishing, "_answered", _believes_one),),
    "outcome-kept": (Place(TransactionBranches, "_keep_outcome", _forgets),),
    "orphans-end": (Place(Orphans, "_recover", nothing),),
    "zone-lock-respected": (Place(LeaderLocks, "wait_of", nothing), Place(LeaderLocks, "hold_up", never)),
    "zone-lock-ordered": (Place(Proposals, "after", _at_once),),
    "zone-lock-term": (Place(LeaderLocks, "clear", nothing),),
    "zone-prepared-kept": (Place(state_machine, "is_locked", never),),
}
