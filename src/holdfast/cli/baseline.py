"""`holdfast cluster baseline`"""

from __future__ import annotations

from collections.abc import Iterable

import click
import msgspec

from holdfast.cli.action_commands import add_actions
from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.rendering import Shown
from holdfast.cli.status import Status, ask, of_baseline
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


class BaselineMember(msgspec.Struct):
    """A member of the baseline; without a UUID it is absent."""

    consistent_id: str
    group: str
    uuid: str
    away: bool

    def __str__(self) -> str:
        state = "here" if self.uuid else "away, its places are kept" if self.away else "not here"
        return f"{self.consistent_id}: {state}"


class Baseline(msgspec.Struct):
    """The members that own data, their history, and the next adjustment."""

    members: list[BaselineMember]
    outside: list[str]
    adjust_ms: int | None
    adjusts_in_ms: int | None
    changes: int
    history: list[str]


class BaselineShown(Answer):
    """The baseline; null if the cluster has none."""

    baseline: Baseline | None

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
        return lines + list(of_baseline({"baseline": msgspec.to_builtins(found)}))


def shown(seen: Status) -> BaselineShown:
    """The baseline in a status."""
    return msgspec.convert({"baseline": seen.get("baseline")}, BaselineShown)


@operator_command(baseline, short_help="Show its members, absent ones, and the next adjustment.")
def show(call: Call) -> BaselineShown:
    r"""Show the baseline, its history, and when and why it will be adjusted.

    \b
      holdfast cluster baseline show
    """
    return shown(ask(call.address, call.credentials))


add_actions(baseline, "cluster baseline")
