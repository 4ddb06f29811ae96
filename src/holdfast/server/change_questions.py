"""Change streams in the own protocol: heads, and changes between two updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from holdfast.core.model.changes_since import Asked, ChangesSince
from holdfast.core.model.records import Change, Record
from holdfast.core.model.transactions import TransactionId
from holdfast.core.model.zone_batches import ZoneBatch, ZoneBatchDone
from holdfast.core.store.request_ids import split_mark
from holdfast.core.streams.change_streams import Reach
from holdfast.server.grid import Grid, StreamHeads
from holdfast.server.question_checks import map_problem
from holdfast.server.reply_channel import ReplyChannel
from holdfast.wire import own

COUNTER_MAX = 2**63 - 1
ANSWER_BYTES_MAX = 4 << 20
"""Maximum size of a response, whatever the client asks; a single change may exceed it."""


class StreamAsker(Protocol):
    def ask_changes(self, asked: Asked, done: Callable[[ChangesSince], None]) -> None:
        """`done` is called once, now or after the journal was read."""


def stream_problem(changes: StreamHeads, name: str) -> str:
    if changes.streams(name):
        return ""
    return f"map {name!r} has no change stream: set maps.{name}.changes_bytes on every member"


def question_problem(question: own.AskChanges) -> str:
    numbers = (question.after, question.after_term, question.upto, question.upto_term)
    if not all(0 <= number <= COUNTER_MAX for number in numbers):
        return f"counters and terms of updates are 0 to {COUNTER_MAX}"
    return ""


def heads(changes: StreamHeads, question: own.AskHeads) -> own.Heads:
    return _heads(question.id, *changes.heads(question.map, question.partitions))


def _heads(number: int, found: Mapping[int, Reach], moved: list[int]) -> own.Heads:
    told = [
        own.Head(partition, reach.counter, reach.term, reach.since, reach.lineage)
        for partition, reach in found.items()
    ]
    return own.Heads(number, told, moved)


def zone_heads(
    grid: Grid, name: str, partitions: Sequence[int], done: Callable[[Mapping[int, Reach], list[int]], None]
) -> None:
    """Report the heads of a map in a zone when it is confirmed that this member leads: the head of a deposed leader may
    be before updates that a reader has already got, as if these were lost. `done` gets the heads and the partitions
    without one.

    A member that has not joined reports none. It may lead groups of one replica already, and learns only from the
    others that the map has moved to another engine: the zone, where the map has no updates, would seem to have lost
    them.
    """
    led = [
        partition
        for partition in dict.fromkeys(partitions)
        if grid.master and grid.local_copies.led(name, partition) is not None
    ]
    entries = grid.zone_entries(name)
    if entries is None or not led:
        done({}, list(partitions))
        return

    def on_confirmed(batch: ZoneBatchDone) -> None:
        # Only of partitions that were led when the confirmation was requested.
        found = grid.changes.heads(name, led)[0] if batch.unconfirmed is None else {}
        done(found, [partition for partition in partitions if partition not in found])

    grid.zone_batch(ZoneBatch(entries.zone, reads=led), on_confirmed)


def ask(asker: StreamAsker, question: own.AskChanges, say: Callable[[own.Changes], None]) -> None:
    asked = Asked(
        question.map,
        question.partition,
        question.after,
        question.after_term,
        question.upto,
        question.upto_term,
        max(1, min(question.bytes_max, ANSWER_BYTES_MAX)),
    )
    asker.ask_changes(asked, lambda told: say(_in_columns(question.id, told)))


def _in_columns(number: int, told: ChangesSince) -> own.Changes:
    records = [record for _, record in told.records]
    olds = own.ColumnBatch.of([record.old or b"" for record in records], [b""] * len(records))
    return own.Changes(
        number,
        told.upto,
        [record.counter for record in records],
        [term for term, _ in told.records],
        bytes(
            own.ChangeKind.REMOVE
            if record.change is Change.REMOVE
            else own.ChangeKind.INSERT
            if record.old is None
            else own.ChangeKind.UPDATE
            for record in records
        ),
        [record.time_ms for record in records],
        own.ColumnBatch.of([record.key for record in records], [record.value for record in records]),
        olds.key_offsets,
        olds.keys,
        told.why,
        told.term,
        _in_runs(records),
    )


def _in_runs(records: Sequence[Record]) -> list[tuple[int, int, TransactionId]]:
    """Runs of consecutive changes by one transaction: first place, length, transaction."""
    runs: list[tuple[int, int, TransactionId]] = []
    for place, told in [(place, one.request) for place, one in enumerate(records) if one.request]:
        transaction, _ = split_mark(told)
        if not transaction:
            continue
        if runs and runs[-1][2] == transaction and sum(runs[-1][:2]) == place:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, transaction)
        else:
            runs.append((place, 1, transaction))
    return runs


class ChangeQuestions:
    """Answers `AskHeads` and `AskChanges` for one connection."""

    __slots__ = ("_grid", "_replies")

    def __init__(self, replies: ReplyChannel) -> None:
        self._replies = replies
        self._grid = replies.grid

    def heads(self, question: own.AskHeads) -> None:
        if not self._has_stream(question.id, question.map, question.partitions):
            return
        if self._grid.zone_of(question.map):
            self._heads_in_zone(question)
        else:
            self._replies.send(heads(self._grid.changes, question))

    def _heads_in_zone(self, question: own.AskHeads) -> None:
        replies = self._replies
        if not replies.may_wait(question.id):
            return

        def done(found: Mapping[int, Reach], moved: list[int]) -> None:
            replies.answered()
            replies.send(_heads(question.id, found, moved))

        replies.handed_over = True
        on_done = replies.on_done("AskHeads", question.id, done)
        zone_heads(self._grid, question.map, question.partitions, on_done)

    def changes(self, question: own.AskChanges) -> None:
        replies = self._replies
        if problem := question_problem(question):
            replies.fault(question.id, own.FaultKind.MALFORMED, problem)
            return
        if not self._has_stream(question.id, question.map, [question.partition]):
            return
        if not replies.may_wait(question.id):
            return

        def done(answer: own.Changes) -> None:
            replies.answered()
            replies.send(answer)

        replies.handed_over = True
        ask(self._grid, question, replies.on_done("AskChanges", question.id, done))

    def _has_stream(self, number: int, name: str, partitions: list[int]) -> bool:
        """Whether these partitions of the map have a change stream; otherwise the question is answered."""
        replies = self._replies
        if problem := map_problem(name):
            replies.fault(number, own.FaultKind.MALFORMED, problem)
            return False
        if problem := stream_problem(self._grid.changes, name):
            replies.fault(number, own.FaultKind.UNSUPPORTED, problem)
            return False
        return replies.in_range(number, partitions) and not replies.are_lost(number, [name], partitions)
