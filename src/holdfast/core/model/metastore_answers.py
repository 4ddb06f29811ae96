"""Answers of the metastore to operators. Its keys and values are text for them."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

ANSWER_BYTES: Final = 1 << 20
"""Approximate bytes of keys and values; ask again for the rest."""


class KeyAnswer(msgspec.Struct, frozen=True):
    """A key, as its last change left it."""

    key: str
    value: Annotated[str | None, Meta(description="null: absent")]
    revision: Annotated[
        int, Meta(description="of its last change; 0: it never had a value, as far as is known")
    ]
    time_ms: Annotated[
        int, Meta(description="when it changed, in histories and changes: milliseconds since 1970")
    ] = 0


class KeysFound(msgspec.Struct, frozen=True):
    """Keys as of a revision."""

    keys: list[KeyAnswer]
    revision: Annotated[
        int, Meta(description="revision of the answer; for changes: the last one that it covers")
    ]
    more: Annotated[bool, Meta(description="whether the answer was cut off")] = False


class MetastoreRevision(msgspec.Struct, frozen=True):
    """The revision of the metastore after a change."""

    revision: int
