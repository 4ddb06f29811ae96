"""Common parts of operator commands: orders to several members at once, with progress and exit status."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from holdfast.cli.answers import tell_json
from holdfast.cli.exit_statuses import FAILED, MISUSED, OPEN
from holdfast.client.operator import MemberStatus
from holdfast.errors import HoldfastError, Standing, Unknown

EXIT_FAILED = FAILED
EXIT_MISUSED = MISUSED
EXIT_STANDING = OPEN

TELL_S = 1.0
"""Least time between two lines about one member."""
JOIN_S = 0.1

Give = Callable[..., str]
"""Gives an order, calls `progress` with the member's status in the meantime, and returns the member's remark."""


def timeout_option(
    default_s: float, then: str = "After that the cluster continues with the accepted command."
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option for the timeout of an order; `then` says what happens after it."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0, 86_400),
        default=default_s,
        show_default=True,
        metavar="SECONDS",
        help=f"Time to wait. {then}",
    )


class Progress:
    """Lines about members on standard error, when something is new, and not too often."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: dict[str, tuple[str, float]] = {}

    def tell(self, member: str, line: str, *, now: bool = False) -> None:
        with self._lock:
            before, at_s = self._told.get(member, ("", 0.0))
            if line != before and (now or time.monotonic() - at_s >= TELL_S):
                self._told[member] = (line, time.monotonic())
                print(f"{member}: {line}", file=sys.stderr, flush=True)


@contextmanager
def given_up() -> Iterator[None]:
    """For orders that are cancelled at the timeout: report a timeout as a failure."""
    try:
        yield
    except Standing as late:
        raise Unknown(str(late)) from late


def still_here(status: MemberStatus) -> str:
    partitions: Any = status["partitions"]
    left = partitions["primaries"] + partitions["backups"]
    why = status.get("leave_blocker") or ""
    return f"{left} partition replicas still here" + (
        f"; {why}" if why and "still here" not in str(why) else ""
    )


def together(
    gives: dict[str, Give],
    done: str,
    progress: Callable[[MemberStatus], str] = still_here,
    *,
    as_json: bool = False,
) -> int:
    """Give these orders, by name of the member, at the same time; returns the exit status.

    `done`: message about a member that has carried out its order. `as_json`: print a line of JSON for each member.
    """
    lines = Progress()
    worst: list[int] = [0]

    def ended(member: str, fate: str, told: str) -> None:
        if as_json:
            tell_json({"member": member, "result": fate, "message": told})
        elif fate == "done":
            print(f"{member}: {told}", flush=True)
        else:
            lines.tell(member, told, now=True)

    def one(member: str, give: Give) -> None:
        try:
            how = give(progress=lambda status: lines.tell(member, progress(status)))
        except Standing as standing:
            ended(member, "accepted", str(standing))
            worst.append(EXIT_STANDING)
        except (HoldfastError, OSError) as failed:
            ended(member, "failed", str(failed))
            worst.append(EXIT_FAILED)
        else:
            ended(member, "done", how or done)

    threads = [
        threading.Thread(target=one, args=(member, give), daemon=True) for member, give in gives.items()
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(JOIN_S)
    except KeyboardInterrupt:
        raise Standing("interrupted; the cluster continues with the accepted command") from None
    return EXIT_FAILED if EXIT_FAILED in worst else max(worst)
