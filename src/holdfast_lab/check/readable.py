"""Judge of feature levels: no member sends or stores what only a higher level than the one in force allows.

For clusters of members with several builds (`core.model.levels`).
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.messages import (
    EvictMembers,
    Fill,
    ForgetMaps,
    Forward,
    Message,
    MigrationRequest,
    Replicate,
)
from holdfast.core.model.journal_entries import Entry, Wrote, WrotePuts
from holdfast.core.model.levels import EVICTS, EXCHANGES, FORGETS, LOWEST, PACKED, FeatureLevels
from holdfast.core.model.migration import MigrationKind
from holdfast.core.model.operations import Op
from holdfast.core.model.records import Change, Record


def _begins(records: Iterable[Record]) -> bool:
    return any(record.change is Change.BEGIN for record in records)


def level_of_message(message: Message) -> int:
    """Feature level that a reader of this message needs."""
    if isinstance(message, MigrationRequest) and message.migration.kind is MigrationKind.EXCHANGE:
        return EXCHANGES
    if isinstance(message, ForgetMaps) or (isinstance(message, Forward) and message.request.op is Op.DESTROY):
        return FORGETS
    if isinstance(message, Replicate) and any(_begins(section.records) for section in message.sections):
        return FORGETS
    if isinstance(message, Fill) and any(
        _begins(missed.records) for missed in (*message.records, *message.earlier)
    ):
        return FORGETS
    if isinstance(message, Replicate) and any(section.puts for section in message.sections):
        return PACKED
    if isinstance(message, Fill) and any(entries.sizes for entries in message.maps):
        return PACKED
    if isinstance(message, EvictMembers):
        return EVICTS
    return LOWEST


def level_of_entry(entry: Entry) -> int:
    """Feature level that a reader of this journal entry needs."""
    if isinstance(entry, Wrote) and _begins(entry.records):
        return FORGETS
    return PACKED if isinstance(entry, WrotePuts) else LOWEST


def unreadable(message: Message, levels: FeatureLevels) -> str:
    """Why a member of this build cannot read the message; empty if it can."""
    level = level_of_message(message)
    if level <= levels.highest:
        return ""
    return f"{type(message).__name__} is of level {level}, and the build of who gets it can do {levels}"


def too_early(entries: Iterable[Entry], level: int) -> str:
    """Why a member with this level in force must not store these entries; empty if it may."""
    for entry in entries:
        if level_of_entry(entry) > level:
            return (
                f"{type(entry).__name__} is of level {level_of_entry(entry)}, and level {level} is in force"
            )
    return ""
