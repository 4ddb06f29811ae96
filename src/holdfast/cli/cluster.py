"""`holdfast cluster`: state, shutdown, safety and events of a cluster."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from typing import Any, Literal

import click

from holdfast.cli.answers import Answer, Done, MemberResult
from holdfast.cli.baseline import baseline
from holdfast.cli.exit_statuses import FAILED, status_of
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.orders import Give, given_up, together
from holdfast.cli.rendering import Shown
from holdfast.cli.unit_types import SECONDS
from holdfast.cli.upgrade import upgrade
from holdfast.cli.watch import watch
from holdfast.client.operator import MemberStatus, order, order_cluster
from holdfast.core.model.ids import Address
from holdfast.core.model.views import ClusterState
from holdfast.errors import Denied, HoldfastError
from holdfast.wire import own

LOOK_S = 0.1
DIGITS_MAX = 5
"""Most digits of a partition number: no cluster has more than 65,536."""


@click.group()
def cluster() -> None:
    r"""Manage the whole cluster, through any of its members.

    \b
      holdfast cluster state no-migration      change the state
      holdfast cluster safe --wait 60          wait until a crash would lose nothing
    """


class CurrentState(Answer):
    """The state of the cluster."""

    state: Literal["active", "no-migration", "frozen", "passive"]

    def view(self) -> Iterable[Shown]:
        yield self.state


class ChangedState(CurrentState):
    """The state that the cluster has adopted."""

    def view(self) -> Iterable[Shown]:
        yield f"the cluster is {self.state}"


@operator_command(cluster, timeout_s=60, short_help="Show or change the state of the cluster.")
@click.argument(
    "wanted", required=False, metavar="[STATE]", type=click.Choice([state.value for state in ClusterState])
)
def state(call: Call, wanted: Any) -> CurrentState:
    r"""Show the state of the cluster, or change it. Returns when every member has adopted it.

    \b
      active         everything is allowed
      no-migration   no rebalancing and no restoring of lost copies; backups are still promoted
      frozen         also no promotions, and no new members; for restarts
      passive        also no writes

    \b
      holdfast cluster state frozen -a 127.0.0.1:5702
    """
    if wanted is None:
        return CurrentState(state=call.status()["cluster_state"])
    order_cluster(
        call.addresses,
        call.credentials.for_client(),
        own.Want.STATE,
        state=wanted,
        timeout_s=call.timeout_s,
    )
    return ChangedState(state=wanted)


@operator_command(
    cluster,
    "accept-loss",
    timeout_s=60,
    confirms=True,
    short_help="Stop waiting for missing copies. Their data is lost.",
)
def accept_loss(call: Call) -> Done:
    r"""Stop waiting for members whose files may hold acknowledged writes, and for damaged files.

    After a full stop of the cluster, partitions wait until all its last members are back; a partition that has lost
    every copy waits for one of them. This command continues with the copies that are here, and with an empty
    partition where there is none. `holdfast cluster safe` shows what the cluster waits for.

    \b
      holdfast cluster accept-loss --yes
    """
    seen = call.status()
    call.confirm(
        f"Continue without the missing copies ({seen['unsafe_reason']})? Acknowledged writes may be lost"
    )
    order_cluster(
        call.addresses, call.credentials.for_client(), own.Want.ACCEPT_LOSS, timeout_s=call.timeout_s
    )
    return Done(message="every partition has an owner")


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


@operator_command(
    cluster,
    "reset-lost",
    timeout_s=60,
    then="Partitions that are not reset by then stay lost.",
    confirms=True,
    short_help="Make lost partitions available again, with the data that is left.",
)
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
def reset_lost(call: Call, *, listed: str, maps: tuple[str, ...]) -> Done:
    r"""Make lost partitions available again to maps with a loss policy. `holdfast status` lists them.

    The maps continue with the data that members have brought back, or empty if the loss was accepted. A partition
    without any copy is not reset: start its members, or run accept-loss first.

    \b
      holdfast cluster reset-lost --map flights --partitions 3,7-12
    """
    partitions = _numbers(listed) if listed else []
    call.confirm("Make lost partitions available again? Clients will not notice which entries are gone")
    with given_up():
        order_cluster(
            call.addresses,
            call.credentials.for_client(),
            own.Want.RESET_LOST,
            partitions=partitions,
            maps=maps,
            timeout_s=call.timeout_s,
        )
    return Done(message="lost partitions are reset")


@operator_command(
    cluster,
    timeout_s=120,
    confirms=True,
    short_help="Shut all members down. Data in memory only is gone.",
)
def shutdown(call: Call) -> Iterator[MemberResult]:
    r"""Shut the whole cluster down: it stops accepting writes, and then every member leaves.

    Journalled maps are in the members' files, and return when all members are started. All other maps are in memory
    only, and are gone.

    \b
      holdfast cluster shutdown --yes
    """
    seen = call.status()
    names = {f"{member['name']} ({Address.of_clients(member)})": member for member in seen["members"]}
    call.confirm(f"End all {len(names)} members of cluster {seen['cluster']!r}? {_what_is_gone(seen)}")
    known = call.credentials.for_client()
    gives: dict[str, Give] = {
        name: partial(order, Address.of_clients(member), known, own.Want.END, timeout_s=call.timeout_s)
        for name, member in names.items()
    }
    return together(gives, "has ended", _waits)


def _what_is_gone(seen: dict[str, Any]) -> str:
    if not seen.get("files"):
        return "Their data is only in memory, and is lost then"
    return "Journalled maps remain in their files; all other maps are lost then"


def _waits(status: MemberStatus) -> str:
    why = status.get("leave_blocker")
    return f"still there: {why}" if why else "still there"


class Safety(Answer):
    """Whether a crash would lose nothing now; if not, the reason."""

    decides = "safe"

    safe: bool
    reason: str

    def view(self) -> Iterable[Shown]:
        yield "safe" if self.safe else f"not safe: {self.reason}"


@operator_command(cluster, short_help="Check whether a crash could lose data now.")
@click.option(
    "--wait",
    "wait_s",
    type=SECONDS,
    default=0.0,
    metavar="TIME",
    help="Wait until it is safe, at most this long: seconds, or 2min.",
)
def safe(call: Call, *, wait_s: float) -> Generator[Safety, None, int | None]:
    r"""Check whether the whole cluster is safe: every partition has all its copies, and nothing is moving.

    Cheap enough to run every second.

    \b
      holdfast cluster safe || echo "do not stop anything now"
      holdfast cluster safe --wait 2min -a 127.0.0.1:5701,127.0.0.1:5702
    """
    deadline = time.monotonic() + wait_s
    with call.client(operates=True) as client:
        while True:
            status = FAILED
            try:
                reason = str(client.status()["cluster_unsafe_reason"])
            except Denied:
                raise
            except HoldfastError as failed:
                reason, status = str(failed), status_of(failed)
            if not reason or time.monotonic() >= deadline:
                break
            time.sleep(LOOK_S)
    yield Safety(safe=not reason, reason=reason)
    return status if reason else None


cluster.add_command(watch)
cluster.add_command(baseline)
cluster.add_command(upgrade)
