"""Takes a cut (a snapshot of maps that stays readable while they change) over maps of both engines, for one request of
a client.

In each partition, the maps outside zones are cut at one moment by their primary (`primary_backup.cuts`). The maps of
each zone are cut at one moment, too: by a request in the log of the partition's group (raft_partition/Z-7), which goes
to the leader like any other.

- raft_partition/C-1: A partition is answered when all its maps are cut. Otherwise none of its marks is named, and the
  client asks for the partition again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from holdfast.core.events import CutRequested
from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import ZONE_CUTS
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.cuts import Cuts, OnTaken, PinMark, Taken
from holdfast.core.raft_partition.leader_routing import LeaderRouting
from holdfast.core.routing.pending import Within


@dataclass(slots=True)
class _InZones:
    taken: Taken
    done: OnTaken
    waiting: int


@dataclass(slots=True)
class _Asked:
    """A request to cut maps of one zone in one partition."""

    cut: _InZones
    partition: int
    names: Sequence[str]


class Cutter:
    def __init__(self, out: Outbox, cuts: Cuts, zones: LeaderRouting) -> None:
        self._out = out
        self._cuts = cuts
        self._zones = zones
        self._tickets = 0
        self._asked: dict[int, _Asked] = {}

    def take(self, event: CutRequested, done: OnTaken) -> None:
        """Cut the maps in the partitions that are served here. `done` is called once."""
        names = list(dict.fromkeys(event.maps))
        zoned = [name for name in names if self._zones.homes.houses(name)]
        others = [name for name in names if name not in zoned]
        if zoned and not self._out.does(ZONE_CUTS):
            why = (
                f"maps in zones can be cut from feature level {ZONE_CUTS} on, and the cluster is at level "
                f"{self._out.level}: holdfast cluster upgrade"
            )
            done(Taken(known=False, why=why))
            return
        if zoned:
            self._cuts.begin(event.cut, names, event.lease_ms)
            done = partial(self._cut_zones, event, zoned, done)
        if others:
            self._cuts.take(event.cut, others, event.partitions, event.lease_ms, done, passive=event.passive)
        else:
            done(Taken())

    def _cut_zones(self, event: CutRequested, names: Sequence[str], done: OnTaken, taken: Taken) -> None:
        """After the maps outside zones are cut, cut the others in the same partitions."""
        zones: dict[int | None, list[str]] = {}
        for name in names:
            zones.setdefault(self._zones.homes.zone_of(name), []).append(name)
        partitions: Sequence[int] = ()
        if taken.known:
            partitions = [
                one for one in dict.fromkeys(event.partitions) if one not in {*taken.moved, *taken.left}
            ]
        under_way = _InZones(taken, done, len(partitions) * len(zones))
        if not under_way.waiting:
            done(taken)
        for partition in partitions:
            for mine in zones.values():
                self._tickets += 1
                self._asked[self._tickets] = _Asked(under_way, partition, mine)
                items = [name.encode() for name in mine]
                request = Request(Op.PIN, mine[0], [partition], event.cut, items=items, ttl_ms=event.lease_ms)
                self._zones.execute(request, Within(self, self._tickets))

    def answered(self, ticket: int, outcome: Outcome) -> None:
        """Collect an answer of a leader. Only effects follow, so this may happen within other machines' steps."""
        asked = self._asked.pop(ticket)
        under_way, partition = asked.cut, asked.partition
        taken = under_way.taken
        if outcome.status is Status.OK and isinstance(outcome.value, list):
            _add_marks(taken, partition, asked.names, outcome.value)
        elif partition not in taken.moved:
            taken.moved.append(partition)
            taken.why = outcome.detail or taken.why
        under_way.waiting -= 1
        if not under_way.waiting:
            _drop_moved(taken)
            under_way.done(taken)

    @property
    def leftovers(self) -> dict[str, int]:
        return {"cuts in zones": len(self._asked)}


def _add_marks(taken: Taken, partition: int, names: Sequence[str], answer: list[None | int | bytes]) -> None:
    """Add the answer to `Op.PIN`: counter, term and number of entries of each map, then the holders."""
    numbers = [each for each in answer if isinstance(each, int)]
    holders = tuple(MemberId(each.decode()) for each in answer if isinstance(each, bytes))
    for place, name in enumerate(names):
        counter, term, entries = numbers[3 * place : 3 * place + 3]
        if counter:
            taken.in_zones.append(PinMark(partition, name, counter, term, entries, holders))
        else:
            taken.unwritten.append((partition, name))


def _drop_moved(taken: Taken) -> None:
    """Remove the marks of partitions that are not cut completely (raft_partition/C-1)."""
    moved = set(taken.moved)
    taken.pins = [pin for pin in taken.pins if pin.partition not in moved]
    taken.in_zones = [mark for mark in taken.in_zones if mark.partition not in moved]
    taken.unwritten = [one for one in taken.unwritten if one[0] not in moved]
