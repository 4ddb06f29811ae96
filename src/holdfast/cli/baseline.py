"""`holdfast cluster baseline`"""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.cli.addresses import address_option
from holdfast.cli.answers import json_option, tell_json
from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.orders import given_up, timeout_option
from holdfast.cli.status import Status, ask, of_baseline
from holdfast.client.operator import order_cluster
from holdfast.client.routing import parse_addresses
from holdfast.core.membership.baseline_orders import BaselineChange
from holdfast.core.model.baseline import FIXED
from holdfast.wire import own

OFF = "off"
SECONDS_MAX = 86_400

yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
order_timeout = timeout_option(60, "After that the command gives up.")


@click.group("baseline", short_help="Manage the members that own data, even while they are away.")
def baseline() -> None:
    r"""Manage the baseline: the named set of members that own data. Without one, every member owns data as soon as it
    joins.

    A member outside the baseline holds no data, and serves clients. While a member of the baseline is away, the
    cluster does not copy its data elsewhere: backups serve it. When the member returns with its files, it receives
    the updates that it missed.

    \b
      holdfast cluster baseline show
      holdfast cluster baseline set                  exactly the present members
      holdfast cluster baseline add four             add a member
      holdfast cluster baseline remove two           remove an absent member
      holdfast cluster baseline auto 300             follow the members, 300 s after each change

    Name members as `show` lists them: by member.name, or, without one, by the id of their files.
    """


@baseline.command(short_help="Show its members, absent ones, and the next adjustment.")
@address_option
@json_option
@credentials
def show(*, address: str, as_json: bool, credentials: Credentials) -> None:
    """Show the baseline, its history, and when and why it will be adjusted."""
    seen = ask(address, credentials)
    if as_json:
        tell_json({"baseline": seen.get("baseline")})
        return
    for line in shown(seen):
        print(line)


def shown(seen: Status) -> list[str]:
    """The baseline, as this status tells it, in lines."""
    told = seen.get("baseline")
    if not told:
        return ["no baseline: every member owns data as soon as it joins"]
    adjust_ms = told["adjust_ms"]
    auto = "off" if adjust_ms is None else f"{adjust_ms / 1000:g} s after the last join or leave"
    lines = [f"auto-adjust: {auto}", f"changed {told['changes']} times, last to {told['history'][-1]}"]
    for each in told["members"]:
        how = "here" if each["uuid"] else "away, its places are kept" if each["away"] else "not here"
        lines.append(f"  {each['consistent_id']}: {how}")
    return lines + list(of_baseline(seen))


def _give(
    change: BaselineChange,
    address: str,
    timeout_s: float,
    known: Credentials,
    names: Sequence[str] = (),
    adjust_ms: int = FIXED,
    *,
    as_json: bool,
) -> None:
    addresses = parse_addresses(address)
    with given_up():
        order_cluster(
            addresses,
            known.for_client(),
            own.Want.BASELINE,
            state=change.value,
            members=names,
            adjust_ms=adjust_ms,
            timeout_s=timeout_s,
        )
    told = "the baseline is changed"
    tell_json({"done": True, "message": told}) if as_json else print(told)


@baseline.command("set", short_help="Set the members; by default those that are present.")
@click.argument("names", nargs=-1, metavar="[MEMBER]...")
@address_option
@order_timeout
@yes_option
@json_option
@credentials
def set_baseline(
    names: tuple[str, ...],
    *,
    address: str,
    timeout_s: float,
    yes: bool,
    as_json: bool,
    credentials: Credentials,
) -> None:
    r"""Set the baseline to exactly these members, which are present or in the baseline already. Turns automatic
    adjustment off.

    \b
      holdfast cluster baseline set
      holdfast cluster baseline set one two three --yes
    """
    _confirm(yes, f"Let only {', '.join(names) or 'the members that are here'} own data")
    _give(BaselineChange.SET, address, timeout_s, credentials, names, as_json=as_json)


@baseline.command(short_help="Add members.")
@click.argument("names", nargs=-1, required=True, metavar="MEMBER...")
@address_option
@order_timeout
@json_option
@credentials
def add(
    names: tuple[str, ...], *, address: str, timeout_s: float, as_json: bool, credentials: Credentials
) -> None:
    r"""Add present members to the baseline. They receive their share of the partitions.

    \b
      holdfast cluster baseline add four
    """
    _give(BaselineChange.ADD, address, timeout_s, credentials, names, as_json=as_json)


@baseline.command(short_help="Remove absent members.")
@click.argument("names", nargs=-1, required=True, metavar="MEMBER...")
@address_option
@order_timeout
@yes_option
@json_option
@credentials
def remove(
    names: tuple[str, ...],
    *,
    address: str,
    timeout_s: float,
    yes: bool,
    as_json: bool,
    credentials: Credentials,
) -> None:
    r"""Remove absent members from the baseline. The cluster copies their data to other members.

    A present member has to leave first: holdfast member drain.

    \b
      holdfast cluster baseline remove two
    """
    _confirm(yes, f"Keep nothing for {', '.join(names)} any longer, and copy what they held to others")
    _give(BaselineChange.REMOVE, address, timeout_s, credentials, names, as_json=as_json)


@baseline.command(short_help="Turn automatic adjustment on or off.")
@click.argument("after", metavar="SECONDS|off")
@address_option
@order_timeout
@json_option
@credentials
def auto(after: str, *, address: str, timeout_s: float, as_json: bool, credentials: Credentials) -> None:
    r"""Adjust the baseline to the present members, this many seconds after the last join or leave. 0: at once.

    The cluster does not adjust it while partitions wait for copies, or while its state is not active.

    \b
      holdfast cluster baseline auto 300
      holdfast cluster baseline auto off
    """
    _give(
        BaselineChange.AUTO, address, timeout_s, credentials, adjust_ms=_milliseconds(after), as_json=as_json
    )


def _milliseconds(after: str) -> int:
    if after == OFF:
        return FIXED
    if not after.isdecimal() or len(after) > len(str(SECONDS_MAX)) or int(after) > SECONDS_MAX:
        raise click.BadParameter(f"{after!r} is neither {OFF!r} nor a number of seconds up to {SECONDS_MAX}")
    return 1000 * int(after)


def _confirm(yes: bool, what: str) -> None:
    if not yes:
        click.confirm(what, abort=True, err=True)
