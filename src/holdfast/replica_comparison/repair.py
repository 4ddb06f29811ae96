"""Repairs backups and primaries that differ (`live`), by a named strategy. It never writes to Raft replicas.

- replica_comparison/R-1: A value comes to the primary only as a conditional write against the value that was seen
  there: it is counted, replicated and journalled as every write, and never replaces a newer one.
- replica_comparison/R-2: Then the backups that differ are refilled from the primary. Each keeps its replica until the
  new one is complete. If a write of the partition failed, none is refilled: it may be the only one that is right.
- replica_comparison/R-3: An undecided partition is left alone: one that does not stand still, or one with a tie of the
  majority.
- replica_comparison/R-4: A backup that lacks updates holds up every write of its map. Only such backups are refilled
  while the first writes wait for them; the others, among them the newest one, only after the last write.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

import msgspec

from holdfast.actions.refill import Refill
from holdfast.client import action_messages
from holdfast.client.blocking import Client
from holdfast.client.connection import Broken, Connection
from holdfast.client.replica_questions import CANNOT_ASK, EntryCopy
from holdfast.client_core.routing import error_of_outcome
from holdfast.core.model.object_names import is_service
from holdfast.core.model.operations import Op, Request
from holdfast.core.store.replica_comparison import Finding
from holdfast.errors import HoldfastError
from holdfast.replica_comparison.comparison_report import Report
from holdfast.replica_comparison.key_differences import Differences, Pause, find_differences, value_of
from holdfast.wire import own

Strategy = Literal["primary", "newest", "majority"]

WRITES_AT_A_TIME = 500
REFILLS_AT_A_TIME = 16
EARLY_S = 0.3
"""A write that is refused, or that no backup holds up, is answered within this time."""
REFILL_S = 600.0
TRIES = 5
PAUSE_S = 0.3


@dataclass(frozen=True, slots=True)
class KeyRepair:
    """One key whose value at the primary is not the right one."""

    map: str
    key: bytes
    seen: EntryCopy | None
    right: EntryCopy | None


@dataclass(slots=True)
class RepairPlan:
    partition: int
    owner: str
    refill: list[str] = field(default_factory=list)
    writes: list[KeyRepair] = field(default_factory=list)
    ties: list[tuple[str, bytes]] = field(default_factory=list)
    """Map and key without a majority: left alone, and the backups with them."""
    behind: list[str] = field(default_factory=list)
    """Backups to refill that lack updates, so that no write is acknowledged before they are filled."""
    left: str = ""
    """Why the partition is skipped; empty: it is repaired."""


class RepairOutcome(msgspec.Struct):
    """Results of repairs."""

    refilled: int = 0
    written: int = 0
    """Keys brought to their primary."""
    overtaken: int = 0
    """Keys that clients have written meanwhile: their value stays."""
    failed: list[str] = []


# -- what is to be done


def make_plans(
    client: Client,
    report: Report,
    strategy: Strategy,
    *,
    tie: bool = False,
    pause: Pause = time.sleep,
) -> Iterator[RepairPlan]:
    """Plan the repair of each partition with a conflict. Changes nothing. `tie`: without a majority the
    primary's value is the right one.
    """
    ordered = sorted((one for one in report.findings if not one.zone), key=lambda one: one.partition)
    for partition, group in groupby(ordered, key=lambda one: one.partition):
        findings = list(group)
        wrong = [finding for finding in findings if finding.verdict == "differs"]
        if not wrong:
            continue
        plan = RepairPlan(partition, wrong[0].reference)
        plan.refill = list(dict.fromkeys(finding.member for finding in wrong))
        plan.behind = list(dict.fromkeys(finding.member for finding in wrong if _lacks_updates(finding)))
        if strategy != "primary":
            _add_writes(client, plan, findings, strategy, tie=tie, pause=pause)
        if plan.ties:
            plan.refill = []
            if plan.behind:
                plan.writes, plan.left = [], "a tie, and a backup that lacks updates: nothing can be written"
            elif not plan.writes:
                plan.left = "a tie"
        yield plan


def _lacks_updates(finding: Finding) -> bool:
    return finding.kept and finding.counter < finding.reference_counter


def _add_writes(
    client: Client,
    plan: RepairPlan,
    findings: list[Finding],
    strategy: Strategy,
    *,
    tie: bool,
    pause: Pause,
) -> None:
    for name in sorted({finding.map for finding in findings if finding.content_conflict}):
        # A service has no keys: its replica is copied from the primary, whatever the strategy.
        voters = [finding for finding in findings if finding.map == name and finding.kept]
        if is_service(name) or not voters:
            continue
        if any(finding.undecided for finding in findings):
            plan.left, plan.refill, plan.writes = "not every copy could be compared", [], []
            return
        voters = [finding for finding in voters if finding.epoch == finding.reference_epoch]
        found = find_differences(client, voters, pause=pause) if voters else None
        if voters and found is None:
            plan.left, plan.refill, plan.writes = "it keeps changing", [], []
            return
        if found is None:
            continue
        right = newest(voters) if strategy == "newest" else ""
        for key, held in found.entries.items():
            seen = held.get(found.members[0])
            if strategy == "newest":
                wanted: EntryCopy | None = held.get(right)
            else:
                winner = majority(found, key)
                if winner is None and not tie:
                    plan.ties.append((name, key))
                    continue
                wanted = seen if winner is None else held.get(winner)
            if value_of(wanted) != value_of(seen):
                plan.writes.append(KeyRepair(name, key, seen, wanted))


def newest(findings: Sequence[Finding]) -> str:
    """The member with the highest (term, counter) of a map in one partition; among equal ones the primary,
    then the lowest replica index.
    """
    first = findings[0]
    best, member = (first.reference_term, first.reference_counter), first.reference
    for finding in sorted(findings, key=lambda finding: finding.replica):
        if (finding.term, finding.counter) > best:
            best, member = (finding.term, finding.counter), finding.member
    return member


def majority(found: Differences, key: bytes) -> str | None:
    """A member with the value (or none) that most copies hold of this key; None when there is a tie."""
    held = found.entries[key]
    votes = Counter(value_of(held.get(member)) for member in found.members)
    (value, most), *others = votes.most_common()
    if others and others[0][1] == most:
        return None
    return next(member for member in found.members if value_of(held.get(member)) == value)


# -- doing it


def carry_out(
    client: Client,
    plans: Sequence[RepairPlan],
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
    pause: Pause = time.sleep,
) -> RepairOutcome:
    """`progress` is called with the partitions done, and all; failures are in the outcome."""
    outcome = RepairOutcome()
    todo = [plan for plan in plans if not plan.left]
    for at in range(0, len(todo), REFILLS_AT_A_TIME):
        some = todo[at : at + REFILLS_AT_A_TIME]
        refills: list[tuple[RepairPlan, str]] = []
        for plan in some:
            refills += [(plan, member) for member in _write(client, plan, outcome, pause)]
        _refill(client, refills, outcome, pause)
        progress(at + len(some), len(todo))
    return outcome


def _write(client: Client, plan: RepairPlan, outcome: RepairOutcome, pause: Pause) -> list[str]:
    """Write the right values to the primary (replica_comparison/R-1, replica_comparison/R-4); returns the
    backups to refill now.
    """
    left = list(plan.refill)
    failures = len(outcome.failed)
    for at in range(0, len(plan.writes), WRITES_AT_A_TIME):
        try:
            connection = client.to(plan.owner)
            posted = [
                (_post(connection, plan.partition, write), write)
                for write in plan.writes[at : at + WRITES_AT_A_TIME]
            ]
            if plan.behind and len(left) == len(plan.refill):
                posted = _collect_early(connection, plan, posted, outcome)
                if posted and len(outcome.failed) == failures:
                    left = [member for member in left if member not in plan.behind]
                    _refill(client, [(plan, member) for member in plan.behind], outcome, pause)
        except CANNOT_ASK as failed:
            outcome.failed.append(f"partition {plan.partition}: {failed}")
            return []
        for number, write in posted:
            _collect(connection, plan.partition, write, number, outcome)
        if len(outcome.failed) > failures:
            return []
    return left


def _collect_early(
    connection: Connection, plan: RepairPlan, posted: list[tuple[int, KeyRepair]], outcome: RepairOutcome
) -> list[tuple[int, KeyRepair]]:
    """Collect the early answers: refusals, and writes that no backup holds up; returns the writes that wait."""
    deadline = time.monotonic() + EARLY_S
    waiting: list[tuple[int, KeyRepair]] = []
    for number, write in posted:
        if connection.wait(number, max(0.0, deadline - time.monotonic())) or connection.has_answer(number):
            _collect(connection, plan.partition, write, number, outcome)
        else:
            waiting.append((number, write))
    return waiting


def _post(connection: Connection, partition: int, write: KeyRepair) -> int:
    number = connection.next_number()
    connection.post(own.Execute(number, request_of(partition, write)))
    return number


def request_of(partition: int, write: KeyRepair) -> Request:
    """The write, on condition that the primary still has the value that was seen."""
    seen, right = write.seen, write.right
    word = next((entry.key_hash for entry in (right, seen) if entry is not None), 0)
    if right is None:
        assert seen is not None, write
        op = Op.REMOVE_IF_SAME
        return Request(op, write.map, [partition], write.key, expected=seen.value, key_hash=word)
    return Request(
        Op.PUT_IF_ABSENT if seen is None else Op.REPLACE_IF_SAME,
        write.map,
        [partition],
        write.key,
        right.value,
        seen.value if seen is not None else b"",
        ttl_ms=right.ttl_ms,
        max_idle_ms=right.max_idle_ms,
        key_hash=word,
    )


def _collect(
    connection: Connection, partition: int, write: KeyRepair, number: int, outcome: RepairOutcome
) -> None:
    try:
        answer = connection.collect(number, own.Executed).outcome
        trouble: HoldfastError | None = error_of_outcome(answer)
    except HoldfastError as failed:
        trouble = failed
    if trouble is not None:
        outcome.failed.append(f"partition {partition}, map {write.map}, a key: {trouble}")
    elif answer.value is (None if write.seen is None else True):
        outcome.written += 1
    else:
        outcome.overtaken += 1


def _refill(
    client: Client,
    refills: list[tuple[RepairPlan, str]],
    outcome: RepairOutcome,
    pause: Pause,
) -> None:
    """Refill these backups at the same time, and retry those that were rejected for now."""
    for attempt in range(1, TRIES + 1):
        refused = _refill_once(client, refills, outcome)
        if not refused:
            return
        if attempt == TRIES:
            outcome.failed += [
                f"partition {plan.partition}, copy of {member}: {why}" for plan, member, why in refused
            ]
            return
        refills = [(plan, member) for plan, member, _ in refused]
        pause(PAUSE_S * attempt)


def _refill_once(
    client: Client, refills: list[tuple[RepairPlan, str]], outcome: RepairOutcome
) -> list[tuple[RepairPlan, str, str]]:
    refused: list[tuple[RepairPlan, str, str]] = []
    posted: list[tuple[RepairPlan, str, Connection, int]] = []
    for plan, member in refills:
        try:
            connection = client.to(plan.owner)
            number = connection.next_number()
            connection.post(action_messages.request_of(number, Refill(plan.partition, member), REFILL_S))
        except CANNOT_ASK as failed:
            refused.append((plan, member, str(failed)))
        else:
            posted.append((plan, member, connection, number))
    for plan, member, connection, number in posted:
        try:
            if not connection.wait(number, REFILL_S):
                raise Broken(f"{connection.address} has not answered for {REFILL_S:g} s")
            answer = connection.collect(number, own.Acted)
        except CANNOT_ASK as failed:
            refused.append((plan, member, str(failed)))
            continue
        if answer.fate is own.Fate.DONE:
            outcome.refilled += 1
        else:
            refused.append((plan, member, answer.message))
    return refused
