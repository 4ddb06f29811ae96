"""Change settings of running members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import Declaration, Name, ProcessAction, Target
from holdfast.config.permissions import Action
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.core.member_view import MemberView

SETTINGS_MAX = 1000


class Configure(ProcessAction, frozen=True):
    r"""Change settings of running members; of all members unless --member names some. The change lasts until the
    process ends: for the next start write it into the file, too. `holdfast status --json` shows the values.

    Only settings that `holdfast config` marks as changeable can be changed; for others the error tells what to do.

    \b
      holdfast config set limits.connections=2000 limits.memory_bytes=8G --member two
    """

    declared = Declaration(
        "configure",
        Action.CONFIGURE,
        "config set",
        "Change settings of running members.",
        target=Target.SOME,
        timeout_s=10,
        withdrawn=True,
        at_timeout="Each member changes all of these settings at once, or none.",
    )

    settings: Annotated[
        dict[Name, Name],
        Meta(
            max_length=SETTINGS_MAX,
            description="Dotted key and value, as in the environment.",
            extra={"argument": "SECTION.KEY=VALUE", "reads": "settings"},
        ),
    ]

    def carry_out(self, process: MemberProcess) -> None:
        if not self.settings:
            raise Refused("name at least one setting")
        process.change_settings(self.settings)

    def done_text(self, view: MemberView) -> str:
        return "has " + " ".join(f"{dotted}={value}" for dotted, value in self.settings.items())
