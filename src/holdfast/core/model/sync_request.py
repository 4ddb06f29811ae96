"""The state of a replica that needs to be filled, and the ways to fill it."""

from __future__ import annotations

from enum import IntEnum, unique

import msgspec


@unique
class How(IntEnum):
    """How a map is filled, from the least to the most data."""

    SAME = 1
    """Nothing: the base equals the source's content."""
    HISTORY = 2
    """The updates that followed."""
    RANGES = 3
    """These, and the key ranges that differ."""
    FULL = 4
    """All entries."""


class Base(msgspec.Struct, frozen=True, array_like=True):
    """A map as the receiver provably holds it."""

    map: str
    lineage: list[tuple[int, int]]
    """Terms of its updates: (term, number after which it began), ascending."""
    lwm: int
    """Every update up to this number is held."""
    highest: int
    """No update after this number is held."""
    digests: list[int] = []
    """The digests of its 64 key ranges, if they are requested."""
    remembered: int = -1
    """For a map with a change stream: updates after this number are remembered; -1: it has none."""


class Demand(msgspec.Struct, frozen=True, array_like=True):
    """The bases of a receiver."""

    epoch: int
    """The epoch of its content (`Assignment.epoch`)."""
    maps: list[Base]
