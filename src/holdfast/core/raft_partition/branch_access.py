"""Access of a member's transactions to the partitions of both engines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import ZONE_TRANSACTIONS
from holdfast.core.model.operations import Outcome, Request
from holdfast.core.model.transactions import BranchPlace, branch_place
from holdfast.core.outbox import Outbox
from holdfast.core.raft_partition.leader_routing import LeaderRouting
from holdfast.core.routing.pending import Asker, Parked
from holdfast.core.routing.router import Router
from holdfast.core.store.key_locks import KeyLocks
from holdfast.core.store.partition_copy import PartitionCopy

TOO_OLD = f"maps in zones take part in transactions from feature level {ZONE_TRANSACTIONS} on: holdfast cluster upgrade"


class BranchAccess:
    """Implements `transactions.branch_routing.BranchRouting`."""

    def __init__(self, out: Outbox, router: Router, zones: LeaderRouting) -> None:
        """`router`: of all maps outside zones."""
        self._out = out
        self._router = router
        self._zones = zones

    def execute(self, request: Request, asker: Asker) -> None:
        self._zones.homes.submit(request, asker)

    def withdraw(self, asker: Asker) -> None:
        # Collections are in no zone.
        self._router.withdraw(asker)

    def rejection(self, request: Request) -> Outcome | None:
        return self._zones.homes.rejection(request)

    def waits(self) -> Iterator[Parked]:
        routers = [self._router, *(zone.router for zone in self._zones.homes.zones.values())]
        return chain.from_iterable(router.waits() for router in routers)

    def zone_of(self, name: str) -> int:
        return self._zones.zone_of(name) or 0

    def knows_zone(self, zone: int) -> bool:
        return zone in self._zones.homes.zones

    def is_dropped(self, zone: int) -> bool:
        return zone <= self._zones.numbered and not self.knows_zone(zone)

    def zone_problem(self, zone: str) -> str:
        if not self._out.does(ZONE_TRANSACTIONS):
            return TOO_OLD
        return self._zones.homes.zone_problem(zone)

    def leader(self, zone: int, partition: int) -> MemberId | None:
        found = self._zones.homes.zones.get(zone)
        return found.rows[partition].owner if found is not None else None

    def led_in_zones(self) -> Iterator[tuple[BranchPlace, PartitionCopy, KeyLocks]]:
        numbers = self._zones.homes.by_name
        for zone, replica in self._zones.led_replicas():
            for partition, copy in replica.state.copies.items():
                yield branch_place(numbers[zone], partition), copy, replica.locks.of(partition)
