"""Batches of operations of one read buffer on maps of a zone."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.model.operations import Outcome

ZoneWrite = tuple[str, bytes, bytes | None, int, int]
"""Map, key, value (None: remove), time to live in ms (0: for ever), partition-hash word (0: none)."""


@dataclass(slots=True)
class ZoneBatch:
    """Writes to apply, and reads to confirm, in partitions of one zone that this member leads."""

    zone: int
    writes: list[tuple[int, list[ZoneWrite]]] = field(default_factory=list)
    """In the order in which they came; each partition once."""
    reads: list[int] = field(default_factory=list)
    """Each once: the answers count when it is confirmed that this member has led them since."""


@dataclass(slots=True)
class ZoneBatchDone:
    former: list[tuple[int, list[bytes | None]]] = field(default_factory=list)
    """By partition, of applied writes."""
    failed: list[tuple[int, Outcome]] = field(default_factory=list)
    unconfirmed: Outcome | None = None
    """Why the reads do not count; None: they do."""
