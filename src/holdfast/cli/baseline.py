"""`holdfast cluster baseline`"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from holdfast.cli.answers import Answer, Done
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.orders import given_up
from holdfast.cli.rendering import Shown
from holdfast.cli.status import ask, of_baseline
from holdfast.cli.unit_types import Seconds
from holdfast.client.operator import order_cluster
from holdfast.core.membership.baseline_orders import BaselineChange
from holdfast.core.model.baseline import FIXED
from holdfast.core.model.result_columns import duration
from holdfast.wire import own

OFF = "off"
GIVES_UP = "After that the command gives up."


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


def _give(call: Call, change: BaselineChange, names: Sequence[str] = (), adjust_ms: int = FIXED) -> Done:
    with given_up():
        order_cluster(
            call.addresses,
            call.credentials.for_client(),
            own.Want.BASELINE,
            state=change.value,
            members=names,
            adjust_ms=adjust_ms,
            timeout_s=call.timeout_s,
        )
    return Done(message="the baseline is changed")


@operator_command(
    baseline,
    "set",
    timeout_s=60,
    then=GIVES_UP,
    confirms=True,
    short_help="Set the members; by default those that are present.",
)
@click.argument("names", nargs=-1, metavar="[MEMBER]...")
def set_baseline(call: Call, names: tuple[str, ...]) -> Done:
    r"""Set the baseline to exactly these members, which are present or in the baseline already. Turns automatic
    adjustment off.

    \b
      holdfast cluster baseline set
      holdfast cluster baseline set one two three --yes
    """
    call.confirm(f"Let only {', '.join(names) or 'the members that are here'} own data")
    return _give(call, BaselineChange.SET, names)


@operator_command(baseline, timeout_s=60, then=GIVES_UP, short_help="Add members.")
@click.argument("names", nargs=-1, required=True, metavar="MEMBER...")
def add(call: Call, names: tuple[str, ...]) -> Done:
    r"""Add present members to the baseline. They receive their share of the partitions.

    \b
      holdfast cluster baseline add four
    """
    return _give(call, BaselineChange.ADD, names)


@operator_command(baseline, timeout_s=60, then=GIVES_UP, confirms=True, short_help="Remove absent members.")
@click.argument("names", nargs=-1, required=True, metavar="MEMBER...")
def remove(call: Call, names: tuple[str, ...]) -> Done:
    r"""Remove absent members from the baseline. The cluster copies their data to other members.

    A present member has to leave first: holdfast member drain.

    \b
      holdfast cluster baseline remove two
    """
    call.confirm(f"Keep nothing for {', '.join(names)} any longer, and copy what they held to others")
    return _give(call, BaselineChange.REMOVE, names)


class _AfterOrOff(Seconds):
    """A time, or `off`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Seconds, or None for `off`."""
        return None if value == OFF else super().convert(value, param, ctx)


@operator_command(baseline, timeout_s=60, then=GIVES_UP, short_help="Turn automatic adjustment on or off.")
@click.argument("after_s", metavar="TIME|off", type=_AfterOrOff())
def auto(call: Call, after_s: float | None) -> Done:
    r"""Adjust the baseline to the present members, this long after the last join or leave: seconds, or 5min. 0: at
    once.

    The cluster does not adjust it while partitions wait for copies, or while its state is not active.

    \b
      holdfast cluster baseline auto 5min
      holdfast cluster baseline auto off
    """
    return _give(call, BaselineChange.AUTO, adjust_ms=FIXED if after_s is None else round(after_s * 1000))
