"""Which of the two ways does the data lane go: plain Python, or the same compiled?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.config.schema import LaneChoice
from holdfast.runtime.compiled import compiled_from
from holdfast.server.hazelcast import entries_cy
from holdfast.server.hazelcast.entries_cy import ServeEntries, serve_entries

COMPILED = "holdfast.server.hazelcast.entries_compiled"


@dataclass(frozen=True, slots=True)
class DataLane:
    """The way that was chosen."""

    kind: Literal["compiled", "python"]
    serve: ServeEntries
    why: str = ""
    """Why it is not compiled."""


def data_lane(choice: LaneChoice = "auto") -> DataLane:
    """The compiled one, if it is there, was made of this very source, and is not refused (`member.lane`)."""
    if choice == "python":
        return DataLane("python", serve_entries, "member.lane = 'python'")
    compiled, why = compiled_from(COMPILED, Path(entries_cy.__file__))
    if compiled is None:
        return DataLane("python", serve_entries, why)
    serve: ServeEntries = compiled.serve_entries
    return DataLane("compiled", serve)
