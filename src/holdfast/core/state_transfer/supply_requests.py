"""Requests for a supply at the primary: which of them wait, and which are rejected (state_transfer/S-4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.core.messages import MigrationRequest
from holdfast.core.model.ids import MemberId
from holdfast.core.model.lifecycle import Case, Cases, Handling
from holdfast.core.model.partition_table import Assignment


@dataclass(frozen=True, slots=True)
class RequestFound:
    sender: MemberId
    request: MigrationRequest
    me: MemberId
    master: MemberId | None
    view: int
    row: Assignment
    outstanding: int
    """Version of an assignment that is stored and not committed; 0: none newer."""
    serves: bool
    moves: bool
    """A migration of the partition runs here."""


MIGRATION_REQUESTS: Final[Cases[RequestFound]] = Cases(
    "a request for a migration",
    (
        Case(
            "an older row or view than its own",
            lambda it: it.row.version < it.request.version or it.view < it.request.view,
            Handling.WAITS,
        ),
        Case(
            "a primary that is just taking office in the row that it starts from",
            lambda it: it.row.version == it.request.version and it.row.owner == it.me and not it.serves,
            Handling.WAITS,
        ),
        Case(
            "a master other than the sender",
            lambda it: it.sender != it.master,
            Handling.REFUSED,
            lambda it: f"the master is {it.master}",
        ),
        Case(
            "a newer row",
            lambda it: it.row.version > it.request.version,
            Handling.REFUSED,
            lambda it: f"the row is at version {it.row.version} here",
        ),
        Case(
            "another primary",
            lambda it: it.row.owner != it.me,
            Handling.REFUSED,
            lambda it: f"the primary is {it.row.owner}",
        ),
        Case(
            "a newer row that is stored and not committed",
            lambda it: bool(it.outstanding),
            Handling.REFUSED,
            lambda it: f"the decision on version {it.outstanding} is outstanding",
        ),
        Case(
            "a migration of the partition",
            lambda it: it.moves,
            Handling.REFUSED,
            lambda it: "the partition is being copied already",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class RepairFound:
    member: MemberId
    partition: int
    me: MemberId
    row: Assignment
    outstanding: int
    serves: bool
    moves: bool


REPAIRS: Final[Cases[RepairFound]] = Cases(
    "a request to repair a backup",
    (
        Case(
            "another primary",
            lambda it: it.row.owner != it.me,
            Handling.REFUSED,
            lambda it: f"the primary is {it.row.owner}",
        ),
        Case(
            "a row in which the member is no backup",
            lambda it: it.member not in it.row.holding[1:],
            Handling.REFUSED,
            lambda it: f"{it.member} is no backup of partition {it.partition}",
        ),
        Case(
            "a primary that is just taking office",
            lambda it: not it.serves,
            Handling.REFUSED,
            lambda it: "the primary is just taking office",
        ),
        Case(
            "a migration of the partition",
            lambda it: it.moves,
            Handling.REFUSED,
            lambda it: "the partition is moving",
        ),
        Case(
            "a newer row that is stored and not committed",
            lambda it: bool(it.outstanding),
            Handling.REFUSED,
            lambda it: f"the decision on version {it.outstanding} is outstanding",
        ),
    ),
)
