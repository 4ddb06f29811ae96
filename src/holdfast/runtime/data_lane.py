"""Which way does the data lane go, plain Python or the same compiled? And what do members keep entries in?"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from holdfast.config.schema import LaneChoice
from holdfast.core.store import entry_mapping
from holdfast.core.store.entry_mapping import NewEntries
from holdfast.server.hazelcast import entries_cy
from holdfast.server.hazelcast.entries_cy import ServeEntries, serve_entries

COMPILED = "holdfast.server.hazelcast.entries_compiled"
TABLE = "holdfast.core.store.entry_table"


@dataclass(frozen=True, slots=True)
class DataLane:
    """The way that was chosen."""

    kind: Literal["compiled", "python"]
    serve: ServeEntries
    entries: NewEntries = dict
    """Makes what the maps of this member keep entries in."""
    why: str = ""
    """Why it is not compiled."""


def data_lane(choice: LaneChoice = "auto") -> DataLane:
    """The compiled one, if it is there, was made of this very source, and is not refused (`member.lane`)."""
    if choice == "python":
        return DataLane("python", serve_entries, why="member.lane = 'python'")
    try:
        compiled, table = import_module(COMPILED), import_module(TABLE)
    except ImportError:
        return DataLane("python", serve_entries, why="it was not compiled when this Holdfast was installed")
    if not source_digest() == compiled.SOURCE == table.SOURCE:
        return DataLane("python", serve_entries, why="what was compiled is of another source: make install")
    serve: ServeEntries = compiled.serve_entries
    entries: NewEntries = table.EntryTable
    return DataLane("compiled", serve, entries)


def source_digest() -> str:
    """Of all that is compiled, as it is now."""
    store = Path(entry_mapping.__file__).parent
    sources = (Path(entries_cy.__file__), store / "entry_table.pyx", store / "entry_table.pxd")
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
