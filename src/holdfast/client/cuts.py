"""Cuts: maps as they were at one moment of each partition, read from whoever keeps them (S1).

    cut = take_cut(client, ["customers"])
    for partition in range(client.partition_count):
        for page in scan_cut(client, cut, "customers", partition):
            ...
    end_cut(client, cut)

A cut is one moment for each partition, not one for all: two writes of one client to two partitions may be on two
sides of it. All maps of a partition are cut at the same moment. Reading a cut gives the same entries however often it
is read, and from whichever member.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from holdfast.client.blocking import Client, pages_of
from holdfast.client.connection import Broken, Connection
from holdfast.client.routing import PASSING, delays
from holdfast.errors import CutLost, HoldfastError, NotReady
from holdfast.wire import own
from holdfast.wire.own import Mark


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut through maps. Plain data: it can be sent to other processes."""

    id: bytes
    marks: dict[tuple[str, int], Mark]
    """By map and partition; of every map that was asked for, in every partition."""
    lease_s: float = 0.0
    """How long a member keeps it after it was last read there, or held."""

    def counters(self, map_name: str) -> dict[int, int]:
        """Partition -> the map's update counter at the cut."""
        return {partition: mark.counter for (name, partition), mark in self.marks.items() if name == map_name}

    def entries(self, map_name: str) -> int:
        """How many entries the map had."""
        return sum(mark.entries for (name, _), mark in self.marks.items() if name == map_name)

    @property
    def maps(self) -> list[str]:
        """What was cut."""
        return sorted({name for name, _ in self.marks})

    @property
    def holders(self) -> list[str]:
        """UUIDs of all members that were named as keeping some of it."""
        return sorted({holder for mark in self.marks.values() for holder in mark.holders})


def take_cut(
    client: Client,
    maps: Sequence[str],
    *,
    lease_s: float = 600.0,
    timeout: float | None = None,
    partitions: Sequence[int] | None = None,
) -> Cut:
    """Cut these maps through all partitions, or these: every member keeps its part until `lease_s` after its last use.

    Returns when all sync backups keep it, too. Raises NotReady when that could not be had within `timeout` seconds (the
    client's own, if left out).
    """
    cut = os.urandom(16)
    patience_s = client.timeout_s if timeout is None else timeout
    deadline = time.monotonic() + patience_s
    left = set(range(client.partition_count) if partitions is None else partitions)
    marks: dict[tuple[str, int], Mark] = {}
    wait = delays()
    try:
        while True:
            why = _ask_owners(client, cut, list(maps), left, lease_s, marks)
            if not left:
                return Cut(cut, marks, lease_s)
            delay = next(wait)
            if time.monotonic() + delay > deadline:
                raise NotReady(
                    f"{len(left)} partitions, first {min(left)}, could not be cut for {patience_s:g} s: {why}"
                )
            time.sleep(delay)
            client.refresh()
    except BaseException:
        with suppress(HoldfastError):
            _hold(client, cut, 0)
        raise


def _ask_owners(
    client: Client,
    cut: bytes,
    maps: list[str],
    left: set[int],
    lease_s: float,
    marks: dict[tuple[str, int], Mark],
) -> str:
    """Ask every owner at the same time. Takes what is cut out of `left`; answers why something is left."""
    why = ""
    try:
        table = client.known_table()
    except (Broken, *PASSING) as passing:
        return str(passing)
    by_owner: dict[str, list[int]] = {}
    for partition in sorted(left):
        owner = table.owner(partition)
        if owner is None:
            why = f"partition {partition} has no owner now"
        else:
            by_owner.setdefault(owner, []).append(partition)
    posted: list[tuple[Connection, int]] = []
    for owner, mine in by_owner.items():
        try:
            connection = client.to(owner)
            question = own.Cut(connection.next_number(), cut, maps, mine, _milliseconds(lease_s))
            connection.post(question)
        except (Broken, *PASSING) as passing:
            why = str(passing)
        else:
            posted.append((connection, question.id))
    for connection, number in posted:
        try:
            made = connection.collect(number, own.CutMade)
        except (Broken, *PASSING) as passing:
            why = str(passing)
            continue
        if not made.known:
            why = made.why or "a member cannot say whether its backups keep it"
            continue
        if made.moved:
            why = f"partition {made.moved[0]} moved"
        for mark in made.marks:
            marks[mark.map, mark.partition] = mark
            left.discard(mark.partition)
    return why


def hold_cut(client: Client, cut: Cut, lease_s: float) -> int:
    """Have every member keep the cut for so long from now on.

    Answers how many marks still have somebody who keeps them. Raises CutLost when some have nobody any more.
    """
    kept = _hold(client, cut.id, _milliseconds(lease_s))
    marks = [mark for mark in cut.marks.values() if mark.counter]
    lost = [mark for mark in marks if not any(kept.get(holder) for holder in mark.holders)]
    if lost:
        first = lost[0]
        raise CutLost(
            f"of {len(lost)} of {len(marks)} marks, first map {first.map!r} in partition {first.partition}, nobody "
            "keeps the cut any more"
        )
    return len(marks)


def end_cut(client: Client, cut: Cut) -> None:
    """The cut is not wanted any more. Members that cannot be reached forget it when its lease ends."""
    with suppress(HoldfastError):
        _hold(client, cut.id, 0)


def _hold(client: Client, cut: bytes, lease_ms: int) -> dict[str, int]:
    """Tell all members; answers of how many marks those keep it that can be reached."""
    client.refresh()
    kept: dict[str, int] = {}
    posted: list[tuple[str, Connection, int]] = []
    for member in client.known_table().members:
        with suppress(Broken, *PASSING):
            connection = client.to(member)
            question = own.HoldCut(connection.next_number(), cut, lease_ms)
            connection.post(question)
            posted.append((member, connection, question.id))
    for member, connection, number in posted:
        with suppress(Broken, *PASSING):
            kept[member] = connection.collect(number, own.CutHeld).marks
    return kept


def scan_cut(
    client: Client,
    cut: Cut,
    map_name: str,
    partition: int,
    *,
    prefer: Sequence[str] = (),
    spread: bool = False,
    fields: Sequence[str] | None = None,
    keys: Sequence[bytes] = (),
    limit: int = 0,
    whole: bool = False,
    rows_max: int = 8192,
    bytes_max: int = 1 << 20,
) -> Iterator[own.Page]:
    """The entries of a map in one partition at the cut, read from a member that keeps it; whole, before the first page.

    `prefer`: UUIDs of members that are asked first. `spread`: begin at another holder in each partition, so that
    backups share the work. `fields`, `keys`, `limit`: see `wire.own.Scan`. `whole`: with times to live as they were at
    the cut, and the hash words of keys. Goes on with another holder when one is lost.
    Raises CutLost when nobody keeps it any more, and KeyError for a map or partition that was not cut.
    """
    mark = cut.marks[map_name, partition]
    if not mark.counter:
        return iter(())
    question = own.Scan(
        0,
        map_name,
        partition,
        rows_max,
        bytes_max,
        any_copy=whole,
        cut=cut.id,
        keys=list(keys),
        fields=None if fields is None else list(fields),
        limit=limit,
    )
    why: dict[str, str] = {}
    for patient in (False, True):
        for holder in _ordered(mark, prefer, spread=spread):
            try:
                pages = pages_of(client.to(holder), question)
            except (Broken, *PASSING) as passing:
                why[holder] = str(passing)
                continue
            kept = pages[0]
            if (kept.counter, kept.term) == (mark.counter, mark.term):
                return iter(pages)
            why[holder] = (
                f"keeps update {kept.counter} of term {kept.term}, not {mark.counter} of {mark.term}"
            )
        if not patient:
            # A connection may be of a time before the member came back, and the table of one before it was known.
            client.refresh()
    told = "; ".join(f"{holder}: {reason}" for holder, reason in why.items())
    raise CutLost(
        f"the cut of map {map_name!r} in partition {partition} (update {mark.counter}): nobody keeps it any more "
        f"({told})"
    )


def _ordered(mark: Mark, prefer: Sequence[str], *, spread: bool) -> list[str]:
    first = mark.partition % len(mark.holders) if spread else 0
    turned = [*mark.holders[first:], *mark.holders[:first]]
    return sorted(turned, key=lambda holder: holder not in prefer)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
