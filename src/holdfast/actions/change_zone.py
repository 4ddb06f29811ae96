"""Create, alter, rename, drop and reset zones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.actions.operator_action import (
    OUTCOME_UNKNOWN,
    PARTITIONS_MAX,
    AnsweredAction,
    Declaration,
    Listed,
    Needed,
    Partition,
)
from holdfast.config.permissions import Action, Kind
from holdfast.core.model.zone_answers import NEVER, ZoneChanged
from holdfast.core.zones import descriptors
from holdfast.core.zones.descriptors import Adjustment, PlacementKind, ZoneRefused, node_filter
from holdfast.core.zones.transitions import Consistency

if TYPE_CHECKING:
    from holdfast.core.member import Member
    from holdfast.core.model.member_status import MemberStatus
    from holdfast.core.zones.zone_orders import ZoneOrders

ZoneName = Annotated[str, Meta(max_length=256)]
Count = Annotated[int, Meta(ge=1, le=descriptors.REPLICAS_MOST)]
Delay = Annotated[int, Meta(ge=0, le=descriptors.NEVER)] | Literal["never"]
"""Whole seconds, or `never`."""
NUMBER = {"metavar": "N"}
TIME = {"metavar": "TIME|never", "reads": "delay"}


class _ChangeZone(AnsweredAction, frozen=True):
    """Base of the changes, which the metastore decides."""

    name: Annotated[ZoneName, Meta(description="The zone.", extra={"argument": "NAME"})]

    def needs(self) -> list[Needed]:
        return [Needed(self.declared.permission, self.declared.kind, self.name)]

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        if (advised := member.agreed.advised(reply)) is not None:
            self.order(member.agreed.zone_orders, advised)

    def order(self, orders: ZoneOrders, reply: Callable[[object], None]) -> None:
        """Give the order to the metastore."""
        raise NotImplementedError

    def unfinished_reason(self) -> str:
        return (
            "the metastore has not answered; the change may be made, or not: check it with holdfast zone list"
        )


def _declared(action: Action, summary: str) -> Declaration:
    return Declaration(
        f"{action}-zone",
        action,
        f"zone {action}",
        summary,
        timeout_s=30,
        kind=Kind.ZONE,
        sent_once=True,
        at_timeout=OUTCOME_UNKNOWN,
    )


class _ZoneSettings(_ChangeZone, frozen=True):
    """Base of the changes of settings."""

    result = ZoneChanged

    replicas: Annotated[Count | None, Meta(description="Of each partition.  [1]", extra=NUMBER)] = None
    quorum: Annotated[
        Count | None,
        Meta(description="Voters that must be available.  [1 of 1, 2 of up to 4, else 3]", extra=NUMBER),
    ] = None
    filter: Annotated[
        Annotated[str, Meta(max_length=4096)] | None,
        Meta(
            description="Members that may hold replicas, as group=a|b, host=c. Empty: all.",
            extra={"metavar": "FILTER"},
        ),
    ] = None
    scale_up_s: Annotated[
        Delay | None,
        Meta(description="Delay before new members receive replicas, or never.  [0]", extra=TIME),
    ] = None
    scale_down_s: Annotated[
        Delay | None,
        Meta(description="Delay before replicas of lost members are replaced, or never.  [5min]", extra=TIME),
    ] = None
    reset_after_s: Annotated[
        Delay | None,
        Meta(
            description="With ha: delay before a partition continues without its majority.  [0]", extra=TIME
        ),
    ] = None
    adjustment: Annotated[
        Adjustment | None,
        Meta(
            description="Whether a running move is finished (replace) or cancelled when the target changes.  [replace]"
        ),
    ] = None
    placement: Annotated[PlacementKind | None, Meta(description="Placement of replicas.  [rendezvous]")] = (
        None
    )

    def problem(self, partitions: int) -> str:
        try:
            self.settings()
        except ZoneRefused as error:
            return f"zone {self.name}: {error}"
        return ""

    def settings(self) -> dict[str, object]:
        """The settings that are given, as `ZoneSettings` has them. Raises ZoneRefused."""
        found: dict[str, Any] = {
            name: descriptors.NEVER if value == NEVER else value
            for name, value in msgspec.structs.asdict(self).items()
            if name != "name" and value is not None
        }
        if "filter" in found:
            found["filter"] = node_filter(found["filter"])
        return found


class CreateZone(_ZoneSettings, frozen=True):
    r"""Create the zone NAME. Its partitions are placed on the present members at once.

    \b
      holdfast zone create orders --replicas 3
      holdfast zone create cache --replicas 3 --consistency ha --scale-down-s 1min
    """

    declared = _declared(Action.CREATE, "Create a zone.")

    partitions: Annotated[
        Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)] | None,
        Meta(
            description="At most as many as the cluster. Cannot be changed later.  [default: as many as the cluster]",
            extra=NUMBER,
        ),
    ] = None
    consistency: Annotated[
        Consistency | None,
        Meta(
            description="strong: wait for a lost majority; ha: continue without it. Cannot be changed later.  [strong]"
        ),
    ] = None

    def order(self, orders: ZoneOrders, reply: Callable[[object], None]) -> None:
        orders.create(self.name, self.settings(), reply)

    def answer_text(self, answer: ZoneChanged) -> str:
        return f"zone {self.name} is created: {answer.partitions} partitions, {answer.replicas} replicas"


class AlterZone(_ZoneSettings, frozen=True):
    r"""Change settings of the zone NAME. Replicas move while the zone is in use. The number of partitions and the
    consistency cannot be changed.

    \b
      holdfast zone alter orders --replicas 5
    """

    declared = _declared(Action.ALTER, "Change settings of a zone.")

    def problem(self, partitions: int) -> str:
        return super().problem(partitions) or (
            "" if self.settings() else "name at least one setting to alter, such as replicas"
        )

    def order(self, orders: ZoneOrders, reply: Callable[[object], None]) -> None:
        orders.alter(self.name, self.settings(), reply)

    def answer_text(self, answer: ZoneChanged) -> str:
        return f"zone {self.name} is altered"


class RenameZone(_ChangeZone, frozen=True):
    r"""Rename the zone NAME to NEW_NAME. Maps refer to their zone by name (maps.NAME.raft_zone): a map that still uses
    the old name has no zone.

    \b
      holdfast zone rename orders sales
    """

    declared = _declared(Action.RENAME, "Rename a zone.")

    wanted: Annotated[ZoneName, Meta(description="The new name.", extra={"argument": "NEW_NAME"})]

    def needs(self) -> list[Needed]:
        return [Needed(Action.RENAME, Kind.ZONE, name) for name in (self.name, self.wanted)]

    def order(self, orders: ZoneOrders, reply: Callable[[object], None]) -> None:
        orders.rename(self.name, self.wanted, reply)

    def answer_text(self, answer: None) -> str:
        return f"zone {self.name} is called {self.wanted} now"


class DropZone(_ChangeZone, frozen=True):
    r"""Drop the zone NAME. All entries of its maps are gone.

    \b
      holdfast zone drop orders
    """

    declared = _declared(Action.DROP, "Drop a zone and all its data.")

    def question(self, seen: MemberStatus) -> str:
        return f"Drop zone {self.name}, with all entries of the maps in it?"

    def order(self, orders: ZoneOrders, reply: Callable[[object], None]) -> None:
        orders.drop(self.name, reply)

    def answer_text(self, answer: None) -> str:
        return f"zone {self.name} is dropped, with everything in it"


class ResetZone(_ChangeZone, frozen=True):
    r"""Let partitions of the zone NAME that have lost their majority for good continue with the remaining replicas.

    Partitions with a majority are not changed. Acknowledged writes that only the lost members had are lost.

    \b
      holdfast zone reset orders --partition 17
    """

    declared = _declared(Action.RESET, "Continue without a lost majority. Its last writes are lost.")

    partitions: Annotated[
        Listed[Partition],
        Meta(
            description="Only this partition; may be repeated.",
            extra={"option": "--partition", "metavar": "N"},
        ),
    ] = []

    def question(self, seen: MemberStatus) -> str:
        return (
            f"Discard data of zone {self.name} that only lost members have? Acknowledged writes may be lost"
        )

    def order(self, orders: ZoneOrders, reply: Callable[[object], None]) -> None:
        orders.reset(self.name, self.partitions, reply)

    def answer_text(self, answer: None) -> str:
        named = ", ".join(map(str, sorted(set(self.partitions))))
        return (
            f"zone {self.name}: {f'partitions {named}' if named else 'all partitions'} without a majority continue "
            f"with the replicas that are left (holdfast zone show {self.name})"
        )
