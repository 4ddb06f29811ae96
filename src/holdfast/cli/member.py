"""`holdfast member`: one member leaves, stops holding partitions, or begins to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import click

from holdfast.cli.addresses import address_option
from holdfast.cli.answers import json_option
from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.orders import Give, timeout_option, together
from holdfast.cli.status import ask, doors_of
from holdfast.client.operator import MemberStatus, order
from holdfast.core.model.ids import Address
from holdfast.errors import HoldfastError
from holdfast.wire import own


@click.group(short_help="Drain, promote and demote members.")
def member() -> None:
    r"""Manage single members. MEMBER is a name, the first digits of a UUID, or a client address.

    \b
      holdfast member drain three
      holdfast member demote 127.0.0.1:5702
      holdfast member promote two -a 10.0.0.1:5701

    Pass credentials if the members require them.
    """


def _give(
    doors: list[Address], credentials: Credentials, want: own.Want, timeout_s: float
) -> dict[str, Give]:
    known = credentials.for_client()
    return {str(door): partial(order, door, known, want, timeout_s=timeout_s) for door in doors}


@member.command(short_help="Remove members as soon as their data is safe elsewhere.")
@click.argument("members", nargs=-1, required=True, metavar="MEMBER...")
@address_option
@timeout_option(600)
@json_option
@credentials
def drain(
    members: tuple[str, ...], *, address: str, timeout_s: float, as_json: bool, credentials: Credentials
) -> None:
    r"""Drain members: each leaves the cluster as soon as all its data is safe on others, and its process ends.

    Several members leave in parallel. A zone that is left with fewer members than its number of replicas keeps fewer
    replicas and survives fewer crashes; the command warns about it.

    \b
      holdfast member drain three
      holdfast member drain 127.0.0.1:5703 127.0.0.1:5704 --timeout 60
    """
    doors = doors_of(members, address, credentials)
    for warning in _zones_that_shrink(doors, credentials):
        print(f"Warning: {warning}", file=sys.stderr, flush=True)
    sys.exit(together(_give(doors, credentials, own.Want.LEAVE, timeout_s), "has left", as_json=as_json))


def _zones_that_shrink(doors: list[Address], credentials: Credentials) -> Iterator[str]:
    """Zones that will have fewer replicas than they shall have when these members have left, in words."""
    leaving: set[str] = set()
    zones: dict[str, dict[str, Any]] = {}
    for door in doors:
        try:
            status: Any = ask(str(door), credentials)
        except (HoldfastError, OSError):
            continue  # The order itself will say why.
        leaving.add(status["name"])
        zones |= {zone["name"]: zone for zone in status.get("zones", [])}
    for name, zone in sorted(zones.items()):
        before, wanted = set(zone["takes"]), int(zone["settings"]["replicas"])
        left = len(before - leaving)
        if not left and before:
            yield (
                f"no other member may hold replicas of zone {name}: who is the last of them does not leave before one "
                f"comes, or the zone is altered (holdfast zone alter {name} --filter ...)"
            )
        elif left < min(wanted, len(before)):
            yield (
                f"zone {name} shall have {wanted} replicas of each partition, and {left} of the members that may hold "
                "them stay: it goes on with as many, and survives fewer crashes"
            )


@member.command(short_help="Turn a data member into a lite member.")
@click.argument("member", metavar="MEMBER")
@address_option
@timeout_option(600, "After that the demotion is cancelled.")
@json_option
@credentials
def demote(member: str, *, address: str, timeout_s: float, as_json: bool, credentials: Credentials) -> None:
    r"""Turn a data member into a lite member as soon as its partitions are safe elsewhere. It still serves clients,
    and holds no data.

    The last data member cannot be demoted.

    \b
      holdfast member demote 127.0.0.1:5702
    """
    doors = doors_of((member,), address, credentials)
    sys.exit(
        together(_give(doors, credentials, own.Want.LITE, timeout_s), "is a lite member", as_json=as_json)
    )


@member.command(short_help="Turn a lite member into a data member.")
@click.argument("member", metavar="MEMBER")
@address_option
@timeout_option(60)
@json_option
@credentials
def promote(member: str, *, address: str, timeout_s: float, as_json: bool, credentials: Credentials) -> None:
    r"""Turn a lite member into a data member. It receives its share of the partitions afterwards: see `holdfast
    cluster watch`.

    \b
      holdfast member promote 127.0.0.1:5702
    """

    def progress(_: MemberStatus) -> str:
        return "still a lite member"

    gives = _give(doors_of((member,), address, credentials), credentials, own.Want.DATA, timeout_s)
    sys.exit(together(gives, "may hold partitions now", progress, as_json=as_json))
