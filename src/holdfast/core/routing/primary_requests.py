"""What does the primary of a partition do with a request, and when may it be answered?

- routing/R-9: A read that meets an error in this member is refused. Only an error that leaves its own state in doubt
  stops it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.config import Settings
from holdfast.core.machine import Outbox
from holdfast.core.model.operations import READS, Done, Op, Outcome, Request, Status, Value, too_long
from holdfast.core.replication.lane import Lane
from holdfast.core.replication.perform import perform
from holdfast.core.routing.request_refusals import target
from holdfast.core.store.partition import PartitionCopy


class PrimaryRequests:
    """Performs requests on copies that this member is the primary of."""

    def __init__(self, settings: Settings, out: Outbox, lane: Lane) -> None:
        self._settings = settings
        self._out = out
        self._lane = lane
        self._answer_bytes = settings.limits.answer_bytes

    def perform(self, copy: PartitionCopy, request: Request, done: Done) -> None:
        """Carry out a request for one partition; `done` is called when it may be answered."""
        lane = self._lane
        if request.op in READS:
            self._answer_read(copy, request, done)
            return
        partition = copy.partition
        if request.id and copy.requests.knows(request.id):
            known_value = copy.requests.answer(request.id)
            place = self.position(copy, request.map)
            lane.when_held(partition, request.id, lambda known: done(self.told(known, known_value, place)))
            return
        before, updates = lane.opened, _updates(copy, request)
        value = perform(lane, copy, request, self._out.now_ns)
        position = self.position(copy, request.map)
        if _updates(copy, request) == updates:
            lane.rest_on(copy, target(request))
            answer = Outcome(Status.OK, value, position=position)
            lane.seal(lambda known: done(answer if known else self.unconfirmed()))
            return
        if request.id:
            lane.remember(copy, request.id, value, before)
        lane.seal(lambda known: done(self.told(known, value, position)))

    def _answer_read(self, copy: PartitionCopy, request: Request, done: Done) -> None:
        lane = self._lane
        answer = self.read(request, lambda: perform(lane, copy, request, self._out.now_ns))
        position = self.position(copy, request.map)
        if request.op is Op.GET_ALL and bytes_of(answer.value) > self._answer_bytes:
            answer = Outcome(Status.TOO_LARGE, None, too_long(self._answer_bytes))
        elif position != (0, 0):
            answer = msgspec.structs.replace(answer, position=position)
        if answer.status is Status.OK and lane.confirms_reads and lane.confirmed(target(request)):
            lane.rest_on(copy, request.map)
            lane.seal(lambda known: done(answer if known else self.unconfirmed()))
        else:
            done(answer)
            lane.seal(lambda known: None)

    def unconfirmed(self) -> Outcome:
        """Of a request that changed nothing, when nobody can say whether what it saw is still so."""
        return Outcome(
            Status.NOT_READY,
            None,
            f"nothing was changed, and what was found is not confirmed: {self._lane.unknown_because}",
        )

    def read(
        self, request: Request, read: Callable[[], Value], position: tuple[int, int] = (0, 0)
    ) -> Outcome:
        """What a read answers; an error in it is an answer, too.

        Nothing was changed by a read, so this member's state is not in doubt and it goes on (routing/R-9). But a read
        may find that an entry is over and begin to take it out: after an error in that nobody knows what is half done.
        As of any error in a write, the member stops of it.
        """
        opened = self._lane.opened
        try:
            value = read()
        except Exception as error:
            if self._lane.opened != opened:
                raise
            why = f"{type(error).__name__}: {error}"
            self._out.note("a read failed", level="error", op=request.op.name, map=request.map, why=why)
            return Outcome(Status.FAILED, None, why)
        return Outcome(Status.OK, value, position=position)

    def told(self, known: bool, value: Value, position: tuple[int, int] = (0, 0)) -> Outcome:
        """Of a request that changed something: whether everybody who must hold it does, is known or not."""
        if known:
            return Outcome(Status.OK, value, position=position)
        return Outcome(Status.UNKNOWN, None, self._lane.unknown_because)

    def position(self, copy: PartitionCopy, name: str) -> tuple[int, int]:
        """Where the map stands in this copy, if that is of interest to anybody (routing/R-5)."""
        held = copy.maps.get(name)
        if held is None or not self._settings.map(name).read_backups:
            return (0, 0)
        return (held.term, held.counter)


def _updates(copy: PartitionCopy, request: Request) -> int:
    """How often what the request is about has changed."""
    held = (copy.services if request.op is Op.CALL else copy.maps).get(target(request))
    return held.counter if held is not None else 0


def bytes_of(value: Value) -> int:
    """Bytes of the keys and values that an answer lists."""
    return sum(map(len, value)) if isinstance(value, list) else 0  # type: ignore[arg-type]
