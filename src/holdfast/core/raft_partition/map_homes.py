"""Which router serves a request: that of a zone, or that of all other maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.config import TRANSACTIONS_MAP, Settings
from holdfast.core.model.levels import SHARED_GROUPS, STRUCTURES, ZONE_IDLE_TIMES
from holdfast.core.model.object_names import is_structure
from holdfast.core.model.operations import MOVING, STEPS, Op, Outcome, Request, Status
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.transactions import zone_of_engine
from holdfast.core.outbox import Outbox
from holdfast.core.raft_partition.consensus_replication import ConsensusReplication
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.core.routing.gatherings import Gathering, Gatherings, Rehoming
from holdfast.core.routing.pending import Asker, Parked, Waiting, answer, asks_again
from holdfast.core.routing.processor_runs import ProcessorRuns
from holdfast.core.routing.request_refusals import RequestRefusals
from holdfast.core.routing.router import Heartbeats, Router

NO_MAX_IDLE = (
    f"entries of maps in zones have maximum idle times from feature level {ZONE_IDLE_TIMES} on: "
    "holdfast cluster upgrade"
)
NO_STRUCTURES = (
    f"queues, lists, sets and CP groups live in zones from feature level {STRUCTURES} on: "
    "holdfast cluster upgrade"
)
NOT_HERE = Outcome(Status.MOVED, None, "the map was moved to another engine")
SERVED = frozenset({Op.CALL, Op.ASK})
"""Whatever the names of the services."""


class OtherRouter(Protocol):
    """The router of all other maps. Its limit of waiting requests, and its refusals, count for zones, too."""

    waiting: Waiting
    refusals: RequestRefusals
    gatherings: Gatherings
    runs: ProcessorRuns
    heartbeats: Heartbeats | None

    def depart(self, names: frozenset[str], rehoming: Rehoming) -> None: ...

    def pass_on(self) -> None: ...

    def execute(self, request: Request, asker: Asker, doubt: str = "") -> None: ...

    def adopt(self, parked: Parked) -> None: ...

    def drop(self, parked: Parked, outcome: Outcome) -> None: ...


class ZoneEntries:
    """The replicas here whose entries sessions may read and write directly (`Driver.zone_batch`)."""

    def __init__(self, zone: int, partitions: int, leaders: Sequence[Assignment] = ()) -> None:
        self.zone = zone
        self.leaders = leaders
        """By partition, with their terms as versions."""
        self.serving: list[ZonePartition | None] = [None] * partitions
        """By partition; None: use the general path."""


@dataclass(slots=True)
class RoutedZone:
    name: str
    partitions: int
    rows: list[Assignment]
    """Per client partition: its leader, with the term as version."""
    replication: ConsensusReplication
    router: Router
    entries: ZoneEntries

    def served_by(self, partition: int) -> range:
        """Client partitions of the group of this zone's partition. Example: in a zone of 25 partitions, group 3 serves
        3, 28, 53, … of 271. Empty: none, because the zone has more partitions than that.
        """
        return range(partition, len(self.rows), self.partitions)

    def serves_maps(self, level: int) -> bool:
        """Whether no client partition is split, and all members know shared groups, at this feature level."""
        count = len(self.rows)
        return self.partitions == count or (self.partitions < count and level >= SHARED_GROUPS)


def unserved_reason(zone: RoutedZone) -> str:
    if zone.partitions > len(zone.rows):
        most = len(zone.rows)
        return (
            f"zone {zone.name!r} has {zone.partitions} partitions: maps can live in zones of at most as many as the "
            f"cluster has, {most}. Create another one: holdfast zone create NAME --partitions {most}"
        )
    return (
        f"zone {zone.name!r} has {zone.partitions} partitions, fewer than the cluster: maps can live in it when all "
        "members run the newest release, after holdfast cluster upgrade"
    )


class Executes(Protocol):
    def execute(self, request: Request, asker: Asker) -> None: ...


class MapHomes:
    """Implements `routing.gatherings.Rehoming`."""

    def __init__(self, settings: Settings, out: Outbox, other: OtherRouter, zones: Executes) -> None:
        """`other`: the router of all other maps."""
        self._settings = settings
        self._out = out
        self._other = other
        self._zones = zones
        self.zones: dict[int, RoutedZone] = {}
        self.by_name: dict[str, int] = {}
        self._some = False
        """Some map lives in a zone."""

    def change(self) -> None:
        """Settings of maps have changed, perhaps their zones: pass requests on (routing/R-13)."""
        maps = self._settings.maps
        self._some = self._settings.uses_zones
        zoned = frozenset(name for name, chosen in maps.items() if chosen.raft_zone)
        self._other.depart(zoned, self)
        for zone in self.zones.values():
            departed = frozenset(name for name, chosen in maps.items() if chosen.raft_zone != zone.name)
            zone.router.depart(departed, self)
        for router in (self._other, *(zone.router for zone in self.zones.values())):
            router.pass_on()

    def rehome(self, parked: Parked) -> None:
        request, asker = parked.request, parked.asker
        found = self.find(request) if self.holds(request) else self._other
        if asks_again(asker) or request.op is Op.PIN:
            # It is asked for again: a cut names the maps of each engine separately.
            self._other.drop(parked, NOT_HERE)
        elif parked.doubt:
            self._other.drop(parked, Outcome(Status.UNKNOWN, None, "its map was moved meanwhile"))
        elif isinstance(found, Outcome):
            self._other.drop(parked, found)
        else:
            router = found.router if isinstance(found, RoutedZone) else found
            router.adopt(parked)

    def rehome_gathering(self, gathering: Gathering) -> None:
        found = self.find(gathering.request) if self.holds(gathering.request) else self._other
        if isinstance(found, Outcome):
            self._other.gatherings.reject(gathering, found)
        else:
            router = found.router if isinstance(found, RoutedZone) else found
            router.gatherings.adopt(gathering)

    def holds(self, request: Request) -> bool:
        if _names_its_engine(request):
            return bool(request.expected)
        return request.op not in SERVED and self.houses(request.map)

    def houses(self, name: str) -> bool:
        """Whether this map lives in a zone, known or not."""
        return self._some and bool(self._settings.map(name).raft_zone)

    def zone_of(self, name: str) -> int | None:
        """The number of the map's zone; None: it lives in none that is known here."""
        return self.by_name.get(self._settings.map(name).raft_zone) if self._some else None

    def zone_problem(self, name: str) -> str:
        """Why no map can move into this zone; empty: one can."""
        number = self.by_name.get(name)
        if number is None:
            return f"there is no zone {name!r}: holdfast zone create {name}"
        zone = self.zones[number]
        return "" if zone.serves_maps(self._out.level) else unserved_reason(zone)

    def submit(self, request: Request, asker: Asker, doubt: str = "") -> None:
        """Carry out a request wherever its map lives, in a zone or not; the asker is answered once. `doubt`: why it may
        have been applied already, outside zones.
        """
        if not self.holds(request):
            self._other.execute(request, asker, doubt)
        elif doubt:
            # The zone does not know its id (routing/R-13).
            answer(self._out, asker, Outcome(Status.UNKNOWN, None, f"{doubt}; its map was moved meanwhile"))
        else:
            self._zones.execute(request, asker)

    def rejection(self, request: Request) -> Outcome | None:
        """Why the request is rejected now, wherever its map lives; None: it is not."""
        found = self.find(request) if self.holds(request) else self._other
        if isinstance(found, Outcome):
            return found
        router = found.router if isinstance(found, RoutedZone) else found
        return router.refusals.rejection(request)

    def _zone_name(self, request: Request) -> str:
        if _names_its_engine(request):
            return request.expected.decode(errors="replace")
        return self._settings.map(request.map).raft_zone

    def find(self, request: Request) -> RoutedZone | Outcome:
        """The zone that serves the request, or the response if none can."""
        if request.op in STEPS:
            zone = zone_of_engine(request.expected)
            if zone not in self.zones:
                return Outcome(Status.NOT_READY, None, f"zone {zone} is not known here")
        else:
            name = self._zone_name(request)
            zone = self.by_name.get(name, 0)
            if not zone:
                detail = f"map {request.map!r} lives in zone {name!r}, and there is none: holdfast zone create {name}"
                return Outcome(Status.NOT_READY, None, detail)
        if not self.zones[zone].serves_maps(self._out.level):
            return Outcome(Status.FAILED, None, unserved_reason(self.zones[zone]))
        if not self._out.does(STRUCTURES) and is_structure(request.map):
            return Outcome(Status.FAILED, None, NO_STRUCTURES)
        if request.max_idle_ms > 0 and not self._out.does(ZONE_IDLE_TIMES):
            return Outcome(Status.FAILED, None, NO_MAX_IDLE)
        return self.zones[zone]


def _names_its_engine(request: Request) -> bool:
    """Whether `expected` names a zone (in steps of transactions by number), or is empty for the partitions with a
    primary, whatever the map's settings say: in steps of moves and of transactions, and in questions about locks.
    """
    op = request.op
    return op in MOVING or op in STEPS or (op is Op.CONTAINS_KEY and request.map == TRANSACTIONS_MAP)
