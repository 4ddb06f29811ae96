"""`holdfast cluster`: state, shutdown, safety and events of a cluster."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import click

from holdfast.cli.addresses import address_option
from holdfast.cli.answers import json_option, tell_json
from holdfast.cli.baseline import baseline
from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.orders import EXIT_FAILED, Give, given_up, timeout_option, together
from holdfast.cli.upgrade import upgrade
from holdfast.cli.watch import watch
from holdfast.client.blocking import Client
from holdfast.client.operator import MemberStatus, order, order_cluster
from holdfast.client.routing import parse_addresses
from holdfast.core.model.ids import Address
from holdfast.core.model.views import ClusterState
from holdfast.errors import Denied, HoldfastError
from holdfast.wire import own

ANSWER_S = 5.0
"""Time limit for all members together to report whether the cluster is safe."""
LOOK_S = 0.1
DIGITS_MAX = 5
"""Most digits of a partition number: no cluster has more than 65,536."""


@click.group()
def cluster() -> None:
    r"""Manage the whole cluster, through any of its members.

    \b
      holdfast cluster state                   show the state
      holdfast cluster state no-migration      change it
      holdfast cluster safe --wait 60          wait until a crash would cost nothing
      holdfast cluster watch                   follow migrations and losses
      holdfast cluster shutdown                end all members
      holdfast cluster accept-loss             stop waiting for missing copies
      holdfast cluster reset-lost              make lost partitions available
      holdfast cluster baseline                members that own data, even while they are away
      holdfast cluster upgrade                 finish a rolling upgrade

    Pass credentials if the members require them.
    """


def _client(address: str, credentials: Credentials) -> Client:
    return Client(
        address,
        username=credentials.username,
        password=credentials.password,
        token=credentials.token,
        tls=credentials.tls,
        timeout_s=ANSWER_S,
        operates=True,
    )


def _status(address: str, credentials: Credentials) -> dict[str, Any]:
    with _client(address, credentials) as client:
        return client.status()


@cluster.command(short_help="Show or change the state of the cluster.")
@click.argument(
    "wanted", required=False, metavar="[STATE]", type=click.Choice([state.value for state in ClusterState])
)
@address_option
@timeout_option(60)
@json_option
@credentials
def state(
    wanted: str | None, *, address: str, timeout_s: float, as_json: bool, credentials: Credentials
) -> None:
    r"""Show the state of the cluster, or change it. Returns when every member has adopted it.

    \b
      active         everything is allowed
      no-migration   no rebalancing and no restoring of lost copies; backups are still promoted
      frozen         also no promotions, and no new members; for restarts
      passive        also no writes

    \b
      holdfast cluster state
      holdfast cluster state frozen -a 127.0.0.1:5702
    """
    if wanted is None:
        now = _status(address, credentials)["cluster_state"]
        tell_json({"state": now}) if as_json else print(now)
        return
    addresses = parse_addresses(address)
    order_cluster(addresses, credentials.for_client(), own.Want.STATE, state=wanted, timeout_s=timeout_s)
    tell_json({"state": wanted}) if as_json else print(f"the cluster is {wanted}")


@cluster.command("accept-loss", short_help="Stop waiting for missing copies. Their data is lost.")
@address_option
@timeout_option(60)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@credentials
def accept_loss(
    *, address: str, timeout_s: float, yes: bool, as_json: bool, credentials: Credentials
) -> None:
    r"""Stop waiting for members whose files may hold acknowledged writes, and for damaged files.

    After a full stop of the cluster, partitions wait until all its last members are back; a partition that has lost
    every copy waits for one of them. This command continues with the copies that are here, and with an empty
    partition where there is none.

    \b
      holdfast cluster safe                    show what the cluster waits for
      holdfast cluster accept-loss --yes
    """
    seen = _status(address, credentials)
    if not yes:
        click.confirm(
            f"Continue without the missing copies ({seen['unsafe_reason']})? Acknowledged writes may be lost",
            abort=True,
            err=True,
        )
    addresses = parse_addresses(address)
    order_cluster(addresses, credentials.for_client(), own.Want.ACCEPT_LOSS, timeout_s=timeout_s)
    _tell_done("every partition has an owner", as_json=as_json)


def _tell_done(told: str, *, as_json: bool) -> None:
    tell_json({"done": True, "message": told}) if as_json else print(told)


def _numbers(text: str) -> list[int]:
    """Partitions as `1,3-5`. Raises click.BadParameter."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if (
            not first.isdecimal()
            or (dash and not last.isdecimal())
            or max(len(first), len(last)) > DIGITS_MAX
        ):
            raise click.BadParameter(f"{part!r} is no partition, and no range of partitions such as 3-7")
        numbers.update(range(int(first), int(last or first) + 1))
    return sorted(numbers)


@cluster.command("reset-lost", short_help="Make lost partitions available again, with the data that is left.")
@click.option(
    "--partitions",
    "listed",
    default="",
    metavar="LIST",
    help="Only these, such as 3,7-12. Default: all that are lost.",
)
@click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="NAME",
    help="Only for this map, by its configured name; may be repeated. Default: all maps.",
)
@address_option
@timeout_option(60, "Partitions that are not reset by then stay lost.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@credentials
def reset_lost(
    *,
    listed: str,
    maps: tuple[str, ...],
    address: str,
    timeout_s: float,
    yes: bool,
    as_json: bool,
    credentials: Credentials,
) -> None:
    r"""Make lost partitions available again to maps with a loss policy.

    The maps continue with the data that members have brought back, or empty if the loss was accepted. A partition
    without any copy is not reset: start its members, or run accept-loss first.

    \b
      holdfast status                          show lost partitions
      holdfast cluster reset-lost --map flights --partitions 3,7-12
    """
    partitions = _numbers(listed) if listed else []
    if not yes:
        click.confirm(
            "Make lost partitions available again? Clients will not notice which entries are gone",
            abort=True,
            err=True,
        )
    with given_up():
        order_cluster(
            parse_addresses(address),
            credentials.for_client(),
            own.Want.RESET_LOST,
            partitions=partitions,
            maps=maps,
            timeout_s=timeout_s,
        )
    _tell_done("lost partitions are reset", as_json=as_json)


@cluster.command(short_help="Shut all members down. Data in memory only is gone.")
@address_option
@timeout_option(120)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@credentials
def shutdown(*, address: str, timeout_s: float, yes: bool, as_json: bool, credentials: Credentials) -> None:
    r"""Shut the whole cluster down: it stops accepting writes, and then every member leaves.

    Journalled maps are in the members' files, and return when all members are started. All other maps are in memory
    only, and are gone.

    \b
      holdfast cluster shutdown --yes
    """
    seen = _status(address, credentials)
    names = {f"{member['name']} ({Address.of_clients(member)})": member for member in seen["members"]}
    if not yes:
        click.confirm(
            f"End all {len(names)} members of cluster {seen['cluster']!r}? {_what_is_gone(seen)}",
            abort=True,
            err=True,
        )
    known = credentials.for_client()
    gives: dict[str, Give] = {
        name: partial(order, Address.of_clients(member), known, own.Want.END, timeout_s=timeout_s)
        for name, member in names.items()
    }
    sys.exit(together(gives, "has ended", _waits, as_json=as_json))


def _what_is_gone(seen: dict[str, Any]) -> str:
    if not seen.get("files"):
        return "Their data is only in memory, and is lost then"
    return "Journalled maps remain in their files; all other maps are lost then"


def _waits(status: MemberStatus) -> str:
    why = status.get("leave_blocker")
    return f"still there: {why}" if why else "still there"


@cluster.command(short_help="Check whether a crash could lose data now.")
@address_option
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 86_400),
    default=0.0,
    metavar="SECONDS",
    help="Wait until it is safe, at most this long.",
)
@json_option
@credentials
def safe(*, address: str, wait_s: float, as_json: bool, credentials: Credentials) -> None:
    r"""Check whether the whole cluster is safe: every partition has all its copies, and nothing is moving.

    Cheap enough to run every second.

    \b
      holdfast cluster safe || echo "do not stop anything now"
      holdfast cluster safe --wait 120 -a 127.0.0.1:5701,127.0.0.1:5702
    """
    deadline = time.monotonic() + wait_s
    with _client(address, credentials) as client:
        while True:
            why = _unsafe_reason(client)
            if not why:
                tell_json({"safe": True, "reason": ""}) if as_json else print("safe")
                return
            if time.monotonic() >= deadline:
                break
            time.sleep(LOOK_S)
    tell_json({"safe": False, "reason": why}) if as_json else print(f"not safe: {why}")
    sys.exit(EXIT_FAILED)


def _unsafe_reason(client: Client) -> str:
    try:
        status = client.status()
    except Denied:
        raise
    except HoldfastError as failed:
        return str(failed)
    return str(status["cluster_unsafe_reason"])


cluster.add_command(watch)
cluster.add_command(baseline)
cluster.add_command(upgrade)
