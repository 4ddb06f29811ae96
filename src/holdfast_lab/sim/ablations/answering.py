"""Ablations of the rules about answers to clients: members answer too early."""

# ruff: noqa: SLF001, ARG001 - a twin sits where the original does, and is given what that is given

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.core.messages import Ack, Replicated
from holdfast.core.model.ids import MemberId
from holdfast.core.primary_backup import replication_targets
from holdfast.core.primary_backup.ack_batch import AckBatch, Completion
from holdfast.core.primary_backup.cuts import Cuts
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.routing.backup_reads import Positions
from holdfast.core.store.replica import MapReplica
from holdfast.core.store.request_ids import Remembered
from holdfast.core.streams.change_streams import ChangeStreams, Reach
from holdfast.server import change_questions
from holdfast.server.grid import Grid
from holdfast_lab.sim.ablations.place import Place, always, never, nothing
from holdfast_lab.sim.replacing import Method


def _acknowledges_at_once(_: Method, primary: Lane, done: Completion) -> None:
    """Records leave with the next flush as usual, but the answer does not wait for them."""
    primary.batches.unsent += primary.open_records
    primary.open_records = []
    done(True)


def _tells_at_once(
    _: Method, copies: LocalReplicas, sender: MemberId, answer: Replicated, acks: list[Ack]
) -> None:
    copies._acknowledge(sender, answer, acks)


def _says_that_all_keep_it(_: Method, cuts: Cuts, told: Callable[[bool], None]) -> None:
    cuts.lane.close_batch(lambda known: None)
    told(True)


def _tells_all_that_is_sent(
    _: Method, changes: ChangeStreams, partition: int, held: MapReplica, unsent: int | None
) -> int:
    return held.counter if unsent is None else unsent - 1


def _heads_of_any_leader(
    _: Method,
    grid: Grid,
    name: str,
    partitions: Sequence[int],
    done: Callable[[Mapping[int, Reach], list[int]], None],
) -> None:
    done(*grid.changes.heads(name, partitions))


def _something_waits(primary: Lane, *_: Any) -> bool:
    return bool(primary.open_records or primary._reads)


ANSWERING: dict[str, tuple[Place, ...]] = {
    "all-ack": (
        Place(Lane, "close_batch", _acknowledges_at_once, when=_something_waits),
        Place(Lane, "rest_on", nothing),
    ),
    "confirmed-answers": (Place(Lane, "rest_on", nothing),),
    "destination-acks": (Place(replication_targets, "_include", nothing),),
    "durable-ack": (
        Place(AckBatch, "wait_for_disk", nothing),
        Place(LocalReplicas, "_when_on_disk", _tells_at_once),
    ),
    "cut-kept": (Place(Cuts, "_when_kept", _says_that_all_keep_it),),
    "told-when-safe": (Place(ChangeStreams, "_safe", _tells_all_that_is_sent),),
    "heads-confirmed": (Place(change_questions, "zone_heads", _heads_of_any_leader),),
    "monotonic-reads": (Place(Positions, "allow", always),),
    "apply-once": (Place(Remembered, "knows", never),),
}
