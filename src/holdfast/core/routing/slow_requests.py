"""Some of the requests that have waited for long in a router. A request that waits for a change (a take from an empty
queue) is not slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from holdfast.core.model.ids import MemberId
from holdfast.core.model.open_operations import OpenOperation
from holdfast.core.model.operations import Request
from holdfast.core.routing.pending import Parked

LOOKED_AT = 300
"""Examined requests of each kind."""
NO_PRIMARY = "a primary of the partition: it moves, or its members have gone"
LOCK = "the lock of an entry that a transaction has"
ANSWER = "the answer of another member"


def parked_since(
    before_ns: int,
    timeout_ns: int,
    parked: Iterable[list[Parked]],
    sent: Iterable[tuple[MemberId, Parked]],
    delayed: Iterable[list[Parked]],
) -> Iterator[OpenOperation]:
    """Requests that came before `before_ns`. `timeout_ns`: between arrival and deadline. `parked` and `delayed`: by
    partition, oldest first; `sent`: forwarded requests, oldest first.
    """

    def told(one: Parked, waits_for: str, members: tuple[MemberId, ...] = ()) -> OpenOperation | None:
        since_ns = one.deadline_ns - timeout_ns
        return None if since_ns > before_ns else _told(one, one.request, since_ns, waits_for, members)

    found = [told(one, NO_PRIMARY) for one in islice(chain.from_iterable(parked), LOOKED_AT)]
    found += [told(one, ANSWER, (owner,)) for owner, one in islice(sent, LOOKED_AT)]
    found += [
        told(one, LOCK)
        for one in islice(chain.from_iterable(delayed), LOOKED_AT)
        if one.wait is not None and one.wait.holder
    ]
    return (each for each in found if each is not None)


def _told(
    one: Parked, request: Request, since_ns: int, waits_for: str, members: tuple[MemberId, ...]
) -> OpenOperation:
    kind = request.op.name.lower()
    places = {request.map: tuple(request.partitions)}
    return OpenOperation(("request", id(one)), kind, 1, places, since_ns, waits_for, members)
