"""What a replica has of a partition when it asks to be brought up to date, and what it is sent."""

from __future__ import annotations

from enum import IntEnum, unique

import msgspec


@unique
class How(IntEnum):
    """What is sent of a map; later ones are more."""

    SAME = 1
    """Nothing: the base is what the source holds."""
    HISTORY = 2
    """The updates that followed."""
    RANGES = 3
    """These, and the key ranges that differ."""
    FULL = 4
    """Every entry."""


class Base(msgspec.Struct, frozen=True, array_like=True):
    """What a receiver has of a map, and can prove."""

    map: str
    lineage: list[tuple[int, int]]
    """Of which terms its updates are: (term, after which number it began), ascending."""
    lwm: int
    """Every update up to this number is in it."""
    highest: int
    """No update after this number is in it."""
    digests: list[int] = []
    """Of its 64 key ranges, if they are asked for."""
    remembered: int = -1
    """Of a map with a change stream: the updates after this number are remembered one by one; -1: of another map."""


class Demand(msgspec.Struct, frozen=True, array_like=True):
    """What a receiver has to begin with."""

    epoch: int
    """Of the content that it has (`Assignment.epoch`)."""
    maps: list[Base]
