"""Checks of feature levels (`core.model.levels`) in simulated clusters whose members have several builds.

No member may get a message that its build cannot read, or store entries of a higher level than the one in
force. Example: packed puts are of level 2. In a cluster at level 1, a member of a newer build must neither
send them to an older one nor store them: the operator may still go back to the older build, which could not
read them.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.messages import (
    EvictMembers,
    Fill,
    ForgetMaps,
    Forward,
    ForwardFrames,
    FramesAnswer,
    GroupStateWanted,
    Message,
    MessageBatch,
    MetastoreWanted,
    MigrationRequest,
    Replicate,
    ZoneForward,
)
from holdfast.core.model.journal_entries import Entry, Wrote, WrotePuts
from holdfast.core.model.levels import (
    EVICTS,
    EXCHANGES,
    FORGETS,
    FORGETS_LEFT_OVER,
    FORWARDS_FRAMES,
    LOWEST,
    MESSAGE_BATCHES,
    PACKED,
    STARTS_METASTORE,
    ZONE_CUTS,
    ZONE_REPAIRS,
    FeatureLevels,
)
from holdfast.core.model.map_moves import FillMap, decode_move_step
from holdfast.core.model.migration import MigrationKind
from holdfast.core.model.operations import Op
from holdfast.core.model.records import Change, Record


def _begins(records: Iterable[Record]) -> bool:
    return any(record.change is Change.BEGIN for record in records)


def _forgets_left_over(message: Message) -> bool:
    if not isinstance(message, Forward | ZoneForward) or message.request.op is not Op.FILL:
        return False
    step = decode_move_step(message.request.value)
    return isinstance(step, FillMap) and step.forgets


def level_of_message(message: Message) -> int:
    if _forgets_left_over(message):
        return FORGETS_LEFT_OVER
    if isinstance(message, MessageBatch):
        return MESSAGE_BATCHES
    if isinstance(message, ForwardFrames | FramesAnswer):
        return FORWARDS_FRAMES
    if isinstance(message, MigrationRequest) and message.migration.kind is MigrationKind.EXCHANGE:
        return EXCHANGES
    if isinstance(message, ZoneForward) and message.request.op is Op.PIN:
        return ZONE_CUTS
    if isinstance(message, GroupStateWanted):
        return ZONE_REPAIRS
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
    if isinstance(message, MetastoreWanted):
        return STARTS_METASTORE
    return LOWEST


def level_of_entry(entry: Entry) -> int:
    if isinstance(entry, Wrote) and _begins(entry.records):
        return FORGETS
    return PACKED if isinstance(entry, WrotePuts) else LOWEST


def unreadable(message: Message, levels: FeatureLevels) -> str:
    """Why a build with these levels cannot read the message; empty if it can."""
    level = level_of_message(message)
    if level <= levels.highest:
        return ""
    return f"{type(message).__name__} is of level {level}, and the build of who gets it can do {levels}"


def too_early(entries: Iterable[Entry], level: int) -> str:
    """Why a member must not store these entries at this level; empty if it may."""
    for entry in entries:
        if level_of_entry(entry) > level:
            return (
                f"{type(entry).__name__} is of level {level_of_entry(entry)}, and level {level} is in force"
            )
    return ""
