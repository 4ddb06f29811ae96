"""The way of transactions to the partitions in which they have branches, of both engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from holdfast.core.model.ids import MemberId, PartitionId
from holdfast.core.model.operations import Outcome, Request
from holdfast.core.model.transactions import BranchPlace
from holdfast.core.routing.pending import Asker, Parked
from holdfast.core.store.key_locks import KeyLocks
from holdfast.core.store.partition_copy import PartitionCopy


class BranchRouting(Protocol):
    def execute(self, request: Request, asker: Asker) -> None:
        """Carry out a request wherever its map lives. A step of a transaction names its zone in `expected`."""

    def withdraw(self, asker: Asker) -> None:
        """The request of this asker waits no longer for a change of a collection (routing/R-21)."""

    def rejection(self, request: Request) -> Outcome | None:
        """Why the request is rejected now; None: it is not."""

    def waits(self) -> Iterator[Parked]:
        """Requests of any partition led here that wait for a change of it."""

    def zone_of(self, name: str) -> int:
        """The number of the map's zone; 0: it lives in none that is known here."""

    def knows_zone(self, zone: int) -> bool: ...

    def is_dropped(self, zone: int) -> bool:
        """Whether this member knows that the zone was dropped, with all its entries."""

    def zone_problem(self, zone: str) -> str:
        """Why no map of this zone takes part in transactions; empty: they do."""

    def leader(self, zone: int, partition: PartitionId) -> MemberId | None: ...

    def led_in_zones(self) -> Iterator[tuple[BranchPlace, PartitionCopy, KeyLocks]]:
        """Partitions of zones that this member leads, with the locks there."""
