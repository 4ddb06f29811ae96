"""The state of a replica that asks to be brought up to date, and what it is sent."""

from __future__ import annotations

from enum import IntEnum, unique

import msgspec


@unique
class How(IntEnum):
    """What is sent of a map, in ascending order."""

    SAME = 1
    """Nothing: the base is what the source holds."""
    HISTORY = 2
    """The updates that followed."""
    RANGES = 3
    """These, and the key ranges that differ."""
    FULL = 4
    """Every entry."""


class Base(msgspec.Struct, frozen=True, array_like=True):
    """What a receiver holds of a map, as far as it can prove it."""

    map: str
    lineage: list[tuple[int, int]]
    """Terms of its updates: (term, number after which it began), ascending."""
    lwm: int
    """Every update up to this number is held."""
    highest: int
    """No update after this number is held."""
    digests: list[int] = []
    """Of its 64 key ranges, if they are requested."""
    remembered: int = -1
    """For a map with a change stream: the updates after this number are remembered; -1: it has none."""


class Demand(msgspec.Struct, frozen=True, array_like=True):
    """What a receiver has to begin with."""

    epoch: int
    """Of its content (`Assignment.epoch`)."""
    maps: list[Base]
