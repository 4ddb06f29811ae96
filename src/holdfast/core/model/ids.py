"""Ids of members, partitions and groups; addresses; units of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NewType

from holdfast.config.addresses import format_address

MemberId = NewType("MemberId", str)
"""A UUID as text, of one life of a process."""


PartitionId = int
"""0 .. partition count - 1."""


GroupNumber = int
"""Names a Raft group on all members; at least `GROUPS_FROM`."""


GROUPS_FROM = 1 << 20
"""Higher than any partition: a journal has numbers of both."""


METASTORE_GROUP: GroupNumber = GROUPS_FROM


Token = int
"""Names a request or a subscription of a client; the engine chooses it."""


def group_of(zone: int, partition: PartitionId) -> GroupNumber:
    """Zones are numbered from 1."""
    assert zone > 0, "number 0 is the metastore's"
    return GROUPS_FROM + (zone << 16) + partition


def place_of(number: GroupNumber) -> tuple[int, PartitionId]:
    """The zone and the partition of a group; zone 0: it belongs to no zone."""
    return divmod(number - GROUPS_FROM, 1 << 16)


MILLISECOND = 1_000_000


SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @classmethod
    def of_clients(cls, member: Mapping[str, Any]) -> Address:
        return cls(member["host"], member["client_port"])

    def __str__(self) -> str:
        return format_address(self.host, self.port)
