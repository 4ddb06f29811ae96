"""Orders to several members at once, with progress on standard error."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, Queue

from holdfast.cli.answers import MemberResult
from holdfast.core.model.member_status import MemberStatus
from holdfast.errors import HoldfastError, Standing

TELL_S = 1.0
"""Least time between two lines about one member."""
JOIN_S = 0.1

Give = Callable[..., str]
"""Gives an order, calls `progress` with the member's status in the meantime, and returns the member's remark."""


class Progress:
    """Lines about members on standard error, when something is new, and not too often."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: dict[str, tuple[str, float]] = {}

    def tell(self, member: str, line: str) -> None:
        with self._lock:
            before, at_s = self._told.get(member, ("", 0.0))
            if line != before and time.monotonic() - at_s >= TELL_S:
                self._told[member] = (line, time.monotonic())
                print(f"{member}: {line}", file=sys.stderr, flush=True)


def still_here(status: MemberStatus) -> str:
    left = status.partitions.primaries + status.partitions.backups
    why = status.leave_blocker
    return f"{left} partition replicas still here" + (f"; {why}" if why and "still here" not in why else "")


def together(
    gives: dict[str, Give], done: str, progress: Callable[[MemberStatus], str] = still_here
) -> Iterator[MemberResult]:
    """Give these orders, by name of the member, at the same time; yields each result as it comes.

    `done`: message about a member that has carried out its order.
    """
    lines = Progress()
    results: Queue[MemberResult] = Queue()

    def one(member: str, give: Give) -> None:
        try:
            remark = give(progress=lambda status: lines.tell(member, progress(status)))
        except (HoldfastError, OSError) as failed:
            results.put(MemberResult.of_error(member, failed))
        else:
            results.put(MemberResult(member=member, result="done", message=remark or done))

    for member, give in gives.items():
        threading.Thread(target=one, args=(member, give), daemon=True).start()
    left = len(gives)
    try:
        while left:
            try:
                yield results.get(timeout=JOIN_S)
            except Empty:
                continue
            left -= 1
    except KeyboardInterrupt:
        raise Standing("interrupted; the cluster continues with the accepted command") from None
