"""Departure of the last members that hold data: they wait for a joiner to take over, and warn of lost entries.

A process that starts asks for admission every `JOIN_INTERVAL_NS`. Example: 1 is the only member and drains, and 2 has
just started. Without a wait 1 would be gone, with all the data, before the first request of 2 arrives. Safety does not
depend on this wait.
"""

from __future__ import annotations

from collections import Counter

from holdfast.config import Settings
from holdfast.core.membership.joining import JOIN_INTERVAL_NS
from holdfast.core.membership.membership import Membership
from holdfast.core.model.ids import MemberId
from holdfast.core.model.object_names import is_internal
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import Intent, View
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.local_replicas import LocalReplicas

JOINERS_NS = 2 * JOIN_INTERVAL_NS
"""Each joiner asks at least once in that time."""


class LastHolder:
    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        rows: list[Assignment],
        membership: Membership,
        copies: LocalReplicas,
    ) -> None:
        self._me = me
        self._settings = settings
        self._out = out
        self._rows = rows
        self._membership = membership
        self._copies = copies
        self._since_ns: int | None = None
        """As master: since when only this wait keeps the last holders."""

    def has_waited(self) -> bool:
        """As master: joiners have had the time to ask, if the last holders leave."""
        membership = self._membership
        if membership.data_members() or membership.ending or not self._at_stake():
            return True
        if self._since_ns is None:
            self._since_ns = self._out.now_ns
            self._out.timer(TimerName.PART_LOOK, JOINERS_NS)
        return self._out.now_ns - self._since_ns >= JOINERS_NS

    def _at_stake(self) -> bool:
        """Whether entries could be lost. Other members count as holding entries, because that is unknown
        here.
        """
        membership = self._membership
        if any(membership.may_hold(info) and info.uuid != self._me for info in membership.members()):
            return True
        return any(not self._in_files(name) for name in self._led())

    def on_view(self, view: View | None) -> None:
        """Start the wait again; warn if this member has left with the last copies."""
        self._since_ns = None
        membership = self._membership
        if view is None or self._me not in view.left or view.ending:
            return
        if any(
            view.may_hold(info) and membership.intents.of(info.uuid) is not Intent.LEAVE
            for info in view.members
        ):
            return
        led = self._led()
        lost = {name: count for name, count in led.items() if not self._in_files(name)}
        kept = sorted(led.keys() - lost.keys())
        if lost:
            fields: dict[str, object] = {"entries": sum(lost.values()), "maps": sorted(lost)}
            if kept:
                fields |= {"kept": kept, "in": self._settings.persistence.directory}
            self._out.note("last data member leaves: entries are lost", level="warning", **fields)

    def _led(self) -> Counter[str]:
        """Entries of users' maps and collections in the partitions whose primary is this member."""
        entries: Counter[str] = Counter()
        for partition, copy in self._copies.held.items():
            if self._rows[partition].owner == self._me:
                for name, held in copy.maps.items():
                    if held.state.entries and not is_internal(name):
                        entries[name] += len(held.state.entries)
        return entries

    def _in_files(self, name: str) -> bool:
        return self._settings.map(name).journal != "off"
