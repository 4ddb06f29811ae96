"""Requests for entry processors: functions of the members that clients let run on entries.

Clients send the processor as an identified object: a factory id, a class id, and fields. The members' settings say
which function that is. Clients of Holdfast name the function itself (`HOLDFAST_FACTORY`).

- server/E-1: One request runs at most `WINDOW` processors at a time, so that it does not take the place of others; and
  it keeps at most `KEYS_KEPT` keys, besides those of `PARTITIONS_ASKED` partitions. These and its results count as
  responses that wait (server/F-1), so that a client which sends many such requests is not read meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import cast

from holdfast.core.model.keys import partition_of
from holdfast.core.model.levels import STRUCTURES
from holdfast.core.model.map_locks import owner_of
from holdfast.core.model.operations import DEFAULT_TTL, Op, Outcome, Request, Status, too_long
from holdfast.core.model.processors import ProcessorCall, encode_call
from holdfast.server.flow import EXPECTED_LIST_SHARE, Work
from holdfast.server.hazelcast.conversation import Conversation, Handler, RequestKind
from holdfast.server.hazelcast.maps import guarded, many, reject_other_predicates, value_or_null
from holdfast.server.hazelcast.names import name_of
from holdfast.wire.hazelcast.layouts import Call, RequestLayout
from holdfast.wire.hazelcast.named_processors import NamedProcessor, read_processor
from holdfast.wire.hazelcast.refusals import BAD_ARGUMENT, BAD_STATE, SERIALIZATION, CallRefused, refusal

WINDOW = 32
LISTED_MAX = 20_000
"""Keys in one request."""
KEYS_KEPT = 1000
PARTITIONS_ASKED = 8
STARTED_AT_ONCE = 64
"""More are started in the next turn of the connection."""
_Place = tuple[int, bytes, int]
"""Partition, key, and its partition-hash word."""


def _call_of(talk: Conversation, call: Call) -> ProcessorCall:
    """The function that the client means. Raises CallRefused."""
    if talk.grid.level < STRUCTURES:
        raise CallRefused(
            BAD_STATE,
            f"entry processors need feature level {STRUCTURES} of the cluster, which has {talk.grid.level}: when all "
            "members run a build that can do it, an operator raises it with `holdfast cluster upgrade`",
        )
    settings = talk.grid.collections.processors
    sent = read_processor(call.value, name_of(call.kind))
    if isinstance(sent, NamedProcessor):
        chosen = settings.get(sent.name)
        if chosen is None:
            raise CallRefused(
                SERIALIZATION,
                f"there is no entry processor {sent.name[:64]!r}: members have those of [processors.NAME]",
            )
        return ProcessorCall(sent.name, sent.argument, limit_ms=chosen.time_limit_ms)
    for name, chosen in settings.items():
        if chosen.identity == (sent.factory_id, sent.class_id):
            return ProcessorCall(name, payload=sent.payload, limit_ms=chosen.time_limit_ms)
    raise CallRefused(
        SERIALIZATION,
        f"no entry processor has factory id {sent.factory_id} and class id {sent.class_id}: set "
        "processors.NAME.function, factory_id and class_id for it on all members",
    )


def _request(talk: Conversation, call: Call, place: _Place, step: bytes) -> Request:
    partition, key, key_hash = place
    return Request(
        Op.PROCESS,
        call.name,
        [partition],
        key=key,
        value=step,
        ttl_ms=DEFAULT_TTL,
        key_hash=key_hash,
        holder=owner_of(talk.client, call.thread),
    )


def _on_key(talk: Conversation, call: Call) -> None:
    step = encode_call(_call_of(talk, call))
    place = (talk.partition_of(call), call.key, call.key_hash)
    talk.execute(call, _request(talk, call, place, step), lambda value: value_or_null(call, value))


def _on_keys(talk: Conversation, call: Call) -> None:
    step, count = encode_call(_call_of(talk, call)), talk.grid.partition_count
    if len(call.keys) > LISTED_MAX:
        raise CallRefused(BAD_ARGUMENT, f"one request names at most {LISTED_MAX} keys: send several")

    def places() -> Iterator[_Place]:
        keys = dict(zip(cast("list[bytes]", call.keys), call.hashes, strict=True))
        for key, key_hash in keys.items():
            yield partition_of(key, key_hash, count), key, key_hash

    _EntryRuns(talk, call, step, places(), ()).go_on()


def _on_all(talk: Conversation, call: Call) -> None:
    if call.predicate:
        reject_other_predicates(call)
    asked = _call_of(talk, call)
    step = encode_call(
        ProcessorCall(asked.name, asked.argument, asked.payload, asked.limit_ms, only_present=True)
    )
    talk.require(Request(Op.PROCESS, call.name, talk.every_partition, value=step))
    _EntryRuns(talk, call, step, iter(()), talk.every_partition).go_on()


class _EntryRuns:
    """The runs of one request, on listed keys or on all of these partitions."""

    def __init__(
        self, talk: Conversation, call: Call, step: bytes, places: Iterator[_Place], partitions: Iterable[int]
    ) -> None:
        self._talk = talk
        self._call = call
        self._step = step
        self._places = places
        self._partitions = deque(partitions)
        self._found: deque[Iterator[_Place]] = deque()
        """One for each partition that has been listed, which may have very many keys."""
        self._kept = 0
        """Keys that these have still to yield."""
        self._running = self._asked = self._done = 0
        self._results: list[bytes] = []
        self._size = 0
        self._failed: Outcome | None = None
        self._starting = self._answered = False
        self._expected = 0
        self._expect(talk.flow.most // EXPECTED_LIST_SHARE)

    def _expect(self, size: int) -> None:
        self._expected += size
        self._talk.flow.expected += size

    def go_on(self) -> None:
        """Start as much as there is room for; answer when nothing is left."""
        if self._starting:  # A request was answered at once.
            return
        self._starting = True
        started = 0
        try:
            while started < STARTED_AT_ONCE and self._start_one():
                started += 1
        finally:
            self._starting = False
        if started == STARTED_AT_ONCE:
            self._talk.flow.begin(self._later())
        elif not self._running and not self._asked and not self._answered:
            self._answered = True
            self._answer()

    def _later(self) -> Work:
        yield
        self.go_on()

    def _start_one(self) -> bool:
        if self._failed is not None or self._talk.gone:
            return False
        if self._running < WINDOW and (place := self._next_place()) is not None:
            self._running += 1
            request = _request(self._talk, self._call, place, self._step)
            self._talk.execute_part(self._call, request, partial(self._ran, place[1]))
            return True
        if self._partitions and self._asked < PARTITIONS_ASKED and self._kept < KEYS_KEPT:
            self._asked += 1
            partition = self._partitions.popleft()
            request = Request(Op.KEYS, self._call.name, [partition])
            self._talk.execute_part(self._call, request, partial(self._listed, partition))
            return True
        return False

    def _next_place(self) -> _Place | None:
        while self._found:
            place = next(self._found[0], None)
            if place is not None:
                self._kept -= 1
                return place
            self._found.popleft()
        return next(self._places, None)

    def _listed(self, partition: int, outcome: Outcome) -> None:
        self._asked -= 1
        if outcome.status is Status.OK:
            keys = cast("list[bytes]", outcome.value or [])
            self._found.append((partition, key, 0) for key in keys)
            self._kept += len(keys)
        else:
            self._failed = self._failed or outcome
        self.go_on()

    def _ran(self, key: bytes, outcome: Outcome) -> None:
        self._running -= 1
        if outcome.status is not Status.OK:
            self._failed = self._failed or outcome
        else:
            self._done += 1
            if outcome.value is not None:
                result = cast("bytes", outcome.value)
                self._results += (key, result)
                self._size += len(key) + len(result)
                self._expect(len(key) + len(result))
                if self._size > self._talk.answer_bytes:
                    self._results.clear()
                    detail = too_long(self._talk.answer_bytes)
                    self._failed = self._failed or Outcome(Status.UNKNOWN, None, detail)
        self.go_on()

    def _answer(self) -> None:
        talk, call, failed = self._talk, self._call, self._failed
        self._expect(-self._expected)
        if talk.gone:
            return
        if failed is None:
            talk.answer(call, lambda: many(call, cast("list[None | int | bytes]", self._results)))
            return
        if self._done and failed.status is not Status.UNKNOWN:
            detail = f"the entry processor has run on {self._done} entries, and then failed: {failed.detail}"
            failed = Outcome(Status.UNKNOWN, None, detail)
        talk.reject(call.correlation, *refusal(failed))


_ROWS: list[tuple[int, str, Handler]] = [
    (0x012E00, "thread | name processor key", _on_key),
    (0x012F00, "thread | name processor key", _on_key),  # the client alone knows that it does not wait
    (0x013000, "| name processor", _on_all),
    (0x013100, "| name processor predicate", _on_all),
    (0x013200, "| name processor keys", _on_keys),
]

MESSAGES = {kind: RequestKind(RequestLayout(layout), guarded(handler)) for kind, layout, handler in _ROWS}
