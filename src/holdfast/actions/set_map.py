"""Change settings of a map while it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import (
    Declaration,
    Name,
    OperatorAction,
    must_be_member,
    must_not_shut_down,
    silent_members,
)
from holdfast.config.permissions import Action
from holdfast.errors import ConfigError, Refused

if TYPE_CHECKING:
    from holdfast.core.member import Member
    from holdfast.core.member_view import MemberView
    from holdfast.core.model.map_changes import MapOrder

SETTINGS_MAX = 16


class SetMap(OperatorAction, frozen=True):
    r"""Change settings of a map while it is used, on all members or on none. The changed settings are kept through
    restarts, and win over the configuration files.

    backups, async_backups, ttl and max_idle can be changed. NAME is a map, or default for all maps without settings
    of their own. A new ttl or max_idle applies to entries that are stored from then on. More backups are made, or
    copies dropped, while the map is used; the command returns when that is complete.

    \b
      holdfast map set flights backups=2 ttl=1h
      holdfast map set default max_idle=30min -a 127.0.0.1:5702
    """

    declared = Declaration(
        "set-map",
        Action.CONFIGURE,
        "map set",
        "Change settings of a map while it is used.",
        timeout_s=600,
        repeat_s=1,
        at_timeout="After that the cluster continues with the change if all members have accepted it.",
    )

    name: Annotated[Name, Meta(description="The map, or `default`.", extra={"argument": "NAME"})]
    settings: Annotated[
        dict[Name, Name],
        Meta(
            max_length=SETTINGS_MAX,
            description="Setting and value: `backups=2`, `ttl=1h`.",
            extra={"argument": "SETTING=VALUE", "reads": "pairs"},
        ),
    ]

    def problem(self, partitions: int) -> str:
        if not self.settings:
            return "name at least one setting, such as backups=2"
        try:
            self.values()
        except ConfigError as error:
            return str(error)
        return ""

    def values(self) -> dict[str, int]:
        """The settings as they are stored. Raises ConfigError."""
        from holdfast.config.loading import map_values

        return map_values(self.name, self.settings)

    def check(self, view: MemberView, process: MemberProcess) -> None:
        must_be_member(view)
        must_not_shut_down(view)
        from holdfast.config.loading import check_map
        from holdfast.core.model.map_changes import targets

        check_map(targets(process.settings, view.maps.changes), self.name, self.values())

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        member.membership.map_orders.order(self._order())

    def _order(self) -> MapOrder:
        from holdfast.core.model.map_changes import MapOrder

        return MapOrder(self.name, self.values())

    def waits_for(self, view: MemberView) -> str:
        must_not_shut_down(view)
        change = view.maps.changes.find(self.name)
        order = self._order()
        if change is None or not order.is_in(view.maps.changes):
            if why := view.maps.refusal_of(order, view.now_ns):
                raise Refused(f"nothing was changed: {why}")
            return "not every member has accepted it" + silent_members(view)
        if not change.done:
            return (
                f"copies of {self.name} are being made or dropped: {view.cluster_unsafe_reason() or 'wait'}"
            )
        return "" if view.known_by_all else "not every member has confirmed it" + silent_members(view)

    def done_text(self, view: MemberView) -> str:
        return f"{self.name} has " + " ".join(f"{key}={value}" for key, value in self.settings.items())
