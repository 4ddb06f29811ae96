"""Keep the members of the cluster in the metastore, for the zones.

- zones/Z-1: The member that leads the metastore's group writes the members of the cluster into the metastore, and never
  an older view over a newer one.

Example: member 1 leads in view 7, and is cut off while 2 is elected and writes view 8. When 1 leads again with view 7,
it reads 8 in the metastore and writes nothing. The write is conditional on what was read.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.config.addresses import format_address
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.metastore.invoke import Invoked, MetastoreEntry, PutKey
from holdfast.core.metastore.metastore import Metastore
from holdfast.core.model.ids import METASTORE_GROUP
from holdfast.core.model.views import View
from holdfast.core.multiraft.group_host import GroupHost, node_of
from holdfast.core.zones.assignments import Node
from holdfast.core.zones.data_nodes import data_nodes_of
from holdfast.core.zones.descriptors import ClusterTopology, DataMember, MemberPlace
from holdfast.core.zones.zone_keys import (
    PLACES_KEY,
    TOPOLOGY_KEY,
    ZONE_PREFIX,
    KeysRead,
    encoded,
    zone_of,
)
from holdfast.errors import RequestError


class TopologyWriter:
    """Reads the topology in the metastore, and replaces it if it is outdated. One request at a time."""

    def __init__(self, status: MembershipStatus, metastore: Metastore, groups: GroupHost) -> None:
        self._status = status
        self._metastore = metastore
        self._groups = groups
        self._leading = False
        self._ticket: int | None = None
        self._stale = False
        """The members have changed since the topology was made."""

    @property
    def leads(self) -> bool:
        return self._leading and self._groups.term(METASTORE_GROUP) is not None

    def on_leading(self, term: int | None) -> None:
        self._leading = term is not None
        self.on_members()

    def on_members(self) -> None:
        """The view or the intents of its members have changed."""
        self._stale = True
        if self.leads and self._status.view is not None and self._ticket is None:
            self._ticket = self._metastore.read([TOPOLOGY_KEY, PLACES_KEY], self)

    def on_read(self, ticket: int, entries: list[MetastoreEntry], revision: int) -> None:
        self._ticket = None
        self._write(entries, revision)

    def on_invoked(self, ticket: int, invoked: Invoked) -> None:
        """Try again if the condition failed, or if the members have changed since."""
        self._ticket = None
        if self._stale or not invoked.answer:
            self.on_members()

    def on_failed(self, ticket: int, error: RequestError) -> None:
        self._ticket = None
        self.on_members()

    def _write(self, entries: Sequence[MetastoreEntry], revision: int) -> None:
        view = self._status.view
        if not self.leads or view is None:
            return
        read = KeysRead(entries, revision)
        known = read.value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology()
        self._stale = False
        if known.view > view.number:
            return
        wanted, places = self._topology(view), read.value(PLACES_KEY, dict[Node, MemberPlace]) or {}
        wanted_places = self._places(view, places)
        changes = [PutKey(TOPOLOGY_KEY, encoded(wanted))] if known != wanted else []
        changes += [PutKey(PLACES_KEY, encoded(wanted_places))] if places != wanted_places else []
        if changes:
            self._ticket = self._metastore.invoke(read.guarded(changes), self)

    def _topology(self, view: View) -> ClusterTopology:
        departing = self._status.departing
        members = [
            DataMember(node_of(info), info.group, info.described())
            for info in view.members
            if view.may_hold(info)
        ]
        leaving = sorted(node_of(info) for info in view.members if info.uuid in departing)
        members.sort(key=lambda member: member.node)
        return ClusterTopology(view.number, tuple(members), tuple(leaving))

    def _places(self, view: View, known: dict[Node, MemberPlace]) -> dict[Node, MemberPlace]:
        """Places of all members, and of those that have gone and are still data nodes of a zone (zones/A-28)."""
        entries = self._metastore.scan(ZONE_PREFIX)
        zones = sorted({named[0] for entry in entries if (named := zone_of(entry.key)) is not None})
        read = KeysRead(entries)
        awaited = {node for zone in zones for node in data_nodes_of(read, zone).latest}
        here = {
            node_of(info): MemberPlace(info.name, format_address(info.host, info.port))
            for info in view.members
        }
        return {node: place for node, place in known.items() if node in awaited} | here
