"""Is nobody told, and nothing written down, what came with a higher feature level than the one in force allows?

For clusters in which members of several builds are mixed (`core.model.levels`).
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.messages import Fill, Message, Replicate, SuspectNow
from holdfast.core.model.journal_entries import Entry, WrotePuts
from holdfast.core.model.levels import DECLARED, LOWEST, PACKED, FeatureLevels


def level_of_message(message: Message) -> int:
    """The feature level that whoever reads this must be able to do."""
    if isinstance(message, Replicate) and any(section.puts for section in message.sections):
        return PACKED
    if isinstance(message, Fill) and any(entries.sizes for entries in message.maps):
        return PACKED
    if isinstance(message, SuspectNow):
        return DECLARED
    return LOWEST


def level_of_entry(entry: Entry) -> int:
    """The same of an entry of a journal."""
    return PACKED if isinstance(entry, WrotePuts) else LOWEST


def unreadable(message: Message, levels: FeatureLevels) -> str:
    """Why a member of this build could not read it; empty when it can."""
    level = level_of_message(message)
    if level <= levels.highest:
        return ""
    return f"{type(message).__name__} is of level {level}, and the build of who gets it can do {levels}"


def too_early(entries: Iterable[Entry], level: int) -> str:
    """Why a member in whose view this level is in force must not write these down; empty when it may."""
    for entry in entries:
        if level_of_entry(entry) > level:
            return (
                f"{type(entry).__name__} is of level {level_of_entry(entry)}, and level {level} is in force"
            )
    return ""
