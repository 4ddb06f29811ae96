"""Selection of the data lane, compiled or plain Python, and of the tables that hold entries."""

from __future__ import annotations

import platform
from asyncio import AbstractEventLoop
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, cast

from holdfast.config.schema import LaneChoice
from holdfast.core.operations import conditions
from holdfast.core.primary_backup import packed_puts_cy
from holdfast.core.primary_backup.lane import Ways
from holdfast.core.primary_backup.packed_puts_cy import PackedPuts
from holdfast.core.store import entry_mapping
from holdfast.core.store.entry_mapping import FreesLater
from holdfast.runtime.compiled import compiled_from
from holdfast.runtime.freeing import Freeing
from holdfast.server.hazelcast import frame_parser, lane_tally, reference_lane
from holdfast.server.hazelcast.frame_serving import PLAIN_WAYS, FrameServing
from holdfast.server.hazelcast.reference_lane import LaneCode
from holdfast.version import __version__

COMPILED = "holdfast.server.hazelcast.compiled_lane"
TABLE = "holdfast.core.store.entry_table"
PUTS = "holdfast.core.primary_backup.packed_puts_compiled"


@dataclass(frozen=True, slots=True)
class DataLane:
    kind: Literal["compiled", "python"]
    code: LaneCode
    ways: Ways = PLAIN_WAYS
    why: str = ""
    frees: FreesLater | None = None
    """Frees entries of dropped tables; None without compiled tables."""

    @property
    def build(self) -> str:
        compiled = "compiled" if self.kind == "compiled" else "plain Python"
        return f"Holdfast {__version__}, Python {platform.python_version()}, {compiled}"

    def free_on(self, loop: AbstractEventLoop) -> Callable[[], None] | None:
        return Freeing(loop, self.frees).stop if self.frees is not None else None


def data_lane(choice: LaneChoice = "auto") -> DataLane:
    """The compiled lane if it is installed, matches these sources, and `member.lane` allows it."""
    if choice == "python":
        return DataLane("python", reference_lane, why="member.lane = 'python'")
    sources = lane_sources()
    compiled, why = compiled_from(COMPILED, *sources)
    table, table_problem = compiled_from(TABLE, *sources)
    puts, puts_problem = compiled_from(PUTS, Path(packed_puts_cy.__file__))
    if compiled is None or table is None or puts is None:
        return DataLane("python", reference_lane, why=why or table_problem or puts_problem)
    code = cast("LaneCode", compiled)
    ways = Ways(table.EntryTable, cast("PackedPuts", puts), partial(FrameServing, code))
    return DataLane("compiled", code, ways, frees=cast("FreesLater", table))


def lane_sources() -> tuple[Path, ...]:
    table = Path(entry_mapping.__file__).parent / "entry_table.pyx"
    parser, tallies = Path(frame_parser.__file__), Path(lane_tally.__file__)
    lane = (parser.with_name("compiled_lane.pyx"), parser, tallies, Path(conditions.__file__))
    return (*lane, table, table.with_suffix(".pxd"), table.with_name("murmur3.pxd"))
