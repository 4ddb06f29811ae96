"""The state of a replica that needs to be filled, and the ways to fill it."""

from __future__ import annotations

from enum import IntEnum, unique

import msgspec


@unique
class How(IntEnum):
    """How a map is filled, from the least to the most data."""

    SAME = 1
    """The base equals the source's content."""
    HISTORY = 2
    """The updates that followed."""
    RANGES = 3
    """These, and the key ranges that differ."""
    FULL = 4


class Base(msgspec.Struct, frozen=True, array_like=True):
    """A map as the receiver provably holds it."""

    map: str
    lineage: list[tuple[int, int]]
    """(term, number after which it began), ascending."""
    lwm: int
    highest: int
    digests: list[int] = []
    """Digests of its 64 key ranges, if they are requested."""
    remembered: int = -1
    """With a change stream: updates after this number are remembered; -1: it has none."""


class Demand(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    """`Assignment.epoch` of its content."""
    maps: list[Base]
