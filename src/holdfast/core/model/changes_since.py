"""Request and response of a reader of a change stream."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.model.records import Record


@dataclass(frozen=True, slots=True)
class Asked:
    map: str
    partition: int
    after: int
    after_term: int
    upto: int
    upto_term: int = 0
    """0: unknown; then only a serving primary can respond."""
    bytes_max: int = 1 << 20


@dataclass(frozen=True, slots=True)
class ChangesSince:
    """All changes of entries up to the update `upto`, with their terms."""

    upto: int
    records: list[tuple[int, Record]] = field(default_factory=list)
    why: str = ""
    """Why there are none and will be none here; empty: ask again (streams/G-4)."""
    term: int = 0
