"""The steps of a plan, partition by partition: as a timeline for people, or as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import msgspec

from holdfast.core.model.migration import NONE, Migration, ReplicaList
from holdfast.core.placement.dryrun import Outlook, changed

Label = Callable[[str], str]

# -- as data


class PlannedMigration(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    partition: int
    source: str | None
    source_current_replica_index: int
    source_new_replica_index: int
    destination: str
    destination_current_replica_index: int
    destination_new_replica_index: int
    version_increment: int


class CancelledMove(msgspec.Struct, frozen=True, rename="camel"):
    """One member of a cancelled cycle."""

    member: str | None
    current_replica_index: int
    target_replica_index: int


class SlotNotMade(msgspec.Struct, frozen=True, rename="camel"):
    replica_index: int
    wanted: str | None
    stays: str | None


class PartitionPlan(msgspec.Struct, frozen=True, rename="camel"):
    """The steps of one partition. Index -1 is none."""

    partition: int
    current: ReplicaList
    target: ReplicaList
    gone: list[str]
    lost: bool
    restarts_on: str | None
    promotion: PlannedMigration | None
    """The repair of a row without an owner, in the form of a migration. Nothing is copied."""
    migrations: list[PlannedMigration]
    cancelled_cycles: list[list[CancelledMove]]
    not_made: list[SlotNotMade]
    cleared_slots: list[int]
    intermediate_states: list[ReplicaList]
    version_increment: int


def as_data(outlook: Outlook) -> PartitionPlan:
    planned = outlook.plan
    heir = Migration(outlook.partition, None, NONE, NONE, str(planned.current[0]), outlook.promoted, 0)
    return PartitionPlan(
        outlook.partition,
        outlook.before,
        outlook.wanted,
        outlook.gone,
        outlook.lost,
        outlook.restarts_on,
        _migration(heir, "PROMOTE") if outlook.promoted != NONE else None,
        [_migration(step, step.kind.value) for step in planned.migrations],
        [
            [
                CancelledMove(planned.current[slot], slot, following)
                for slot, following in pairwise([*cycle, cycle[0]])
            ]
            for cycle in planned.cycles
        ],
        [SlotNotMade(slot, outlook.wanted[slot], planned.target[slot]) for slot in outlook.left_out],
        list(planned.cleared),
        list(outlook.states()),
        outlook.increment,
    )


def _migration(step: Migration, kind: str) -> PlannedMigration:
    return PlannedMigration(
        kind,
        step.partition,
        step.source,
        step.source_current,
        step.source_new,
        step.destination,
        step.destination_current,
        step.destination_new,
        step.increment,
    )


# -- as text


def timeline(outlooks: Iterable[Outlook], label: Label) -> Iterator[str]:
    """A block of lines for each partition; unchanged ones are listed together."""
    idle: list[int] = []
    for outlook in outlooks:
        if _is_idle(outlook):
            idle.append(outlook.partition)
            continue
        if idle:
            yield _idle(idle)
            idle = []
        yield "\n".join(_block(outlook, label))
    if idle:
        yield _idle(idle)


def _is_idle(outlook: Outlook) -> bool:
    planned = outlook.plan
    quiet = not (outlook.gone or outlook.lost or planned.steps or planned.cancelled)
    return quiet and planned.current == outlook.left


def _idle(partitions: list[int]) -> str:
    if len(partitions) == 1:
        return f"partition {partitions[0]}: nothing to do\n"
    return f"partitions {partitions[0]} to {partitions[-1]}: nothing to do\n"


def _block(outlook: Outlook, label: Label) -> Iterator[str]:
    planned = outlook.plan
    states = list(outlook.states())
    told = ["now", *_events(outlook)]
    notes = [_gone(outlook, label), *_details(outlook, label)]
    cells = [["-" if owner is None else label(owner) for owner in state] for state in states]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    counted = len(planned.migrations)
    yield (
        f"partition {outlook.partition}: {counted} migration{'s' * (counted != 1)}, "
        f"version +{outlook.increment}"
    )
    for event, row, note in zip(told, cells, notes, strict=True):
        shown = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {event:10}  {shown}   {note}".rstrip()
    for cycle in planned.cycles:
        turns = ", ".join(
            f"{label(str(planned.current[slot]))} from {slot} to {following}"
            for slot, following in pairwise([*cycle, cycle[0]])
        )
        yield f"  cancelled   a cycle, so all stay: {turns}"
    for slot in outlook.left_out:
        wanted, stays = (_named(row[slot], label) for row in (outlook.wanted, planned.target))
        yield f"  not made    slot {slot}: wanted {wanted}, stays {stays}; no safe order of steps leads there"
    if outlook.lost:
        yield f"  LOST        {_loss(outlook, label)}"
    yield ""


def _events(outlook: Outlook) -> Iterator[str]:
    if outlook.promoted != NONE:
        yield "PROMOTE"
    elif outlook.restarts_on is not None:
        yield "EMPTY"
    for step in outlook.plan.steps:
        yield step.kind.value if isinstance(step, Migration) else "CLEAR"


def _details(outlook: Outlook, label: Label) -> Iterator[str]:
    if outlook.promoted != NONE:
        heir = _named(outlook.plan.current[0], label)
        yield f"{heir} from {outlook.promoted} to 0; version +{_first_increment(outlook)}"
    elif outlook.restarts_on is not None:
        yield f"{label(outlook.restarts_on)} begins empty; version +{_first_increment(outlook)}"
    for step in outlook.plan.steps:
        if not isinstance(step, Migration):
            yield f"{label(step.owner)} leaves {step.slot}; version +1"
            continue
        text = label(step.destination)
        if step.destination_current != NONE:
            text += f" from {step.destination_current}"
        text += f" to {step.destination_new}"
        if step.source is not None:
            text += f" for {label(step.source)}, which "
            text += "leaves" if step.source_new == NONE else f"goes to {step.source_new}"
        yield f"{text}; version +{step.increment}"


def _first_increment(outlook: Outlook) -> int:
    return changed(outlook.left, outlook.plan.current)


def _gone(outlook: Outlook, label: Label) -> str:
    return f"gone: {', '.join(map(label, outlook.gone))}" if outlook.gone else ""


def _loss(outlook: Outlook, label: Label) -> str:
    if outlook.restarts_on is not None:
        return f"no member holds it: it restarts empty on {label(outlook.restarts_on)}"
    if any(outlook.left):
        held = (
            "continues without them" if outlook.plan.steps or outlook.promoted != NONE else "waits for them"
        )
        return f"no survivor holds the maps with the fewest backups: it {held}"
    return "no member holds it: nothing to copy from, no migrations"


def _named(owner: str | None, label: Label) -> str:
    return "none" if owner is None else label(owner)
