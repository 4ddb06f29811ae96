"""What this member takes part in by consensus: its groups, the metastore, and how these hear of each other."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.config import Settings
from holdfast.core.agreed.zoned import Zoned
from holdfast.core.cluster.standing import Standing
from holdfast.core.consensus.configuration import Configuration
from holdfast.core.groups.local_groups import GroupClient, Groups, ReplicaNotice
from holdfast.core.journal.log import Log
from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.core.machine import EndTurn, Outbox
from holdfast.core.metastore.metastore import Metastore
from holdfast.core.metastore.voters import MetastoreVoters
from holdfast.core.model.ids import METASTORE_GROUP, GroupNumber, MemberId
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.model.partition_table import Assignment
from holdfast.core.replication.lane import EventSink
from holdfast.core.routing.pending import Waiting
from holdfast.core.routing.zone_routing import ZoneRouting

ROUNDS = 8
"""How often in one step what groups have told leads to something new for them; the rest is left to the next step."""


class Agreed:
    """The machines of one member that work by consensus."""

    def __init__(
        self,
        settings: Settings,
        out: Outbox,
        log: Log,
        standing: Standing,
        ears: EventSink,
        waiting: Waiting,
        rows: Sequence[Assignment],
        recovered: dict[GroupNumber, RecoveredGroup],
    ) -> None:
        """`waiting`: of the router of all other maps; `rows`: the cluster's table."""
        self._on = settings.metastore.voters > 0
        self._out = out
        self._turn_ends = False
        """Whether the end of this turn has been asked for."""
        self._standing = standing
        self.groups = Groups(standing.info, out, log, self, recovered)
        self.voters = MetastoreVoters(out, settings.metastore, standing, self.groups)
        self.metastore = Metastore(standing.me.encode(), out, self.groups)
        self.metastore.watch(self.voters)
        self.zones = ZoneRouting(standing.me, settings, out, self.groups, standing, ears, waiting, self)
        """Requests on maps that live in zones."""
        self.zoned = Zoned(out, standing, self.metastore, self.groups, self.zones, rows)
        self._departing: frozenset[str] = frozenset()

    def open_group(self, number: GroupNumber) -> GroupClient | None:
        """Whose group this is, of which another member speaks: see `GroupOpener`."""
        return self.metastore if self._on and number == METASTORE_GROUP else None

    def may_part(self, member: MemberId) -> bool:
        """Whether nothing of all this needs the member."""
        return self.voters.may_part(member) and self.zoned.may_part(member)

    def on_start(self) -> None:
        """The member comes to life: replicas that are in its files do, too."""
        if self._on and METASTORE_GROUP in self.groups.found:
            self.groups.start(METASTORE_GROUP, Configuration(), self.metastore)

    def on_view(self, notice: ViewInstalled) -> None:
        """Another view: the metastore may begin with it, and its voters follow it."""
        self.groups.on_view(notice)
        self.zones.on_view(notice)
        if not self._on:
            return
        if self.voters.begins_here(notice):
            begin = Configuration(frozenset({self.groups.me}))
            self.groups.start(METASTORE_GROUP, begin, self.metastore)
        self.voters.look()
        self.zoned.on_members()

    def on_replica(self, number: GroupNumber, notice: ReplicaNotice) -> None:
        """Something has happened to a group of a zone that has a replica here."""
        self.zoned.on_replica(number, notice)

    def gather(self) -> None:
        """A step ends that has brought a request, and others may come with it: those for groups wait for the end of the
        turn, so that they leave together.
        """
        if self._on and self.zones.dirty:
            if not self._turn_ends:
                self._turn_ends = True
                self._out.effects.append(EndTurn())
        else:
            self.flush()

    def on_turn_ended(self) -> None:
        """All that comes together has come."""
        self._turn_ends = False

    def flush(self) -> None:
        """The step ends: what it has brought goes to the groups, and what they want is carried out."""
        if not self._on:
            return
        if self.metastore.unsent:
            self.metastore.flush()
        self.groups.flush()
        for _ in range(ROUNDS):
            if not self.zones.dirty and not self.metastore.unsent:
                break
            self.metastore.flush()
            self.zones.flush([info.uuid for info in self._standing.members()])
            self.groups.flush()

    def sweep(self) -> None:
        """About half a second has passed."""
        if self._on:
            self.metastore.on_timer()
        self.zones.sweep()

    def look_at_departing(self) -> None:
        """Members may want to leave, or not any more."""
        if self._on:
            departing = frozenset(self._standing.departing)
            if departing != self._departing:
                self._departing = departing
                self.voters.look()
                self.zoned.on_members()
