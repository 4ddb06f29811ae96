"""`holdfast cluster baseline`"""

from __future__ import annotations

from collections.abc import Iterable

import click

from holdfast.cli.action_commands import add_actions
from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.rendering import Shown
from holdfast.cli.status import of_baseline
from holdfast.core.model.member_status import BaselineStatus
from holdfast.core.model.result_columns import duration


@click.group("baseline", short_help="Manage the members that own data, even while they are away.")
def baseline() -> None:
    r"""Manage the baseline: the named set of members that own data. Without one, every member owns data as soon as it
    joins.

    While a member of the baseline is away, the cluster does not copy its data elsewhere: backups serve it, and the
    member receives the missed updates when it returns. A member outside the baseline holds no data. Name members as
    `show` lists them: by member.name, or, without one, by the id of their files.

    \b
      holdfast cluster baseline add four
      holdfast cluster baseline auto 5min
    """


class BaselineShown(Answer):
    """The baseline; null if the cluster has none."""

    baseline: BaselineStatus | None

    def view(self) -> Iterable[Shown]:
        found = self.baseline
        if found is None:
            return ["no baseline: every member owns data as soon as it joins"]
        after = (
            "off"
            if found.adjust_ms is None
            else f"{duration(found.adjust_ms / 1000)} after the last join or leave"
        )
        lines = [f"auto-adjust: {after}", f"changed {found.changes} times, last to {found.history[-1]}"]
        lines += [f"  {each}" for each in found.members]
        return lines + list(of_baseline(found))


@operator_command(baseline, short_help="Show its members, absent ones, and the next adjustment.")
def show(call: Call) -> BaselineShown:
    r"""Show the baseline, its history, and when and why it will be adjusted.

    \b
      holdfast cluster baseline show
    """
    return BaselineShown(baseline=call.status().baseline)


add_actions(baseline, "cluster baseline")
