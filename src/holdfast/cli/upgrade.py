"""`holdfast cluster upgrade`"""

from __future__ import annotations

import sys

import click

from holdfast.cli.addresses import address_option
from holdfast.cli.answers import json_option, tell_json
from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.orders import EXIT_FAILED, timeout_option
from holdfast.cli.status import Status, ask
from holdfast.client.operator import order_cluster
from holdfast.client.routing import parse_addresses
from holdfast.errors import HoldfastError
from holdfast.wire import own


@click.command("upgrade", short_help="Raise the feature level after a rolling upgrade.")
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
@address_option
@timeout_option(60, "After that the command gives up.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@credentials
def upgrade(
    *,
    level: int | None,
    show: bool,
    address: str,
    timeout_s: float,
    yes: bool,
    as_json: bool,
    credentials: Credentials,
) -> None:
    r"""Raise the feature level of the cluster after all members run a newer version, so that they use its new
    features.

    Before this command you can downgrade members one by one; afterwards you cannot, and the cluster rejects members
    that do not support the level.

    \b
      holdfast cluster upgrade --show
      holdfast cluster upgrade --yes
    """
    try:
        seen = ask(address, credentials)
    except HoldfastError as failed:
        print(failed, file=sys.stderr)
        sys.exit(EXIT_FAILED)
    if show:
        tell_json(_plain(seen)) if as_json else print("\n".join(shown(seen)))
        return
    before = seen["level"]["in_force"]
    wanted = level or seen["level"]["possible"]
    if wanted == before:
        _tell(
            before,
            f"the cluster is at feature level {before} already, the highest that all members can do",
            as_json,
        )
        return
    if not yes:
        click.confirm(
            f"Raise the feature level from {before} to {wanted}? Older versions cannot be used afterwards",
            abort=True,
            err=True,
        )
    addresses = parse_addresses(address)
    order_cluster(addresses, credentials.for_client(), own.Want.LEVEL, level=wanted, timeout_s=timeout_s)
    _tell(wanted, f"the cluster is at feature level {wanted}", as_json)


def _tell(level: int, told: str, as_json: bool) -> None:
    tell_json({"level": level}) if as_json else print(told)


def _plain(seen: Status) -> dict[str, object]:
    told = ("name", "uuid", "version", "levels")
    return {
        "level": seen["level"],
        "members": [{name: member[name] for name in told} for member in seen["members"]],
    }


def shown(seen: Status) -> list[str]:
    """The level in force and the levels that each member supports, as lines."""
    level = seen["level"]
    lines = [
        f"feature level {level['in_force']} in force; all members can do {level['possible'] or 'no other'}"
    ]
    for member in seen["members"]:
        lowest, highest = member["levels"]
        can = f"level {lowest}" if lowest == highest else f"levels {lowest} to {highest}"
        lines.append(f"  {member['name']}: Holdfast {member['version'] or 'of unknown version'}, {can}")
    return lines
