"""Renewal of a cut's lease: by the tasks that read the cut, and by the driver while a job runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from holdfast.client.blocking import Client
from holdfast.client.cut_handles import Cut, hold_cut
from holdfast.errors import HoldfastError
from holdfast.spark.source.options import Options

PART = 4
"""So that two renewals in a row may fail."""


class Keeper:
    """Renews a cut for a task that reads it, on all members, also those that the task does not ask."""

    def __init__(self, client: Client, cut: Cut | None) -> None:
        """Renews the lease at once. Raises CutLost. `cut` None: nothing to renew."""
        self._client = client
        self._cut = cut
        self._held_s = time.monotonic()
        if cut is not None:
            self.hold(cut)

    def __call__(self) -> None:
        """Renew the lease if it is time. Raises CutLost if no member keeps a part of the cut any more."""
        cut = self._cut
        if cut is not None and time.monotonic() - self._held_s > cut.lease_s / PART:
            self.hold(cut)

    def hold(self, cut: Cut) -> None:
        self._held_s = time.monotonic()
        hold_cut(self._client, cut, cut.lease_s)


@contextmanager
def kept(options: Options, addresses: Sequence[str], cut: Cut) -> Iterator[None]:
    """Keep a cut while the block runs: a thread renews the lease with a client of its own.

    `addresses`: of all members, because the member in the options may be gone by then.
    """
    over = threading.Event()
    work = threading.Thread(
        target=_keep, args=(options, addresses, cut, over), name="holdfast cut", daemon=True
    )
    work.start()
    try:
        yield
    finally:
        over.set()
        work.join(timeout=5)


def _keep(options: Options, addresses: Sequence[str], cut: Cut, over: threading.Event) -> None:
    with options.client(addresses) as client:
        while not over.wait(cut.lease_s / PART):
            # A member that cannot be reached now may be reachable next time; a task that misses the cut
            # reports it.
            with suppress(HoldfastError):
                hold_cut(client, cut, cut.lease_s)
