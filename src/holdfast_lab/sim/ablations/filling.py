"""Ablations of the rules about filling a replica and forgetting the old one: a copy counts before it is whole."""

# ruff: noqa: SLF001, ARG001 - a twin sits where the original does, and is given what that is given

from __future__ import annotations

from typing import Any

from holdfast.core.messages import Fill
from holdfast.core.model.journal_entries import Snapshot
from holdfast.core.model.records import Record
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.primary_backup.staging_replica import FilledReplica, StagingReplica, StagingStep
from holdfast.core.state_transfer.destination import Destination
from holdfast.core.state_transfer.source import Source
from holdfast.core.state_transfer.supply import Supply
from holdfast_lab.sim.ablations.place import Place
from holdfast_lab.sim.replacing import Method


def _counts_before_it_is_durable(
    _: Method, destination: Destination, partition: int, staged: StagingReplica, taken: Snapshot
) -> None:
    destination._log.checkpoint(taken)
    destination._write_changes(staged.copy)
    destination._held(partition, staged)


def _reports_with_each_chunk(
    truth: Method, source: Source, supply: Supply, *chunk: Any, **last: bool
) -> None:
    truth(source, supply, *chunk, **last)
    source._report(supply)


def _reports_no_more(_: Method, source: Source, supply: Supply) -> None:
    source._note(supply)


def _counts_what_is_missing(truth: Method, staged: StagingReplica, fill: Fill) -> None:
    truth(staged, fill)
    for part in fill.maps:
        held = staged._filled[part.map].held
        held.updates = UpdateCounter(max(held.updates.hwm, part.counter))


def _whole_with_the_last_chunk(_: Method, staged: StagingReplica) -> bool:
    if not staged.complete:
        staged.step(StagingStep.WHOLE)
    return True


def _takes_out_of_turn(_: Method, filled: FilledReplica, record: Record, term: int, now_ns: int) -> None:
    if not filled.held.updates.holds(record.counter):
        filled.held.enter(term)
        filled.held.apply(record, now_ns)


def _in_order(filled: FilledReplica, record: Record, *_: int) -> bool:
    return filled.how is not None and filled._in_order and record.counter > filled.held.counter


def _forgets_at_once(truth: Method, source: Source, supply: Supply) -> None:
    truth(source, supply)
    if source._master() is not None:
        source._copies.held[supply.partition].maps.clear()


def _of_a_migration(source: Source, supply: Supply, *_: Any, **named: bool) -> bool:
    return supply.migration is not None


FILLING: dict[str, tuple[Place, ...]] = {
    "fill-durable": (Place(Destination, "_write_down", _counts_before_it_is_durable),),
    "copy-complete": (
        Place(Source, "_send", _reports_with_each_chunk, when=_of_a_migration),
        Place(Source, "_arrived", _reports_no_more, when=_of_a_migration),
    ),
    "no-gap": (
        Place(StagingReplica, "_end", _counts_what_is_missing),
        Place(StagingReplica, "look", _whole_with_the_last_chunk, when=lambda staged: staged._last),
    ),
    "newer-wins": (Place(FilledReplica, "take", _takes_out_of_turn, when=_in_order),),
    "forget-last": (Place(Source, "_report", _forgets_at_once),),
}
