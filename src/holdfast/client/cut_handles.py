"""Cuts: maps as they were at one moment of each partition, read from the members that keep them.

    cut = take_cut(client, ["customers"])
    for partition in range(client.partition_count):
        for page in scan_cut(client, cut, "customers", partition):
            ...
    end_cut(client, cut)

A cut has one moment for each partition, not one for all: two writes of one client to two partitions may be on
different sides of it. All maps of a partition are cut at the same moment. A cut can be read repeatedly, from
any member that keeps it, with the same result.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from holdfast.client.blocking import Client, pages_of
from holdfast.client.blocking_retries import BlockingRetries
from holdfast.client.connection import Broken, Connection
from holdfast.client_core.routing import PASSING
from holdfast.errors import ConfigError, CutLost, HoldfastError, NotReady
from holdfast.wire import own
from holdfast.wire.own import Mark


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut through maps. Plain data: it can be sent to other processes."""

    id: bytes
    marks: dict[tuple[str, int], Mark]
    lease_s: float = 0.0
    """How long a member keeps it after its last use there."""

    def counters(self, map_name: str) -> dict[int, int]:
        return {partition: mark.counter for (name, partition), mark in self.marks.items() if name == map_name}

    def entries(self, map_name: str) -> int:
        return sum(mark.entries for (name, _), mark in self.marks.items() if name == map_name)

    @property
    def maps(self) -> list[str]:
        return sorted({name for name, _ in self.marks})

    @property
    def holders(self) -> list[str]:
        return sorted({holder for mark in self.marks.values() for holder in mark.holders})


def take_cut(
    client: Client,
    maps: Sequence[str],
    *,
    lease_s: float = 600.0,
    timeout: float | None = None,
    partitions: Sequence[int] | None = None,
    whole: bool = True,
) -> Cut:
    """Cut these maps through all partitions, or these: every member keeps its part until `lease_s` after its last use.

    Returns when all sync backups keep it too, including those that were asked first. Raises NotReady if that
    fails for `timeout` seconds (the client's own, if left out), ConfigError for more than `own.CUT_MAPS_MAX`
    maps. `lease_s` is a day at most. `whole`: False: after `timeout` return the cut of those partitions that could be
    cut.
    """
    names = list(dict.fromkeys(maps))
    if len(names) > own.CUT_MAPS_MAX:
        raise ConfigError(f"at most {own.CUT_MAPS_MAX} maps can be cut at the same moment, not {len(names)}")
    patience_s = client.timeout_s if timeout is None else timeout
    wanted = set(range(client.partition_count) if partitions is None else partitions) if names else set()
    taking = _Taking(client, names, lease_s, wanted, time.monotonic() + patience_s)
    try:
        return taking.run(patience_s, whole=whole)
    except BaseException:
        with suppress(HoldfastError):
            _hold(client, taking.cut, 0, {}, 1)
        raise


class _Taking:
    def __init__(
        self, client: Client, maps: list[str], lease_s: float, partitions: set[int], deadline_s: float
    ) -> None:
        self.cut = os.urandom(16)
        self._client = client
        self._maps = maps
        self._lease_s = lease_s
        self._lease_ms = _milliseconds(lease_s)
        self._slice = max(1, own.CUT_MARKS_MAX // max(1, len(maps)))
        """Partitions of one question: small, so that a member can serve others in between."""
        self._left = partitions
        self._deadline_s = deadline_s
        self._marks: dict[tuple[str, int], Mark] = {}
        self._held_s = time.monotonic()
        self._whole = True

    def run(self, patience_s: float, *, whole: bool) -> Cut:
        """Ask until everything is cut and kept. After `patience_s` raises NotReady if `whole`."""
        retries = BlockingRetries(self._deadline_s - time.monotonic())
        while True:
            why = self._ask_owners()
            if not self._left:
                why = self._renew(last=True)
            if not self._left and not why:
                return Cut(self.cut, self._marks, self._lease_s)
            if not retries.sleep(longest_s=self._lease_s / 4):
                if not whole:
                    return Cut(self.cut, self._marks, self._lease_s)
                what = f"{len(self._left)} partitions, first {min(self._left)}," if self._left else "maps"
                raise NotReady(f"{what} could not be cut for {patience_s:g} s: {why}")
            self._renew()
            self._client.refresh()

    def _ask_owners(self) -> str:
        why = ""
        try:
            table = self._client.known_table()
        except (Broken, *PASSING) as passing:
            return str(passing)
        waiting: dict[str, list[int]] = {}
        for partition in sorted(self._left):
            owner = table.owner(partition)
            if owner is None:
                why = f"partition {partition} has no owner now"
            else:
                waiting.setdefault(owner, []).append(partition)
        while waiting:
            why = self._ask_each(waiting) or why
            self._renew()
            if time.monotonic() > self._deadline_s:
                return why or "the time was too short for all of them"
        return why

    def _ask_each(self, waiting: dict[str, list[int]]) -> str:
        why = ""
        posted: list[tuple[str, Connection, int]] = []
        for owner, mine in list(waiting.items()):
            some, waiting[owner] = mine[: self._slice], mine[self._slice :]
            try:
                connection = self._client.to(owner)
                question = own.Cut(connection.next_number(), self.cut, self._maps, some, self._lease_ms)
                connection.post(question)
            except (Broken, *PASSING) as passing:
                why = str(passing)
                waiting[owner] = []
            else:
                posted.append((owner, connection, question.id))
        for owner, connection, number in posted:
            try:
                made = connection.collect(number, own.CutMade)
            except (Broken, *PASSING) as passing:
                why = str(passing)
                waiting[owner] = []
                continue
            waiting[owner] = made.left + waiting[owner]
            if not made.known:
                why = made.why or "a member cannot say whether its backups keep it"
                continue
            if made.moved:
                why = made.why or f"partition {made.moved[0]} moved"
            for mark in made.marks:
                self._marks[mark.map, mark.partition] = mark
                self._left.discard(mark.partition)
        for owner in [owner for owner, mine in waiting.items() if not mine]:
            del waiting[owner]
        return why

    def _renew(self, *, last: bool = False) -> str:
        """Renew the lease of members that were asked before, if it is time; cut again what they have dropped.
        `last`: check once more if a lease may have ended. Returns why something is left.
        """
        if time.monotonic() - self._held_s < self._lease_s / 4 and (self._whole or not last):
            return ""
        self._whole = False
        try:
            lost = _lost(self._client, self.cut, self._marks.values(), self._lease_ms)
        except (Broken, *PASSING) as passing:
            return f"cannot tell whether it is still kept: {passing}"
        self._held_s = time.monotonic()
        for partition in {mark.partition for mark in lost}:
            self._left.add(partition)
            for name in self._maps:
                self._marks.pop((name, partition), None)
        return f"the lease of {self._lease_s:g} s ended before everything was cut" if lost else ""


def hold_cut(client: Client, cut: Cut, lease_s: float) -> int:
    """Renew the lease of a cut on every member for `lease_s`. Returns the number of marks. Raises CutLost if
    no member keeps one of them any more.
    """
    marks = [mark for mark in cut.marks.values() if mark.counter]
    lost = _lost(client, cut.id, marks, _milliseconds(lease_s))
    if lost:
        first = lost[0]
        raise CutLost(
            f"of {len(lost)} of {len(marks)} marks, first map {first.map!r} in partition {first.partition}, no "
            "member keeps the cut any more"
        )
    return len(marks)


def end_cut(client: Client, cut: Cut) -> None:
    """Members that cannot be reached drop the cut when its lease ends."""
    with suppress(HoldfastError):
        _hold(client, cut.id, 0, {}, 1)


def _lost(client: Client, cut: bytes, marks: Iterable[Mark], lease_ms: int) -> list[Mark]:
    """Renew the lease; returns the marks that none of their holders keeps."""
    marks = [mark for mark in marks if mark.counter]
    wanted: dict[str, dict[int, None]] = {}
    for mark in marks:
        for holder in mark.holders:
            wanted.setdefault(holder, {})[mark.partition] = None
    maps = len({mark.map for mark in marks})
    kept = _hold(client, cut, lease_ms, {holder: list(mine) for holder, mine in wanted.items()}, maps)
    return [
        mark
        for mark in marks
        if not any(
            (mark.partition, mark.map, mark.counter, mark.term) in kept.get(holder, ())
            for holder in mark.holders
        )
    ]


def _hold(
    client: Client, cut: bytes, lease_ms: int, wanted: dict[str, list[int]], maps: int
) -> dict[str, set[tuple[int, str, int, int]]]:
    """Renew the lease on all members. Returns what the reachable ones keep of these partitions: partition, map, counter
    and term. `maps`: number of maps of the cut.
    """
    client.refresh()
    size = max(1, own.CUT_MARKS_MAX // max(1, maps))
    kept: dict[str, set[tuple[int, str, int, int]]] = {}
    waiting = {member: wanted.get(member, []) for member in client.known_table().members}
    while waiting:
        posted: list[tuple[str, Connection, int]] = []
        for member, mine in waiting.items():
            with suppress(Broken, *PASSING):
                connection = client.to(member)
                question = own.HoldCut(connection.next_number(), cut, lease_ms, mine[:size])
                connection.post(question)
                posted.append((member, connection, question.id))
        following: dict[str, list[int]] = {}
        for member, connection, number in posted:
            with suppress(Broken, *PASSING):
                kept.setdefault(member, set()).update(connection.collect(number, own.CutHeld).kept)
                if waiting[member][size:]:
                    following[member] = waiting[member][size:]
        waiting = following
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
    """The entries of a map in one partition at the cut, read completely from one member before the first page
    is returned.

    `prefer`: UUIDs of members to ask first. `spread`: start at another holder in each partition, so that
    backups share the work. `fields`, `keys`, `limit`: see `wire.own.Scan`. `whole`: with times to live as of
    the cut, and the hash words of keys. Each holder measures times to live by its own clock, from when it
    applied the entry and the cut: they differ between holders by the time that these messages took. Another
    holder is asked if one is lost.

    Raises: CutLost if no member keeps it any more, KeyError for a map or partition that was not cut.
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
            # The connection and the table may date from before the member came back.
            client.refresh()
    told = "; ".join(f"{holder}: {reason}" for holder, reason in why.items())
    raise CutLost(
        f"the cut of map {map_name!r} in partition {partition} (update {mark.counter}): no member keeps it any more "
        f"({told})"
    )


def _ordered(mark: Mark, prefer: Sequence[str], *, spread: bool) -> list[str]:
    first = mark.partition % len(mark.holders) if spread else 0
    turned = [*mark.holders[first:], *mark.holders[:first]]
    return sorted(turned, key=lambda holder: holder not in prefer)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
