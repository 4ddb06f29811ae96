"""`holdfast cluster baseline`"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from holdfast.cli.action_commands import add_actions
from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.rendering import Shown
from holdfast.cli.status import ask, of_baseline
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
    """The baseline with its history and the next adjustment; null if the cluster has none."""

    baseline: dict[str, Any] | None

    def view(self) -> Iterable[Shown]:
        found = self.baseline
        if not found:
            return ["no baseline: every member owns data as soon as it joins"]
        adjust_ms = found["adjust_ms"]
        auto = "off" if adjust_ms is None else f"{duration(adjust_ms / 1000)} after the last join or leave"
        lines = [f"auto-adjust: {auto}", f"changed {found['changes']} times, last to {found['history'][-1]}"]
        for each in found["members"]:
            state = "here" if each["uuid"] else "away, its places are kept" if each["away"] else "not here"
            lines.append(f"  {each['consistent_id']}: {state}")
        return lines + list(of_baseline({"baseline": found}))


@operator_command(baseline, short_help="Show its members, absent ones, and the next adjustment.")
def show(call: Call) -> BaselineShown:
    r"""Show the baseline, its history, and when and why it will be adjusted.

    \b
      holdfast cluster baseline show
    """
    return BaselineShown(baseline=ask(call.address, call.credentials).get("baseline"))


add_actions(baseline, "cluster baseline")
