"""The last members that hold data leave: is somebody about to take it over, and if not, which entries are gone?

A member that is started asks for admission every `JOIN_INTERVAL_NS`. With members {1} draining and 2 just started, 1
would be gone before the first request of 2 arrives, with everything it holds. So the last holders stay for a moment in
which such a request arrives; once the joiner is admitted, they hand over their partitions like any other member that
leaves. Only whether data outlives its members depends on this wait; no safety rule does.
"""

from __future__ import annotations

from collections import Counter

from holdfast.config import Settings
from holdfast.config.schema import INTERNAL
from holdfast.core.machine import Outbox
from holdfast.core.membership.joining import JOIN_INTERVAL_NS
from holdfast.core.membership.membership import Membership
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import Intent, View
from holdfast.core.primary_backup.local_replicas import LocalReplicas

JOINERS_NS = 2 * JOIN_INTERVAL_NS
"""How long the last holders of data stay for joiners: each asks at least once in that time."""


class LastHolder:
    """What a member does when no member that holds data would stay without it."""

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
        """Since when this master knows that nothing but joiners keeps the last holders."""

    def has_waited(self) -> bool:
        """As master: whether joiners have had the time to ask, if the last holders of data leave."""
        membership = self._membership
        if membership.data_members() or membership.ending or not self._at_stake():
            return True
        if self._since_ns is None:
            self._since_ns = self._out.now_ns
            self._out.timer(TimerName.PART_LOOK, JOINERS_NS)
        return self._out.now_ns - self._since_ns >= JOINERS_NS

    def _at_stake(self) -> bool:
        """Whether entries could be lost, as far as this member knows: of others it does not know what they hold."""
        membership = self._membership
        if any(membership.may_hold(info) and info.uuid != self._me for info in membership.members()):
            return True
        return any(not self._in_files(name) for name in self._led())

    def on_view(self, view: View | None) -> None:
        """Wait for joiners once more in another view; warn when this member has left with the last copies."""
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
        """How many entries users' maps have in the partitions of which this member is the primary."""
        entries: Counter[str] = Counter()
        for partition, copy in self._copies.held.items():
            if self._rows[partition].owner == self._me:
                for name, held in copy.maps.items():
                    if held.state.entries and not name.startswith(INTERNAL):
                        entries[name] += len(held.state.entries)
        return entries

    def _in_files(self, name: str) -> bool:
        return self._settings.map(name).journal != "off"
