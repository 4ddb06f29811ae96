"""What a reader of a change stream asks, and what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.model.records import Record


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants to know: the changes after one update up to another."""

    map: str
    partition: int
    after: int
    after_term: int
    upto: int
    upto_term: int = 0
    """0: not known; only a primary in office can answer then."""
    bytes_max: int = 1 << 20


@dataclass(frozen=True, slots=True)
class ChangesSince:
    """The answer: what has changed entries, with its terms. Every change up to the update `upto` is here."""

    upto: int
    records: list[tuple[int, Record]] = field(default_factory=list)
    why: str = ""
    """Why it is nothing, and will not be more here; empty: to be asked for again (streams/G-4)."""
    term: int = 0
    """Of the update `upto`."""
