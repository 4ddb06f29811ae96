"""The sections `processors.NAME`: functions that members run on entries."""

from __future__ import annotations

import re
from typing import Final

from holdfast.config.sections import Section, sized, whole

FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
NAME_MAX: Final = 256


class ProcessorSettings(Section, frozen=True, kw_only=True):
    """An entry processor: a function of this member's program that clients let run on entries, by its name."""

    function: str = sized(
        "",
        512,
        "MODULE:FUNCTION, imported when the member starts. The function gets an entry, and returns the result.",
    )
    factory_id: int = whole(
        0,
        -(2**31),
        2**31 - 1,
        "Factory id by which clients of Hazelcast name the processor; with class_id. 0 and 0: by its name alone.",
    )
    class_id: int = whole(0, -(2**31), 2**31 - 1, "Class id of the processor in that factory.")
    time_limit_ms: int = whole(
        1000,
        1,
        3_600_000,
        "Time after which the caller gets an error, and the entry is unlocked; nothing is changed then.",
    )

    @property
    def identity(self) -> tuple[int, int] | None:
        """Factory id and class id; None: it has none."""
        return (self.factory_id, self.class_id) if self.factory_id or self.class_id else None
