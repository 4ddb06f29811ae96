"""Feature levels, as `holdfast cluster upgrade --show` prints them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call
from holdfast.cli.rendering import Shown
from holdfast.core.model.member_status import FeatureLevel, MemberStatus


class MemberLevels(msgspec.Struct, frozen=True):
    """The version of a member, and its lowest and highest feature level."""

    name: str
    uuid: str
    version: str
    levels: list[int]


class Levels(Answer):
    """With --show: the feature level, and the levels of each member."""

    level: FeatureLevel
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


def levels_of(seen: MemberStatus) -> Levels:
    """The levels that a status names."""
    rows = [MemberLevels(one.name, one.uuid, one.version, one.levels) for one in seen.members]
    return Levels(level=seen.level, members=rows)


def show_levels(call: Call) -> Levels:
    """Show the level in force, and the levels that each member supports."""
    return levels_of(call.status())
