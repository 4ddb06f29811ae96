"""Output of `holdfast plan`: each partition as a timeline or as data, or a summary of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from holdfast.core.model.migration import NONE, Migration, MigrationKind
from holdfast.core.placement.dryrun import Outlook, changed

Label = Callable[[str], str]
"""Returns the name of a member for display."""

SHOWN = 10

# -- as data


def as_data(outlook: Outlook) -> dict[str, Any]:
    """One partition as plain data. -1 means no replica index."""
    planned = outlook.plan
    return {
        "partition": outlook.partition,
        "current": outlook.before,
        "target": outlook.wanted,
        "gone": outlook.gone,
        "lost": outlook.lost,
        "restartsOn": outlook.anew,
        "promotion": _promotion(outlook),
        "migrations": [_migration(step) for step in planned.migrations],
        "cancelledCycles": [
            [
                {
                    "member": planned.current[slot],
                    "currentReplicaIndex": slot,
                    "targetReplicaIndex": following,
                }
                for slot, following in pairwise([*cycle, cycle[0]])
            ]
            for cycle in planned.cycles
        ],
        "notMade": [
            {"replicaIndex": slot, "wanted": outlook.wanted[slot], "stays": planned.target[slot]}
            for slot in outlook.left_out
        ],
        "clearedSlots": planned.cleared,
        "intermediateStates": list(outlook.states()),
        "versionIncrement": outlook.increment,
    }


def _promotion(outlook: Outlook) -> dict[str, Any] | None:
    """The repair of an assignment without an owner, in the form of a migration. Nothing is copied."""
    if outlook.promoted == NONE:
        return None
    heir = Migration(outlook.partition, None, NONE, NONE, str(outlook.plan.current[0]), outlook.promoted, 0)
    return {**_migration(heir), "type": "PROMOTE"}


def _migration(step: Migration) -> dict[str, Any]:
    return {
        "type": step.kind.value,
        "partition": step.partition,
        "source": step.source,
        "sourceCurrentReplicaIndex": step.source_current,
        "sourceNewReplicaIndex": step.source_new,
        "destination": step.destination,
        "destinationCurrentReplicaIndex": step.destination_current,
        "destinationNewReplicaIndex": step.destination_new,
        "versionIncrement": step.increment,
    }


# -- as text


def as_text(outlooks: Iterable[Outlook], label: Label) -> Iterator[str]:
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
    """One partition: the event, the assignment after it, and the members involved."""
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
    elif outlook.anew is not None:
        yield "EMPTY"
    for step in outlook.plan.steps:
        yield step.kind.value if isinstance(step, Migration) else "CLEAR"


def _details(outlook: Outlook, label: Label) -> Iterator[str]:
    """Source and destination of each event."""
    if outlook.promoted != NONE:
        heir = _named(outlook.plan.current[0], label)
        yield f"{heir} from {outlook.promoted} to 0; version +{_first_increment(outlook)}"
    elif outlook.anew is not None:
        yield f"{label(outlook.anew)} begins empty; version +{_first_increment(outlook)}"
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
    if outlook.anew is not None:
        return f"no member holds it: it restarts empty on {label(outlook.anew)}"
    if any(outlook.left):
        held = (
            "continues without them" if outlook.plan.steps or outlook.promoted != NONE else "waits for them"
        )
        return f"no survivor holds the maps with the fewest backups: it {held}"
    return "no member holds it: nothing to copy from, no migrations"


def _named(owner: str | None, label: Label) -> str:
    return "nobody" if owner is None else label(owner)


# -- summary


@dataclass(slots=True)
class Summary:
    partitions: int = 0
    changed: int = 0
    migrations: Counter[MigrationKind] = field(default_factory=Counter)
    copies: int = 0
    """Migrations to a member that holds nothing of the partition, so that the whole content travels."""
    promotions: int = 0
    cycles: int = 0
    left_out: int = 0
    cleared: int = 0
    increment: int = 0
    lost: list[int] = field(default_factory=list)
    owners: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    """Partitions that each member owns, before and after."""
    replicas: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))

    def add(self, outlook: Outlook) -> None:
        migrations = outlook.plan.migrations
        self.partitions += 1
        self.changed += outlook.left != outlook.plan.target
        self.migrations.update(step.kind for step in migrations)
        self.copies += sum(step.destination_current == NONE for step in migrations)
        self.promotions += outlook.promoted != NONE
        self.cycles += len(outlook.plan.cycles)
        self.left_out += len(outlook.left_out)
        self.cleared += len(outlook.plan.cleared)
        self.increment += outlook.increment
        if outlook.lost:
            self.lost.append(outlook.partition)
        for counted, owned, row in zip(
            self.replicas, self.owners, (outlook.before, outlook.plan.target), strict=True
        ):
            counted.update(filter(None, row))
            owned.update(filter(None, row[:1]))

    def members(self) -> list[str]:
        return sorted(self.replicas[0] | self.replicas[1])

    def as_data(self) -> dict[str, Any]:
        return {
            "partitions": self.partitions,
            "changed": self.changed,
            "migrations": sum(self.migrations.values()),
            "types": {kind.value: self.migrations[kind] for kind in MigrationKind},
            "copies": self.copies,
            "promotions": self.promotions,
            "cancelledCycles": self.cycles,
            "notMade": self.left_out,
            "clearedSlots": self.cleared,
            "versionIncrement": self.increment,
            "lost": self.lost,
            "members": [
                {
                    "member": name,
                    "ownedBefore": self.owners[0][name],
                    "ownedAfter": self.owners[1][name],
                    "replicasBefore": self.replicas[0][name],
                    "replicasAfter": self.replicas[1][name],
                }
                for name in self.members()
            ],
        }

    def as_text(self, label: Label) -> Iterator[str]:
        kinds = ", ".join(
            f"{self.migrations[kind]:,} {kind}" for kind in MigrationKind if self.migrations[kind]
        )
        total = sum(self.migrations.values())
        figures = {
            "partitions": f"{self.partitions:,}, of which {self.changed:,} change",
            "migrations": f"{total:,}" + (f": {kinds}" if kinds else ""),
            "copies": f"{self.copies:,} to a member that holds nothing of the partition yet",
            "promotions": f"{self.promotions:,}",
            "cancelled cycles": f"{self.cycles:,}",
            "slots not made": f"{self.left_out:,}",
            "cleared slots": f"{self.cleared:,}",
            "version": f"+{self.increment:,}",
            "lost partitions": _some(self.lost),
        }
        for name, text in figures.items():
            yield f"{name:16}  {text}"
        names = self.members()
        width = max((len(label(name)) for name in names), default=0)
        yield ""
        yield f"{'':{width}}  {'owns':>9}{'after':>9}  {'replicas':>9}{'after':>9}"
        for name in names:
            owned, held = (
                [f"{counted[name]:,}" for counted in pair] for pair in (self.owners, self.replicas)
            )
            yield f"{label(name):{width}}  {owned[0]:>9}{owned[1]:>9}  {held[0]:>9}{held[1]:>9}"


def _some(partitions: list[int]) -> str:
    if not partitions:
        return "0"
    named = ", ".join(map(str, partitions[:SHOWN])) + (", ..." if len(partitions) > SHOWN else "")
    return f"{len(partitions):,}: {named}"
