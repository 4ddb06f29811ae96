"""Options of change streams and of streams into a map, checked before anything is read or written."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.errors import ConfigError
from holdfast.spark.source.options import MEANING, RESERVED, Options

STARTS = ("latest", "earliest", "snapshot")
ON_GAP = ("fail", "restart")
STREAM_FORMATS = ("json", "text", "binary")
SINK_FORMATS = ("json", "binary")

SOURCE_MEANING = {
    "startingPosition": "where a new query begins: latest (changes from now on), earliest (what the members' "
    "history still has) or snapshot (the present entries, then changes)",
    "maps": "several maps with commas between them, instead of one",
    "onGap": "if history was discarded: fail, or restart (a row with op=restart for the partition, then its entries)",
    "maxRowsPerBatch": "approximate maximum of rows per batch; default: all available ones",
    "valueFormat": "json (the columns of the map), text (keys and values as text) or binary (in their stored form)",
}
"""In addition to those of every read, with descriptions."""

SINK_MEANING = {
    "opColumn": "the column with the kind of each row: insert, update, remove or restart; default: all rows are "
    "stored",
    "sourceMap": "the only map whose changes and keys the stream has: needed if a partition starts over",
    "sourcePartitions": "number of partitions in the source cluster of a change stream, if different",
    "idempotent": "false: do not record which batches were written (for a Spark that does not pass their numbers)",
}
"""In addition to those of every write, with descriptions."""

_SOURCE = {name.lower(): name for name in SOURCE_MEANING}
_SINK = {name.lower(): name for name in SINK_MEANING}
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})

_SIGN = "startingposition"
_DOORS = ("address", "map", "user", "password", "token", "cluster", "timeout")
_SOURCE_ALSO = (*_DOORS, "numPartitions", "bad")
_SINK_ALSO = (*_DOORS, "key", "ttl", "valueFormat")
"""Options of every read and write that also apply to streams."""
_ALIASES = frozenset({"path", "username"})


def is_change_stream(given: Mapping[str, str]) -> bool:
    """Whether these are options of a change stream: Spark asks for columns, but not for which kind of read."""
    return any(name.lower() == _SIGN for name in given)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    options: Options
    maps: tuple[str, ...]
    starting: str
    on_gap: str = "fail"
    rows_max: int | None = None
    value_format: str | None = None
    """None: as the map was written."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> StreamOptions:
        mine, others = _split(given, _SOURCE)
        if _SIGN not in mine:
            raise ConfigError(
                f"a change stream needs the option startingPosition: {SOURCE_MEANING['startingPosition']}"
            )
        maps = tuple(part.strip() for part in mine.get("maps", "").split(",") if part.strip())
        named = [value for name, value in others.items() if name.lower() in ("map", "path")]
        if maps and named and named != [maps[0]]:
            raise ConfigError(f"give either maps={','.join(maps)} or one map ({named[0]}), not both")
        if maps and not named:
            others["map"] = maps[0]
        _check_names(others, _SOURCE_ALSO, _SOURCE, "change streams")
        options = Options.parse(others)
        maps = maps or (options.map,)
        for name in maps:
            if name.startswith(RESERVED):
                raise ConfigError(f"map names that begin with {RESERVED!r} are Holdfast's own: {name!r}")
        if len(set(maps)) != len(maps):
            raise ConfigError(f"a map is named twice: {', '.join(maps)}")
        return cls(
            options,
            maps,
            _one_of(mine, _SIGN, STARTS, _SOURCE) or "latest",
            _one_of(mine, "ongap", ON_GAP, _SOURCE) or "fail",
            _whole(mine, "maxrowsperbatch", _SOURCE),
            _one_of(mine, "valueformat", STREAM_FORMATS, _SOURCE),
        )


@dataclass(frozen=True, slots=True)
class SinkOptions:
    options: Options
    op_column: str | None = None
    source_partitions: int | None = None
    idempotent: bool = True
    source_map: str | None = None
    """The only source of the map's entries. None: there may be several."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SinkOptions:
        given = {name: value for name, value in given.items() if name.lower() not in _SPARKS_OWN}
        mine, others = _split(given, _SINK)
        _check_names(others, _SINK_ALSO, _SINK, "streams into a map")
        options = Options.parse(others)
        if options.value_format not in (None, *SINK_FORMATS):
            raise ConfigError(
                f"streams are stored as {' or '.join(SINK_FORMATS)} (valueFormat), not as {options.value_format}"
            )
        return cls(
            options,
            mine.get("opcolumn") or None,
            _whole(mine, "sourcepartitions", _SINK),
            _one_of(mine, "idempotent", ("true", "false"), _SINK) != "false",
            mine.get("sourcemap") or None,
        )


def _split(given: Mapping[str, str], known: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    mine = {name.lower(): value for name, value in given.items() if name.lower() in known}
    return mine, {name: value for name, value in given.items() if name.lower() not in known}


def _check_names(others: Mapping[str, str], also: Sequence[str], known: Mapping[str, str], what: str) -> None:
    """Reject unknown options and those that do not apply. Their values are checked with the options of every read."""
    allowed = {name.lower() for name in also} | _ALIASES
    for written in others:
        name = written.lower()
        if name in allowed:
            continue
        if name in {meant.lower() for meant in MEANING}:
            raise ConfigError(f"the option {written} is not for {what}")
        close = difflib.get_close_matches(name, [*known, *allowed], n=1)
        named = {**known, **{meant.lower(): meant for meant in also}}
        hint = (
            f"did you mean {named.get(close[0], close[0])}?"
            if close
            else f"the options are {', '.join(sorted(named.values()))}"
        )
        raise ConfigError(f"unknown option {written!r}: {hint}")


def _one_of(
    mine: Mapping[str, str], name: str, allowed: tuple[str, ...], known: Mapping[str, str]
) -> str | None:
    value = mine.get(name)
    if value is None:
        return None
    if value.lower() not in allowed:
        raise ConfigError(f"{known[name]} is {', '.join(allowed[:-1])} or {allowed[-1]}, not {value!r}")
    return value.lower()


def _whole(mine: Mapping[str, str], name: str, known: Mapping[str, str]) -> int | None:
    value = mine.get(name)
    if value is None:
        return None
    if not value.isdecimal() or not 0 < int(value) < 2**31:
        raise ConfigError(f"{known[name]} is a whole number above 0, not {value!r}")
    return int(value)
