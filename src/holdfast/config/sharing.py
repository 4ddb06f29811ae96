"""What must members have alike, and what do older ones not know of it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

LATER: frozenset[str] = frozenset()
"""Keys of `schema.SHARED`, and fields of maps and services (`maps.backups`), that came after the first build with
feature levels. Older members do not know them: they are told only where they are not the default, so builds can be
mixed until then."""


def told(kind: str, settings: msgspec.Struct, usual: msgspec.Struct) -> Iterator[tuple[str, object]]:
    """The fields of a map or service that others are told, with their values."""
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if f"{kind}.{name}" not in LATER or value != getattr(usual, name):
            yield name, value


def disagreement(mine: Mapping[str, str], theirs: Mapping[str, str]) -> str | None:
    """Why two members with these `shared` settings cannot be in one cluster, or None if they can."""
    for key in sorted({*mine, *theirs}):
        if mine.get(key) != theirs.get(key):
            return (
                f"{key} is {mine.get(key, 'not configured')} here and {theirs.get(key, 'not configured')} there; "
                "all members of a cluster must have the same value"
            )
    return None
