"""A migration that was requested, and what decides when the next may start."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core.model.ids import MemberId
from holdfast.core.model.migration_step import Migration


class Running:
    """A migration that was requested from its primary, or waits to be committed."""

    __slots__ = ("began_ns", "committing", "migration", "owner", "version")

    def __init__(self, migration: Migration, version: int, owner: MemberId, began_ns: int) -> None:
        self.migration = migration
        self.version = version
        self.owner = owner
        self.began_ns = began_ns
        self.committing = False


class Way(NamedTuple):
    """What decides when a migration may start: whether it only balances, and between whom it goes."""

    balances: bool
    owner: MemberId
    destination: MemberId
