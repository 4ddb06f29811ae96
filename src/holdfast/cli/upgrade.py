"""`holdfast cluster upgrade`"""

from __future__ import annotations

from collections.abc import Iterable

import click
import msgspec

from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.rendering import Shown
from holdfast.cli.status import Status, ask
from holdfast.client.operator import order_cluster
from holdfast.wire import own


class Upgraded(Answer):
    """The feature level that is in force."""

    level: int
    changed: bool

    def view(self) -> Iterable[Shown]:
        if self.changed:
            yield f"the cluster is at feature level {self.level}"
        else:
            yield (
                f"the cluster is at feature level {self.level} already, the highest that all members support"
            )


class Level(msgspec.Struct, frozen=True):
    """The feature level in force, and the highest that all members support; 0 if there is none."""

    in_force: int
    possible: int


class MemberLevels(msgspec.Struct, frozen=True):
    """The version of a member, and its lowest and highest feature level."""

    name: str
    uuid: str
    version: str | None
    levels: tuple[int, int]


class Levels(Answer):
    """With --show: the feature level, and the levels of each member."""

    level: Level
    members: list[MemberLevels]

    def view(self) -> Iterable[Shown]:
        yield (
            f"feature level {self.level.in_force} in force; all members support "
            f"{self.level.possible or 'no other'}"
        )
        for member in self.members:
            lowest, highest = member.levels
            levels = f"level {lowest}" if lowest == highest else f"levels {lowest} to {highest}"
            yield f"  {member.name}: Holdfast {member.version or 'of unknown version'}, {levels}"


def levels_of(seen: Status) -> Levels:
    """The levels that a status names."""
    return msgspec.convert({"level": seen["level"], "members": seen["members"]}, Levels)


@operator_command(
    name="upgrade",
    timeout_s=60,
    then="After that the command gives up.",
    confirms=True,
    short_help="Raise the feature level after a rolling upgrade.",
)
@click.option(
    "--level",
    type=click.IntRange(1),
    default=None,
    metavar="N",
    help="The feature level. Default: the highest that all members support.",
)
@click.option(
    "--show", is_flag=True, help="Only show the level in force and the levels that each member supports."
)
def upgrade(call: Call, *, level: int | None, show: bool) -> Upgraded | Levels:
    r"""Raise the feature level of the cluster after all members run a newer version, so that they use its new
    features.

    Before this command you can downgrade members one by one; afterwards you cannot, and the cluster rejects members
    that do not support the level.

    \b
      holdfast cluster upgrade --show
      holdfast cluster upgrade --yes
    """
    seen = ask(call.address, call.credentials)
    if show:
        return levels_of(seen)
    before = seen["level"]["in_force"]
    wanted = level or seen["level"]["possible"]
    if wanted == before:
        return Upgraded(level=before, changed=False)
    call.confirm(
        f"Raise the feature level from {before} to {wanted}? Older versions cannot be used afterwards"
    )
    order_cluster(
        call.addresses,
        call.credentials.for_client(),
        own.Want.LEVEL,
        level=wanted,
        timeout_s=call.timeout_s,
    )
    return Upgraded(level=wanted, changed=True)
