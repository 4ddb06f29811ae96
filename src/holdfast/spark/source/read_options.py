"""Options of reads, checked before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from holdfast.errors import ConfigError
from holdfast.spark.rows.bad_rows import MEANING as BAD_MEANING
from holdfast.spark.rows.bad_rows import BadRows

READ_MEANING = {
    "cut": "true: every partition as it was when the DataFrame was made, however often it is read; default false "
    "(reading only)",
    "cutLease": "seconds for which members keep a cut after its last use by a task; default 600 (reading only)",
    "readFrom": "primary, or any: backups share the work, at a cut; default primary (reading only)",
    "partitions": "only these partitions of the grid, such as 0-9,12 (reading only)",
    "partitionColumn": "true: one more column, __partition; default false (reading only)",
    "limit": "maximum number of rows, in no particular order, before any filter; read by one task (reading only)",
    "sampleRows": "entries that are sampled for the columns of a map that was not written through Spark; default "
    "1000; 0: none, give .schema(...) (reading only)",
    "keys": 'only the entries with these keys, as a JSON list: [1, 2], or [["a", 1]] for a key of several columns '
    "(reading only)",
    "bad": f"{BAD_MEANING}; default fail (reading only)",
    "pushdown": "true: filters on key columns and __partition are pushed to members; only for a DataFrame that is used "
    "with one filter, see docs/spark.md; default false (reading only)",
}

Key = bool | int | str

LEASE_S = 600.0
SAMPLE_ROWS = 1000
PARTITIONS_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class ReadOptions:
    cut: bool = False
    lease_s: float = LEASE_S
    spread: bool = False
    partitions: tuple[int, ...] | None = None
    partition_column: bool = False
    limit: int | None = None
    sample_rows: int = SAMPLE_ROWS
    keys: tuple[tuple[object, ...], ...] | None = None
    pushdown: bool = False
    bad: BadRows = field(default_factory=BadRows)

    @classmethod
    def parse(cls, found: Mapping[str, str]) -> ReadOptions:
        """`found` has option names in lower case. Raises ConfigError."""
        whom = found.get("readfrom", "primary").lower()
        if whom not in ("primary", "any"):
            raise ConfigError(f"readFrom is primary or any, not {found['readfrom']!r}")
        spread = whom == "any"
        cut = _truth(found, "cut", default=spread)
        if spread and not cut:
            raise ConfigError(
                "readFrom any reads at a cut, so that all copies are the same: leave out cut=false"
            )
        limit = found.get("limit")
        return cls(
            cut=cut,
            lease_s=_lease(found),
            spread=spread,
            partitions=_ranges(found["partitions"]) if found.get("partitions") else None,
            partition_column=_truth(found, "partitionColumn", default=False),
            limit=None if limit is None else _whole(found, "limit"),
            sample_rows=_whole(found, "sampleRows") if "samplerows" in found else SAMPLE_ROWS,
            keys=_keys(found["keys"]) if "keys" in found else None,
            pushdown=_truth(found, "pushdown", default=False),
            bad=BadRows.parse(found["bad"]) if "bad" in found else BadRows(),
        )


def _truth(found: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = found.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"{name} is true or false, not {text!r}: {READ_MEANING[name]}")
    return text.lower() == "true"


def _whole(found: Mapping[str, str], name: str) -> int:
    text = found[name.lower()].strip()
    if not text.isdecimal() or len(text) > 12:
        raise ConfigError(f"{name} is a whole number, 0 or more, not {text!r}: {READ_MEANING[name]}")
    return int(text)


def _keys(text: str) -> tuple[tuple[object, ...], ...]:
    try:
        found = msgspec.json.decode(text, type=list[Key | list[Key]])
    except msgspec.MsgspecError as wrong:
        raise ConfigError(f"keys is no JSON list of keys ({wrong}): {READ_MEANING['keys']}") from None
    return tuple(tuple(key) if isinstance(key, list) else (key,) for key in found)


def _lease(found: Mapping[str, str]) -> float:
    text = found.get("cutlease")
    if text is None:
        return LEASE_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 86_400:
        raise ConfigError(
            f"cutLease is between 1 and 86400 seconds, not {text!r}: {READ_MEANING['cutLease']}"
        )
    return seconds


def _ranges(text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        last = last if dash else first
        if not first.isdecimal() or not last.isdecimal() or len(first) > 7 or len(last) > 7:
            raise ConfigError(f"partitions are numbers and ranges such as 0-9,12; not {part.strip()!r}")
        if not int(first) <= int(last) < PARTITIONS_MAX:
            raise ConfigError(f"partitions: {part.strip()!r} does not go from a smaller to a larger number")
        found.update(range(int(first), int(last) + 1))
    return tuple(sorted(found))
