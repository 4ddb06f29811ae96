"""Offsets of a change stream, and where its next batch ends. Pure: no member is asked here.

An offset has a place for each map and partition: term and counter of the last update that was delivered. As JSON:

    {"v": 1, "cluster": "<id>", "maps": {"flights": {"0": [3, 17], "5": [], ...}}}

A missing partition is at its beginning, before the first update; `[]` means that its present entries are delivered
first. The end of a batch is fixed before the batch is read, so a batch that is read again is the same.

A place does not name a member, so it stays valid when a partition moves: update 17 of term 3 is the same on
every replica. After a failover the new primary continues with a higher term, say 18 of term 4, and [3, 17] is
still in its history. If update 17 was lost, so that the new primary's own update 17 is of term 4, the terms
differ and the query ends with BadOffset instead of a silent gap.

Spark records where batches end, but not where a query began. So the end of the first batch also has that
batch's start (`from`), and `first` marks the offset at which a new query begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from holdfast.errors import HoldfastError

VERSION = 1

At = tuple[str, int]


class BadOffset(HoldfastError):
    """An offset of a checkpoint does not belong to this stream; the message says what to do."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """An update of one map in one partition; all changes up to it were delivered."""

    term: int = 0
    counter: int = 0


BEGINNING = Place()

Places = dict[At, Place | None]
"""None: present entries are delivered first. Missing partitions are at `BEGINNING`."""


@dataclass(frozen=True, slots=True)
class Offset:
    cluster: str
    """Id of the cluster to which the counters belong."""
    maps: tuple[str, ...]
    places: Places = field(default_factory=dict)
    first: bool = False
    began: Places | None = None
    """At the end of a query's first batch: the start of that batch."""

    def at(self, at: At) -> Place | None:
        return self.places.get(at, BEGINNING)

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "v": VERSION,
            "cluster": self.cluster,
            "maps": _maps_json(self.maps, self.places),
        }
        if self.first:
            told["first"] = True
        if self.began is not None:
            told["from"] = _maps_json(self.maps, self.began)
        return told

    @classmethod
    def of_json(cls, told: object) -> Offset:
        """Raises BadOffset."""
        version = told.get("v") if isinstance(told, dict) else None
        if version != VERSION:
            raise BadOffset(
                f"the checkpoint has offsets of version {version!r}, this is version {VERSION}: continue with the "
                "Holdfast that wrote it, or begin with a new checkpoint"
            )
        try:
            read = msgspec.convert(told, _Told)
        except msgspec.ValidationError as broken:
            raise BadOffset(
                f"the checkpoint has an offset that is damaged ({broken}): begin with a new one"
            ) from None
        began = None if read.began is None else _places(read.began)
        return cls(read.cluster, tuple(read.maps), _places(read.maps), read.first, began)


class _Told(msgspec.Struct, frozen=True, rename={"began": "from"}):
    cluster: str
    maps: dict[str, dict[str, list[int]]]
    first: bool = False
    began: dict[str, dict[str, list[int]]] | None = None


def _maps_json(maps: Iterable[str], places: Places) -> dict[str, dict[str, list[int]]]:
    told: dict[str, dict[str, list[int]]] = {name: {} for name in maps}
    for (name, partition), place in sorted(places.items()):
        if place is None:
            told[name][str(partition)] = []
        elif place.counter:
            told[name][str(partition)] = [place.term, place.counter]
    return told


def _places(told: Mapping[str, Mapping[str, Sequence[int]]]) -> Places:
    found: Places = {}
    for name, partitions in told.items():
        for partition, place in partitions.items():
            if len(place) not in (0, 2) or not partition.isdecimal():
                raise BadOffset(
                    f"the checkpoint has an offset that is damaged: {name!r} {partition}: {place}"
                )
            found[name, int(partition)] = Place(place[0], place[1]) if place else None
    return found


# -- contents of a batch


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a batch: the changes of one map in one partition in (start, end]."""

    map: str
    partition: int
    start: Place | None
    """None: the entries at `end` instead, as inserts."""
    end: Place


def pieces(start: Offset, end: Offset) -> list[Piece]:
    """Raises BadOffset if the offsets are not of one stream."""
    check_same_stream(start, end)
    if start == end:
        return []
    began = start.places if end.began is None else end.began
    found: list[Piece] = []
    for at in sorted({*began, *end.places}):
        first, last = began.get(at, BEGINNING), end.at(at)
        if first == last:
            continue
        if last is None or (first is not None and last.counter < first.counter):
            raise BadOffset(
                f"the offsets of a batch do not follow each other: map {at[0]!r}, partition {at[1]}: "
                f"from {first} to {last}. Begin with a new checkpoint"
            )
        found.append(Piece(at[0], at[1], first, last))
    return found


def check_same_stream(one: Offset, other: Offset) -> None:
    """Raises BadOffset unless both are of the same cluster and maps."""
    if one.cluster != other.cluster:
        raise BadOffset(
            f"the checkpoint follows the cluster {one.cluster}, but this is {other.cluster}, with other counters. "
            "Give the address of that cluster, or begin with a new checkpoint (startingPosition=snapshot sends the "
            "present entries)"
        )
    if set(one.maps) != set(other.maps):
        raise BadOffset(
            f"the checkpoint follows the map(s) {', '.join(one.maps)}, not {', '.join(other.maps)}: follow the same "
            "maps, or begin with a new checkpoint"
        )


# -- end of the next batch


@dataclass(frozen=True, slots=True)
class Backlog:
    start: Place | None
    head: Place
    since: int
    """The primary has every change after this update."""
    rows: int
    """Estimated: updates, or entries where these come first."""
    gaps: tuple[tuple[int, int], ...] = ()
    """Moves of the map since the start: the last update before each, and the one after which it continues."""

    def counter_after(self, rows: int) -> int:
        """The counter so many updates after the start. After all of them it is the head, also if that is behind a gap
        without further updates.
        """
        assert self.start is not None, "entries are not counted by updates"
        if rows >= self.rows:
            return self.head.counter
        counter = self.start.counter
        for end, start in self.gaps:
            if rows <= end - counter:
                break
            counter, rows = start, rows - (end - counter)
        return counter + rows


@dataclass(frozen=True, slots=True)
class Limit:
    rows: int | None = None
    """Target number of rows, exceeded by parts that cannot be divided. None: no limit."""
    jump: bool = False
    """Partitions with lost history continue at their head, so they are not divided."""


def ends(backlogs: Mapping[At, Backlog], limit: Limit) -> dict[At, int]:
    """Counters at which the next batch ends, for partitions with something to deliver.

    A limit is shared fairly: small backlogs are delivered whole, the others get equal parts. Example: backlogs
    of 10, 500 and 900 rows and a limit of 300 give 10, 145 and 145. Whole partitions of entries, which come
    first, may take half of the rows, or what the others leave.
    """
    behind = {at: told for at, told in sorted(backlogs.items()) if _is_behind(told)}
    if limit.rows is None:
        return {at: told.head.counter for at, told in behind.items()}
    found: dict[At, int] = {}
    budget = limit.rows
    whole = [at for at, told in behind.items() if _comes_whole(told, limit)]
    parts = {at: told.rows for at, told in behind.items() if not _comes_whole(told, limit)}
    for_parts = min(sum(parts.values()), budget // 2 if whole else budget)
    for at in whole:
        # At least one: otherwise a partition larger than the limit would never be delivered.
        if found and budget - behind[at].rows < for_parts:
            break
        found[at] = behind[at].head.counter
        budget -= behind[at].rows
    for at, rows in _fair(parts, max(budget, for_parts), _turn(behind)).items():
        found[at] = behind[at].counter_after(rows)
    return found


def _is_behind(told: Backlog) -> bool:
    return told.start is None or told.head.counter > told.start.counter


def _comes_whole(told: Backlog, limit: Limit) -> bool:
    return told.start is None or (limit.jump and told.start.counter < told.since)


def _turn(behind: Mapping[At, Backlog]) -> int:
    """Differs between batches, but is the same when a batch is planned again."""
    return sum(told.start.counter for told in behind.values() if told.start is not None)


def _fair(wanted: Mapping[At, int], budget: int, turn: int) -> dict[At, int]:
    """Divide `budget`: none gets more than it wants, and none gets less so that another gets more."""
    found: dict[At, int] = {}
    left = sorted(wanted, key=lambda at: (wanted[at], at))
    for at, rows in ((at, wanted[at]) for at in left):
        share = budget // (len(left) - len(found))
        if rows > share:
            break
        found[at] = rows
        budget -= rows
    rest = sorted(at for at in left if at not in found)
    for position in range(len(rest)):
        at = rest[(turn + position) % len(rest)]
        # Later ones in this rotation get the remainder of the division.
        share = budget // (len(rest) - position)
        if share:
            found[at] = share
            budget -= share
    return found


def moved_on(start: Offset, told: Mapping[At, Place]) -> Offset:
    """The offset after a batch that ends at these places; `start` itself if it is empty and not the first
    batch.
    """
    if not told and not start.first:
        return start
    places = {**start.places, **told}
    began = dict(start.places) if start.first else None
    return replace(start, places=places, first=False, began=began)


# -- division between tasks


def shares(
    todo: Sequence[Piece], rows: Mapping[At, int], owners: Sequence[str], parts: int
) -> list[list[Piece]]:
    """The pieces in at most `parts` even shares. All pieces of a partition are in one share, in the order of maps.

    `rows`: estimated rows of each piece; `owners`: owner of each partition, so that a share asks few members.
    """
    by_partition: dict[int, list[Piece]] = {}
    for piece in todo:
        by_partition.setdefault(piece.partition, []).append(piece)
    ranked = sorted(by_partition, key=lambda partition: (owners[partition], partition))
    weights = [sum(rows[piece.map, partition] for piece in by_partition[partition]) for partition in ranked]
    total = sum(weights)
    found: list[list[Piece]] = []
    done = 0
    for partition, weight in zip(ranked, weights, strict=True):
        # The middle of this partition's rows decides to which share it belongs.
        share = min(parts - 1, (2 * done + weight) * parts // (2 * total)) if total else 0
        while len(found) <= share:
            found.append([])
        found[share] += by_partition[partition]
        done += weight
    return [share for share in found if share]
