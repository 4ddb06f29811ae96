"""`holdfast cluster`: state, shutdown, safety and events of a cluster."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from typing import Any, Literal, cast

import click

from holdfast.actions.check_safety import CheckSafety
from holdfast.cli.action_commands import add_actions
from holdfast.cli.answers import Answer
from holdfast.cli.baseline import baseline
from holdfast.cli.exchange import add_exchange
from holdfast.cli.exit_statuses import FAILED, status_of
from holdfast.cli.levels import show_levels
from holdfast.cli.operator_command import Call, declared_command
from holdfast.cli.rendering import Shown
from holdfast.cli.restart import add_restart
from holdfast.cli.unit_types import SECONDS
from holdfast.cli.watch import watch
from holdfast.errors import Denied, HoldfastError

LOOK_S = 0.1


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


def show_state(call: Call) -> CurrentState:
    """Show the state, if no state was given."""
    return CurrentState(state=cast("Any", call.status().cluster_state))


class SafetyShown(Answer):
    """Whether a crash would lose nothing now; if not, the reason."""

    decides = "safe"

    safe: bool
    reason: str

    def view(self) -> Iterable[Shown]:
        yield "safe" if self.safe else f"not safe: {self.reason}"


@declared_command(CheckSafety, cluster)
@click.option(
    "--wait",
    "wait_s",
    type=SECONDS,
    default=0.0,
    metavar="TIME",
    help="Wait until it is safe, at most this long: seconds, or 2min.",
)
def safe(call: Call, *, wait_s: float) -> Generator[SafetyShown, None, int | None]:
    """Ask until it is safe, or the time is over."""
    deadline = time.monotonic() + wait_s
    with call.client(operates=True) as client:
        while True:
            status = FAILED
            try:
                reason = client.query(CheckSafety()).reason
            except Denied:
                raise
            except HoldfastError as failed:
                reason, status = str(failed), status_of(failed)
            if not reason or time.monotonic() >= deadline:
                break
            time.sleep(LOOK_S)
    yield SafetyShown(safe=not reason, reason=reason)
    return status if reason else None


add_restart(cluster)
add_exchange(cluster)
cluster.add_command(watch)
cluster.add_command(baseline)
add_actions(cluster, "cluster", {"state": show_state, "upgrade": show_levels})
