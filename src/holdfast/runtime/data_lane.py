"""Selection of the data lane, compiled or plain Python, and of the tables that hold entries."""

from __future__ import annotations

import platform
from asyncio import AbstractEventLoop
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from holdfast.config.schema import LaneChoice
from holdfast.core.primary_backup import packed_puts_cy
from holdfast.core.primary_backup.lane import PLAIN, Ways
from holdfast.core.primary_backup.packed_puts_cy import PackedPuts
from holdfast.core.store import entry_mapping
from holdfast.core.store.entry_mapping import FreesLater
from holdfast.runtime.compiled import compiled_from
from holdfast.runtime.freeing import Freeing
from holdfast.server.hazelcast import entries_cy
from holdfast.server.hazelcast.entries_cy import ServeEntries, Tally, serve_entries
from holdfast.version import __version__

COMPILED = "holdfast.server.hazelcast.entries_compiled"
TABLE = "holdfast.core.store.entry_table"
PUTS = "holdfast.core.primary_backup.packed_puts_compiled"


@dataclass(frozen=True, slots=True)
class DataLane:
    kind: Literal["compiled", "python"]
    serve: ServeEntries
    ways: Ways = PLAIN
    """Entry tables, and packing of entries for backups."""
    why: str = ""
    """Reason why it is not compiled."""
    tally: type[Tally] = Tally
    """Counters in the form that `serve` needs."""
    frees: FreesLater | None = None
    """Frees entries of dropped tables; None without compiled tables."""

    @property
    def build(self) -> str:
        """Version, Python, and whether compiled code runs: the first line of a log."""
        compiled = "compiled" if self.kind == "compiled" else "plain Python"
        return f"Holdfast {__version__}, Python {platform.python_version()}, {compiled}"

    def free_on(self, loop: AbstractEventLoop) -> Callable[[], None] | None:
        """Start freeing on this loop, in slices; returns the function that stops it, or None."""
        return Freeing(loop, self.frees).stop if self.frees is not None else None


def data_lane(choice: LaneChoice = "auto") -> DataLane:
    """The compiled lane if it is installed, matches these sources, and `member.lane` allows it."""
    if choice == "python":
        return DataLane("python", serve_entries, why="member.lane = 'python'")
    sources = lane_sources()
    compiled, why = compiled_from(COMPILED, *sources)
    table, table_problem = compiled_from(TABLE, *sources)
    puts, puts_problem = compiled_from(PUTS, Path(packed_puts_cy.__file__))
    if compiled is None or table is None or puts is None:
        return DataLane("python", serve_entries, why=why or table_problem or puts_problem)
    serve: ServeEntries = compiled.serve_entries
    ways = Ways(table.EntryTable, cast("PackedPuts", puts))
    return DataLane("compiled", serve, ways, tally=compiled.Tally, frees=cast("FreesLater", table))


def lane_sources() -> tuple[Path, ...]:
    table = Path(entry_mapping.__file__).parent / "entry_table.pyx"
    return Path(entries_cy.__file__), table, table.with_suffix(".pxd"), table.with_name("murmur3.pxd")
