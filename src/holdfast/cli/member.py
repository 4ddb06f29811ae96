"""`holdfast member`: drain, demote, promote and evict single members."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import click

from holdfast.cli.addresses import address_option
from holdfast.cli.answers import json_option, tell_json
from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.orders import Give, given_up, timeout_option, together
from holdfast.cli.status import ask, doors_of, find_member
from holdfast.client.operator import MemberStatus, order, order_cluster
from holdfast.client.routing import parse_addresses
from holdfast.core.model.ids import Address
from holdfast.errors import HoldfastError
from holdfast.wire import own


@click.group
def member() -> None:
    r"""Manage single members. MEMBER is a name, the first digits of a UUID, or a client address.

    \b
      holdfast member drain three
      holdfast member demote 127.0.0.1:5702
      holdfast member promote two -a 10.0.0.1:5701
      holdfast member evict three

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
    """Warnings about zones that will have too few replicas when these members have left."""
    leaving: set[str] = set()
    zones: dict[str, dict[str, Any]] = {}
    for door in doors:
        try:
            status: Any = ask(str(door), credentials)
        except (HoldfastError, OSError):
            continue  # The order itself will report why.
        leaving.add(status["name"])
        zones |= {zone["name"]: zone for zone in status.get("zones", [])}
    for name, zone in sorted(zones.items()):
        before, wanted = set(zone["eligible_members"]), int(zone["settings"]["replicas"])
        left = len(before - leaving)
        if not left and before:
            yield (
                f"no other member may hold replicas of zone {name}: the last one that may cannot leave. Start another "
                f"such member, or alter the zone (holdfast zone alter {name} --filter ...)"
            )
        elif left < min(wanted, len(before)):
            yield (
                f"zone {name} is configured for {wanted} replicas, and only {left} members that may hold them stay: it "
                f"continues with {left} replicas, and survives fewer crashes"
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


@member.command(short_help="Remove crashed members at once.")
@click.argument("members", metavar="MEMBER...", nargs=-1, required=True)
@address_option
@timeout_option(30, "After that the usual suspicion applies (cluster.suspect_after_ms).")
@click.option(
    "--without-majority",
    is_flag=True,
    help="Continue even if the remaining members are no majority. If a named member still runs, there will be two "
    "clusters.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@credentials
def evict(
    members: tuple[str, ...],
    *,
    address: str,
    timeout_s: float,
    without_majority: bool,
    yes: bool,
    as_json: bool,
    credentials: Credentials,
) -> None:
    r"""Remove crashed members at once, without waiting for cluster.suspect_after_ms.

    MEMBER is a name, the first digits of a UUID, or a client address. The cluster rejects the command for a member
    that sent a heartbeat within the last three intervals, and a majority of the members must agree. If the member
    still runs, it cannot rejoin: its process ends with status 1 when it learns of its removal, and serves nothing
    until then.

    If the remaining members are no majority, they wait. Name every crashed member, with --without-majority. Make sure
    that they have all ended: a member that is only cut off may still serve clients, and the writes that it
    acknowledged since then are lost.

    \b
      holdfast member evict three
      holdfast member evict 10.0.0.3:5701 --yes -a 10.0.0.1:5701
      holdfast member evict two three --without-majority
    """
    seen = ask(address, credentials)
    ended = [find_member(member, seen["members"]) for member in members]
    name = ", ".join(f"{one['name']} ({Address.of_clients(one)})" for one in ended)
    if not yes:
        then = (
            "there are two clusters, and one of them loses its writes"
            if without_majority
            else "it will end itself"
        )
        click.confirm(f"Has {name} ended for sure? Should it still run, {then}", abort=True, err=True)
    doors = [Address.of_clients(row) for row in seen["members"] if row not in ended]
    with given_up():
        order_cluster(
            list(dict.fromkeys([*(door for door in parse_addresses(address) if door in doors), *doors])),
            credentials.for_client(),
            own.Want.EVICT,
            member=ended[0]["uuid"],
            members=[one["uuid"] for one in ended] if len(ended) > 1 else [],
            state=own.WITHOUT_MAJORITY if without_majority else "",
            timeout_s=timeout_s,
        )
    told = f"the cluster has evicted {name}"
    tell_json({"done": True, "message": told}) if as_json else print(told)
