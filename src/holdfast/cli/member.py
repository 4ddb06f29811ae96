"""`holdfast member`: drain, demote, promote and evict single members."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import click

from holdfast.cli.answers import Done, MemberResult
from holdfast.cli.credentials import Credentials
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.orders import Give, given_up, together
from holdfast.cli.status import ask, doors_of, find_member
from holdfast.client.operator import MemberStatus, order, order_cluster
from holdfast.core.model.ids import Address
from holdfast.errors import HoldfastError
from holdfast.wire import own

member_argument = click.argument("member", metavar="MEMBER")
members_argument = click.argument("members", nargs=-1, required=True, metavar="MEMBER...")


@click.group
def member() -> None:
    r"""Manage single members. MEMBER is a name, the first digits of a UUID, or a client address.

    \b
      holdfast member drain three
      holdfast member demote 127.0.0.1:5702
    """


def _give(call: Call, doors: list[Address], want: own.Want) -> dict[str, Give]:
    known = call.credentials.for_client()
    return {str(door): partial(order, door, known, want, timeout_s=call.timeout_s) for door in doors}


@operator_command(member, timeout_s=600, short_help="Remove members as soon as their data is safe elsewhere.")
@members_argument
def drain(call: Call, members: tuple[str, ...]) -> Iterator[MemberResult]:
    r"""Drain members: each leaves the cluster as soon as all its data is safe on others, and its process ends.

    Several members leave in parallel. A zone that is left with fewer members than its number of replicas keeps fewer
    replicas and survives fewer crashes; the command warns about it.

    \b
      holdfast member drain three
      holdfast member drain 127.0.0.1:5703 127.0.0.1:5704 --timeout 1min
    """
    doors = doors_of(members, call.address, call.credentials)
    for warning in _zones_that_shrink(doors, call.credentials):
        print(f"Warning: {warning}", file=sys.stderr, flush=True)
    return together(_give(call, doors, own.Want.LEAVE), "has left")


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


@operator_command(
    member,
    timeout_s=600,
    then="After that the demotion is cancelled.",
    short_help="Turn a data member into a lite member.",
)
@member_argument
def demote(call: Call, member: str) -> Iterator[MemberResult]:
    r"""Turn a data member into a lite member as soon as its partitions are safe elsewhere. It still serves clients,
    and holds no data.

    The last data member cannot be demoted.

    \b
      holdfast member demote 127.0.0.1:5702
    """
    doors = doors_of((member,), call.address, call.credentials)
    return together(_give(call, doors, own.Want.LITE), "is a lite member")


@operator_command(member, timeout_s=60, short_help="Turn a lite member into a data member.")
@member_argument
def promote(call: Call, member: str) -> Iterator[MemberResult]:
    r"""Turn a lite member into a data member. It receives its share of the partitions afterwards: see `holdfast
    cluster watch`.

    \b
      holdfast member promote 127.0.0.1:5702
    """

    def progress(_: MemberStatus) -> str:
        return "still a lite member"

    doors = doors_of((member,), call.address, call.credentials)
    return together(_give(call, doors, own.Want.DATA), "may hold partitions now", progress)


@operator_command(
    member,
    timeout_s=30,
    then="After that the usual suspicion applies (cluster.suspect_after_ms).",
    confirms=True,
    short_help="Remove crashed members at once.",
)
@members_argument
@click.option(
    "--without-majority",
    is_flag=True,
    help="Continue even if the remaining members are no majority. If a named member still runs, there will be two "
    "clusters.",
)
def evict(call: Call, members: tuple[str, ...], *, without_majority: bool) -> Done:
    r"""Remove crashed members at once, without waiting for cluster.suspect_after_ms.

    The cluster rejects the command for a member that sent a heartbeat within the last three intervals, and a majority
    of the members must agree. A member that still runs cannot rejoin: its process ends with status 1.

    If the remaining members are no majority, name every crashed member, with --without-majority. Make sure that all
    have ended: one that is only cut off may still serve clients, and the writes that it acknowledges are lost.

    \b
      holdfast member evict three
      holdfast member evict two three --without-majority
    """
    seen = ask(call.address, call.credentials)
    ended = [find_member(member, seen["members"]) for member in members]
    name = ", ".join(f"{one['name']} ({Address.of_clients(one)})" for one in ended)
    then = (
        "there are two clusters, and one of them loses its writes"
        if without_majority
        else "it will end itself"
    )
    call.confirm(f"Has {name} ended for sure? Should it still run, {then}")
    doors = [Address.of_clients(row) for row in seen["members"] if row not in ended]
    with given_up():
        order_cluster(
            list(dict.fromkeys([*(door for door in call.addresses if door in doors), *doors])),
            call.credentials.for_client(),
            own.Want.EVICT,
            member=ended[0]["uuid"],
            members=[one["uuid"] for one in ended] if len(ended) > 1 else [],
            state=own.WITHOUT_MAJORITY if without_majority else "",
            timeout_s=call.timeout_s,
        )
    return Done(message=f"the cluster has evicted {name}")
