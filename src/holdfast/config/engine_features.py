"""Features of maps by replication engine. Refusals take their reasons from here; docs/zones.md has the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class EngineFeature:
    """Something that maps can do, or cannot do in a zone: then `instead` says why, and what to do."""

    name: str
    in_zone: bool = True
    instead: str = ""
    setting: str = ""
    """A setting of maps that has it; empty: it is part of a request."""
    allowed: tuple[object, ...] = ()
    """Values of the setting that a map in a zone may have."""
    ignored: bool = False
    """Whether a map with another value may move into a zone, where the setting then has no effect."""


KEY_RANGES: Final = EngineFeature(
    "repair of single keys",
    in_zone=False,
    instead="`repair` replaces a whole replica by the state of its leader",
)
FEATURES: Final = (
    EngineFeature("get, put, remove, compare and replace, getAll, putAll, size, clear"),
    EngineFeature("key sets, entry sets, values, iteration (`fetchKeys`, `fetchEntries`)"),
    EngineFeature("times to live"),
    EngineFeature("maximum idle times"),
    EngineFeature("eviction (`max_size`, `max_bytes`); in a zone `lru` counts writes alone"),
    EngineFeature("entry listeners"),
    EngineFeature("near caches"),
    EngineFeature(
        "reads from backups",
        in_zone=False,
        instead="use reads = 'local': the leader answers at once",
        setting="read_backups",
        allowed=(False,),
    ),
    EngineFeature(
        "confirmed reads as a setting",
        in_zone=False,
        instead="a majority confirms every read there; leave reads out",
        setting="reads",
        allowed=("primary", "local"),
        ignored=True,
    ),
    EngineFeature(
        "a journal as a setting",
        in_zone=False,
        instead="the members' files keep its groups wherever they have some; leave journal out",
        setting="journal",
        allowed=("off",),
        ignored=True,
    ),
    EngineFeature(
        "loss policies",
        in_zone=False,
        instead="without a majority it waits, and is never lost; leave loss_policy out",
        setting="loss_policy",
        allowed=("ignore",),
        ignored=True,
    ),
    EngineFeature("transactions, also together with other maps"),
    EngineFeature("scans: `data scan`, `data keys`, reads of Spark without a cut"),
    EngineFeature("bulk writes: `load`, `restore`, writes and streams of Spark"),
    EngineFeature("cuts: `export`, `backup`, reads of Spark at a cut, also together with other maps"),
    EngineFeature("change streams: `changes`, streams from Spark"),
    EngineFeature("number of entries in `status` and metrics"),
    EngineFeature("comparison of replicas (`verify`, also with `--keys`)"),
    EngineFeature("repair of replicas (`repair`)"),
    EngineFeature(
        "files of stopped members: `verify --files`, `journal print`, `journal_frame`, `checkpoint_frame`"
    ),
    EngineFeature("reports of `analyse` (in a zone `largest` is as of the newest checkpoint)"),
    KEY_RANGES,
)


def feature_table() -> str:
    """The features of both engines in Markdown."""
    lines = ["| feature | primary and backups | in a zone |", "|---|---|---|"]
    lines += [
        f"| {feature.name} | yes | {'yes' if feature.in_zone else 'no: ' + feature.instead} |"
        for feature in FEATURES
    ]
    return "\n".join(lines)
