"""What one read buffer of a client wants of the maps of a zone, as one thing: no object for each operation."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.model.operations import Outcome

ZoneWrite = tuple[str, bytes, bytes | None, int, int]
"""Map, key, value (None: take the entry out), time to live in ms (0: for ever), partition-hash word (0: none)."""


@dataclass(slots=True)
class ZoneBatch:
    """Writes to be done, and reads to be confirmed, in partitions of one zone that this member leads."""

    zone: int
    writes: list[tuple[int, list[ZoneWrite]]] = field(default_factory=list)
    """Each partition once, with its writes in the order in which they came."""
    reads: list[int] = field(default_factory=list)
    """Partitions in which something was read, each once: the answers count when it is confirmed that this member has
    led them since."""


@dataclass(slots=True)
class ZoneBatchDone:
    """What has come of it."""

    former: list[tuple[int, list[bytes | None]]] = field(default_factory=list)
    """Of the writes that were applied, by partition: what each entry was before."""
    failed: list[tuple[int, Outcome]] = field(default_factory=list)
    """Of the partitions whose writes were not applied, or of which that is not known."""
    unconfirmed: Outcome | None = None
    """Why the reads do not count; None: they do."""
